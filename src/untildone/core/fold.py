"""State is a fold of facts: how each control event changes where a run stands.

Total and forgiving: any order of events that a crash, a second driver or a newer version can leave is folded
without raising. An event that makes no sense where it stands changes as little as possible.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from untildone.core import asked, breaker, clock_jumps, heard, in_session, landed, meddling, progress, proven, window
from untildone.core import events as ev
from untildone.core import trace as tr
from untildone.core.claims import Claim, Form, claims_done, judges, objection, says_blocked, says_done, unsettled
from untildone.core.delivery import needs_witness
from untildone.core.faults import FAULTS, GOES_ON, LIMIT_REACHED, MODEL_ERROR, PAUSED, SESSION_LOST, Fault, Remedy
from untildone.core.figures import FORGE, IN_LINE
from untildone.core.limits import has_reserve
from untildone.core.questions import with_asked
from untildone.core.spending import book, filed, spend, with_estimate
from untildone.core.state import LoopState, OpenIteration, Retry, Spend, Wait
from untildone.core.stopping import Reason

Handler = Callable[[LoopState, Any, float], LoopState]

TRIES_BEFORE_FALLBACK = 2
"""Tries of the first choice in an outage before a fallback takes over."""


def fold(records: Iterable[ev.Record], state: LoopState | None = None) -> LoopState:
    """Fold records, in order, onto a state."""
    folded = state or LoopState()
    for record in records:
        folded = apply(folded, record)
    return folded


def apply(state: LoopState, record: ev.Record) -> LoopState:
    """The state after one more record. Records already folded are ignored."""
    if record.seq <= state.last_seq:
        return state
    event, at = record.event, record.at
    handler = HANDLERS.get(type(event))
    folded = state if handler is None else handler(state, event, at)
    if isinstance(event, ev.Command) and event.order is not None:
        folded = replace(folded, ordered=max(folded.ordered, event.order))
    if isinstance(event, ev.ContinuousResumed):
        folded = replace(folded, driven_from=record.seq)
    if not state.driving or event.SOURCE == "system" or isinstance(event, ev.ContinuousResumed | ev.Unknown):
        return replace(folded, last_seq=record.seq)
    # The time since the driver's last fact counts; what humans append does not move the driver's clock.
    passed = (folded if isinstance(event, ev.ClockJumped) else state).passed(at)
    waits_for = event.cause if isinstance(event, ev.ContinuousWaiting) else None
    return replace(
        folded, last_seq=record.seq, last_at=at, active_seconds=state.active_seconds + passed,
        waited_seconds=state.waited_seconds + (passed if state.resting else 0.0),
        resting=waits_for is not None or (state.resting and event.KIND == "trace"),
        on_hold=folded.paused and (state.on_hold or waits_for == PAUSED.name),
    )  # fmt: skip


# --- the run -------------------------------------------------------------------------------------------------


def _started(state: LoopState, event: ev.ContinuousStarted, at: float) -> LoopState:
    return replace(
        state, run_id=event.run_id, spec=event.spec, policy=event.policy, started_at=at, last_at=at, phase="running"
    )


def _resumed(state: LoopState, event: ev.ContinuousResumed, at: float) -> LoopState:
    """A driver is there again: what stopped the run before is forgiven once, the counters of work stay."""
    return replace(
        state, phase="running", driving=True, last_at=at, stop=None, paused=False, stop_reason=None, stop_detail="",
        fatal=None, fatal_detail="", blocked=None, failures_in_a_row=0, denials_in_a_row=0, outage_since=None,
        limited_since=None, backoffs=0, **_rested(state, at), review_rounds=0,
        arrival=replace(state.arrival, trouble="", fixes=0), resting=False, on_hold=False, held=None,
        # Whoever resumes without a word on the dispute lets the agent try once more.
        dispute_rounds=1 if state.stop_reason == Reason.DISPUTED else state.dispute_rounds,
        dispute_refused=state.dispute_refused and state.stop_reason != Reason.DISPUTED, sandbox=event.sandbox,
    )  # fmt: skip


def _recovered(state: LoopState, _: ev.ContinuousRecovered, __: float) -> LoopState:
    return state


def _waiting(state: LoopState, event: ev.ContinuousWaiting, _: float) -> LoopState:
    """For eyes: why and how long is always decided anew, so that raised limits end a wait."""
    if event.cause == IN_LINE:
        return replace(state, arrival=replace(state.arrival, in_line=event.detail))
    held_up = event.detail if event.cause == FORGE else ""
    same = held_up == state.arrival.held_up
    return state if same else replace(state, arrival=replace(state.arrival, held_up=held_up))


def _hook_failed(state: LoopState, event: ev.HookFailed, _: float) -> LoopState:
    if state.policy.hook_failure != "stop":
        return state
    return replace(state, fatal="hook_failed", fatal_detail=f"{event.hook}: {event.detail}")


def _warned(state: LoopState, event: ev.BudgetWarning, _: float) -> LoopState:
    return replace(state, warned=(*state.warned, event.limit_type))


def _resources(state: LoopState, event: ev.ResourcesSeen, _: float) -> LoopState:
    return replace(state, disk_low=event.disk_low, disk_free=event.disk_free)


def _quota(state: LoopState, event: tr.AgentQuota, _: float) -> LoopState:
    return replace(state, quota=event.windows)


def _limit_reached(state: LoopState, _: ev.ContinuousLimitReached, __: float) -> LoopState:
    return state


def _suspended(state: LoopState, event: ev.ContinuousSuspended, _: float) -> LoopState:
    return replace(
        state, phase="suspended", driving=False, stop_reason=event.stop_reason, stop_detail=event.detail, stop=None,
        unsettled=replace(state.unsettled, after_stop=True) if state.unsettled else None,
    )  # fmt: skip


def _completed_run(state: LoopState, event: ev.ContinuousCompleted, _: float) -> LoopState:
    return replace(
        state, phase="completed", driving=False, stop_reason=event.stop_reason, stop_detail=event.detail, stop=None,
        unsettled=None,
    )  # fmt: skip


# --- iterations ----------------------------------------------------------------------------------------------


def _iteration_started(state: LoopState, event: ev.IterationStarted, at: float) -> LoopState:
    state = _book_abandoned(state)
    return replace(
        state,
        attempts=max(state.attempts, event.iteration_num),
        open=OpenIteration(
            number=event.iteration_num, retry=event.retry, started_at=at, started_seq=state.last_seq,
            tree=event.tree,
            head=event.head,
            branch=event.branch,
            handoff=event.handoff,
            review=event.review,
            question=event.question,
            resume_session=event.resume_session,
        ),
        retry=None,
        handoff_due=False,
        unsettled=None,
        wait=None,
        calls=window.record(state.calls, at),
        messages=tuple(m for m in state.messages if m.number > event.messages_shown),
        **_rested(state, at),
    )  # fmt: skip


def _rested(state: LoopState, at: float) -> dict[str, Any]:
    """An open breaker closes for one trial after its cooldown, and what it held against the agent is forgotten."""
    circuit = state.circuit
    rested = breaker.rest(circuit, state.policy, at)
    return {} if rested is circuit else {"breaker": rested, "progress": progress.eased(state.progress)}


def _book_abandoned(state: LoopState) -> LoopState:
    """An iteration still open when the next one starts: its replies were served, so they are booked."""
    return state if state.open is None else book(state, with_estimate(state.open))


def _iteration_completed(state: LoopState, event: ev.IterationCompleted, at: float) -> LoopState:
    due = landed.unsettled(state.open, state.last_seq)
    if state.open is not None and state.open.handoff:
        return replace(_close(state, event), unsettled=due)  # a last word after a limit: booked, nothing more
    if state.open is not None and state.open.question:
        return replace(_answered(_close(state, event), event, at), unsettled=due, last_error="")
    if state.open is not None and state.open.review:
        return replace(
            proven.reviewed(_close(state, event), event), failures_in_a_row=0, outage_since=None, backoffs=0,
            fallback=0, last_error="",
        )  # fmt: skip
    report = event.claim.report
    state = with_asked(_close(state, event), report.questions if report else ())
    done = _claims_done(state, event.claim)
    form: Form = ("tasks" if state.tasks_all_done else event.claim.form) if done else "none"
    claimed = replace(state, streak=state.streak + 1 if done else 0, streak_form=form)
    denied = bool(event.evidence.denials) and not event.evidence.changed
    return replace(
        claimed,
        successes=state.successes + 1,
        failures_in_a_row=0,
        outage_since=None,
        limited_since=None,
        backoffs=0,
        fallback=0,
        denials_in_a_row=state.denials_in_a_row + 1 if denied else 0,
        last_denials=event.evidence.denials,
        claim_due=done and needs_witness(claimed),
        answered=False,
        doubts=event.claim.doubts if done else (),
        uncounted="" if done else _uncounted(state, event.claim),
        verified=False,
        settled=(),
        guarded=False,
        approved=state.approved and not event.evidence.changed,
        review_due=state.spec.review.when == "iteration" and event.evidence.changed,
        feedback="",
        checks_said="",
        refused_streak=(0, "none"),
        blocked=_blocked_because(event.claim) if not done else None,
        block_doubted=_tried_nothing(state, event),
        breaker=_observed(state, event, at, done=done),
        progress=_progressed(state, event, at, done=done),
        half_done=None,
        unsettled=due,
        last_report=report or state.last_report,
        asked_question=event.claim.question,
        last_error="",
        last_session=event.session_id or state.last_session,
        last_session_at=at,
        tasks_completed=state.tasks_completed + (report.tasks_completed if report else 0),
        files_modified=state.files_modified + event.evidence.files_changed,
        files_uncommitted=event.evidence.files_changed,
        wait=_pause(state, at),
    )


def _pause(state: LoopState, at: float) -> Wait | None:
    delay = state.policy.loop_delay
    return Wait(until=at + delay, cause="loop_delay", since=at) if delay else None


def _claims_done(state: LoopState, claim: Claim) -> bool:
    """Whether this is a claim. Where there are boxes to tick, words are none."""
    if state.tasks_boxed:
        return state.tasks_all_done and not objection(claim, match=state.policy.completion_match)
    return says_done(claim, state.policy)


def _uncounted(state: LoopState, claim: Claim) -> str:
    made = state.tasks_all_done if state.tasks_boxed else claims_done(claim)
    return objection(claim, match=state.policy.completion_match) if made else ""


def _tried_nothing(state: LoopState, event: ev.IterationCompleted) -> bool:
    """Whether this is the first iteration and left no trace of any attempt. Older systems take a block as it is."""
    traces = event.evidence.changed or event.evidence.activity
    return not (state.successes or traces) and judges(state.policy.completion_match)


def _answered(state: LoopState, event: ev.IterationCompleted, at: float) -> LoopState:
    """The agent was asked what is left. Its claim counts only if that is nothing; else it is taken back."""
    claim, report = event.claim, event.claim.report
    state = with_asked(state, report.questions if report else ())
    state = replace(
        state, failures_in_a_row=0, outage_since=None, limited_since=None, backoffs=0, fallback=0,
        last_report=report or state.last_report, last_session=event.session_id or state.last_session,
        last_session_at=at, files_modified=state.files_modified + event.evidence.files_changed,
        files_uncommitted=event.evidence.files_changed,
    )  # fmt: skip
    why = unsettled(claim, state.doubts) if claims_done(claim) else _said_instead(event)
    if why:
        return replace(
            state, streak=0, streak_form="none", claim_due=False, uncounted=why,
            breaker=breaker.claim_refused(state.breaker, state.policy, at),
        )  # fmt: skip
    form: Form = claim.form if state.streak_form == "signal" else state.streak_form
    state = replace(state, answered=True, streak_form=form)
    if event.evidence.changed:
        state = replace(state, guarded=False, approved=False)
    return replace(state, claim_due=not state.guarded and needs_witness(state))


def _said_instead(event: ev.IterationCompleted) -> str:
    report = event.claim.report
    left = "; ".join(report.remaining) if report else ""
    return left or (report.recommendation if report else "") or event.output_preview.strip() or "it gave no answer"


def _blocked_because(claim: Claim) -> str | None:
    if not says_blocked(claim) or claim.report is None:
        return None
    return claim.report.recommendation or claim.report.summary or "the agent gave no reason"


def _observed(state: LoopState, event: ev.IterationCompleted, at: float, *, done: bool) -> breaker.Breaker:
    """The breaker of a loop inside Claude Code is its hook's, which tells what it counted."""
    if state.spec.in_session:
        return state.breaker
    return breaker.observe(state.breaker, _observation(state, event, done=done), state.policy, at)


def _progressed(state: LoopState, event: ev.IterationCompleted, at: float, *, done: bool) -> progress.Progress:
    judged = progress.has_judges(state.spec)
    told = progress.Ended(
        number=event.iteration_num, changed=event.evidence.changed, question=event.evidence.question,
        seconds=event.duration_seconds, counts=judged or not done,
    )  # fmt: skip
    return progress.ended(state.progress, told, at, judged=judged)


def _observation(state: LoopState, event: ev.IterationCompleted, *, done: bool) -> breaker.Observation:
    report, evidence = event.claim.report, event.evidence
    # What the agent counts itself is evidence only where the published rules alone decide.
    believes = report is not None and not state.policy.no_progress_threshold
    return breaker.Observation(
        changed=evidence.changed,
        activity=evidence.activity,
        tasks_completed=report.tasks_completed if report and believes else 0,
        has_status=report is not None,
        work_type=report.work_type if report else None,
        error_signature=evidence.error_signature,
        output_chars=evidence.output_chars,
        indicators=event.claim.indicators,
        question=event.claim.question,
        claims_done=done,
        files_modified=report.files_modified if report else 0,
    )


def _iteration_failed(state: LoopState, event: ev.IterationFailed, at: float) -> LoopState:
    left = state.open
    is_review = left is not None and left.review
    fault = FAULTS.get(event.error_type, MODEL_ERROR)
    due = None if is_review else landed.unsettled(left, state.last_seq, fault.name)
    closed = _close(state, event)
    state = replace(
        closed,
        last_error=state.last_error if is_review and fault.remedy is Remedy.EXCUSE else event.error,
        last_session=state.last_session if is_review else _session_after(state, event, fault),
        lost_usd=filed(state.lost_usd, fault.name, closed.spend.total_usd - state.spend.total_usd),
    )
    match fault.remedy:
        case Remedy.WAIT | Remedy.BACK_OFF:
            return _passing_trouble(state, event, fault, left, at)
        case Remedy.STOP:
            return replace(state, unsettled=due, fatal=fault.name, fatal_detail=event.error)
        case Remedy.COUNT:
            failures = state.failures_in_a_row + 1
            pause = Wait(until=event.retry_at, cause=fault.name, since=at) if event.retry_at else None
            session = None if fault.name == "context_too_long" and not is_review else state.last_session
            return replace(state, unsettled=due, failures_in_a_row=failures, wait=pause, last_session=session)
        case Remedy.EXCUSE:
            is_work = not is_review and not (left and (left.handoff or left.question))
            may_hand_over = fault is LIMIT_REACHED and event.session_id is not None and is_work
            again = may_hand_over or fault in GOES_ON
            return replace(
                state,
                excused=state.excused + (is_work and fault not in GOES_ON),
                unsettled=due,
                retry=_same_iteration(event, left, fault) if again else None,
                handoff_due=may_hand_over and has_reserve(state, at),
            )


def _session_after(state: LoopState, event: ev.IterationFailed, fault: Fault) -> str | None:
    """The session to go on in; a question whose session is lost is asked in a fresh one."""
    if fault is SESSION_LOST and state.open is not None and state.open.question:
        return None
    return event.session_id or state.last_session


def _passing_trouble(
    state: LoopState, event: ev.IterationFailed, fault: Fault, left: OpenIteration | None, at: float
) -> LoopState:
    """Trouble that passes by itself costs no attempt: the same iteration goes on in the same session."""
    until = event.retry_at if event.retry_at is not None else at
    since = state.outage_since if fault.remedy is Remedy.WAIT else (state.outage_since or at)
    takes_over = _next_fallback(state, fault)
    return replace(
        state,
        retry=_same_iteration(event, left, fault),
        fallback=state.fallback + 1 if takes_over else state.fallback,
        wait=None if takes_over else Wait(until=until, cause=fault.name, since=at),
        outage_since=since,
        limited_since=(state.limited_since or at) if fault.remedy is Remedy.WAIT else state.limited_since,
        backoffs=state.backoffs + 1,
        usage_limit_hit=state.usage_limit_hit or fault.name in {"usage_limit", "rate_limit"},
    )


def _next_fallback(state: LoopState, fault: Fault) -> bool:
    """Whether another model or agent takes over: at once at a usage limit, in an outage after two tries."""
    has_more = state.fallback < len(state.spec.options.fallback)
    return has_more and (fault.remedy is Remedy.WAIT or state.backoffs + 1 >= TRIES_BEFORE_FALLBACK)


def _same_iteration(event: ev.IterationFailed, left: OpenIteration | None, fault: Fault) -> Retry | None:
    """The next try; None after a question, which is asked anew for as long as it is owed."""
    if left is not None and left.question:
        return None
    retry = left.retry + 1 if left is not None else 1
    tree = left.tree if left is not None else ""
    review = left is not None and left.review
    return Retry(
        number=event.iteration_num, retry=retry, session_id=event.session_id, because=fault.name, tree=tree,
        review=review,
    )  # fmt: skip


def _close(state: LoopState, event: ev.IterationCompleted | ev.IterationFailed) -> LoopState:
    """Book an iteration. What the agent booked is the truth; the replies seen on the way are the fallback."""
    if event.cost_usd is None:
        seen = state.open.spend if state.open is not None and state.open.replies else Spend(unknown_costs=1)
        booked = replace(seen, estimated_usd=event.estimated_usd)
    else:
        booked = spend(event.cost_usd, event.estimated_usd, event.usage)
    return book(state, replace(booked, unknown_costs=booked.unknown_costs + event.unseen_requests))


def _tasks(state: LoopState, event: ev.TasksRead, _: float) -> LoopState:
    """Before the first iteration a file with every box ticked is a claim by itself."""
    if event.missing:
        return replace(state, tasks_open=None, tasks_all_done=False)
    boxes = event.open_blocking + event.open_optional + event.ticked
    state = replace(
        state,
        tasks_open=event.open_blocking,
        tasks_ticked=event.ticked,
        tasks_all_done=event.all_done,
        tasks_boxed=state.tasks_boxed or boxes > 0,
    )
    if event.all_done and state.attempts == 0:
        claimed = replace(state, streak=1, streak_form="tasks")
        return replace(claimed, claim_due=needs_witness(claimed))
    return state


HANDLERS: dict[type[ev.Event], Handler] = {
    ev.ContinuousStarted: _started,
    ev.ContinuousResumed: _resumed,
    ev.ContinuousRecovered: _recovered,
    ev.ContinuousWaiting: _waiting,
    ev.ContinuousLimitReached: _limit_reached,
    ev.HookFailed: _hook_failed,
    ev.BudgetWarning: _warned,
    ev.ResourcesSeen: _resources,
    ev.ClockJumped: clock_jumps.clock_jumped,
    ev.SkipWaitRequested: asked.skip_wait,
    ev.ContinuousSuspended: _suspended,
    ev.ContinuousCompleted: _completed_run,
    ev.IterationStarted: _iteration_started,
    ev.IterationCompleted: _iteration_completed,
    ev.IterationFailed: _iteration_failed,
    ev.IterationValidation: proven.validation,
    ev.BaselineTaken: proven.baseline,
    ev.WaiverGiven: proven.waiver,
    ev.DisputeAccepted: proven.accepted,
    ev.TasksRead: _tasks,
    ev.LandingPrepared: landed.prepared,
    ev.LandingCommitted: landed.committed,
    ev.LandingBegun: landed.begun,
    ev.LandingPushed: landed.pushed,
    ev.LandingPullOpened: landed.pull_opened,
    ev.LandingRejected: landed.rejected,
    ev.LandingMerged: landed.merged,
    ev.LandingReverted: landed.reverted,
    ev.LandingGaveUp: landed.gave_up,
    ev.Rewound: landed.rewound,
    ev.LandingFailed: landed.commit_failed,
    ev.LandingHeld: landed.held,
    ev.LandingLeft: landed.left,
    ev.LandingSnapshot: landed.snapshot,
    ev.StoreTampered: meddling.tampered,
    ev.SteeringRefused: meddling.refused,
    ev.StopRequested: asked.stop,
    ev.PauseRequested: asked.pause,
    ev.ResumeRequested: asked.resume,
    ev.MessageReceived: asked.message,
    ev.LimitsChanged: asked.limits,
    ev.SettingsChanged: asked.settings,
    ev.ResetRequested: asked.reset,
    ev.OrderRefused: asked.refused,
    ev.RunMoved: asked.moved,
    ev.NotesFolded: in_session.notes_folded,
    ev.FailureCounted: in_session.failure_counted,
    ev.GoalChanged: in_session.goal_changed,
    ev.QuestionAsked: in_session.question_asked,
    tr.AgentSession: heard.session,
    tr.AgentReplyStarted: heard.reply_started,
    tr.AgentReply: heard.reply,
    tr.AgentPriceUnknown: heard.price_unknown,
    tr.AgentWoken: heard.woken,
    tr.AgentHostRefused: heard.host_refused,
    tr.AgentBooksDiffer: heard.books_differ,
    tr.AgentBoundExceeded: heard.bound_exceeded,
    tr.AgentQuota: _quota,
}

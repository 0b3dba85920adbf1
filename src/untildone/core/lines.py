"""One plain line for any event: what `untildone log` and the plain output show."""

from collections.abc import Callable, Mapping
from datetime import tzinfo
from typing import Any

from untildone.core import events as ev
from untildone.core.durations import format_duration
from untildone.core.faults import FAULTS, Remedy
from untildone.core.figures import Timed, cause_text, count, dollars, short_commit, stop_detail
from untildone.core.limits import LIMIT_NAMES, LIMITS
from untildone.core.lines_agent import AGENT_LINERS
from untildone.core.lines_delivery import DELIVERY_LINERS, review_line
from untildone.core.outcome import Evidence
from untildone.core.policy import NOT_LINUX
from untildone.core.printable import one_line
from untildone.core.stopping import DONE, SIGNALS, TAKEN_BY, Reason, meaning

DETAIL = 200
"""Columns kept of what the agent or a program wrote."""


_DEADLINE = "deadline"

Liner = Callable[[Any, float], str | Timed | None]


def event_line(record: ev.Record, zone: tzinfo | None = None) -> str | None:
    """One safe line about an event, or None for what would only be noise. `zone` None: local time."""
    said = event_text(record)
    return said.told(record.at, zone) if isinstance(said, Timed) else said


def event_text(record: ev.Record) -> str | Timed | None:
    """The same, with the moment that it names still to be told."""
    event = record.event
    liner = _LINERS.get(type(event))
    if liner is None:
        return one_line(f"event {event.TYPE}", DETAIL)
    return liner(event, record.at)


def _started(event: ev.ContinuousStarted, _: float) -> str:
    run = one_line(f"{event.spec.name} ({event.run_id})", DETAIL)
    return f"run {run}: {one_line(event.goal, DETAIL)}"


_WHERE = {
    "bwrap": "the agent works in a sandbox (bubblewrap)",
    "claude": "the agent's commands run in Claude Code's own sandbox",
    "docker": "the agent works in a container (docker)",
    "podman": "the agent works in a container (podman)",
    "host": "NO SANDBOX: the agent can read and change whatever you can",
}


def _resumed(event: ev.ContinuousResumed, _: float) -> str:
    if not event.pid:
        return f"started in a Claude Code session: {one_line(event.host, 60)}"
    note = f", {one_line(event.sandbox_note, DETAIL)}" if event.sandbox_note else ""
    told = "the agent works on the host" if event.sandbox_note.startswith(NOT_LINUX) else _WHERE.get(event.sandbox)
    where = f"; {told or one_line(event.sandbox, 60)}{note}" if event.sandbox else ""
    driver = f"process {event.pid} on {one_line(event.host, 60)}, untildone {one_line(event.version, 40)}"
    return f"started ({driver}){where}"


def _recovered(event: ev.ContinuousRecovered, _: float) -> str:
    found = ["recovered: the program that ran it had died"]
    if event.iteration_num is not None:
        found.append(f"iteration {event.iteration_num} had been left open")
    if event.orphans_ended:
        found.append(f"{count(event.orphans_ended, 'leftover process', 'leftover processes')} ended")
    if event.snapshot:
        found.append(f"half-done work kept as {one_line(event.snapshot, DETAIL)}")
    return ", ".join(found)


def _waiting(event: ev.ContinuousWaiting, at: float) -> str | Timed:
    said = f"waiting for {one_line(cause_text(event.cause), DETAIL)}"
    detail = f": {one_line(event.detail, DETAIL)}" if event.detail else ""
    if event.until is None:
        return f"{said}{detail}"
    return Timed(f"{said} until ", event.until, f" ({format_duration(event.until - at)}){detail}")


def _limit_reached(event: ev.ContinuousLimitReached, _: float) -> str | Timed:
    limit = next((limit for limit in LIMITS if limit.field == event.limit_type), None)
    said = f"limit reached: {LIMIT_NAMES[limit.field] if limit else one_line(event.limit_type, DETAIL)}"
    if event.limit_type == _DEADLINE:
        return Timed(f"{said} (", event.limit_value, ")")
    return f"{said} ({event.current_value:.6g} of {event.limit_value:.6g})"


def _hook_failed(event: ev.HookFailed, _: float) -> str:
    return one_line(f"the {event.hook} command failed: {event.detail}", DETAIL)


def _suspended(event: ev.ContinuousSuspended, _: float) -> str:
    return f"stopped: {_why(event.stop_reason, event.detail)}"


def _completed(event: ev.ContinuousCompleted, _: float) -> str:
    if event.stop_reason not in DONE:
        return f"ended: {_why(event.stop_reason, event.detail)}"
    why = _why(event.stop_reason, event.detail)
    if event.stop_reason == Reason.COMPLETION_SIGNAL:
        return why
    return f"done{' and verified' if event.verified else ', not verified'}: {why}"


def _why(reason: str, detail: str) -> str:
    said, detail = f"{meaning(reason)} [{reason}]", stop_detail(reason, detail)
    if reason == Reason.STOP_REQUESTED and detail.startswith("by "):
        return one_line(f"requested {detail} [{reason}]", 2 * DETAIL)
    if reason == Reason.SHUTDOWN_SIGNAL and detail:
        return one_line(f"{detail} [{reason}]", 2 * DETAIL)
    if reason == Reason.CLEAN_ROOM:
        return said  # the line before, about the checks, has all of it
    return one_line(f"{said}: {detail}" if detail else said, 2 * DETAIL)


def _warning(event: ev.ContinuousWarning, _: float) -> str:
    return f"note: {one_line(event.message, 2 * DETAIL)}"


def _at_work(event: ev.WitnessAtWork, _: float) -> str:
    return one_line(event.said, 2 * DETAIL)


def _iteration_started(event: ev.IterationStarted, _: float) -> str:
    again = f", try {event.retry + 1}" if event.retry else ""
    session = ", same session" if event.resume_session else ""
    last = ", to hand over what it knows" if event.handoff else ""
    model = f", with {one_line(event.model, 60)}" if event.model else ""
    what = "review of iteration" if event.review else "last question after iteration" if event.question else "iteration"
    return f"{what} {event.iteration_num} started{again}{session}{last}{model}"


def _iteration_completed(event: ev.IterationCompleted, _: float) -> str:
    if event.verdict is not None:
        return review_line(event.iteration_num, event.verdict, event.duration_seconds, event.cost_usd)
    report = event.claim.report
    said = one_line(report.summary if report else "", DETAIL)
    facts = [
        f"iteration {event.iteration_num} ended in {format_duration(event.duration_seconds)}",
        _cost(event.cost_usd, event.estimated_usd),
        _changed(event.evidence),
    ]
    return ", ".join(filter(None, facts)) + (f": {said}" if said else "")


def _changed(evidence: Evidence) -> str:
    """What became of the files; nothing where nobody looked at the tree."""
    if evidence.changed:
        return f"{count(evidence.files_changed, 'file')} changed"
    return "nothing changed" if evidence.tree else ""


def _iteration_failed(event: ev.IterationFailed, _: float) -> str | Timed:
    fault = FAULTS.get(event.error_type)
    why = fault.meaning if fault else event.error_type
    facts = f"iteration {event.iteration_num} broke off after {format_duration(event.duration_seconds)}"
    # Trouble that passes by itself is announced with its wait; what the API said about it is in the log.
    passes = fault is not None and fault.remedy in {Remedy.WAIT, Remedy.BACK_OFF}
    said = "" if passes or event.error in {"", why} else f" ({one_line(event.error, DETAIL)})"
    told = f"{facts}, {_cost(event.cost_usd, event.estimated_usd)}: {one_line(why, DETAIL)}{said}"
    return told if event.retry_at is None or passes else Timed(f"{told}, next try at ", event.retry_at)


def _cost(cost: float | None, estimated: float) -> str:
    said = "cost unknown" if cost is None else dollars(cost)
    return f"{said} + about {dollars(estimated)} (estimate)" if estimated else said


def _claimed(event: ev.IterationCompletionSignal, _: float) -> str:
    if not event.signal_count:
        tasks = count(event.open_tasks, "task is", "tasks are")
        return f"claim not counted: {tasks} still open" if event.open_tasks else "claim not counted"
    in_a_row = f" ({event.signal_count} of {event.threshold} claims in a row)" if event.threshold > 1 else ""
    return f"the agent says it is done{in_a_row}"


def exit_text(code: int | None) -> str:
    """`exit 1`, or that a check never ended."""
    return "did not end in time" if code is None else f"exit {code}"


def _tasks(event: ev.TasksRead, _: float) -> str:
    if event.missing:
        return "the task file is gone, or no longer a file"
    optional = f", {event.open_optional} optional open" if event.open_optional else ""
    return f"tasks: {event.open_blocking} open, {event.ticked} done{optional}"


def _committed(event: ev.LandingCommitted, _: float) -> str:
    who = "the agent committed" if event.by == "agent" else "committed"
    said = one_line(event.message.split("\n", 1)[0], DETAIL)
    return f"{who} {short_commit(one_line(event.commit, 40))} ({count(event.files_changed, 'file')}): {said}"


def _landing_failed(event: ev.LandingFailed, _: float) -> str | None:
    if not event.reason:
        return None  # what could not be committed before is settled
    what = f"the work of iteration {event.iteration_num} ({count(len(event.files), 'file')}) could not be committed"
    return f"{what}: {one_line(event.reason, DETAIL)}"


def _stop(event: ev.StopRequested, _: float) -> str:
    if event.signal:
        return one_line(f"{SIGNALS.get(event.signal, SIGNALS['SIGTERM'])} ({event.signal}): stopping", DETAIL)
    if event.by == TAKEN_BY:
        return "another machine took over the run: stopping"
    when = " after this iteration" if event.after_iteration else ""
    return one_line(f"{event.by} asked the run to stop{when}", DETAIL)


def _pause(event: ev.PauseRequested, _: float) -> str:
    return one_line(f"{event.by} pauses the run: pausing after the running iteration", DETAIL)


def _resume(event: ev.ResumeRequested, _: float) -> str:
    return one_line(f"{event.by} ended the pause", DETAIL)


def _message(event: ev.MessageReceived, _: float) -> str:
    return one_line(f"{'urgent ' if event.urgent else ''}message from {event.by}: {event.content}", DETAIL)


def _limits(event: ev.LimitsChanged, _: float) -> str | Timed:
    # The deadline last: it is a moment, which others tell in a zone of their own.
    changes = sorted(event.changes.items(), key=lambda change: change[0] == _DEADLINE)
    said = [f"{name} = {_limit_value(name, value)}".rstrip() for name, value in changes]
    line = one_line(f"{event.by} changed the limits: {', '.join(said)}", DETAIL)
    deadline = event.changes.get(_DEADLINE)
    return line if deadline is None else Timed(f"{line} ", deadline)


def _limit_value(name: str, value: float | None) -> str:
    if value is None:
        return "none"
    match name:
        case "max_cost_usd":
            return dollars(value)
        case "max_duration":
            return format_duration(value)
        case _:
            return "" if name == _DEADLINE else f"{value:.10g}"


def _settings(event: ev.SettingsChanged, _: float) -> str:
    named = f": {', '.join(event.changes)}" if event.changes else ""
    return one_line(f"{event.by} changed the settings{named}", 2 * DETAIL)


def _moved(event: ev.RunMoved, _: float) -> str:
    return one_line(f"{event.by} brought the run to {event.host or 'another machine'} (tenure {event.tenure})", DETAIL)


def _reset(event: ev.ResetRequested, _: float) -> str:
    parts = {"the breaker": event.circuit, "the session": event.session, "streaks and fault counters": event.history}
    return one_line(f"{event.by} reset {', '.join(part for part, asked in parts.items() if asked)}", DETAIL)


def _budget_warning(event: ev.BudgetWarning, _: float) -> str:
    used = event.current_value / event.limit_value if event.limit_value else 1.0
    return f"{used:.0%} of {one_line(event.limit_type, DETAIL)} is used up"


def _clock_jumped(event: ev.ClockJumped, _: float) -> str:
    way = "forward" if event.seconds > 0 else "back"
    return f"the machine's clock jumped {way} by {format_duration(abs(event.seconds))}: that does not count as time"


def _resources(event: ev.ResourcesSeen, _: float) -> str:
    said = "the disk is nearly full" if event.disk_low else "the disk has room again"
    return one_line(f"{said} ({event.disk_free / (1 << 20):,.0f} MiB free) {event.detail}", DETAIL)


def _tampered(event: ev.StoreTampered, _: float) -> str:
    return one_line(f"the record of this run was changed from outside: {event.detail}", DETAIL)


def _refused(event: ev.SteeringRefused, _: float) -> str:
    return one_line(f"the agent tried `untildone {event.command}`: refused", DETAIL)


def _notes_folded(event: ev.NotesFolded, _: float) -> str | None:
    told = [f"{event.foreign} not written by the hook, not believed"] if event.foreign else []
    told += ["some of the hook's own taken away or changed"] if event.gaps else []
    return f"notes of this loop: {', '.join(told)}" if told else None


def _goal_changed(event: ev.GoalChanged, _: float) -> str:
    return one_line(f"the goal was edited: {event.goal}", DETAIL)


def _question_asked(event: ev.QuestionAsked, _: float) -> str:
    return one_line(f"a question for you: {event.question}", DETAIL)


def _failure_counted(event: ev.FailureCounted, _: float) -> str:
    if not event.point:
        return "its failures are counted from 0 again"
    row = f", {event.failures} of {event.limit} in a row" if event.failures else ""
    return one_line(f"failed at {event.point}{row}", DETAIL)


def _order_refused(event: ev.OrderRefused, _: float) -> str:
    return one_line(f"{event.by} asked for something that cannot be done: {event.reason}", DETAIL)


def _skip_wait(event: ev.SkipWaitRequested, _: float) -> str:
    return one_line(f"{event.by} ended the wait", DETAIL)


def _unknown(event: ev.Unknown, _: float) -> str:
    return one_line(f"event {event.type} (from a newer version)", DETAIL)


_LINERS: Mapping[type[ev.Event], Liner] = {
    ev.ContinuousStarted: _started,
    ev.ContinuousResumed: _resumed,
    ev.ContinuousRecovered: _recovered,
    ev.ContinuousWaiting: _waiting,
    ev.ContinuousLimitReached: _limit_reached,
    ev.BudgetWarning: _budget_warning,
    ev.ResourcesSeen: _resources,
    ev.ClockJumped: _clock_jumped,
    ev.SkipWaitRequested: _skip_wait,
    ev.OrderRefused: _order_refused,
    ev.HookFailed: _hook_failed,
    ev.ContinuousSuspended: _suspended,
    ev.ContinuousCompleted: _completed,
    ev.ContinuousWarning: _warning,
    ev.IterationStarted: _iteration_started,
    ev.IterationCompleted: _iteration_completed,
    ev.IterationFailed: _iteration_failed,
    ev.IterationCompletionSignal: _claimed,
    ev.WitnessAtWork: _at_work,
    ev.TasksRead: _tasks,
    ev.LandingCommitted: _committed,
    ev.LandingFailed: _landing_failed,
    ev.StoreTampered: _tampered,
    ev.SteeringRefused: _refused,
    ev.StopRequested: _stop,
    ev.PauseRequested: _pause,
    ev.ResumeRequested: _resume,
    ev.MessageReceived: _message,
    ev.LimitsChanged: _limits,
    ev.SettingsChanged: _settings,
    ev.ResetRequested: _reset,
    ev.RunMoved: _moved,
    ev.NotesFolded: _notes_folded,
    ev.FailureCounted: _failure_counted,
    ev.GoalChanged: _goal_changed,
    ev.QuestionAsked: _question_asked,
    ev.Unknown: _unknown,
    **AGENT_LINERS,
    **DELIVERY_LINERS,
}

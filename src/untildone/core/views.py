"""A run as people and programs see it: one frozen value from the folded state, and the shapes it is printed in."""

from datetime import tzinfo
from typing import Any, Literal

from untildone.core.advice import advice, driver_gone
from untildone.core.claims import Report, streak_needed
from untildone.core.dataclass import dataclass
from untildone.core.decide import Baseline, Decision, Land, Verify, Wait, decide
from untildone.core.durations import format_duration
from untildone.core.figures import cause_text, clock, dollars, stop_detail
from untildone.core.limits import LIMIT_NAMES, LIMITS, Limit
from untildone.core.meddling import told_of
from untildone.core.obstacles import uncommitted_text
from untildone.core.printable import one_line
from untildone.core.progress import curve, patience
from untildone.core.spending import Sums, lane_name, lanes, lost_to_retries, paid_by, total
from untildone.core.standing import delivery_json, landing_text, standing, unproven, weaker_text
from untildone.core.state import LoopState, Spend
from untildone.core.stopping import BY_WORD, DONE, Reason, exit_code, meaning

Status = Literal["new", "running", "waiting", "paused", "suspended", "completed", "interrupted"]
Verdict = Literal["passed", "failed", "not run", "no checks"]

NO_SESSION = "waits for a session"
"""What a loop inside Claude Code does until one takes it up."""
ADOPT = "type `/untildone:loop --adopt` in it"
_GOAL_WIDTH = 500
_PLANNED_EXITS = frozenset({0, 3, 130})


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauge:
    """One limit that is set, and how much of it is used."""

    field: str
    """The policy field."""
    label: str
    used: float
    limit: float
    share: float
    """0 to 1: how full it is."""
    text: str
    """`$0.42 of $5.00`"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """Where a run stands, in words and numbers ready to be shown."""

    run_id: str
    name: str
    goal: str
    """On one line."""
    status: Status
    phase: str
    """The status in a person's words: `waiting for the rate limit until 07:12`."""
    doing: str
    """The same without the moment, for whoever tells `waiting_until` in the reader's own zone."""
    iteration: int
    """Number of the running or the last iteration."""
    tries: int
    iterations_at_most: int | None
    """How many there can be in all, as far as limits on runs and attempts tell."""
    attempts: int
    successes: int
    failed: int
    """Attempts that failed. One that a human or a limit cut off is no failure."""
    under_way: bool
    """That iteration is not over: it runs, is being checked, or will be tried again."""
    iteration_started_at: float | None
    """When the running try began."""
    gauges: tuple[Gauge, ...]
    spend: Spend
    """The running iteration included."""
    paid_by: str
    """`subscription $3.10 (nominal), API key $0.40`, as far as it is known."""
    lost: str
    """`$0.42 to retries: overloaded $0.30, hang $0.12`, if anything was."""
    meddling: tuple[str, ...]
    """What the agent, or someone else, tried on the run itself: a sentence each."""
    elapsed_seconds: float
    """With a living driver, waits included: what a limit on the time counts."""
    worked_seconds: float
    """The same without waits."""
    streak: int
    streak_needed: int
    breaker_state: str
    breaker: str
    """`not stuck (0 of 3)`"""
    breaker_count: str
    """`0/3`"""
    tasks_open: int | None
    tasks_completed: int
    files_modified: int
    commits: int
    last_commit: str | None
    report: Report | None
    verdict: Verdict
    """What the loop's own checks said last."""
    progress: str
    """What the looks measured one after the other: `failing tests 9 > 7 > 4 > 0`."""
    verified: bool
    unproven: str
    weaker: str
    """Why nothing is verified although there is work, once a run has stopped without being done."""
    red: tuple[tuple[str, str], ...]
    """The checks that failed when the loop last looked, each with the file of all it printed."""
    failing: tuple[tuple[str, str], ...]
    """The same checks, and the first failed test of each with its message."""
    unpriced: tuple[str, ...]
    """Models whose price is not known: what they cost is in the estimates."""
    untold_usd: float
    """Part of the cost: what passed the door of the sandbox without Claude Code telling of it."""
    refused_hosts: tuple[str, ...]
    unheard: tuple[str, ...]
    """Messages that no prompt has carried to the agent, once the run has stopped."""
    standing: tuple[tuple[str, str], ...]
    """What is proven, guarded and reviewed, and how far the work has come: a label and a few words each."""
    success: bool
    exit_reason: str | None
    exit_code: int | None
    detail: str
    advice: str
    """What to do next, when nothing goes on by itself."""
    waiting_until: float | None
    rate_limit_hit: bool
    uncommitted: str
    """Why the last work is in no commit, once the run has stopped; empty when it is."""
    error: str | None

    @property
    def cost(self) -> str:
        """What was spent, with estimates apart and what is unknown said."""
        return spend_text(self.spend)


def run_view(state: LoopState, now: float, *, alive: bool | None = None, zone: tzinfo | None = None) -> RunView:
    """The run at this moment. `alive`: a driver holds it (None: as the log has it); `zone` None: local time."""
    alive = state.driving if alive is None else alive
    status, doing, until = _status(state, now, alive=alive)
    reason = state.stop_reason if status in {"suspended", "completed"} else None
    code = exit_code(reason) if reason else None
    failed = code is not None and code not in _PLANNED_EXITS
    uncommitted = one_line(uncommitted_text(state), _GOAL_WIDTH) if reason else ""
    return RunView(
        run_id=state.run_id,
        name=state.spec.name,
        goal=one_line(state.spec.goal, _GOAL_WIDTH),
        status=status,
        phase=f"{doing} until {clock(until, now, zone)}" if until is not None else doing,
        doing=doing,
        iteration=state.open.number if state.open else state.attempts,
        tries=state.open.retry + 1 if state.open else 1,
        iterations_at_most=_at_most(state),
        attempts=state.attempts,
        successes=state.successes,
        failed=max(0, _unsuccessful(state) - state.excused),
        under_way=state.open is not None or state.retry is not None or state.claim_due,
        iteration_started_at=state.open.started_at if state.open else None,
        gauges=tuple(_gauges(state, now if alive else state.last_at, zone)),
        spend=state.spend if state.open is None else total(state.spend, state.open.spend),
        paid_by=paid_by(state),
        lost=lost_to_retries(state),
        meddling=tuple(told_of(state)),
        elapsed_seconds=state.elapsed(now if alive else state.last_at),
        worked_seconds=state.worked(now if alive else state.last_at),
        streak=state.streak,
        streak_needed=_needed(state),
        breaker_state=state.circuit.state,
        breaker=_breaker(state),
        breaker_count="/".join(map(str, _stale(state))),
        tasks_open=state.tasks_open,
        tasks_completed=state.tasks_completed,
        files_modified=state.files_modified,
        commits=state.commits,
        last_commit=state.last_commit,
        report=state.last_report,
        verdict=_verdict(state),
        progress=curve(state.progress),
        verified=state.verified,
        weaker=one_line(weaker_text(state.weaker), _GOAL_WIDTH),
        unproven=one_line(unproven(state), _GOAL_WIDTH) if reason and reason not in DONE else "",
        red=() if reason in DONE else state.red,
        failing=() if reason in DONE else state.failing,
        refused_hosts=tuple(one_line(host, _GOAL_WIDTH) for host in state.refused_hosts),
        untold_usd=state.untold_usd,
        unpriced=tuple(one_line(model, _GOAL_WIDTH) for model in state.unpriced),
        unheard=tuple(one_line(message.content, _GOAL_WIDTH) for message in state.messages) if reason else (),
        standing=tuple(standing(state)),
        success=reason in DONE,
        exit_reason=reason,
        exit_code=code,
        detail=one_line(stop_detail(reason or "", state.stop_detail), _GOAL_WIDTH),
        advice=advice(reason, state) if reason else driver_gone(state) if status == "interrupted" else "",
        waiting_until=until,
        rate_limit_hit=state.usage_limit_hit,
        uncommitted=uncommitted,
        error=(one_line(state.stop_detail or meaning(reason or ""), _GOAL_WIDTH) if failed else uncommitted) or None,
    )


def _status(state: LoopState, now: float, *, alive: bool) -> tuple[Status, str, float | None]:
    """(status, the same in words, until when it waits)."""
    match state.phase:
        case "new":
            return "new", "not started", None
        case "completed" if state.stop_reason in DONE:
            where = f", {landing_text(state)}" if state.arrival.landed else ""
            return "completed", f"{'done and verified' if state.verified else BY_WORD}{where}", None
        case "completed" | "suspended":
            return state.phase, f"{state.phase}: {meaning(state.stop_reason or '')}", None
        case _ if not alive:
            why = (
                "no session has it, and its end was not recorded"
                if state.spec.in_session
                else "the program that ran it is gone"
            )
            return "interrupted", f"interrupted ({why})", None
        case _:
            return _at_work(state, now)


def _at_work(state: LoopState, now: float) -> tuple[Status, str, float | None]:
    if doing := _under_way(state):
        return "running", doing, None
    if state.spec.in_session and not state.attempts:
        return "waiting", NO_SESSION, None  # its log alone says that it is at work
    match decide(state, now):
        case Wait(until=None, cause="paused"):
            return "paused", "paused", None
        case Wait(until=moment, cause=cause):
            return "waiting", f"waiting for {cause_text(cause)}", moment
        case other:
            return "running", _by_itself(other, state), None


def _under_way(state: LoopState) -> str:
    """What goes on whatever is decided next; nothing between two iterations."""
    if state.stop is not None:
        return "stopping after this iteration" if state.stop.after_iteration else "stopping"
    if state.open is not None:
        doing = "reviewing" if state.open.review else "asking what is left" if state.open.question else "running"
        return "pausing" if state.paused else doing
    return "running the checks" if state.claim_due else ""


def _by_itself(decision: Decision, state: LoopState) -> str:
    """What the loop does without the agent."""
    if isinstance(decision, Land):
        said = landing_text(state)
        return said if state.arrival.in_line else f"landing: {said}"
    return "running the checks" if isinstance(decision, Baseline | Verify) else "running"


def _unsuccessful(state: LoopState) -> int:
    under_way = state.open is not None or state.retry is not None
    return max(0, state.attempts - state.successes - under_way)


def _at_most(state: LoopState) -> int | None:
    """Attempts there can be: failed ones do not use up `max_runs`."""
    ends = [] if state.policy.max_runs is None else [state.policy.max_runs + _unsuccessful(state)]
    if state.policy.max_iterations is not None:
        ends.append(state.policy.max_iterations)
    return min(ends) if ends else None


def _gauges(state: LoopState, now: float, zone: tzinfo | None) -> list[Gauge]:
    gauges = []
    for limit in LIMITS:
        value = limit.value(state.policy)
        if value is None:
            continue
        used = limit.used(state, now)
        start = state.started_at if limit.reason is Reason.DEADLINE else 0.0
        share = (used - start) / (value - start) if value > start else 1.0
        gauges.append(
            Gauge(
                field=limit.field, label=LIMIT_NAMES[limit.field], used=used, limit=value,
                share=min(1.0, max(0.0, share)), text=_gauge_text(limit, used, value, now, zone),
            )
        )  # fmt: skip
    return gauges


def _gauge_text(limit: Limit, used: float, value: float, now: float, zone: tzinfo | None) -> str:
    match limit.reason:
        case Reason.MAX_COST:
            return f"{dollars(used)} of {dollars(value)}"
        case Reason.MAX_DURATION:
            return f"{format_duration(used)} of {format_duration(value)}"
        case Reason.DEADLINE:
            left = f"in {format_duration(value - now)}" if value > now else "passed"
            return f"{clock(value, now, zone)} ({left})"
        case _:
            return f"{used:,.0f} of {value:,.0f}"


def spend_text(spend: Spend) -> str:
    """`$0.42`, `$0.42 + about $0.03 (estimate)`, `unknown`: never 0 for what nobody knows."""
    if spend.unknown_costs and not spend.total_usd:
        return "unknown"
    said = dollars(spend.cost_usd)
    if spend.estimated_usd and not spend.cost_usd:
        said = f"about {dollars(spend.estimated_usd)} (estimate)"
    elif spend.estimated_usd:
        said += f" + about {dollars(spend.estimated_usd)} (estimate)"
    return f"{said} + an unknown part" if spend.unknown_costs else said


def _needed(state: LoopState) -> int:
    """Claims in a row that end the run; with checks, one claim sends them in."""
    if state.spec.checks:
        return 1
    form = state.streak_form if state.streak_form != "none" else "report"
    return streak_needed(form, state.policy.completion_threshold)


_BREAKER = {"closed": "not stuck", "half_open": "was stuck, one trial", "open": "stuck"}


def _stale(state: LoopState) -> tuple[int, int]:
    """How many iterations brought nothing, and at how many the breaker opens."""
    if (allowed := patience(state.policy)) and not state.spec.in_session:
        return state.progress.stale, allowed
    return state.circuit.no_progress, state.policy.stagnation_threshold


def _breaker(state: LoopState) -> str:
    seen = state.circuit
    said = "{} ({} of {})".format(_BREAKER[seen.state], *_stale(state))
    return f"{said}: {one_line(seen.reason, _GOAL_WIDTH)}" if seen.reason and seen.state != "closed" else said


def _verdict(state: LoopState) -> Verdict:
    if not state.spec.checks:
        return "no checks"
    return state.checks_said or ("passed" if state.verified else "not run")


def result_json(view: RunView) -> dict[str, Any]:
    """How a run ended, for programs: the one object that `--json` prints."""
    return {
        "run_id": view.run_id,
        "name": view.name,
        "exit_reason": view.exit_reason or view.status,
        "success": view.success,
        "verified": view.verified,
        "loops_completed": view.successes,
        "attempts": view.attempts,
        "total_cost_usd": _known_cost(view),
        "elapsed_seconds": round(view.elapsed_seconds, 3),
        "total_tasks_completed": view.tasks_completed,
        "total_files_modified": view.files_modified,
        "final_status": view.report.status if view.report else None,
        "rate_limit_hit": view.rate_limit_hit,
        "error": view.error,
    }


def _known_cost(view: RunView) -> float | None:
    """Replies served in full; None when nothing is known."""
    is_unknown = view.spend.unknown_costs or view.unpriced
    return None if is_unknown and not view.spend.cost_usd else round(view.spend.cost_usd, 6)


def status_json(view: RunView, state: LoopState) -> dict[str, Any]:
    """Where a run stands, for programs: everything of `result_json` and more."""
    return {
        "exists": True,
        **result_json(view),
        "status": view.status,
        "phase": view.phase,
        "exit_code": view.exit_code,
        "advice": view.advice,
        "goal": state.spec.goal,
        "iteration": view.iteration,
        "estimated_usd": round(view.spend.estimated_usd, 6),
        "unknown_costs": view.spend.unknown_costs,
        "tokens": view.spend.usage.counted,
        "lane": lane_name(state.lane),
        "spend_by_lane": _rounded(lanes(state)),
        "lost_usd": _rounded(state.lost_usd),
        "tampered": list(state.tampered),
        "refusals": state.refusals,
        "limits": {
            g.field: {"used": round(g.used, 6), "limit": g.limit, "share": round(g.share, 4)} for g in view.gauges
        },
        "waiting_until": view.waiting_until,
        "streak": view.streak,
        "streak_needed": view.streak_needed,
        "checks": {"commands": list(state.spec.checks), "verdict": view.verdict, "commit": state.verified_commit},
        **delivery_json(state),
        "tasks_open": view.tasks_open,
        "commits": view.commits,
        "last_commit": view.last_commit,
        "session": _session_json(view, state),
        "circuit": _circuit_json(state),
    }


def _rounded(sums: Sums) -> dict[str, float]:
    return {name: round(usd, 6) for name, usd in sums}


def _session_json(view: RunView, state: LoopState) -> dict[str, Any]:
    """The session as older consumers know it."""
    return {
        "project": state.spec.cwd,
        "agent": state.spec.options.agent,
        "started_at": state.started_at,
        "updated_at": state.last_at,
        "loops_completed": state.successes,
        "status": view.report.status if view.report else None,
        "no_progress_count": state.breaker.no_progress,
        "total_tasks_completed": state.tasks_completed,
        "total_files_modified": state.files_modified,
        "last_error": state.last_error or None,
        "initial_prompt": state.spec.goal,
    }


def _circuit_json(state: LoopState) -> dict[str, Any]:
    seen = state.circuit
    return {
        "tripped": seen.state == "open",
        "state": seen.state,
        "trip_reason": seen.reason or None,
        "tripped_at": seen.opened_at,
        "no_progress_count": seen.no_progress,
    }

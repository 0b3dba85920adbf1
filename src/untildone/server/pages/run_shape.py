"""The page of a run as the templates want it. Pure."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from untildone.core.dataclass import dataclass
from untildone.core.durations import format_duration
from untildone.core.figures import count
from untildone.core.history import IterationRow
from untildone.core.limits import LIMIT_FIELDS
from untildone.core.obstacles import blocking
from untildone.core.policy import Policy
from untildone.core.printable import one_line
from untildone.core.state import LoopState
from untildone.core.views import Gauge, RunView, run_view
from untildone.server.archive.port import RunEntry
from untildone.server.folding import Seen, seen
from untildone.server.pages.evidence import checks_of, facts_of
from untildone.server.pages.gathering import STEPS, Gathered
from untildone.server.pages.shaping import badge_of, headline, steps_of
from untildone.server.pages.texts import visible

_GOAL = 20_000
_NEARLY = 0.8
LIMIT_LABELS = {
    "max_runs": "Runs",
    "max_iterations": "Attempts",
    "max_cost_usd": "Budget, in dollars",
    "max_tokens": "Tokens",
    "max_duration": "Time, like 1h30m",
    "deadline": "Deadline",
    "max_calls_per_hour": "Calls per hour",
}
"""What the form calls the limits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitField:
    """A limit in the form that changes it."""

    field: str
    label: str
    value: str
    kind: str
    """`text`, `decimal` or `moment`: how it is typed."""


def run_shape(gathered: Gathered, now: float) -> dict[str, Any]:
    """All values of a run's page."""
    entry, state = gathered.entry, gathered.state
    now_at = seen(entry, now)
    view = run_view(state, now, alive=now_at.alive)
    is_published = entry.origin == "published"
    return {
        "run_id": entry.run_id,
        "origin": entry.origin,
        "only_iteration": None,
        "name": one_line(entry.projection.name, 100) or entry.run_id,
        "states": _states(entry, state, view, now_at.status),
        "only_here": _only_here(entry, state),
        "badge": badge_of(entry, now_at.status),
        "headline": _published(entry, now_at) if is_published else headline(view, now_at),
        "goal": visible(state.spec.goal[:_GOAL]),
        "goal_line": one_line(state.spec.goal, 300) or "No goal is known.",
        "meta": _meta(entry, state),
        "started_at": state.started_at,
        "waiting_until": view.waiting_until if now_at.status == "waiting" else None,
        "heard_at": entry.heard_at,
        "after": gathered.after or entry.last_seq,
        "lines": gathered.lines,
        "has_earlier": gathered.has_earlier,
        "facts": [] if is_published else facts_of(state, gathered.last_look),
        "checks": checks_of(gathered.last_look.checks) if gathered.last_look else [],
        "gauges": [_gauge(gauge) for gauge in view.gauges],
        "figures": [] if is_published else _figures(view),
        "waivable": "\n".join(dict.fromkeys(one_line(finding.path, 300) for finding in blocking(state))),
        "questions": gathered.questions,
        "messages": gathered.messages,
        "breaker": view.breaker,
        "lost": view.lost,
        "meddling": view.meddling,
        "trouble": gathered.trouble,
        "notes": gathered.notes,
        **steps_shape(gathered.rows, alive=now_at.alive),
    }


def _states(entry: RunEntry, state: LoopState, view: RunView, status: str) -> str:
    """What the buttons go by: only what the run would take is offered."""
    if entry.origin == "published":
        return "published"
    if state.spec.in_session:
        return "session"
    return f"{status} breaker" if view.breaker_state == "open" else status


def _only_here(entry: RunEntry, state: LoopState) -> str:
    """Where a run is steered that cannot be from here; nothing for all others."""
    if not state.spec.in_session:
        return ""
    return (
        f"This loop lives in a Claude Code session and is steered there; `untildone loop stop {entry.run_id}` ends it."
    )


def _published(entry: RunEntry, now_at: Seen) -> str:
    kept = f"{count(entry.last_seq, 'event')} of a program that knows of no runs: they are kept as they came."
    return f"{now_at.why} {kept}" if now_at.why else kept


def steps_shape(rows: Sequence[IterationRow], *, alive: bool) -> dict[str, Any]:
    """A page of the timeline, and where the next one begins."""
    older = rows[0].number if len(rows) == STEPS and rows[0].number > 1 else None
    return {"steps": steps_of(rows, alive=alive), "older_steps": older}


def _meta(entry: RunEntry, state: LoopState) -> list[tuple[str, str]]:
    facts = [
        ("Run", entry.run_id),
        ("Sandbox", entry.sandbox_id),
        ("Folder", entry.projection.folder),
        ("Host", entry.projection.host),
        ("Model", state.spec.options.model or ""),
        ("Branch", state.arrival.branch or ""),
    ]
    return [(label, one_line(value, 200)) for label, value in facts if value]


def _gauge(gauge: Gauge) -> dict[str, Any]:
    is_moment = gauge.field == "deadline"
    return {
        "field": gauge.field,
        "label": gauge.label,
        "at": gauge.limit if is_moment else None,
        "text": "" if is_moment else gauge.text,
        "over": gauge.used >= gauge.limit,
        "value": round(1000 * gauge.share),
        "full": gauge.share >= _NEARLY,
    }


def _figures(view: RunView) -> list[tuple[str, str]]:
    facts = [
        ("Spent", view.cost),
        ("Paid by", view.paid_by),
        ("Tokens", f"{view.spend.usage.counted:,}"),
        ("Iterations", f"{view.attempts}, {view.successes} ended well" if view.attempts else "none"),
        ("At work", format_duration(view.worked_seconds)),
        ("Tasks", "" if view.tasks_open is None else f"{view.tasks_open} open"),
        ("File changes", str(view.files_modified) if view.files_modified else ""),
        ("Commits", str(view.commits) if view.commits else ""),
        ("Claims", f"{view.streak} of {view.streak_needed} in a row" if view.streak else ""),
    ]
    return [(label, one_line(value, 200)) for label, value in facts if value]


def limit_fields(policy: Policy) -> list[LimitField]:
    """The limits as people write them."""
    return [
        LimitField(
            field=name,
            label=LIMIT_LABELS[name],
            value=written_limit(name, getattr(policy, name)),
            kind={"max_duration": "text", "deadline": "moment"}.get(name, "decimal"),
        )
        for name in LIMIT_FIELDS
    ]


def written_limit(name: str, value: float | None) -> str:
    """A limit as the form shows it."""
    if value is None:
        return ""
    if name == "max_duration":
        return format_duration(value)
    if name == "deadline":
        return written_moment(value)
    return f"{value:.10g}"


def written_moment(at: float) -> str:
    """A moment as the form sends it, which shows it in the reader's zone; nothing for one that no calendar holds."""
    try:
        return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%MZ}"
    except (OverflowError, ValueError, OSError):
        return ""

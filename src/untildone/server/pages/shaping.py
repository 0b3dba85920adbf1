"""Runs and iterations in the words and shapes that pages show. Pure: values in, values out."""

from collections.abc import Mapping, Sequence

from untildone.core.dataclass import dataclass
from untildone.core.durations import format_duration
from untildone.core.faults import FAULTS, PAUSED, STEERED, STOPPED
from untildone.core.figures import count, dollars, short_commit
from untildone.core.history import IterationRow
from untildone.core.printable import one_line
from untildone.core.state import Spend
from untildone.core.views import RunView, spend_text
from untildone.server.archive.port import RunEntry
from untildone.server.folding import Seen, seen
from untildone.server.pages.activity import ASKED_FOR

_SUMMARY = 240
_GOAL = 300
_WHY = 500


@dataclass(frozen=True, slots=True)
class Badge:
    """A state: an icon and a word, so that colour only repeats what is said."""

    icon: str
    word: str
    tone: str


_BADGES = {
    "new": Badge("dot", "new", "quiet"),
    "running": Badge("run", "running", "live"),
    "waiting": Badge("clock", "waiting", "warm"),
    "paused": Badge("pause", "paused", "warm"),
    "suspended": Badge("stop", "suspended", "quiet"),
    "completed": Badge("stop", "completed", "quiet"),
    "interrupted": Badge("alert", "interrupted", "bad"),
    "unreadable": Badge("alert", "unreadable", "bad"),
    "published": Badge("dot", "published", "quiet"),
}
_DONE = Badge("check", "done", "good")
_VERIFIED = Badge("shield", "verified", "good")


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRow:
    """A run in the list."""

    run_id: str
    name: str
    goal: str
    badge: Badge
    lively: bool
    said: str
    """What it does, or why it stopped."""
    spend: str
    iterations: str
    progress: int | None
    """Percent."""
    waiting_until: float | None
    heard_at: float
    sandbox: str


def fleet_row(entry: RunEntry, now: float) -> FleetRow:
    """What the list says of a run."""
    known, now_at = entry.projection, seen(entry, now)
    spent = Spend(cost_usd=known.cost_usd, estimated_usd=known.estimated_usd, unknown_costs=known.unknown_costs)
    is_published = entry.origin == "published"
    said = f"{count(entry.last_seq, 'event')} from a program that knows of no runs" if is_published else ""
    if known.in_session and now_at.status == "running":
        said = "inside a Claude Code session"
    return FleetRow(
        run_id=entry.run_id,
        name=one_line(known.name, 80) or entry.run_id,
        goal=one_line(known.goal, _GOAL),
        badge=badge_of(entry, now_at.status),
        lively=now_at.alive,
        said=one_line(said or now_at.why or (now_at.phase if now_at.phase != now_at.status else ""), _WHY),
        spend="" if is_published else spend_text(spent),
        iterations="" if is_published else count(known.attempts, "iteration") if known.attempts else "not begun",
        progress=None if known.progress is None else round(100 * min(1.0, max(0.0, known.progress))),
        waiting_until=known.waiting_until if now_at.status == "waiting" else None,
        heard_at=entry.heard_at,
        sandbox=one_line(entry.sandbox_id, 60),
    )


def badge_of(entry: RunEntry, status: str) -> Badge:
    """The badge of a run in that state. Done is told apart from verified."""
    known = entry.projection
    if entry.origin == "published" and status == "new":
        return _BADGES["published"]
    if status == "completed" and known.success:
        return _VERIFIED if known.verified else _DONE
    return _BADGES.get(status, Badge("dot", one_line(status, 30), "quiet"))


def headline(view: RunView, now_at: Seen) -> str:
    """What a run does, or why it stopped, in one sentence."""
    if now_at.why:
        return now_at.why
    said = now_at.phase[:1].upper() + now_at.phase[1:]
    if now_at.status != "running" or not view.iteration:
        return f"{said}."
    tries = f", try {view.tries}" if view.tries > 1 else ""
    return f"{said}: iteration {view.iteration}{tries}."


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """An iteration in the timeline."""

    number: int
    badge: Badge
    verdict: Badge | None
    claim: str
    facts: tuple[str, ...]
    summary: str
    started_at: float
    error: str
    review: str


_OUTCOMES = {
    "ok": Badge("check", "ended", "quiet"),
    "running": Badge("run", "running", "live"),
    "abandoned": Badge("alert", "left behind", "bad"),
    # What people asked for is no trouble.
    STOPPED.name: Badge("stop", "stopped", "quiet"),
    PAUSED.name: Badge("pause", "paused", "warm"),
    STEERED.name: Badge("dot", "interrupted by a message", "quiet"),
}
_CUT_OFF = Badge("alert", "cut off", "bad")
"""An iteration that runs by the log of a run that nobody drives."""
_VERDICTS = {
    "passed": Badge("shield", "checks passed", "good"),
    "failed": Badge("cross", "checks failed", "bad"),
    "blocked": Badge("alert", "checks passed, not done", "warm"),
}


def step_of(row: IterationRow, *, alive: bool) -> Step:
    """What the timeline says of an iteration; `alive`: somebody drives its run."""
    spent = Spend(cost_usd=row.cost_usd, estimated_usd=row.estimated_usd, unknown_costs=row.unknown_costs)
    met = dict.fromkeys(fault.replace("_", " ") for fault in row.faults if fault not in ASKED_FOR)
    facts = [
        format_duration(row.seconds) if row.seconds else "",
        spend_text(spent),
        count(row.files_changed, "file") if row.files_changed else "",
        "commit " + ", ".join(map(short_commit, row.commits[-3:])) if row.commits else "",
        f"{row.tries} tries" if row.tries > 1 else "",
        "met " + ", ".join(met) if met else "",
    ]
    return Step(
        number=row.number,
        badge=_outcome(row.outcome, alive=alive),
        verdict=_VERDICTS.get(row.verdict),
        claim=one_line(row.claim, 60),
        facts=tuple(one_line(fact, 120) for fact in facts if fact),
        summary=one_line(row.summary, _SUMMARY),
        started_at=row.started_at,
        error="" if row.outcome in ASKED_FOR else one_line(row.error, _SUMMARY) or _meaning(row),
        review={"approved": "review: approved", "changes": "review: asks for changes", "": ""}[row.review],
    )


def _outcome(outcome: str, *, alive: bool) -> Badge:
    if outcome == "running" and not alive:
        return _CUT_OFF
    return _OUTCOMES.get(outcome, Badge("alert", outcome.replace("_", " ")[:40], "bad"))


def _meaning(row: IterationRow) -> str:
    fault = FAULTS.get(row.outcome)
    return fault.meaning if fault else ""


def steps_of(rows: Sequence[IterationRow], *, alive: bool) -> list[Step]:
    """The newest first."""
    return [step_of(row, alive=alive) for row in reversed(rows)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """All runs in four numbers."""

    running: int
    waiting: int
    stopped: int
    spent_lately: str
    """In the last 24 hours."""


def totals(counts: Mapping[str, int], spent_lately: float) -> Totals:
    """`counts`: runs by what they are at the moment."""
    return Totals(
        running=counts.get("running", 0),
        waiting=counts.get("waiting", 0) + counts.get("paused", 0),
        stopped=sum(counts.get(status, 0) for status in ("suspended", "completed", "interrupted")),
        spent_lately=dollars(spent_lately),
    )

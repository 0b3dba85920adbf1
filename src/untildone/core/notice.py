"""What a human far away should hear about a run, and in which words. Pure: sending it is somebody else's file."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

from untildone.core import events as ev
from untildone.core.advice import advice
from untildone.core.claims import Claim
from untildone.core.dataclass import dataclass
from untildone.core.durations import LONGEST, format_duration
from untildone.core.figures import cause_text, clock, count, dollars, stop_detail
from untildone.core.limits import limit_of
from untildone.core.printable import one_line, printable
from untildone.core.standing import landing_text
from untildone.core.state import LoopState
from untildone.core.stopping import BY_WORD, Reason, exit_code, meaning

NoteKind = Literal["done", "stopped", "waiting", "needs_you", "budget"]

WORTH_TELLING = 60.0
"""A wait longer than this many seconds is told."""
QUIET_FOR = 3600.0
"""The same thing is not told again within this many seconds: an outage has many waits."""
BODY_CAP = 2000
_TITLE_CAP = 120
_LINE_CAP = 500

# Stops that only a human can end: everything else can wait until the morning.
_NEEDS_A_HUMAN = frozenset(
    {Reason.BLOCKED, Reason.PERMISSION_DENIED, Reason.AUTHENTICATION, Reason.BILLING, Reason.MODEL_NOT_FOUND}
    | {Reason.CLEAN_ROOM, Reason.REVIEW_STALEMATE, Reason.LANDING_FAILED}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """One message to a human."""

    kind: NoteKind
    run_id: str
    name: str
    title: str
    """One safe line."""
    body: str
    """A few safe lines: what happened, where the run stands, what to do."""
    facts: Mapping[str, str | float | int | bool | None]
    """The same for programs."""
    id: str = ""
    """The same for every attempt to deliver it, so that a receiver can tell a repetition."""
    at: float = 0.0
    """Epoch seconds."""
    topic: str = ""
    """What it is about: two notes of one topic soon after each other are one too many."""


def note_for(before: LoopState, record: ev.Record, after: LoopState, now: float) -> Note | None:
    """The note that a record calls for, if any."""
    write = _WRITERS.get(type(record.event))
    draft = None if write is None else write(before, record.event, after, now)
    return (
        None if draft is None else _finished(draft, after, now, event=record.event.TYPE, seq=record.seq, at=record.at)
    )


def broken_off(state: LoopState, detail: str, now: float) -> Note:
    """The note of a run whose own log cannot be written any more: no record will ever tell of its end."""
    draft = _Draft(
        kind="needs_you",
        title="stopped: its log cannot be written",
        text=_safe(detail),
        advice=f"Fix that, then `untildone resume {state.run_id}`: the log so far and the work are kept.",
        facts={"reason": "store", "exit_code": 1, "detail": _safe(detail), "resumable": True},
    )
    return _finished(draft, state, now, event="none", seq=state.last_seq + 1, at=now)


def is_repetition(note: Note, told: Mapping[str, float]) -> bool:
    """Whether this was told a little while ago; `told` says when each topic was told last."""
    last = told.get(note.topic)
    return bool(note.topic) and last is not None and abs(note.at - last) < QUIET_FOR


def trial_note(now: float) -> Note:
    """What `notify test` sends."""
    return Note(
        kind="done",
        run_id="test",
        name="test",
        title="untildone: this is a test",
        body="If you can read this, runs can reach you here.",
        facts={"event": "test"},
        id=f"test-{now:.0f}",
        at=now,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draft:
    kind: NoteKind
    title: str
    text: str = ""
    advice: str = ""
    topic: str = ""
    facts: Mapping[str, str | float | int | bool | None]


def _finished(draft: _Draft, state: LoopState, now: float, *, event: str, seq: int, at: float) -> Note:
    lines = [draft.text, _standing(state, now), draft.advice]
    return Note(
        kind=draft.kind,
        run_id=state.run_id,
        name=state.spec.name,
        title=one_line(f"{state.spec.name}: {draft.title}", _TITLE_CAP),
        body="\n".join(filter(None, lines))[:BODY_CAP],
        facts={"event": event, **draft.facts, **_figures(state, now)},
        id=f"{state.run_id}-{seq}",
        at=at,
        topic=draft.topic,
    )


def _standing(state: LoopState, now: float) -> str:
    parts = [
        count(state.attempts, "iteration"),
        dollars(state.spent_usd),
        format_duration(min(state.elapsed(now), LONGEST)),
        count(state.commits, "commit"),
    ]
    return ", ".join(parts) + f" so far, in {one_line(state.spec.cwd, _LINE_CAP)}"


def _figures(state: LoopState, now: float) -> dict[str, str | float | int | bool | None]:
    return {
        "folder": state.spec.cwd,
        "attempts": state.attempts,
        "successes": state.successes,
        "cost_usd": round(state.served_usd, 6),
        "estimated_usd": round(state.spent_usd - state.served_usd, 6),
        "elapsed_seconds": round(state.elapsed(now), 3),
        "commits": state.commits,
        "commit": state.last_commit,
    }


def _done(_: LoopState, event: ev.ContinuousCompleted, after: LoopState, __: float) -> _Draft:
    return _Draft(
        kind="done",
        title="done, every check passed" if event.verified else BY_WORD,
        text=" ".join(filter(None, (_sentence(meaning(event.stop_reason)), _sentence(landing_text(after))))),
        advice=advice(event.stop_reason, after),
        facts={"reason": event.stop_reason, "exit_code": exit_code(event.stop_reason), "verified": event.verified},
    )


def _stopped(_: LoopState, event: ev.ContinuousSuspended, after: LoopState, __: float) -> _Draft:
    needs_you = event.stop_reason in _NEEDS_A_HUMAN
    why = meaning(event.stop_reason)
    detail = stop_detail(event.stop_reason, event.detail)
    return _Draft(
        kind="needs_you" if needs_you else "stopped",
        title=f"{'needs you' if needs_you else 'stopped'}: {why}",
        text=_safe(detail),
        advice=advice(event.stop_reason, after),
        facts={
            "reason": event.stop_reason,
            "exit_code": exit_code(event.stop_reason),
            "detail": _safe(event.detail),
            "resumable": True,
        },
    )


def _waiting(_: LoopState, event: ev.ContinuousWaiting, after: LoopState, now: float) -> _Draft | None:
    """Without a moment it is a pause, which a human asked for, or the disk; that and what is held is told by itself."""
    if event.until is None or event.until - now <= WORTH_TELLING or after.held is not None:
        return None
    left = format_duration(min(event.until - now, LONGEST))
    return _Draft(
        kind="waiting",
        title=f"waiting for {cause_text(event.cause)} until {clock(event.until, now)} (in {left})",
        text=_safe(after.last_error if after.wait is not None and after.wait.cause == event.cause else ""),
        advice="It goes on by itself.",
        topic=f"waiting {event.cause}",
        facts={"cause": event.cause, "until": event.until},
    )


def _budget(_: LoopState, event: ev.BudgetWarning, after: LoopState, __: float) -> _Draft:
    share = 100 * event.current_value / event.limit_value if event.limit_value else 100.0
    return _Draft(
        kind="budget",
        title=f"{share:.0f} % of {event.limit_type} is used",
        text=f"{_amount(event.limit_type, event.current_value)} of {_amount(event.limit_type, event.limit_value)}.",
        advice=_raise(event.limit_type, after),
        facts={"limit": event.limit_type, "limit_value": event.limit_value, "current_value": event.current_value},
    )


def _resources(before: LoopState, event: ev.ResourcesSeen, after: LoopState, _: float) -> _Draft | None:
    if before.disk_low or not event.disk_low:
        return None
    return _Draft(
        kind="needs_you",
        title="paused: the disk is nearly full",
        text=_safe(event.detail),
        advice="Make room, and it goes on by itself.",
        topic="disk",
        facts={"disk_free": event.disk_free, "disk_reserve": after.policy.disk_reserve},
    )


def _held(before: LoopState, event: ev.LandingHeld, _: LoopState, __: float) -> _Draft | None:
    if not event.cause or before.held is not None:
        return None
    return _Draft(
        kind="needs_you",
        title=f"paused: waiting for {cause_text(event.cause)}",
        text=_safe(event.said),
        advice=f"Then it goes on by itself; `untildone stop {before.run_id}` stops it.",
        topic=event.cause,
        facts={"cause": event.cause},
    )


def _tampered(before: LoopState, event: ev.StoreTampered, _: LoopState, __: float) -> _Draft | None:
    """Told once a run: an agent that does it again and again must not be able to flood a human's phone."""
    if before.tampered:
        return None
    return _Draft(
        kind="needs_you",
        title="its record was changed from outside, and put right",
        text=_safe(event.detail),
        advice=f"It goes on by itself. See `untildone log {before.run_id}`, "
        f"and stop it with `untildone stop {before.run_id}` if you do not trust its work.",
        topic="tampered",
        facts={"records": len(event.records)},
    )


def _asked(before: LoopState, event: ev.IterationCompleted, _: LoopState, __: float) -> _Draft | None:
    """The agent asks what nobody is there to answer; questions it had before are not told again."""
    known = before.last_report.questions if before.last_report else ()
    questions = [question for question in _questions(event.claim, event.output_preview) if question not in known]
    if not questions or (event.claim.question and before.asked_question):
        return None
    return _Draft(
        kind="needs_you",
        title="the agent asks: " + questions[0],
        text="\n".join(_safe(question) for question in questions[:5]),
        advice=f'It goes on without an answer; give one with `untildone message {before.run_id} "..."`.',
        topic="question",
        facts={"questions": len(questions), "iteration": event.iteration_num},
    )


def _questions(claim: Claim, said: str) -> list[str]:
    asked = list(claim.report.questions) if claim.report else []
    if claim.question and not asked:
        asked.append(said.strip().rsplit("\n", 1)[-1])
    return [question for question in asked if question.strip()]


def _raise(limit_type: str, state: LoopState) -> str:
    reasons = (reason for reason in Reason if (limit := limit_of(reason)) is not None and limit.field == limit_type)
    reason = next(reasons, None)
    return (
        ""
        if reason is None
        else advice(reason, state).replace(
            "Resume with a higher limit: `untildone resume", "Raise it with `untildone limits", 1
        )
    )


def _amount(limit_type: str, value: float) -> str:
    match limit_type:
        case "max_cost_usd":
            return dollars(value)
        case "max_duration":
            return format_duration(min(value, LONGEST))
        case _:
            return f"{value:,.0f}"


def _safe(text: str) -> str:
    return printable(text.strip()[:_LINE_CAP], lines=True)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}." if text else ""


# Any: each writer takes the event it is listed under.
_Writer = Callable[[LoopState, Any, LoopState, float], _Draft | None]
_WRITERS: Mapping[type[ev.Event], _Writer] = {
    ev.ContinuousCompleted: _done,
    ev.ContinuousSuspended: _stopped,
    ev.ContinuousWaiting: _waiting,
    ev.BudgetWarning: _budget,
    ev.ResourcesSeen: _resources,
    ev.LandingHeld: _held,
    ev.StoreTampered: _tampered,
    ev.IterationCompleted: _asked,
}

"""What the hooks of a loop inside Claude Code wrote down, as events of its run. Hostile: an agent can write there too.

A line that makes no sense is passed over; a value that makes none becomes the harmless one.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import Any

from untildone.core import events as ev
from untildone.core import trace as tr
from untildone.core.beginning import beginning
from untildone.core.claims import Claim, read_claim
from untildone.core.contract import Contract, commands
from untildone.core.dataclass import dataclass
from untildone.core.fold import apply
from untildone.core.outcome import CheckResult, Evidence, Usage
from untildone.core.policy import SESSION, AgentOptions, Landing, Policy, RunSpec
from untildone.core.repeats import MOST_FAILURES
from untildone.core.state import LoopState
from untildone.core.stopping import DONE, Reason

_UNPROVEN = "it ended as done, but no note of a hook proves that its checks passed"
_NO_GOAL = "Go on with what is not complete."
_GOAL_CAP = 200_000
_TEXT_CAP = 4000
_WORD_CAP = 200
_MANY = 50
_COUNT_CAP = 1_000_000
_LATEST = 253_402_300_799.0
_USAGE = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What a loop has cost from its beginning up to a moment, as Claude's transcript tells."""

    cost_usd: float = 0.0
    usage: Usage = field(default_factory=Usage)
    unpriced: int = 0
    """Replies nobody knows the price of."""


SpentUntil = Callable[[float], Spent | None]
"""Asked for a moment; None: nothing is known."""
Met = Callable[[str, str, float], None]
"""Told which session has the loop, where its transcript is, and since when."""


@dataclass(slots=True, kw_only=True)
class Notes:
    """A run as far as its notes were read: where it stands then, and what has to be appended to get there."""

    loop: str
    state: LoopState
    version: str
    name_of: Callable[[str, str], str]
    """Folder and goal to the name of a run."""
    spent: SpentUntil = lambda _: None
    met: Met = lambda _, __, ___: None
    happened: list[tuple[float, ev.Event]] = field(default_factory=list)
    checks: list[CheckResult] = field(default_factory=list)
    """Verdicts that wait for the end of the turn they belong to."""
    edited: set[str] = field(default_factory=set)
    """What was edited in the turn under way."""
    proven: bool = True
    """No note is missing between the verdicts that wait and now."""

    def add(self, at: float, *events: ev.Event) -> None:
        """Let something happen."""
        for event in events:
            if event.KIND == "control":
                self.state = apply(self.state, ev.Record(seq=self.state.last_seq + 1, at=at, event=event))
            self.happened.append((at, event))


def note(notes: Notes, line: Mapping[str, Any], now: float, *, linked: bool = True) -> bool:
    """Take in one more line; False when it makes no sense here, and then nothing happened.

    `linked`: it follows the line before, and none is missing in between.
    """
    notes.proven = not notes.checks or (notes.proven and linked)
    at = _number(line.get("at"), _LATEST)
    write = _WRITERS.get(_text(line.get("what")))
    if write is None or at is None or (not notes.state.run_id and write is not _started):
        return False
    # No moment before the last one or in the future: whoever wrote it, time only goes forward.
    return write(_Line(at=max(notes.state.last_at, min(at, now)), facts=line), notes)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    at: float
    facts: Mapping[str, Any]

    @property
    def session(self) -> str:
        return self.text("session", _WORD_CAP)

    def text(self, name: str, cap: int = _TEXT_CAP) -> str:
        return _text(self.facts.get(name), cap)

    def count(self, name: str) -> int:
        return int(_number(self.facts.get(name), _COUNT_CAP) or 0)

    def texts(self, name: str) -> tuple[str, ...]:
        given = self.facts.get(name)
        return tuple(_text(item) for item in given[:_MANY] if _text(item)) if isinstance(given, list) else ()


# --- its beginning -----------------------------------------------------------------------------------------------


def _started(line: _Line, notes: Notes) -> bool:
    goal, project = line.text("goal", _GOAL_CAP).strip() or _NO_GOAL, line.text("project")
    if notes.state.run_id or not project.startswith("/"):
        return False
    spec = RunSpec(
        goal=goal,
        cwd=project,
        name=notes.name_of(project, goal),
        branch=False,
        options=AgentOptions(agent=SESSION, allowed_tools=()),
        contract=Contract(checks=commands(*dict.fromkeys(line.texts("checks"))), room="tree", guard="off"),
        landing=Landing(land="none"),
    )
    policy = Policy(
        max_iterations=line.count("max_iterations") or None,
        deadline=_number(line.facts.get("deadline"), _LATEST) or None,
        max_duration=_number(line.facts.get("total_seconds"), _LATEST) or None,
        unbounded=True,
        completion_signal=" | ".join(line.texts("promises")),
        completion_threshold=1,
        stagnation_threshold=MOST_FAILURES,
        session="resume",
    )
    notes.add(line.at, beginning(notes.loop, spec, policy))
    return not line.session or _taken_up(line, notes)


def _taken_up(line: _Line, notes: Notes) -> bool:
    """A session has it: from now on its time counts, and a turn is under way."""
    if not line.session:
        return False
    notes.add(line.at, ev.ContinuousResumed(pid=0, host=line.session, version=notes.version, lease=0))
    if notes.state.open is None:
        notes.add(line.at, ev.IterationStarted(iteration_num=notes.state.attempts + 1))
    number = notes.state.attempts
    transcript = line.text("transcript")
    notes.met(line.session, transcript, line.at)
    session = tr.AgentSession(iteration_num=number, session_id=line.session, transcript=transcript or None)
    notes.add(line.at, session)
    return True


# --- its turns ---------------------------------------------------------------------------------------------------


def _turn(line: _Line, notes: Notes) -> bool:
    """A turn ended, and the loop goes on with the next."""
    if notes.state.phase != "running" or not notes.state.driving:
        # Something goes on that was over, or that nobody had: its session has it.
        _taken_up(line, notes)
    _close(line, notes)
    session, number = notes.state.last_session, notes.state.attempts + 1
    notes.add(line.at, ev.IterationStarted(iteration_num=number, resume_session=session))
    return True


def _close(line: _Line, notes: Notes) -> None:
    """The turn under way is over: what it said, did and cost, and what the checks found."""
    if notes.state.open is None:
        notes.add(line.at, ev.IterationStarted(iteration_num=notes.state.attempts + 1))
    under_way = notes.state.open
    assert under_way is not None
    said = line.text("text")
    session = line.session or notes.state.last_session
    cost, usage, unpriced = _cost(notes.spent(line.at), notes.state)
    completed = ev.IterationCompleted(
        iteration_num=under_way.number,
        cost_usd=cost,
        unseen_requests=unpriced,
        usage=usage,
        session_id=session,
        output_preview=said,
        duration_seconds=max(0.0, line.at - under_way.started_at),
        claim=_claim(line, said),
        evidence=Evidence(
            changed=bool(notes.edited), files_changed=len(notes.edited), output_chars=len(line.text("text"))
        ),
    )
    notes.add(line.at, completed)
    if notes.checks and notes.proven:
        notes.add(line.at, _validation(under_way.number, tuple(notes.checks)))
    notes.checks.clear()
    notes.edited.clear()


def _cost(spent: Spent | None, state: LoopState) -> tuple[float | None, Usage, int]:
    """What was not booked yet. A reply that reached the transcript late is booked with the next turn."""
    if spent is None:
        return None, Usage(), 0
    booked = state.spend
    usage = Usage(*(max(0, getattr(spent.usage, name) - getattr(booked.usage, name)) for name in _USAGE))
    unpriced = max(0, spent.unpriced - booked.unknown_costs)
    if not any(getattr(usage, name) for name in _USAGE):
        return None, Usage(), unpriced  # a turn without a reply is none: the transcript does not know it yet
    return max(0.0, spent.cost_usd - booked.cost_usd), usage, unpriced


def _claim(line: _Line, said: str) -> Claim:
    """What the hook heard is what counts; a status block in the text says more about it."""
    claim = read_claim(said, None, signal="\0")
    if claim.report is not None or not (line.facts.get("claim") or line.facts.get("done") is True):
        return claim
    return replace(claim, form="signal", signal=True, question=False)


def _validation(number: int, checks: tuple[CheckResult, ...]) -> ev.IterationValidation:
    failed = [check for check in checks if not check.passed]
    return ev.IterationValidation(
        iteration_num=number,
        passed=not failed,
        feedback="\n".join(f"{check.command}\n{check.output_tail}" for check in failed),
        checks=checks,
    )


# --- what happens in a turn --------------------------------------------------------------------------------------


def _check(line: _Line, notes: Notes) -> bool:
    command, passed = line.text("command"), line.facts.get("passed") is True
    result = CheckResult(
        name=command,
        command=command,
        passed=passed,
        exit_code=0 if passed else 1,
        seconds=_number(line.facts.get("seconds"), _LATEST) or 0.0,
        output_tail=line.text("output"),
    )
    if command and len(notes.checks) < _MANY:
        notes.checks.append(result)
    return bool(command)


def _tool(line: _Line, notes: Notes) -> bool:
    edit = bool(line.facts.get("edit"))
    detail = line.text("detail")
    number, call = notes.state.attempts, f"{line.at:.6f}-{len(notes.happened)}"
    tool = line.text("tool", _WORD_CAP)
    if not tool:
        return False
    notes.add(line.at, tr.AgentToolUse(iteration_num=number, tool=tool, tool_use_id=call, detail=detail))
    if line.facts.get("ok") is False:
        notes.add(line.at, tr.AgentToolResult(iteration_num=number, tool_use_id=call, is_error=True, text="it failed"))
    elif edit and len(notes.edited) < _COUNT_CAP:
        notes.edited.add(detail or call)
    return True


def _failed(line: _Line, notes: Notes) -> bool:
    point, failures = line.text("point", _WORD_CAP), line.count("failures")
    notes.add(line.at, ev.FailureCounted(point=point, failures=failures, limit=MOST_FAILURES))
    return True


def _refused(line: _Line, notes: Notes) -> bool:
    why = line.text("why", _WORD_CAP)
    said = f"refused {line.text('tool', _WORD_CAP)}: {line.text('detail', _WORD_CAP)}" + (f" ({why})" if why else "")
    notes.add(line.at, ev.ContinuousWarning(message=said))
    return True


def _asked(line: _Line, notes: Notes) -> bool:
    question = line.text("question")
    if not question:
        return False
    by = line.text("by", _WORD_CAP) or "agent"
    notes.add(line.at, ev.QuestionAsked(iteration_num=notes.state.attempts, question=question, by=by))
    return True


def _changed(line: _Line, notes: Notes) -> bool:
    """The state file was edited: from here on the run is about that."""
    changed = ev.GoalChanged(
        goal=line.text("goal", _GOAL_CAP).strip() or _NO_GOAL,
        completion_signal=" | ".join(line.texts("promises")),
        checks=line.texts("checks"),
        max_iterations=line.count("max_iterations") or None,
        deadline=_number(line.facts.get("deadline"), _LATEST) or None,
    )
    notes.add(line.at, changed)
    return True


def _milestone(line: _Line, notes: Notes) -> bool:
    notes.add(line.at, ev.ContinuousWarning(message=f"milestone: turn {line.count('iteration')}"))
    return True


# --- its end -----------------------------------------------------------------------------------------------------


def _released(line: _Line, notes: Notes) -> bool:
    """It is over, or it has let go: the last turn is closed, and the run with it. Of several ends the last counts."""
    named = line.text("reason", _WORD_CAP)
    reason = named if named in _REASONS else Reason.STOP_REQUESTED.value
    if notes.state.open is not None:
        _close(line, notes)
    detail = line.text("detail")
    verified = reason == Reason.VALIDATION_PASSED and notes.state.verified
    if reason == Reason.VALIDATION_PASSED and not verified:
        notes.add(line.at, ev.ContinuousSuspended(stop_reason=Reason.SURROUNDINGS.value, detail=_UNPROVEN))
    elif line.facts.get("done") is True and reason in DONE:
        notes.add(line.at, ev.ContinuousCompleted(stop_reason=reason, verified=verified, detail=detail))
    else:
        notes.add(line.at, ev.ContinuousSuspended(stop_reason=reason, detail=detail))
    return True


_REASONS = frozenset(str(reason) for reason in Reason)
_WRITERS: Mapping[str, Callable[[_Line, Notes], bool]] = {
    "started": _started,
    "adopted": _taken_up,
    "turn": _turn,
    "check": _check,
    "tool": _tool,
    "failed": _failed,
    "refused": _refused,
    "milestone": _milestone,
    "asked": _asked,
    "changed": _changed,
    "released": _released,
}


def _text(value: object, cap: int = _TEXT_CAP) -> str:
    return value[:cap] if isinstance(value, str) else ""


def _number(value: object, most: float) -> float | None:
    """A number from 0 to `most`; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value) if 0 <= value <= most else None

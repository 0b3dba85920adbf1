"""What hooks wrote down becomes what a run's log says."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from untildone.core import codec
from untildone.core import events as ev
from untildone.core import trace as tr
from untildone.core.fold import fold
from untildone.core.notes import Notes, Spent, note
from untildone.core.outcome import Usage
from untildone.core.state import LoopState

NOW = 10_000.0
STARTED = {
    "at": 100.0, "what": "started", "session": "s1", "goal": "Make it work\n", "project": "/p", "mode": "promise",
    "max_iterations": 3, "promises": ["DONE", "FERTIG"], "checks": ["make test"], "transcript": "/t/s1.jsonl",
}  # fmt: skip


def taken(*lines: dict[str, Any], spent: Any = lambda _: None) -> Notes:
    notes = Notes(loop="abc", state=LoopState(), version="1", name_of=lambda _, goal: goal.lower(), spent=spent)
    for line in lines:
        assert note(notes, line, NOW), line
    return notes


def events(notes: Notes) -> list[ev.Event]:
    return [event for _, event in notes.happened]


def kinds(notes: Notes) -> list[str]:
    return [event.TYPE for event in events(notes)]


def turn(at: float, **more: Any) -> dict[str, Any]:
    return {"at": at, "what": "turn", "session": "s1", "iteration": 1, "text": "half", **more}


def released(at: float, reason: str, *, done: bool = False, **more: Any) -> dict[str, Any]:
    return {"at": at, "what": "released", "session": "s1", "reason": reason, "done": done} | more


def test_a_loop_begins_as_a_run_with_its_goal_limits_and_session() -> None:
    notes = taken(STARTED)
    assert kinds(notes) == ["continuous.started", "continuous.resumed", "iteration.started", "agent.session"]
    state = notes.state
    assert (state.run_id, state.spec.goal, state.spec.cwd, state.spec.name) == (
        "abc",
        "Make it work",
        "/p",
        "make it work",
    )
    assert state.spec.in_session
    assert state.spec.checks == ("make test",)
    assert state.policy.max_iterations == 3
    assert state.policy.completion_signal == "DONE | FERTIG"
    assert (state.phase, state.driving, state.last_session) == ("running", True, "s1")


def test_a_loop_without_a_session_waits_and_its_time_does_not_count() -> None:
    notes = taken(STARTED | {"session": ""})
    assert (notes.state.open, notes.state.driving) == (None, False)
    assert note(notes, {"at": 400.0, "what": "adopted", "session": "s2", "transcript": ""}, NOW)
    assert note(notes, released(460.0, "stop_requested", session="s2"), NOW)
    assert notes.state.active_seconds == 60.0
    assert notes.state.last_session == "s2"


def test_turns_are_iterations_with_their_own_times_and_texts() -> None:
    notes = taken(STARTED, turn(160.0), turn(190.0, text="more"), released(200.0, "max_iterations_reached", text="end"))
    ended = [event for event in events(notes) if isinstance(event, ev.IterationCompleted)]
    assert [(e.iteration_num, e.duration_seconds, e.output_preview) for e in ended] == [
        (1, 60.0, "half"), (2, 30.0, "more"), (3, 10.0, "end"),
    ]  # fmt: skip
    assert [at for at, event in notes.happened if isinstance(event, ev.IterationStarted)] == [100.0, 160.0, 190.0]
    assert (notes.state.phase, notes.state.stop_reason, notes.state.attempts) == (
        "suspended", "max_iterations_reached", 3,
    )  # fmt: skip


def test_checks_belong_to_the_turn_they_followed() -> None:
    bad = {"at": 150.0, "what": "check", "command": "make test", "passed": False, "seconds": 2.5, "output": "1 failed"}
    good = bad | {"at": 190.0, "passed": True, "output": "ok"}
    notes = taken(STARTED, bad, turn(160.0, claim=True), good, released(200.0, "validation_passed", done=True))
    verdicts = [event for event in events(notes) if isinstance(event, ev.IterationValidation)]
    assert [(v.iteration_num, v.passed, v.checks[0].seconds) for v in verdicts] == [(1, False, 2.5), (2, True, 2.5)]
    assert "1 failed" in verdicts[0].feedback
    assert kinds(notes)[-3:] == ["iteration.completed", "iteration.validation", "continuous.completed"]
    assert notes.state.verified
    assert notes.state.phase == "completed"


def test_done_without_a_check_is_not_verified() -> None:
    notes = taken(STARTED | {"checks": []}, released(200.0, "completion_signal", done=True))
    completed = events(notes)[-1]
    assert isinstance(completed, ev.ContinuousCompleted)
    assert (completed.verified, notes.state.verified) == (False, False)


@pytest.mark.parametrize(
    ("reason", "done"),
    [("blocked", True), ("circuit_open", False), ("deadline_reached", False), ("completion_signal", False)],
)
def test_what_is_not_done_is_never_recorded_as_done(reason: str, *, done: bool) -> None:
    notes = taken(STARTED, released(200.0, reason, done=done, detail="why"))
    assert (notes.state.phase, notes.state.stop_reason, notes.state.stop_detail) == ("suspended", reason, "why")


def test_a_done_that_claims_checks_nobody_saw_pass_is_not_believed() -> None:
    notes = taken(STARTED, released(200.0, "validation_passed", done=True))
    assert isinstance(events(notes)[-1], ev.ContinuousSuspended)
    assert (notes.state.verified, notes.state.stop_reason) == (False, "surroundings_failed")
    assert "no note of a hook proves" in notes.state.stop_detail


def test_a_verdict_counts_only_where_no_note_is_missing_after_it() -> None:
    check = {"at": 150.0, "what": "check", "command": "make test", "passed": True, "seconds": 1.0, "output": ""}
    for linked in (True, False):
        notes = taken(STARTED, check)
        assert note(notes, released(200.0, "validation_passed", done=True), NOW, linked=linked)
        assert notes.state.verified is linked


def test_an_edited_goal_is_the_goal_from_then_on() -> None:
    changed = {
        "at": 130.0,
        "what": "changed",
        "goal": "New\n",
        "promises": ["OK"],
        "checks": ["x"],
        "max_iterations": 7,
    }
    state = taken(STARTED, turn(120.0), changed).state
    assert (state.spec.goal, state.spec.checks, state.policy.completion_signal) == ("New", ("x",), "OK")
    assert (state.policy.max_iterations, state.spec.name) == (7, "make it work")


def test_of_several_ends_the_last_counts() -> None:
    notes = taken(STARTED, released(150.0, "completion_signal", done=True), turn(160.0), released(200.0, "blocked"))
    assert (notes.state.phase, notes.state.stop_reason) == ("suspended", "blocked")


def test_tools_are_traced_and_edits_are_evidence() -> None:
    edit = {"at": 110.0, "what": "tool", "tool": "Edit", "ok": True, "edit": True, "detail": "src/a.py"}
    notes = taken(
        STARTED, edit, edit, edit | {"tool": "Bash", "edit": False, "ok": False, "detail": ""}, turn(160.0), turn(170.0)
    )
    tools = [event for event in events(notes) if isinstance(event, tr.AgentToolUse)]
    assert [(t.tool, t.detail) for t in tools] == [("Edit", "src/a.py"), ("Edit", "src/a.py"), ("Bash", "")]
    assert len({t.tool_use_id for t in tools}) == 3
    assert [event.is_error for event in events(notes) if isinstance(event, tr.AgentToolResult)] == [True]
    ended = [event.evidence for event in events(notes) if isinstance(event, ev.IterationCompleted)]
    assert [(e.changed, e.files_changed) for e in ended] == [(True, 1), (False, 0)]


def test_failures_open_the_breaker_and_nothing_else_does() -> None:
    failed = {"at": 110.0, "what": "failed", "point": "check: make test", "failures": 4}
    idle = [turn(120.0 + number) for number in range(8)]
    notes = taken(STARTED, *idle, failed)
    assert (notes.state.breaker.state, notes.state.breaker.no_progress) == ("closed", 4)
    assert note(notes, failed | {"failures": 5}, NOW)
    assert notes.state.breaker.state == "open"
    assert "check: make test" in notes.state.breaker.reason
    assert note(notes, failed | {"failures": 0, "point": ""}, NOW)
    assert notes.state.breaker.state == "closed"


def test_costs_are_what_was_not_booked_yet() -> None:
    known = {
        150.0: Spent(cost_usd=1.0, usage=Usage(100, 10)),
        200.0: Spent(cost_usd=1.5, usage=Usage(150, 20), unpriced=1),
    }
    notes = taken(STARTED, turn(150.0), turn(160.0), released(200.0, "blocked"), spent=known.get)
    ended = [event for event in events(notes) if isinstance(event, ev.IterationCompleted)]
    assert [event.cost_usd for event in ended] == [1.0, None, 0.5]
    assert [event.usage for event in ended] == [Usage(100, 10), Usage(), Usage(50, 10)]
    assert notes.state.spend.cost_usd == 1.5
    assert notes.state.spend.unknown_costs >= 1


def test_refusals_milestones_and_questions_are_told() -> None:
    notes = taken(
        STARTED,
        {"at": 110.0, "what": "refused", "tool": "Bash", "detail": "rm -rf /"},
        {"at": 120.0, "what": "milestone", "iteration": 5},
        {"at": 130.0, "what": "asked", "question": "Which port?", "by": "agent"},
    )
    said = [event.message for event in events(notes) if isinstance(event, ev.ContinuousWarning)]
    assert said == ["refused Bash: rm -rf /", "milestone: turn 5"]
    assert ev.QuestionAsked(iteration_num=1, question="Which port?", by="agent") in events(notes)


@pytest.mark.parametrize(
    "line",
    [
        {}, {"what": "turn"}, {"at": 1.0}, {"at": "x", "what": "turn"}, {"at": float("nan"), "what": "turn"},
        {"at": True, "what": "turn"}, {"at": 1e300, "what": "turn"}, {"at": 1.0, "what": "dance"},
        {"at": 1.0, "what": ["turn"]}, STARTED, {"at": 1.0, "what": "tool", "tool": ""},
        {"at": 1.0, "what": "check", "passed": True}, {"at": 1.0, "what": "adopted", "session": ""},
    ],
)  # fmt: skip
def test_lines_that_make_no_sense_change_nothing(line: dict[str, Any]) -> None:
    notes = taken(STARTED)
    before = (notes.state, list(notes.happened))
    assert not note(notes, line, NOW)
    assert (notes.state, notes.happened) == before


@pytest.mark.parametrize("start", [STARTED | {"project": "p"}, STARTED | {"project": 3}, turn(1.0), released(2.0, "x")])
def test_nothing_begins_without_a_beginning(start: dict[str, Any]) -> None:
    notes = Notes(loop="abc", state=LoopState(), version="1", name_of=lambda _, goal: goal)
    assert not note(notes, start, NOW)
    assert notes.happened == []


@pytest.mark.parametrize("goal", [" ", 3, None])
def test_a_loop_without_a_written_goal_is_a_run_all_the_same(goal: Any) -> None:
    assert taken(STARTED | {"goal": goal}).state.spec.goal == "Go on with what is not complete."


def test_time_only_goes_forward_and_not_into_the_future() -> None:
    notes = taken(STARTED, turn(50.0), turn(1e9))
    assert [at for at, _ in notes.happened] == sorted(at for at, _ in notes.happened)
    assert notes.happened[-1][0] == NOW


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from([
    "session", "goal", "project", "max_iterations", "promises", "checks", "transcript", "iteration", "claim", "text",
    "tool", "ok", "edit", "point", "failures", "command", "passed", "seconds", "output", "detail", "reason", "done",
])  # fmt: skip
WHATS = st.sampled_from(
    ["started", "adopted", "turn", "tool", "failed", "check", "refused", "released", "milestone", "asked"]
)
LINES = st.builds(
    lambda facts, at, what: {**facts, "at": at, "what": what}, st.dictionaries(NAMES, JSON), st.floats(), WHATS
)


@settings(max_examples=30)
@given(st.lists(LINES, max_size=12))
def test_whatever_stands_there_can_be_folded_and_stored(lines: list[dict[str, Any]]) -> None:
    notes = taken(STARTED)
    for line in lines:
        note(notes, line, NOW)
    records = []
    for seq, (at, event) in enumerate(notes.happened, 1):
        data, back = codec.stored_form(event)
        assert not isinstance(back, ev.Unknown), data
        records.append(ev.Record(seq=seq, at=at, event=back))
    assert fold(records).phase == notes.state.phase
    assert notes.state.phase in {"running", "suspended", "completed"}
    assert notes.state.attempts <= len(lines) + 1

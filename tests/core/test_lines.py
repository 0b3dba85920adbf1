"""One plain line for any event."""

from datetime import UTC, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.event_kit import values_of
from core.night_kit import HOSTILE, committed, night, validation
from core.run_kit import START, completed, failed
from untildone.core import codec
from untildone.core import events as ev
from untildone.core import trace as tr
from untildone.core.events import Event, Record
from untildone.core.figures import Timed
from untildone.core.lines import _LINERS, event_line, event_text
from untildone.core.lines_agent import tool_line
from untildone.core.outcome import Evidence


def line(event: Event) -> str | None:
    return event_line(Record(seq=1, at=START, event=event))


@pytest.mark.parametrize("kind", [*codec.REGISTRY.values()], ids=lambda kind: kind.TYPE)
def test_every_event_of_this_version_has_words_of_its_own(kind: type[Event]) -> None:
    assert kind in _LINERS


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (committed(1, "3f9ac21e77d1b2", "fix it\n\nbody"), "committed 3f9ac21e (2 files): fix it"),
        (validation(2, passed=False), "checks failed at c0ffee00: pytest -q (exit 1: FAILED test_y)"),
        (validation(2, passed=True), "checks passed at c0ffee00: pytest -q"),
        (ev.ContinuousWarning(message="notes cut"), "note: notes cut"),
        (ev.LimitsChanged(by="me", changes={"max_runs": None}), "me changed the limits: max_runs = none"),
        (ev.ResetRequested(by="me"), "me reset the breaker"),
        (ev.StopRequested(by="me", after_iteration=True), "me asked the run to stop after this iteration"),
        (ev.StopRequested(by="signal", signal="SIGINT"), "Ctrl+C was pressed (SIGINT): stopping"),
        (ev.StopRequested(by="signal", signal="SIGHUP"), "the terminal was closed (SIGHUP): stopping"),
        (ev.ContinuousSuspended(stop_reason="shutdown_signal", detail="by signal"),
         "stopped: the program was told to stop (Ctrl+C, SIGTERM or a closed terminal) [shutdown_signal]"),
        (ev.BudgetWarning(limit_type="max_cost_usd", limit_value=5, current_value=4.1),
         "82% of max_cost_usd is used up"),
        (ev.ResourcesSeen(disk_low=True, disk_free=100 << 20), "the disk is nearly full (100 MiB free)"),
        (ev.ResourcesSeen(disk_low=False, disk_free=9 << 30), "the disk has room again (9,216 MiB free)"),
        (ev.SkipWaitRequested(by="me"), "me ended the wait"),
        (ev.LandingFailed(iteration_num=2, reason="hook said no", files=("a", "b")),
         "the work of iteration 2 (2 files) could not be committed: hook said no"),
        (ev.TasksRead(iteration_num=1, open_blocking=0, open_optional=0, ticked=0, missing=True),
         "the task file is gone, or no longer a file"),
        (ev.IterationStarted(iteration_num=3, handoff=True, model="sonnet"),
         "iteration 3 started, to hand over what it knows, with sonnet"),
        (ev.ContinuousLimitReached(limit_type="max_runs", limit_value=2, current_value=2),
         "limit reached: runs (2 of 2)"),
        (ev.ContinuousResumed(pid=0, host="s1", version="1", lease=0), "started in a Claude Code session: s1"),
        (ev.NotesFolded(until=9), None),
        (ev.NotesFolded(until=9, foreign=2, gaps=1),
         "notes of this loop: 2 not written by the hook, not believed, some of the hook's own taken away or changed"),
        (ev.GoalChanged(goal="New\ngoal", completion_signal="OK"), "the goal was edited: New goal"),
        (ev.QuestionAsked(iteration_num=1, question="Which port?"), "a question for you: Which port?"),
        (ev.FailureCounted(point="check: x", failures=2, limit=5), "failed at check: x, 2 of 5 in a row"),
        (ev.FailureCounted(point="Claude Code: overloaded", failures=0, limit=5), "failed at Claude Code: overloaded"),
        (ev.FailureCounted(point="", failures=0, limit=5), "its failures are counted from 0 again"),
        (ev.Unknown(type="future.thing", version=1, kind="control", data=b""),
         "event future.thing (from a newer version)"),
        (tr.AgentToolUse(iteration_num=1, tool="mcp__git__log", tool_use_id="t", detail="-3"), "+ git/log -3"),
        (tr.AgentToolUse(iteration_num=1, tool="Bash", tool_use_id="t", detail="ls"), "$ Bash ls"),
        (tr.AgentToolResult(iteration_num=1, tool_use_id="t", is_error=True, text="no\nsuch"), "  ✗ no such"),
        (tr.AgentToolResult(iteration_num=1, tool_use_id="t", text="fine"), None),
        (tr.AgentMessage(iteration_num=1, text=" \n"), None),
        (tr.AgentThinking(iteration_num=1, chars=3), None),
        (tr.AgentSystem(iteration_num=1, subtype="api_retry", data={
            "attempt": 1, "max_retries": 2, "retry_delay_ms": 589, "error_status": 429, "error": "rate_limit"}),
         "the API answered 429 (rate_limit): Claude tries again in 0.6s (1 of 2)"),
        (tr.AgentSystem(iteration_num=1, subtype="api_retry", data={
            "attempt": 3, "max_retries": 2, "retry_delay_ms": 589, "error_status": 429, "error": "rate_limit"}),
         "the API answered 429 (rate_limit): Claude tries again in 0.6s (3 times so far)"),
        (tr.AgentSystem(iteration_num=1, subtype="rate_limit_event", data={"status": "allowed"}), None),
        (tr.AgentSystem(iteration_num=1, subtype="rate_limit_event", data={
            "status": "allowed_warning", "rateLimitType": "five_hour", "utilization": 0.92}),
         "usage limit five_hour: allowed_warning, 92% used"),
        (tr.AgentSystem(iteration_num=1, subtype="compact_boundary"), "Claude compacted its context"),
        (tr.AgentSystem(iteration_num=1, subtype="permission_denied", data={"tool_name": "Bash", "tool_use_id": "t"}),
         "claude was denied Bash"),
        (tr.AgentSystem(iteration_num=1, subtype="odd", data={"a": 1, "b": [2]}), "claude: odd a=1"),
    ],
)  # fmt: skip
def test_what_each_event_says(event: Event, said: str | None) -> None:
    assert line(event) == said


def test_moments_are_told_in_the_zone_that_is_asked_for() -> None:
    until = 1_760_000_000.0
    record = Record(seq=1, at=until - 600, event=ev.ContinuousWaiting(cause="rate_limit", until=until))
    east = timezone(timedelta(hours=2))
    assert event_line(record, UTC) == "waiting for the rate limit until 08:53 (10m)"
    assert event_line(record, east) == "waiting for the rate limit until 10:53 (10m)"
    told = event_text(record)
    assert isinstance(told, Timed)
    assert (told.before, told.at, told.after) == ("waiting for the rate limit until ", until, " (10m)")


def test_limits_are_written_as_people_write_them() -> None:
    changes = {"deadline": None, "max_cost_usd": 12.5, "max_duration": 5400.0, "max_runs": 1000000}
    wanted = "ada changed the limits: max_cost_usd = $12.50, max_duration = 1h30m, max_runs = 1000000, deadline = none"
    assert line(ev.LimitsChanged(by="ada", changes=changes)) == wanted


def test_a_stop_that_was_asked_for_names_who_did() -> None:
    stop = ev.ContinuousSuspended(stop_reason="stop_requested", detail="by an operator in a browser")
    assert line(stop) == "stopped: requested by an operator in a browser [stop_requested]"


def test_what_the_agent_said_is_told_when_a_human_may_have_to_act() -> None:
    said = line(failed(2, "authentication", error="Invalid API key"))
    assert said is not None
    assert "(Invalid API key)" in said


def test_a_failure_names_cause_cost_and_what_was_cut_off() -> None:
    said = line(failed(2, "overloaded", error="529 Overloaded", cost_usd=None, estimated_usd=0.03))
    assert said is not None
    for part in ("iteration 2", "cost unknown", "about $0.03 (estimate)", "529: overloaded"):
        assert part in said


def test_a_whole_night_reads_like_a_story() -> None:
    said = [text for record in night() if (text := event_line(record))]
    assert said[-1].startswith("done and verified: ")
    assert any(text.startswith("iteration 1 ended in 42s, $1.25, 2 files changed: keep the last byte") for text in said)


@pytest.mark.parametrize(("tree", "said"), [("abc", "$0.10, nothing changed"), ("", "$0.10")])
def test_only_who_looked_at_the_tree_says_that_nothing_changed(tree: str, said: str) -> None:
    assert (line(completed(1, evidence=Evidence(tree=tree))) or "").endswith(said)


@pytest.mark.parametrize(
    "kind", sorted(codec.REGISTRY.values(), key=lambda kind: kind.TYPE), ids=lambda kind: kind.TYPE
)
@settings(max_examples=8)
@given(data=st.data())
def test_every_event_has_one_safe_line(kind: type[Event], data: st.DataObject) -> None:
    said = line(data.draw(values_of(kind)))
    assert said is None or ("\n" not in said and "\x1b" not in said and len(said) < 2000)


def test_hostile_tool_calls_stay_one_short_line() -> None:
    said = tool_line(tr.AgentToolUse(iteration_num=1, tool=HOSTILE, tool_use_id="t", detail=HOSTILE * 100), 80)
    assert len(said) <= 80
    assert "\x1b" not in said

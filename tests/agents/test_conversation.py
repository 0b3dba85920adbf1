"""One iteration, folded from its lines: every real capture, written out, and every way to break one."""

import json
import math
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.made_lines import FOLDER, MODEL, answered, capture, fold, lines, of, result, said, start, tasks, text, tool
from untildone.agents.conversation import ERROR_TEXT_CAP
from untildone.core.events import Event
from untildone.core.faults import classify
from untildone.core.outcome import Outcome, Usage
from untildone.core.trace import (
    TOOL_RESULT_CAP,
    AgentMessage,
    AgentReply,
    AgentReplyStarted,
    AgentSession,
    AgentStreamError,
    AgentSystem,
    AgentThinking,
    AgentToolResult,
    AgentToolUse,
    AgentWoken,
)


class Expected(NamedTuple):
    fault: str | None
    cost: float = 0.0
    tokens: int = 0
    final: str = ""
    exit_code: int = 0


HELLO = "Hello from the scripted model."
WROTE = "Wrote out.txt. Done."
CAPTURES = {
    "auth-401": Expected("authentication", exit_code=1),
    "background-task-two-results": Expected(None, 0.0024, 360, "started bg"),
    "compact-command": Expected(None, 0.0016, 240),
    "context-too-long": Expected("context_too_long", exit_code=1),
    "context-too-long-compacts": Expected(None, 0.0024, 360, "after compaction"),
    "credit-balance-400": Expected("billing", exit_code=1),
    "dropped-stream": Expected(None, 0.00122, 221, "Recovered after a dropped stream."),
    "error-max-budget": Expected("budget_exhausted", 0.1608, 40040, exit_code=1),
    "error-max-turns": Expected("turns_exhausted", 0.0016, 240, exit_code=1),
    "file-edits": Expected(None, 0.048, 8800, "done"),
    "forbidden-403": Expected("authentication", exit_code=1),
    "interrupt-control-request": Expected(None, 0.0016, 240, "long done"),
    "max-output-tokens": Expected("model_error", 0.0032, 480, "truncated answer", exit_code=1),
    "model-fallback-529": Expected("overloaded", exit_code=124),
    "model-not-found-404": Expected("model_not_found", exit_code=1),
    "overloaded-529-exhausted": Expected("overloaded", exit_code=1),
    "overloaded-529-recovers": Expected(None, 0.0008, 120, "Recovered after overload."),
    "partial-messages": Expected(None, 0.0016, 240, WROTE),
    "pre-tool-use-denied": Expected(None, 0.0016, 240, WROTE),
    "rate-limit-429-exhausted": Expected("rate_limit", exit_code=1),
    "rate-limit-429-long-retry-after": Expected("rate_limit", exit_code=1),
    "rate-limit-429-recovers": Expected(None, 0.0008, 120, "Recovered after the rate limit."),
    "refusal": Expected("refusal", 0.0016, 240, exit_code=1),
    "request-too-large-413": Expected("context_too_long", exit_code=1),
    "server-500-exhausted": Expected("server_error", exit_code=1),
    "server-500-recovers": Expected(None, 0.0008, 120, "Recovered after a server error."),
    "session-first": Expected(None, 0.0008, 120, HELLO),
    "session-fork": Expected(None, 0.0008, 120, HELLO),
    "session-resume": Expected(None, 0.0008, 120, HELLO),
    "session-resume-unknown": Expected("session_lost", exit_code=1),
    "sigint-tool": Expected(None, 0.0008, 120),
    "stop-hook-blocked": Expected(None, 0.0032, 480, HELLO),
    "stop-hook-cap": Expected(None, 0.0072, 1080, HELLO),
    "stop-hook-continue-false": Expected(None, 0.0008, 120, HELLO),
    "stream-json-input-two-turns": Expected(None, 0.0024, 360, WROTE),
    "structured-output": Expected(None, 0.0008, 120),
    "structured-output-never": Expected(None, 0.0016, 240, "I will not call the tool."),
    "structured-output-retry": Expected(None, 0.0016, 240),
    "subagent-two-results": Expected(None, 0.0032, 480, "Sub done."),
    "success-tool-use": Expected(None, 0.0016, 240, WROTE),
    "usage-limit-429-api-key": Expected("rate_limit", exit_code=1),
    "usage-limit-five-hour": Expected("usage_limit", exit_code=1),
    "usage-warning-event": Expected(None, 0.0004, 120, "Answer with a usage warning."),
    "user-prompt-blocked": Expected(None),
}


# --- the real captures -----------------------------------------------------------------------------------


def test_every_capture_is_in_the_table() -> None:
    assert {path.stem for path in FOLDER.glob("*.jsonl")} == set(CAPTURES)


@pytest.mark.parametrize("name", CAPTURES)
def test_what_a_capture_comes_to(name: str) -> None:
    expected = CAPTURES[name]
    conversation, _ = fold(capture(name))
    outcome = conversation.outcome(exit_code=expected.exit_code)
    assert (classify(outcome.failure).name if outcome.failure else None) == expected.fault
    assert outcome.cost_usd == pytest.approx(expected.cost, rel=1e-9)
    assert outcome.usage.counted == expected.tokens
    assert outcome.final_text == expected.final
    assert outcome.estimated_usd == 0
    assert outcome.interrupted == (name == "sigint-tool")
    assert outcome.failure is None or outcome.failure.text or name == "model-fallback-529"


def test_the_session_is_told_once_though_init_comes_with_every_turn() -> None:
    conversation, events = fold(capture("background-task-two-results"), config_dir="/home/agent/.claude")
    [session] = of(events, AgentSession)
    assert session == AgentSession(
        iteration_num=7,
        session_id="61c6700c-4b75-4933-9a8b-244a56191852",
        transcript="/home/agent/.claude/projects/-workspace/61c6700c-4b75-4933-9a8b-244a56191852.jsonl",
        model=MODEL,
        version="2.1.325",
        lane="ANTHROPIC_API_KEY",
    )
    assert conversation.session_id == session.session_id


def test_the_result_of_a_background_task_wakes_the_agent_and_what_it_starts_then_is_counted() -> None:
    for name in ("background-task-two-results", "subagent-two-results"):
        assert of(fold(capture(name))[1], AgentWoken) == [AgentWoken(iteration_num=7)]
    woken = {"origin": {"kind": "task-notification"}}
    story = (tasks("a"), result(), tasks(), tasks("b", "c"), result(**woken), tasks("c"), result(**woken))
    assert [wake.tasks_started for wake in of(fold(lines(*story))[1], AgentWoken)] == [2, 0]


def test_replies_are_told_as_they_stream() -> None:
    _, events = fold(capture("partial-messages"), cwd="/workspace")
    assert [type(event) for event in events] == [
        AgentSession, AgentReplyStarted, AgentToolUse, AgentReply, AgentToolResult, AgentReplyStarted, AgentMessage,
        AgentReply,
    ]  # fmt: skip
    first = of(events, AgentReply)[0]
    assert first.message_id == "msg_partialmessages_0"
    assert first.usage == Usage(100, 20)
    assert first.cost_usd == pytest.approx(0.0008)
    assert of(events, AgentReplyStarted)[0].usage == Usage(100, 1)


def test_a_usage_limit_says_until_when() -> None:
    failure = fold(capture("usage-limit-five-hour"))[0].outcome(exit_code=1).failure
    assert failure is not None
    assert failure.resets_at == 1794777584
    assert failure.limit_type == "five_hour"


def test_a_retry_says_how_long() -> None:
    failure = fold(capture("rate-limit-429-exhausted"))[0].outcome(exit_code=1).failure
    assert failure is not None
    assert failure.retry_after == 1.0
    assert failure.api_error_status == 429


def test_a_denial_is_told_once_with_what_was_denied() -> None:
    assert fold(capture("pre-tool-use-denied"))[0].outcome().denials == ("Bash(echo hi > out.txt && cat out.txt)",)


def test_a_subagents_words_are_not_final_and_its_costs_count() -> None:
    conversation, events = fold(capture("subagent-two-results"))
    first = of(events, AgentMessage)[0]
    assert (first.text, first.subagent) == ("hi from sub", True)
    assert conversation.outcome().cost_usd == pytest.approx(0.0032)
    assert conversation.outcome().num_turns == 3
    assert of(events, AgentToolUse)[0].detail == "general-purpose"


def test_limits_and_retries_are_shown() -> None:
    _, events = fold(capture("usage-warning-event"))
    [warning] = of(events, AgentSystem)
    assert warning.subtype == "rate_limit_event"
    assert warning.data["status"] == "allowed_warning"
    _, events = fold(capture("model-fallback-529"))
    assert {event.subtype for event in of(events, AgentSystem)} == {"api_retry", "model_fallback"}


# --- hostile input ---------------------------------------------------------------------------------------

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
    | st.sampled_from(["user", "tool_result", "rejected", "error_x", "aborted_tools", "<synthetic>", "idle", MODEL]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
ALL_LINES = [json.loads(line) for name in CAPTURES for line in capture(name).splitlines()]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, child in inner for found in places(child, (*path, key)))]


def put(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    changed = dict(value) if isinstance(value, dict) else list(value)
    changed[path[0]] = put(value[path[0]], path[1:], new)
    return changed


def sound(outcome: Outcome, events: list[Event]) -> None:
    """Whatever came in, what goes out can be stored and added up."""
    assert msgspec.json.encode(outcome)
    assert all(msgspec.json.encode(event) for event in events)
    assert outcome.cost_usd is None or 0 <= outcome.cost_usd < math.inf
    assert 0 <= outcome.estimated_usd < math.inf
    assert outcome.failure is None or classify(outcome.failure).name
    assert not (outcome.failure and outcome.interrupted)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_no_wrong_type_anywhere_can_raise(data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.integers(0, len(ALL_LINES) - 1), min_size=1, max_size=6))
    broken = [
        put(line, data.draw(st.sampled_from(places(line))), data.draw(json_values))
        for line in map(ALL_LINES.__getitem__, chosen)
    ]
    conversation, events = fold(lines(*broken))
    sound(conversation.outcome(exit_code=data.draw(st.sampled_from([None, 0, 1, -9, 137]))), events)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_no_order_and_no_cut_can_raise(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(CAPTURES)))
    shuffled = data.draw(st.permutations(capture(name).splitlines()))
    text = b"\n".join(shuffled)
    conversation, events = fold(text[: data.draw(st.integers(0, len(text)))])
    sound(conversation.outcome(), events)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_no_bytes_anywhere_can_raise(data: st.DataObject) -> None:
    """Random bytes over, into and between the lines of a capture, and lines of several captures mixed."""
    names = data.draw(st.lists(st.sampled_from(sorted(CAPTURES)), min_size=1, max_size=3))
    text = bytearray(
        b"\n".join(line for name in names for line in data.draw(st.permutations(capture(name).splitlines())))
    )
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(text)))
        text[at : at + data.draw(st.integers(0, 40))] = data.draw(st.binary(max_size=40))
    conversation, events = fold(bytes(text))
    stderr = data.draw(st.binary(max_size=60)).decode("utf-8", "replace")
    sound(conversation.outcome(exit_code=data.draw(st.sampled_from([None, 0, 1, -9, 137])), stderr=stderr), events)


@given(st.sampled_from(sorted(CAPTURES)), st.integers(1, 4))
def test_costs_do_not_depend_on_lines_said_twice(name: str, times: int) -> None:
    repeated = b"\n".join(
        line for line in capture(name).splitlines() for _ in range(1 if b'"type":"result"' in line else times)
    )
    assert fold(repeated)[0].outcome().cost_usd == pytest.approx(CAPTURES[name].cost)


# --- made for the purpose --------------------------------------------------------------------------------


def test_texts_of_one_message_are_joined_and_those_of_earlier_ones_forgotten() -> None:
    conversation, events = fold(
        lines(said("m1", text("early")), said("m2", text("one")), said("m2", tool("Bash", {})), said("m2", text("two")))
    )
    assert conversation.outcome().final_text == "one\ntwo"
    assert conversation.outcome().output_chars == len("earlyonetwo")
    assert len(of(events, AgentMessage)) == 3


def test_an_api_error_in_the_models_name_is_not_its_final_text() -> None:
    error = said(
        "e1", text("API Error: nothing works"), error="server_error", is_api_error_message=True, api_error_status=500
    )
    conversation, events = fold(lines(said("m1", text("real")), error))
    assert conversation.outcome().final_text == "real"
    assert of(events, AgentSystem)[0].data["text"] == "API Error: nothing works"
    failure = conversation.outcome().failure
    assert failure is not None
    assert classify(failure).name == "server_error"


def test_trouble_that_a_real_reply_ended_is_no_evidence() -> None:
    rejected = {"type": "rate_limit_event", "rate_limit_info": {"status": "rejected", "resetsAt": 1794777584}}
    retry = {
        "type": "system",
        "subtype": "api_retry",
        "error_status": 529,
        "error": "overloaded",
        "retry_delay_ms": 500,
    }
    failed = result(is_error=True, terminal_reason="model_error")
    for reply in (start("m1"), said("m1", text("hi"))):
        failure = fold(lines(rejected, retry, reply, failed))[0].outcome().failure
        assert failure is not None
        assert (failure.resets_at, failure.api_error, failure.retry_after) == (None, None, None)
        assert classify(failure).name == "model_error"


REPORT = {"status": "COMPLETE", "exit_signal": True, "summary": "did it"}


def test_the_report_tool_is_read_unless_its_schema_refused_it() -> None:
    calls = (
        said("m1", tool("mcp__untildone__report", REPORT, "r1")),
        said("m2", tool("mcp__untildone__report", {"status": "X"}, "r2")),
    )
    accepted = fold(lines(*calls, answered("bad status", tool_use_id="r2", is_error=True)))[0].outcome()
    assert accepted.report is not None
    assert accepted.report.summary == "did it"
    assert accepted.activity == ()
    sub = said("m3", tool("mcp__untildone__report", REPORT), parent_tool_use_id="t9")
    assert fold(lines(sub))[0].outcome().report is None


def test_structured_output_is_a_report() -> None:
    outcome = fold(lines(result(structured_output=REPORT | {"summary": "old"}), result(structured_output=REPORT)))[
        0
    ].outcome()
    assert outcome.report is not None
    assert outcome.report.summary == "did it"


def test_the_same_call_has_the_same_fingerprint_whatever_the_order_of_its_fields() -> None:
    one = said("m1", tool("Edit", {"a": 1, "b": {"x": 1, "y": 2}}))
    same = said("m2", tool("Edit", {"b": {"y": 2, "x": 1}, "a": 1}))
    other = said("m3", tool("Write", {"a": 1, "b": {"x": 1, "y": 2}}))
    activity = fold(lines(one, same, other))[0].outcome().activity
    assert activity[0] == activity[1] != activity[2]


def test_thinking_is_told_by_its_length() -> None:
    [_, event] = fold(lines(said("m1", {"type": "thinking", "thinking": "hmmm"})))[1]
    assert event == AgentThinking(iteration_num=7, chars=4)


def test_tool_answers_are_cut_and_errors_collected_up_to_a_cap() -> None:
    long = "E" * 100_000
    conversation, events = fold(lines(answered("fine"), answered(long, is_error=True), answered("more", is_error=True)))
    cut = of(events, AgentToolResult)[1]
    assert (len(cut.text), cut.full_length, cut.is_error) == (TOOL_RESULT_CAP, 100_000, True)
    assert conversation.outcome().error_text == "E" * ERROR_TEXT_CAP


def test_errors_keep_their_order_below_the_cap() -> None:
    conversation, _ = fold(lines(answered("first", is_error=True), answered("fine"), answered("second", is_error=True)))
    assert conversation.outcome().error_text == "first\nsecond"


def test_of_a_long_command_the_line_that_was_denied_is_told() -> None:
    given = {"command": "set -e\nmake\ncd sub && git push\n"}
    listed = result(permission_denials=[{"tool_name": "Bash", "tool_use_id": "t", "tool_input": given}])
    assert fold(lines(listed))[0].outcome().denials == ("Bash(cd sub && git push)",)


def test_a_denial_event_takes_its_detail_from_the_call() -> None:
    denied = {
        "type": "system",
        "subtype": "permission_denied",
        "tool_name": "Bash",
        "tool_use_id": "t1",
        "message": "no",
    }
    conversation, events = fold(lines(said("m1", tool("Bash", {"command": "rm -rf x"})), denied))
    assert conversation.outcome().denials == ("Bash(rm -rf x)",)
    assert of(events, AgentSystem)[0].subtype == "permission_denied"
    listed = result(
        permission_denials=[{"tool_name": "Bash", "tool_use_id": "t1", "tool_input": {"command": "rm -rf x"}}]
    )
    assert fold(lines(denied, listed))[0].outcome().denials == ("Bash(rm -rf x)",)


def test_unreadable_lines_are_told_and_explain_a_missing_result() -> None:
    conversation, [event] = fold(b"Segmentation fault\n")
    assert isinstance(event, AgentStreamError)
    assert "Segmentation fault" in event.error
    failure = conversation.outcome(exit_code=139).failure
    assert failure is not None
    assert "Segmentation fault" in failure.text
    assert classify(failure).name == "crash"


def test_what_a_system_line_shows_is_bounded() -> None:
    huge = {
        "type": "system",
        "subtype": "informational",
        "content": "x" * 9000,
        "deep": {"a": "y" * 9000},
        "n": 3,
        "uuid": "u",
    }
    [event] = fold(lines(huge))[1]
    assert isinstance(event, AgentSystem)
    assert event.data == {"content": "x" * 1000, "n": 3}

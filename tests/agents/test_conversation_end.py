"""When an iteration is over, and whether it ended by itself."""

import json
from typing import Any

import pytest

from agents.made_lines import answered, fold, lines, parsed, result, said, start, state, task, tasks, tool
from untildone.agents.conversation import Conversation
from untildone.agents.stream import StreamParser
from untildone.core.faults import Remedy, classify


@pytest.mark.parametrize(
    ("seen", "over"),
    [
        ([result(), state("idle")], True),
        ([state("idle")], False),
        ([result()], False),
        ([state("running"), result(), state("idle")], True),
        ([tasks("b1"), result(), state("idle")], False),
        ([tasks("b1"), result(), state("idle"), tasks()], False),
        ([tasks("b1"), result(), state("idle"), tasks(), state("running")], False),
        ([tasks("b1"), result(), state("idle"), tasks(), state("running"), result(), state("idle")], True),
        ([tasks("b1"), result(), state("idle"), task("updated"), tasks(), state("idle")], True),
        ([result(), state("idle"), task("notification")], False),
        ([result(origin={"kind": "task-notification"}), state("idle")], False),
    ],
)  # fmt: skip
def test_the_rule_for_the_end(seen: list[dict[str, Any]], over: bool) -> None:
    assert fold(lines(*seen))[0].over is over


def test_living_tasks_are_known_by_their_ids() -> None:
    assert fold(lines(tasks("b1", "b2")))[0].live_tasks == ("b1", "b2")
    assert fold(lines(tasks("b1", "b2"), tasks("b2")))[0].live_tasks == ("b2",)


def test_it_rests_after_a_result_until_a_new_turn_begins() -> None:
    begin = {"type": "system", "subtype": "init", "session_id": "s"}
    assert not fold(lines(begin))[0].resting
    assert fold(lines(begin, result()))[0].resting
    assert not fold(lines(begin, result(), begin))[0].resting
    assert fold(lines(begin, result(), begin, result()))[0].resting


@pytest.mark.parametrize(
    ("ending", "asked", "interrupted", "failed"),
    [
        (result(), True, False, False),
        (result(), False, False, False),
        (result(is_error=True, terminal_reason="aborted_tools", subtype="error_during_execution"), False, True, False),
        (result(is_error=True, terminal_reason="api_error"), True, True, False),
        (result(is_error=True, terminal_reason="api_error"), False, False, True),
        (None, True, True, False),
        (None, False, False, True),
    ],
)
def test_an_interruption_is_no_failure_and_a_success_is_no_interruption(
    ending: dict[str, Any] | None, asked: bool, interrupted: bool, failed: bool
) -> None:
    outcome = fold(lines(*([ending] if ending else [])))[0].outcome(interrupted=asked)
    assert outcome.interrupted is interrupted
    assert (outcome.failure is not None) is failed


@pytest.mark.parametrize(
    "broken",
    [
        {"is_error": None},
        {"is_error": "false"},
        {"is_error": 0},
        {"subtype": None},
        {"subtype": "failure"},
        {"subtype": 1},
    ],
)
def test_a_result_that_does_not_say_that_it_is_a_success_is_none(broken: dict[str, Any]) -> None:
    outcome = fold(lines(result(result="All done.", **broken)))[0].outcome()
    assert outcome.failure is not None
    assert classify(outcome.failure).remedy is Remedy.COUNT


def test_a_result_that_was_cut_off_is_an_error() -> None:
    whole = json.dumps(result(result="All done.")).encode()
    parser, conversation = StreamParser(), Conversation(1)
    for line in [*parser.feed(whole[:-20]), *parser.finish()]:
        conversation.feed(line)
    failure = conversation.outcome(exit_code=0).failure
    assert failure is not None
    assert not failure.has_result


ABORTED = result(is_error=True, terminal_reason="aborted_streaming", subtype="error_during_execution")


def waiting(seconds: float, *, status: int | None = 429, error: str = "rate_limit", attempt: int = 1) -> dict[str, Any]:
    return {
        "type": "system", "subtype": "api_retry", "attempt": attempt, "max_retries": 2,
        "retry_delay_ms": seconds * 1000, "error_status": status, "error": error,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("seen", "too_long"),
    [
        ([waiting(2)], False),
        ([waiting(40)], True),
        ([waiting(2, attempt=3)], True),
        ([waiting(40), start("m1")], False),
        ([said("m1", tool("Task", {}, "t1")), waiting(40)], False),
        ([said("m1", tool("Task", {}, "t1")), waiting(3600)], True),
        ([said("m1", tool("Task", {}, "t1")), answered("done", tool_use_id="t1"), waiting(40)], True),
        ([tasks("b1"), waiting(40)], False),
        ([waiting(float(10**9))], True),
        ([{"type": "system", "subtype": "api_retry", "retry_delay_ms": "soon"}], False),
    ],
)
def test_a_wait_is_for_the_loop_when_it_is_long_and_nothing_would_be_lost(
    seen: list[dict[str, Any]], too_long: bool
) -> None:
    assert fold(lines(*seen))[0].waits_too_long is too_long


@pytest.mark.parametrize(
    ("told", "fault"),
    [
        (waiting(40), "rate_limit"),
        (waiting(40, status=529, error="overloaded"), "overloaded"),
        (waiting(40, status=None, error="unknown"), "network"),
        (waiting(40, status=503, error="server_error"), "server_error"),
    ],
)
@pytest.mark.parametrize("ending", [ABORTED, None])
def test_a_turn_given_up_failed_for_what_claude_waited_for(
    told: dict[str, Any], fault: str, ending: dict[str, Any] | None
) -> None:
    conversation, _ = fold(lines(told))
    conversation.give_up()
    assert not conversation.waits_too_long
    for line in parsed(lines(*([ending] if ending else []))):
        conversation.feed(line)
    outcome = conversation.outcome(exit_code=-9 if ending is None else 0)
    assert outcome.failure is not None
    assert (outcome.interrupted, outcome.failure.retry_after) == (False, 40.0)
    assert classify(outcome.failure).name == fault
    asked_too = conversation.outcome(interrupted=True)
    assert (asked_too.interrupted, asked_too.failure) == (True, None)


def test_a_turn_that_ended_well_all_the_same_did_not_fail() -> None:
    conversation, _ = fold(lines(waiting(40)))
    conversation.give_up()
    for line in parsed(lines(start("m1"), result())):
        conversation.feed(line)
    assert conversation.outcome().failure is None

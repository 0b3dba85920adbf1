"""When an iteration is over, and whether it ended by itself."""

from typing import Any

import pytest

from agents.made_lines import fold, lines, result, state, task, tasks


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

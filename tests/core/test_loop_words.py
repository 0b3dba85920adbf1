"""What a loop says: enough to go on, nothing that acts on a terminal, nothing that is a claim when it is quoted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from untildone.core import loop_words
from untildone.core.claims import claims_done, read_claim, says_blocked
from untildone.core.loop_file import LoopFile, new_file, parse
from untildone.core.loop_words import Look, end_line, go_on, safe, turn_line
from untildone.core.stopping import Reason


def loop(goal: str = "Make it work", **fields: object) -> LoopFile:
    found = parse(new_file(goal, **fields))
    assert found is not None
    return found


def test_the_agent_hears_where_it_stands() -> None:
    look = Look()
    look.claimed, look.open_work, look.open_lines = True, 7, ["TODO.md: paint it and 6 more"]
    look.failed_check, look.output = "pytest -q", "x" * 100_000 + "\n1 failed"
    said = go_on(loop(promises=("DONE",), max_iterations=9), 3, look)
    for part in (
        "turn 3 of 9",
        "Make it work",
        "open work (7)",
        "paint it",
        "`pytest -q`",
        "1 failed",
        "`DONE`",
        "BLOCKED",
    ):
        assert part in said
    assert len(said) < 10_000


def test_without_a_promise_there_is_the_exit_signal() -> None:
    assert f"`{loop_words.EXIT_SIGNAL}`" in go_on(loop(), 2, Look())


def test_several_promises_are_all_named() -> None:
    assert "one of these texts, alone on the last line of your message: `A`, `B`" in go_on(
        loop(promises=("A", "B")), 2, Look()
    )


def test_a_long_goal_is_cut_and_says_so() -> None:
    said = go_on(loop("word " * 100_000), 2, Look())
    assert len(said) < loop_words.GOAL_CAP + 2000
    assert "the rest stands in the state file" in said


@pytest.mark.parametrize("mode", ["promise", "autonomous"])
@pytest.mark.parametrize("promise", ["DONE", "EXIT_SIGNAL: true"])
def test_quoted_back_it_claims_nothing(mode: str, promise: str) -> None:
    file = loop(promises=(promise,))
    claim = read_claim(go_on(file, 2, Look(mode)), None, signal=promise, prompt=file.body)
    assert not claims_done(claim)
    assert not says_blocked(claim)


def test_every_end_is_one_that_the_record_knows() -> None:
    assert [reason for reason in loop_words._ENDS if reason not in set(Reason)] == []


def test_ends_in_one_line() -> None:
    assert end_line("validation_passed", 1) == "untildone: done, every check passed (after 1 turn)"
    assert end_line("circuit_open", 5, "check: make\n\x1b[31m test") == (
        "untildone: it failed at the same point again and again, not done (after 5 turns); check: make test"
    )
    assert turn_line(2, 9, "", "a note") == "untildone: turn 2 of 9; a note"


@given(text=st.text())
def test_nothing_that_acts_on_a_terminal_comes_through(text: str) -> None:
    shown = safe(text + "\x1b[2J\u202e")
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert all(char in "\n\t" or char >= " " for char in shown)
    assert "\n" not in turn_line(1, 2, text)

"""The verdict as a pure question: what was seen, what is said about it, and what is not."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.run_kit import after
from untildone.core import events as ev
from untildone.core.contract import CheckSpec, Contract
from untildone.core.feedback import check_feedback
from untildone.core.findings import Finding
from untildone.core.outcome import CheckResult
from untildone.core.policy import Landing
from untildone.core.pull import LAG, PullCheck, PullView
from untildone.core.unprovable import cannot_run, has_no_program
from untildone.core.verdict import (
    Seen,
    ci_verdict,
    fewer_tests,
    how_it_failed,
    not_run,
    refusal,
    still_failing,
    uncommitted,
    validation,
)

GREEN = CheckResult(name="tests", command="make test", passed=True, exit_code=0, room="clean")
RED = replace(GREEN, passed=False, exit_code=2, output_tail="\nE  it broke\n\n")
LOST = replace(RED, ran=False, output_tail="not run: the setup failed (npm ci)")
HIDDEN = replace(
    RED, name="hidden check 1", command="grep s3cr3t", output_tail="s3cr3t", notes=("s3cr3t",), hidden=True
)
SEEN = Seen(room="clean", commit="c1", tree="t", branch="work")


def verdict_of(*results: CheckResult, findings: tuple[Finding, ...] = ()) -> ev.IterationValidation:
    return validation(after(checks=("make test",)), 3, replace(SEEN, results=results, findings=findings))


def test_all_green_is_a_pass_on_a_commit_in_a_room() -> None:
    verdict = verdict_of(GREEN)
    assert (verdict.passed, verdict.commit, verdict.room, verdict.feedback, verdict.errors) == (
        True, "c1", "clean", "", ()
    )  # fmt: skip


def test_what_blocks_is_an_error_with_its_place_and_what_only_informs_is_none() -> None:
    deleted = Finding(kind="test_deleted", path="tests/a.py", blocking=True)
    added = Finding(kind="test_added", path="tests/b.py")
    assert verdict_of(GREEN, findings=(added,)).passed
    blocked = verdict_of(GREEN, findings=(added, deleted))
    assert (blocked.passed, blocked.errors) == (False, ("tests/a.py: test deleted",))
    assert blocked.findings == (added, deleted)


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (RED, "exit 2"),
        (replace(RED, exit_code=None), "did not end in time"),
        (LOST, "not run: the setup failed (npm ci)"),
        (HIDDEN, "failed"),
        (replace(RED, command="", output_tail="uncommitted: a"), "uncommitted: a"),
    ],
)
def test_how_it_failed(result: CheckResult, said: str) -> None:
    assert how_it_failed(result) == said


hostile = st.text(alphabet="abc`\n", max_size=20).map(lambda text: f"s3cr3t{text}")


results = st.builds(
    CheckResult,
    name=st.just("hidden check 1"),
    command=hostile,
    output_tail=hostile,
    passed=st.booleans(),
    ran=st.booleans(),
    flaky=st.booleans(),
    exit_code=st.none() | st.integers(),
    notes=st.tuples(hostile),
    hidden=st.sampled_from([True]),
    room=st.sampled_from(["clean", "tree"]),
)


@given(results)
def test_of_a_hidden_check_nothing_but_its_verdict_is_told(hidden: CheckResult) -> None:
    verdict = verdict_of(GREEN, hidden)
    told = [verdict.feedback, *verdict.errors, check_feedback([hidden]), refusal([hidden], [GREEN, hidden], "/w")]
    told += [cannot_run([hidden]), has_no_program([hidden])]
    assert "s3cr3t" not in "".join([*told, *not_run([hidden])])
    assert verdict.passed == hidden.passed


def test_a_refusal_names_what_passes_here_why_it_failed_there_and_the_ways_out() -> None:
    other = replace(RED, name="lint")
    said = refusal([RED, other], [GREEN, replace(other, passed=False)], "/w")
    assert said.startswith("`tests` passes in /w but fails in a fresh checkout of the same commit (E it broke)")
    assert "--setup" in said
    assert "lint" not in said
    assert refusal([RED], [RED], "/w") == ""
    assert refusal([], [], "/w") == ""


def test_what_could_not_be_run_is_told_once() -> None:
    assert not_run([GREEN, RED, LOST, LOST]) == ["tests: not run: the setup failed (npm ci)"]


COUNTED = replace(GREEN, tests_run=3, tests_skipped=1)


def not_run_any_more(result: CheckResult, *waived: str) -> list[str]:
    checks = Contract(checks=(CheckSpec(name="tests", command="make test"),))
    state = after(ev.BaselineTaken(commit="c0", room="clean", checks=(COUNTED,)), contract=checks)
    return fewer_tests([result], state, waived)


@pytest.mark.parametrize(
    ("run", "skipped", "said"),
    [
        (3, 1, ""),
        (9, 0, ""),
        (3, None, ""),
        (2, 1, "1 of 3 tests were not run"),
        (0, 4, "3 of 3 tests were not run"),
        (4, 2, "2 tests were skipped, 1 at the start"),
        (None, None, "it no longer says how many tests it ran: 3 at the start"),
    ],
)
def test_fewer_tests_than_at_the_start_are_disputed(run: int | None, skipped: int | None, said: str) -> None:
    told = not_run_any_more(replace(COUNTED, tests_run=run, tests_skipped=skipped))
    assert told == ([f"tests: {said}"] if said else [])


@pytest.mark.parametrize(
    ("passed", "was", "output", "told"),
    [
        (True, False, "FAIL: test_a (tests.A.test_a)\nFAILED (failures=1)\n", 1),
        (True, False, "3 passed\n", 0),
        (True, False, "not ok 1 - later # TODO\nok 2 - now\n", 0),
        (True, True, "FAIL: test_a (tests.A.test_a)\n", 0),
        (False, False, "FAIL: test_a (tests.A.test_a)\n", 0),
    ],
)
def test_a_check_that_ends_well_although_tests_fail_is_disputed(
    passed: bool, was: bool, output: str, told: int
) -> None:
    before = replace(GREEN, name="tests", passed=was)
    state = after(ev.BaselineTaken(commit="c0", room="clean", checks=(before,)), checks=("make test",))
    now = replace(GREEN, name="tests", passed=passed, output_tail=output)
    assert len(still_failing([now], state, ())) == told
    assert still_failing([now], state, ("tests",)) == []


def test_what_is_red_waived_or_another_check_is_not_counted() -> None:
    assert not_run_any_more(replace(COUNTED, passed=False, tests_run=1)) == []
    assert not_run_any_more(replace(COUNTED, command="make other", tests_run=1)) == []
    assert not_run_any_more(replace(COUNTED, tests_run=1), "tests") == []
    assert fewer_tests([replace(COUNTED, tests_run=0)], after(checks=("make test",)), ()) == []


def test_a_dispute_is_no_pass_until_it_is_accepted() -> None:
    seen = replace(SEEN, results=(GREEN,), disputed=("tests/test_a.py::test_x fails",), judges=("tests/test_a.py",))
    state = after(checks=("make test",))
    verdict = validation(state, 3, seen)
    assert (verdict.passed, verdict.errors) == (False, ("disputed: tests/test_a.py::test_x fails",))
    assert "- tests/test_a.py::test_x fails" in verdict.feedback
    assert validation(replace(state, accepted=seen.disputed), 3, seen).passed
    red = validation(state, 3, replace(seen, results=(RED,)))
    assert red.disputed == (), "what fails anyway is not in dispute"


def test_a_few_of_many_uncommitted_files_are_named() -> None:
    assert uncommitted(()) == ""
    assert uncommitted(("a", "b\n")) == "uncommitted: a, b"
    assert uncommitted(tuple("abcdefg")) == "uncommitted: a, b, c, d, e and 2 more"


# --- CI --------------------------------------------------------------------------------------------------

LANDING = Landing(ci_timeout=1800, ci_start=180)
PASSED, FAILED, PENDING = (PullCheck(name=state, state=state) for state in ("passed", "failed", "pending"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("checks", "head", "waited", "said"),
    [
        ((PASSED,), "c1", 0, ""),
        ((PASSED, PENDING), "c1", 1799, None),
        ((PASSED, PENDING), "c1", 1800, "still running: pending"),
        ((PENDING, FAILED), "c1", 0, "not green: failed"),
        ((), "c1", 179, None),
        ((), "c1", 180, "no check has reported anything"),
        ((PASSED,), "c0", LAG - 1, None),
        ((PASSED,), "c0", LAG, "the pull request is at c0, the work is at c1: it is not pushed"),
    ],
)
def test_ci_is_green_only_about_this_commit(
    checks: tuple[PullCheck, ...], head: str, waited: float, said: str | None
) -> None:
    assert ci_verdict(PullView(number=1, head=head, checks=checks), "c1", LANDING, waited) == said

"""Facts that speak for done, or against it."""

from core.run_kit import after, completed, done_claim, started
from untildone.core import events as ev
from untildone.core.findings import Finding
from untildone.core.outcome import CheckResult
from untildone.core.state import LoopState
from untildone.server.pages.evidence import Fact, checks_of, facts_of

GREEN = CheckResult(name="make", command="make", passed=True, exit_code=0, seconds=2.0, tests_run=3)
RED = CheckResult(
    name="lint", command="lint --all", passed=False, exit_code=1, was_green=False, output_tail="\x1b[1mno"
)


def looked(*checks: CheckResult, **more: object) -> ev.IterationValidation:
    passed = all(check.passed for check in checks)
    return ev.IterationValidation(iteration_num=1, passed=passed, checks=checks, **more)  # type: ignore[arg-type]


def by_label(state: LoopState, look: ev.IterationValidation | None) -> dict[str, Fact]:
    return {fact.label: fact for fact in facts_of(state, look)}


def test_a_run_that_has_not_claimed_is_open() -> None:
    facts = by_label(after(checks=("make",)), None)
    assert {label: fact.state for label, fact in facts.items()} == {
        "Claim": "open", "Checks": "open", "Checked in": "open", "Commit": "open", "Guard": "open",
    }  # fmt: skip


def test_green_checks_after_a_claim_hold() -> None:
    look = looked(GREEN, room="clean", commit="c" * 40)
    state = after(started(1), completed(1, claim=done_claim()), look, checks=("make",))
    facts = by_label(state, look)
    assert (facts["Claim"].state, facts["Checks"].state, facts["Commit"].state) == ("good", "good", "good")
    assert facts["Checked in"].state == "good"
    assert facts["Checks"].text == "1 of 1 passed after iteration 1"


def test_red_checks_and_the_guard_do_not_hold() -> None:
    found = Finding(kind="test_deleted", path="tests/test_a.py", blocking=True)
    look = looked(GREEN, RED, findings=(found,))
    state = after(started(1), completed(1, claim=done_claim()), look, checks=("make", "lint"))
    facts = by_label(state, look)
    assert facts["Checks"] == Fact("Checks", "1 of 2 passed after iteration 1", "bad")
    assert "tests/test_a.py" in facts["In the way"].text


def test_without_checks_nothing_is_verified() -> None:
    assert by_label(after(), None)["Checks"].text == "none were given: nothing can be verified"


def test_checks_tell_how_they_went_and_hidden_ones_keep_silent() -> None:
    hidden = CheckResult(name="secret", command="cat answers", passed=False, output_tail="42", hidden=True)
    green, red, kept = checks_of([GREEN, RED, hidden])
    assert (green.how, red.how) == ("passed, 2s, 3 tests", "exit 1, was already failing before the run")
    assert (red.output, red.command) == ("no", "lint --all")
    assert (kept.output, kept.command, kept.how) == ("", "", "failed")


def test_nothing_has_to_come_of_a_waiver() -> None:
    waived = by_label(after(started(1), ev.WaiverGiven(by="ada", patterns=("tests/old/*",))), None)["Waived"]
    assert waived == Fact("Waived", "tests/old/*", "note")

"""The briefing about proof and arrival: nothing that weakens a "done" is left out."""

import re
from datetime import UTC
from typing import Any

import pytest

from core.night_kit import HOSTILE, POLICY, check, committed, reported, validation
from core.run_kit import START, completed, opening, records, started
from untildone.briefing.markdown import render
from untildone.core import events as ev
from untildone.core.contract import Contract, commands
from untildone.core.events import Event
from untildone.core.findings import Finding
from untildone.core.fold import fold
from untildone.core.policy import Landing, Review
from untildone.core.reviewing import ReviewVerdict

COMMIT = "c0ffee0012345678"
SKIP = Finding(kind="skip_added", path="tests/test_a.py", line=3, text="@skip", blocking=True)
EDITED = Finding(kind="test_edited", path="tests/test_b.py", line=9)
WORK = (started(1), completed(1, claim=reported("all", done=True)), committed(1, COMMIT))


def told(*events: Event, **spec: Any) -> str:
    history = records([*opening(POLICY, **spec), *events])
    return render(fold(history), history, START + 1000, zone=UTC)


def section(text: str, title: str) -> str:
    found = re.search(rf"^## {re.escape(title)}$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, f"no section {title!r}"
    return found[1]


@pytest.mark.parametrize(
    ("room", "said"),
    [("clean", "fresh checkout of that commit"), ("tree", "**in the agent's own tree, which is weaker")],
)
def test_where_the_checks_ran_is_always_said(room: str, said: str) -> None:
    evidence = section(told(*WORK, validation(1, passed=True, room=room), checks=("pytest -q",)), "Evidence")
    assert said in evidence


def test_flakiness_blame_and_the_log_stand_beside_the_verdict() -> None:
    seen = check(passed=False, flaky=True, was_green=False, log="/state/logs/1.log")
    baseline = ev.BaselineTaken(commit="5747a47", room="clean", checks=(check(passed=False),))
    text = told(baseline, *WORK, validation(1, passed=False, checks=(seen,)), checks=("pytest -q",))
    evidence = section(text, "Evidence")
    assert "`pytest -q`: **flaky**: it gave both verdicts on one commit; was red before the run, too" in evidence
    assert "all it printed: `/state/logs/1.log`" in evidence
    assert "Before any work was done, `pytest -q` failed: that was not this run's doing." in evidence


def test_a_hidden_check_is_not_quoted() -> None:
    secret = check(passed=False, hidden=True, name="hidden check 1", command="psst", output_tail="psst")
    text = told(*WORK, validation(1, passed=False, checks=(secret,)), checks=("make",))
    assert "psst" not in text
    assert "`hidden check 1` does not hold." in section(text, "What was not done, and why")


def test_the_guard_is_always_in_the_report() -> None:
    title = "Tests, CI and other guarded files"
    assert "No change of a guarded file was found." in section(told(*WORK), title)
    assert "**The guard was off**" in section(told(*WORK), title)
    waived = Finding(kind="ci_changed", path=".github/workflows/ci.yml", line=1)
    found = section(
        told(
            *WORK, ev.WaiverGiven(by="me", patterns=(".github/**",)),
            validation(1, passed=False, findings=(SKIP, EDITED, waived)),
            contract=Contract(checks=commands("make")),
        ),
        title,
    )  # fmt: skip
    assert "In the way of done:\n\n- `tests/test_a.py:3`: a test is skipped (`@skip`)" in found
    assert "Waived by a human:\n\n- `.github/workflows/ci.yml:1`: the CI was changed" in found
    assert "Changed, and only reported:\n\n- `tests/test_b.py:9`: a test was changed" in found
    assert "Allowed to change: `.github/**`." in found


def test_reviews_say_what_was_found_and_what_they_cost() -> None:
    verdict = ReviewVerdict(approved=False, findings="no tests for the parser")
    text = told(*WORK, started(1, review=True), completed(1, verdict=verdict), review=Review(when="landing"))
    reviews = section(text, "Reviews")
    assert "1 review, 0 approved; they cost $0.10." in reviews
    assert "After iteration 1 it asked for changes: `no tests for the parser`" in reviews
    assert "**Iteration 1**: `all`" in section(text, "What was done"), "a review is not the iteration's own summary"


def test_where_the_work_is() -> None:
    begun = (ev.LandingPrepared(branch="untildone/it", base="main", start="s"), *WORK, validation(1, passed=True))
    begun = (*begun, ev.LandingBegun(commit=COMMIT, because="validation_passed"))
    opened = ev.LandingPullOpened(number=7, url="https://x/7", branch="untildone/it", base="main")
    done = (
        ev.LandingMerged(commit=COMMIT, base="main", merged="abcdef1234", number=7, cleanup="403"),
        ev.ContinuousCompleted(stop_reason="validation_passed", verified=True),
    )
    text = told(*begun, opened, *done, checks=("make",), landing=Landing(land="pr"))
    assert "It has landed in main as abcdef12." in text.split("## ", 1)[0]
    where = section(text, "Where the work is")
    assert "`c0ffee00` arrived in `main` as `abcdef12`; could not be tidied up: `403`" in where
    assert "Pull request: `https://x/7`" in where
    lost = (ev.LandingGaveUp(reason="no rights"), ev.ContinuousSuspended(stop_reason="landing_failed"))
    text = told(*begun, *lost, checks=("make",), landing=Landing(land="merge"))
    assert "The work is done, but it has not landed." in text.split("## ", 1)[0]
    assert "untildone land it" in section(text, "What to do next")
    assert "## Where the work is" not in told(*WORK)


def test_words_of_others_stay_dead() -> None:
    bad = Finding(kind="secret", path=HOSTILE, line=1, text=HOSTILE, blocking=True)
    verdict = ReviewVerdict(approved=False, findings=HOSTILE)
    text = told(
        ev.BaselineTaken(commit="c", room="clean", refused=HOSTILE), *WORK,
        validation(1, passed=False, findings=(bad,)), started(1, review=True), completed(1, verdict=verdict),
        ev.LandingGaveUp(reason=HOSTILE), contract=Contract(checks=commands("make"), waive=(HOSTILE,)),
        landing=Landing(land="merge"), review=Review(when="landing"),
    )  # fmt: skip
    assert "\x1b" not in text
    assert "<script" not in re.sub(r"(`+).+?\1", "", text)

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
from untildone.core.outcome import Evidence
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


def test_checks_go_by_their_names_with_the_command_beside() -> None:
    named = check(passed=False, name="unit tests", command="ls && pytest -q")
    text = told(*WORK, validation(1, passed=False, checks=(named,)), checks=("pytest -q",))
    assert "| `unit tests: ls && pytest -q` | **failed** |" in section(text, "Evidence")
    assert "The check `unit tests` (`ls && pytest -q`) fails" in section(text, "What was not done, and why")
    hidden = check(passed=False, name="hidden check 1", command="psst", hidden=True)
    assert "psst" not in told(*WORK, validation(1, passed=False, checks=(hidden,)), checks=("pytest -q",))


def test_what_was_asked_of_new_tests_is_told() -> None:
    asked = Contract(checks=commands("pytest -q"), fail_to_pass=True)
    text = section(told(*WORK, validation(1, passed=False), contract=asked), "Evidence")
    assert "New tests on old code (--fail-to-pass): not looked at yet" in text


@pytest.mark.parametrize(
    ("room", "said"),
    [
        ("clean", "fresh checkout of that commit"),
        ("tree", "**Proof: weaker**, because they ran in the agent's own tree"),
    ],
)
def test_where_the_checks_ran_is_always_said(room: str, said: str) -> None:
    evidence = section(told(*WORK, validation(1, passed=True, room=room), checks=("pytest -q",)), "Evidence")
    assert said in evidence


def test_flakiness_blame_and_the_log_stand_beside_the_verdict() -> None:
    lent = ("shared with the tree, read-only: node_modules",)
    seen = check(passed=False, flaky=True, was_green=False, log="/state/logs/1.log", notes=lent)
    baseline = ev.BaselineTaken(commit="5747a47", room="clean", checks=(check(passed=False),))
    text = told(baseline, *WORK, validation(1, passed=False, checks=(seen,)), checks=("pytest -q",))
    evidence = section(text, "Evidence")
    assert "`pytest -q`: **flaky**: it gave both verdicts on one commit; was already failing before the run" in evidence
    assert "; `shared with the tree, read-only: node_modules`; all it printed: `/state/logs/1.log`" in evidence
    assert "Before any work was done, `pytest -q` failed: that was not this run's doing." in evidence


def test_a_hidden_check_is_not_quoted() -> None:
    secret = check(passed=False, hidden=True, name="hidden check 1", command="psst", output_tail="psst", log="/psst")
    text = told(*WORK, validation(1, passed=False, checks=(secret,)), checks=("make",))
    assert "psst" not in text
    assert "`hidden check 1` does not hold." in section(text, "What was not done, and why")


def test_the_guard_is_always_in_the_report() -> None:
    title = "Tests, CI and other guarded files"
    assert "No change of a guarded file was found." in section(told(*WORK), title)
    assert "**The guard was off**" in section(told(*WORK), title)
    by_settings = Finding(kind="ci_changed", path="docs/ci.yml", line=1)
    waived = Finding(kind="ci_changed", path=".github/workflows/ci.yml", line=1)
    found = section(
        told(
            *WORK, ev.WaiverGiven(by="cli", patterns=(".github/**",), user="ada"),
            validation(1, passed=False, findings=(SKIP, EDITED, waived, by_settings)),
            contract=Contract(checks=commands("make"), waive=("docs/**",)),
        ),
        title,
    )  # fmt: skip
    assert "Completion is blocked:\n\n- `tests/test_a.py:3`: a test is skipped (`@skip`)" in found
    by = r"Waived by `untildone waive \(user ada\)` at [-\d: ]+:"
    assert re.search(by + r"\n\n- `.github/workflows/ci.yml:1`: the CI was changed", found)
    assert "Waived by the settings of the run (`waive`):\n\n- `docs/ci.yml:1`: the CI was changed" in found
    assert "human" not in found, "any program of that user can give the order"
    assert "Changed, and only reported:\n\n- `tests/test_b.py:9`: a test was changed" in found
    assert "Allowed to change: `docs/**`, `.github/**`." in found


def test_reviews_say_what_was_found_and_what_they_cost() -> None:
    verdict = ReviewVerdict(approved=False, findings="no tests for the parser")
    text = told(*WORK, started(1, review=True), completed(1, verdict=verdict), review=Review(when="landing"))
    reviews = section(text, "Reviews")
    assert "1 review, 0 approved; they cost $0.10." in reviews
    assert "After iteration 1 it asked for changes: `no tests for the parser`" in reviews
    assert "**Iteration 1**: `all`" in section(text, "What was done"), "a review is not the iteration's own summary"


def test_what_the_reviewer_was_denied_is_not_the_agents_trouble() -> None:
    verdict = ReviewVerdict(approved=True)
    denied = completed(1, verdict=verdict, evidence=Evidence(denials=("Write a.py",)))
    text = told(*WORK, started(1, review=True), denied, review=Review(when="landing"))
    said = section(text, "What was not done, and why")
    assert "Denied to the reviewer, who only reads: `Write a.py`" in said
    assert "Denied to the agent" not in said


def test_what_blocks_besides_the_checks_is_not_called_a_failed_check() -> None:
    skip = Finding(kind="skip_added", path="tests/test_a.py", line=3, blocking=True)
    green = validation(1, passed=False, feedback="a skip", checks=(check(passed=True),), findings=(skip,))
    trouble = ev.LandingFailed(iteration_num=1, reason="not committed: a.py:3 (AWS access key)")
    text = told(*WORK, trouble, green, ev.ContinuousSuspended(stop_reason="max_runs_reached"), checks=("make",))
    assert "the checks failed" not in text
    assert "and the checks passed, but **something else blocked completion**" in section(text, "What was done")
    assert "run 1 time by the loop itself, 1 passed" in section(text, "Evidence")
    left = section(text, "What was not done, and why")
    assert "Completion is blocked: `1 problem blocks completion: tests/test_a.py:3 skip added`" in left
    assert "`the work is not committed: a.py:3 (AWS access key)`" in left
    assert "untildone waive it tests/test_a.py" in section(text, "What to do next")


def test_a_refusal_at_the_start_is_told_once_and_the_checks_were_run() -> None:
    refused = ev.BaselineTaken(commit="c", room="clean", checks=(check(passed=False),), refused="`make` needs setup")
    stop = ev.ContinuousSuspended(stop_reason="clean_room_refused", detail="`make` needs setup")
    text = told(refused, stop, checks=("make",))
    assert text.count("needs setup") == 1
    assert "run once, before any work" in section(text, "Evidence")
    assert "never run" not in text


def test_after_going_back_only_what_is_still_there_is_shown() -> None:
    second = (started(2), completed(2), committed(2, "beef" * 10))
    back = ev.Rewound(by="cli", iteration_num=1, commit="x", saved="refs/x", head=COMMIT)
    text = told(*WORK, *second, ev.ContinuousSuspended(stop_reason="max_runs_reached"), back)
    assert "git show c0ffee00" in section(text, "What to do next")


def test_work_without_commits_is_looked_at_in_the_tree() -> None:
    changed = completed(1, claim=reported("all", done=True), evidence=Evidence(changed=True, files_changed=1))
    done = ev.ContinuousCompleted(stop_reason="validation_passed", verified=True)
    text = told(started(1), changed, validation(1, passed=True), done, checks=("make",), commit=False)
    assert "at a snapshot of the tree, `c0ffee" in section(text, "Evidence")
    next_steps = section(text, "What to do next")
    assert "Review the changes" in next_steps
    assert "git diff" in next_steps


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
    head = text.split("## ", 1)[0]
    assert "**Done and verified, but not landed.**" in head
    assert "Not done" not in head
    assert section(text, "Where the work is").count("no rights") == 1
    assert "It has not landed." in section(text, "Where the work is")
    assert "The goal is reached; the work has not landed" in section(text, "What was not done, and why")
    assert "untildone land it" in section(text, "What to do next")
    stop = ev.ContinuousSuspended(stop_reason="stop_requested")
    cut = told(*begun, stop, checks=("make",), landing=Landing(land="pr"))
    assert "**Done and verified, but not landed yet: a person stopped it" in cut
    orders = "The work conflicts with main in a.txt. Merge main into your branch, and claim again."
    rejected = told(*begun, ev.LandingRejected(cause="conflict", detail=orders), landing=Landing(land="merge"))
    assert "sent back to the agent: `The work conflicts with main in a.txt`" in section(rejected, "Where the work is")
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

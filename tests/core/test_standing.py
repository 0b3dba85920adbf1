"""What is proven, guarded and reviewed, and how far the work has come."""

import json
from dataclasses import replace

import pytest

from core.night_kit import check, committed, reported, validation
from core.run_kit import after, completed, now_of, started
from untildone.core import events as ev
from untildone.core.contract import Contract, commands
from untildone.core.findings import Finding
from untildone.core.policy import Landing, Review
from untildone.core.reviewing import ReviewVerdict
from untildone.core.standing import guard_text, landing_text, standing
from untildone.core.state import LoopState
from untildone.core.views import run_view, status_json

PR = Landing(land="pr")
COMMIT = "c0ffee0012345678"
WORK = (started(1), completed(1, claim=reported("all", done=True)), committed(1, COMMIT))
PREPARED = ev.LandingPrepared(branch="untildone/it", base="main", start="5747a47")
SKIP = Finding(kind="skip_added", path="tests/test_a.py", line=3, blocking=True)
TOLD = Finding(kind="test_edited", path="tests/test_b.py")


def facts(state: LoopState) -> dict[str, str]:
    return dict(standing(state))


def on_its_way(*events: ev.Event, landing: Landing = PR) -> LoopState:
    begun = (PREPARED, *WORK, validation(1, passed=True), ev.LandingBegun(commit=COMMIT, because="validation_passed"))
    return after(*begun, *events, checks=("make",), landing=landing)


PUSHED = ev.LandingPushed(commit=COMMIT, branch="untildone/it", remote="origin")
OPENED = ev.LandingPullOpened(number=7, url="https://x/7", branch="untildone/it", base="main")
MERGED = ev.LandingMerged(commit=COMMIT, base="main", merged="abcdef1234", number=7)


def test_where_checks_run_is_always_said_and_the_tree_is_called_weaker() -> None:
    assert facts(after(checks=("make",)))["checked in"] == "a fresh checkout of the commit"
    in_tree = after(contract=Contract(checks=commands("make"), room="tree"))
    assert "weaker" in facts(in_tree)["checked in"]
    assert facts(after()) == {}


def test_blame_flakiness_and_the_proven_commit() -> None:
    baseline = ev.BaselineTaken(
        commit="5747a47", room="clean", checks=(check(passed=False, name="lint"), check(passed=True))
    )
    flaky = validation(1, passed=True, checks=(check(passed=True, flaky=True),))
    seen = facts(after(PREPARED, baseline, *WORK, flaky, checks=("pytest -q", "lint")))
    assert (seen["red before"], seen["flaky"], seen["proven at"]) == ("lint", "pytest -q", "c0ffee00")


def test_the_guard_names_file_and_line_of_what_blocks() -> None:
    assert guard_text(()) == ""
    assert guard_text((SKIP, TOLD)) == (
        "1 in the way of done: tests/test_a.py:3 skip added; 1 change of guarded files reported"
    )
    assert "and 2 more" in guard_text((SKIP,) * 5)
    waived = after(ev.WaiverGiven(by="me", patterns=("tests/**",)), contract=Contract(waive=("docs/**",)))
    assert facts(waived)["waived"] == "docs/**, tests/**"


def reviewed(*, approved: bool) -> tuple[ev.Event, ev.Event]:
    verdict = ReviewVerdict(approved=approved, findings="" if approved else "no tests")
    return started(1, review=True), completed(1, verdict=verdict)


def test_what_the_reviewer_said() -> None:
    review = Review(when="landing")
    assert facts(after(review=review))["review"] == "before it counts as done"
    assert facts(after(*WORK, *reviewed(approved=True), review=review))["review"] == "approved"
    refused = after(*WORK, *reviewed(approved=False), review=review)
    assert facts(refused)["review"] == "asked for changes, 1 of 3 times in a row"
    assert run_view(after(*WORK, started(1, review=True), review=review), 0, alive=True).phase == "reviewing"


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ((), "c0ffee00 on its way to main"),
        ((PUSHED,), "untildone/it is pushed, a pull request for main comes next"),
        ((PUSHED, OPENED), "pull request #7 waits for CI and reviews: https://x/7"),
        ((PUSHED, OPENED, ev.LandingRejected(cause="ci", detail="red")), "not yet in main, mended 1 of 3 times"),
        ((PUSHED, OPENED, MERGED), "landed in main as abcdef12"),
        ((PUSHED, OPENED, ev.LandingGaveUp(reason="403: no rights")), "given up: 403: no rights (https://x/7)"),
        ((MERGED, ev.LandingReverted(merged="m", revert="r", base="main", reason="red")),
         "not yet in main, mended 1 of 3 times"),
    ],
)  # fmt: skip
def test_how_far_the_work_has_come(events: tuple[ev.Event, ...], said: str) -> None:
    state = on_its_way(*events)
    assert landing_text(state) == said
    assert facts(state)["landing"] == said


def test_landing_says_nothing_where_nothing_lands() -> None:
    assert landing_text(on_its_way(landing=Landing())) == ""


def test_the_phase_says_landing_and_landed() -> None:
    state = on_its_way(PUSHED, OPENED)
    assert run_view(state, now_of(state), alive=True).phase.startswith("landing: pull request #7")
    over = on_its_way(PUSHED, OPENED, MERGED, ev.ContinuousCompleted(stop_reason="validation_passed", verified=True))
    assert run_view(over, now_of(over)).phase == "done and verified, landed in main as abcdef12"
    failed = on_its_way(ev.LandingGaveUp(reason="no"), ev.ContinuousSuspended(stop_reason="landing_failed"))
    view = run_view(failed, now_of(failed))
    assert (view.exit_code, "untildone land it" in view.advice) == (7, True)


def test_programs_see_the_same() -> None:
    state = replace(on_its_way(PUSHED, OPENED), findings=(SKIP,))
    told = json.loads(json.dumps(status_json(run_view(state, now_of(state)), state)))
    assert told["landing"]["pull"] == 7
    assert told["landing"]["url"] == "https://x/7"
    assert told["guard"]["findings"] == [{"kind": "skip_added", "path": "tests/test_a.py", "line": 3, "blocking": True}]
    assert told["proof"]["room"] == "clean"
    assert told["review"] == {"when": "never", "approved": False, "rounds": 0}

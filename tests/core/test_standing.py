"""What is proven, guarded and reviewed, and how far the work has come."""

import json
from dataclasses import replace

import pytest

from core.night_kit import check, committed, reported, validation
from core.run_kit import after, completed, done_claim, now_of, started
from untildone.core import events as ev
from untildone.core import fail_to_pass
from untildone.core.contract import Contract, commands
from untildone.core.decide import Verify, decide
from untildone.core.figures import IN_LINE
from untildone.core.findings import Finding
from untildone.core.fold import fold
from untildone.core.obstacles import guard_text
from untildone.core.oneliners import closing_lines
from untildone.core.outcome import CheckResult
from untildone.core.policy import Landing, Review
from untildone.core.reviewing import ReviewVerdict
from untildone.core.standing import delivery_json, landing_text, standing, unproven
from untildone.core.state import LoopState
from untildone.core.views import result_json, run_view, status_json

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


def test_a_run_in_line_says_who_is_before_it_until_its_turn_comes() -> None:
    merge = Landing(land="merge")
    waits = ev.ContinuousWaiting(cause=IN_LINE, until=None, detail="2 before us (importer, docs)")
    said = "waiting for its turn to land: 2 before us (importer, docs)"
    in_line = on_its_way(waits, landing=merge)
    assert facts(in_line)["landing"] == said
    assert run_view(in_line, 0.0, alive=True).phase == said
    begun = ev.LandingBegun(commit=COMMIT, because="validation_passed")
    assert run_view(on_its_way(waits, begun, landing=merge), 0.0, alive=True).phase.startswith("landing: c0ffee00")
    assert run_view(on_its_way(waits, PREPARED, landing=merge), 0.0, alive=True).phase.startswith("landing: c0ffee00")


def test_a_run_that_is_done_without_a_commit_has_nothing_on_its_way() -> None:
    over = ev.ContinuousCompleted(stop_reason="validation_passed")
    merge = Landing(land="merge")
    assert landing_text(after(PREPARED, landing=merge)) == "not yet in main"
    assert landing_text(after(PREPARED, over, landing=merge)) == "nothing was committed, so nothing lands"


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
    assert (seen["failing before"], seen["flaky"], seen["proven at"]) == ("lint", "pytest -q", "c0ffee00")


def test_the_guard_names_file_and_line_of_what_blocks() -> None:
    assert guard_text(()) == ""
    assert guard_text((SKIP, TOLD)) == (
        "1 problem blocks completion: tests/test_a.py:3 skip added; 1 change of guarded files reported"
    )
    assert "and 2 more" in guard_text((SKIP,) * 5)
    waived = after(ev.WaiverGiven(by="me", patterns=("tests/**",)), contract=Contract(waive=("docs/**",)))
    assert facts(waived)["waived"] == "docs/**, tests/**"


def reviewed(*, approved: bool) -> tuple[ev.Event, ev.Event]:
    verdict = ReviewVerdict(approved=approved, findings="" if approved else "no tests")
    return started(1, review=True), completed(1, verdict=verdict)


STOPPED = ev.ContinuousSuspended(stop_reason="max_runs_reached")
FAILED = validation(1, passed=False)
GUARDED = validation(1, passed=False, feedback="a skip", checks=(check(passed=True),), findings=(SKIP, TOLD))
UNCOMMITTED = ev.LandingFailed(iteration_num=1, reason="a hook failed")


@pytest.mark.parametrize(
    ("events", "checks", "why"),
    [
        ((*WORK, FAILED), ("make",), "the checks failed"),
        ((*WORK, replace(FAILED, findings=(SKIP, TOLD))), ("make",),
         "the checks failed; 1 problem blocks completion: tests/test_a.py:3 skip added"),
        ((*WORK, GUARDED), ("make",), "1 problem blocks completion: tests/test_a.py:3 skip added"),
        ((*WORK[:2], UNCOMMITTED, replace(GUARDED, findings=())), ("make",),
         "the work is not committed: a hook failed"),
        ((*WORK, FAILED, started(2), completed(2)), ("make",), "the latest changes were not checked"),
        ((*WORK, validation(1, passed=True)), ("make",), ""),
        ((started(1), completed(1)), (), "no checks were given"),
        ((), ("make",), ""),
    ],
)  # fmt: skip
def test_a_run_that_stopped_says_that_and_why_nothing_is_verified(
    events: tuple[ev.Event, ...], checks: tuple[str, ...], why: str
) -> None:
    state = after(PREPARED, *events, STOPPED, checks=checks)
    view = run_view(state, now_of(state))
    assert view.unproven == why
    assert (f"not verified: {why}" in closing_lines(view)) is bool(why)
    assert run_view(after(*events, checks=checks), 0.0).unproven == "", "a run at work is not judged"


def test_what_a_review_or_a_landing_left_open_is_not_verified() -> None:
    proven = (PREPARED, *WORK, validation(1, passed=True))
    refused = after(*proven, *reviewed(approved=False), checks=("make",), review=Review(when="landing"))
    assert unproven(refused) == "the reviewer asks for changes: no tests"
    assert run_view(refused, 0.0).verdict == "passed", "the checks did not ask for anything"
    words = "CI is red on pull request #1: unit. Mend it; the work lands when CI is green."
    rejected = on_its_way(ev.LandingRejected(cause="ci", detail=words))
    assert unproven(rejected) == "what keeps it from landing is not fixed: CI is red on pull request #1: unit"


def test_what_the_guard_blocks_is_no_failed_check_and_the_way_out_is_named() -> None:
    stopped = after(PREPARED, *WORK, GUARDED, STOPPED, checks=("make",))
    view = run_view(stopped, now_of(stopped))
    assert view.verdict == "passed"
    assert facts(stopped)["blocked by"] == "1 problem blocks completion: tests/test_a.py:3 skip added"
    assert facts(stopped)["guard"] == "1 change of guarded files reported"
    assert "`untildone waive it tests/test_a.py`, then `untildone resume it`" in view.advice
    assert "--max-runs 20" in view.advice
    told = status_json(view, stopped)
    assert (told["checks"]["verdict"], told["in_the_way"]) == ("passed", [facts(stopped)["blocked by"]])


def test_what_could_not_be_committed_is_told_with_its_reason() -> None:
    reason = "not committed, the work is kept as it is: it would contain what looks like a key: a.py:3 (AWS)"
    failed = (ev.LandingFailed(iteration_num=1, reason=reason), replace(GUARDED, findings=()))
    stopped = after(PREPARED, *WORK[:2], *failed, STOPPED, checks=("make",))
    view = run_view(stopped, now_of(stopped))
    assert facts(stopped)["blocked by"].startswith("the work is not committed: it would contain what looks like a key")
    assert (view.verdict, "untildone waive it FILE" in view.advice) == ("passed", True)
    assert (result_json(view)["error"] or "").startswith("the work is not committed: it would contain what looks like")
    assert any("the work is not committed: it would" in line for line in closing_lines(view))


def waived(*events: ev.Event, checks: tuple[str, ...] = ("make",)) -> LoopState:
    waiver = ev.WaiverGiven(by="cli", patterns=("tests/**",))
    return after(PREPARED, *events, STOPPED, waiver, checks=checks)


def test_a_waiver_is_seen_at_once_and_has_the_claim_looked_at_again_without_an_iteration() -> None:
    free = waived(*WORK, GUARDED)
    view = run_view(free, now_of(free))
    assert "in the way" not in facts(free)
    assert view.unproven == "the problem is waived; the work was not checked again yet"
    assert view.advice == "`untildone resume it` checks again, without another iteration."
    driver = ev.ContinuousResumed(pid=1, host="h", version="0", lease=2)
    resumed = fold([ev.Record(seq=free.last_seq + 1, at=now_of(free), event=driver)], free)
    used_up = replace(resumed, policy=replace(resumed.policy, max_runs=1))
    assert decide(used_up, now_of(free)) == Verify(1)


def test_a_waiver_gives_claims_back_where_there_are_no_checks() -> None:
    claims = [event for n in (1, 2) for event in (started(n), completed(n, claim=reported("all", done=True)))]
    free = waived(*claims, replace(GUARDED, iteration_num=2, checks=()), checks=())
    assert (free.claim_due, free.streak) == (True, 2)
    unclaimed = waived(started(1), completed(1), replace(GUARDED, checks=()), checks=())
    assert (unclaimed.claim_due, unclaimed.feedback) == (False, "")


@pytest.mark.parametrize(
    "events",
    [
        (*WORK, replace(GUARDED, checks=(check(passed=False),))),
        (*WORK, replace(GUARDED, findings=(SKIP, replace(SKIP, path="ci.yml")))),
        (*WORK, GUARDED, started(2), completed(2)),
        (*WORK[:2], UNCOMMITTED, GUARDED),
        (*WORK, validation(1, passed=True)),
    ],
)
def test_a_waiver_alone_is_no_reason_to_look_again(events: tuple[ev.Event, ...]) -> None:
    assert not waived(*events).claim_due


def test_a_forge_that_is_away_is_told_until_it_answers() -> None:
    away = ev.ContinuousWaiting(cause="forge", until=9.0, detail="GitHub answers 502")
    seen = on_its_way(PUSHED, away)
    assert landing_text(seen).endswith("comes next; waiting for the forge: GitHub answers 502")
    assert run_view(seen, 0.0, alive=True).phase.endswith("GitHub answers 502")
    assert status_json(run_view(seen, 0.0), seen)["landing"]["held_up"] == "GitHub answers 502"
    for there in (OPENED, ev.ContinuousWaiting(cause="ci", until=9.0, detail="1 of 1 check"), MERGED):
        assert "502" not in landing_text(on_its_way(PUSHED, away, there))


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
        ((PUSHED, OPENED, ev.LandingRejected(cause="ci", detail="red")), "not yet in main, fixed 1 of 3 times"),
        ((PUSHED, OPENED, MERGED), "landed in main as abcdef12"),
        ((PUSHED, OPENED, ev.LandingGaveUp(reason="403: no rights")), "given up: 403: no rights (https://x/7)"),
        ((MERGED, ev.LandingReverted(merged="m", revert="r", base="main", reason="red")),
         "not yet in main, fixed 1 of 3 times"),
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


def test_a_run_that_stopped_names_the_file_of_what_failed() -> None:
    output = "FAILED tests/test_a.py::test_f - assert 0 == 1\n"
    red = check(passed=False, name="tests", log="/logs/1.log", output_tail=output)
    hidden = check(passed=False, name="hidden check 1", hidden=True, log="/logs/2.log", output_tail=output)
    failed = validation(1, passed=False, checks=(red, check(passed=True, log="/logs/3.log"), hidden))
    state = after(PREPARED, *WORK, failed, STOPPED, checks=("make",))
    lines = closing_lines(run_view(state, now_of(state)))
    assert [line for line in lines if "/logs" in line] == [
        "tests failed: tests/test_a.py::test_f: assert 0 == 1; all it printed is in /logs/1.log"
    ]
    assert sum("test_f" in line for line in lines) == 1
    told = status_json(run_view(state, now_of(state)), state)["proof"]["red"]
    assert told == [
        {"check": "tests", "log": "/logs/1.log", "failed": "tests/test_a.py::test_f: assert 0 == 1"},
        {"check": "hidden check 1", "log": None, "failed": None},
    ]
    mended = after(PREPARED, *WORK, failed, *WORK, validation(1, passed=True), STOPPED, checks=("make",))
    assert run_view(mended, now_of(mended)).red == ()


def test_so_does_one_that_was_refused_at_its_start() -> None:
    red = check(passed=False, name="tests", log="/logs/1.log")
    refused = ev.BaselineTaken(commit="5747a47", room="clean", checks=(red,), refused="it fails in a fresh checkout")
    assert after(PREPARED, refused, checks=("make",)).red == (("tests", "/logs/1.log"),)


def test_how_new_tests_did_on_the_old_code_is_always_told() -> None:
    asked = Contract(checks=commands("make"), fail_to_pass=True, guard="off")

    def told(*checks: CheckResult) -> str:
        passed = all(check.passed for check in checks)
        seen = ev.IterationValidation(iteration_num=1, passed=passed, checks=checks, commit="c1", room="clean")
        state = after(started(1), completed(1, claim=done_claim()), *([seen] if checks else []), contract=asked)
        text = dict(standing(state))["fail to pass"]
        assert delivery_json(state)["proof"]["fail_to_pass"] == text
        return text

    make = CheckResult(name="make", command="make", passed=True, room="clean")
    assert told() == told(replace(make, passed=False)) == "not looked at yet: the checks come first"
    assert told(make, fail_to_pass.verdict("no test was added")) == "not shown to fail on the code the run began with"
    assert told(make, fail_to_pass.verdict("")) == "they fail on the code the run began with"
    assert "fail to pass" not in dict(standing(after(checks=("make",))))

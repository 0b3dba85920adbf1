"""One line for each event of proof and arrival."""

import pytest

from core.night_kit import check, validation
from core.run_kit import START, completed, started
from untildone.core import events as ev
from untildone.core.events import Event, Record
from untildone.core.findings import Finding
from untildone.core.lines import event_line
from untildone.core.reviewing import ReviewVerdict

SKIP = Finding(kind="skip_added", path="tests/test_a.py", line=3, text="@skip", blocking=True)
EDITED = Finding(kind="test_edited", path="tests/test_b.py")


def line(event: Event) -> str | None:
    return event_line(Record(seq=1, at=START, event=event))


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (
            validation(2, passed=True, room="tree"),
            "checks passed at c0ffee00 (proof: weaker, because the checks ran in the agent's own tree): pytest -q",
        ),
        (validation(2, passed=True, checks=(check(passed=True, flaky=True),)),
         "checks passed at c0ffee00: pytest -q; flaky: pytest -q"),
        (validation(2, passed=True, findings=(EDITED,)),
         "checks passed at c0ffee00: pytest -q; guarded files changed: 1"),
        (validation(2, passed=False, checks=(check(passed=False, was_green=False),)),
         "checks failed at c0ffee00: pytest -q (exit 1: FAILED test_y, was already failing before the run)"),
        (validation(2, passed=False, checks=(check(passed=False, hidden=True, name="hidden check 1", command="psst"),)),
         "checks failed at c0ffee00: hidden check 1 (failed)"),
        (validation(2, passed=False, checks=(check(passed=False, command="", name="pushed", output_tail="3 commits"),)),
         "checks failed at c0ffee00: pushed (3 commits)"),
        (validation(2, passed=False, checks=(check(passed=True),), findings=(SKIP, EDITED)),
         "guard at c0ffee00: tests/test_a.py:3: skip added"),
        (validation(2, passed=True, checks=(), commit=None), "guard: no problem found"),
        (ev.BaselineTaken(commit="c", room="clean", checks=(check(passed=True), check(passed=False, name="lint"))),
         "before any work: 1 check passed, 1 failed: lint"),
        (ev.BaselineTaken(commit="c", room="clean", refused="`make` passes in /w but fails"),
         "the checks prove nothing here: `make` passes in /w but fails"),
        (ev.WaiverGiven(by="me", patterns=("a", "b/**")), "me lets these change: a, b/**"),
        (ev.WaiverGiven(by="cli", user="ada", patterns=("a",)), "untildone waive (user ada) lets these change: a"),
        (ev.LandingPrepared(branch="untildone/it", base="main", start="c"),
         "working on untildone/it, to be merged into main"),
        (ev.LandingPrepared(branch="main", base="main", start="c"), None),
        (ev.LandingHeld(cause="git_locked", said="x.lock is in the way"), "x.lock is in the way"),
        (ev.LandingHeld(), "work can be committed again"),
        (ev.LandingLeft(commit="c"), None),
        (ev.LandingSnapshot(iteration_num=1, ref="refs/x/1", commit="c"), None),
        (ev.LandingSnapshot(iteration_num=1, ref="refs/x/1", commit="c", reason="crash", files=("a",)),
         "half-done work (1 file) kept as refs/x/1"),
        (ev.LandingBegun(commit="c0ffee0012345678"), "landing c0ffee00"),
        (ev.LandingPushed(commit="c0ffee0012345678", branch="b", remote="origin"), "pushed c0ffee00 to origin/b"),
        (ev.LandingPullOpened(number=7, url="https://x/7", branch="b", base="main"),
         "pull request #7 for main: https://x/7"),
        (ev.LandingWatched(number=7, said="#7 open; checks: 1 pending"), "pull request #7 open; checks: 1 pending"),
        (ev.LandingRejected(cause="ci", detail="long", said="CI is red: unit"),
         "cannot land yet: CI is red: unit; the agent is told"),
        (ev.LandingRejected(cause="conflict", detail="It conflicts with main. Merge it, and claim again."),
         "cannot land yet: It conflicts with main; the agent is told"),
        (ev.LandingMerged(commit="c0ffee0012", base="main", merged="abcdef1234", strategy="squash", number=7),
         "landed: c0ffee00 is in main as abcdef12 (squash, pull request #7)"),
        (ev.LandingMerged(commit="c0ffee0012", base="main", cleanup="403"),
         "landed: c0ffee00 is in main; could not tidy up: 403"),
        (ev.LandingReverted(merged="abcdef1234", revert="fedcba4321", base="main", reason="So.\nCheck failed: make"),
         "main failed its checks with abcdef12, fedcba43 reverts it: the checks fail together with the base: make"),
        (ev.LandingGaveUp(reason="403: no rights"), "not landed: 403: no rights"),
        (ev.Rewound(by="me", iteration_num=3, commit="c", saved="refs/x/before-rewind-1"),
         "me put the tree back to where it was after iteration 3; what was there is kept as refs/x/before-rewind-1"),
        (started(3, review=True), "review of iteration 3 started"),
        (completed(3, verdict=ReviewVerdict(approved=True), duration_seconds=9.0),
         "review of iteration 3 approved (9s, $0.10)"),
        (completed(3, verdict=ReviewVerdict(approved=False, findings="\nno tests\nmore"), cost_usd=None),
         "review of iteration 3 asks for changes (0s, cost unknown): no tests"),
    ],
)  # fmt: skip
def test_what_each_event_says(event: Event, said: str | None) -> None:
    assert line(event) == said


def test_a_hidden_check_is_never_quoted() -> None:
    secret = check(passed=False, hidden=True, name="hidden check 1", command="psst", output_tail="psst")
    for event in (
        validation(1, passed=False, checks=(secret,)),
        validation(1, passed=True, checks=(check(passed=True, hidden=True, name="hidden check 1", command="psst"),)),
        ev.BaselineTaken(commit="c", room="clean", checks=(secret,)),
    ):
        assert "psst" not in (line(event) or "")

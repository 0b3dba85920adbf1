"""What to do about a pull request, for every state it can be in."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from untildone.core.policy import Landing
from untildone.core.pull import (
    LAG,
    SLOWEST,
    Arrived,
    ClosedByHuman,
    Conflict,
    MendCi,
    MendComments,
    MergeNow,
    Moved,
    PullCheck,
    PullComment,
    PullView,
    TimedOut,
    UpdateBranch,
    WaitFor,
    described,
    next_step,
    pause,
)
from untildone.core.state import Arrival

SINCE = 1000.0
LANDING = Landing(land="pr", ci_timeout=600.0, ci_start=100.0, ci_poll=10.0)
ARRIVAL = Arrival(branch="b", base="main", commit="c1", pushed="c1", head="c1", number=7, since=SINCE)
PASSED = PullCheck(name="lint", state="passed")
PENDING = PullCheck(name="test", state="pending")
FAILED = PullCheck(name="build", state="failed")
OLD = PullComment(id="2030-01-01 a", author="rita", body="old")
NEW = PullComment(id="2030-01-02 a", author="rita", body="new")


def view(**changes: Any) -> PullView:
    return PullView(**{"number": 7, "head": "c1", "base": "main", "mergeable": "yes", "checks": (PASSED,), **changes})


EARLY, LATE = SINCE + 1, SINCE + 601

CASES = [
    ("merged", view(state="merged", merged="m"), EARLY, Arrived("m")),
    ("merged by somebody, whatever else is", view(state="merged", checks=(FAILED,)), EARLY, Arrived(None)),
    ("closed", view(state="closed"), EARLY, ClosedByHuman()),
    ("all green", view(), EARLY, MergeNow("c1")),
    ("the base moved on", view(behind=True), EARLY, UpdateBranch()),
    ("behind and pending", view(behind=True, checks=(PENDING,)), EARLY, WaitFor(SINCE + 600, "1 of 1 check: test")),
    ("pending", view(checks=(PASSED, PENDING)), EARLY, WaitFor(SINCE + 600, "1 of 2 checks: test")),
    ("pending too long", view(checks=(PENDING,)), LATE, TimedOut("waited 10m for 1 of 1 check: test")),
    ("failed", view(checks=(PASSED, FAILED)), EARLY, MendCi((FAILED,))),
    ("failed while others run", view(checks=(FAILED, PENDING)), EARLY, WaitFor(SINCE + 600, "1 of 2 checks: test")),
    ("failed, and others never end", view(checks=(FAILED, PENDING)), LATE, MendCi((FAILED,))),
    ("no checks yet", view(checks=()), EARLY, WaitFor(SINCE + 100, "checks to start")),
    ("no checks at all", view(checks=()), SINCE + 100, MergeNow("c1")),
    ("conflict before CI", view(mergeable="no", checks=(PENDING,)), EARLY, Conflict()),
    (
        "not worked out",
        view(mergeable="unknown"),
        EARLY,
        WaitFor(SINCE + 600, "the forge to work out whether it can be merged"),
    ),
    ("review required", view(review="required"), EARLY, WaitFor(SINCE + 600, "a review")),
    ("review never comes", view(review="required"), LATE, TimedOut("waited 10m for a review")),
    ("approved", view(review="approved"), EARLY, MergeNow("c1")),
    (
        "changes requested",
        view(review="changes_requested", comments=(NEW,)),
        EARLY,
        MendComments((NEW,), "changes_requested"),
    ),
    (
        "changes made, not looked at again",
        view(review="changes_requested", comments=(OLD,)),
        EARLY,
        WaitFor(SINCE + 600, "the reviewer who asked for changes to look again"),
    ),
    ("comments", view(comments=(OLD, NEW)), EARLY, MendComments((NEW,), "comments")),
    ("comments dealt with", view(comments=(OLD,)), EARLY, MergeNow("c1")),
    ("not shown yet", view(head="c0"), EARLY, WaitFor(SINCE + LAG, "the forge to show what was pushed")),
    ("somebody pushed", view(head="c2"), SINCE + LAG, Moved("c2")),
]  # fmt: skip


@pytest.mark.parametrize(("seen", "now", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_next_step(seen: PullView, now: float, expected: object) -> None:
    assert next_step(seen, replace(ARRIVAL, seen=OLD.id), LANDING, now) == expected


checks = st.builds(PullCheck, name=st.text(max_size=5), state=st.sampled_from(["pending", "passed", "failed"]))
comments = st.builds(PullComment, id=st.text(max_size=3), author=st.just("a"), body=st.just("b"))
views = st.builds(
    PullView,
    number=st.just(7),
    state=st.sampled_from(["open", "closed", "merged"]),
    head=st.sampled_from(["c1", "c2"]),
    mergeable=st.sampled_from(["yes", "no", "unknown"]),
    behind=st.booleans(),
    checks=st.lists(checks, max_size=4).map(tuple),
    review=st.sampled_from(["none", "required", "approved", "changes_requested"]),
    comments=st.lists(comments, max_size=3).map(tuple),
    merged=st.none() | st.just("m"),
)


@given(views, st.text(max_size=3), st.floats(0, 3000))
def test_every_view_has_an_answer_and_a_merge_is_never_premature(seen: PullView, read: str, now: float) -> None:
    step = next_step(seen, replace(ARRIVAL, seen=read), LANDING, now)
    if isinstance(step, MergeNow):
        assert seen.state == "open", "never twice, and never against a human"
        assert all(check.state == "passed" for check in seen.checks)
        assert seen.checks or now >= SINCE + LANDING.ci_start
        assert seen.review in {"none", "approved"}
        assert (seen.mergeable, seen.behind) == ("yes", False)
        assert step.head == seen.head == ARRIVAL.head, "only what was pushed"
        assert all(comment.id <= read for comment in seen.comments)
    if isinstance(step, WaitFor):
        assert step.until > now, "a wait ends by itself"
    if isinstance(step, MendComments):
        assert step.seen > read
    assert "\n" not in described(seen)


@given(views, st.text(max_size=3))
def test_nobody_waits_for_ever(seen: PullView, read: str) -> None:
    """Whatever a pull request looks like, when all patience is used up something happens."""
    far = SINCE + LANDING.ci_timeout + LANDING.ci_start + LAG
    assert not isinstance(next_step(seen, replace(ARRIVAL, seen=read), LANDING, far), WaitFor)


def test_a_quiet_pull_request_is_looked_at_less_and_less_often() -> None:
    pauses = [pause(LANDING, quiet) for quiet in (0.0, 30.0, 120.0, 240.0, 3600.0)]
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (LANDING.ci_poll, LANDING.ci_poll * SLOWEST)


def test_a_pull_request_in_one_line() -> None:
    seen = view(checks=(PASSED, FAILED, PENDING), review="changes_requested", comments=(NEW,), behind=True)
    assert described(seen) == (
        "#7 open; checks: 1 passed, 1 failed, 1 pending (build, test); review: changes requested; 1 comment; "
        "behind the base"
    )


def test_who_has_no_say_is_told_of_and_changes_nothing() -> None:
    stranger = replace(NEW, stranger=True)
    assert next_step(view(comments=(stranger,)), ARRIVAL, LANDING, EARLY) == MergeNow("c1")
    assert next_step(view(comments=(OLD, stranger)), ARRIVAL, LANDING, EARLY) == MendComments((OLD,), "comments")
    assert "2 comments (1 by people without a say, for you to read)" in described(view(comments=(OLD, stranger)))

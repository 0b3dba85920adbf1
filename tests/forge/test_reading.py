"""From GitHub's answers to what the loop knows."""

from typing import Any

import pytest

from untildone.core.pull import PullCheck
from untildone.errors import ForgeError
from untildone.forge import shapes as gh
from untildone.forge.reading import checks_of, comments_of, review_of, view_of

PULL = {
    "number": 7,
    "state": "open",
    "head": {"ref": "b", "sha": "c1", "repo": None},
    "base": {"ref": "main", "sha": "c0"},
    "unknown_field": {"x": 1},
}


def pull(**changes: Any) -> gh.Pull:
    return gh.read({**PULL, **changes}, gh.Pull, "host")


def review(number: int, state: str, login: str = "rita", body: str = "", **more: Any) -> gh.Review:
    said = {"id": number, "state": state, "user": {"login": login}, "body": body, "submitted_at": f"2030-01-0{number}"}
    return gh.read({**said, "author_association": "MEMBER", **more}, gh.Review, "host")


def comment(number: int, at: str, **more: Any) -> gh.Comment:
    said = {"id": number, "created_at": at, "user": None, "body": f"says {number}", "author_association": "OWNER"}
    return gh.read({**said, **more}, gh.Comment, "host")


@pytest.mark.parametrize(
    ("changes", "state", "mergeable", "behind", "merged"),
    [
        ({"mergeable": True}, "open", "yes", False, None),
        ({"mergeable": False}, "open", "no", False, None),
        ({"mergeable": None, "mergeable_state": "behind"}, "open", "unknown", True, None),
        ({"state": "closed"}, "closed", "unknown", False, None),
        ({"state": "closed", "merged_at": "2030", "merge_commit_sha": "m"}, "merged", "unknown", False, "m"),
        # GitHub shows a trial merge here while a pull request is open: it is not on the base.
        ({"merge_commit_sha": "trial"}, "open", "unknown", False, None),
    ],
)
def test_view(changes: dict[str, Any], state: str, mergeable: str, behind: bool, merged: str | None) -> None:
    view = view_of(pull(**changes))
    assert (view.state, view.mergeable, view.behind, view.merged) == (state, mergeable, behind, merged)


@pytest.mark.parametrize(
    ("status", "conclusion", "state"),
    [
        ("queued", None, "pending"),
        ("in_progress", None, "pending"),
        ("waiting", None, "pending"),
        ("completed", "success", "passed"),
        ("completed", "neutral", "passed"),
        ("completed", "skipped", "passed"),
        ("completed", "failure", "failed"),
        ("completed", "timed_out", "failed"),
        ("completed", "cancelled", "failed"),
        ("completed", "startup_failure", "failed"),
        ("completed", "action_required", "pending"),
        ("completed", "something new", "pending"),
    ],
)
def test_check_runs(status: str, conclusion: str | None, state: str) -> None:
    run = gh.CheckRun(id=5, name="test", status=status, conclusion=conclusion)
    (check,) = checks_of([run], [])
    assert (check.state, check.id) == (state, "run:5")


@pytest.mark.parametrize(
    ("said", "state"), [("success", "passed"), ("pending", "pending"), ("failure", "failed"), ("error", "failed")]
)
def test_commit_statuses(said: str, state: str) -> None:
    assert checks_of([], [gh.Status(context="ci/x", state=said)]) == [
        PullCheck(name="ci/x", state=state, id="status:ci/x")  # type: ignore[arg-type]
    ]


APPROVED, CHANGES = review(1, "APPROVED"), review(2, "CHANGES_REQUESTED")


@pytest.mark.parametrize(
    ("requested", "reviews", "asked", "expected"),
    [
        ([], [], gh.Asked(), "none"),
        ([], [], gh.Asked(decision="REVIEW_REQUIRED"), "required"),
        ([{"login": "rita"}], [], gh.Asked(), "required"),
        ([{"login": "otto"}], [APPROVED], gh.Asked(decision="APPROVED"), "required"),
        ([], [APPROVED], gh.Asked(), "approved"),
        ([], [APPROVED], gh.Asked(decision="APPROVED", requests=gh.Count(1)), "approved"),
        ([], [APPROVED, CHANGES], gh.Asked(), "changes_requested"),
        ([], [CHANGES, review(3, "APPROVED")], gh.Asked(), "approved"),
        ([], [CHANGES, review(3, "COMMENTED", body="and")], gh.Asked(), "changes_requested"),
        ([], [CHANGES, review(3, "DISMISSED")], gh.Asked(), "none"),
        ([], [], gh.Asked(decision="CHANGES_REQUESTED"), "changes_requested"),
        # Somebody was asked, and only wrote comments: that is no approval.
        ([], [review(1, "COMMENTED", body="hm")], gh.Asked(requests=gh.Count(1)), "required"),
        ([], [], gh.Asked(requests=gh.Count(1), removals=gh.Count(1)), "none"),
    ],
)
def test_reviews(requested: list[Any], reviews: list[gh.Review], asked: gh.Asked, expected: str) -> None:
    assert review_of(pull(requested_reviewers=requested), reviews, asked) == expected


def test_comments_are_in_order_of_when_they_could_be_seen() -> None:
    reviews = [review(5, "COMMENTED", body=""), review(6, "CHANGES_REQUESTED")]
    drafted = comment(1, "2030-01-01", path="a.py", original_line=4, pull_request_review_id=5)
    found = comments_of(reviews, [drafted], [comment(2, "2030-01-03")])
    assert [said.body for said in found] == ["says 2", "says 1", "Changes requested, without a word why."]
    assert (found[1].path, found[1].line, found[1].author) == ("a.py", 4, "ghost")


def test_bots_count_only_on_lines() -> None:
    bot = {"login": "ci[bot]", "type": "Bot"}
    on_line = comment(1, "2030-01-01", path="a.py", line=1, user=bot)
    summary = review(3, "COMMENTED", body="All good", user=bot)
    found = comments_of([summary, review(4, "APPROVED", body="LGTM")], [on_line], [comment(2, "2030-01-02", user=bot)])
    assert [said.body for said in found] == ["says 1"]


def test_an_answer_in_an_unknown_form_is_one_line_and_may_pass() -> None:
    with pytest.raises(ForgeError, match="unknown form") as refused:
        gh.read({"number": "x"}, gh.Pull, "host")
    assert not refused.value.lasting


@pytest.mark.parametrize("association", ["NONE", "CONTRIBUTOR", "FIRST_TIMER", "MANNEQUIN", ""])
def test_who_has_no_say_approves_nothing_asks_for_nothing_and_is_not_heard_by_the_agent(association: str) -> None:
    def by_stranger(state: str) -> gh.Review:
        return review(1, state, "eve", "do as I say", author_association=association)

    assert review_of(pull(), [by_stranger("CHANGES_REQUESTED")], gh.Asked()) == "none"
    assert review_of(pull(), [by_stranger("APPROVED")], gh.Asked()) == "none"
    said = comments_of([by_stranger("COMMENTED")], [], [comment(2, "2030", author_association=association)])
    assert [one.stranger for one in said] == [True, True]


@pytest.mark.parametrize("association", ["OWNER", "MEMBER", "COLLABORATOR"])
def test_who_has_a_say_is_heard(association: str) -> None:
    (said,) = comments_of([], [], [comment(2, "2030", author_association=association)])
    assert not said.stranger


def test_a_bot_was_let_in_by_somebody_with_a_say() -> None:
    bot = {"login": "lint[bot]", "type": "Bot"}
    (said,) = comments_of([], [comment(2, "2030", user=bot, author_association="NONE")], [])
    assert not said.stranger


def test_text_that_no_encoding_can_hold_is_an_unknown_form() -> None:
    with pytest.raises(ForgeError, match="unknown form") as told:
        gh.read("\ud800", gh.Pull, "host")
    assert not told.value.lasting
    with pytest.raises(ForgeError, match="unknown form"):
        gh.read({"\ud800": 1, **PULL, "number": "\ud800"}, gh.Pull, "host")

"""From GitHub's answers to what the loop knows: pure."""

from collections.abc import Iterable, Sequence
from typing import Literal

from untildone.core.printable import one_line
from untildone.core.pull import PullCheck, PullComment, PullView
from untildone.forge.shapes import Asked, CheckRun, Comment, Pull, Review, Status

_PASSED = frozenset({"success", "neutral", "skipped"})
# `action_required` waits for a human (a workflow to be approved, a form to be signed): no agent can mend that.
_FAILED = frozenset({"failure", "timed_out", "cancelled", "startup_failure"})
_BOT = "Bot"
_INSIDERS = frozenset({"OWNER", "MEMBER", "COLLABORATOR"})
"""Who may say what happens to a repository. Anybody may write a comment or a review in a public one."""
_URL = 300


def view_of(
    pull: Pull,
    *,
    checks: Sequence[PullCheck] = (),
    review: Literal["none", "required", "approved", "changes_requested"] = "none",
    comments: Sequence[PullComment] = (),
    behind: bool = False,
) -> PullView:
    """A pull request with all that was gathered about it."""
    is_merged = pull.merged_at is not None
    mergeable = {True: "yes", False: "no", None: "unknown"}
    return PullView(
        number=pull.number,
        url=one_line(pull.html_url, _URL),
        state="merged" if is_merged else "open" if pull.state == "open" else "closed",
        head=pull.head.sha,
        base=pull.base.ref,
        mergeable=mergeable[pull.mergeable],  # type: ignore[arg-type] # three keys, three values
        behind=behind or pull.mergeable_state == "behind",
        checks=tuple(checks),
        review=review,
        comments=tuple(comments),
        merged=pull.merge_commit_sha if is_merged else None,
    )


def checks_of(runs: Iterable[CheckRun], statuses: Iterable[Status]) -> list[PullCheck]:
    """Check runs and commit statuses alike."""
    found = [
        PullCheck(name=run.name, state=_state_of_run(run), url=run.html_url or "", id=f"run:{run.id}") for run in runs
    ]
    states: dict[str, Literal["pending", "passed", "failed"]] = {"pending": "pending", "success": "passed"}
    found += [
        PullCheck(
            name=status.context,
            state=states.get(status.state, "failed"),
            url=status.target_url or "",
            id=f"status:{status.context}",
        )
        for status in statuses
    ]
    return found


def _state_of_run(run: CheckRun) -> Literal["pending", "passed", "failed"]:
    if run.status != "completed":
        return "pending"
    return "passed" if run.conclusion in _PASSED else "failed" if run.conclusion in _FAILED else "pending"


def review_of(
    pull: Pull, reviews: Sequence[Review], asked: Asked
) -> Literal["none", "required", "approved", "changes_requested"]:
    """Where the reviews stand. A review that was once asked for must end in an approval."""
    opinions = _opinions(review for review in reviews if _counts(review))
    if asked.decision == "CHANGES_REQUESTED" or "CHANGES_REQUESTED" in opinions:
        return "changes_requested"
    if asked.decision == "REVIEW_REQUIRED" or pull.requested_reviewers or pull.requested_teams:
        return "required"
    if asked.decision == "APPROVED" or "APPROVED" in opinions:
        return "approved"
    return "required" if asked.requests.total > asked.removals.total else "none"


def _opinions(reviews: Iterable[Review]) -> set[str]:
    """The last word of each reviewer; a comment takes no earlier word back, a dismissal does."""
    last = {
        review.user.login if review.user else "": review.state
        for review in sorted(reviews, key=lambda review: (review.submitted_at or "", review.id))
        if review.state in {"APPROVED", "CHANGES_REQUESTED", "DISMISSED"}
    }
    return set(last.values())


def _counts(said: Review | Comment) -> bool:
    """Whether the one who wrote it has a say. A bot has: somebody with a say let it in."""
    return said.author_association in _INSIDERS or (said.user is not None and said.user.type == _BOT)


def comments_of(reviews: Iterable[Review], on_lines: Iterable[Comment], on_all: Iterable[Comment]) -> list[PullComment]:
    """Everything somebody wrote that wants an answer, oldest first.

    Not an approval, and not what bots write about the whole: previews and statistics come anew with every push. What
    a bot writes on a line of the diff counts: that is a review.
    """
    submitted = {review.id: review.submitted_at or "" for review in reviews}
    found = [_of_review(review) for review in reviews if _wants_something(review)]
    for comment in on_lines:
        # It was perhaps written long before the review it belongs to was sent off.
        shown = max(comment.created_at, submitted.get(comment.pull_request_review_id or 0, ""))
        line = comment.line or comment.original_line or 0
        found.append(_written(comment, f"{shown} line {comment.id:020}", line))
    by_people = (comment for comment in on_all if comment.user is None or comment.user.type != _BOT)
    found += [_written(comment, f"{comment.created_at} note {comment.id:020}", 0) for comment in by_people]
    return sorted(found, key=lambda comment: comment.id)


def _wants_something(review: Review) -> bool:
    is_bot = review.user is not None and review.user.type == _BOT
    said = bool((review.body or "").strip()) and not is_bot
    return review.state == "CHANGES_REQUESTED" or (review.state == "COMMENTED" and said)


def _of_review(review: Review) -> PullComment:
    return PullComment(
        id=f"{review.submitted_at or ''} review {review.id:020}",
        author=review.user.login if review.user else "ghost",
        body=(review.body or "").strip() or "Changes requested, without a word why.",
        stranger=not _counts(review),
    )


def _written(comment: Comment, key: str, line: int) -> PullComment:
    author = comment.user.login if comment.user else "ghost"
    return PullComment(
        id=key, author=author, body=comment.body or "", path=comment.path, line=line, stranger=not _counts(comment)
    )

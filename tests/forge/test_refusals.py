"""Every refusal in one line that says what to do."""

from typing import Any

import pytest

from untildone.errors import ForgeError
from untildone.forge.http import Answer
from untildone.forge.refusals import refusal, unmerged


def refused(status: int, message: str = "", **headers: str) -> ForgeError:
    answer = Answer(status, {name.replace("_", "-"): value for name, value in headers.items()}, {"message": message})
    return refusal(answer, doing="merge #7", repo="acme/widget", host="api.github.com", now=1000.0)


CASES: list[tuple[ForgeError, str, bool]] = [
    (refused(401, "Bad credentials"), "renew the token", True),
    (refused(403, "Resource not accessible by integration"), "the token may not do that in acme/widget", True),
    (refused(403, "Upgrade to GitHub Pro or make this repository public"), "the plan of acme/widget", True),
    (refused(403, "Resource protected by organization SAML enforcement."), "single sign-on", True),
    (refused(403, "x", x_github_sso="required; url=https://x"), "single sign-on", True),
    (refused(403, "Repository was archived so is read-only."), "is archived", True),
    (refused(403, "Must have admin rights"), "forbids it: Must have admin rights", True),
    (refused(403, "API rate limit exceeded", x_ratelimit_remaining="0", x_ratelimit_reset="2000"), "rate limit", False),
    (refused(403, "You have exceeded a secondary rate limit"), "secondary rate limit", False),
    (refused(429, "slow down"), "slow down", False),
    (refused(404, "Not Found"), "knows no acme/widget", True),
    (refused(500), "trouble of its own: it answered 500", False),
    (refused(422, "Validation Failed"), "Validation Failed (422)", True),
    (refused(400), "no reason given", True),
]


@pytest.mark.parametrize(("error", "said", "lasting"), CASES, ids=[said for _, said, _ in CASES])
def test_refusal(error: ForgeError, said: str, lasting: bool) -> None:
    assert said in str(error)
    assert error.lasting is lasting
    assert "\n" not in str(error)


def test_a_limit_says_when_to_come_back() -> None:
    assert refused(403, "limit", x_ratelimit_remaining="0", x_ratelimit_reset="2000").retry_at == 2000.0
    assert refused(429, "limit", retry_after="7").retry_at == 1007.0
    assert refused(403, "secondary rate limit").retry_at == 1060.0, "a minute, where nothing is said"


@pytest.mark.parametrize("body", [None, [], "text", {"message": 7}, {"errors": "x"}, {"errors": [None, 3.0, {}]}])
def test_strange_bodies_are_no_trouble(body: Any) -> None:
    assert refusal(Answer(422, {}, body), doing="x", repo="r", host="h", now=0.0).lasting


@pytest.mark.parametrize(
    ("message", "said", "lasting"),
    [
        ("Squash merges are not allowed on this repository.", "--merge-strategy", True),
        ("Changes must be made through the merge queue", "merge queue", True),
        ("Base branch was modified. Review and try the merge again.", "cannot be merged yet", False),
        ('Required status check "test" is expected.', "is expected", False),
    ],
)
def test_why_a_merge_was_refused(message: str, said: str, lasting: bool) -> None:
    error = unmerged(Answer(405, {}, {"message": message}), strategy="squash", number=7)
    assert said in str(error)
    assert error.lasting is lasting

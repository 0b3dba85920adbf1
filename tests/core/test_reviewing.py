"""What a reviewer says: only a clear word at the end approves, and it may do no more than look."""

import pytest

from core.run_kit import spec
from untildone.core.policy import AgentOptions, Review
from untildone.core.reviewing import FINDINGS_CAP, has_verdict, read_verdict, reviewer_options


@pytest.mark.parametrize(
    "text",
    [
        "REVIEW: APPROVE",
        "All is well.\n\nREVIEW: APPROVE\n",
        "**REVIEW: APPROVED**",
        "`REVIEW: APPROVE`.",
        "## REVIEW: APPROVE",
        "REVIEW: CHANGES\nOn a second look it is fine.\nREVIEW: APPROVE\r\n",
        "REVIEW: APPROVE\nA small remark on a name.",
        "```\nREVIEW: CHANGES\n```\nREVIEW: APPROVE",
    ],
)
def test_what_approves(text: str) -> None:
    assert read_verdict(text).approved
    assert has_verdict(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "It looks good to me.",
        "REVIEW: CHANGES",
        "REVIEW: APPROVE\nNo, wait.\nREVIEW: CHANGES",
        "REVIEW: APPROVE or REVIEW: CHANGES",
        "I would say REVIEW: APPROVE",
        "> REVIEW: APPROVE",
        "+REVIEW: APPROVE",
        "- REVIEW: APPROVE",
        "The file says:\n```\nREVIEW: APPROVE\n```\n",
        "REVIEW: APPROVE after the tests are mended",
        "REVIEW: DISAPPROVE",
        "review: approve",
    ],
)
def test_what_does_not(text: str) -> None:
    assert not read_verdict(text).approved


def test_findings_are_the_message_without_its_verdict() -> None:
    verdict = read_verdict("1. a.py:3 divides by zero\n\nREVIEW: CHANGES")
    assert verdict.findings == "1. a.py:3 divides by zero"
    assert read_verdict("x" * 3 * FINDINGS_CAP).findings == "x" * FINDINGS_CAP
    assert read_verdict("half a pair: \ud83d").findings.encode()


@pytest.mark.parametrize(("text", "said"), [("REVIEW: CHANGES", "did not say which"), ("  ", "no verdict")])
def test_a_review_without_findings_still_says_something_to_the_next_one(text: str, said: str) -> None:
    assert said in read_verdict(text).findings


def test_a_reviewer_has_its_own_model_and_agent_and_may_only_look() -> None:
    worker = AgentOptions(
        model="m1", skip_permissions=True, permission_mode="bypassPermissions", allowed_tools=("Bash", "Write"),
        mcp_config=("servers.json",), add_dirs=("/other",),
    )  # fmt: skip
    own = reviewer_options(spec(options=worker, review=Review(when="landing", model="m2", agent="claude_cli")))
    assert (own.model, own.agent, own.skip_permissions, own.permission_mode) == ("m2", "claude_cli", False, "default")
    assert not any(tool.startswith(("Bash", "Edit", "Write")) for tool in own.allowed_tools), "`git diff` can write"
    assert (own.mcp_config, own.add_dirs) == ((), ("/other",))
    same = reviewer_options(spec(options=worker, review=Review(when="landing")))
    assert (same.model, same.agent) == ("m1", "claude_sdk")

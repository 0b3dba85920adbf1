"""A second pair of eyes: what it may do, and what it says."""

import re
from collections.abc import Sequence
from dataclasses import replace

from untildone.core.dataclass import dataclass
from untildone.core.markdown import WRAPPING, fenced, split_lines
from untildone.core.policy import AgentOptions, RunSpec

FINDINGS_CAP = 8000
REVIEWER_WROTE = "files were changed during a review"
_VERDICT = re.compile(r"REVIEW:\s*(?:(APPROVED?)|CHANGES)")

READING_TOOLS = ("Read", "Glob", "Grep")
"""What a reviewer needs besides commands that only read.

Those Claude Code lets pass by itself, and it knows which options make a writer of `git diff`: a grant would not.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewVerdict:
    """Whether the work was approved, and what was found."""

    approved: bool
    findings: str = ""
    """In the reviewer's own words; for the next prompt."""


def read_verdict(final_text: str) -> ReviewVerdict:
    """The last verdict decides, alone on its line and neither quoted nor in a code block: silence is no approval."""
    lines = split_lines(final_text)
    said = _verdicts(lines)
    findings = "\n".join(line for number, line in enumerate(lines) if number not in said).strip()
    approved = bool(said) and said[max(said)]
    if not approved and not findings:
        findings = "The reviewer asked for changes and did not say which." if said else "The reviewer gave no verdict."
    return ReviewVerdict(approved=approved, findings=findings[:FINDINGS_CAP].encode("utf-8", "replace").decode())


def has_verdict(text: str) -> bool:
    """Whether a message says what a review is for."""
    return bool(_verdicts(split_lines(text)))


def _verdicts(lines: Sequence[str]) -> dict[int, bool]:
    """The lines that are a verdict, and whether it approves."""
    shown = fenced(lines, unclosed=False)
    found = ((n, _VERDICT.fullmatch(line.strip(WRAPPING + "#."))) for n, line in enumerate(lines) if not shown[n])
    return {number: bool(match[1]) for number, match in found if match is not None}


def reviewer_options(spec: RunSpec) -> AgentOptions:
    """The worker's options with the reviewer's model and agent, and the rights of one who only looks."""
    return replace(
        spec.options,
        agent=spec.review.agent or spec.options.agent,
        model=spec.review.model or spec.options.model,
        permission_mode="default",
        skip_permissions=False,
        allowed_tools=READING_TOOLS,
        allow_tools=(),
        mcp_config=(),
    )

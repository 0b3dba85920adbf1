"""Words of others in Markdown can do nothing."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from untildone.briefing.safe import cell, fence, span


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "`plain`"),
        ("a `b` c", "``a `b` c``"),
        ("`", "`` ` ``"),
        ("two\nlines", "`two lines`"),
        (" \n ", "(nothing)"),
        ("<b>\x1b[31m", "`<b>`"),
    ],
)
def test_a_span_holds_any_text(text: str, shown: str) -> None:
    assert span(text) == shown


def test_a_bar_does_not_end_a_cell() -> None:
    assert cell("a | b") == "`a \\| b`"


def test_a_fence_is_longer_than_any_inside_and_keeps_the_end() -> None:
    assert fence("```\n<script>\n````") == "`````text\n```\n<script>\n````\n`````"
    assert fence("\n".join("abcdef"), lines=2) == "```text\n… (4 lines before this)\ne\nf\n```"


@given(st.text("`ab <\n\\|", max_size=40))
def test_nothing_breaks_out(text: str) -> None:
    inline = span(text)
    if inline != "(nothing)":
        ticks = re.match("`+", inline)
        assert ticks is not None
        inside = inline[len(ticks[0]) : -len(ticks[0])]
        assert len(ticks[0]) not in {len(run) for run in re.findall("`+", inside)}
        assert "\n" not in inline
    opening, *body, closing = fence(text).split("\n")
    assert opening == f"{closing}text"
    assert not any(line.strip().startswith(closing) for line in body)

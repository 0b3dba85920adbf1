"""Which lines are code."""

import pytest

from untildone.core.markdown import fenced, split_lines


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\n```\nb\n```\nc", "-###-"),
        ("```py\nb\n```", "###"),
        ("~~~\n```\n~~~\nc", "###-"),
        ("````\n```\n````\nc", "###-"),
        ("```\nb\n`````\nc", "###-"),
        ("```\nb\n``` not a close\n```\nc", "####-"),
        ("```inline```\nc", "--"),
        ("   ```\n   b\n   ```", "###"),
        ("``\nb\n``", "---"),
        ("", "-"),
    ],
)
def test_fenced_lines(text: str, expected: str) -> None:
    assert fenced(split_lines(text), unclosed=True) == [mark == "#" for mark in expected]


def test_an_unclosed_fence_hides_the_rest_only_if_told_so() -> None:
    lines = ["a", "```", "b", "c"]
    assert fenced(lines, unclosed=True) == [False, True, True, True]
    assert fenced(lines, unclosed=False) == [False] * 4


def test_lines_end_at_any_line_end_and_at_nothing_else() -> None:
    assert split_lines("a\r\nb\rc\nd\fe\u2028f") == ["a", "b", "c", "d\fe\u2028f"]

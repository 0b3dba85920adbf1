"""Diffs as facts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from untildone.core.diffs import FULL_CHARS, PREVIEW_CHARS, PREVIEW_LINES, change_name, diff_facts, hunk, replaced


def test_only_the_middle_is_told():
    assert replaced("a\nb\nc", "a\nB\nc") == ["-b", "+B"]
    assert replaced("a", "a") == []
    assert replaced("", "a\nb") == ["+a", "+b"]
    assert replaced("a\na", "a") == ["-a"]


@given(st.lists(st.sampled_from("ab"), max_size=8), st.lists(st.sampled_from("ab"), max_size=8))
def test_counts_fit_the_texts(old, new):
    lines = replaced("\n".join(old), "\n".join(new))
    added = sum(line.startswith("+") for line in lines)
    removed = sum(line.startswith("-") for line in lines)
    assert len(old) - removed == len(new) - added


def test_a_hunk_counts_its_lines():
    assert hunk(3, 4, [" a", "-b", "+c", "+d"]) == "@@ -3,2 +4,3 @@\n a\n-b\n+c\n+d"


def test_the_caps():
    exact = diff_facts("x" * FULL_CHARS, lines_added=1, lines_removed=0)
    assert (exact.full_diff_available, len(exact.diff_preview)) == (True, PREVIEW_CHARS)
    over = diff_facts("x" * (FULL_CHARS + 1), lines_added=1, lines_removed=0)
    assert (over.full_diff, over.full_diff_available, over.full_diff_size) == (None, False, FULL_CHARS + 1)
    assert diff_facts("x\n" * 500, lines_added=500, lines_removed=0).diff_preview == "\n".join("x" * PREVIEW_LINES)


def test_a_secret_is_in_neither_part_even_where_it_is_cut():
    key = "gh" + "p_" + "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0eF3hJ6"
    diff = "+" + "x" * (PREVIEW_CHARS - 30) + f"\n+token {key}\n"
    facts = diff_facts(diff, lines_added=2, lines_removed=0)
    assert "ghp" not in facts.diff_preview
    assert "+token [secret: GitHub token]\n" in (facts.full_diff or "")
    assert (facts.full_diff_size, facts.lines_added) == (len(diff), 2)


def one_file(*lines: str, path: str = "a.md") -> str:
    head = f"diff --git a/{path} b/{path}\nindex 1..2 100644\n--- a/{path}\n+++ b/{path}\n@@ -1 +1,2 @@\n"
    return head + "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("one", "two", "same"),
    [
        (one_file("+2026-11-19 17:03:11.123 looked"), one_file("+2026-11-20 08:00:00.9 looked"), True),
        (one_file("+id 4f0a9c77 at 1763571798.25"), one_file("+id 99aa01ce at 1763571811.5"), True),
        (one_file("-v = 0.1", "+v = 0.2"), one_file("-v = 0.2", "+v = 0.3"), True),
        (one_file("-# try 3", "+# try 4"), one_file("-# try  4", "+# try 5"), True),
        (one_file("+x", path="2026-11-19.log"), one_file("+x", path="2026-11-20.log"), True),
        (one_file("+## Chapter 3"), one_file("+## Chapter 4"), False),
        (one_file("+x", path="1.txt"), one_file("+x", path="2.txt"), False),
        (one_file("+12.5, 13.7"), one_file("+12.6, 13.7"), False),
        (one_file("-a"), one_file("-b"), False),
        (one_file("-a", "+b"), one_file("-b", "+a"), False),
        ("diff --git a/x b/x\nindex 1..2\nBinary files", "diff --git a/x b/x\nindex 2..3\nBinary files", False),
        (one_file("+x") + one_file("+y", path="b"), one_file("+x") + one_file("+z", path="b"), False),
    ],
)
def test_a_change_has_the_name_of_what_it_adds_but_for_times_and_ids(one: str, two: str, same: bool) -> None:
    assert (change_name(one) == change_name(two)) is same

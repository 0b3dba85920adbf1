"""Diffs as facts."""

from hypothesis import given
from hypothesis import strategies as st

from untildone.core.diffs import FULL_CHARS, PREVIEW_CHARS, PREVIEW_LINES, diff_facts, hunk, replaced


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

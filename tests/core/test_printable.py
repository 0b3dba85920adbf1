"""Hostile text on a terminal."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from untildone.core.printable import columns, cut, one_line, printable

ESC = "\x1b"


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("plain", "plain"),
        (f"{ESC}[31mred{ESC}[0m", "red"),
        (f"{ESC}[2J{ESC}[1;1Hcleared", "cleared"),
        ("\x9b31mred", "red"),
        (f"{ESC}]0;new title\x07after", "after"),
        (f"{ESC}]8;;http://evil/{ESC}\\link{ESC}]8;;{ESC}\\", "link"),
        (f"{ESC}Pq#0;2;0{ESC}\\sixel", "sixel"),
        (f"{ESC}]0;never closed, so nothing may be hidden", "]0;never closed, so nothing may be hidden"),
        (f"{ESC}c{ESC}(0reset", "reset"),
        (f"broken {ESC}[12", "broken [12"),
        ("bell\x07 back\x08\x08 null\0 del\x7f", "bell back null del"),
        ("user\u202etxt.exe", "usertxt.exe"),
        ("zero\u200bwidth\u2060\ufeff\u00ad", "zerowidth"),
        ("tag\U000e0041\U000e0042", "tag"),
        ("a\tb", "a    b"),
        ("half \ud800 pair", "half \ufffd pair"),
        ("äöü 漢字 ✔", "äöü 漢字 ✔"),
        ("a" + "\u0301" * 50, "a" + "\u0301" * 3),
        ("two\r\nlines\rthree\u2028four", "two lines three four"),
    ],
)
def test_what_is_dangerous_is_gone_and_the_rest_stays(hostile: str, shown: str) -> None:
    assert printable(hostile) == shown


def test_lines_are_kept_only_when_asked_for() -> None:
    assert printable("a\r\nb\x0bc", lines=True) == "a\nb\nc"
    assert one_line("  a \n\n b\tc ") == "a b c"


def test_text_is_cut_by_columns_not_characters() -> None:
    assert cut("漢字漢字", 5) == "漢字…"
    assert columns("漢字a") == 5
    assert one_line("abcdef", 4) == "abc…"
    assert printable("abcdef\nxy", width=4, lines=True) == "abc…\nxy"
    assert one_line("abc", 0) == ""


@given(st.text(st.characters(), max_size=200) | st.text("\x1b[]0m;\x07\\\x9b\x9dPab\n\u202e", max_size=60))
def test_nothing_a_terminal_obeys_ever_comes_through(text: str) -> None:
    for char in printable(text, lines=True):
        assert char == "\n" or unicodedata.category(char) not in {"Cc", "Cf", "Cs"}
    assert "\n" not in printable(text)


@given(st.text(max_size=100), st.integers(0, 40))
def test_a_line_is_never_wider_than_asked(text: str, width: int) -> None:
    assert columns(one_line(text, width)) <= width


@pytest.mark.parametrize("piece", ["\x1b]", "\x9d", "\x1b[", "\x1b[0", "\u0301"])
def test_hostile_repetition_costs_time_in_proportion(piece: str) -> None:
    """Squared, this input would take minutes."""
    assert len(printable(piece * 200_000)) <= 600_000

"""Hostile text: readable, bounded, never anything but text."""

from hypothesis import given
from hypothesis import strategies as st

from untildone.server.pages.texts import diff_lines, piece_of, visible

TURNING = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c"


def test_controls_stand_as_symbols_and_escape_codes_are_gone() -> None:
    assert visible("a\x07b\x00c\x7f \x1b[31mred\x1b[0m\tx\r\ny") == "a␇b␀c␡ red    x\ny"


def test_characters_that_turn_text_around_are_named() -> None:
    assert visible("safe\u202egnp.exe") == "safe⟨U+202E⟩gnp.exe"


@given(st.text())
def test_nothing_invisible_is_left(text: str) -> None:
    shown = visible(text)
    assert not any(char in TURNING or (ord(char) < 32 and char != "\n") or ord(char) == 127 for char in shown)


@given(st.text(max_size=300), st.integers(1, 50))
def test_pieces_together_are_the_whole(text: str, size: int) -> None:
    start, parts = 0, []
    while True:
        piece = piece_of(text, start, size)
        parts.append(text[piece.start : piece.next])
        if piece.next is None:
            break
        start = piece.next
    assert ("".join(parts), piece.length) == (text, len(text))


def test_a_piece_beyond_the_end_is_empty() -> None:
    assert piece_of("abc", 99).text == ""


def test_diff_lines_are_told_apart_and_cut() -> None:
    diff = f"diff --git a b\n--- a\n+++ b\n@@ -1 +1 @@\n-old\n+new{'x' * 9000}\n same\n" + "+more\n" * 50
    lines = diff_lines(diff, most=8)
    assert [line.tone for line in lines] == ["file", "file", "file", "hunk", "del", "add", "", "add"]
    assert len(lines[5].text) < 2100

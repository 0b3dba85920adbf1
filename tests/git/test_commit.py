import pytest
from hypothesis import given
from hypothesis import strategies as st

from untildone.git.commit import clean_message


@pytest.mark.parametrize(
    ("given_message", "cleaned"),
    [
        ("Fix it", "Fix it\n"),
        ("Fix it\nbecause", "Fix it\n\nbecause\n"),
        ("  Fix \x1b[31mit\x07\r\n\r\n why\n\n\n", "Fix it\n\nwhy\n"),
        ("safe\u202egnp.exe", "safegnp.exe\n"),
        ("", "Iteration 3\n"),
        ("\x00\x01\nbody", "Iteration 3\n\nbody\n"),
        ("größer 🎉", "größer 🎉\n"),
    ],
)
def test_message(given_message, cleaned):
    assert clean_message(given_message, otherwise="Iteration 3") == cleaned


def test_a_long_first_line_is_cut_at_a_word_and_kept_whole_in_the_body():
    long = "word " * 30
    first, blank, body = clean_message(long, otherwise="x").split("\n", 2)
    assert len(first) <= 72
    assert first.endswith("word…")
    assert blank == ""
    assert body.strip() == long.strip()


@given(st.text())
def test_any_text_gives_a_short_clean_first_line(message):
    first, _, rest = clean_message(message, otherwise="x").partition("\n")
    assert first.strip()
    assert len(first) <= 72
    assert "\x1b" not in first + rest
    assert not rest or rest.startswith("\n")

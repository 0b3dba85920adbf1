"""Wherever something is read, it is known where it stood."""

import json
from html import escape
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from untildone.uplink.reading import occurrences, unescaped, unwrapped, without

TEXT = st.text(alphabet="ab1\\\"'/%&;\nu0n2541ü", max_size=30)


@given(before=TEXT, after=TEXT)
def test_what_stood_in_the_middle_is_found_there(before: str, after: str) -> None:
    text = f"{before} <secret> {after}"
    reading = unwrapped(text)
    (place,) = occurrences(reading.text, "secret")
    assert text[slice(*reading.stood(*place))] == "secret"


@pytest.mark.parametrize("wrapping", [str, json.dumps, lambda s: json.dumps(json.dumps(s)), quote, escape])
@pytest.mark.parametrize("secret", ['a"b/c\\d', "two\nlines\tand", "ü&<%41>", "50%25 of 'it'", "\\\\\\"])
def test_a_secret_reads_the_same_however_it_is_wrapped(secret: str, wrapping: object) -> None:
    assert unwrapped(secret).text in unwrapped(wrapping(secret)).text  # type: ignore[operator]


def test_a_text_inside_a_text_says_what_it_says() -> None:
    text = json.dumps(json.dumps("one\ntwo ü"))
    reading = unescaped(text)
    assert "one\ntwo ü" in reading.text
    (place,) = occurrences(reading.text, "ü")
    assert text[slice(*reading.stood(*place))] == "\\\\u00fc"


def test_places_that_overlap_become_one() -> None:
    assert without("abcdefgh", [(4, 6, "X"), (1, 3, "Y"), (1, 5, "Z")]) == "aZgh"
    assert without("abc", []) == "abc"

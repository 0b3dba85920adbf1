"""Patterns of the user's hide what they match, and cannot be made to take forever."""

from itertools import count

import pytest

from untildone.errors import ConfigError
from untildone.uplink.patterns import NOT_LOOKED_THROUGH, PIECE, Patterns


@pytest.mark.parametrize(
    "pattern", ["(", "x*", "[z-a]", r"(a+)+b", r"(?:a|aa)+b", r"(\w*\d*)*x", r".*.*.*x", "(?>a+)+b"]
)
def test_a_pattern_that_cannot_work_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigError, match="masked"):
        Patterns([pattern])


@pytest.mark.parametrize(
    ("pattern", "text", "hidden"),
    [
        (r"ACME-\d{4}", "see ACME-2041.", "see [secret]."),
        (r"(?i)acme-\w+", "ACME-x and acme-y", "[secret] and [secret]"),
        (r"[\w.]+@acme\.\w+", "to ann.b@acme.test now", "to [secret] now"),
        (r"(?:foo|bar|baz)-\d{1,9}", "bar-12", "[secret]"),
        (r"(?<=id=)\w+", "id=42", "id=[secret]"),
        (r"^x\d", "x1 x2", "[secret] x2"),
        (r"(?:[0-9a-f]{4}-){3}", "abcd-abcd-abcd-!", "[secret]!"),
    ],
)
def test_what_they_match_is_hidden(pattern: str, text: str, hidden: str) -> None:
    assert Patterns([pattern]).hidden(text) == hidden


@pytest.mark.parametrize("place", [0, PIECE // 2 - 5, PIECE // 2, PIECE - 5, PIECE, 3 * PIECE + 1])
def test_wherever_in_a_long_text(place: int) -> None:
    text = "." * place + "ACME-2041" + "." * 2000
    assert Patterns([r"ACME-\d+"]).hidden(text) == text.replace("ACME-2041", "[secret]")


def test_what_was_not_looked_through_in_time_is_hidden() -> None:
    told = Patterns([r"\d+x"], now=map(float, count()).__next__).hidden("a" * 100 * PIECE)
    assert told.endswith(NOT_LOOKED_THROUGH)
    assert len(told) < 5 * PIECE

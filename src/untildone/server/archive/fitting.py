"""What comes from outside, as both databases can hold it."""

import math

_MOST = 2**63 - 1


def text_of(value: str) -> str:
    """PostgreSQL holds no NUL, and neither database holds half a surrogate pair."""
    if "\0" in value:
        value = value.replace("\0", "\ufffd")
    if value.isascii():
        return value
    try:
        value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-8", "replace").decode()
    return value


def number_of(value: float) -> float:
    """SQLite takes what is no number for nothing at all."""
    return value if math.isfinite(value) else 0.0


def whole_of(value: int) -> int:
    """Both count in 64 bits."""
    return max(-_MOST, min(value, _MOST))


def pattern_of(wanted: str) -> str:
    """A LIKE pattern (its escape is a backslash) for texts that contain this."""
    plain = text_of(wanted)
    for special in ("\\", "%", "_"):
        plain = plain.replace(special, "\\" + special)
    return f"%{plain}%"

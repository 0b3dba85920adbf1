"""What of a stream is small and sane enough to be kept: bounded fields, and fingerprints instead of inputs."""

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

_UNSHOWN_FIELDS = frozenset({"type", "subtype", "uuid", "session_id"})
_FIELD_CAP = 1000

_encode_sorted = msgspec.json.Encoder(order="deterministic", enc_hook=str).encode


def fingerprint(name: str, given: Any) -> str:
    """A short name for a tool call: the same call has the same."""
    try:
        canonical = _encode_sorted(given)
    except (ValueError, TypeError, OverflowError, RecursionError):  # numbers or nesting no encoder takes
        canonical = b"?"
    return hashlib.sha256(name.encode() + b"\0" + canonical).hexdigest()[:12]


def bounded(data: Mapping[str, Any]) -> dict[str, Any]:
    """Keep what can be shown and stored: short texts, sane numbers, small structures."""
    return {
        key[:100]: kept
        for key, value in data.items()
        if key not in _UNSHOWN_FIELDS and (kept := _kept(value)) is not None
    }


def _kept(value: Any) -> Any:
    if isinstance(value, str):
        return value[:_FIELD_CAP]
    try:
        return value if len(_encode_sorted(value)) <= _FIELD_CAP else None
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None

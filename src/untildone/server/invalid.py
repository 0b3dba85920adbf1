"""What is wrong with a request, in words that say what to send instead. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

_PLACES = frozenset({"body", "query", "path", "header"})
_KINDS = {
    "string": "a text", "int": "a whole number", "float": "a number", "bool": "true or false", "list": "a list",
    "dict": "an object", "model": "an object", "model_attributes": "an object",
}  # fmt: skip
_SAID = {
    "missing": "is missing",
    "extra_forbidden": "there is no such field here",
    "json_invalid": "this is not JSON",
    "finite_number": "must be a number that ends",
    "int_from_float": "must be a whole number",
    "int_parsing": "must be a whole number",
    "float_parsing": "must be a number",
    "bool_parsing": "must be true or false",
    "literal_error": "must be {expected}",
    "enum": "must be {expected}",
    "union_tag_invalid": "must be one of {expected_tags}, not {tag}",
    "union_tag_not_found": "{discriminator} is missing",
    "string_too_long": "must not be longer than {max_length} characters",
    "string_too_short": "must not be shorter than {min_length} characters",
    "string_pattern_mismatch": "has a character that must not be there",
    "too_long": "must not have more than {max_length} entries",
    "too_short": "must have at least {min_length}",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
}


def what_is_wrong(errors: Sequence[Mapping[str, Any]]) -> str:
    """One line about the first thing that is wrong, and where it is."""
    first = errors[0]
    kind, context = str(first.get("type", "")), first.get("ctx") or {}
    parts = [str(part) for part in first.get("loc", ()) if part not in _PLACES]
    where = "" if kind in {"json_invalid", "union_tag_not_found"} else ".".join(parts)
    if kind == "union_tag_invalid":
        where = str(context.get("discriminator", "")).strip("'")
    said = _said(kind, {name: str(value) for name, value in context.items()}, parts)
    return f"{where}: {said}" if where else said


def _said(kind: str, context: Mapping[str, str], parts: Sequence[str]) -> str:
    if kind == "missing" and not parts:
        return "there is no body"
    if kind == "string_too_short" and context.get("min_length") == "1":
        return "must not be empty"
    if kind in _SAID:
        return _SAID[kind].format_map(context)
    for ending in ("_type", "_parsing"):
        if kind.removesuffix(ending) in _KINDS and kind.endswith(ending):
            must = f"must be {_KINDS[kind.removesuffix(ending)]}"
            return must if parts else f"the body {must}"
    return "is not as it should be"

"""JSON without the time `import json` takes: its C parts alone, or the package where those are missing."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    _quoted: Callable[[str], str]
    _make_scanner: Callable[[object], Callable[[str, int], tuple[Any, int]]] | None
else:
    try:
        from _json import encode_basestring_ascii as _quoted
        from _json import make_scanner as _make_scanner
    except ImportError:  # another Python than CPython
        _make_scanner = None

_SPACE = " \t\n\r"
_DEEPEST = 200


class _Context:
    """What the scanner wants to know."""

    strict = False
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float

    def __init__(self) -> None:
        self.memo: dict[str, str] = {}


def parse(text: str) -> "Any":
    """The value of a JSON text; ValueError for anything else."""
    if _make_scanner is None:
        import json

        return json.loads(text)
    start = len(text) - len(text.lstrip(_SPACE))
    try:
        value, end = _make_scanner(_Context())(text, start)
    except (StopIteration, RecursionError, SystemError) as trouble:
        # Without the package `json` the scanner of some versions finds no error to raise, and Python says so.
        raise ValueError("no JSON") from trouble
    if text[end:].strip(_SPACE):
        raise ValueError("more than one JSON value")
    return value


def render(value: object, depth: int = 0) -> str:
    """A value of strings, numbers, booleans, None, lists and dictionaries, as JSON on one line."""
    if _make_scanner is None:
        import json

        return json.dumps(value)
    if isinstance(value, str):
        return _quoted(value)
    if value is None or value is True or value is False:
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int | float):
        return repr(value) if value - value == 0 else "null"
    if depth > _DEEPEST:
        raise ValueError("too deep")
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_quoted(str(k))}: {render(v, depth + 1)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(render(item, depth + 1) for item in value) + "]"
    raise ValueError(f"no JSON for {type(value).__name__}")

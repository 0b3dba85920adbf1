"""File names as git writes them where a line ends them: quoted and escaped when they hold anything odd."""

import re

_ESCAPE = re.compile(rb'\\([abtnvfr"\\]|[0-7]{3})')
_ESCAPES = {b"a": b"\a", b"b": b"\b", b"t": b"\t", b"n": b"\n", b"v": b"\v", b"f": b"\f", b"r": b"\r"}


def unquoted(name: bytes) -> bytes:
    """The name itself."""
    return _ESCAPE.sub(_unescaped, name[1:-1]) if name.startswith(b'"') else name


def _unescaped(match: re.Match[bytes]) -> bytes:
    code = match[1]
    return bytes([int(code, 8) & 0xFF]) if code.isdigit() else _ESCAPES.get(code, code)

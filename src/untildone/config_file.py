"""Reads a settings file: each value as it was written, and the line it was written in."""

import difflib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from untildone.core.dataclass import dataclass
from untildone.core.printable import one_line
from untildone.core.settings import BY_NAME
from untildone.core.settings_delivery import CHECKING
from untildone.errors import ConfigError

CONTRACT = "contract"
"""The table that holds what must hold before work counts as done."""

_LARGEST = 4 << 20
"""Bytes of a settings file; a `pyproject.toml` may hold much else."""
_BITS = 63
OWN_FILE = "config.toml"
HOOK = "hook"
"""The table of what agents may run inside Claude Code; a hook reads it, and only from the user's own file."""

_CONTRACT_KEYS: Mapping[str, str] = {setting.name: setting.name for setting in CHECKING} | {"timeout": "check_timeout"}
_HEADER = re.compile(r"\s*\[(?P<list>\[)?\s*(?P<name>[^\[\]]+?)\s*\]")
_KEY = re.compile(r"""\s*["']?(?P<key>[\w-]+)["']?\s*[.=]""")


@dataclass(frozen=True, slots=True)
class Given:
    """A value as it was given somewhere, before it is parsed."""

    raw: object
    origin: str
    places: tuple[str, ...] = ()
    """Where each item of a list was given, if they have lines of their own."""


def from_file(path: Path, content: bytes | None = None) -> dict[str, Given]:
    """Every setting in a file, or in what was read from it. ConfigError names file and line of what is no setting."""
    text = _text(path, read(path) if content is None else content)
    table, prefix = _table(text, path)
    page = _Page(path, text, prefix)
    given: dict[str, Given] = {}
    for key, raw in table.items():
        if key == HOOK:
            _own_only(page, raw)
        elif key != CONTRACT:
            given[_known(key, page)] = _given(raw, page.place(key))
    for key, value in _contract(table, page).items():
        if key in given:
            raise ConfigError(
                f"{value.origin}: {key} is set twice: at the top ({given[key].origin}) and in [{CONTRACT}]"
            )
        given[key] = value
    return given


def read(path: Path) -> bytes:
    """The bytes of a settings file."""
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST + 1)
    except OSError as gone:
        raise ConfigError(f"{path} cannot be read: {gone.strerror}") from gone
    if len(content) > _LARGEST:
        raise ConfigError(f"{path} is too large to be a settings file")
    return content


class _Page:
    """Knows in which line of a file something is written; TOML's own reader does not tell."""

    def __init__(self, path: Path, text: str, prefix: str) -> None:
        self.path = path
        self._prefix = prefix
        self._keys: dict[tuple[str, str], int] = {}
        self._items: dict[str, list[int]] = {}
        table = ""
        for number, line in enumerate(text.splitlines(), 1):
            if header := _HEADER.match(line):
                table = re.sub(r"""["'\s]""", "", header["name"])
                parent, _, name = table.rpartition(".")
                self._keys.setdefault((parent, name), number)
                if header["list"]:
                    self._items.setdefault(table, []).append(number)
            elif key := _KEY.match(line):
                self._keys.setdefault((table, key["key"]), number)

    def place(self, key: str, *tables: str) -> str:
        """`untildone.toml:7`: where a key of a table is set, or at least that table."""
        for inner in (tables, ()):
            line = self._keys.get((self._below(*inner), key))
            if line is not None:
                return f"{self.path.name}:{line}"
        return self.place(tables[-1], *tables[:-1]) if tables else f"{self.path.name}:1"

    def items(self, *tables: str) -> tuple[str, ...]:
        """Where each `[[entry]]` of a list of tables begins."""
        return tuple(f"{self.path.name}:{line}" for line in self._items.get(self._below(*tables), ()))

    def _below(self, *tables: str) -> str:
        return ".".join(filter(None, (self._prefix, *tables)))


def _text(path: Path, content: bytes) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as broken:
        raise ConfigError(f"{path} is not UTF-8 text (byte {broken.start}): save it as UTF-8") from broken


def _table(text: str, path: Path) -> tuple[dict[str, Any], str]:
    """The settings, and the name of the table they are in."""
    import tomllib

    try:
        table: Any = tomllib.loads(text)
    except ValueError as broken:  # also a number with more digits than Python reads
        raise ConfigError(f"{path} is not valid TOML: {one_line(str(broken))}") from broken
    except RecursionError as broken:
        raise ConfigError(f"{path} is nested too deeply to be a settings file") from broken
    if path.name != "pyproject.toml":
        return table, ""
    for name in ("tool", "untildone"):
        table = table.get(name, {})
        if not isinstance(table, dict):
            raise ConfigError(f"{path}: tool.untildone must be a table")
    return table, "tool.untildone"


def _contract(table: Mapping[str, Any], page: _Page) -> dict[str, Given]:
    contract = table.get(CONTRACT, {})
    if not isinstance(contract, dict):
        raise ConfigError(
            f"{page.place(CONTRACT)}: {CONTRACT} must be a table: write [{CONTRACT}] on a line of its own"
        )
    given: dict[str, Given] = {}
    for key, raw in contract.items():
        place = page.place(key, CONTRACT)
        if key not in _CONTRACT_KEYS:
            near = difflib.get_close_matches(key.replace("-", "_").lower(), _CONTRACT_KEYS, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(_CONTRACT_KEYS)}"
            raise ConfigError(f"{place}: unknown key {key!r} in [{CONTRACT}]: {hint}")
        name = _CONTRACT_KEYS[key]
        if name in given:
            raise ConfigError(f"{place}: {name} is set twice in [{CONTRACT}]: keep one of them")
        given[name] = _given(raw, place, page.items(CONTRACT, key))
    return given


def _given(raw: object, place: str, places: tuple[str, ...] = ()) -> Given:
    if _has_giant(raw):
        raise ConfigError(f"{place}: a whole number there has too many digits")
    return Given(raw, place, places)


def _has_giant(raw: object) -> bool:
    """Whether there is a number that is longer than TOML allows: Python cannot even print some of them."""
    if isinstance(raw, list | dict):
        return any(map(_has_giant, raw.values() if isinstance(raw, dict) else raw))
    return isinstance(raw, int) and raw.bit_length() > _BITS


def _own_only(page: _Page, raw: object) -> None:
    """A repository does not say what agents may run."""
    if page.path.name != OWN_FILE:
        raise ConfigError(f"{page.place(HOOK)}: [{HOOK}] belongs in your own settings file, not in a project's")
    table = raw if isinstance(raw, dict) else {"": ()}
    for key, patterns in table.items():
        is_list = isinstance(patterns, list) and all(isinstance(pattern, str) for pattern in patterns)
        if key not in {"allow", "deny"} or not is_list:
            raise ConfigError(f"{page.place(key, HOOK)}: [{HOOK}] has two lists of text: allow and deny")


def _known(key: str, page: _Page) -> str:
    setting = BY_NAME.get(key)
    if setting is not None and setting.in_files:
        return key
    where = f"{page.path}:{page.place(key).rpartition(':')[2]}"
    if setting is not None:
        raise ConfigError(f"{where}: {key} cannot be set in a file: use {setting.flags[-1]} or {setting.env[-1]}")
    near = difflib.get_close_matches(key.replace("-", "_").lower(), BY_NAME, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else "`untildone config` lists all of them"
    raise ConfigError(f"{where}: unknown setting {key!r}: {hint}")

"""How people write down checks: as a command, or as a table with a name and more. Pure functions to CheckSpecs."""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import count
from typing import Any

from untildone.core import units
from untildone.core.contract import CONDITIONS, CheckSpec, Kind, commands

KEYS = ("name", "run", "timeout", "folder", "hidden")
_ANONYMOUS = "hidden check "


class BadCheck(ValueError):
    """What is wrong with one check of several; `at` is its place among them."""

    def __init__(self, at: int, what: str) -> None:
        super().__init__(what)
        self.at = at


def checks(raw: object) -> tuple[CheckSpec, ...]:
    """Commands, one a line or in a list; in a list also tables with `run` and, if wanted, more."""
    if not isinstance(raw, list | tuple):
        return _named_apart(commands(*units.lines(raw)))
    return _named_apart(_check(at, item) for at, item in enumerate(raw))


def hidden_checks(raw: object) -> tuple[CheckSpec, ...]:
    """Commands whose text and output the agent never sees."""
    return commands(*dict.fromkeys(units.lines(raw)), hidden=True)


def conditions(raw: object) -> tuple[str, ...]:
    """Conditions that the loop can see by itself, each once."""
    named = units.tools(raw)
    unknown = next((name for name in named if name not in CONDITIONS), None)
    if unknown is not None or not named:
        raise ValueError(f"must be among {', '.join(CONDITIONS)}, not {unknown or raw!r}")
    return tuple(dict.fromkeys(named))


def together(
    plain: Iterable[CheckSpec], hidden: Iterable[CheckSpec], required: Iterable[Kind | str]
) -> tuple[CheckSpec, ...]:
    """All the checks of a contract in one row; hidden ones are numbered through, so that no two share a name."""
    numbers = count(1)
    named = [
        replace(check, name=f"{_ANONYMOUS}{next(numbers)}") if check.name.startswith(_ANONYMOUS) else check
        for check in (*plain, *hidden)
    ]
    seen = [CheckSpec(name=name, kind=name) for name in CONDITIONS if name in set(required)]
    return _named_apart([*named, *seen])


def exchanged(
    old: Iterable[CheckSpec],
    plain: Iterable[CheckSpec] | None,
    hidden: Iterable[CheckSpec] | None,
    required: Iterable[Kind | str] | None,
) -> tuple[CheckSpec, ...]:
    """The checks of a contract with what is given anew in the place of its like; None: those stay."""
    kept = tuple(old)
    ran = [check for check in kept if check.kind == "command"]
    return together(
        [check for check in ran if not check.hidden] if plain is None else plain,
        [check for check in ran if check.hidden] if hidden is None else hidden,
        [check.kind for check in kept if check.kind != "command"] if required is None else required,
    )


def _check(at: int, item: object) -> CheckSpec:
    if isinstance(item, CheckSpec):
        return item
    try:
        return _from_table(item, at + 1) if isinstance(item, Mapping) else commands(units.name_text(item))[0]
    except ValueError as wrong:
        raise BadCheck(at, f"number {at + 1}: {wrong}" if isinstance(item, Mapping) else str(wrong)) from wrong


def _from_table(table: Mapping[str, Any], number: int) -> CheckSpec:
    unknown = next((key for key in table if key not in KEYS), None)
    if unknown is not None:
        near = difflib.get_close_matches(unknown, KEYS, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"a check has {', '.join(KEYS)}"
        raise ValueError(f"unknown key {unknown!r}: {hint}")
    if "run" not in table:
        raise ValueError("has no `run`: say which command must pass")
    command = _part("run", table["run"], units.name_text)
    hidden = _part("hidden", table.get("hidden", False), units.switch)
    name = _part("name", table.get("name", f"{_ANONYMOUS}{number}" if hidden else command), units.name_text)
    return CheckSpec(
        name=name,
        command=command,
        timeout=_part("timeout", table["timeout"], units.timeout) if "timeout" in table else None,
        folder=_part("folder", table.get("folder", ""), inside),
        hidden=hidden,
    )


def _part(key: str, raw: object, parse: Any) -> Any:
    try:
        return parse(raw)
    except ValueError as wrong:
        raise ValueError(f"{key} {wrong}") from wrong


def inside(raw: object) -> str:
    """A path below the folder it is meant for; empty for that folder itself."""
    written = units.text(raw)
    parts = [part for part in written.split("/") if part not in {"", "."}]
    if written.startswith(("/", "~")) or ".." in parts:
        raise ValueError(f"must be inside of the project, not {written!r}")
    return "/".join(parts)


def below(raw: object) -> str:
    """A path below the folder it is meant for, and never that folder itself."""
    path = inside(raw)
    if not path:
        raise ValueError(f"must name something inside of the project, not {raw!r}")
    return path


def _named_apart(given: Iterable[CheckSpec]) -> tuple[CheckSpec, ...]:
    """Each check once. Verdicts are kept by name, so that two different ones must not share it."""
    found: dict[str, CheckSpec] = {}
    for at, check in enumerate(given):
        if found.setdefault(check.name, check) != check:
            raise BadCheck(at, f"has two different checks called {check.name!r}: give each a name of its own")
    return tuple(found.values())

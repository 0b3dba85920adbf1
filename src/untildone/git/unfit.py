"""Files that must not go into a commit as they are: too large for any forge, or in need of a filter that is missing."""

import os
from collections.abc import Mapping

from untildone.core.dataclass import dataclass
from untildone.git.filters import is_pointer
from untildone.git.repository import Repository
from untildone.git.status import in_one_line, readable, size_in

LARGE = 50 << 20
"""Forges warn about files from this size on."""
TOO_LARGE = 100 << 20
"""Forges refuse a push with such a file in it, and once it is committed only rewriting history helps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfit:
    """What is held back from a commit, and what to say about it."""

    paths: frozenset[bytes] = frozenset()
    reason: str = ""
    """Why they are held back and what to do: the agent may be able to mend it."""
    warning: str = ""
    """About what is committed all the same."""


async def find_unfit(repository: Repository, stamps: Mapping[bytes, str]) -> Unfit:
    """Judge the files that differ; git is asked only where one of them is large or a filter is missing."""
    files = [path for path in stamps if not path.endswith(b"/") and stamps[path] != "gone"]
    large = {path for path in files if size_in(stamps[path]) >= LARGE}
    missing = repository.missing_filters
    if not large and not missing:
        return Unfit()
    filters = await _filters(repository, files if missing else sorted(large))
    top = os.fsencode(repository.top)
    raw = {path for path, name in filters.items() if name in missing and not is_pointer(top + b"/" + path)}
    # A working filter puts something small into the commit instead.
    whole = large - {path for path, name in filters.items() if name not in missing and name}
    too_large = {path for path in whole if size_in(stamps[path]) >= TOO_LARGE} - raw
    return Unfit(
        paths=frozenset(raw | too_large),
        reason="; ".join(filter(None, (_too_large(too_large, stamps), _unfiltered(raw, filters)))),
        warning=_large(whole - raw - too_large, stamps),
    )


async def _filters(repository: Repository, paths: list[bytes]) -> dict[bytes, str]:
    answer = await repository.agents.git("check-attr", "-z", "--stdin", "filter", stdin=b"\0".join(paths) + b"\0")
    words = answer.out.split(b"\0")[:-1]
    named = zip(words[::3], words[2::3], strict=True)
    return {path: "" if name in (b"unspecified", b"unset", b"set") else readable(name) for path, name in named}


def _too_large(paths: set[bytes], stamps: Mapping[bytes, str]) -> str:
    if not paths:
        return ""
    return (
        f"not committed: {_sized(paths, stamps)}, and forges refuse files of more than {TOO_LARGE >> 20} MB; "
        "delete them, add them to .gitignore, or let git-lfs track them"
    )


def _unfiltered(paths: set[bytes], filters: Mapping[bytes, str]) -> str:
    if not paths:
        return ""
    names = ", ".join(sorted({filters[path] for path in paths}))
    shown = in_one_line(map(readable, sorted(paths)))
    return f"not committed: {shown}, because the filter {names} that .gitattributes asks for is not installed"


def _large(paths: set[bytes], stamps: Mapping[bytes, str]) -> str:
    return f"large files were committed: {_sized(paths, stamps)}; git-lfs is the place for them" if paths else ""


def _sized(paths: set[bytes], stamps: Mapping[bytes, str]) -> str:
    return in_one_line(f"{readable(path)} ({size_in(stamps[path]) >> 20} MB)" for path in sorted(paths))

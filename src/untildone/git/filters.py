"""Filters that a repository names and this machine does not have: git-lfs and its like.

Git refuses everything once a required filter is missing, even to look at the tree. So a missing filter is switched
off, and what would go into a commit unfiltered is held back: a pointer may, a plain file must not.
"""

import os
import shlex
import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from untildone.git.room_entries import checked_out_in
from untildone.git.run import GitResult

if TYPE_CHECKING:
    from untildone.git.repository import Repository

_PROGRAMS = (
    "config", "-z", "--get-regexp",
    (r"^(filter\..*\.(clean|smudge|process)|merge\..*\.driver|diff\.(.*\.(textconv|command)|external)"
    r"|gpg\.(.*\.)?program|core\.(sshcommand|askpass|gitproxy)|credential\.(.*\.)?helper)$"),
)  # fmt: skip
"""Settings that name a program."""

FILTERS = ("config", "-z", "--get-regexp", r"^filter\..*\.(clean|smudge|process)$")

_POINTER = b"version https://git-lfs.github.com/spec/"


def configured_filters(answer: GitResult) -> frozenset[tuple[str, str]]:
    """The keys and commands of all filters, from what FILTERS answered."""
    pairs = (entry.partition("\n") for entry in os.fsdecode(answer.out).split("\0") if entry)
    return frozenset((key, command) for key, _, command in pairs)


def missing_filters(configured: Iterable[tuple[str, str]], top: Path) -> frozenset[str]:
    """The names of the configured filters whose program cannot be found."""
    return frozenset(name_of(key) for key, command in configured if not _is_there(command, top))


def name_of(key: str) -> str:
    """The filter that a setting is about."""
    return key.removeprefix("filter.").rpartition(".")[0]


def switched_off(names: Iterable[str]) -> tuple[str, ...]:
    """The `-c` options that make git leave these filters alone."""
    return tuple(
        word
        for name in sorted(names)
        for key in ("clean=", "smudge=", "process=", "required=false")
        for word in ("-c", f"filter.{name}.{key}")
    )


async def without_programs_of_trees(repository: "Repository") -> "Repository":
    """The same, where nothing runs outside that an agent may have written: no hook, and no program in a tree.

    A merge driver that does not run is a conflict; what such a filter would change stays as it is.
    """
    trees = {repository.top, *([] if repository.private else checked_out_in(repository.git_dir))}
    named = configured_filters(await repository.git(*_PROGRAMS, check=False))
    theirs = {key for key, command in named if any(leads_into(command, tree) for tree in trees)}
    filters = {name_of(key) for key in theirs if key.startswith("filter.")}
    others = sorted(key for key in theirs if not key.startswith("filter."))
    told = (f"{key}={'cat' if key.endswith('.textconv') else 'false'}" for key in others)
    off = (*switched_off(filters), *(word for one in told for word in ("-c", one)))
    trusted = frozenset(one for one in repository.filters if name_of(one[0]) not in filters)
    return replace(repository, wary=("-c", "core.hooksPath=/dev/null", *off), filters=trusted)


def leads_into(command: str, top: Path) -> bool:
    """Whether something runs that lies in a tree, or would if it were made there."""
    try:
        words = shlex.split(command)
    except ValueError:
        return True
    found = shutil.which(words[0]) if words else None
    parts = [part for word in words for part in word.split()]
    places = [(part, Path(os.path.realpath(top / part))) for part in parts]
    places += [(found, Path(os.path.realpath(found)))] if found else []
    here = ((part, place) for part, place in places if place.is_relative_to(top))
    return any(os.path.lexists(place) or ("/" in part and place.parent.is_dir()) for part, place in here)


def is_pointer(path: bytes) -> bool:
    """Whether a file is the stand-in that git-lfs keeps in commits."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - names are raw bytes here
            return file.read(len(_POINTER)) == _POINTER
    except OSError:
        return False


def _is_there(command: str, top: Path) -> bool:
    try:
        words = shlex.split(command)
    except ValueError:
        return True  # something for the shell: it will say so itself
    if not words or not words[0].replace("-", "").replace("_", "").replace("/", "").replace(".", "").isalnum():
        return True
    return shutil.which(words[0]) is not None or (top / words[0]).exists()

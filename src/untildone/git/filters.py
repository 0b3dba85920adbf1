"""Filters that a repository names and this machine does not have: git-lfs and its like.

Git refuses everything once a required filter is missing, even to look at the tree. So a missing filter is switched
off, and what would go into a commit unfiltered is held back: a pointer may, a plain file must not.
"""

import os
import shlex
import shutil
from collections.abc import Iterable
from pathlib import Path

from untildone.git.run import GitResult

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


def leads_into(command: str, top: Path) -> bool:
    """Whether a filter runs something that lies in a tree."""
    try:
        words = shlex.split(command)
    except ValueError:
        return True
    found = shutil.which(words[0]) if words else None
    places = [Path(os.path.realpath(top / part)) for word in words for part in word.split()]
    places += [Path(os.path.realpath(found))] if found else []
    return any(place.is_relative_to(top) and os.path.lexists(place) for place in places)


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

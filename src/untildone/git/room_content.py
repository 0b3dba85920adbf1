"""What a checkout needs besides its files: submodules, files kept apart (LFS), filters, and files of another commit."""

import hashlib
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

from untildone.core.dataclass import dataclass
from untildone.errors import CommitUnfit, WorkspaceError
from untildone.git.fence import git_folder
from untildone.git.filters import is_pointer
from untildone.git.repository import Repository
from untildone.git.room_entries import common_folder
from untildone.git.run import disk_trouble
from untildone.git.status import in_one_line, readable

_LINK = re.compile(rb"(?:^|(?<=\0))160000 ([0-9a-f]+) \d\t([^\0]+)")
_ATTRIBUTES = re.compile(rb"\t((?:[^\0]*/)?\.gitattributes)(?=\0)")
_OID = re.compile(rb"^oid sha256:([0-9a-f]{64})$", re.MULTILINE)
_POINTER_BYTES = 1024
_LFS = "lfs"


@dataclass(frozen=True, slots=True)
class Special:
    """What of a checkout needs a second look."""

    links: tuple[tuple[str, str], ...]
    """Other repositories in it: path and commit."""
    attributes: tuple[str, ...]
    """The files that say which filters apply."""


def special_files(listed: bytes) -> Special:
    """Look once through the list (of `ls-files -s -z`) of everything that was checked out."""
    return Special(
        links=tuple((os.fsdecode(name), commit.decode()) for commit, name in _LINK.findall(listed)),
        attributes=tuple(map(os.fsdecode, _ATTRIBUTES.findall(listed))),
    )


async def submodules(
    source: Repository, room: Path, special: Special
) -> tuple[list[tuple[Repository, Path, str]], list[str]]:
    """The submodules that are initialised in the tree of `source`: repository, place in the room, commit; and notes.

    One that is not, or that .gitmodules does not name, is left empty here too, as in everybody's checkout.
    """
    named = await _named_submodules(source, room) if special.links else set()
    found = [(initialised(source, name), room / name, commit) for name, commit in special.links if name in named]
    there = [(module, place, commit) for module, place, commit in found if module is not None]
    for module, place, commit in there:
        if (await module.git("cat-file", "-e", f"{commit}^{{commit}}", check=False)).code:
            raise CommitUnfit(
                f"submodule {place.relative_to(room)} is meant to be at {commit[:10]}, a commit that is not here: "
                "commit it in the submodule, or get it with `git submodule update`"
            )
    stray = [readable(os.fsencode(name)) for name, _ in special.links if name not in named]
    said = "empty, as in every clone, because .gitmodules names no address for them: "
    return there, [said + in_one_line(stray)] if stray else []


async def _named_submodules(source: Repository, room: Path) -> set[str]:
    """The paths for which the commit says where the repository is to be had."""
    file = room / ".gitmodules"
    if file.is_symlink() or not file.is_file():
        return set()
    asked = ("config", "-z", "-f", str(file), "--get-regexp", r"^submodule\..*\.(path|url)$")
    told = os.fsdecode((await source.git(*asked, check=False)).out)
    said: dict[str, dict[str, str]] = {}
    for entry in told.split("\0")[:-1]:
        key, _, value = entry.partition("\n")
        name, _, kind = key.rpartition(".")
        said.setdefault(name, {})[kind] = value
    return {about["path"] for about in said.values() if about.get("path") and about.get("url")}


def initialised(source: Repository, name: str) -> Repository | None:
    """The repository of a submodule, if it is in the tree of `source`."""
    place = source.top / name
    if not place.resolve().is_relative_to(source.top.resolve()):
        return None  # a link that was put in its place
    git_dir = Path(git_folder(place))
    # Objects are taken from there: only where git itself keeps submodules, never in another repository.
    kept_in = [common_folder(source.git_dir)]
    if source.keeping.inside is None:
        kept_in.append(source.top.resolve())  # otherwise an agent may have made it, with settings that name programs
    if not any(git_dir.is_relative_to(inside) for inside in kept_in):
        return None
    return replace(source, top=place, git_dir=git_dir, index=git_dir / "index", private=False, fence=None)


async def lfs_files(room: Repository, special: Special, source: Repository) -> tuple[list[str], list[bytes]]:
    """Put the content of large files in place as far as it is on this machine: a note about the rest, and which."""
    missing, fetched, git_dir = [], [], common_folder(source.git_dir)
    with disk_trouble(f"cannot write to {room.top}"):
        for name in await _filtered_by(room, special, _LFS):
            path = os.fsencode(room.top) + b"/" + name
            # A link may lead anywhere: it is not followed.
            if Path(os.fsdecode(path)).is_symlink() or not is_pointer(path):
                continue
            if _fetch_here(path, git_dir):
                fetched.append(name)
            else:
                missing.append(readable(name))
    if not missing:
        return [], fetched
    said = "large files that are not on this machine are only pointers in the checkout (`git lfs fetch` gets them): "
    return [said + in_one_line(missing)], fetched


def _fetch_here(path: bytes, git_dir: Path) -> bool:
    with open(path, "rb") as file:  # noqa: PTH123 - names are raw bytes here
        found = _OID.search(file.read(_POINTER_BYTES))
    if found is None:
        return False
    oid = found[1].decode()
    kept = git_dir / "lfs" / "objects" / oid[:2] / oid[2:4] / oid
    try:
        with kept.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != oid:
                return False  # not what the commit means
    except OSError:
        return False
    shutil.copyfile(kept, os.fsdecode(path))  # not linked: a check could write to it
    return True


async def refuse_lacking_filters(room: Repository, special: Special, source: Repository) -> None:
    """Refuse what cannot be what it should be: files that need a filter which is not installed."""
    as_configured = replace(source, missing_filters=frozenset())
    for name in sorted(room.missing_filters - {_LFS}):
        required = await as_configured.git("config", "--type=bool", f"filter.{name}.required", check=False)
        files = await _filtered_by(room, special, name) if required.text == "true" else []
        if files:
            raise WorkspaceError(
                f"{in_one_line([readable(file) for file in files])} cannot be checked out: the program of the filter "
                f"{name} is not installed; install it, or check in the tree with `--check-in tree`"
            )


async def _filtered_by(room: Repository, special: Special, name: str) -> list[bytes]:
    """The files of a filter. Git is asked about all files only where some attributes name it."""
    wanted = f"filter={name}"
    if not any(_mentions(room.top / file, wanted) for file in special.attributes):
        return []
    listed = await room.git("ls-files", "-z", "--", f":(attr:{wanted})")
    return [file for file in listed.out.split(b"\0") if file]


def _mentions(file: Path, word: str) -> bool:
    try:
        return word in file.read_text(errors="replace")
    except OSError:
        return False

"""A tree that comes from elsewhere, looked at before any of it is laid out: how much it is, and what acts by itself.

A parcel of a kilobyte can hold a tree of ten million files: folders that hold the same folder many times over. So
folders are read once each, and counted as often as they occur.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from untildone.core.printable import one_line
from untildone.errors import WorkspaceError
from untildone.git.repository import Repository
from untildone.git.status import readable

MOST_FILES = 500_000
"""Files and folders."""
MOST_BYTES = 8 << 30
DEEPEST = 100
"""Folders in one another."""
MOST_LISTED = 128 << 20
"""Bytes of the lists of files."""

_TREE, _LINK, _SUBMODULE = b"40000", b"120000", b"160000"
# What Claude Code, git or a shell runs without being asked once it is there.
_ACTS = re.compile(
    rb"(?i)(?:.*/)?(?:\.claude(?:/.*)?|\.mcp\.json|\.husky(?:/.*)?|\.githooks(?:/.*)?|\.pre-commit-config\.ya?ml"
    rb"|\.?lefthook(?:-local)?\.(?:ya?ml|toml|json)|\.envrc|\.vscode(?:/.*)?|\.devcontainer(?:/.*)?)",
    re.DOTALL,
)
# By these git takes a folder for a repository, whatever it is called, and does what the settings in it say: whoever
# works there, or below, runs them with the first `git status`. On some disks case does not count.
_OF_A_REPOSITORY = re.compile(rb"(?i)(?:^|(?<=/))(?:HEAD|objects|refs|commondir)(?=/|\Z)", re.DOTALL)
_REPOSITORIES = ({b"head", b"objects", b"refs"}, {b"head", b"commondir"})

Entries = list[tuple[bytes, str]]
"""Modes and hashes of what a folder holds."""


async def refuse_too_much(repository: Repository, commit: str) -> None:
    """WorkspaceError when the tree of a commit is larger than any that is worth to be laid out."""
    width = len(commit) // 2
    top = (await repository.git("rev-parse", "--verify", f"{commit}^{{tree}}")).text
    known: dict[str, Entries] = {}
    level, blobs = Counter({top: 1}), Counter[str]()
    files = listed = depth = 0
    while level:
        depth += 1
        new = [tree for tree in level if tree not in known]
        listed += sum((await _sizes(repository, new)).values())
        if depth > DEEPEST or listed > MOST_LISTED:
            raise WorkspaceError(_too_much())
        known |= await _read(repository, new, width)
        below = Counter[str]()
        for tree, times in level.items():
            files += times * len(known[tree])
            for mode, name in known[tree]:
                if mode != _SUBMODULE:
                    (below if mode == _TREE else blobs)[name] += times
        if files > MOST_FILES:
            raise WorkspaceError(_too_much())
        level = below
    sizes = await _sizes(repository, blobs)
    if sum(times * sizes.get(name, 0) for name, times in blobs.items()) > MOST_BYTES:
        raise WorkspaceError(_too_much())


async def refuse_detour(repository: Repository, commit: str, below: str) -> None:
    """WorkspaceError when the way to a folder of a tree leads through something that is no folder."""
    parts = [part for part in below.split("/") if part not in {"", "."}]
    places = [f"{commit}:{'/'.join(parts[:number])}" for number in range(1, len(parts) + 1)]
    if not places:
        return
    asked = "\n".join(places).encode("utf-8", "surrogateescape")
    answer = await repository.git("cat-file", "--batch-check=%(objecttype)", stdin=asked)
    if any(kind in {"blob", "commit", "tag"} for kind in answer.text.split("\n")):
        raise WorkspaceError(f"{one_line(below, 100)} is no folder of the run's tree: it is not used")


async def acting(repository: Repository, had: str | None, commit: str) -> dict[str, str]:
    """Files of a commit that run commands by themselves and are not as in the one that was here: what they are now."""
    hooks = await _hooks(repository)
    before = await _acting_in(repository, had, hooks) if had else {}
    now = await _acting_in(repository, commit, hooks)
    changed = {path: now.get(path, "gone") for path in sorted({*before, *now}) if before.get(path) != now.get(path)}
    return {readable(path): found for path, found in changed.items()}


async def _acting_in(repository: Repository, commit: str, hooks: bytes | None) -> Mapping[bytes, str]:
    answer = await repository.git("ls-tree", "-r", "-z", "--full-tree", commit)
    files: dict[bytes, str] = {}
    for line in answer.out.split(b"\0")[:-1]:
        said, _, path = line.partition(b"\t")
        # What a link leads to may be another file each time.
        files[path] = said.decode() + (f" in {commit}" if said.startswith(_LINK) else "")
    found = {
        path: what
        for path, what in files.items()
        if _ACTS.fullmatch(path) or (hooks is not None and path.startswith(hooks))
    }
    return found | _repositories(files)


def _repositories(files: Mapping[bytes, str]) -> dict[bytes, str]:
    """Folders that git would take for repositories, and what they stand for: all that is in them."""
    marks: dict[bytes, set[bytes]] = {}
    for path in files:
        for mark in _OF_A_REPOSITORY.finditer(path):
            marks.setdefault(path[: mark.start()], set()).add(mark[0].lower())
    contents = {
        folder: hashlib.sha256() for folder, names in marks.items() if any(names >= these for these in _REPOSITORIES)
    }
    if contents:
        for path, what in files.items():
            for folder in _folders(path):
                if folder in contents:
                    contents[folder].update(b"%s\0%s\0" % (path, what.encode()))
    return {(folder or b"./") + b" (a repository in the tree)": held.hexdigest() for folder, held in contents.items()}


def _folders(path: bytes) -> Iterator[bytes]:
    """Those that a file is in, each with a slash at its end; the top is empty."""
    at = 0
    while at >= 0:
        yield path[: at + 1] if at else b""
        at = path.find(b"/", at + 1)


async def _hooks(repository: Repository) -> bytes | None:
    """The folder of the tree that the user has git take its hooks from, if there is one."""
    answer = await repository.git("config", "--type=path", "--get", "core.hooksPath", check=False)
    path = answer.out.rstrip(b"\n").removeprefix(bytes(repository.top) + b"/").removeprefix(b"./").rstrip(b"/")
    return None if answer.code or not path or path.startswith(b"/") else path


async def _sizes(repository: Repository, names: Iterable[str]) -> dict[str, int]:
    asked = "\n".join(names).encode()
    if not asked:
        return {}
    answer = await repository.git("cat-file", "--batch-check=%(objectname) %(objectsize)", stdin=asked)
    pairs = (line.split(" ", 1) for line in answer.text.split("\n"))
    return {name: int(size) for name, size in pairs if size.isdigit()}


async def _read(repository: Repository, trees: list[str], width: int) -> dict[str, Entries]:
    if not trees:
        return {}
    out = (await repository.git("cat-file", "--batch", stdin="\n".join(trees).encode())).out
    found: dict[str, Entries] = {}
    at = 0
    for tree in trees:
        head, _, _ = out[at : at + 200].partition(b"\n")
        words = head.split(b" ")
        if words[1:2] != [b"tree"]:
            raise WorkspaceError("a folder of the run's tree is missing in its parcel: it is not used")
        start = at + len(head) + 1
        at = start + int(words[2]) + 1
        found[tree] = list(_entries(out[start : at - 1], width))
    return found


def _entries(content: bytes, width: int) -> Iterable[tuple[bytes, str]]:
    at = 0
    while at < len(content):
        ends = content.index(b"\0", at)
        mode = content[at : content.index(b" ", at)].lstrip(b"0")
        yield mode, content[ends + 1 : ends + 1 + width].hex()
        at = ends + 1 + width


def _too_much() -> str:
    return (
        f"the tree of the run is larger than any that is laid out here ({MOST_FILES:,} files, {MOST_BYTES >> 30} GB, "
        f"{DEEPEST} folders in one another): it is not used"
    )

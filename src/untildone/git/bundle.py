"""The tree of a run as one parcel: all that another machine needs to stand where this one does.

A JSON line that says what is in it, then a git bundle with a single ref. Its commit holds the tree as it is, half-done
work included, and has the commit that is checked out and every saved state of the run as parents: so one ref brings
all of them, also those that the remote has already. Equal trees give equal commits, which tells what need not travel.
"""

import asyncio
import gzip
import os
import re
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path, PurePosixPath

from untildone.core.codec import decode_value, encode_value
from untildone.core.dataclass import dataclass
from untildone.errors import WorkspaceError
from untildone.git.branch import Origin, origins_of
from untildone.git.remote import Remote
from untildone.git.repository import NO_HOOKS, PRIVATE_EMAIL, Repository
from untildone.git.run import COMMIT_TIMEOUT, disk_trouble
from untildone.git.snapshot import BY_US, HEAD_TRAILER, refs_of, write_tree
from untildone.git.sparing import Tells, spare
from untildone.git.status import Status, readable

LARGEST = 64 << 20
"""Bytes of a parcel."""
VERSION = 1
NAMED = 20
"""Files that did not come along, named at most."""
HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
TRAVELS = re.compile(r"(?:seen-)?(?:start|\d{1,9})(?:-\d{1,9})?|(?:left|found)-\d{1,9}")
"""The states of a run that come along: those a later driver asks for."""

_HEADER = 8 << 20
_MANY_TIMES = 4
"""Loose objects take more room than packed ones; what is so much over is not even tried."""
# The same tree gives the same commit, whenever it is packed.
_ALWAYS_NOW = {"GIT_AUTHOR_DATE": "946684800 +0000", "GIT_COMMITTER_DATE": "946684800 +0000"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeFacts:
    """What a parcel says about itself."""

    run_id: str
    packed: str
    """The one commit of the bundle: its tree is the tree."""
    head: str | None
    """What is checked out; None: there is no commit yet."""
    branch: str | None
    """None: a detached HEAD, or a folder without git."""
    base: str = ""
    began: str = ""
    """What is remembered with the branch."""
    refs: dict[str, str] = field(default_factory=dict)
    """Saved states: name and commit."""
    private: bool = False
    """The folder has no git of its own."""
    below: str = "."
    """Where in the tree the agent works."""
    remote: str = ""
    """Where the commits are that are not in it, without a login."""
    left_out: tuple[str, ...] = ()
    """Files that do not travel: too large, full of keys, or repositories of their own."""
    replaced: dict[str, str] = field(default_factory=dict)
    """Commits that were made anew for the way, without such files, by those they stand for."""
    version: int = VERSION


@dataclass(frozen=True, slots=True)
class PackedTree:
    """A parcel, and what tells it from others."""

    mark: str
    content: bytes


@dataclass(frozen=True, slots=True)
class _State:
    """A saved state of a run."""

    commit: str
    parent: str | None
    is_own: bool
    """It belongs to no branch."""


def parcel_ref(run_id: str) -> str:
    """The only ref of a bundle. It moves, unlike the others of a run."""
    return f"{refs_of(run_id)}/parcel"


async def pack_tree(
    repository: Repository,
    status: Status,
    *,
    run_id: str,
    cwd: Path,
    remote: str = "origin",
    leave_out: Sequence[bytes] = (),
    unnamed: Sequence[bytes] = (),
    known: str = "",
    tells: Tells = lambda _: False,
) -> PackedTree | None:
    """The tree as it is now; None when it is as `known` says. WorkspaceError when it is too large to travel.

    `unnamed`: what is left out without a word, such as the notes, which travel by themselves. `tells`: whether a
    content holds a secret.
    """
    states = await _states(repository, run_id)
    refs = {name: state.commit for name, state in states.items()}
    whole = await _commit(repository, status, refs, leave_out)
    spared = await spare(repository, await _own(repository, status, states, whole), tells)
    packed = spared.commits.get(whole, whole)
    mark = f"{packed} {status.head} {status.branch}"
    if mark == known:
        return None
    await repository.git(*NO_HOOKS, "update-ref", parcel_ref(run_id), packed)
    origin = (await origins_of(repository)).get(status.branch or "", Origin())
    missing = [readable(path) for path in dict.fromkeys((*leave_out, *spared.paths)) if path not in set(unnamed)]
    made = spared.commits
    facts = TreeFacts(
        run_id=run_id, packed=packed, head=made.get(status.head or "", status.head), branch=status.branch,
        base=origin.base, began=origin.began, refs={name: made.get(commit, commit) for name, commit in refs.items()},
        private=repository.private, below=_below(repository, cwd), left_out=tuple(missing[:NAMED]),
        replaced={old: new for old, new in made.items() if old != whole},
        remote="" if repository.private else await Remote(repository, remote).place(),
    )  # fmt: skip
    with disk_trouble("cannot pack the tree"), tempfile.TemporaryDirectory(prefix="untildone-") as folder:
        bundle = Path(folder) / "bundle"
        await _bundle(repository, bundle, parcel_ref(run_id), remote)
        return PackedTree(mark, await asyncio.to_thread(_wrapped, facts, bundle))


def unwrapped(parcel: bytes) -> tuple[TreeFacts, bytes]:
    """What a parcel says, and its bundle. WorkspaceError when it is none."""
    try:
        whole = _unzipped(parcel)
        head, found, bundle = whole.partition(b"\n")
        facts = decode_value(head, TreeFacts) if found and len(head) <= _HEADER else None
    except (OSError, EOFError, ValueError, zlib.error, RecursionError) as trouble:
        raise WorkspaceError(f"the parcel with the tree is damaged: {trouble}") from trouble
    if facts is None or facts.version != VERSION or not _is_sound(facts):
        raise WorkspaceError("the parcel with the tree is none that this version of untildone can read")
    return facts, bundle


def prerequisites(bundle: bytes) -> list[str]:
    """The commits that a bundle builds on without holding them."""
    lines = bundle[:_HEADER].partition(b"\n\n")[0].split(b"\n")
    named = (line[1:].split(b" ", 1)[0].decode("ascii", "replace") for line in lines if line.startswith(b"-"))
    return [commit for commit in named if HASH.fullmatch(commit)]


def _is_sound(facts: TreeFacts) -> bool:
    hashes = [facts.packed, *facts.refs.values(), *([facts.head] if facts.head else [])]
    hashes += [*facts.replaced, *facts.replaced.values()]
    below = PurePosixPath(facts.below)
    return (
        all(HASH.fullmatch(commit) for commit in hashes)
        and all(TRAVELS.fullmatch(name) for name in facts.refs)
        and not below.is_absolute()
        and ".." not in below.parts
        and not {"\0", "\n"} & set(facts.below)
        and ".git" not in map(str.lower, below.parts)
    )


def _unzipped(parcel: bytes) -> bytes:
    most = LARGEST + _HEADER
    unzip = zlib.decompressobj(wbits=31)
    whole = unzip.decompress(parcel, most)
    if unzip.unconsumed_tail or not unzip.eof:
        raise ValueError("it is cut off, or larger than any that is sent")
    return whole


def _wrapped(facts: TreeFacts, bundle: Path) -> bytes:
    # A pack is compressed already: a second time would only cost time.
    return gzip.compress(encode_value(facts) + b"\n" + bundle.read_bytes(), compresslevel=0, mtime=0)


async def _states(repository: Repository, run_id: str) -> dict[str, _State]:
    folder = refs_of(run_id)
    form = f"--format=%01%(objecttype)%00%(objectname)%00%(refname)%00%(parent)%00%(committeremail)%00{HEAD_TRAILER}"
    listed = (await repository.git("for-each-ref", form, folder)).out.decode("utf-8", "replace")
    found = {}
    for entry in listed.split("\x01")[1:]:
        kind, commit, ref, parents, email, head = entry.split("\0")[:6]
        name = ref.removeprefix(f"{folder}/")
        if kind == "commit" and TRAVELS.fullmatch(name):
            is_own = email == f"<{PRIVATE_EMAIL}>" and bool(head.strip())
            found[name] = _State(commit, parents.partition(" ")[0] or None, is_own)
    return found


async def _own(
    repository: Repository, status: Status, states: Mapping[str, _State], whole: str
) -> list[tuple[str, str | None]]:
    """The commits that only the run has, parents first, each with the one before it. The others are published."""
    if not repository.private:
        mine = dict.fromkeys((state.commit, state.parent) for state in states.values() if state.is_own)
        return [*mine, (whole, status.head)]
    listed = await repository.git("rev-list", "--reverse", "--topo-order", "--parents", whole)
    rows = (line.split(" ") for line in listed.text.split("\n"))
    return [(row[0], row[1] if len(row) > 1 else None) for row in rows]


async def _commit(repository: Repository, status: Status, refs: dict[str, str], leave_out: Sequence[bytes]) -> str:
    tree = await write_tree(repository, leave_out=leave_out, but=status.head)
    others = sorted(set(refs.values()) - {status.head})
    flags = [word for parent in ([status.head] if status.head else []) + others for word in ("-p", parent)]
    said = b"The tree of a run, on its way to another machine\n"
    return (await repository.git("commit-tree", tree, *flags, stdin=said, env={**BY_US, **_ALWAYS_NOW})).text


async def _bundle(repository: Repository, place: Path, ref: str, remote: str) -> None:
    """Write the bundle: without what the remote has, where there is one."""
    there = "" if repository.private else f"--remotes={remote}"
    wanted = (ref, "--not", there) if there else (ref,)
    await _refuse_torn(repository, wanted, remote)
    large = await repository.git("rev-list", "--objects", "--disk-usage", *wanted, check=False)
    if large.code == 0 and large.text.isdigit() and int(large.text) > _MANY_TIMES * LARGEST:
        raise WorkspaceError(_too_large(int(large.text), remote))
    await repository.git(*NO_HOOKS, "bundle", "create", "-q", str(place), *wanted, timeout=COMMIT_TIMEOUT)
    if (size := place.stat().st_size) > LARGEST - _HEADER:
        raise WorkspaceError(_too_large(size, remote))


async def _refuse_torn(repository: Repository, wanted: Sequence[str], remote: str) -> None:
    """WorkspaceError when a shallow clone would have to send the end of its history: nobody could take that."""
    if (await repository.git("rev-parse", "--is-shallow-repository")).text != "true":
        return
    place = (await repository.git("rev-parse", "--path-format=absolute", "--git-path", "shallow")).text
    with disk_trouble("cannot pack the tree"):
        ends = set((await asyncio.to_thread(Path(place).read_text)).split())
    if ends & set((await repository.git("rev-list", *wanted)).text.split()):
        raise WorkspaceError(
            f"this is a shallow clone, and {remote} does not have where its history ends: `git fetch --unshallow`, or "
            f"push the branch to a remote called {remote}"
        )


def _too_large(size: int, remote: str) -> str:
    return (
        f"the tree is too large to travel: {size >> 20} MB that {remote} does not have, and {LARGEST >> 20} MB is the "
        f"most; push the branch to a remote called {remote}, then only what is new is sent"
    )


def _below(repository: Repository, cwd: Path) -> str:
    place = Path(os.path.realpath(cwd))
    return place.relative_to(repository.top).as_posix() if place.is_relative_to(repository.top) else "."

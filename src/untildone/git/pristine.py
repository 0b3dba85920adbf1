"""A git folder of our own for one checkout: it has the commit's objects, and nothing that was set in the repository.

Whoever works in a repository can set filters, attributes, sparse patterns and line ends there, and git would check out
something else than the commit. Here git sees none of that; and then every file is compared with the commit.
"""

import asyncio
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from untildone.errors import CommitUnfit
from untildone.git.filters import FILTERS, configured_filters, name_of, switched_off
from untildone.git.proof import as_committed, quoted
from untildone.git.repository import NO_HOOKS, Repository
from untildone.git.room_entries import common_folder
from untildone.git.run import COMMIT_TIMEOUT, GitResult, disk_trouble, first_line
from untildone.git.status import in_one_line, readable

# Content is taken from what is here already: nobody waits for a download in the middle of the night.
_OFFLINE = {"GIT_LFS_SKIP_SMUDGE": "1"}
_AS_IT_IS = (
    *NO_HOOKS, "-c", "checkout.workers=4", "-c", "core.sparseCheckout=false", "-c", "core.autocrlf=false",
    "-c", "core.eol=lf", "-c", "core.symlinks=true", "-c", f"core.attributesFile={os.devnull}",
)  # fmt: skip
_CONFIG = "[core]\n\trepositoryformatversion = {}\n\tfilemode = true\n\tbare = false\n"
_SHA256 = "[extensions]\n\tobjectFormat = sha256\n"
_SHA1_CHARS = 40
_NAMES = ("--name-only", "-z", "--no-renames", "--no-ext-diff", "--no-textconv", "--ignore-submodules=all")


class Pristine:
    """One checkout: made, proven, and put back when somebody changed it."""

    def __init__(self, own: Repository, trusted: Sequence[str]) -> None:
        """`own` is the folder of the checkout with a git folder of ours; `trusted`: the options for filters."""
        self._own = own
        self._options = (*_AS_IT_IS, *trusted)

    @property
    def repository(self) -> Repository:
        """The checkout and its git folder."""
        return self._own

    @property
    def index(self) -> Path:
        """What was checked out, as git remembers it."""
        return self._own.index

    async def check_out(self, commit: str, source: Repository) -> None:
        """Put the files of a commit there."""
        done = await self._read_tree(commit)
        if done.code and await _fetch_missing(source, commit):
            done = await self._read_tree(commit)
        if done.code:
            raise CommitUnfit(f"{commit[:10]} cannot be checked out: {first_line(done.err)}")

    async def listed(self) -> bytes:
        """Every file with its mode and its hash, as git lists them."""
        return (await self._own.git("ls-files", "-s", "-z")).out

    async def prove(self, listed: bytes) -> None:
        """CommitUnfit when a file is not what the commit says, and no filter of the user's made it so."""
        top = os.fsencode(self._own.top)
        differing = await asyncio.to_thread(as_committed, top, listed)
        left = await self._not_undone(differing) if differing else []
        wrong = await self._unfiltered(left) if left else []
        # What a filter of the user's makes of a file need not lead back: to git it is changed for ever.
        await self.set_apart([path for path in left if path not in set(wrong)])
        if wrong:
            raise CommitUnfit(
                f"{in_one_line(map(readable, sorted(wrong)))} cannot be checked out as the commit has it: "
                "the repository's objects are damaged, or somebody writes to the checkout"
            )

    async def set_apart(self, paths: Sequence[bytes]) -> None:
        """Files whose content is not from the commit itself: they are not looked at any more."""
        if paths:
            await self._own.git("update-index", "--assume-unchanged", "-z", "--stdin", stdin=_zero_ended(paths))

    async def keep(self) -> list[str]:
        """From here on the files are as they should be: returns which are not as they were checked out."""
        changed = await self._changed()
        if changed:
            args = ("update-index", "-q", "--add", "--remove", "-z", "--stdin")
            await self._own.git(*self._options, *args, stdin=_zero_ended(changed))
        return [readable(path) for path in changed]

    async def put_back(self) -> list[str]:
        """Put the files back that were changed since; returns which."""
        changed = await self._changed()
        if changed:
            args = ("checkout-index", "-f", "-u", "-q", "-z", "--stdin")
            await self._own.git(*self._options, *args, env=_OFFLINE, stdin=_zero_ended(changed))
        return [readable(path) for path in changed]

    async def _read_tree(self, commit: str) -> GitResult:
        args = ("read-tree", "-u", "--reset", commit)
        return await self._own.git(
            *self._options, *args, env=_OFFLINE, check=False, timeout=COMMIT_TIMEOUT, dies_with_us=True
        )

    async def _changed(self) -> list[bytes]:
        told = await self._own.git(*self._options, "diff", *_NAMES, env=_OFFLINE)
        return [path for path in told.out.split(b"\0") if path]

    async def _not_undone(self, differing: dict[bytes, str]) -> list[bytes]:
        """Line ends, encodings and filters that the commit itself asks for change files, and can be undone again."""
        there = [path for path, oid in differing.items() if oid]
        stdin = b"".join(quoted(path) + b"\n" for path in there)
        undone = await self._own.git(*self._options, "hash-object", "--stdin-paths", stdin=stdin, check=False)
        hashes = undone.out.decode("ascii", "replace").split()
        same = {path for path, oid in zip(there, hashes, strict=False) if differing[path] == oid}
        return [path for path in differing if path not in same]

    async def _unfiltered(self, paths: Sequence[bytes]) -> list[bytes]:
        """Those that no filter of the user's was at."""
        args = ("check-attr", "-z", "--stdin", "filter")
        told = (await self._own.git(*self._options, *args, stdin=_zero_ended(paths))).out.split(b"\0")[:-1]
        trusted = {name_of(key) for key, _ in self._own.filters} - self._own.missing_filters
        named = zip(told[::3], told[2::3], strict=True)
        return [path for path, name in named if os.fsdecode(name) not in trusted]


async def pristine(source: Repository, place: Path, commit: str, git_dir: Path) -> Pristine:
    """A git folder with the objects of `source` and none of its settings, for a checkout in `place`."""
    with disk_trouble(f"cannot make a fresh checkout in {place}"):
        for folder in ("objects/info", "refs"):
            (git_dir / folder).mkdir(parents=True)
        is_short = len(commit) == _SHA1_CHARS
        (git_dir / "config").write_text(_CONFIG.format(0 if is_short else 1) + ("" if is_short else _SHA256))
        (git_dir / "HEAD").write_text(f"{commit}\n")
        objects = os.fsencode(common_folder(source.git_dir) / "objects")
        (git_dir / "objects/info/alternates").write_bytes(quoted(objects) + b"\n")
    own = replace(source, top=place, git_dir=git_dir, index=git_dir / "index", private=True, fence=None)
    return Pristine(own, await _trusted_filters(own))


async def _trusted_filters(own: Repository) -> list[str]:
    """The options that leave the filters that were there at the start, and no other."""
    here = configured_filters(await own.git(*FILTERS, check=False))
    told = [
        word
        for key, command in sorted(own.filters)
        if name_of(key) not in own.missing_filters
        for word in ("-c", f"{key}={command}")
    ]
    return [*switched_off({name_of(key) for key, _ in here - own.filters}), *told]


async def _fetch_missing(source: Repository, commit: str) -> bool:
    """A clone that was made without all files gets those it lacks; whether there were any."""
    asked = await source.git("rev-list", "--objects", "--no-walk", "--missing=print", commit, check=False)
    missing = [line[1:] for line in asked.out.split(b"\n") if line.startswith(b"?")]
    if missing:
        await source.git("cat-file", "--batch-check", stdin=b"\n".join(missing) + b"\n", timeout=COMMIT_TIMEOUT)
    return bool(missing)


def _zero_ended(paths: Sequence[bytes]) -> bytes:
    return b"".join(path + b"\0" for path in paths)

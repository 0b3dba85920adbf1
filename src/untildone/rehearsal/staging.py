"""The stage of a rehearsed night: scratch clones, a namespace with nothing but loopback, a small disk."""

import asyncio
import os
import shutil
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import partial
from pathlib import Path

from untildone.core.dataclass import dataclass
from untildone.git.run import git
from untildone.rehearsal.acts import DISK_FREE, Place
from untildone.rehearsal.evidence import processes_with
from untildone.rehearsal.props import Blob, Props, blobs_of, disk_bytes, few_of, free_props
from untildone.rehearsal.story import make_scratch_repository

CLONE_PATIENCE = 300.0
TRIAL_PATIENCE = 60.0
GUARDS_PATIENCE = 2.5
"""Seconds the guards of a loop that is gone have to end what it started, before we do it."""
LAST_PATIENCE = 30.0
"""And those that were killed, to be gone: a busy machine may be slow to let them."""

LOOPBACK = 'ip link set lo up && exec "$@"'
SMALL_DISK = 'mount -t tmpfs -o "size=$1" tmpfs "$2" && shift 2 && exec "$@"'
CLONE_FIRST = 'git clone --quiet --shared --branch "$1" -- "$2" "$3" && shift 3 && exec "$@"'
SMALL_BRANCH = "untildone-small-disk"
AS_REHEARSAL = ("-c", "user.name=untildone rehearsal", "-c", "user.email=rehearsal@localhost")


@dataclass(frozen=True, slots=True)
class Base:
    """A bare copy of the repository: all acts clone from it. It shares the original's objects and writes none there."""

    path: Path
    origin: str
    """What it is a copy of, for people."""
    disk_branch: str = ""
    """The branch for the small disk: that disk is memory, so a large tree is not played in whole there."""
    disk_bytes: int = 0
    """What the files of that branch take of a disk."""
    props: Props = field(default_factory=Props)


async def make_base(scratch: Path, repository: Path | None) -> Base:
    """A copy of the user's repository as it is committed; without one, the repository of the story."""
    origin = str(repository)
    if repository is None or not await _has_commits(repository):
        repository, origin = scratch / "story", "a small scratch repository"
        make_scratch_repository(repository)
    path = scratch / "base.git"
    await git(
        ("clone", "--quiet", "--bare", "--shared", "--single-branch", "--", str(repository), str(path)),
        cwd=scratch,
        timeout=CLONE_PATIENCE,
    )
    await git(("remote", "remove", "origin"), cwd=path, git_dir=path, check=False)
    blobs = blobs_of((await git(("ls-tree", "-r", "-l", "-z", "HEAD"), cwd=path, git_dir=path)).out)
    few = few_of(blobs)
    return Base(
        path,
        origin,
        disk_branch=await _small_branch(path, few, whole=len(few) == len(blobs)),
        disk_bytes=disk_bytes(few),
        props=await _props(path, scratch / "look", blobs),
    )


async def _has_commits(repository: Path) -> bool:
    answer = await git(("rev-parse", "--verify", "--quiet", "HEAD"), cwd=repository, check=False)
    return answer.code == 0


async def _small_branch(base: Path, few: Sequence[Blob], *, whole: bool) -> str:
    """A branch with these files alone, on top of the real history: to git it is the same repository."""
    commit, in_base = "HEAD", partial(git, cwd=base, git_dir=base)
    if not whole:
        index = {"GIT_INDEX_FILE": str(base / "small.index")}
        await in_base(("update-index", "-z", "--index-info"), env=index, stdin=b"".join(b.entry for b in few))
        tree = (await in_base(("write-tree",), env=index)).text
        made = await in_base((*AS_REHEARSAL, "commit-tree", tree, "-p", "HEAD", "-m", "For a small disk"))
        commit = made.text
    await in_base(("update-ref", f"refs/heads/{SMALL_BRANCH}", commit))
    return SMALL_BRANCH


async def _props(base: Path, look: Path, blobs: Sequence[Blob]) -> Props:
    """Names for the script's files that git would take up, asked of git itself: only rules are checked out for it."""
    await git(("clone", "--quiet", "--shared", "--no-checkout", "--", str(base), str(look)), cwd=base)
    try:
        await git(("checkout", "HEAD", "--", ":(glob)**/.gitignore"), cwd=look, check=False, timeout=CLONE_PATIENCE)

        async def ignored(names: Sequence[str]) -> set[str]:
            asked = b"".join(os.fsencode(name) + b"\0" for name in names)
            answer = await git(("check-ignore", "--no-index", "-z", "--stdin"), cwd=look, stdin=asked, check=False)
            return {os.fsdecode(name) for name in answer.out.split(b"\0") if name}

        return await free_props([os.fsdecode(blob.path) for blob in blobs], ignored)
    finally:
        shutil.rmtree(look, ignore_errors=True)


async def clone(base: Base, folder: Path, env: Mapping[str, str]) -> None:
    """A working copy for one act. The user's own git settings (filters, hooks) have no say in it."""
    await git(
        ("clone", "--quiet", "--shared", "--single-branch", "--", str(base.path), str(folder)),
        cwd=base.path.parent,
        env=env,
        timeout=CLONE_PATIENCE,
    )
    await git(("remote", "remove", "origin"), cwd=folder, env=env, check=False)


async def is_in_head(folder: Path, file: str) -> bool:
    """Whether the work of the script was committed."""
    return (await git(("cat-file", "-e", f"HEAD:{file}"), cwd=folder, check=False)).code == 0


class Stages:
    """Where acts can be played on this machine, found out by trying."""

    def __init__(self, base: Base, scratch: Path) -> None:
        self._base = base
        self._trial = scratch / "trial"

    async def dressed(self, place: Place, folder: Path, argv: Sequence[str]) -> list[str] | None:
        """The command line that runs `argv` in that place; None where this machine does not permit it."""
        if place == "here":
            return list(argv)
        flags = await self._permitted(place)
        if place == "small_disk":
            argv = ["sh", "-c", CLONE_FIRST, "sh", self._base.disk_branch, str(self._base.path), str(folder), *argv]
        return None if flags is None else _wrapped(place, flags, folder, self._base, argv)

    async def _permitted(self, place: Place) -> tuple[str, ...] | None:
        kind = "-n" if place == "loopback" else "-m"
        # As root, or as an ordinary user where the kernel lets users have namespaces of their own.
        for flags in ((kind,), ("-r", kind)):
            self._trial.mkdir()
            try:
                if await _works(_wrapped(place, flags, self._trial, self._base, ["true"])):
                    return flags
            finally:
                shutil.rmtree(self._trial, ignore_errors=True)
        return None


def _wrapped(place: Place, flags: Sequence[str], folder: Path, base: Base, argv: Sequence[str]) -> list[str]:
    if place == "loopback":
        return ["unshare", *flags, "sh", "-c", LOOPBACK, "sh", *argv]
    return ["unshare", *flags, "sh", "-c", SMALL_DISK, "sh", str(base.disk_bytes + DISK_FREE), str(folder), *argv]


async def _works(argv: Sequence[str]) -> bool:
    null = asyncio.subprocess.DEVNULL
    env = {"PATH": os.environ.get("PATH", os.defpath)}
    try:
        trial = await asyncio.create_subprocess_exec(*argv, stdin=null, stdout=null, stderr=null, env=env)
    except OSError:
        return False
    try:
        return await asyncio.wait_for(trial.wait(), TRIAL_PATIENCE) == 0
    except TimeoutError:
        return False
    finally:
        if trial.returncode is None:
            trial.kill()
            await trial.wait()


def clear_the_stage(home: Path) -> None:
    """End every process that lives in this home, however the rehearsal ended: all that acts start does.

    Not asynchronous: whatever was cancelled meanwhile, this is done to its end.
    """
    mark = f"HOME={home}"
    guards_end, we_end = time.monotonic() + GUARDS_PATIENCE, time.monotonic() + GUARDS_PATIENCE + LAST_PATIENCE
    while (left := processes_with(mark)) and time.monotonic() < we_end:
        for pid in left if time.monotonic() > guards_end else []:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:  # it ended this very moment
                continue
        time.sleep(0.05)

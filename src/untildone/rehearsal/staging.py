"""The stage of a rehearsed night: scratch clones, a namespace with nothing but loopback, a small disk."""

import asyncio
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from untildone.git.run import git
from untildone.rehearsal.acts import DISK_FREE, FILE, Place
from untildone.rehearsal.story import make_scratch_repository

CLONE_PATIENCE = 300.0
TRIAL_PATIENCE = 10.0

LOOPBACK = 'ip link set lo up && exec "$@"'
SMALL_DISK = 'mount -t tmpfs -o "size=$1" tmpfs "$2" && git clone --quiet --shared "$3" "$2" && shift 3 && exec "$@"'


@dataclass(frozen=True, slots=True)
class Base:
    """A bare copy of the repository: all acts clone from it, and none of them can reach the original."""

    path: Path
    origin: str
    """What it is a copy of, for people."""
    tree_bytes: int


async def make_base(scratch: Path, repository: Path | None) -> Base:
    """Copy the user's repository as it is committed; without one, the repository of the story."""
    origin = str(repository)
    if repository is None or not await _has_commits(repository):
        repository, origin = scratch / "story", "a small scratch repository"
        make_scratch_repository(repository)
    path = scratch / "base.git"
    clone = ("clone", "--quiet", "--bare", "--no-hardlinks", "--single-branch", "--", str(repository), str(path))
    await git(clone, cwd=scratch, timeout=CLONE_PATIENCE)
    await git(("remote", "remove", "origin"), cwd=path, check=False)
    listed = await git(("ls-tree", "-r", "-l", "HEAD"), cwd=path)
    sizes = (line.split()[3] for line in listed.out.splitlines())
    return Base(path, origin, sum(int(size) for size in sizes if size.isdigit()))


async def _has_commits(repository: Path) -> bool:
    answer = await git(("rev-parse", "--verify", "--quiet", "HEAD"), cwd=repository, check=False)
    return answer.code == 0


async def clone(base: Base, folder: Path, env: Mapping[str, str]) -> None:
    """A working copy for one act. The user's own git settings (filters, hooks) have no say in it."""
    await git(
        ("clone", "--quiet", "--shared", "--", str(base.path), str(folder)),
        cwd=base.path.parent,
        env=env,
        timeout=CLONE_PATIENCE,
    )
    await git(("remote", "remove", "origin"), cwd=folder, env=env, check=False)


async def is_in_head(folder: Path) -> bool:
    """Whether the work of the script was committed."""
    return (await git(("cat-file", "-e", f"HEAD:{FILE}"), cwd=folder, check=False)).code == 0


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
    size = str(base.tree_bytes + DISK_FREE)
    return ["unshare", *flags, "sh", "-c", SMALL_DISK, "sh", size, str(folder), str(base.path), *argv]


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
        trial.kill()
        await trial.wait()
        return False

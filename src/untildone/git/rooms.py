"""Fresh checkouts: a commit as everybody else would get it, in a folder of its own that nobody else knows."""

import os
import re
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from untildone.errors import CommitUnfit
from untildone.git.discard import discard, remove_all_gone
from untildone.git.repository import NO_HOOKS, Repository
from untildone.git.room_content import borrow_files, lfs_files, refuse_lacking_filters, special_files, submodules
from untildone.git.room_entries import forget_entries, lock
from untildone.git.run import COMMIT_TIMEOUT, disk_trouble
from untildone.git.worktrees import linked
from untildone.ports.delivery import Checkout

_MADE = "made"
"""Lists, in the folder around a room, the git folders that may have an entry for it."""
# Content is taken from what is here already: nobody waits for a download in the middle of the night.
_OFFLINE = {"GIT_LFS_SKIP_SMUDGE": "1"}
_QUICK = ("-c", "checkout.workers=4")
_ADD = ("worktree", "add", "-q", "--detach", "--lock")


class WorktreeRooms:
    """ports.Rooms by `git worktree`: room ROOT/RUN/TOKEN/untildone-RUN-TOKEN, its entry locked while it is there."""

    def __init__(self, repository: Repository, *, folder: Path, below: str) -> None:
        """`folder` is this run's alone, in one that all runs share; `below` leads from the top to the agent's own."""
        self._repository = repository
        self._folder = folder.resolve()
        self._below = below
        self._run = re.sub(r"[^A-Za-z0-9_-]+", "-", folder.name)

    @asynccontextmanager
    async def open(
        self, commit: str, *, borrow: str | None = None, files: Sequence[str] = ()
    ) -> AsyncIterator[Checkout]:
        """A folder that holds exactly this commit."""
        token = secrets.token_hex(4)
        around = self._folder / token
        room = around / f"{self._name}{token}"
        made: list[Path] = []
        try:
            with disk_trouble(f"cannot make a fresh checkout in {around}"):
                around.mkdir(parents=True)
            notes = await self._fill(self._repository, room, commit, made)
            there = linked(self._repository, room)
            if borrow is not None and files:
                await borrow_files(there, borrow, files)
            if self._repository.private:
                self._hide(there.top)
            yield Checkout(folder=str(_inside(there.top, self._below)), notes=tuple(notes))
        finally:
            # Nothing here is awaited, so that nothing of it can be called off.
            self._leave(around, made)

    async def sweep(self) -> int:
        """Remove what a dead driver of this run left behind, and what is being removed anyway."""
        left = [place for place in _listed(self._folder) if place.is_dir()]
        for around in left:
            self._leave(around, [Path(line) for line in _lines(around / _MADE)])
        strays = forget_entries(self._repository.git_dir, self._folder, name=self._name)
        remove_all_gone(self._folder.parent)
        with suppress(OSError):
            self._folder.rmdir()
        return len(left) + strays

    @property
    def _name(self) -> str:
        return f"untildone-{self._run}-"

    async def _fill(self, source: Repository, room: Path, commit: str, made: list[Path]) -> list[str]:
        """Check a commit out, and what belongs to it; notes about what is not to be had."""
        await self._check_out(source, room, commit, made)
        there = linked(source, room)
        special = await special_files(there)
        await refuse_lacking_filters(there, special)
        notes = await lfs_files(there, special)
        for module, place, wanted in await submodules(source, there, special):
            name = place.relative_to(room)
            notes += [f"{name}: {note}" for note in await self._fill(module, place, wanted, made)]
        return notes

    async def _check_out(self, source: Repository, place: Path, commit: str, made: list[Path]) -> None:
        made.append(source.git_dir)
        with (
            disk_trouble(f"cannot make a fresh checkout in {place}"),
            (_around(place, self._folder) / _MADE).open("ab") as file,
        ):
            file.write(os.fsencode(source.git_dir) + b"\n")
        await source.git(
            *NO_HOOKS, *_QUICK, *_ADD, str(place), commit, env=_OFFLINE, timeout=COMMIT_TIMEOUT, dies_with_us=True
        )
        with disk_trouble(f"cannot lock {place}"):
            lock(
                linked(source, place).git_dir, f"run {self._run} of untildone examines {commit}; gone when that is done"
            )

    def _hide(self, room: Path) -> None:
        """The history of a plain folder is our own affair: to its checks it is a plain folder here, too."""
        with disk_trouble(f"cannot make a fresh checkout in {room}"):
            (room / ".git").unlink()

    def _leave(self, around: Path, made: Sequence[Path]) -> None:
        # In this order: whoever dies in between leaves the list of entries where a sweep finds it.
        for git_dir in dict.fromkeys(made):
            forget_entries(git_dir, around, name=f"{self._name}{around.name}")
        discard(around, into=self._folder.parent)
        with suppress(OSError):
            self._folder.rmdir()


def _inside(room: Path, below: str) -> Path:
    """The agent's folder in a room. It is made where the commit has none (it is empty); a link out of it is refused."""
    place = room / below
    with disk_trouble(f"cannot make {place}"):
        if not place.resolve().is_relative_to(room):
            raise CommitUnfit(f"{below} is a link that leads out of the repository: nothing can be checked there")
        place.mkdir(parents=True, exist_ok=True)
    return place


def _around(place: Path, folder: Path) -> Path:
    return folder / place.relative_to(folder).parts[0]


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(errors="surrogateescape").split("\n")[:-1]
    except OSError:
        return []

"""Fresh checkouts: a commit as everybody else would get it, in a folder of its own that nobody else knows."""

import os
import re
import secrets
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from untildone.core.printable import one_line
from untildone.errors import CommitUnfit, WorkspaceError
from untildone.git.discard import GONE, discard, remove_all_gone
from untildone.git.pristine import Pristine, pristine
from untildone.git.repository import NO_HOOKS, Repository
from untildone.git.room_content import lfs_files, refuse_lacking_filters, special_files, submodules
from untildone.git.room_entries import forget_entries, lock
from untildone.git.run import disk_trouble
from untildone.git.tree_copy import lay_over
from untildone.git.worktrees import linked
from untildone.ports.delivery import Checkout

_MADE = "made"
"""Lists, in the folder around a room, the git folders that may have an entry for it."""
_ADD = ("worktree", "add", "-q", "--detach", "--lock", "--no-checkout")


class WorktreeRooms:
    """ports.Rooms by `git worktree`: room ROOT/RUN/TOKEN/untildone-RUN-TOKEN, its entry locked while it is there."""

    def __init__(self, repository: Repository, *, folder: Path, below: str) -> None:
        """`folder` is this run's alone, in one that all runs share; `below` leads from the top to the agent's own."""
        self._repository = repository
        self._folder = folder.resolve()
        self._below = below
        self._name = _prefix(folder)

    @asynccontextmanager
    async def open(self, commit: str) -> AsyncIterator[Checkout]:
        """A folder that holds exactly this commit."""
        token = secrets.token_hex(4)
        around = self._folder / token
        room = around / f"{self._name}{token}"
        made: list[Path] = []
        try:
            with disk_trouble(f"cannot make a fresh checkout in {around}"):
                around.mkdir(parents=True)
            filled: list[Pristine] = []
            notes = await self._fill(self._repository, room, commit, made=made, filled=filled)
            if self._repository.private:
                self._hide(room)
            yield Checkout(
                folder=str(_inside(room, self._below)),
                notes=tuple(notes),
                keep=lambda: _each(one.keep for one in filled),
                put_back=lambda: _each(one.put_back for one in filled),
            )
        finally:
            # Nothing here is awaited, so that nothing of it can be called off.
            _leave(around, made)

    @asynccontextmanager
    async def furnished(self, commit: str) -> AsyncIterator[Checkout]:
        """The same with all that lies in the tree, ignored files included."""
        async with self.open(commit) as checkout:
            below = Path(self._below)
            room = Path(checkout.folder).parents[len(below.parts) - 1] if below.parts else Path(checkout.folder)
            await lay_over(self._repository.top, room)
            yield checkout

    async def sweep(self) -> int:
        """Remove what a dead driver of this run left behind, and what is being removed anyway."""
        left = [place for place in _listed(self._folder) if place.is_dir()]
        for around in left:
            _leave(around, _made_in(around))
        strays = forget_entries(self._repository.git_dir, self._folder, name=self._name)
        remove_all_gone(self._folder.parent)
        with suppress(OSError):
            self._folder.rmdir()
        return len(left) + strays

    async def _fill(
        self,
        source: Repository,
        room: Path,
        commit: str,
        *,
        made: list[Path],
        filled: list[Pristine],
    ) -> list[str]:
        """Check a commit out, and what belongs to it; notes about what is not to be had."""
        own = await self._check_out(source, room, commit, made)
        filled.append(own)
        listed = await own.listed()
        await own.prove(listed)
        there = linked(source, room)
        with disk_trouble(f"cannot make a fresh checkout in {room}"):
            shutil.copyfile(own.index, there.index)
        special = special_files(listed)
        await refuse_lacking_filters(there, special)
        notes, fetched = await lfs_files(there, special)
        await own.set_apart(fetched)
        for module, place, wanted in await submodules(source, there, special):
            name = place.relative_to(room)
            notes += [f"{name}: {note}" for note in await self._fill(module, place, wanted, made=made, filled=filled)]
        return notes

    async def _check_out(self, source: Repository, place: Path, commit: str, made: list[Path]) -> Pristine:
        around = _around(place, self._folder)
        made.append(source.git_dir)
        with disk_trouble(f"cannot make a fresh checkout in {place}"), (around / _MADE).open("ab") as file:
            file.write(os.fsencode(source.git_dir) + b"\n")
        asked = await source.git("rev-parse", "-q", "--verify", "--end-of-options", f"{commit}^{{commit}}", check=False)
        if asked.code:
            raise WorkspaceError(f"there is no commit {one_line(commit)} in {source.top}: nothing can be checked out")
        meant = asked.text
        # Its own git folder makes it a tree of the repository; the files come by way of one that nobody has set up.
        await source.git(*NO_HOOKS, *_ADD, str(place), meant)
        with disk_trouble(f"cannot lock {place}"):
            lock(
                linked(source, place).git_dir,
                f"run {self._folder.name} of untildone examines {commit}; gone when that is done",
            )
        own = await pristine(source, place, meant, around / f"git-{len(made)}")
        await own.check_out(meant, source)
        return own

    def _hide(self, room: Path) -> None:
        """The history of a plain folder is our own affair: to its checks it is a plain folder here, too."""
        with disk_trouble(f"cannot make a fresh checkout in {room}"):
            (room / ".git").unlink()


async def sweep_abandoned(root: Path, living: Callable[[], Awaitable[Collection[str]]]) -> int:
    """Remove the rooms of runs that nobody drives, of all that have theirs in `root`; returns how many there were.

    `living`: the ids of the runs that are driven. It is asked after the rooms were listed: only who drives a run
    makes rooms for it, so that those of a run that is not living then have no owner any more.
    """
    runs = [run for run in _listed(root) if not run.name.startswith(GONE)]
    there = [room for run in runs for room in _listed(run) if room.is_dir()]
    if not there:
        return 0
    alive = await living()
    left = [room for room in there if room.parent.name not in alive]
    for around in left:
        _leave(around, _made_in(around))
    remove_all_gone(root)
    return len(left)


async def _each(looks: Iterable[Callable[[], Awaitable[list[str]]]]) -> tuple[str, ...]:
    return tuple([name for look in looks for name in await look()])


def _prefix(folder: Path) -> str:
    """What the names of a run's rooms begin with: git names its entries for them."""
    return f"untildone-{re.sub(r'[^A-Za-z0-9_-]+', '-', folder.name)}-"


def _leave(around: Path, made: Sequence[Path]) -> None:
    # In this order: whoever dies in between leaves the list of entries where a sweep finds it.
    for git_dir in dict.fromkeys(made):
        forget_entries(git_dir, around, name=f"{_prefix(around.parent)}{around.name}")
    discard(around, into=around.parent.parent)
    with suppress(OSError):
        around.parent.rmdir()


def _made_in(around: Path) -> list[Path]:
    return [Path(line) for line in _lines(around / _MADE)]


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

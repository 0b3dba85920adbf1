"""Fresh checkouts: a commit as everybody else would get it, in a folder of its own that nobody else knows."""

import asyncio
import os
import re
import secrets
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from untildone.core.printable import one_line
from untildone.errors import CommitUnfit, WorkspaceError
from untildone.git.discard import GONE, discard, remove_all_gone
from untildone.git.pristine import Pristine, pristine
from untildone.git.proof import quoted
from untildone.git.repository import Repository
from untildone.git.room_content import lfs_files, refuse_lacking_filters, special_files, submodules
from untildone.git.room_entries import alternates, checked_out_in, common_folder
from untildone.git.run import disk_trouble
from untildone.git.status import readable
from untildone.git.tree_copy import lay_over
from untildone.ports.delivery import Bind, Checkout

_REFS = "--format=%(objectname) %(refname)"
_SHOWN = ("refs/heads", "refs/tags", "refs/remotes")
_WHOLE_NAME = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")
_LINK = re.compile(rb"(?:^|(?<=\0))120000 [0-9a-f]+ \d\t([^\0]+)")


class CommitRooms:
    """ports.Rooms: a room is the folder ROOT/RUN/TOKEN/untildone-RUN-TOKEN, and the git it sees lies beside it.

    The repository itself learns nothing of it: commands in a room get a git folder of their own, which borrows the
    objects of the repository, and whatever they write there goes with the room.
    """

    def __init__(self, repository: Repository, *, folder: Path, below: str) -> None:
        """`folder` is this run's alone, in one that all runs share; `below` leads from the top to the agent's own."""
        self._repository = repository
        self._folder = folder.resolve()
        self._below = below
        self._name = f"untildone-{re.sub(r'[^A-Za-z0-9_-]+', '-', folder.name)}-"

    @asynccontextmanager
    async def open(self, commit: str) -> AsyncIterator[Checkout]:
        """A folder that holds exactly this commit."""
        token = secrets.token_hex(4)
        around = self._folder / token
        room = around / f"{self._name}{token}"
        try:
            with disk_trouble(f"cannot make a fresh checkout in {around}"):
                around.mkdir(parents=True)
            content = _Content()
            await self._fill(self._repository, room, commit, content)
            yield Checkout(
                folder=str(_inside(room, self._below)),
                top=str(room),
                around=str(around),
                trees=tuple(map(str, self._trees())),
                git=tuple(content.git),
                leads_out=tuple(content.leads_out),
                notes=tuple(content.notes),
                keep=lambda: _each(one.keep for one in content.filled),
                put_back=lambda: _each(one.put_back for one in content.filled),
            )
        finally:
            # Nothing here is awaited, so that nothing of it can be called off.
            _leave(around)

    @asynccontextmanager
    async def furnished(self, commit: str) -> AsyncIterator[Checkout]:
        """The same with all that lies in the tree, ignored files included."""
        async with self.open(commit) as checkout:
            await lay_over(self._repository.top, Path(checkout.top))
            yield checkout

    async def sweep(self) -> int:
        """Remove what a dead driver of this run left behind, and what is being removed anyway."""
        left = [place for place in _listed(self._folder) if place.is_dir()]
        for around in left:
            _leave(around)
        remove_all_gone(self._folder.parent)
        with suppress(OSError):
            self._folder.rmdir()
        return len(left)

    def _trees(self) -> list[Path]:
        own = self._repository
        others = [] if own.private else checked_out_in(own.git_dir)
        return list(dict.fromkeys([own.top, *others]))

    async def _fill(
        self,
        source: Repository,
        room: Path,
        commit: str,
        content: "_Content",
    ) -> None:
        """Check a commit out, and what belongs to it."""
        around = self._folder / room.relative_to(self._folder).parts[0]
        number = len(content.filled) + 1
        own = await self._check_out(source, room, commit, around / f"git-{number}")
        content.filled.append(own)
        listed = await own.listed()
        await own.prove(listed)
        if not self._repository.private:  # the history of a plain folder is our own affair
            content.git += await _git_for_commands(source, own, room, around, number)
        special = special_files(listed)
        await refuse_lacking_filters(own.repository, special, source)
        notes, fetched = await lfs_files(own.repository, special, source)
        await own.set_apart(fetched)
        name = room.relative_to(around).parts[1:]
        content.notes += [f"{Path(*name)}: {note}" for note in notes] if name else notes
        content.leads_out += await asyncio.to_thread(_links_out, room, listed)
        modules, empty = await submodules(source, room, special)
        content.notes += empty
        for module, place, wanted in modules:
            await self._fill(module, place, wanted, content)

    async def _check_out(self, source: Repository, place: Path, commit: str, git_dir: Path) -> Pristine:
        name = commit if _WHOLE_NAME.fullmatch(commit) else await _whole_name(source, commit)
        with disk_trouble(f"cannot make a fresh checkout in {place}"):
            place.mkdir(parents=True, exist_ok=True)
        own = await pristine(source, place, name, git_dir)
        try:
            await own.check_out(name, source)
        except CommitUnfit:
            await _whole_name(source, commit)  # there may be none, which is something else
            raise
        return own


class _Content:
    """What a room was filled with."""

    def __init__(self) -> None:
        self.filled: list[Pristine] = []
        self.git: list[Bind] = []
        self.notes: list[str] = []
        self.leads_out: list[str] = []


async def _whole_name(source: Repository, commit: str) -> str:
    args = ("rev-parse", "-q", "--verify", "--end-of-options", f"{commit}^{{commit}}")
    asked = await source.git(*args, check=False)
    if asked.code:
        raise WorkspaceError(f"there is no commit {one_line(commit)} in {source.top}: nothing can be checked out")
    return asked.text


async def _git_for_commands(source: Repository, own: Pristine, room: Path, around: Path, number: int) -> list[Bind]:
    """A git folder that commands may write to: the commit, the branches and tags, and objects of the repository.

    It is not the one that we look with: what a check sets there, such as a filter, must never run outside.
    """
    folder, borrowed = around / f"seen-{number}", around / f"objects-{number}"
    objects = common_folder(source.git_dir) / "objects"
    told = await source.git("for-each-ref", _REFS, *_SHOWN, check=False)
    with disk_trouble(f"cannot make a fresh checkout in {room}"):
        shutil.copytree(own.index.parent, folder)
        # By a link, which gives way to the objects themselves where the repository cannot be seen.
        borrowed.symlink_to(objects)
        (folder / "objects/info/alternates").write_bytes(quoted(os.fsencode(borrowed)) + b"\n")
        (folder / "packed-refs").write_bytes(told.out)
        with suppress(FileNotFoundError):
            shutil.copyfile(common_folder(source.git_dir) / "shallow", folder / "shallow")
        (room / ".git").write_bytes(b"gitdir: %b\n" % os.fsencode(folder))
    further = [Bind(source=str(place), place=str(place)) for place in alternates(objects)]
    lent = Bind(source=str(objects), place=str(borrowed))
    return [Bind(source=str(folder), place=str(folder), writable=True), lent, *further]


def _links_out(room: Path, listed: bytes) -> list[str]:
    """Links of the commit that lead out of the checkout, whether anything is there or not."""
    out = []
    for raw in _LINK.findall(listed):
        path = room / os.fsdecode(raw)
        with suppress(OSError):
            if not Path(os.path.normpath(path.parent / path.readlink())).is_relative_to(room):
                out.append(readable(raw))
    return out


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
        _leave(around)
    remove_all_gone(root)
    return len(left)


async def _each(looks: Iterable[Callable[[], Awaitable[list[str]]]]) -> tuple[str, ...]:
    return tuple([name for look in looks for name in await look()])


def _leave(around: Path) -> None:
    discard(around, into=around.parent.parent)
    with suppress(OSError):
        around.parent.rmdir()


def _inside(room: Path, below: str) -> Path:
    """The agent's folder in a room. It is made where the commit has none (it is empty); a link out of it is refused."""
    place = room / below
    with disk_trouble(f"cannot make {place}"):
        if not place.resolve().is_relative_to(room):
            raise CommitUnfit(f"{below} is a link that leads out of the repository: nothing can be checked there")
        place.mkdir(parents=True, exist_ok=True)
    return place


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []

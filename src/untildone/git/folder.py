"""A folder as git sees it: what differs from the last commit, and what no commit and no snapshot holds."""

import asyncio
import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from untildone.core.base_judges import BaseJudges
from untildone.core.diffs import Difference, change_name
from untildone.core.findings import FileChange, Finding
from untildone.core.policy import RunSpec
from untildone.core.progress import START
from untildone.git.bundle import PackedTree, pack_tree
from untildone.git.changes import added_text, changed_files, further_judges, guarded_changes, read_files
from untildone.git.difference import ADDED, MOST_NAMED, difference
from untildone.git.leaks import committed_secrets
from untildone.git.recombined import recombined
from untildone.git.repository import Repository
from untildone.git.status import Status, stamp_all, tree_state
from untildone.git.unfit import find_unfit
from untildone.ports import TreeState

_STAMPED_AT_ONCE = 500
_REMEMBERED = 4


class GitFolder:
    """Looks at a tree and its commits, and remembers what it saw."""

    def __init__(self, spec: RunSpec, repository: Repository) -> None:
        self._spec = spec
        self._repository = repository
        self._top = os.fsencode(repository.top)
        self._notes = self._in_tree(spec.notes_file)
        self._seen: dict[str, dict[bytes, str]] = {}

    async def changes(self, start: str, commit: str, wanted: Callable[[str], bool]) -> list[FileChange]:
        """How the wanted files differ."""
        return await guarded_changes(self._repository, start, commit, wanted)

    async def changed_files(self, start: str, commit: str) -> list[FileChange]:
        """Every file that differs, without its text."""
        return await changed_files(self._repository, start, commit)

    async def read_files(self, commit: str, paths: Sequence[str]) -> dict[str, str]:
        """The texts of those files that a commit has, by their names from the top."""
        below = Path(self._spec.cwd).resolve().relative_to(self._repository.top)
        here = [os.path.normpath(below / path) for path in paths]
        return await read_files(self._repository, commit, list(dict.fromkeys((*paths, *here))))

    async def further_judges(self, start: str, commit: str, judges: Callable[[str], bool]) -> list[str]:
        """What judges and is not as it was, although its own name does not say so."""
        return await further_judges(self._repository, start, commit, judges)

    async def added_text(self, start: str, commit: str, words: str) -> list[tuple[str, int, str]]:
        """Pieces of text that are new, in files where new lines match."""
        return await added_text(self._repository, start, commit, words)

    async def recombined(self, commit: str, other: str, judges: BaseJudges) -> str:
        """A commit with the judges of another one."""
        return await recombined(self._repository, commit, other, judges)

    async def difference(self, before: str, after: str) -> Difference:
        """How the trees of two commits differ."""
        return await difference(self._repository, before, after)

    async def content(self, start: str, commit: str) -> str:
        """A name for the files of a commit: how they differ from those the run began with."""
        differ = ("diff-tree", "-r", "-z", "--raw", "--no-renames")
        told = await self._repository.git(*differ, start, commit, "--", *self._but_notes())
        return hashlib.sha256(told.out).hexdigest()[:16] if told.out else START

    async def change(self, before: str, after: str) -> str:
        """A name for what is added between two commits."""
        told = await self._repository.git(*ADDED, before, after, "--", *self._but_notes(), most=MOST_NAMED)
        return change_name(told.out.decode("utf-8", "replace")) if len(told.out) < MOST_NAMED else ""

    async def leaks(self, start: str, commit: str, waived: Sequence[str] = ()) -> list[Finding]:
        """Keys and tokens that commits since `start` added."""
        if self._repository.private:
            return []
        return await committed_secrets(self._repository, start, commit, (*self._spec.contract.waive, *waived))

    async def packed(
        self, run_id: str, known: str = "", *, tells: Callable[[bytes], bool] = lambda _: False
    ) -> PackedTree | None:
        """The tree as a parcel for another machine; None when it is as `known` says. What `tells` a secret stays."""
        status = await self._status()
        return await pack_tree(
            self._repository,
            status,
            run_id=run_id,
            cwd=Path(self._spec.cwd),
            remote=self._spec.landing.remote,
            leave_out=await self._left_out(status),
            unnamed=[] if self._notes is None else [self._notes],
            known=known,
            tells=tells,
        )

    def _but_notes(self) -> list[str]:
        return [] if self._notes is None else [f":(top,exclude,literal){os.fsdecode(self._notes)}"]

    async def _status(self) -> Status:
        ignore = () if self._notes is None or self._spec.commit_notes else (self._notes,)
        return await self._repository.status(ignore)

    async def _stamps(self, status: Status) -> dict[bytes, str]:
        if len(status.paths) <= _STAMPED_AT_ONCE and not status.nested:
            return stamp_all(self._top, status.paths)
        return await asyncio.to_thread(stamp_all, self._top, status.paths)

    def _remember(self, status: Status, stamps: dict[bytes, str]) -> TreeState:
        tree = tree_state(status, stamps, named_branch=not self._repository.private)
        self._seen[tree.fingerprint] = stamps
        while len(self._seen) > _REMEMBERED:
            del self._seen[next(iter(self._seen))]
        return tree

    async def _left_out(self, status: Status) -> list[bytes]:
        """What neither a commit nor a snapshot holds."""
        unfit = await find_unfit(self._repository, await self._stamps(status))
        return [*self._never_added(status), *unfit.paths]

    def _never_added(self, status: Status) -> list[bytes]:
        """What `add` must not take: it would take tracked notes, excluded or not."""
        notes = [] if self._notes is None or self._spec.commit_notes else [self._notes]
        return [*notes, *status.nested]

    def _given_files(self) -> set[bytes]:
        """Files the user hands to the run are there on purpose: they are no reason to refuse."""
        given = (self._spec.task_file, self._spec.knowledge_file, self._spec.notes_file)
        return {path for name in given if name and (path := self._in_tree(name)) is not None}

    def _in_tree(self, name: str) -> bytes | None:
        """A path relative to the agent's folder as git writes it, or None when it lies outside of the tree."""
        place = Path(os.path.normpath(Path(self._spec.cwd).resolve() / name))
        if not place.is_relative_to(self._repository.top):
            return None
        return os.fsencode(place.relative_to(self._repository.top))


def committable(status: Status) -> list[bytes]:
    """A repository inside the repository has its own commits; adding it would only record a dead link."""
    return [path for path in status.paths if not path.endswith(b"/")]

"""The folder the agent works in: what changed there, committed or saved, and never lost."""

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from untildone.core.diffs import Difference
from untildone.core.findings import FileChange, Finding
from untildone.core.policy import RunSpec
from untildone.errors import DirtyWorkspace, WorkspaceError
from untildone.git.branch import Place, settle_on_branch
from untildone.git.changes import guarded_changes
from untildone.git.commit import Committed, clean_message, commit_all, find_identity
from untildone.git.difference import difference
from untildone.git.exclude import set_excluded
from untildone.git.history import Made, made_between
from untildone.git.iteration_branch import begin_branch, take_back_empty
from untildone.git.lander import GitLander
from untildone.git.leaks import committed_secrets
from untildone.git.recorded import lost_commit, moved_line, record_seen
from untildone.git.repository import Repository, open_repository
from untildone.git.rooms import WorktreeRooms
from untildone.git.run import disk_trouble
from untildone.git.snapshot import (
    SavedState,
    create_ref,
    has_ref,
    iteration_ref,
    save_tree,
    saved_states,
    start_ref,
)  # fmt: skip
from untildone.git.status import STATUS, Status, in_one_line, parse_status, readable, stamp_all, tree_state
from untildone.git.unfit import Unfit, find_unfit
from untildone.ports import Prepared, Settled, TreeState

SNAPSHOT_FILES = 50

_STAMPED_AT_ONCE = 500
_REMEMBERED = 4


async def open_workspace(spec: RunSpec, *, run_id: str, private: Path) -> "GitWorkspace":
    """The workspace of a run; `private` is where the history of plain folders is kept."""
    return GitWorkspace(spec, run_id=run_id, repository=await open_repository(Path(spec.cwd), private=private))


class GitWorkspace:
    """ports.Workspace on a git repository, or on a plain folder with a private repository beside it."""

    def __init__(self, spec: RunSpec, *, run_id: str, repository: Repository) -> None:
        self._spec = spec
        self._run_id = run_id
        self._repository = repository
        self._top = os.fsencode(repository.top)
        self._notes = self._in_tree(spec.notes_file)
        self._identity: tuple[str, ...] | None = None
        self._waived: tuple[str, ...] = spec.contract.waive
        """Files a human let hold what looks like a key."""
        self._seen: dict[str, dict[bytes, str]] = {}
        self._recorded: SavedState | None = None
        self._kept = ""
        """The fingerprint of the tree that was saved last."""
        self._base: str | None = spec.landing.base

    def rooms(self, folder: Path) -> WorktreeRooms:
        """Fresh checkouts of this repository, made in `folder`."""
        below = Path(self._spec.cwd).resolve().relative_to(self._repository.top)
        return WorktreeRooms(self._repository, folder=folder / self._run_id, below=str(below))

    def lander(self) -> GitLander:
        """Brings what is committed here to its base."""
        return GitLander(self._repository, self._spec, run_id=self._run_id, base=lambda: self._base)

    async def subject(self) -> str | None:
        """The commit to examine."""
        status = await self._status()
        # Without any commit yet, what lies there is all there is to examine, even if it is nothing.
        if status.head is not None and (self._spec.commit or not _committable(status)):
            return status.head
        return await save_tree(
            self._repository, parent=status.head, message="What is examined", leave_out=await self._left_out(status)
        )

    async def changes(self, start: str, commit: str, wanted: Callable[[str], bool]) -> list[FileChange]:
        """How the wanted files differ."""
        return await guarded_changes(self._repository, start, commit, wanted)

    async def begin_iteration(self, number: int) -> str | None:
        """Switch to the branch of this iteration, where each one has its own."""
        if not self._branches_each:
            return None
        return await begin_branch(
            self._repository,
            await self._status(),
            prefix=self._spec.branch_prefix,
            run_id=self._run_id,
            number=number,
            base=self._base,
            day=time.strftime("%Y-%m-%d", time.gmtime()),
        )

    async def leave_iteration(self) -> str | None:
        """Take back the branch of an iteration that committed nothing; returns the branch that is current now."""
        status = await self._status()
        if not self._branches_each:
            return status.branch
        return await take_back_empty(self._repository, status, prefix=self._spec.branch_prefix, run_id=self._run_id)

    async def prepare(self) -> Prepared:
        """Check, snapshot, exclude the notes, choose the branch."""
        status = await self._status()
        begun = await has_ref(self._repository, start_ref(self._run_id))
        lines = [] if begun else await self._begin(status)
        if self._notes is not None:
            with disk_trouble(f"cannot write {self._repository.exclude}"):
                set_excluded(self._repository.exclude, os.fsdecode(self._notes), excluded=not self._spec.commit_notes)
        place = await self._choose_where_commits_go(status)
        self._base = place.base
        lines += place.lines
        states = await saved_states(self._repository, self._run_id)
        if not self._repository.private:
            lines += await self._look_for_strange_commits(states)
        start = next((state.commit for state in states if state.number == 0 and not state.seen), None)
        return Prepared(lines=tuple(lines), branch=place.branch, base=place.base, start=start)

    async def observe(self) -> TreeState:
        """The tree as it is now, with one git call."""
        status = await self._status()
        return self._remember(status, await self._stamps(status))

    async def difference(self, before: str, after: str) -> Difference:
        """How the trees of two commits differ."""
        return await difference(self._repository, before, after)

    async def leaks(self, start: str, commit: str, waived: Sequence[str] = ()) -> list[Finding]:
        """Keys and tokens that commits since `start` added."""
        if self._repository.private:
            return []
        return await committed_secrets(self._repository, start, commit, (*self._spec.contract.waive, *waived))

    async def settle(
        self, before: TreeState, *, iteration_num: int, message: str, waived: Sequence[str] = ()
    ) -> Settled:
        """Compare with `before`; commit what is not committed yet, if commits are wanted."""
        self._waived = (*self._spec.contract.waive, *waived)
        seen = self._seen.get(before.fingerprint, {})
        status = await self._status()
        stamps = await self._stamps(status)
        tree = self._remember(status, stamps)
        changed = tree.fingerprint != before.fingerprint
        # Work an earlier iteration could not commit (a fault, a hook) is landed by the next one that succeeds.
        if not changed and not (self._spec.commit and _committable(status)):
            return Settled(tree=tree, changed=False)
        text = clean_message(message, otherwise=f"Iteration {iteration_num}")
        unfit = await find_unfit(self._repository, stamps)
        done, made, lost = await asyncio.gather(
            self._commit_leftovers(status, unfit, text),
            made_between(self._repository, before.head, tree.head),
            self._lost_commit(tree.head),
        )
        differing = {readable(path) for path, _ in seen.items() ^ stamps.items()}
        settled = Settled(
            tree=await self._after(done, status, stamps, tree),
            changed=changed,
            files_changed=done.files or len(differing),
            commit=done.commit,
            message=text.partition("\n")[0] if done.commit else "",
            warning="; ".join(filter(None, (lost, done.warning))),
        )
        if self._spec.commit and not done.nothing:
            settled = replace(settled, left=tuple(path for path in settled.tree.dirty if not path.endswith("/")))
        settled = await self._keep(settled, status, unfit, iteration_num)
        return _with_agents_own(settled, made, before, {readable(path) for path in _committable(status)})

    async def snapshot(self, *, iteration_num: int, reason: str) -> tuple[str, str, tuple[str, ...]] | None:
        """Save uncommitted work under `refs/untildone/<run>/<iteration>`; None when there is none."""
        status = await self._status()
        if not _committable(status):
            return None
        ref = iteration_ref(self._run_id, iteration_num)
        return await self._save(status, ref, f"Unfinished work of iteration {iteration_num}: {reason}")

    async def _begin(self, status: Status) -> list[str]:
        """The first start of this run: the user's own work is not to be mixed with the agent's by accident."""
        repository = self._repository
        if repository.private:
            return await self._begin_private(status)
        users = [path for path in _committable(status) if path not in self._given_files()]
        if users and not self._spec.keep_dirty:
            raise DirtyWorkspace(
                f"uncommitted work in {repository.top}: {in_one_line(map(readable, users))}; "
                "commit it, or start with `--dirty keep`"
            )
        ref = start_ref(self._run_id)
        if not users:
            start = status.head or await save_tree(repository, parent=None, message="The tree as the run found it")
            await create_ref(repository, ref, start)
            return []
        await self._save(status, ref, "The user's uncommitted work at the start")
        sweep = "; the first commit of this run will contain them" if self._spec.commit else ""
        return [f"{_files(len(users))} of yours not committed yet: saved under {ref}{sweep}"]

    async def _begin_private(self, status: Status) -> list[str]:
        """A plain folder has no commits of the user's: what is there now is the point to compare with."""
        head = status.head
        if _committable(status) or head is None:
            await self._save_start_of_folder(status)
        else:
            await create_ref(self._repository, start_ref(self._run_id), head)
        return [f"not a git repository: history is kept outside of the folder, in {self._repository.git_dir}"]

    async def _save_start_of_folder(self, status: Status) -> None:
        left_out = await self._left_out(status)
        done = await self._commit("The folder as the run found it\n", left_out)
        start = done.commit or await save_tree(
            self._repository, parent=status.head, message="The folder as the run found it", leave_out=left_out
        )
        await create_ref(self._repository, start_ref(self._run_id), start)

    async def _look_for_strange_commits(self, states: list[SavedState]) -> list[str]:
        """Lines about commits made while no driver looked: by a person, or by a git that a crash left behind."""
        asked = await self._repository.git("rev-parse", "-q", "--verify", "HEAD", check=False)
        head = asked.text if asked.code == 0 else None
        self._recorded = states[-1] if states else None
        line = "" if self._recorded is None else await moved_line(self._repository, self._recorded, head)
        if line and head is not None:
            self._recorded = await record_seen(self._repository, self._run_id, self._recorded, head)
        return [line] if line else []

    async def _lost_commit(self, head: str | None) -> str:
        if self._recorded is None or self._recorded.head == head:
            return ""
        return await lost_commit(self._repository, self._recorded, head)

    async def _keep(self, settled: Settled, status: Status, unfit: Unfit, iteration_num: int) -> Settled:
        """Put the tree as the iteration left it under a ref of its own: where it is clean, that is the commit."""
        tree = settled.tree
        if tree.fingerprint == self._kept:
            return settled
        is_clean = tree.head is not None and all(path.endswith("/") for path in tree.dirty)
        try:
            commit = tree.head if is_clean else None
            if commit is None:
                left_out = [*self._never_added(status), *unfit.paths]
                message = f"The tree after iteration {iteration_num}"
                commit = await save_tree(self._repository, parent=tree.head, message=message, leave_out=left_out)
            ref = await create_ref(self._repository, iteration_ref(self._run_id, iteration_num), commit)
        except WorkspaceError as trouble:
            unsaved = f"the tree could not be saved: {trouble}"
            return replace(settled, warning="; ".join(filter(None, (settled.warning, unsaved))))
        self._kept = tree.fingerprint
        previous = self._recorded.commit if self._recorded else start_ref(self._run_id)
        self._recorded = SavedState(number=iteration_num, ref=ref, commit=commit, head=tree.head)
        return replace(settled, snapshot=ref, snapshot_commit=commit, previous=previous)

    async def _choose_where_commits_go(self, status: Status) -> Place:
        spec = self._spec
        if self._repository.private:
            return Place(lines=(), branch=None, base=None)
        if not spec.commit:
            return Place(lines=(), branch=status.branch, base=spec.landing.base)
        place = await settle_on_branch(self._repository, status, spec, run_id=self._run_id)
        self._identity = await find_identity(self._repository)
        if not self._identity:
            return place
        nameless = "git has no user.name and user.email here: commits carry the name untildone"
        return replace(place, lines=(*place.lines, nameless))

    @property
    def _branches_each(self) -> bool:
        return self._spec.branch_per == "iteration" and self._spec.commit and not self._repository.private

    async def _status(self) -> Status:
        answer = await self._repository.git(*STATUS)
        ignore = () if self._notes is None or self._spec.commit_notes else (self._notes,)
        return parse_status(answer.out, ignore=ignore)

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

    async def _commit_leftovers(self, status: Status, unfit: Unfit, message: str) -> Committed:
        paths = set(_committable(status))
        if not self._spec.commit or not paths:
            return Committed()
        obstacle = self._obstacle(status)
        if obstacle:
            return Committed(warning=obstacle)
        if paths <= unfit.paths:
            return Committed(warning=unfit.reason, complete=False)
        done = await self._commit(message, [*self._never_added(status), *unfit.paths])
        warning = "; ".join(filter(None, (done.warning, unfit.reason, unfit.warning if done.commit else "")))
        if not unfit.paths:
            return replace(done, warning=warning)
        return replace(done, warning=warning, complete=False, nothing=False)

    async def _commit(self, message: str, leave_out: list[bytes]) -> Committed:
        if self._identity is None:
            self._identity = await find_identity(self._repository)
        return await commit_all(
            self._repository, message, identity=self._identity, leave_out=leave_out, let_pass=self._waived
        )

    async def _after(self, done: Committed, status: Status, stamps: dict[bytes, str], tree: TreeState) -> TreeState:
        """The tree after a commit: known without asking git, unless a hook touched the files."""
        touched = await self._stamps(status) != stamps
        if touched or (done.commit and not done.complete):
            return await self.observe()
        if done.commit is None:
            return tree
        left = Status(head=done.commit, branch=status.branch, paths=status.nested)
        return self._remember(left, {path: stamps[path] for path in left.paths})

    async def _save(self, status: Status, ref: str, message: str) -> tuple[str, str, tuple[str, ...]]:
        left_out = await self._left_out(status)
        commit = await save_tree(self._repository, parent=status.head, message=message, leave_out=left_out)
        ref = await create_ref(self._repository, ref, commit)
        return ref, commit, tuple(readable(path) for path in _committable(status)[:SNAPSHOT_FILES])

    def _obstacle(self, status: Status) -> str:
        """What the agent left half-done that a commit would make worse."""
        if status.unmerged:
            return f"not committed: merge conflicts are unresolved in {in_one_line(map(readable, status.unmerged))}"
        if any((self._repository.git_dir / mark).exists() for mark in ("rebase-merge", "rebase-apply")):
            return "not committed: a rebase is in progress; finish it with `git rebase --continue` or `--abort`"
        return ""

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


def _committable(status: Status) -> list[bytes]:
    """A repository inside the repository has its own commits; adding it would only record a dead link."""
    return [path for path in status.paths if not path.endswith(b"/")]


def _with_agents_own(settled: Settled, made: Made, before: TreeState, leftovers: set[str]) -> Settled:
    """Add what the agent committed by itself and where it went."""
    now = settled.tree.branch
    if now != before.branch:
        moved = f"the agent moved from branch {before.branch} to {now or 'a detached HEAD'}"
        settled = replace(settled, warning="; ".join(filter(None, (moved, settled.warning))))
    if not made.commits:
        return settled
    return replace(
        settled,
        by="agent",
        commit=settled.commit or settled.tree.head,
        message=settled.message or made.subject,
        files_changed=len(made.files | leftovers),
    )


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count} files"

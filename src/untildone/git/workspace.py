"""The folder the agent works in: what changed there, committed or saved, and never lost."""

import asyncio
import os
import time
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from untildone.core.figures import BRANCH_SWITCHED, GIT_LOCKED
from untildone.core.policy import RunSpec
from untildone.core.printable import one_line
from untildone.errors import DirtyWorkspace, GitLocked, WorkspaceError
from untildone.git.branch import Origin, Place, forget_merged, origins_of, settle_on_branch, take_back_unused
from untildone.git.commit import Committed, clean_message, commit_all, find_identity
from untildone.git.exclude import set_excluded
from untildone.git.filters import without_programs_of_trees
from untildone.git.folder import GitFolder, committable
from untildone.git.history import made_between
from untildone.git.home import Home, elsewhere_line, find_home, go_back_to, go_to_base, move_in, still_home
from untildone.git.iteration_branch import begin_branch, take_back_empty
from untildone.git.landable import refuse_vain_landing
from untildone.git.lander import GitLander
from untildone.git.locks import clear_abandoned, wait_for_commit_locks
from untildone.git.odd_files import ASIDE, put_aside
from untildone.git.recorded import lost_commit, moved_line, record_seen
from untildone.git.repository import UNKEPT, Keeping, Repository, open_repository
from untildone.git.rooms import CommitRooms
from untildone.git.run import disk_trouble
from untildone.git.settling import half_way, with_agents_own
from untildone.git.snapshot import (
    SavedState,
    create_ref,
    has_ref,
    iteration_ref,
    save_tree,
    saved_states,
    start_ref,
)  # fmt: skip
from untildone.git.status import Status, in_one_line, readable
from untildone.git.taking import mark_found, mark_left, mark_stop, strange_files, with_others_work
from untildone.git.unfit import Unfit, find_unfit
from untildone.ports import Obstacle, Prepared, Resumption, Settled, Sight, TreeState

SNAPSHOT_FILES = 50


async def open_workspace(spec: RunSpec, *, run_id: str, private: Path, keeping: Keeping = UNKEPT) -> "GitWorkspace":
    """The workspace of a run; `private` is where the history of plain folders is kept."""
    repository = await open_repository(Path(spec.cwd), private=private)
    if keeping.inside is not None:
        repository = await without_programs_of_trees(repository)
    return GitWorkspace(spec, run_id=run_id, repository=replace(repository, keeping=keeping))


class GitWorkspace(GitFolder):
    """ports.Workspace on a git repository, or on a plain folder with a private repository beside it."""

    def __init__(self, spec: RunSpec, *, run_id: str, repository: Repository) -> None:
        super().__init__(spec, repository)
        self._run_id = run_id
        self._identity: tuple[str, ...] | None = None
        self._waived: tuple[str, ...] = spec.contract.waive
        """Files a human let hold what looks like a key."""
        self._recorded: SavedState | None = None
        self._kept = ""
        """The fingerprint of the tree that was saved last."""
        self._base: str | None = spec.landing.base
        self._home: Home | None = None
        """Where commits go; None: not prepared, or nothing is committed to branches here."""
        self._visit: Status | None = None
        """What a visit found, to go back to."""
        self._taken = False
        """The folder is this run's to work in."""
        self._known = Resumption()
        """What the log says about the run."""

    def rooms(self, folder: Path) -> CommitRooms:
        """Fresh checkouts of this repository, made in `folder`."""
        below = Path(self._spec.cwd).resolve().relative_to(self._repository.top)
        return CommitRooms(self._repository, folder=folder / self._run_id, below=str(below))

    def lander(self) -> GitLander:
        """Brings what is committed here to its base."""
        return GitLander(self._repository, self._spec, run_id=self._run_id, base=lambda: self._base)

    async def begin_iteration(self, number: int) -> str | None:
        """Switch to the branch of this iteration, where each one has its own."""
        if not self._branches_each:
            return None
        status = await self._status()
        if self._home and await still_home(self._repository, status, self._home) is None:
            return None  # on a strange branch none is made: it would leave out all that the run did before
        branch = await begin_branch(
            self._repository,
            status,
            prefix=self._spec.branch_prefix,
            run_id=self._run_id,
            number=number,
            base=self._base,
            day=time.strftime("%Y-%m-%d", time.gmtime()),
        )
        if branch is not None:
            self._home = await find_home(self._repository, branch, self._run_id)
        return branch

    async def leave_iteration(self) -> str | None:
        """Take back the branch of an iteration that committed nothing; returns the branch that is current now."""
        status = await self._status()
        if not self._branches_each or (self._visit and not self._taken):
            return status.branch
        return await take_back_empty(self._repository, status, prefix=self._spec.branch_prefix, run_id=self._run_id)

    async def prepare(self, known: Resumption | None = None) -> Prepared:
        """Check, snapshot, exclude the notes, choose the branch."""
        known = self._known = replace(self._known, **_said(known or Resumption()))
        status = await self._status()
        await refuse_vain_landing(self._repository, status, self._spec, known.branch or status.branch)
        begun = await has_ref(self._repository, start_ref(self._run_id))
        if known.visits and begun:
            self._visit = status
            self._base = self._spec.landing.base or known.base
            states = await saved_states(self._repository, self._run_id)
            return self._prepared((), Place(lines=(), branch=known.branch, base=self._base), states)
        lines = await clear_abandoned(self._repository.folders)
        lines += await clear_abandoned(self._repository.agents.folders)
        lines += await self._take_up(status, known) if begun else await self._begin(status)
        if self._notes is not None:
            with disk_trouble(f"cannot write {self._repository.exclude}"):
                set_excluded(self._repository.exclude, os.fsdecode(self._notes), excluded=not self._spec.commit_notes)
        place = await self._choose_where_commits_go(status, known.branch)
        self._base, self._taken = self._spec.landing.base or known.base or place.base, True
        lines += place.lines
        states = await saved_states(self._repository, self._run_id)
        if not self._repository.private:
            lines += await self._look_for_strange_commits(states)
        judged_from = await self._others_work(known) if begun else None
        return replace(self._prepared([*lines, *self._cleared()], place, states), judged_from=judged_from)

    def _prepared(self, lines: Sequence[str], place: Place, states: Sequence[SavedState]) -> Prepared:
        start = next((state.commit for state in states if state.number == 0 and not state.seen), None)
        history = str(self._repository.git_dir) if self._repository.private else ""
        newest = max((state.number for state in states), default=0)
        return Prepared(
            lines=tuple(lines), branch=place.branch, base=place.base, start=start, history=history, newest=newest
        )

    async def _others_work(self, known: Resumption) -> str | None:
        """What the work is compared with, if people changed anything since the last driver left in order."""
        if known.broken_off or known.left is None or known.judged_from is None:
            return None
        now = await self._as_it_is(await self._status(), "What was found")
        if now is None:
            return None
        return await with_others_work(self._repository, self._run_id, known.judged_from, known.left, now)

    async def _as_it_is(self, status: Status, message: str) -> str | None:
        """A commit of the tree: HEAD where everything is committed."""
        if not committable(status):
            return status.head
        left_out = await self._left_out(status)
        return await save_tree(self._repository, parent=status.head, message=message, leave_out=left_out)

    def _cleared(self) -> list[str]:
        """Lines about locks that were removed, each told once."""
        told = self._repository.removed_locks[:]
        self._repository.removed_locks.clear()
        return told

    async def left(self) -> str | None:
        """A commit of the tree as the driver leaves it."""
        if not self._taken:
            return self._known.left
        status = await self._status()
        commit = await self._as_it_is(status, "What the run left")
        if commit is not None and commit != status.head:
            await mark_stop(self._repository, self._run_id, commit)
        return commit

    async def leave(self, *, landed: bool = False) -> str:
        """Remember what lies there uncommitted; go to the branch that a visit found, or where the work has landed."""
        line = await self._leave_branch(landed=landed)
        await self._repository.keep_agents_branches()
        made = await self._repositories_made()
        return "; ".join(filter(None, (*self._cleared(), *made, line)))

    async def _repositories_made(self) -> list[str]:
        """Lines about folders that became repositories: git that a person starts there obeys what an agent wrote."""
        repository = self._repository
        if repository.keeping.inside is None:
            return []
        lines = []
        for place in map(Path, (await repository.put_odd_aside()).repositories):
            head = place.relative_to(repository.top) / "HEAD"
            was_there = ("cat-file", "-e", f"{start_ref(self._run_id)}:{head.as_posix()}")
            if (await repository.git(*was_there, check=False)).code == 0:
                continue
            if place == repository.top and repository.private:
                put_aside(str(place / "HEAD"))
                lines.append(f"{place} looked like a repository of git's: HEAD in it has {ASIDE} added now")
            elif place != repository.top:
                said = one_line(str(head.parent))
                lines.append(
                    f"{said} is a repository whose settings the agent could write: git started there obeys them"
                )
        return lines

    async def _leave_branch(self, *, landed: bool) -> str:
        status = await self._status()
        if self._taken and committable(status) and not self._repository.private:
            strange, now = await self._strange_files(status)
            if strange:
                await mark_left(self._repository, self._run_id, now)
        went_back = self._visit is not None and self._taken and not status.paths
        if went_back and self._visit and (line := await go_back_to(self._repository, status, self._visit)):
            return line
        if self._repository.private or not (self._spec.commit and self._spec.branch):
            return ""
        if landed and self._base is not None:
            in_own_tree = self._spec.repository is not None
            is_own = not in_own_tree and await self._is_own(status.branch)
            line = await go_to_base(self._repository, status, self._base) if is_own else ""
            await self._forget_landed(self._base)
            return line
        if self._taken and self._spec.branch_per == "run":
            await take_back_unused(self._repository, status, run_id=self._run_id)
        return ""

    async def _is_own(self, branch: str | None) -> bool:
        """Whether the run worked on this branch."""
        if branch is not None and branch in {self._known.branch, self._home.branch if self._home else None}:
            return True
        return (await origins_of(self._repository)).get(branch or "", Origin()).run_id == self._run_id

    async def _forget_landed(self, base: str) -> None:
        """Delete the branches that this run made for pull requests, once all of them is in the base."""
        landing = self._spec.landing
        if landing.land == "pr" and landing.delete_branch:
            await forget_merged(self._repository, base=base, run_id=self._run_id, remote=landing.remote)

    async def look(self) -> Sight:
        """The tree, the commit to examine, and whether what is checked out is the run's work: with one git call."""
        status = await self._status()
        await self._repository.renew_readers()
        tree = self._remember(status, await self._stamps(status))
        is_home = self._home is None or await still_home(self._repository, status, self._home) is not None
        elsewhere = "" if is_home or self._home is None else elsewhere_line(status, self._home)
        return Sight(tree=tree, commit=await self._subject(status), elsewhere=elsewhere)

    async def _subject(self, status: Status) -> str | None:
        # Without any commit yet, what lies there is all there is to examine, even if it is nothing.
        if status.head is not None and (self._spec.commit or not committable(status)):
            return status.head
        left_out = await self._left_out(status)
        return await save_tree(self._repository, parent=status.head, message="What is examined", leave_out=left_out)

    async def held(self, tree: TreeState) -> Obstacle | None:
        """Another branch, or a lock that stays."""
        if self._home is None:
            return None
        status = Status(head=tree.head, branch=tree.branch, paths=())
        if await still_home(self._repository, status, self._home) is None:
            return _switched(elsewhere_line(status, self._home))
        try:
            removed = await wait_for_commit_locks(self._repository.folders, tree.branch)
            removed += await wait_for_commit_locks(self._repository.agents.folders, tree.branch)
        except GitLocked as locked:
            return Obstacle(cause=GIT_LOCKED, said=str(locked))
        self._repository.removed_locks.extend(removed)
        return None

    async def observe(self) -> TreeState:
        """The tree as it is now, with one git call."""
        status = await self._status()
        return self._remember(status, await self._stamps(status))

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
        if not changed and not (self._spec.commit and committable(status)):
            return Settled(tree=tree, changed=False, warning=self._repository.agents_refusal())
        differing = {readable(path) for path, _ in seen.items() ^ stamps.items()}
        unfit = await find_unfit(self._repository, stamps)
        settled = Settled(tree=tree, changed=changed, files_changed=len(differing))
        moved, since = "", before.head
        if self._home is not None:
            home = await still_home(self._repository, status, self._home)
            if home is None:
                left = tuple(map(readable, committable(status)))
                line = elsewhere_line(status, self._home)
                settled = replace(settled, left=left, elsewhere=line, held=_switched(line))
                settled = replace(settled, switched_at=_time_of(self._repository.agents.git_dir / "HEAD"))
                return await self._keep(settled, status, unfit, iteration_num)
            # An iteration that began on a strange branch and came back has made nothing of what was here before.
            since = before.head if before.branch == self._home.branch else self._home.tip
            moved = await self._follow(home)
        text = clean_message(message, otherwise=f"Iteration {iteration_num}")
        done, made, lost = await asyncio.gather(
            self._commit_leftovers(status, unfit, text),
            made_between(self._repository, since, tree.head),
            self._lost_commit(tree.head),
        )
        settled = replace(
            settled,
            tree=await self._after(done, status, stamps, tree),
            files_changed=done.files or len(differing),
            commit=done.commit,
            message=text.partition("\n")[0] if done.commit else "",
            warning="; ".join(filter(None, (*self._cleared(), moved, lost, done.warning))),
            held=Obstacle(cause=GIT_LOCKED, said=done.locked) if done.locked else None,
        )
        if self._spec.commit and not done.nothing:
            settled = replace(settled, left=tuple(path for path in settled.tree.dirty if not path.endswith("/")))
        if self._home is not None:
            self._home = replace(self._home, tip=settled.tree.head)
        settled = await self._keep(settled, status, unfit, iteration_num)
        return with_agents_own(settled, made, {readable(path) for path in committable(status)})

    async def snapshot(self, *, iteration_num: int, reason: str) -> tuple[str, str, tuple[str, ...]] | None:
        """Save uncommitted work under `refs/untildone/<run>/<iteration>`; None when there is none."""
        status = await self._status()
        if not committable(status):
            return None
        ref = iteration_ref(self._run_id, iteration_num)
        return await self._save(status, ref, f"Unfinished work of iteration {iteration_num}: {reason}")

    async def _begin(self, status: Status) -> list[str]:
        """The first start of this run: the user's own work is not to be mixed with the agent's by accident."""
        repository = self._repository
        if repository.private:
            return await self._begin_private(status)
        users = [path for path in committable(status) if path not in self._given_files()]
        if users and not self._spec.keep_dirty:
            raise DirtyWorkspace(
                f"uncommitted work in {repository.top}: {in_one_line(map(readable, users))}; "
                "commit it, leave it alone with `--worktree`, or start with `--dirty keep`"
            )
        ref = start_ref(self._run_id)
        if not users:
            start = status.head or await save_tree(repository, parent=None, message="The tree as the run found it")
            await create_ref(repository, ref, start)
            return []
        await self._save(status, ref, "The user's uncommitted work at the start")
        sweep = "; the first commit of this run will contain them" if self._spec.commit else ""
        return [f"{_files(len(users))} of yours not committed yet: saved under {ref}{sweep}"]

    async def _take_up(self, status: Status, known: Resumption) -> list[str]:
        """A later driver: what the run did not leave there itself is the user's, as at the start."""
        repository = self._repository
        if repository.private or known.broken_off or not committable(status):
            return []
        users, now = await self._strange_files(status)
        if not users:
            return []
        if not self._spec.keep_dirty:
            raise DirtyWorkspace(
                f"uncommitted work in {repository.top} that is not this run's: {in_one_line(map(readable, users))}; "
                "commit it, or let it go along with `--dirty keep`"
            )
        ref = await mark_found(repository, self._run_id, now)
        sweep = "; the next commit of this run will contain them" if self._spec.commit else ""
        return [f"{_files(len(users))} of yours not committed yet: saved under {ref}{sweep}"]

    async def _strange_files(self, status: Status) -> tuple[list[bytes], str]:
        given = self._given_files()
        dirty = [path for path in committable(status) if path not in given]
        left_out = await self._left_out(status)
        return await strange_files(self._repository, self._run_id, dirty, head=status.head, leave_out=left_out)

    async def _begin_private(self, status: Status) -> list[str]:
        """A plain folder has no commits of the user's: what is there now is the point to compare with."""
        head = status.head
        if committable(status) or head is None:
            await self._save_start_of_folder(status)
        else:
            await create_ref(self._repository, start_ref(self._run_id), head)
        return [f"not a git repository: history is kept outside of the folder, in {self._repository.git_dir}"]

    async def _save_start_of_folder(self, status: Status) -> None:
        left_out = await self._left_out(status)
        done = await self._commit("The folder as the run found it\n", left_out, before=status.head)
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
        # Of a tree on a strange branch only the files are the run's: going back there must not move its own branch.
        head = self._home.tip if settled.elsewhere and self._home else tree.head
        try:
            commit = tree.head if is_clean and not settled.elsewhere else None
            if commit is None:
                left_out = [*self._never_added(status), *unfit.paths]
                message = f"The tree after iteration {iteration_num}"
                commit = await save_tree(self._repository, parent=head, message=message, leave_out=left_out)
            ref = await create_ref(self._repository, iteration_ref(self._run_id, iteration_num), commit)
        except WorkspaceError as trouble:
            unsaved = f"the tree could not be saved: {trouble}"
            return replace(settled, warning="; ".join(filter(None, (settled.warning, unsaved))))
        self._kept = tree.fingerprint
        previous = self._recorded.commit if self._recorded else start_ref(self._run_id)
        self._recorded = SavedState(number=iteration_num, ref=ref, commit=commit, head=head)
        return replace(settled, snapshot=ref, snapshot_commit=commit, previous=previous)

    async def _follow(self, home: Home) -> str:
        """Go on where the folder is: on a branch that was made meanwhile, if it is not the old one."""
        before, self._home = self._home, home
        if before is None or home.branch == before.branch:
            return ""
        await move_in(self._repository, home, run_id=self._run_id, base=self._base)
        return f"commits go to branch {home.branch} now, which was made on top of {before.branch or 'the last commit'}"

    async def _choose_where_commits_go(self, status: Status, own: str | None) -> Place:
        spec = self._spec
        if self._repository.private:
            return Place(lines=(), branch=None, base=None)
        if not spec.commit:
            return Place(lines=(), branch=status.branch, base=spec.landing.base)
        own = own if spec.branch_per == "run" else None
        place = await settle_on_branch(self._repository, status, spec, run_id=self._run_id, own=own)
        self._home = await find_home(self._repository, place.branch, self._run_id)
        self._identity = await find_identity(self._repository)
        if not self._identity:
            return place
        nameless = "git has no user.name and user.email here: commits carry the name untildone"
        return replace(place, lines=(*place.lines, nameless))

    @property
    def _branches_each(self) -> bool:
        return self._spec.branch_per == "iteration" and self._spec.commit and not self._repository.private

    async def _commit_leftovers(self, status: Status, unfit: Unfit, message: str) -> Committed:
        paths = set(committable(status))
        if not self._spec.commit or not paths:
            return Committed()
        if in_the_way := half_way(self._repository, status):
            return Committed(warning=in_the_way)
        if paths <= unfit.paths:
            return Committed(warning=unfit.reason, complete=False)
        done = await self._commit(message, [*self._never_added(status), *unfit.paths], before=status.head)
        warning = "; ".join(filter(None, (done.warning, unfit.reason, unfit.warning if done.commit else "")))
        if not unfit.paths:
            return replace(done, warning=warning)
        return replace(done, warning=warning, complete=False, nothing=False)

    async def _commit(self, message: str, leave_out: list[bytes], *, before: str | None) -> Committed:
        if self._identity is None:
            self._identity = await find_identity(self._repository)
        return await commit_all(
            self._repository,
            message,
            identity=self._identity,
            leave_out=leave_out,
            let_pass=self._waived,
            before=before,
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
        is_home = self._home is None or await still_home(self._repository, status, self._home) is not None
        head = status.head if is_home or self._home is None else self._home.tip
        commit = await save_tree(self._repository, parent=head, message=message, leave_out=left_out)
        ref = await create_ref(self._repository, ref, commit)
        return ref, commit, tuple(readable(path) for path in committable(status)[:SNAPSHOT_FILES])


def _switched(line: str) -> Obstacle:
    return Obstacle(cause=BRANCH_SWITCHED, said=f"{line}; or end the run with `untildone stop`")


def _time_of(file: Path) -> float:
    try:
        return file.lstat().st_mtime
    except OSError:
        return 0.0


def _said(known: Resumption) -> dict[str, Any]:
    """What is known for sure; a second look at the folder adds to the first."""
    return {field.name: value for field in fields(known) if (value := getattr(known, field.name)) is not None}


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count} files"

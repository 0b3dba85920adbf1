"""Bringing commits to branches and remotes with git alone."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from untildone.core.policy import RunSpec
from untildone.errors import WorkspaceError
from untildone.git.base import Base, BaseMoved, to_the_end
from untildone.git.batch import LOOK_EVERY, TRIES, Batch
from untildone.git.branch import Origin, origins_of
from untildone.git.commit import clean_message
from untildone.git.landings import Landing, landings_on, reverts_of, write_revert
from untildone.git.merging import Conflict, Work, genuine, require_merge_tree, undone
from untildone.git.queue import Answer, Place, Queue
from untildone.git.rejoin import rejoin
from untildone.git.remote import Remote
from untildone.git.repository import Repository
from untildone.git.status import in_one_line
from untildone.ports.delivery import InLine, Landed, NotLanded, Relation, Verifier

NOTICEABLE = 1.0
"""Seconds a run may wait for others before people want to know; also between two looks at who they are."""


class GitLander:
    """ports.Lander."""

    def __init__(self, repository: Repository, spec: RunSpec, *, run_id: str, base: Callable[[], str | None]) -> None:
        self._repository = repository
        self._landing = spec.landing
        self._run_id = run_id
        self._name = spec.name
        self._base_name = base
        self._remote = Remote(repository, spec.landing.remote)

    async def merge(
        self, commit: str, *, message: str, verify: Verifier, in_line: InLine | None = None
    ) -> Landed | NotLanded:
        """Merge into the base, together with all that wait for the same."""
        base = self._base()
        await require_merge_tree(self._repository)
        landed = await self._landed(base, commit)
        if landed is not None:
            # Said by a ref alone, which is no witness: nobody of this driver's has looked at it.
            return replace(landed, verified=False)
        text = clean_message(message, otherwise=f"Land {commit[:10]}")
        strategy = self._landing.strategy
        work = Work(run_id=self._run_id, commit=commit, message=text, strategy=strategy, name=self._name)
        with Queue(await self._git_folder(), base.name).standing(work) as place:
            answer = await _wait_or_lead(base, place, work, verify, _Waiting(place, in_line))
        if answer.cause != "landed":
            return NotLanded(cause=answer.cause, detail=answer.detail)
        landed = await self._landed(base, commit)
        if landed is None:
            raise WorkspaceError(f"{base.name} was moved back while {commit[:10]} landed on it: land again")
        return landed

    async def revert(self, merged: str, *, reason: str) -> str:
        """Take a merge back by a new commit on the base. What came after it stays."""
        base = self._base()
        await require_merge_tree(self._repository)
        for _ in range(2 * TRIES):
            tip = await base.tip()
            before = (await reverts_of(self._repository, self._run_id, tip)).get(merged)
            if before is not None:
                return before
            revert = await self._undone(base, tip, merged, reason)
            try:
                await to_the_end(self._take_back(base, tip, merged, revert))
            except BaseMoved:
                continue
            return revert
        raise WorkspaceError(f"{base.name} moved all the time: take {merged[:10]} back with `git revert {merged}`")

    async def remote_address(self) -> str:
        """Where the remote lies: the forge is told from it. It may hold a password: not for eyes."""
        return await self._remote.address()

    async def remote_place(self) -> str:
        """Where the remote leads, without logins."""
        return await self._remote.place()

    async def is_new(self, branch: str) -> bool:
        """Whether the remote has no branch of that name."""
        return await self._remote.tip(branch) is None

    async def push(self, commit: str, branch: str) -> None:
        """Bring the run's branch to the remote, whatever is checked out."""
        if branch == self._base_name():
            raise WorkspaceError(f"{branch} is what the work is to land on: it is never pushed there directly")
        await self._remote.push(commit, branch)

    async def unpushed(self) -> str:
        """What the remote does not have."""
        return await self._remote.unpushed(await self._branch())

    async def catch_up(self, commit: str, branch: str) -> str:
        """Move the branch forward, and the tree where it is checked out."""
        return await self._remote.catch_up(commit, branch)

    async def relation(self, head: str, commit: str, *, branch: str, number: int) -> Relation:
        """How what a pull request brought to the base stands to a commit."""
        return await self._remote.relation(head, commit, branch=branch, number=number)

    async def tidy(self, branch: str) -> str:
        """Bring the base up to date; forget the branch, if that is wanted, it was made for this run and is not used."""
        owner = (await origins_of(self._repository)).get(branch, Origin()).run_id
        is_done_with = self._landing.delete_branch and owner == self._run_id
        return await self._remote.tidy(self._base(), branch if is_done_with else None)

    async def rejoin(self, merged: str, branch: str) -> None:
        """Let the branch know that the base has its work."""
        if await self._branch() != branch:
            raise WorkspaceError(f"{branch} is not checked out any more: it does not know yet that its work has landed")
        await rejoin(self._repository, merged)

    def _base(self) -> Base:
        if self._repository.private:
            raise WorkspaceError(f"{self._repository.top} is no git repository: there is nothing to land on")
        name = self._base_name()
        if name is None:
            raise WorkspaceError("it is not known which branch to land on: name it with `--base`")
        return Base(self._repository, name)

    async def _branch(self) -> str:
        asked = await self._repository.git("symbolic-ref", "-q", "--short", "HEAD", check=False)
        if asked.code:
            raise WorkspaceError(
                f"no branch is checked out in {self._repository.top}: give the work one with `git switch -c NAME`"
            )
        return asked.text

    async def _git_folder(self) -> Path:
        """The one that all worktrees share."""
        asked = ("rev-parse", "--path-format=absolute", "--git-common-dir")
        return Path((await self._repository.git(*asked)).text)

    async def _landed(self, base: Base, commit: str) -> Landed | None:
        """What git itself says about it, whoever did it and whether or not we were told."""
        landings = await genuine(self._repository, await landings_on(self._repository, self._run_id, await base.tip()))
        found = (one for one in landings if one.commit == commit and not one.reverted)
        return next((Landed(merged=one.merged, verified=one.verified) for one in found), None)

    async def _undone(self, base: Base, tip: str, merged: str, reason: str) -> str:
        landings = await genuine(self._repository, await landings_on(self._repository, self._run_id, tip))
        landing = next((one for one in landings if one.merged == merged), None)
        if landing is None:
            parent = (await self._repository.git("rev-parse", "--verify", f"{merged}^1")).text
            landing = Landing(commit=merged, onto=parent, merged=merged)
        subject = (await self._repository.git("show", "-s", "--format=%s", merged)).text
        message = clean_message(f'Revert "{subject}"\n\nThis takes back {merged}: {reason}', otherwise="Revert")
        made = await undone(self._repository, tip, landing, message)
        if isinstance(made, Conflict):
            raise WorkspaceError(
                f"{merged[:10]} cannot be taken back from {base.name} without a human: later commits changed "
                f"{in_one_line(made.files)} too; `git revert {merged}` on {base.name} shows the conflicts"
            )
        return made

    async def _take_back(self, base: Base, tip: str, merged: str, revert: str) -> None:
        await write_revert(self._repository, self._run_id, merged, revert)
        await base.forward(tip, revert, why=f"take {merged[:10]} back")


class _Waiting:
    """Tells who watches for whom the run waits: only if it takes a while, and only what is new."""

    def __init__(self, place: Place, tell: InLine | None) -> None:
        self._place = place
        self._tell = tell
        self._looked_at = asyncio.get_running_loop().time()
        self._told: list[str] = []

    async def look(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._tell is None or now - self._looked_at < NOTICEABLE:
            return
        self._looked_at = now
        ahead = [work.name or work.run_id for work in self._place.ahead()]
        if ahead and ahead != self._told:
            self._told = ahead
            await self._tell(ahead)

    async def over(self) -> None:
        if self._tell is not None and self._told:
            self._told = []
            await self._tell(())


async def _wait_or_lead(base: Base, place: Place, work: Work, verify: Verifier, waiting: _Waiting) -> Answer:
    """Until somebody has landed this run's work, or it has had the turn itself."""
    while True:
        has_turn = place.take_turn()
        try:
            if (answer := place.answer()) is not None:
                return answer
            if has_turn:
                await waiting.over()
                return await _lead(base, place, work, verify)
        finally:
            if has_turn:
                place.end_turn()
        if (commit := place.asked()) is not None:
            place.say(commit, await verify(commit))
        else:
            await waiting.look()
            await asyncio.sleep(LOOK_EVERY)


async def _lead(base: Base, place: Place, mine: Work, verify: Verifier) -> Answer:
    batch = Batch(base, place, mine, verify)
    try:
        await batch.land([mine, *place.others()])
        if mine.run_id not in batch.answers:
            await batch.land_unseen()
    except asyncio.CancelledError:
        if mine.run_id not in batch.answers:
            raise
        # Called off too late: what has happened is told, and the work for the others goes to the next in line.
    finally:
        for run_id, answer in batch.answers.items():
            if run_id != mine.run_id:
                place.give(run_id, answer)
    return batch.answers[mine.run_id]

"""A branch that work is brought to: where it stands, who has it checked out, and how it is moved forward."""

import asyncio
import os
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from untildone.core.dataclass import dataclass
from untildone.errors import WorkspaceError
from untildone.git.repository import Repository, other_tree
from untildone.git.run import COMMIT_TIMEOUT, GitResult, first_line, obstacle

T = TypeVar("T")

# What a user may have configured and what would do more than a fast-forward: stash their work, or leave a process.
_ONLY_FORWARD = ("-c", "merge.autoStash=false", "-c", "gc.auto=0", "-c", "maintenance.auto=false")


class BaseMoved(Exception):
    """Somebody was faster: the branch is not where it was any more, and nothing was done."""


@dataclass(frozen=True, slots=True)
class Base:
    """A local branch."""

    repository: Repository
    name: str

    @property
    def ref(self) -> str:
        """Its full name."""
        return f"refs/heads/{self.name}"

    async def tip(self) -> str:
        """Its newest commit. WorkspaceError when there is no such branch."""
        asked = await self.repository.git("rev-parse", "-q", "--verify", f"{self.ref}^{{commit}}", check=False)
        if asked.code:
            raise WorkspaceError(
                f"there is no branch {self.name} to land on in {self.repository.top}: make one with "
                f"`git branch {self.name}`, or name another base"
            )
        return asked.text

    async def forward(self, old: str, new: str, *, why: str) -> None:
        """Move it from `old` to `new`, which contains `old`, once: BaseMoved if it is not at `old` any more.

        WorkspaceError when it is checked out somewhere and files there are in the way.
        """
        tree = await self.checked_out_in()
        done = await (self._by_reference(old, new, why) if tree is None else _fast_forward(self.repository, tree, new))
        if done.code == 0:
            return
        if await self.tip() != old:
            raise BaseMoved
        if tree is None:
            raise WorkspaceError(f"git cannot move {self.name} in {self.repository.top}: {first_line(done.err)}")
        raise WorkspaceError(
            f"{self.name} is checked out in {tree} and git does not move it there: {obstacle(done)}; "
            f"commit or put away what is in the way, then land again"
        )

    async def _by_reference(self, old: str, new: str, why: str) -> GitResult:
        return await self.repository.git("update-ref", "-m", f"untildone: {why}", self.ref, new, old, check=False)

    async def checked_out_in(self) -> Path | None:
        """The working tree that has it checked out."""
        listed = await self.repository.git("worktree", "list", "--porcelain", "-z")
        for entry in os.fsdecode(listed.out).split("\0\0"):
            facts = dict(line.partition(" ")[::2] for line in entry.split("\0") if line)
            if facts.get("branch") == self.ref and "prunable" not in facts:
                return Path(facts["worktree"])
        return None


async def fast_forward(repository: Repository, commit: str) -> None:
    """Move what is checked out forward; WorkspaceError says what is in the way. Nothing is ever lost."""
    done = await to_the_end(_fast_forward(repository, repository.top, commit))
    if done.code:
        raise WorkspaceError(f"git cannot bring {repository.top} forward to {commit[:10]}: {obstacle(done)}")


async def _fast_forward(repository: Repository, tree: Path, commit: str) -> GitResult:
    args = (*_ONLY_FORWARD, "merge", "-q", "--ff-only", "--no-overwrite-ignore", commit)
    return await other_tree(repository, tree).agents.git(*args, check=False, timeout=COMMIT_TIMEOUT)


async def to_the_end(step: Coroutine[Any, Any, T]) -> T:
    """Await a step that nobody could want half done, such as a tree on the move; then a cancellation takes effect."""
    task = asyncio.ensure_future(step)
    try:
        return await asyncio.shield(task)
    finally:
        while not task.done():
            with suppress(asyncio.CancelledError):  # asked again meanwhile: one cancellation is under way already
                await asyncio.wait([task])

"""What goes to a remote and comes from it: never by force, never with a question to a terminal, always bounded."""

import asyncio
import re
from typing import Never

from untildone.core.dataclass import dataclass
from untildone.core.printable import printable
from untildone.errors import WorkspaceError
from untildone.git.base import Base, BaseMoved, to_the_end
from untildone.git.branch import forget_branch
from untildone.git.merging import brings_nothing, is_ancestor
from untildone.git.repository import NO_HOOKS, Repository
from untildone.git.run import COMMIT_TIMEOUT, UNATTENDED, GitResult, first_line
from untildone.ports.delivery import Relation

_REASON_LINES = 10
_REASON_CHARS = 1000
_MISSING = 2
"""What `ls-remote --exit-code` answers when nothing of that name is there."""

_FETCH = ("fetch", "-q", "--no-tags", "--no-write-fetch-head", "--no-auto-gc")
_SECRET = re.compile(r"(?<=://)[^/@\s]+@")
_NO_LOGIN = re.compile(
    r"could not read (Username|Password)|terminal prompts disabled|Authentication failed|Permission denied|"
    r"Host key verification failed",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Remote:
    """Another repository that this one knows by name."""

    repository: Repository
    name: str

    async def address(self) -> str:
        """Where it lies; "" when there is no such remote. It may hold a password: not for eyes."""
        asked = await self.repository.git("remote", "get-url", self.name, check=False)
        return "" if asked.code else asked.text

    async def place(self) -> str:
        """Where fetches come from and, if that is elsewhere, where pushes go, without logins; "" without a remote."""
        ways = (self.repository.git("remote", "get-url", *way, self.name, check=False) for way in ((), ("--push",)))
        asked = await asyncio.gather(*ways)
        found = dict.fromkeys(_SECRET.sub("", one.text) for one in asked if one.code == 0)
        return ", ".join(found)

    async def push(self, commit: str, branch: str) -> None:
        """Bring a commit to a branch of that name there. The user's hooks have their say."""
        args = ("push", "--porcelain", "--no-follow-tags", self.name, f"{commit}:refs/heads/{branch}")
        done = await self._talk(*args, dies_with_us=True)
        if done.code:
            _refuse(f"{branch} could not be pushed to {self.name}", done)
        upstream = ("branch", "-q", f"--set-upstream-to={self.name}/{branch}", branch)
        # Only a comfort, and a remote that is not fetched by default cannot have it.
        await self.repository.git(*NO_HOOKS, *upstream, check=False)

    async def unpushed(self, branch: str) -> str:
        """What of the things committed here the remote does not have; "" when it has all."""
        there = await self.tip(branch)
        if there is None:
            return f"{self.name} has no branch {branch}"
        head = (await self.repository.git("rev-parse", "--verify", "HEAD")).text
        if not await self._knows(there):
            await self._fetch(branch)
        if await is_ancestor(self.repository, head, there):
            return ""
        count = (await self.repository.git("rev-list", "--count", f"{there}..{head}")).text
        return f"{self.name} does not have {'1 commit' if count == '1' else f'{count} commits'} of {branch}"

    async def catch_up(self, commit: str, branch: str) -> str:
        """Move a branch, and the tree that has it checked out, forward to a commit of the remote; its tip then."""
        if not await self._knows(commit):
            await self._fetch(branch)
        own = Base(self.repository, branch)
        tip = await own.tip()
        if await is_ancestor(self.repository, commit, tip):
            return tip
        if not await is_ancestor(self.repository, tip, commit):
            raise WorkspaceError(
                f"{branch} here and {branch} on {self.name} have gone different ways: bring them together with "
                f"`git pull {self.name} {branch}`"
            )
        try:
            await to_the_end(own.forward(tip, commit, why=f"catch up with {self.name}"))
        except BaseMoved as moved:
            raise WorkspaceError(f"{branch} was moved meanwhile: it was left as it is") from moved
        return commit

    async def relation(self, head: str, commit: str, *, branch: str, number: int) -> Relation:
        """How what a pull request brought to the base stands to a commit of ours."""
        # The branch may be gone after a merge; forges keep what a pull request was about.
        for ref in (f"refs/heads/{branch}", f"refs/pull/{number}/head"):
            if not await self._knows(head):
                await self._talk(*_FETCH, self.name, ref)
        if not await self._knows(head):
            return "unknown"
        if await is_ancestor(self.repository, commit, head):
            return "holds"
        return "older" if await is_ancestor(self.repository, head, commit) else "other"

    async def tidy(self, base: Base, branch: str | None) -> str:
        """Bring the local base up to date with the remote's, and delete `branch` if it is of no use any more.

        "" or what could not be done; nothing that is checked out or not merged is ever deleted.
        """
        try:
            await self._fetch(base.name)
            there = await self.tip(base.name)
            if there is None:
                return f"{self.name} has no branch {base.name}"
            await self._bring_forward(base, there)
            if branch is not None and branch != base.name:
                await self._forget(branch, there)
                # It goes on the remote too: what is remembered of it here would stay for ever.
                known = f"refs/remotes/{self.name}/{branch}"
                await self.repository.git(*NO_HOOKS, "update-ref", "-d", known, check=False)
        except WorkspaceError as trouble:
            return str(trouble)
        return ""

    async def _bring_forward(self, base: Base, there: str) -> None:
        tip = await base.tip()
        if await is_ancestor(self.repository, there, tip):
            return
        if not await is_ancestor(self.repository, tip, there):
            raise WorkspaceError(
                f"{base.name} has commits that {self.name} does not have: it was left as it is; "
                f"`git pull {self.name} {base.name}` brings them together"
            )
        try:
            await to_the_end(base.forward(tip, there, why=f"catch up with {self.name}"))
        except BaseMoved as moved:
            raise WorkspaceError(f"{base.name} was moved meanwhile: it was left as it is") from moved

    async def _forget(self, branch: str, base_there: str) -> None:
        own = Base(self.repository, branch)
        if await own.checked_out_in() is not None:
            return  # somebody, perhaps this very run, works there still
        tip = await own.tip()
        if await brings_nothing(self.repository, base_there, tip):
            await forget_branch(self.repository, branch, tip)

    async def tip(self, branch: str) -> str | None:
        """Where a branch stands there; None when it has none of that name."""
        asked = await self._talk("ls-remote", "--exit-code", self.name, f"refs/heads/{branch}")
        if asked.code == _MISSING:
            return None
        if asked.code:
            _refuse(f"{self.name} could not be asked for {branch}", asked)
        return asked.text.split()[0]

    async def _fetch(self, branch: str) -> None:
        # The refs the user configured for this remote are brought up to date as by any fetch of theirs.
        done = await self._talk(*_FETCH, self.name, f"refs/heads/{branch}")
        if done.code:
            _refuse(f"{branch} could not be fetched from {self.name}", done)

    async def _knows(self, commit: str) -> bool:
        return (await self.repository.git("cat-file", "-e", f"{commit}^{{commit}}", check=False)).code == 0

    async def _talk(self, *args: str, dies_with_us: bool = False) -> GitResult:
        known = await self.repository.git("remote", "get-url", self.name, check=False)
        if known.code:
            raise WorkspaceError(
                f"there is no remote called {self.name} in {self.repository.top}: add it with "
                f"`git remote add {self.name} URL`"
            )
        return await self.repository.git(
            *args, env=UNATTENDED, check=False, timeout=COMMIT_TIMEOUT, dies_with_us=dies_with_us
        )


def _refuse(what: str, done: GitResult) -> Never:
    raise WorkspaceError(f"{what}: {_reason(done)}")


def _reason(done: GitResult) -> str:
    """What git, a hook or the far side said, without the secrets that addresses may hold."""
    said = _SECRET.sub("", done.err)
    refused = [line.split("\t") for line in done.out.decode("utf-8", "replace").splitlines() if line.startswith("!")]
    if refused and "[rejected]" in refused[0][-1]:
        return (
            "it has commits there that are not here, and nothing is ever pushed by force: "
            "merge them first, or use another branch"
        )
    if _NO_LOGIN.search(said):
        return f"git has no login for it that works without a human ({first_line(said)}): see `git help credentials`"
    lines = [line.rstrip() for line in printable(said[-4 * _REASON_CHARS :], lines=True).split("\n") if line.strip()]
    return "\n".join(lines[-_REASON_LINES:])[-_REASON_CHARS:] or f"git ended with {done.code} and gave no reason"

"""The seams of proof and arrival: fresh checkouts, checks, merges, forges."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Literal, Protocol

from untildone.core.contract import CheckSpec, Room
from untildone.core.dataclass import dataclass
from untildone.core.findings import LentChange
from untildone.core.outcome import CheckResult
from untildone.core.pull import PullView
from untildone.ports.running import Process


async def _nothing() -> tuple[str, ...]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Bind:
    """A folder or file of this machine, and the path at which it is seen."""

    source: str
    place: str
    writable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkout:
    """A fresh checkout that is there right now."""

    folder: str
    """The one that corresponds to the agent's own, which may lie below the top of the repository."""
    top: str
    """The top of the checkout."""
    around: str
    """A folder that holds the checkout and nothing else of the user's; what is put there goes with it."""
    trees: tuple[str, ...] = ()
    """Every folder in which this repository is checked out, the agent's own first."""
    git: tuple[Bind, ...] = ()
    """What git needs to see to work in the checkout once it has another path."""
    leads_out: tuple[str, ...] = ()
    """Links of the commit that lead out of the checkout."""
    notes: tuple[str, ...] = ()
    """In what it is less than the commit: files that are not to be had without a network."""
    keep: Callable[[], Awaitable[tuple[str, ...]]] = _nothing
    """Files of the commit are as they should be now: which of them are not as they were checked out."""
    put_back: Callable[[], Awaitable[tuple[str, ...]]] = _nothing
    """Put files of the commit back that were changed since; which those are."""


class Rooms(Protocol):
    """Fresh checkouts of commits, each gone without a trace when it is left."""

    def open(self, commit: str) -> AbstractAsyncContextManager[Checkout]:
        """A folder that holds exactly this commit.

        CommitUnfit when the commit itself is the reason that it cannot be made, else WorkspaceError.
        """
        ...

    def furnished(self, commit: str) -> AbstractAsyncContextManager[Checkout]:
        """The same with all that lies in the tree laid over it, ignored files included.

        WorkspaceError also when that is too much to be copied.
        """
        ...

    async def sweep(self) -> int:
        """Remove what a dead driver of this run left behind; returns how many there were."""
        ...


Start = Callable[[str, Mapping[str, str]], Awaitable[Process]]
"""Starts a shell command, with what it may see of an environment; all that it prints is its output."""
Enter = Callable[[str], tuple[str, ...] | Start]
"""How a command comes to run in this folder, as seen from inside: by words before it, or started by somebody else."""


class Enclosure(Protocol):
    """A place to run commands where only the commit is seen, at the path of the agent's tree."""

    def enter(self, checkout: Checkout, *, lent: Sequence[Bind] = (), programs: Sequence[str] = ()) -> Enter:
        """Prepare it for one examination; `lent` is seen read-only, and so are these `programs`.

        Its home and its folder for temporary files are fresh, and shared by all commands of the examination.
        """
        ...

    def borrowed(self, checkout: Checkout) -> tuple[Bind, ...]:
        """Folders of the user's trees, on the PATH or the active environment, where the checkout has nothing."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is examined: a commit, or (weaker) the tree as it lies there."""

    commit: str | None
    room: Room
    furnished: bool = False
    """In a copy of the tree at this commit, ignored files included and without the setup: for a comparison."""
    tries: Literal["one", "until sure"] = "until sure"
    """How often a check that fails may be run again, to see whether it is flaky."""


Progress = Callable[[str], None]
"""Told what is being done now, in a few words, so that who waits for it can be told."""


class Witness(Protocol):
    """Runs the checks of a contract and reports what it saw."""

    async def examine(
        self,
        subject: Subject,
        checks: Sequence[CheckSpec],
        *,
        flaky: Collection[str] = (),
        progress: Progress = lambda _: None,
    ) -> list[CheckResult]:
        """Every check, in order, in one room that is set up once; a failed setup fails all and is told as one more.

        A check that failed is run once more. If it then passes, or passes although its name is among the `flaky`,
        it is believed only after it passed several times in a row in a room of its own.
        WorkspaceError when there is no room to be had through no fault of the commit's.
        """
        ...

    async def lent_changes(self) -> list[LentChange]:
        """What of the folders that are shared with the checks is not as it was before any work, as paths."""
        ...

    async def sweep(self) -> int:
        """Remove what a dead driver of this run left behind; returns how many rooms there were."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Landed:
    """A merge that happened."""

    merged: str
    """The commit on the base."""
    cleanup: str = ""
    """What could not be tidied up."""
    verified: bool = True
    """Exactly this tree was verified before; otherwise it must be looked at now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotLanded:
    """A merge that did not happen. `conflict` and `checks` are for the agent to mend, `base` is for a human."""

    cause: Literal["conflict", "checks", "base"]
    detail: str


Verifier = Callable[[str], Awaitable[str]]
"""Examines a commit: "" when every check passed, else what to tell the agent."""


Relation = Literal["holds", "older", "other", "unknown"]
"""Whether a commit holds another one, is held by it, has gone another way, or cannot be had."""


InLine = Callable[[Sequence[str]], Awaitable[None]]
"""Told the names of the runs that land first, whenever that changes; none: it is this one's turn."""


class Lander(Protocol):
    """Brings commits to branches and remotes, with git alone."""

    async def merge(
        self, commit: str, *, message: str, verify: Verifier, in_line: InLine | None = None
    ) -> Landed | NotLanded:
        """Merge into the base as the landing options say, after the merged tree was verified. Safe to repeat.

        Several runs that land on the same base take turns, or go together. Who has to wait for more than a moment
        is told for whom.
        """
        ...

    async def revert(self, merged: str, *, reason: str) -> str:
        """Take a merge back by a new commit on the base; returns that commit."""
        ...

    async def remote_place(self) -> str:
        """Where the remote leads, without logins; "" when there is none."""
        ...

    async def is_new(self, branch: str) -> bool:
        """Whether the remote has no branch of that name."""
        ...

    async def push(self, commit: str, branch: str) -> None:
        """Bring a commit to this branch of the remote, whatever is checked out.

        WorkspaceError says why it cannot be. Never by force, never to the base.
        """
        ...

    async def unpushed(self) -> str:
        """What the remote does not have of all that is committed here; "" when it has everything."""
        ...

    async def catch_up(self, commit: str, branch: str) -> str:
        """Move a branch, and its tree if it is checked out, forward to a commit that the forge made on top of it.

        Returns where the branch stands now.
        """
        ...

    async def relation(self, head: str, commit: str, *, branch: str, number: int) -> Relation:
        """How the head of a pull request of this branch stands to a commit."""
        ...

    async def tidy(self, branch: str) -> str:
        """After the branch's pull request was merged: bring the base up to date; "" or what could not be done."""
        ...

    async def rejoin(self, merged: str, branch: str) -> None:
        """The run goes on after that: let its branch know that the base has its work. No file changes."""
        ...


class Forge(Protocol):
    """Where pull requests live. Every method raises ForgeError, which says what to do and when to try again."""

    @property
    def name(self) -> str: ...

    async def find(self, branch: str, base: str | None = None) -> PullView | None:
        """The open pull request of a branch, else the newest that was closed or merged; `base`: only those for it."""
        ...

    async def open(self, *, branch: str, base: str, title: str, body: str) -> PullView: ...

    async def look(self, number: int) -> PullView:
        """The pull request as it is now: checks, reviews and comments included."""
        ...

    async def log_of(self, number: int, check: str) -> str:
        """The end of a failed check's log, as far as the forge gives it: hostile text."""
        ...

    async def update_branch(self, number: int) -> str | None:
        """Merge the base into the branch on the forge; the new head, or None if there was nothing to do."""
        ...

    async def merge(self, number: int, *, head: str, strategy: str, title: str, body: str) -> PullView:
        """Merge it if its head is still this commit."""
        ...

    async def reword(self, number: int, reword: Callable[[str], str]) -> None:
        """Change what a pull request says, if that makes a difference."""
        ...

    async def delete_branch(self, branch: str) -> None: ...

    async def close(self, number: int) -> None: ...

"""The work's way: into commits and snapshots, and from there to where the user wants it."""

from typing import ClassVar, Literal

from untildone.core.dataclass import dataclass
from untildone.core.event import Event, Kind, Source

RejectionCause = Literal["checks", "conflict", "ci", "comments", "changes_requested"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LandingPrepared(Event):
    """Where a driver works: the branch its commits go to, and the one they are meant for."""

    TYPE: ClassVar[str] = "landing.prepared"
    branch: str | None
    """None: a detached HEAD, or a folder without git."""
    base: str | None
    """The branch to land on."""
    start: str | None
    """The commit the run began with, the user's uncommitted work included."""
    history: str = ""
    """The git folder with the history of a folder without git."""
    judged_from: str | None = None
    """What guards compare with from now on: `start`, with what people changed while no driver was there."""
    remote: str | None = None
    """Where the remote led at that moment, without logins; empty: there was none. None: it plays no part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LandingCommitted(Event):
    """The loop committed an iteration's work, or found that the agent had."""

    TYPE: ClassVar[str] = "landing.committed"
    iteration_num: int
    commit: str
    branch: str | None = None
    files_changed: int = 0
    message: str = ""
    by: Literal["loop", "agent"] = "loop"
    content: str = ""
    """The same for the same files, whichever commit holds them, the notes left out. Empty: not known."""
    change: str = ""
    """The same for changes that add the same lines, dates, times and ids aside. Empty: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LandingFailed(Event):
    """An iteration's work could not be committed; it stays in the tree. Without a reason: nothing is left over."""

    TYPE: ClassVar[str] = "landing.failed"
    iteration_num: int
    reason: str
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LandingHeld(Event):
    """Nothing can be committed in the folder, so that no iteration is begun. Without a cause: it can again."""

    TYPE: ClassVar[str] = "landing.held"
    cause: str = ""
    """`branch_switched` or `git_locked`."""
    said: str = ""
    """What is in the way, and what to do about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LandingLeft(Event):
    """The tree as the run leaves it: what is different when a later driver comes is other people's work."""

    TYPE: ClassVar[str] = "landing.left"
    commit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LandingSnapshot(Event):
    """The whole tree was saved under a private ref, untracked files too; the tree itself was left alone."""

    TYPE: ClassVar[str] = "landing.snapshot"
    iteration_num: int
    ref: str
    commit: str
    reason: str = ""
    """Why the work is half done; empty at the end of an iteration that ended well."""
    head: str | None = None
    """The commit that was checked out at that moment."""
    files: tuple[str, ...] = ()
    content: str = ""
    """The same for the same files, whichever commit holds them, the notes left out. Empty: not known."""
    change: str = ""
    """The same for changes that add the same lines, dates, times and ids aside. Empty: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LandingBegun(Event):
    """Intent: this commit is to arrive on the base."""

    TYPE: ClassVar[str] = "landing.begun"
    commit: str
    because: str = ""
    """The stop reason that waits for it; empty: one iteration's work of a run that goes on."""
    makes: str = ""
    """Said again right before a push: a branch that the remote does not have yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LandingPushed(Event):
    """A commit is on the remote."""

    TYPE: ClassVar[str] = "landing.pushed"
    commit: str
    branch: str
    remote: str
    head: str = ""
    """Where the branch stands there, if that is not the commit itself: the forge put the base's news on top."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LandingPullOpened(Event):
    """There is a pull request for the branch."""

    TYPE: ClassVar[str] = "landing.pr_opened"
    number: int
    url: str
    branch: str
    base: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LandingWatched(Event):
    """Something about a pull request changed: its checks, its reviews, its state."""

    TYPE: ClassVar[str] = "landing.watched"
    KIND: ClassVar[Kind] = "trace"
    number: int
    said: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LandingRejected(Event):
    """The work cannot land as it is, and the agent may fix it: the next iteration is told."""

    TYPE: ClassVar[str] = "landing.rejected"
    cause: RejectionCause
    detail: str
    """For the prompt. Text from a forge is marked as such in it."""
    seen: str = ""
    """The newest comment that was read: a later look reports only newer ones."""
    said: str = ""
    """The same for people: what is wrong, in a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LandingMerged(Event):
    """The work has arrived."""

    TYPE: ClassVar[str] = "landing.merged"
    commit: str
    """The commit of the run that arrived."""
    base: str
    merged: str | None = None
    """The commit on the base that holds it, where that is known."""
    strategy: str = ""
    number: int | None = None
    """The pull request it came through, if one."""
    cleanup: str = ""
    """What could not be tidied up afterwards; the work is there all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LandingReverted(Event):
    """The base was red after a merge, and the merge was taken back by a new commit."""

    TYPE: ClassVar[str] = "landing.reverted"
    merged: str
    revert: str
    base: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LandingGaveUp(Event):
    """The work is done but could not be brought to the base; branch and pull request are kept."""

    TYPE: ClassVar[str] = "landing.gave_up"
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewound(Event):
    """A human put the tree back to where it was after an earlier iteration."""

    TYPE: ClassVar[str] = "continuous.rewound"
    SOURCE: ClassVar[Source] = "system"
    by: str
    iteration_num: int
    commit: str
    """The snapshot that is in the tree now."""
    saved: str
    """The private ref that holds the tree as it was before."""
    head: str | None = None
    """The commit that is checked out now."""

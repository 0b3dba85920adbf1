"""The folder the agent works in."""

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from untildone.core.base_judges import BaseJudges
from untildone.core.dataclass import dataclass
from untildone.core.diffs import Difference
from untildone.core.findings import FileChange, Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeState:
    """The working tree at a moment."""

    fingerprint: str
    """Changes whenever any file that counts changes, is added or removed, or HEAD moves."""
    head: str | None = None
    branch: str | None = None
    dirty: tuple[str, ...] = ()
    """Paths with uncommitted changes, untracked ones included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What there is to examine."""

    tree: TreeState
    commit: str | None
    """HEAD where the loop commits, else a commit of the tree as it is, on no branch."""
    elsewhere: str
    """Which branch the folder is on, if what is checked out is not this run's work; "" when it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """Why nothing can be committed now."""

    cause: str
    said: str
    """What is in the way, and what to do about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What was done with an iteration's changes."""

    tree: TreeState
    changed: bool
    files_changed: int = 0
    commit: str | None = None
    by: Literal["loop", "agent"] = "loop"
    message: str = ""
    warning: str = ""
    """Why a commit could not be made (a failing hook, no identity); the work is kept as it is."""
    left: tuple[str, ...] = ()
    """Paths that should have been committed and were not: no commit holds their present content."""
    snapshot: str = ""
    """The private ref that keeps the tree as it is after the iteration; empty: it is as an earlier one left it."""
    snapshot_commit: str = ""
    """The commit behind that ref."""
    previous: str = ""
    """The commit that kept the tree before: what this iteration's change is compared with."""
    elsewhere: str = ""
    """Why none of it counts as the run's: the folder is on another branch. Nothing was committed, all is saved."""
    held: Obstacle | None = None
    """Why it could not be committed, where it can be as soon as that is over."""
    switched_at: float = 0.0
    """When the folder was switched to that branch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """Where a run works."""

    lines: tuple[str, ...] = ()
    """To tell the user."""
    branch: str | None = None
    """Where commits go; None: a detached HEAD, or a folder without git."""
    base: str | None = None
    """The branch they are meant for."""
    start: str | None = None
    """A commit of the tree as the run found it, the user's uncommitted work included."""
    history: str = ""
    """The git folder with the history of a folder without git; empty: it has its own."""
    newest: int = 0
    """The newest iteration whose work git keeps."""
    judged_from: str | None = None
    """What the work is compared with from now on, because people changed something since the last driver left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumption:
    """What is known about a run that is taken up again."""

    branch: str | None = None
    """Where its commits went; None: not known."""
    base: str | None = None
    """The branch they are meant for."""
    broken_off: bool = False
    """Its driver died and could save nothing: what lies there uncommitted counts as the run's."""
    left: str | None = None
    """The tree as the last driver left it; None: not known."""
    judged_from: str | None = None
    """What the work is compared with so far."""
    visits: bool = False
    """Its work is only to be landed: the folder is not touched before the agent has something to mend."""


class Workspace(Protocol):
    """The folder the agent works in."""

    async def prepare(self, known: Resumption | None = None) -> Prepared:
        """Make it ready before the first iteration: branch, excludes, snapshot.

        DirtyWorkspace when the user's own uncommitted work is there and nobody said to keep it, LandingRefused when
        what is made could never arrive: then nothing was touched. May be called again, after a visit.
        """
        ...

    async def left(self) -> str | None:
        """A commit of the tree as the driver leaves it."""
        ...

    async def leave(self, *, landed: bool = False) -> str:
        """The driver goes: what lies there uncommitted is remembered as the run's, a visit goes back to the branch it
        found, and a run whose work has `landed` to its base. Returns a line to tell, or nothing.
        """
        ...

    async def held(self, tree: TreeState) -> Obstacle | None:
        """Why nothing can be committed to this tree, which was observed just now; None when it can."""
        ...

    async def observe(self) -> TreeState: ...

    async def look(self) -> Sight:
        """The tree, and what of it would be examined."""
        ...

    async def settle(
        self, before: TreeState, *, iteration_num: int, message: str, waived: Sequence[str] = ()
    ) -> Settled:
        """Compare with `before` and commit what changed, if commits are wanted.

        Nothing that looks like a key or a token is committed, except in files that a human waived.
        """
        ...

    async def snapshot(self, *, iteration_num: int, reason: str) -> tuple[str, str, tuple[str, ...]] | None:
        """Save uncommitted work under a private ref, leaving tree, index and branches alone.

        Returns (ref, commit, files), or None when there is nothing to save.
        """
        ...

    async def changes(self, start: str, commit: str, wanted: Callable[[str], bool]) -> list[FileChange]:
        """How the wanted files differ between two commits; cost grows with what changed."""
        ...

    async def changed_files(self, start: str, commit: str) -> list[FileChange]:
        """Every file that differs between two commits, without its text; a rename is two files."""
        ...

    async def read_files(self, commit: str, paths: Sequence[str]) -> dict[str, str]:
        """The texts of those of these files that a commit has, as far as they are texts of a sane size.

        Names may begin at the top of the repository or at the agent's folder; those in the answer begin at the top.
        """
        ...

    async def further_judges(self, start: str, commit: str, judges: Callable[[str], bool]) -> list[str]:
        """What is not as it was at the start and judges although its own name does not say so.

        Data that a test names, what links lead to from where tests are, and submodules with tests in them.
        """
        ...

    async def added_text(self, start: str, commit: str, words: str) -> list[tuple[str, int, str]]:
        """Pieces of text that are new between two commits, in files where new lines match a POSIX expression.

        Each as (file, number of its first line, text); bounded in size.
        """
        ...

    async def recombined(self, commit: str, other: str, judges: BaseJudges) -> str:
        """A commit like this one, in which the files that judge are as in the other; no branch leads to it."""
        ...

    async def difference(self, before: str, after: str) -> Difference:
        """How the trees of two commits differ, for eyes: bounded in size."""
        ...

    async def content(self, start: str, commit: str) -> str:
        """The same for the same files, whichever commit holds them; the notes and their history do not count.

        `core.progress.START` where they are as in the commit `start`.
        """
        ...

    async def change(self, before: str, after: str) -> str:
        """The same for changes that add the same lines, dates, times, ids and notes aside; "": it is too large."""
        ...

    async def leaks(self, start: str, commit: str, waived: Sequence[str] = ()) -> list[Finding]:
        """Keys and tokens that any commit since `start` added, by whomever it was made, and what was not looked at."""
        ...

    async def begin_iteration(self, number: int) -> str | None:
        """Switch to a branch of its own for this iteration, if the run wants that; its name, or None."""
        ...

    async def leave_iteration(self) -> str | None:
        """Take back the branch of an iteration that committed nothing; returns the branch that is current now."""
        ...

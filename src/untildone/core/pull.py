"""A pull request as the loop sees it, and what to do about it next. Pure: the forge is asked elsewhere."""

from collections import Counter
from collections.abc import Iterable
from typing import Literal

from untildone.core.dataclass import dataclass
from untildone.core.durations import format_duration
from untildone.core.policy import Landing
from untildone.core.printable import one_line
from untildone.core.state import Arrival

LAG = 60.0
"""Seconds a forge may need until it shows what was pushed."""
SLOWEST = 6
"""A quiet pull request is looked at this many times less often than a lively one."""
_NAMED = 4
_NAME_WIDTH = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class PullCheck:
    """One check that CI runs on a pull request."""

    name: str
    state: Literal["pending", "passed", "failed"]
    url: str = ""
    id: str = ""
    """How the forge names it when its log is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PullComment:
    """What somebody wrote about a pull request: hostile text."""

    id: str
    """Sorts by time."""
    author: str
    body: str
    path: str = ""
    line: int = 0
    stranger: bool = False
    """Whoever wrote it has no say in the repository: people are told of it, the agent is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PullView:
    """A pull request at a moment."""

    number: int
    url: str = ""
    state: Literal["open", "closed", "merged"] = "open"
    head: str = ""
    """The commit CI sees."""
    base: str = ""
    mergeable: Literal["yes", "no", "unknown"] = "unknown"
    """`no`: it conflicts with the base."""
    behind: bool = False
    """The base has commits that the branch does not have."""
    checks: tuple[PullCheck, ...] = ()
    review: Literal["none", "required", "approved", "changes_requested"] = "none"
    comments: tuple[PullComment, ...] = ()
    merged: str | None = None
    """The commit on the base, once it is merged."""


@dataclass(frozen=True, slots=True)
class WaitFor:
    """Nothing to do before something changes, or `until`."""

    until: float
    said: str


@dataclass(frozen=True, slots=True)
class MendCi:
    """CI is red: the agent is shown why."""

    checks: tuple[PullCheck, ...]


@dataclass(frozen=True, slots=True)
class MendComments:
    """Somebody wrote something that nobody has dealt with."""

    comments: tuple[PullComment, ...]
    cause: Literal["comments", "changes_requested"]

    @property
    def seen(self) -> str:
        """The newest of them: from now on only newer ones count."""
        return max(comment.id for comment in self.comments)


@dataclass(frozen=True, slots=True)
class Conflict:
    """It cannot be merged as it is: the base changed the same lines."""


@dataclass(frozen=True, slots=True)
class Moved:
    """The branch stands on the forge where we did not bring it: the base was merged in, or a human helped."""

    head: str


@dataclass(frozen=True, slots=True)
class UpdateBranch:
    """The base moved on: let CI see both together before they are merged."""


@dataclass(frozen=True, slots=True)
class MergeNow:
    """Everything that must be green is: merge exactly this commit."""

    head: str


@dataclass(frozen=True, slots=True)
class Arrived:
    """It is merged, by us or by somebody else."""

    merged: str | None


@dataclass(frozen=True, slots=True)
class ClosedByHuman:
    """Somebody does not want it."""


@dataclass(frozen=True, slots=True)
class TimedOut:
    """It took longer than the patience that was agreed."""

    why: str


Step = WaitFor | MendCi | MendComments | Conflict | Moved | UpdateBranch | MergeNow | Arrived | ClosedByHuman | TimedOut


def obstacle(arrival: Arrival) -> str:
    """Why there can be no pull request for this branch and base; "" when there can."""
    if arrival.base is None:
        return "it is not known which branch a pull request is for: name it with --base"
    if arrival.branch is None:
        return "a pull request needs a branch, and none is checked out: make one with `git switch -c NAME`"
    if arrival.branch == arrival.base:
        return f"the work is on {arrival.base} itself, and a pull request needs a branch of its own: allow branches"
    return ""


def next_step(view: PullView, arrival: Arrival, landing: Landing, now: float) -> Step:
    """What to do about a pull request as it is now. Total: every view has an answer."""
    if view.state == "merged":
        return Arrived(view.merged)
    if view.state == "closed":
        return ClosedByHuman()
    if view.head != arrival.head:
        late = now >= arrival.since + LAG
        return Moved(view.head) if late else WaitFor(arrival.since + LAG, "the forge to show what was pushed")
    if view.mergeable == "no":  # before CI: forges run none on what conflicts
        return Conflict()
    return (
        _checks(view, arrival, landing, now)
        or _people(view, arrival, landing, now)
        or _merge(view, arrival, landing, now)
    )


def _checks(view: PullView, arrival: Arrival, landing: Landing, now: float) -> Step | None:
    pending = tuple(check for check in view.checks if check.state == "pending")
    failed = tuple(check for check in view.checks if check.state == "failed")
    if pending:
        waiting = _patiently(f"{len(pending)} of {_count(view.checks)}: {_names(pending)}", arrival, landing, now)
        # What is red already is mended rather than given up, when the rest does not come to an end.
        return MendCi(failed) if failed and isinstance(waiting, TimedOut) else waiting
    if failed:
        return MendCi(failed)
    if not view.checks and now < arrival.since + landing.ci_start:
        return WaitFor(arrival.since + landing.ci_start, "checks to start")
    return None


def _people(view: PullView, arrival: Arrival, landing: Landing, now: float) -> Step | None:
    fresh = tuple(comment for comment in view.comments if comment.id > arrival.seen and not comment.stranger)
    if fresh:
        return MendComments(fresh, "changes_requested" if view.review == "changes_requested" else "comments")
    if view.review == "changes_requested":
        return _patiently("the reviewer who asked for changes to look again", arrival, landing, now)
    if view.review == "required":
        return _patiently("a review", arrival, landing, now)
    return None


def _merge(view: PullView, arrival: Arrival, landing: Landing, now: float) -> Step:
    if view.mergeable == "unknown":
        return _patiently("the forge to work out whether it can be merged", arrival, landing, now)
    return UpdateBranch() if view.behind else MergeNow(view.head)


def _patiently(what: str, arrival: Arrival, landing: Landing, now: float) -> WaitFor | TimedOut:
    until = arrival.since + landing.ci_timeout
    if now < until:
        return WaitFor(until, what)
    return TimedOut(f"waited {format_duration(landing.ci_timeout)} for {what}")


def pause(landing: Landing, quiet: float) -> float:
    """Seconds until the next look, after nothing has happened for `quiet` seconds."""
    return min(max(landing.ci_poll, quiet / SLOWEST), landing.ci_poll * SLOWEST)


def described(view: PullView) -> str:
    """A pull request in one line, for people who watch it."""
    counts = Counter(check.state for check in view.checks)
    said = [f"{counts[state]} {state}" for state in ("passed", "failed", "pending") if counts[state]]
    names = _names(check for check in view.checks if check.state != "passed")
    checks = f"checks: {', '.join(said) or 'none'}" + (f" ({names})" if names else "")
    parts = [view.state, checks]
    if view.review != "none":
        parts.append(f"review: {view.review.replace('_', ' ')}")
    if view.comments:
        parts.append(_comments(view.comments))
    if view.mergeable == "no":
        parts.append("conflicts with the base")
    if view.behind:
        parts.append("behind the base")
    return f"#{view.number} {'; '.join(parts)}"


def _comments(comments: tuple[PullComment, ...]) -> str:
    said = f"{len(comments)} comment{'s' if len(comments) > 1 else ''}"
    strangers = sum(comment.stranger for comment in comments)
    return f"{said} ({strangers} by people without a say, for you to read)" if strangers else said


def _count(checks: tuple[PullCheck, ...]) -> str:
    return "1 check" if len(checks) == 1 else f"{len(checks)} checks"


def _names(checks: Iterable[PullCheck]) -> str:
    names = [one_line(check.name, _NAME_WIDTH) for check in checks]
    more = [f"and {len(names) - _NAMED} more"] if len(names) > _NAMED else []
    return ", ".join([*names[:_NAMED], *more])

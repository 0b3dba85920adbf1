"""Is this getting better? What the witness measured, look by look, and three rules that say when a run is stuck.

An edit is not progress. With checks, progress is a score that was never reached before; without checks, or while all of
them pass, it is a tree that was never there before. Values only: each function gives a new `Progress`.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from untildone.core.dataclass import dataclass
from untildone.core.failing_tests import failing_tests
from untildone.core.outcome import CheckResult
from untildone.core.output_signal import NOTHING, Heard, Said, heard, learned, said, says_more
from untildone.core.policy import Policy, RunSpec
from untildone.core.printable import one_line

START = "start"
"""The content of the tree that the run began with."""
UNCOUNTED = 1_000_000_000
"""The failures of a check whose output does not count them: worse than any number that is told."""
CHEAP = 0.1
"""A look that takes at most this share of an iteration is taken after each iteration."""
LOOK_EVERY = 3
"""A look that takes longer is taken after so many iterations."""
AGAIN_AT_MOST = 300.0
"""Seconds: a check that takes longer is not run again only to measure its noise."""
_KEPT = 256
_POINTS = 20
_SHOWN = 12
_QUOTED = 120


@dataclass(frozen=True, slots=True)
class Point:
    """What one look measured, for people."""

    passed: int
    checks: int
    failing: int | None
    """None: at least one of the failing checks does not count its failures, or is hidden."""
    unit: str = "failing tests"


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """What one look measured, to be compared with earlier looks."""

    failures: tuple[tuple[str, int], ...]
    """By check: how much of it fails. 0: it passes."""
    said: tuple[Said, ...]
    """What the checks fail with that count nothing, or only one."""
    point: Point

    @property
    def passed(self) -> int:
        """How many checks pass."""
        return self.point.passed


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What was reached so far. Bounded, whatever happens."""

    stale: int = 0
    """Iterations since something got better."""
    best_at: int = 0
    """The iteration in which something got better last."""
    passed: int = -1
    """The most checks that passed in one look; -1: no look was taken yet."""
    best: tuple[tuple[str, int], ...] = ()
    """By check: the fewest failures so far."""
    heard: Heard = NOTHING
    """What checks that count nothing said so far."""
    curve: tuple[Point, ...] = ()
    """The newest looks."""

    tree: str = START
    trees: tuple[str, ...] = (START,)
    """The contents of the tree that were there so far, the newest ones."""
    changes: tuple[str, ...] = ()
    """What changes added so far, the newest ones; dates, times and ids aside."""
    made: tuple[str, ...] | None = None
    """The contents that are new since an earlier one came back; None: none came back."""
    goes_round: bool = False
    """An earlier tree came back again, and nothing that was made in between is left."""
    fresh: bool = False
    """The tree was never there before, and no look was taken at it."""
    unplaced: bool = False
    """The last iteration changed the tree, and its content is not known yet."""

    asked: tuple[str, ...] = ()
    """The questions that the agent asked since something got better."""
    repeated: str = ""
    """The question that it asked twice."""

    unseen: bool = False
    """The tree changed since the last look."""
    since_look: int = 0
    """Iterations since the last look."""
    look_seconds: float | None = None
    """How long the last look took; None: not known."""
    work_seconds: float = 0.0
    """How long the last iteration took."""
    at: float = 0.0
    """When any of this changed last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """An iteration that ended, as far as it matters here."""

    number: int
    changed: bool
    question: str = ""
    """The question that it ended with."""
    seconds: float = 0.0
    counts: bool = True
    """False: it claims to be done where a claim is all that can be had."""


def has_judges(spec: RunSpec) -> bool:
    """Whether progress is measured by checks, as far as they do not pass."""
    return any(check.kind == "command" for check in spec.contract.checks)


def patience(policy: Policy) -> int:
    """Iterations without progress that open the breaker; 0: never. One that allows more idle ones allows these."""
    allowed = policy.no_progress_threshold
    return max(allowed, policy.stagnation_threshold) if allowed else 0


# --- what happens --------------------------------------------------------------------------------------------


def ended(progress: Progress, iteration: Ended, at: float, *, judged: bool) -> Progress:
    """After an iteration."""
    if progress.unplaced:
        # Its content was never told, as in logs of older versions: it is taken for new.
        progress = _new_tree(progress, iteration.number - 1, judged=judged)
    question = _key(iteration.question)
    return replace(
        progress,
        stale=progress.stale + iteration.counts,
        unplaced=iteration.changed,
        unseen=progress.unseen or iteration.changed,
        since_look=progress.since_look + 1,
        work_seconds=iteration.seconds,
        asked=_with(progress.asked, question) if question else progress.asked,
        repeated=iteration.question if question and question in progress.asked else progress.repeated,
        at=at,
    )


def placed(progress: Progress, content: str, number: int, at: float, *, judged: bool, change: str = "") -> Progress:
    """After the work of an iteration was committed or saved: what the tree holds now, and what changed."""
    progress = replace(progress, unplaced=False, at=at)
    if content and content == progress.tree:
        return progress
    if not content or content not in progress.trees:
        new = replace(progress, tree=content or progress.tree, trees=_with(progress.trees, content))
        made = None if progress.made is None else _with(progress.made, content)
        new = replace(new, made=made, changes=_with(progress.changes, change))
        # A line that is added again with another time, as in a log, brings nothing new.
        return new if change in progress.changes else _new_tree(new, number, judged=judged)
    # A tree that was made since the last return is something gained: the next return is counted from there.
    again = progress.made is not None and content not in progress.made
    return replace(progress, tree=content, made=(), goes_round=progress.goes_round or again)


def looked(
    progress: Progress, checks: Sequence[CheckResult], number: int, seconds: float | None, at: float
) -> Progress:
    """After a look of the witness."""
    taken = replace(
        progress, unseen=False, since_look=0, at=at, look_seconds=progress.look_seconds if seconds is None else seconds
    )
    score = measured(checks, progress.heard)
    if score is None:
        return taken
    told = replace(
        taken,
        passed=max(taken.passed, score.passed),
        best=_best(dict(taken.best), score),
        heard=heard(learned(taken.heard, checks), score.said),
        curve=(*taken.curve, score.point)[-_POINTS:],
        fresh=False,
    )
    if is_better(progress, score):
        return replace(told, stale=0, best_at=number, made=None, goes_round=False, asked=(), repeated="")
    if progress.fresh and score.passed == len(score.failures):
        # Checks that pass cannot tell one step forward from the next.
        return replace(told, stale=0, best_at=number, asked=(), repeated="")
    return told


def eased(progress: Progress) -> Progress:
    """Another chance: nothing is held against the agent any more, and what was reached stays known."""
    return replace(progress, stale=0, made=None, goes_round=False, asked=(), repeated="")


def _new_tree(progress: Progress, number: int, *, judged: bool) -> Progress:
    if judged:
        return replace(progress, fresh=True)
    return replace(progress, stale=0, best_at=number, asked=(), repeated="")


def _with(known: tuple[str, ...], *new: str) -> tuple[str, ...]:
    return (*known, *(value for value in dict.fromkeys(new) if value and value not in known))[-_KEPT:]


# --- the score -----------------------------------------------------------------------------------------------


def measured(checks: Sequence[CheckResult], heard_before: Heard = NOTHING) -> Score | None:
    """What a look says, without the noise that is known by now; None where no command was run."""
    ran = [check for check in checks if check.command]
    if not ran:
        return None
    counts = {check.name: 0 if check.passed else _count(check.output_tail) for check in ran}
    red = [check for check in ran if not check.passed]
    # Of a hidden check not even a number is told.
    known = all(counts[check.name] < UNCOUNTED and not check.hidden for check in red)
    are_tests = not red or any(check.tests_run is not None or failing_tests(check.output_tail) for check in red)
    point = Point(
        passed=len(ran) - len(red),
        checks=len(ran),
        failing=sum(counts.values()) if known else None,
        unit="failing tests" if are_tests else "problems",
    )
    return Score(
        failures=tuple(counts.items()),
        said=tuple(said(check, heard_before) for check in red if _hardly_counts(check, counts[check.name])),
        point=point,
    )


def _hardly_counts(check: CheckResult, failures: int) -> bool:
    """Whether it tells more than its count: that is missing, or it is of what stops at the first failure."""
    return failures == UNCOUNTED or (failures == 1 and not failing_tests(check.output_tail))


def is_better(progress: Progress, score: Score) -> bool:
    """Whether a look found what no look before it had found. The first look is where the run begins."""
    return _counts_better(progress, score) or any(says_more(progress.heard, one) for one in _told(progress, score))


def in_doubt(progress: Progress, checks: Sequence[CheckResult]) -> frozenset[str]:
    """The checks that say something new in words or numbers, which may be noise: they are worth a second run."""
    score = measured(checks, progress.heard)
    if score is None or _counts_better(progress, score):
        return frozenset()
    new = {one.check for one in _told(progress, score) if says_more(progress.heard, replace(one, is_measured=True))}
    return frozenset(c.name for c in checks if c.name in new and c.exit_code is not None and c.seconds <= AGAIN_AT_MOST)


def _counts_better(progress: Progress, score: Score) -> bool:
    best = dict(progress.best)
    return score.passed > progress.passed or any(
        failures < best.get(name, UNCOUNTED + 1) for name, failures in score.failures
    )


def _told(progress: Progress, score: Score) -> tuple[Said, ...]:
    """What was said. While fewer checks pass than in the look before, no number is better."""
    is_worse = bool(progress.curve) and score.passed < progress.curve[-1].passed
    return tuple(replace(one, is_measured=False) for one in score.said) if is_worse else score.said


def _best(best: dict[str, int], score: Score) -> tuple[tuple[str, int], ...]:
    return tuple((best | {name: min(n, best.get(name, n)) for name, n in score.failures}).items())


_CUT_SHORT = re.compile(r"^!+ stopping after", re.MULTILINE)
_PER_LINE = re.compile(
    r"\b(?P<before>\d+)(?:(?: of |/)\d+)? (?:[a-z]+ )?(?:failed|failing|failures?|errors?|problems?|left|missing)\b"
    r"|\b(?:failures|errors|failed)[ ]?[=:][ ]?(?P<equal>\d+)\b"
    r"|^(?:#|\u2139) fail (?P<tap>\d+)$",
    re.IGNORECASE,
)


def _count(output: str) -> int:
    """How many failures a failing check counts: in the last line that counts any, else by the tests it names."""
    names = failing_tests(output)
    # A file that could not be loaded hides its tests, and a runner that stopped early hides the rest.
    if any(not failing.name for failing in names) or _CUT_SHORT.search(output):
        return UNCOUNTED
    for line in reversed(output.splitlines()):
        if counted := sum(
            int(found["before"] or found["equal"] or found["tap"]) for found in _PER_LINE.finditer(line[:1000])
        ):
            return min(counted, UNCOUNTED - 1)
    return len(names) or UNCOUNTED


def _key(question: str) -> str:
    return " ".join(re.findall(r"\w+", question.lower()))


# --- stuck, and when to look ---------------------------------------------------------------------------------


def stuck(progress: Progress, threshold: int, *, judged: bool) -> str:
    """Why the run does not get any further; empty while it does, or while that has not been looked at."""
    if progress.unseen if judged else progress.unplaced:
        return ""
    return _suspicion(progress, threshold, judged=judged)


def wants_look(progress: Progress, threshold: int) -> bool:
    """Whether the witness looks although nothing is claimed: it costs little, it is due, or the run seems stuck."""
    if not threshold or not progress.unseen:
        return False
    took = progress.look_seconds
    is_cheap = took is not None and took <= CHEAP * progress.work_seconds
    return is_cheap or progress.since_look >= LOOK_EVERY or bool(_suspicion(progress, threshold, judged=True))


def _suspicion(progress: Progress, threshold: int, *, judged: bool) -> str:
    if not threshold:
        return ""
    why = next((told for rule in _RULES if (told := rule(progress, threshold))), "")
    points = curve(progress, every=True)
    nothing = "no new files or changes" if not judged else ""
    return ": ".join(part for part in (why, points or nothing) if part) if why else ""


def _asks_again(progress: Progress, _: int) -> str:
    asked = one_line(progress.repeated, _QUOTED)
    return f"the same question was asked twice ({asked}), no progress {_since(progress)}" if progress.repeated else ""


def _goes_round(progress: Progress, _: int) -> str:
    said = "changes were made and undone again and again, no progress"
    return f"{said} {_since(progress)}" if progress.goes_round else ""


def _no_better(progress: Progress, threshold: int) -> str:
    return f"no progress {_since(progress)}" if progress.stale >= threshold else ""


# First match wins: the most telling one first.
_RULES: tuple[Callable[[Progress, int], str], ...] = (_asks_again, _goes_round, _no_better)


def _since(progress: Progress) -> str:
    return f"since iteration {progress.best_at}" if progress.best_at else "since the start"


# --- the curve -----------------------------------------------------------------------------------------------


def curve(progress: Progress, *, every: bool = False) -> str:
    """`failing tests 9 > 7 > 4 > 0`; with `every` look: `failing tests 9 9 8 8`. Empty where there is none to show."""
    points = progress.curve
    counts = any(point.failing for point in points)
    if not points or not (every or (len(points) > 1 and (counts or points[-1].checks > 1))):
        return ""
    if counts:
        unit = next(point.unit for point in reversed(points) if point.failing)
        numbers, end = ["?" if point.failing is None else str(point.failing) for point in points], ""
    else:
        unit, end = "checks passed", f" of {points[-1].checks}"
        numbers = [str(point.passed) for point in points]
    if not every:
        numbers = [number for n, number in enumerate(numbers) if n == 0 or number != numbers[n - 1]]
    cut = "... " if len(numbers) > _SHOWN else ""
    return f"{unit} {cut}{(' ' if every else ' > ').join(numbers[-_SHOWN:])}{end}"

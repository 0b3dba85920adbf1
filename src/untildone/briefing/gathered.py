"""What a briefing needs that the folded state does not keep, gathered from the control records in one pass."""

from collections.abc import Iterable
from dataclasses import field

from untildone.core import events as ev
from untildone.core import trace as tr
from untildone.core.dataclass import dataclass


@dataclass(slots=True)
class Gathered:
    """Facts of a run, in the order they happened."""

    validations: list[tuple[float, ev.IterationValidation]] = field(default_factory=list)
    commits: list[ev.LandingCommitted] = field(default_factory=list)
    present: list[ev.LandingCommitted] = field(default_factory=list)
    """Those that were not gone back behind."""
    recoveries: list[tuple[float, ev.ContinuousRecovered]] = field(default_factory=list)
    failures: list[ev.IterationFailed] = field(default_factory=list)
    hooks: list[ev.HookFailed] = field(default_factory=list)
    steering: list[ev.Record] = field(default_factory=list)
    """What was asked for while the run went on; who asked is known only as far as the record says."""
    assumptions: dict[str, int] = field(default_factory=dict)
    """The agent's assumptions, each with the iteration that first took it."""
    questions: dict[str, int] = field(default_factory=dict)
    denials: dict[str, None] = field(default_factory=dict)
    reviewer_denials: dict[str, None] = field(default_factory=dict)
    models: dict[str, None] = field(default_factory=dict)
    drivers: int = 0
    baseline: ev.BaselineTaken | None = None
    """The checks before any work, as last taken."""
    reviews: list[ev.IterationCompleted] = field(default_factory=list)
    landings: list[ev.Event] = field(default_factory=list)
    """What became of the work on its way to the base."""


def gather(records: Iterable[ev.Record]) -> Gathered:
    """One pass over the records; trace events, if there are any, are passed over."""
    found = Gathered()
    for record in records:
        _take(found, record)
        _take_delivery(found, record.event)
    return found


def _take_delivery(found: Gathered, event: ev.Event) -> None:
    match event:
        case ev.BaselineTaken():
            found.baseline = event
        case ev.Rewound():
            found.present = [commit for commit in found.present if commit.iteration_num <= event.iteration_num]
        case ev.LandingMerged() | ev.LandingReverted() | ev.LandingRejected() | ev.LandingGaveUp():
            found.landings.append(event)
        case ev.IterationCompleted(verdict=verdict) if verdict is not None:
            found.reviews.append(event)
        case _:
            pass


def _take(found: Gathered, record: ev.Record) -> None:
    match record.event:
        case ev.IterationValidation() as event:
            found.validations.append((record.at, event))
        case ev.LandingCommitted() as event:
            found.commits.append(event)
            found.present.append(event)
        case ev.ContinuousRecovered() as event:
            found.recoveries.append((record.at, event))
        case ev.HookFailed() as event:
            found.hooks.append(event)
        case ev.ContinuousResumed():
            found.drivers += 1
        case tr.AgentSession(model=str(model)):
            found.models.setdefault(model)
        case ev.IterationCompleted() | ev.IterationFailed() as event:
            _take_ending(found, event)
        case ev.QuestionAsked() as event:
            found.questions.setdefault(event.question, event.iteration_num)
        case event if (
            event.SOURCE == "system" and event.KIND == "control" and not isinstance(event, ev.SteeringRefused)
        ):
            found.steering.append(record)
        case _:
            pass


def _take_ending(found: Gathered, event: ev.IterationCompleted | ev.IterationFailed) -> None:
    is_review = isinstance(event, ev.IterationCompleted) and event.verdict is not None
    denied = found.reviewer_denials if is_review else found.denials
    for denial in event.evidence.denials:
        denied.setdefault(denial)
    if isinstance(event, ev.IterationFailed):
        found.failures.append(event)
        return
    report = event.claim.report
    for said, kept in ((report.assumptions, found.assumptions), (report.questions, found.questions)) if report else ():
        for line in said:
            kept.setdefault(line, event.iteration_num)

"""One plain line for each event of proof and arrival: checks, guard, reviews, commits on their way to the base."""

from collections.abc import Callable, Mapping
from typing import Any

from untildone.core import events as ev
from untildone.core import trace as tr
from untildone.core.durations import format_duration
from untildone.core.failing_tests import what_failed
from untildone.core.figures import count, dollars, short_commit
from untildone.core.not_landed import for_people
from untildone.core.outcome import CheckResult
from untildone.core.printable import one_line
from untildone.core.reviewing import ReviewVerdict
from untildone.core.standing import weaker_text
from untildone.core.verdict import how_it_failed

_DETAIL = 200
_NAME = 80
_NAMED = 3
_FILES = 8

Liner = Callable[[Any, float], str | None]


def shown_check(check: CheckResult) -> str:
    """What a check is called where anybody may read it."""
    return one_line(check.name, _NAME)


def its_command(check: CheckResult) -> str:
    """The command, where it says more than the name and may be told; else empty."""
    return "" if check.hidden or check.command == check.name else check.command


def room_note(room: str, weaker: str) -> str:
    """Said wherever a verdict is shown: what proves less than it could, and why."""
    weaker = weaker or ("the checks ran in the agent's own tree" if room == "tree" else "")
    return f" (proof: {weaker_text(weaker)})" if weaker else ""


def validation_line(event: ev.IterationValidation, _: float) -> str:
    """Whether the work holds, where that was seen, and what does not hold."""
    if not event.claimed:
        return _glance_line(event)
    at = (f" at {_commit(event.commit)}" if event.commit else "") + (
        room_note(event.room, event.weaker) if event.checks else ""
    )
    if event.passed:
        if not event.checks:
            return f"guard: no problem found{at}{_reported(event)}"
        flaky = [shown_check(check) for check in event.checks if check.flaky]
        doubt = f"; flaky: {', '.join(flaky)}" if flaky else ""
        passed = one_line("; ".join(shown_check(check) for check in event.checks), _DETAIL)
        return one_line(f"checks passed{at}: {passed}{doubt}{_reported(event)}", 3 * _DETAIL)
    blocked = [finding for finding in event.findings if finding.blocking]
    said = [f"{shown_check(check)} ({_how(check)})" for check in event.checks if not check.passed]
    said += [one_line(f"{f.place}: {f.kind.replace('_', ' ')}", _NAME) for f in blocked[:_NAMED]]
    said += [f"and {len(blocked) - _NAMED} more"] if len(blocked) > _NAMED else []
    is_green = all(check.passed for check in event.checks)
    said += [one_line(line, _DETAIL) for line in event.disputed[:_NAMED]] if is_green else []
    said += [f"and {len(event.disputed) - _NAMED} more"] if is_green and len(event.disputed) > _NAMED else []
    said = said or [one_line(error, _NAME) for error in event.errors] or ["no check could be run"]
    what = ("guard" if blocked else "disputed") if is_green and (blocked or event.disputed) else "checks failed"
    return one_line(f"{what}{at}: {'; '.join(said)}", 3 * _DETAIL)


def _glance_line(event: ev.IterationValidation) -> str:
    """A look without a claim: how far the work is."""
    red = [f"{shown_check(check)} ({_how(check)})" for check in event.checks if not check.passed]
    failed = f": {'; '.join(red)}" if red else ""
    said = f"checks so far: {len(event.checks) - len(red)} of {len(event.checks)} passed{failed}"
    return one_line(said if event.checks else "no check could be run", 3 * _DETAIL)


def _how(check: CheckResult) -> str:
    what = what_failed(check.output_tail) if check.ran and check.command and not check.hidden else ""
    how = f"{how_it_failed(check)}: {what}" if what else how_it_failed(check)
    blame = {False: ", was already failing before the run", True: "", None: ""}[check.was_green]
    return one_line(how, _NAME) + (", flaky" if check.flaky else "") + blame


def _reported(event: ev.IterationValidation) -> str:
    told = [finding for finding in event.findings if not finding.blocking]
    both = "; passed with the base's tests and settings too" if event.base_checks and not event.disputed else ""
    agreed = f"; {count(len(event.disputed), 'dispute')} accepted" if event.disputed else ""
    return (f"; guarded files changed: {len(told)}" if told else "") + both + agreed


def _baseline(event: ev.BaselineTaken, _: float) -> str:
    if event.refused:
        return one_line(f"the checks prove nothing here: {event.refused}", 8 * _DETAIL)
    red = [shown_check(check) for check in event.checks if not check.passed]
    passed = sum(check.passed for check in event.checks)
    weaker = next((check.weaker for check in event.checks if check.weaker), "")
    said = f"before any work: {count(passed, 'check')} passed, {len(red)} failed{room_note(event.room, weaker)}"
    return one_line(said + (f": {'; '.join(red)}" if red else ""), 2 * _DETAIL)


def _accepted(event: ev.DisputeAccepted, _: float) -> str:
    named = f": {'; '.join(event.disputed[:_NAMED])}" if event.disputed else ""
    return one_line(f"{event.by} accepts the changed tests{named}", 2 * _DETAIL)


def _waived(event: ev.WaiverGiven, _: float) -> str:
    return one_line(f"{waived_by(event)} lets these change: {', '.join(event.patterns)}", _DETAIL)


def waived_by(event: ev.WaiverGiven) -> str:
    """Who let guarded files change, as far as it is known: anything that runs as that user can give the command."""
    return f"untildone waive (user {event.user})" if event.user else event.by


def _prepared(event: ev.LandingPrepared, _: float) -> str | None:
    if event.branch is None or event.base in {None, event.branch}:
        return None
    return one_line(f"working on {event.branch}, to be merged into {event.base}", _DETAIL)


def _held(event: ev.LandingHeld, _: float) -> str:
    return one_line(event.said, _DETAIL) if event.cause else "work can be committed again"


def _snapshot(event: ev.LandingSnapshot, _: float) -> str | None:
    if not event.reason:
        return None  # every iteration leaves one
    return f"half-done work ({count(len(event.files), 'file')}) kept as {one_line(event.ref, _DETAIL)}"


def _begun(event: ev.LandingBegun, _: float) -> str | None:
    return None if event.makes else f"landing {_commit(event.commit)}"  # the push that follows is told


def _pushed(event: ev.LandingPushed, _: float) -> str:
    return one_line(f"pushed {_commit(event.commit)} to {event.remote}/{event.branch}", _DETAIL)


def _pull_opened(event: ev.LandingPullOpened, _: float) -> str:
    return one_line(f"pull request #{event.number} for {event.base}: {event.url}", _DETAIL)


def _watched(event: ev.LandingWatched, _: float) -> str:
    return one_line(f"pull request {event.said}", _DETAIL)


def _rejected(event: ev.LandingRejected, _: float) -> str:
    why = event.said or for_people(event.cause, event.detail)
    return one_line(f"cannot land yet: {why}; the agent is told", 2 * _DETAIL)


def _merged(event: ev.LandingMerged, _: float) -> str:
    as_what = f" as {_commit(event.merged)}" if event.merged else ""
    how = ", ".join(filter(None, (event.strategy, f"pull request #{event.number}" if event.number else "")))
    left = f"; could not tidy up: {event.cleanup}" if event.cleanup else ""
    said = f"landed: {_commit(event.commit)} is in {event.base}{as_what}"
    return one_line(said + (f" ({how})" if how else "") + left, 2 * _DETAIL)


def _reverted(event: ev.LandingReverted, _: float) -> str:
    why = for_people("checks", event.reason)
    said = f"{event.base} failed its checks with {_commit(event.merged)}, {_commit(event.revert)} reverts it: {why}"
    return one_line(said, 2 * _DETAIL)


def _gave_up(event: ev.LandingGaveUp, _: float) -> str:
    return one_line(f"not landed: {event.reason}", 2 * _DETAIL)


def _rewound(event: ev.Rewound, _: float) -> str:
    said = f"{event.by} put the tree back to where it was after iteration {event.iteration_num}"
    return one_line(f"{said}; what was there is kept as {event.saved}", 2 * _DETAIL)


def review_line(number: int, verdict: ReviewVerdict, seconds: float, cost: float | None) -> str:
    """What a reviewer said, and what that cost."""
    spent = "cost unknown" if cost is None else dollars(cost)
    said = "approved" if verdict.approved else "asks for changes"
    first = next((line for line in verdict.findings.splitlines() if line.strip()), "")
    told = f": {first}" if first and not verdict.approved else ""
    return one_line(f"review of iteration {number} {said} ({format_duration(seconds)}, {spent}){told}", 2 * _DETAIL)


def _files_changed(event: tr.IterationFilesChanged, _: float) -> str | None:
    """The end of the iteration says how many; here is which."""
    if not event.files:
        return None
    named = ", ".join(change.file_path for change in event.files[:_FILES])
    more = f" and {event.files_changed - _FILES} more" if event.files_changed > _FILES else ""
    return one_line(f"+{event.lines_added} -{event.lines_removed}: {named}{more}", _DETAIL)


def _edited(_: tr.AgentFileEdited, __: float) -> None:
    """The call that edited it has a line of its own."""
    return


def _commit(commit: str) -> str:
    return short_commit(one_line(commit, 40))


DELIVERY_LINERS: Mapping[type[ev.Event], Liner] = {
    ev.BaselineTaken: _baseline,
    ev.IterationValidation: validation_line,
    ev.DisputeAccepted: _accepted,
    ev.WaiverGiven: _waived,
    ev.LandingPrepared: _prepared,
    ev.LandingHeld: _held,
    ev.LandingLeft: lambda *_: None,
    ev.LandingSnapshot: _snapshot,
    ev.LandingBegun: _begun,
    ev.LandingPushed: _pushed,
    ev.LandingPullOpened: _pull_opened,
    ev.LandingWatched: _watched,
    ev.LandingRejected: _rejected,
    ev.LandingMerged: _merged,
    ev.LandingReverted: _reverted,
    ev.LandingGaveUp: _gave_up,
    ev.Rewound: _rewound,
    tr.AgentFileEdited: _edited,
    tr.IterationFilesChanged: _files_changed,
}

"""The parts of a briefing about proof and arrival: where the checks ran, the guard, reviews, and where the work is."""

from collections.abc import Iterable, Sequence
from datetime import tzinfo

from untildone.briefing.safe import span
from untildone.core import events as ev
from untildone.core.contract import Contract, Room
from untildone.core.feedback import finding_words
from untildone.core.figures import clock, count, dollars, short_commit
from untildone.core.findings import Finding, matches
from untildone.core.lines_delivery import shown_check, waived_by
from untildone.core.not_landed import for_people
from untildone.core.outcome import CheckResult
from untildone.core.standing import landing_text
from untildone.core.state import LoopState

_ITEMS = 20
_REVIEWS = 5


def where_checked(room: Room, weaker: str) -> str:
    """Said in every report that has a verdict in it."""
    if weaker and room == "clean":
        return f"They ran in a fresh checkout of that commit. **Proof: weaker**, because {span(weaker, 2_000)}."
    if room == "tree":
        return (
            "**Proof: weaker**, because they ran in the agent's own tree: files that no commit holds may be why "
            "they passed."
        )
    return "They ran in a fresh checkout of that commit, not in the agent's tree."


def check_remarks(checks: Iterable[CheckResult], flaky: Sequence[str]) -> list[str]:
    """What else is known about each check: blame, flakiness, what was lent to it, the file with all it printed."""
    lines = []
    for check in checks:
        said = []
        if check.flaky or check.name in flaky:
            said.append("**flaky**: it gave both verdicts on one commit")
        if check.was_green is False:
            said.append("was already failing before the run" if not check.passed else "failed before the run")
        elif check.was_green and not check.passed:
            said.append("was green before the run")
        said += [span(note) for note in check.notes]
        # Of a hidden one not even that: the file holds its command.
        if check.log and not check.hidden:
            said.append(f"all it printed: {span(check.log)}")
        lines += [f"- {span(shown_check(check))}: {'; '.join(said)}"] if said else []
    return ["", *lines] if lines else []


def baseline_lines(baseline: ev.BaselineTaken | None, contract: Contract) -> list[str]:
    """Who is to blame for what is red: not this run, if it was red before."""
    if baseline is None:
        unknown = contract.checks and not contract.baseline
        return ["", "Which checks failed before the run is not known (--no-baseline)."] if unknown else []
    red = [span(shown_check(check)) for check in baseline.checks if not check.passed]
    if not red:
        return ["", "Before any work was done, all of the checks that are commands passed."]
    return ["", f"Before any work was done, {', '.join(red)} failed: that was not this run's doing."]


def guard_section(
    state: LoopState, last: ev.IterationValidation | None, asked: Sequence[ev.Record], zone: tzinfo | None
) -> list[str]:
    """Always told: what became of the files that judge the work. `asked`: what was ordered while the run went on."""
    findings = state.findings
    contract = state.spec.contract
    allowed = (*contract.waive, *state.waived)
    lines = ["## Tests, CI and other guarded files", ""]
    if contract.guard == "off":
        lines += ["**The guard was off**: changed tests and settings were not questioned.", ""]
    lines += _dispute_lines(state, last)
    blocking = [finding for finding in findings if finding.blocking]
    let_pass = [finding for finding in findings if not finding.blocking and matches(finding.path, allowed)]
    told = [finding for finding in findings if not finding.blocking and finding not in let_pass]
    lines += _findings("Completion is blocked:", blocking)
    lines += _waived(let_pass, asked, zone)
    lines += _findings("Changed, and only reported:", told)
    if not findings:
        lines += ["No change of a guarded file was found.", ""]
    if allowed:
        lines += [f"Allowed to change: {', '.join(span(pattern, 80) for pattern in allowed[:_ITEMS])}.", ""]
    return lines[:-1]


def _dispute_lines(state: LoopState, last: ev.IterationValidation | None) -> list[str]:
    """What the tests and settings of the base say to the new code."""
    if last is None or not (last.judges or last.disputed):
        return []
    named = ", ".join(span(path, 80) for path in last.judges[:_ITEMS])
    files = f"Changed since the run began: {named}." if named else ""
    if not last.disputed:
        return [f"The checks also pass with the base's tests and settings on the new code. {files}".strip(), ""]
    agreed = set(last.disputed) <= set(state.accepted)
    title = (
        f"**Not verified, but accepted by {span(state.accepted_by)}**: this held in the base and does not hold now:"
        if agreed
        else "**Disputed**: the checks pass, but this held in the base and does not hold on the new code:"
    )
    items = [f"- {span(said, 200)}" for said in last.disputed[:_ITEMS]]
    return [title, "", *items, "", *([files, ""] if files else [])]


def _waived(findings: Sequence[Finding], asked: Sequence[ev.Record], zone: tzinfo | None) -> list[str]:
    """Each finding under the order that lets it pass, the latest first; what no order names, the settings do."""
    lines: list[str] = []
    left = list(findings)
    for record in reversed(asked):
        if isinstance(record.event, ev.WaiverGiven):
            meant = [finding for finding in left if matches(finding.path, record.event.patterns)]
            by = span(waived_by(record.event), 80)
            lines += _findings(f"Waived by {by} at {clock(record.at, zone=zone)}:", meant)
            left = [finding for finding in left if finding not in meant]
    return lines + _findings("Waived by the settings of the run (`waive`):", left)


def _findings(title: str, findings: Sequence[Finding]) -> list[str]:
    if not findings:
        return []
    items = [f"- {span(f.place)}: {finding_words(f.kind)}{_quoted(f)}" for f in findings[:_ITEMS]]
    more = [f"- … and {len(findings) - _ITEMS} more."] if len(findings) > _ITEMS else []
    return [title, "", *items, *more, ""]


def _quoted(finding: Finding) -> str:
    return f" ({span(finding.text, 120)})" if finding.text.strip() else ""


def review_section(reviews: Sequence[ev.IterationCompleted]) -> list[str]:
    """What the second pair of eyes found."""
    if not reviews:
        return []
    known = [review.cost_usd for review in reviews if review.cost_usd is not None]
    approved = sum(review.verdict is not None and review.verdict.approved for review in reviews)
    spent = dollars(sum(known)) + (" and an unknown part" if len(known) < len(reviews) else "")
    lines = ["## Reviews", "", f"{count(len(reviews), 'review')}, {approved} approved; they cost {spent}.", ""]
    for review in reviews[-_REVIEWS:]:
        verdict = review.verdict
        said = "approved" if verdict and verdict.approved else "asked for changes"
        found = f": {span(verdict.findings, 400)}" if verdict and verdict.findings else ""
        lines.append(f"- After iteration {review.iteration_num} it {said}{found}")
    return lines


def landing_section(state: LoopState, landings: Sequence[ev.Event]) -> list[str]:
    """Where the work is now, and how it came there."""
    where = landing_text(state)
    if not where:
        return []
    arrival = state.arrival
    lines = ["## Where the work is", ""]
    # Why it was given up is told with the events below.
    lines.append("- It has not landed." if arrival.trouble and landings else f"- It is {span(where, 500)}")
    if arrival.branch:
        lines.append(f"- Branch {span(arrival.branch)}, to be merged into {span(arrival.base or 'the base')}")
    if arrival.url:
        lines.append(f"- Pull request: {span(arrival.url)}")
    for event in landings[-_ITEMS:]:
        lines += [f"- {line}" for line in _told(event) if line]
    return lines


def _told(event: ev.Event) -> list[str]:
    match event:
        case ev.LandingMerged():
            left = f"; could not be tidied up: {span(event.cleanup)}" if event.cleanup else ""
            merged = f" as {span(short_commit(event.merged))}" if event.merged else ""
            return [f"{span(short_commit(event.commit))} arrived in {span(event.base)}{merged}{left}"]
        case ev.LandingReverted():
            merged, revert = span(short_commit(event.merged)), span(short_commit(event.revert))
            return [f"{span(event.base)} was red after {merged}; {revert} takes it back"]
        case ev.LandingRejected():
            return [f"sent back to the agent: {span(event.said or for_people(event.cause, event.detail), 500)}"]
        case ev.LandingGaveUp():
            return [f"given up: {span(event.reason, 500)}"]
        case _:
            return []


def arrival_sentence(state: LoopState) -> str:
    """What follows the headline: where the work is, once it has arrived."""
    return f"It has {landing_text(state)}." if state.arrival.landed and landing_text(state).startswith("landed") else ""

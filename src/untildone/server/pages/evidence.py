"""What proves that a run is done, as a list of facts, each held, broken or still open."""

from collections.abc import Sequence

from untildone.core import events as ev
from untildone.core.dataclass import dataclass
from untildone.core.durations import format_duration
from untildone.core.figures import count, short_commit
from untildone.core.lines_delivery import its_command, shown_check
from untildone.core.obstacles import blocking, guard_text, obstacles
from untildone.core.outcome import CheckResult
from untildone.core.printable import one_line
from untildone.core.standing import IN_ROOM, IN_TREE, fail_to_pass_text, landing_text, review_text, weaker_text
from untildone.core.state import LoopState
from untildone.core.stopping import DONE
from untildone.core.verdict import how_it_failed
from untildone.server.pages.texts import visible

_WIDTH = 300
_OUTPUT = 4_000


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing that speaks for done, or against it."""

    label: str
    text: str
    state: str
    """`good`, `bad`, `open`, or `note`: nothing has to come of it."""


def facts_of(state: LoopState, last: ev.IterationValidation | None) -> list[Fact]:
    """What is known, in the order a doubter would ask."""
    facts = [_claim(state), _checks(state, last), _room(state, last), _commit(state), _guard(state)]
    facts += [_waived(state), _fail_to_pass(state), _review(state), _landing(state), *_in_the_way(state)]
    return [Fact(fact.label, one_line(fact.text, _WIDTH), fact.state) for fact in facts if fact is not None]


def _claim(state: LoopState) -> Fact:
    if state.streak or state.verified or state.stop_reason in DONE:
        return Fact("Claim", "the agent says it is done", "good")
    if state.blocked is not None:
        return Fact("Claim", f"the agent says it cannot go on: {state.blocked}", "bad")
    return Fact("Claim", "the agent has not said that it is done", "open")


def _checks(state: LoopState, last: ev.IterationValidation | None) -> Fact:
    checks = state.spec.contract.checks
    if not checks:
        return Fact("Checks", "none were given: nothing can be verified", "open")
    if last is None or not last.checks:
        return Fact("Checks", f"{count(len(checks), 'check')}, not run after a claim yet", "open")
    passed = sum(check.passed for check in last.checks)
    said = f"{passed} of {len(last.checks)} passed after iteration {last.iteration_num}"
    flaky = f"; flaky: {', '.join(state.flaky)}" if state.flaky else ""
    return Fact("Checks", said + flaky, "good" if passed == len(last.checks) else "bad")


def _room(state: LoopState, last: ev.IterationValidation | None) -> Fact | None:
    if not state.spec.contract.checks:
        return None
    if state.spec.contract.room == "tree":
        return Fact("Checked in", IN_TREE, "open")
    if state.weaker:
        return Fact("Checked in", f"{IN_ROOM}; proof: {weaker_text(state.weaker)}", "open")
    return Fact("Checked in", IN_ROOM, "good" if last is not None and last.checks else "open")


def _commit(state: LoopState) -> Fact:
    if state.commit_trouble:
        return Fact("Commit", f"the work is not committed: {state.commit_trouble}", "bad")
    if state.verified_commit:
        return Fact(
            "Commit", f"proven at {short_commit(state.verified_commit)}, {count(state.commits, 'commit')}", "good"
        )
    if state.last_commit:
        return Fact(
            "Commit", f"{count(state.commits, 'commit')}, the last is {short_commit(state.last_commit)}", "open"
        )
    return Fact("Commit", "nothing was committed yet", "open")


def _guard(state: LoopState) -> Fact:
    if state.spec.contract.guard == "off":
        return Fact("Guard", "off: tests, CI and thresholds may change", "open")
    if blocking(state):
        return Fact("Guard", guard_text(state.findings), "bad")
    told = guard_text(state.findings)
    if state.guarded:
        return Fact("Guard", told or "tests, CI and thresholds were left as they are", "good")
    return Fact("Guard", told or "has not looked at a claim yet", "open")


def _waived(state: LoopState) -> Fact | None:
    waived = (*state.spec.contract.waive, *state.waived)
    return Fact("Waived", ", ".join(waived), "note") if waived else None


def _fail_to_pass(state: LoopState) -> Fact | None:
    text = fail_to_pass_text(state)
    return Fact("Fail to pass", text, "good" if state.verified else "open") if text else None


def _review(state: LoopState) -> Fact | None:
    text = review_text(state)
    if not text:
        return None
    return Fact("Review", text, "good" if state.approved else "bad" if state.review_rounds else "open")


def _landing(state: LoopState) -> Fact | None:
    text = landing_text(state)
    if not text:
        return None
    landed = state.arrival.landed is not None and state.last_commit in {None, state.arrival.landed}
    return Fact("Landing", text, "good" if landed else "bad" if state.arrival.trouble else "open")


def _in_the_way(state: LoopState) -> list[Fact]:
    if state.stop_reason in DONE:
        return []
    return [Fact("In the way", said, "bad") for said in obstacles(state)]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckView:
    """A check as the loop ran it."""

    name: str
    command: str
    passed: bool
    how: str
    output: str


def checks_of(checks: Sequence[CheckResult]) -> list[CheckView]:
    """The checks of one look, hidden ones without their text."""
    return [
        CheckView(
            name=shown_check(check),
            command=one_line(its_command(check), _WIDTH),
            passed=check.passed,
            how=one_line(_how(check), _WIDTH),
            output="" if check.hidden else visible(check.output_tail[-_OUTPUT:]),
        )
        for check in checks
    ]


def _how(check: CheckResult) -> str:
    said = "passed" if check.passed else how_it_failed(check)
    parts = [said, format_duration(check.seconds) if check.seconds >= 1 else ""]
    before = "failed before the run" if check.passed else "was already failing before the run"
    parts += ["flaky" if check.flaky else "", before if check.was_green is False else ""]
    parts.append(count(check.tests_run, "test") if check.tests_run is not None else "")
    return ", ".join(part for part in parts if part)

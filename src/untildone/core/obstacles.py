"""What stands between work and done besides the checks: guard, commits, reviewer. In words, with the way out."""

from collections.abc import Sequence
from shlex import quote

from untildone.core.figures import count
from untildone.core.findings import Finding
from untildone.core.printable import one_line
from untildone.core.state import LoopState

_NAMED = 3
_SAID = 300
_PATH = 120
_OPEN = {"review": "the reviewer asks for changes", "landing": "what keeps it from landing is not fixed"}
LOOKS_AGAIN = "the problem is waived; the work was not checked again yet"


def blocking(state: LoopState) -> list[Finding]:
    """What the guard does not let pass."""
    return [finding for finding in state.findings if finding.blocking]


def obstacles(state: LoopState) -> list[str]:
    """Why the work that is there does not count, whatever the checks say: a line each, the checks themselves apart."""
    said = []
    if found := blocking(state):
        said.append(guard_text(found))
    if state.disputed:
        said.append(dispute_text(state.disputed))
    if trouble := uncommitted_text(state):
        said.append(trouble)
    if state.feedback and state.feedback_from != "checks":
        # What was said to the agent about a landing is an order to it: people get it in their own words.
        words = state.arrival.rejected if state.feedback_from == "landing" else first_line(state.feedback)
        said.append(f"{_OPEN[state.feedback_from]}: {one_line(words, _SAID)}" if words else _OPEN[state.feedback_from])
    if state.feedback and state.feedback_from == "checks" and not said and not state.red:
        said.append(one_line(first_line(state.feedback), _SAID))
    return said


def uncommitted_text(state: LoopState) -> str:
    """Why the last work is in no commit; empty when it is."""
    return f"the work is not committed: {one_line(_bare(state.commit_trouble), _SAID)}" if state.commit_trouble else ""


def guard_text(findings: Sequence[Finding]) -> str:
    """`2 problems block completion: tests/test_a.py:3 skip added, ...`; empty when nothing guarded changed."""
    stops = [finding for finding in findings if finding.blocking]
    told = len(findings) - len(stops)
    parts = []
    if stops:
        named = ", ".join(f"{finding.place} {finding.kind.replace('_', ' ')}" for finding in stops[:_NAMED])
        more = f" and {len(stops) - _NAMED} more" if len(stops) > _NAMED else ""
        parts.append(f"{count(len(stops), 'problem blocks', 'problems block')} completion: {named}{more}")
    if told:
        parts.append(f"{count(told, 'change')} of guarded files reported")
    return "; ".join(parts)


def dispute_text(disputed: Sequence[str]) -> str:
    """What held in the base and does not hold now, in a few words."""
    named = "; ".join(one_line(said, _PATH) for said in disputed[:_NAMED])
    more = f" and {len(disputed) - _NAMED} more" if len(disputed) > _NAMED else ""
    return f"disputed: the checks pass, but not with the tests and settings of the base: {named}{more}"


def way_out(state: LoopState, name: str) -> str:
    """What helps against what is in the way, with the commands to type; empty where more work is all that can help."""
    if state.claim_due:
        return f"`untildone resume {name}` checks again, without another iteration."
    if found := blocking(state):
        paths = dict.fromkeys(quote(one_line(finding.path, _PATH)) for finding in found)
        more = " ..." if len(paths) > _NAMED else ""
        waive = f"untildone waive {name} {' '.join(list(paths)[:_NAMED])}{more}"
        return f"If you agree with the change, `{waive}`, then `untildone resume {name}`."
    if state.disputed:
        return f"If the change is right, `untildone accept {name}`, then `untildone resume {name}`."
    if state.commit_trouble:
        return (
            "Fix what keeps the work from being committed, or commit it yourself "
            f"(if it is not really a key: `untildone waive {name} FILE`)."
        )
    return ""


def first_line(text: str) -> str:
    """The first line that says something."""
    return next((line for line in text.splitlines() if line.strip()), "")


def _bare(trouble: str) -> str:
    return trouble.removeprefix("not committed, the work is kept as it is: ").removeprefix("not committed: ")

"""What both ways of landing share: the words of a merge, a look at a commit, and work that goes back to the agent."""

from untildone.core import events as ev
from untildone.core.contract import CheckSpec, Room
from untildone.core.feedback import check_feedback
from untildone.core.state import LoopState
from untildone.engine.journal import Journal
from untildone.engine.parts import Parts
from untildone.ports.delivery import Subject


async def send_back(journal: Journal, cause: ev.RejectionCause, detail: str, *, seen: str = "") -> None:
    """Let the agent mend it, unless it has had its chances."""
    if journal.state.arrival.fixes >= journal.state.spec.landing.fixes:
        first = detail.strip().partition("\n")[0]
        await journal.record(ev.LandingGaveUp(reason=f"{cause}, after {journal.state.arrival.fixes} tries: {first}"))
    else:
        await journal.record(ev.LandingRejected(cause=cause, detail=detail, seen=seen))


async def failures_on(commit: str, state: LoopState, parts: Parts, *, room: Room = "clean") -> str:
    """What the checks say about a commit: "" when every one passed."""
    checks: list[CheckSpec] = [check for check in state.spec.contract.checks if check.kind == "command"]
    results = await parts.witness.examine(Subject(commit=commit, room=room), checks, flaky=state.flaky)
    return check_feedback(results)


def landing_message(state: LoopState) -> str:
    """What a squashed commit or a merge says: the goal, and what the agent reported last."""
    goal = state.spec.goal.strip().partition("\n")[0]
    summary = state.last_report.summary if state.last_report else ""
    return f"{goal}\n\n{summary}\n" if summary and summary != goal else f"{goal}\n"

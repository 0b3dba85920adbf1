"""What both ways of landing share: the words of a merge, a look at a commit, and work that goes back to the agent."""

from untildone.core import events as ev
from untildone.core.contract import CheckSpec, Room
from untildone.core.feedback import check_feedback
from untildone.core.figures import count, short_commit
from untildone.core.forge_words import defused, goal_title
from untildone.core.not_landed import for_people
from untildone.core.printable import one_line
from untildone.core.proven import doubted
from untildone.core.state import LoopState
from untildone.engine.journal import Journal
from untildone.engine.narrate import narrating
from untildone.engine.parts import Parts
from untildone.ports.delivery import Subject


async def send_back(journal: Journal, cause: ev.RejectionCause, detail: str, *, seen: str = "") -> None:
    """Let the agent mend it, unless it has had its chances."""
    if journal.state.arrival.fixes >= journal.state.spec.landing.fixes:
        tries = count(journal.state.arrival.fixes, "try", "tries")
        await journal.record(ev.LandingGaveUp(reason=f"{for_people(cause, detail)} (after {tries} to fix it)"))
    else:
        told = ev.LandingRejected(cause=cause, detail=detail, seen=seen, said=for_people(cause, detail))
        await journal.record(told)


async def failures_on(commit: str, journal: Journal, parts: Parts, *, room: Room = "clean") -> str:
    """What the checks say about a commit: "" when every one passed. Who watches is told what takes so long."""
    state, subject = journal.state, Subject(commit=commit, room=room)
    checks: list[CheckSpec] = [check for check in state.spec.contract.checks if check.kind == "command"]
    with narrating(journal) as progress:
        results = await parts.witness.examine(subject, checks, flaky=doubted(state, commit=commit), progress=progress)
    for result in results:
        if not result.passed and result.log and not result.hidden:
            failed = f"{one_line(result.name, _NAME)} fails on {short_commit(commit)}"
            await journal.tell(ev.ContinuousWarning(message=f"{failed}: all it printed is in {result.log}"))
    return check_feedback(results)


def landing_message(state: LoopState) -> str:
    """What a squashed commit or a merge says: the goal in its own words, and what the agent reported last.

    Work of a run that goes on, or of a task file, is named by the report: the goal is the same for each piece of it.
    """
    summary = defused(state.last_report.summary).strip() if state.last_report else ""
    title, is_a_piece = goal_title(state.spec.goal), not state.arrival.because
    if summary and (is_a_piece or state.spec.task_file):
        title = summary.partition("\n")[0]
    elif is_a_piece:
        title = f"{title} (iteration {state.attempts})"
    return f"{title}\n\n{summary}\n" if summary and summary != title else f"{title}\n"


async def strange_remote(state: LoopState, parts: Parts) -> str:
    """What to say when the remote leads elsewhere than at the start: an agent can change that. "" when it does not."""
    known, remote = state.arrival.remote, state.spec.landing.remote
    now = await parts.lander.remote_place()
    if known is None or now == known:
        return ""
    before = f"led to {one_line(known, _ADDRESS)}" if known else "was not there"
    leads = f"leads to {one_line(now, _ADDRESS)}" if now else "is gone"
    return f"the remote {remote} {before} when the run began and {leads} now: see `git remote -v`, and put it back"


_ADDRESS = 200
_NAME = 120

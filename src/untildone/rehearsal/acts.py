"""The acts of a rehearsed night: what is staged, what must happen, and how it is told from the run's own records.

A judge returns what is wrong, one line each; nothing wrong is green. It looks at events, books, git and processes, and
never at what the agent says.
"""

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Literal

from untildone.core import events as ev
from untildone.core.dataclass import dataclass
from untildone.core.faults import (
    AUTHENTICATION,
    CRASH,
    DRIVER_DIED,
    HANG,
    OUT_OF_MEMORY,
    OVERLOADED,
    RATE_LIMIT,
    USAGE_LIMIT,
    Fault,
)
from untildone.core.permissions import rule_for
from untildone.core.stopping import Reason
from untildone.core.trace import AgentStreamError, AgentToolResult, AgentToolUse
from untildone.rehearsal.evidence import Seen, wrong_books

Judge = Callable[[Seen], list[str]]
Place = Literal["here", "loopback", "small_disk"]
Cue = Literal["none", "kill_claude", "kill_loop", "resume", "free_disk", "garble"]

WAKE_PATIENCE = 5.0
"""Seconds after the reset in which the next try must have begun."""
MB = 1024 * 1024
DISK_FREE = 96 * MB
"""Room on the small disk; the script takes 48 MB of it, which leaves less than the reserve."""
DISK_RESERVE = 64 * MB
PUSH = "Bash(git push)"
"""What the agent is denied in an act, as it is recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One piece of trouble."""

    name: str
    staged: str
    """What happens to the loop."""
    expected: str
    """What a loop that can be left alone does about it."""
    judge: Judge
    tools: tuple[str, ...] = ()
    """What the script needs to be allowed."""
    place: Place = "here"
    cue: Cue = "none"
    """What the stage hand does in the meantime."""
    denied: tuple[str, ...] = ()
    """What the script tries although it is denied."""
    scaled: Mapping[str, float] = field(default_factory=dict)
    """Policy fields that are made small, unless the user switched them off."""

    @property
    def scenario(self) -> str:
        """The script, among those that come along."""
        return f"night-{self.name}"


def _usage_limit(seen: Seen) -> list[str]:
    wrong = _goes_on(seen, USAGE_LIMIT)
    waits = [wait for wait in seen.all(ev.ContinuousWaiting) if wait.cause == USAGE_LIMIT.name]
    tries = [started for started in seen.all(ev.IterationStarted) if started.retry]
    if not waits or waits[0].until is None or not tries:
        return wrong or ["it did not wait for the reset"]
    late = seen.at(tries[0]) - waits[0].until
    if late < -1:
        wrong.append(f"it tried {-late:.1f} s before the reset")
    if late > WAKE_PATIENCE:
        wrong.append(f"it woke {late:.1f} s after the reset")
    return wrong


def _rate_limit(seen: Seen) -> list[str]:
    return _goes_on(seen, RATE_LIMIT)


def _outage(seen: Seen) -> list[str]:
    wrong = _goes_on(seen, OVERLOADED)
    if seen.faults.count(OVERLOADED.name) == 1:
        wrong.append("it met the outage only once: Claude retried more often than it was told to")
    return wrong


def _goes_on(seen: Seen, fault: Fault) -> list[str]:
    """A fault that passes: named, waited out, gone on with in the same session, without a lost attempt."""
    if fault.name not in seen.faults:
        return [f"the fault was not named {fault.name}" + _instead(seen)]
    failed = next(event for event in seen.all(ev.IterationFailed) if event.error_type == fault.name)
    tries = [started for started in seen.all(ev.IterationStarted) if started.retry]
    wrong = []
    if all(wait.cause != fault.name for wait in seen.all(ev.ContinuousWaiting)):
        wrong.append("it did not wait")
    if not tries:
        wrong.append("it did not try again")
    elif tries[0].resume_session != failed.session_id:
        wrong.append("it began in a fresh context instead of going on in the same session")
    if any(started.iteration_num != 1 for started in seen.all(ev.IterationStarted)):
        wrong.append("the fault cost an attempt")
    return wrong


def _login(seen: Seen) -> list[str]:
    wrong = []
    if seen.faults != [AUTHENTICATION.name]:
        wrong.append("it did not stop at the first refusal of the login" + _instead(seen))
    if [stop.stop_reason for stop in seen.all(ev.ContinuousSuspended)] != [Reason.AUTHENTICATION]:
        wrong.append("it did not stop, resumably, because of the login")
    return wrong


def _hang(seen: Seen) -> list[str]:
    return _counted(seen, HANG)


def _crash(seen: Seen) -> list[str]:
    return [*_command(seen, ends=False), *_counted(seen, CRASH, OUT_OF_MEMORY)]


def _counted(seen: Seen, *names: Fault) -> list[str]:
    """A fault that is counted: named, what was half done saved, and gone on from there."""
    wrong = []
    if seen.faults[:1] not in [[fault.name] for fault in names]:
        wrong.append(f"the fault was not named {names[0].name}" + _instead(seen))
    if not seen.all(ev.LandingSnapshot):
        wrong.append("the half-done work was not saved")
    return wrong


def _garbage(seen: Seen) -> list[str]:
    wrong = [] if seen.all(AgentStreamError) else ["the garbage was not noticed"]
    return [*wrong, *(f"the garbage became a fault: {name}" for name in seen.faults)]


def _background(seen: Seen) -> list[str]:
    return _command(seen, ends=True) + [f"the background task became a fault: {name}" for name in seen.faults]


def _false_done(seen: Seen) -> list[str]:
    verdicts = [validation.passed for validation in seen.all(ev.IterationValidation) if validation.claimed]
    return [] if verdicts == [False, True] else ["the false claim was not refuted before the true one was believed"]


def _disk(seen: Seen) -> list[str]:
    lows = [resources.disk_low for resources in seen.all(ev.ResourcesSeen)]
    wrong = _command(seen, ends=True)
    if lows[:1] != [True]:
        wrong.append("it did not notice that the disk was nearly full")
    elif not any(wait.cause == "disk_low" for wait in seen.all(ev.ContinuousWaiting)):
        wrong.append("it did not pause while the disk was nearly full")
    elif False not in lows:
        wrong.append("it did not notice that there was room again")
    return wrong


def _denied(seen: Seen) -> list[str]:
    denials = [set(ended.evidence.denials) for ended in seen.all(ev.IterationCompleted)]
    if {PUSH} not in denials:
        return ["the push was not denied: it is allowed by your settings"]
    wrong = []
    if [stop.stop_reason for stop in seen.all(ev.ContinuousSuspended)] != [Reason.PERMISSION_DENIED]:
        wrong.append("it did not stop, resumably, because of the denials")
    if not any(rule_for(PUSH) in told.message for told in seen.all(ev.ContinuousWarning)):
        wrong.append("it did not name the rule that would have allowed it")
    return wrong


def _kill(seen: Seen) -> list[str]:
    wrong = _command(seen, ends=False)
    if seen.faults != [DRIVER_DIED.name]:
        wrong.append("the iteration of the dead loop was not closed as its own" + _instead(seen))
    if len(seen.all(ev.ContinuousRecovered)) != 1:
        wrong.append("the new loop did not mend what the dead one left")
    if not seen.all(ev.LandingSnapshot):
        wrong.append("the half-done work was not saved")
    return wrong


def _command(seen: Seen, *, ends: bool) -> list[str]:
    """Whether the script's command really ran, and came to its end or not: without that, nothing was staged."""
    called = [use.tool_use_id for use in seen.all(AgentToolUse) if use.tool == "Bash"]
    answers = [result.is_error for result in seen.all(AgentToolResult) if result.tool_use_id in called]
    if len(called) != 1 or answers != ([False] if ends else []):
        return ["the command of the script did not run as it should: nothing was staged"]
    return []


def _instead(seen: Seen) -> str:
    return f": {', '.join(seen.faults)}" if seen.faults else ": no fault was recorded"


def faults_of(act: Act, seen: Seen) -> list[str]:
    """All that is wrong with an act: its own expectations, and what holds for every night."""
    wrong = [seen.trouble] if seen.trouble else []
    wrong += act.judge(seen)
    evidence = [ended.evidence for ended in seen.all(ev.IterationCompleted)]
    evidence += [ended.evidence for ended in seen.all(ev.IterationFailed)]
    denied = sorted({denial for left in evidence for denial in left.denials} - set(act.denied))
    if denied:
        wrong.append(f"the agent was denied what it needs: {', '.join(denied)}")
    done = seen.all(ev.ContinuousCompleted)
    if not done:
        stops = [stop.stop_reason for stop in seen.all(ev.ContinuousSuspended)]
        wrong.append(f"the night ended early: {stops[-1]}" if stops else "the run did not come to its end")
    elif not done[0].verified:
        wrong.append("it counted as done without a passed check")
    elif seen.in_head is False:
        why = ": the repository ignores every new file, so no work is ever committed" if seen.ignored else ""
        wrong.append(f"the work is not in the last commit{why}")
    if seen.left_running:
        wrong.append(f"{seen.left_running} processes outlived the run")
    return [*wrong, *wrong_books(seen)]


ACTS: tuple[Act, ...] = (
    Act(
        name="usage-limit",
        staged="the subscription's 5-hour limit is used up and resets in 6 s",
        expected="waits until the reset, goes on in the same session, costs no attempt",
        judge=_usage_limit,
        place="loopback",
    ),
    Act(
        name="rate-limit",
        staged="429 with retry-after, in the middle of the work",
        expected="backs off, goes on in the same session, costs no attempt",
        judge=_rate_limit,
    ),
    Act(
        name="outage",
        staged="529 six times in a row, in the middle of the work",
        expected="backs off with growing pauses, goes on in the same session, costs no attempt",
        judge=_outage,
    ),
    Act(
        name="login",
        staged="401: the login is refused; it is mended and the run resumed",
        expected="stops at once, resumably, and finishes when resumed",
        judge=_login,
        cue="resume",
    ),
    Act(
        name="hang",
        staged="the API takes a request and never answers",
        expected="ends the agent after the idle timeout, saves the half-done work, goes on",
        judge=_hang,
        scaled={"idle_timeout": 4.0},
    ),
    Act(
        name="crash",
        staged="kill -9 of claude while a command runs",
        expected="counts a crash, saves the half-done work, goes on in a new process",
        judge=_crash,
        tools=("Bash",),
        cue="kill_claude",
    ),
    Act(
        name="garbage",
        staged="claude's output is mixed with broken JSON, binary bytes and a huge line",
        expected="skips and records what cannot be read, loses nothing else",
        judge=_garbage,
        cue="garble",
    ),
    Act(
        name="background",
        staged="a background command that never ends",
        expected="ends it after the grace period; nothing outlives the run",
        judge=_background,
        tools=("Bash",),
        scaled={"background_grace": 2.0},
    ),
    Act(
        name="false-done",
        staged='"done" is reported although nothing was done',
        expected="runs the check, refuses, tells the agent, believes only the true claim",
        judge=_false_done,
    ),
    Act(
        name="disk",
        staged="the disk is nearly full, later there is room again",
        expected="pauses before the disk is full, goes on by itself when there is room",
        judge=_disk,
        tools=("Bash",),
        place="small_disk",
        cue="free_disk",
        scaled={"disk_reserve": DISK_RESERVE},
    ),
    Act(
        name="denied",
        staged="the agent wants to push, which it is denied, and does nothing else",
        expected="names the rule that would allow it, stops, resumably, and finishes when resumed",
        judge=_denied,
        cue="resume",
        denied=(PUSH,),
        scaled={"permission_threshold": 2},
    ),
    Act(
        name="kill",
        staged="kill -9 of the loop itself while a command runs; it is started again",
        expected="ends the orphans, books every reply once, saves the half-done work, goes on",
        judge=_kill,
        tools=("Bash",),
        cue="kill_loop",
    ),
)

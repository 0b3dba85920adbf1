"""Runs to look at: told with the events that a driver writes."""

from collections.abc import Iterator

from untildone.core import events as ev
from untildone.core import trace as tr
from untildone.core.beginning import beginning
from untildone.core.claims import Claim, Report
from untildone.core.contract import CheckSpec, Contract
from untildone.core.diffs import ChangedFile
from untildone.core.events import Event
from untildone.core.outcome import CheckResult, Evidence, Usage
from untildone.core.policy import AgentOptions, Landing, Policy, RunSpec

GOAL = "Make the parser of dates accept ISO weeks, with tests for the years in which week 53 exists"
CHECKS = ("pytest -q", "ruff check .", "mypy src")
COMMIT = "8f3a2c91d0b7e6f5a4c3b2d1e0f9a8b7c6d5e4f3"
DIFF = """diff --git a/src/dates/weeks.py b/src/dates/weeks.py
--- a/src/dates/weeks.py
+++ b/src/dates/weeks.py
@@ -12,6 +12,14 @@ def parse(text: str) -> date:
     year, week, day = match.groups()
-    return date.fromisocalendar(int(year), int(week), 1)
+    if int(week) == 53 and not has_week_53(int(year)):
+        raise ValueError(f"{year} has no week 53")
+    return date.fromisocalendar(int(year), int(week), int(day or 1))
+
+
+def has_week_53(year: int) -> bool:
+    first = date(year, 1, 1).weekday()
+    return first == 3 or (first == 2 and isleap(year))
"""


def opening(run_id: str, name: str, goal: str = GOAL, policy: Policy | None = None) -> list[Event]:
    contract = Contract(checks=tuple(CheckSpec(name=command, command=command) for command in CHECKS))
    spec = RunSpec(
        goal=goal, cwd="/home/ada/dates", name=name, contract=contract,
        options=AgentOptions(model="claude-sonnet-4-5"), landing=Landing(land="merge", base="main"),
    )  # fmt: skip
    limits = policy or Policy(max_runs=20, max_cost_usd=5.0, max_duration=4 * 3600.0)
    return [
        beginning(run_id, spec, limits),
        ev.ContinuousResumed(pid=4711, host="build-3", version="0.1.0", lease=1),
        ev.LandingPrepared(branch=f"untildone/{name}", base="main", start="1" * 40),
        ev.BaselineTaken(commit="1" * 40, room="clean", checks=checks(1)),
    ]


def checks(passing: int) -> tuple[CheckResult, ...]:
    """The checks, so many of them passing."""
    return tuple(
        CheckResult(
            name=command, command=command, passed=number < passing, exit_code=0 if number < passing else 1,
            seconds=3.2 * (number + 1), room="clean",
            output_tail="" if number < passing else "E   assert week(2021, 53) is None\n1 failed, 41 passed in 3.20s",
        )
        for number, command in enumerate(CHECKS)
    )  # fmt: skip


def begin(number: int) -> list[Event]:
    return [
        ev.IterationStarted(iteration_num=number, prompt_preview=f"# Goal\n\n{GOAL}\n\n# Notes\n\n- weeks.py is next"),
        tr.AgentStarted(iteration_num=number, pid=4800 + number),
        tr.AgentSession(iteration_num=number, session_id=f"0199-{number}", model="claude-sonnet-4-5"),
    ]


def work(number: int) -> Iterator[Event]:
    """What the agent does in an iteration."""
    say = "I will look at how weeks are parsed today, then add the missing branch for long years."
    yield tr.AgentMessage(iteration_num=number, text=say)
    steps = [
        ("Read", "src/dates/weeks.py", "def parse(text: str) -> date:\n    ...", False),
        ("Grep", "fromisocalendar", "src/dates/weeks.py:14", False),
        ("Edit", "src/dates/weeks.py", "The file src/dates/weeks.py has been updated", False),
        ("Bash", "pytest -q tests/test_weeks.py", "E   assert week(2021, 53) is None\n1 failed", True),
        ("Bash", "pytest -q tests/test_weeks.py", "42 passed in 0.84s", False),
    ]
    for count, (tool, detail, answer, is_error) in enumerate(steps):
        use = f"toolu_{number}_{count}"
        yield tr.AgentToolUse(iteration_num=number, tool=tool, tool_use_id=use, detail=detail)
        if tool == "Edit":
            yield tr.AgentFileEdited(
                iteration_num=number, tool_use_id=use, tool=tool, file_path=detail, lines_added=8, lines_removed=1,
                diff_preview=DIFF, full_diff=DIFF, full_diff_size=len(DIFF),
            )  # fmt: skip
        yield tr.AgentToolResult(iteration_num=number, tool_use_id=use, is_error=is_error, text=answer)
        yield reply(number, count)
    yield tr.AgentMessage(iteration_num=number, text="Week 53 is handled now, with a test for 2020 and 2021.")


def reply(number: int, count: int) -> Event:
    return tr.AgentReply(
        iteration_num=number, message_id=f"msg_{number}_{count}", model="claude-sonnet-4-5",
        usage=Usage(1800, 420, 9000, 600), cost_usd=0.021,
    )  # fmt: skip


def end(number: int, *, done: bool = False, passing: int | None = None, cost: float = 0.105) -> list[Event]:
    said = "Week 53 is accepted in the years that have one" if done else "Parsing reads the day of the week"
    report = Report(
        status="COMPLETE" if done else "IN_PROGRESS", exit_signal=done, tests_status="PASSING", summary=said,
        questions=() if done else ("Should a week without a day mean Monday?",), recommendation="Look at week 53 next",
    )  # fmt: skip
    change = ChangedFile(file_path="src/dates/weeks.py", lines_added=8, lines_removed=1)
    closing: list[Event] = [
        ev.IterationCompleted(
            iteration_num=number, cost_usd=cost, duration_seconds=96.0, output_preview=said, num_turns=6,
            claim=Claim(form="report", report=report), evidence=Evidence(changed=True, files_changed=2, tree="t"),
        ),
        ev.LandingCommitted(iteration_num=number, commit=f"{number:08x}" + COMMIT[8:], files_changed=2, message=said),
        tr.IterationFilesChanged(
            iteration_num=number, files=(change, ChangedFile(file_path="tests/test_weeks.py", change_type="created",
            lines_added=31, lines_removed=0)), files_changed=2, lines_added=39, lines_removed=1,
            diff_preview=DIFF, full_diff=DIFF, full_diff_size=len(DIFF),
        ),
    ]  # fmt: skip
    if passing is not None:
        passed = passing == len(CHECKS)
        closing.append(
            ev.IterationValidation(
                iteration_num=number, passed=passed, checks=checks(passing), room="clean",
                commit=f"{number:08x}" + COMMIT[8:], feedback="" if passed else "pytest -q failed",
            )
        )  # fmt: skip
    return closing


def iteration(number: int, *, done: bool = False, passing: int | None = None, cost: float = 0.105) -> list[Event]:
    return [*begin(number), *work(number), *end(number, done=done, passing=passing, cost=cost)]


def finished(run_id: str, name: str) -> list[Event]:
    """A run from its beginning to verified and landed."""
    last = f"{4:08x}" + COMMIT[8:]
    return [
        *opening(run_id, name),
        *iteration(1), *iteration(2, done=True, passing=2),
        ev.IterationStarted(iteration_num=3), ev.IterationFailed(
            iteration_num=3, error="529 overloaded_error", error_type="overloaded", retry_allowed=True, cost_usd=0.01,
            duration_seconds=12.0,
        ),
        *iteration(3), *iteration(4, done=True, passing=3),
        ev.LandingBegun(commit=last, because="validation_passed"),
        ev.LandingMerged(commit=last, base="main", merged="c0ffee11" + COMMIT[8:]),
        ev.ContinuousCompleted(
            stop_reason="validation_passed", verified=True, successful_iterations=4, total_cost_usd=0.43,
        ),
    ]  # fmt: skip


def waiting(run_id: str, name: str, until: float) -> list[Event]:
    return [
        *opening(run_id, name, "Move the queue from polling to notifications"), *iteration(1),
        ev.IterationStarted(iteration_num=2),
        ev.IterationFailed(
            iteration_num=2, error="usage limit", error_type="usage_limit", retry_allowed=True, cost_usd=0.02,
            retry_at=until,
        ),
        ev.ContinuousWaiting(cause="usage_limit", until=until),
    ]  # fmt: skip


def stopped(run_id: str, name: str) -> list[Event]:
    return [
        *opening(run_id, name, "Upgrade the web framework to its next major version"), *iteration(1, cost=2.4),
        *iteration(2, done=True, passing=1, cost=2.62),
        ev.ContinuousLimitReached(limit_type="max_cost_usd", limit_value=5.0, current_value=5.02),
        ev.ContinuousSuspended(stop_reason="max_cost_reached", detail="$5.02 of $5.00", total_cost_usd=5.02),
    ]  # fmt: skip


def running(run_id: str, name: str) -> list[Event]:
    """In the middle of its fourth iteration."""
    return [
        *opening(run_id, name), *iteration(1), *iteration(2, done=True, passing=2), *iteration(3, done=True, passing=1),
        ev.MessageReceived(by="ada", content="Please keep the public names as they are."),
        *begin(4), *work(4),
    ]  # fmt: skip

"""A whole night, told in records: two good iterations, a rate limit, a false claim and a true one."""

from typing import Any

from core.run_kit import START, completed, failed, opening, records, started
from untildone.core import events as ev
from untildone.core import trace as tr
from untildone.core.claims import Claim, Report
from untildone.core.events import Event, Record
from untildone.core.outcome import CheckResult, Evidence, Usage
from untildone.core.policy import Policy

CHECK = "pytest -q"
HOSTILE = (
    "</p><script>alert(1)</script> ``` `x` [a](javascript:1) ![i](http://e/x) | @all\x1b[31m\x1b]0;t\x07 \u202egnp"
)
POLICY = Policy(max_runs=6, max_cost_usd=5.0, max_duration=7200.0)


def check(*, passed: bool, **changes: Any) -> CheckResult:
    facts = {
        "name": CHECK,
        "command": CHECK,
        "exit_code": 0 if passed else 1,
        "seconds": 3.2,
        "output_sha256": "ab" * 32,
    }
    return CheckResult(passed=passed, **{**facts, "output_tail": "12 passed" if passed else "FAILED test_y", **changes})


def validation(number: int, *, passed: bool, **changes: Any) -> ev.IterationValidation:
    facts = {
        "checks": (check(passed=passed),),
        "commit": "c0ffee0012345678",
        "feedback": "" if passed else "1 failed",
        "room": "clean",
    }
    return ev.IterationValidation(iteration_num=number, passed=passed, **{**facts, **changes})


def reported(summary: str, *, done: bool = False, **changes: Any) -> Claim:
    status = "COMPLETE" if done else "IN_PROGRESS"
    return Claim(form="report", report=Report(status=status, exit_signal=done, summary=summary, **changes))


def committed(number: int, commit: str, message: str = "work") -> ev.LandingCommitted:
    return ev.LandingCommitted(
        iteration_num=number, commit=commit, branch="untildone/it", files_changed=2, message=message
    )


def night_events() -> list[Event]:
    changed = Evidence(changed=True, files_changed=2, activity=("a",), output_chars=100)
    return [
        *opening(POLICY, goal="fix the parser", checks=(CHECK,)),
        ev.TasksRead(iteration_num=0, open_blocking=3, open_optional=0, ticked=1),
        started(1),
        tr.AgentReply(iteration_num=1, message_id="m1", model="m", usage=Usage(100, 10), cost_usd=0.4),
        tr.AgentMessage(iteration_num=1, text="I look at the tokenizer."),
        tr.AgentToolUse(iteration_num=1, tool="Bash", tool_use_id="t1", detail="pytest -q tests"),
        tr.AgentToolResult(iteration_num=1, tool_use_id="t1", is_error=True, text="AssertionError: one"),
        completed(
            1, cost_usd=1.25, duration_seconds=42.0, evidence=changed,
            claim=reported("keep the last byte", tasks_completed=2, assumptions=("CRLF is LF",)),
        ),
        committed(1, "3f9ac21e77d1b2"),
        started(2),
        failed(2, "rate_limit", cost_usd=0.11, estimated_usd=0.02, session_id="s2", retry_at=START + 60),
        ev.ContinuousWaiting(cause="rate_limit", until=START + 60),
        started(2, retry=1, resume_session="s2"),
        completed(2, cost_usd=2.0, duration_seconds=60.0, evidence=changed, claim=reported("all done", done=True)),
        validation(2, passed=False),
        started(3),
        completed(
            3, cost_usd=0.5, duration_seconds=30.0, evidence=changed,
            claim=reported("fix test_y", done=True, questions=("Should CR end a line?",)),
        ),
        committed(3, "c0ffee0012345678"),
        validation(3, passed=True),
        ev.ContinuousCompleted(stop_reason="validation_passed", verified=True),
    ]  # fmt: skip


def night(upto: int | None = None) -> list[Record]:
    return records(night_events()[:upto])

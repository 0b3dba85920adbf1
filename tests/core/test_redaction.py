"""Events as they may be kept: without the secrets that agents, checks and forges told."""

from untildone.core import events as ev
from untildone.core.claims import Claim, Report
from untildone.core.findings import Finding
from untildone.core.outcome import CheckResult
from untildone.core.redaction import redacted
from untildone.core.reviewing import ReviewVerdict
from untildone.core.trace import AgentSystem, AgentToolResult

KEY = "gh" + "p_" + "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0eF3hJ6"
SAID = "[secret: GitHub token]"


def test_nothing_to_hide_is_the_very_same_event():
    event = AgentToolResult(iteration_num=1, tool_use_id="t", text="a token is needed")
    assert redacted(event) is event


def test_texts_of_any_depth_are_told_without_it():
    check = CheckResult(name="c", command="c", passed=False, output_tail=f"got {KEY}")
    finding = Finding(kind="ci_changed", path="ci.yml", line=3, text=f"token: {KEY}", blocking=True)
    event = ev.IterationValidation(
        iteration_num=1, passed=False, feedback=f"a {KEY} b", checks=(check,), findings=(finding,), errors=(KEY,)
    )
    told = redacted(event)
    assert isinstance(told, ev.IterationValidation)
    assert (told.feedback, told.errors, told.checks[0].output_tail) == (f"a {SAID} b", (SAID,), f"got {SAID}")
    assert (told.findings[0].text, told.findings[0].blocking) == (f"token: {SAID}", True)
    system = redacted(AgentSystem(iteration_num=1, subtype="s", data={"a": [{"b": KEY}]}))
    assert isinstance(system, AgentSystem)
    assert system.data == {"a": [{"b": SAID}]}


def test_so_are_reports_and_reviews():
    closed = ev.IterationCompleted(
        iteration_num=1, cost_usd=0.1, output_preview=KEY, claim=Claim(report=Report(summary=f"set {KEY}")),
        verdict=ReviewVerdict(approved=False, findings=f"a.py:1 has {KEY}"),
    )  # fmt: skip
    told = redacted(closed)
    assert KEY not in str(told)
    assert str(told).count(SAID) == 3


def test_what_a_human_says_stays_as_it_was_said():
    event = ev.MessageReceived(by="u", content=f"use {KEY}")
    assert redacted(event) is event

"""How a rehearsed night is judged and staged, without playing it: tests/e2e plays it."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from untildone.core import events as ev
from untildone.core.contract import Contract, commands
from untildone.core.events import Event, Record
from untildone.core.outcome import Evidence, Usage
from untildone.core.policy import AgentOptions, Policy, RunSpec, Tending
from untildone.core.trace import AgentReply, AgentStreamError, AgentToolResult, AgentToolUse
from untildone.rehearsal import garbler
from untildone.rehearsal.acts import ACTS, DISK_RESERVE, PUSH, Act, faults_of
from untildone.rehearsal.certificate import Certificate, Scene, as_json, headline, markdown
from untildone.rehearsal.evidence import Seen, told
from untildone.rehearsal.ledger import LedgerLine
from untildone.rehearsal.night import staged_policy, staged_spec
from untildone.rehearsal.props import Props

BY_NAME = {act.name: act for act in ACTS}
STARTED = ev.IterationStarted(iteration_num=1)
AGAIN = ev.IterationStarted(iteration_num=1, retry=1, resume_session="s1")
NEXT = ev.IterationStarted(iteration_num=2)
PASSED = ev.IterationValidation(iteration_num=1, passed=True)
REFUTED = ev.IterationValidation(iteration_num=1, passed=False)
SAVED = ev.LandingSnapshot(iteration_num=1, ref="r", commit="c")
DONE = ev.ContinuousCompleted(stop_reason="validation_passed", verified=True)
CALL = AgentToolUse(iteration_num=1, tool="Bash", tool_use_id="t1")
ANSWER = AgentToolResult(iteration_num=1, tool_use_id="t1")
LOW, ROOM = (ev.ResourcesSeen(disk_low=low, disk_free=1) for low in (True, False))


def failed(fault: str) -> ev.IterationFailed:
    return ev.IterationFailed(
        iteration_num=1, error=fault, error_type=fault, retry_allowed=True, cost_usd=0.0, session_id="s1"
    )


def waiting(cause: str, until: float | None) -> ev.ContinuousWaiting:
    return ev.ContinuousWaiting(cause=cause, until=until)


def seen(*events: Event, **more: object) -> Seen:
    """One event a second."""
    records = tuple(Record(seq=n, at=float(n), event=event) for n, event in enumerate(events, 1))
    return Seen(records=records, **more)  # type: ignore[arg-type]


SUSPENDED = ev.ContinuousSuspended(stop_reason="authentication")
PUSHED = ev.IterationCompleted(iteration_num=1, cost_usd=0.1, evidence=Evidence(denials=(PUSH,)))
NAMED = ev.ContinuousWarning(message="the agent was denied: `untildone resume it --allow-tool 'Bash(git push:*)'`")
GOOD: dict[str, Sequence[Event]] = {
    "usage-limit": (STARTED, failed("usage_limit"), waiting("usage_limit", 4.0), AGAIN, PASSED, DONE),
    "rate-limit": (STARTED, failed("rate_limit"), waiting("rate_limit", 4.0), AGAIN, PASSED, DONE),
    "outage": (
        *(STARTED, failed("overloaded"), waiting("overloaded", 4.0)),
        *(failed("overloaded"), AGAIN, PASSED, DONE),
    ),
    "login": (STARTED, failed("authentication"), SUSPENDED, NEXT, PASSED, DONE),
    "hang": (STARTED, failed("hang"), SAVED, NEXT, PASSED, DONE),
    "crash": (STARTED, CALL, failed("crash"), SAVED, NEXT, PASSED, DONE),
    "garbage": (STARTED, AgentStreamError(iteration_num=1, error="no JSON"), PASSED, DONE),
    "background": (STARTED, CALL, ANSWER, PASSED, DONE),
    "false-done": (STARTED, REFUTED, NEXT, PASSED, DONE),
    "disk": (STARTED, CALL, ANSWER, LOW, waiting("disk_low", None), ROOM, NEXT, PASSED, DONE),
    "denied": (STARTED, PUSHED, NAMED, replace(SUSPENDED, stop_reason="permission_denied"), NEXT, PASSED, DONE),
    "kill": (
        *(STARTED, CALL, failed("driver_died"), SAVED),
        *(ev.ContinuousRecovered(iteration_num=1), NEXT, PASSED, DONE),
    ),
}


@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.name)
def test_what_is_expected_is_green_and_every_missing_piece_of_it_red(act: Act) -> None:
    good = GOOD[act.name]
    assert faults_of(act, seen(*good)) == []
    for piece in good:
        if piece in (STARTED, NEXT) or (piece is PASSED and act.name != "false-done"):
            continue  # what is told by the other events too
        without = [event for event in good if event is not piece]
        assert faults_of(act, seen(*without)) != [], f"nobody misses {type(piece).__name__}"


DENIED = replace(failed("model_error"), evidence=Evidence(denials=("Write(a)",)))
STOPPED = ev.ContinuousSuspended(stop_reason="consecutive_errors")


@pytest.mark.parametrize(
    ("act", "events", "wrong"),
    [
        ("usage-limit", (STARTED, DONE), "the fault was not named usage_limit: no fault was recorded"),
        ("usage-limit", (STARTED, failed("rate_limit"), AGAIN, DONE), "not named usage_limit: rate_limit"),
        ("usage-limit", (STARTED, failed("usage_limit"), waiting("usage_limit", 9.0), AGAIN, DONE), "5.0 s before"),
        ("usage-limit", (STARTED, failed("usage_limit"), waiting("usage_limit", -9.0), AGAIN, DONE), "13.0 s after"),
        ("rate-limit", (STARTED, failed("rate_limit"), replace(AGAIN, resume_session=None), DONE), "fresh context"),
        ("rate-limit", (STARTED, failed("rate_limit"), AGAIN, NEXT, DONE), "the fault cost an attempt"),
        ("outage", (STARTED, failed("overloaded"), AGAIN, DONE), "met the outage only once"),
        ("login", (STARTED, failed("authentication"), failed("authentication"), SUSPENDED), "the first refusal"),
        ("hang", (STARTED, failed("timeout"), SAVED, NEXT, DONE), "not named hang: timeout"),
        ("crash", (STARTED, failed("crash"), SAVED, STOPPED), "the night ended early: consecutive_errors"),
        ("garbage", (*GOOD["garbage"][:2], failed("no_result"), DONE), "the garbage became a fault: no_result"),
        ("background", (STARTED, failed("timeout"), NEXT, DONE), "the background task became a fault"),
        ("false-done", (STARTED, PASSED, DONE), "was not refuted"),
        ("disk", (STARTED, LOW, ROOM, DONE), "it did not pause"),
        ("kill", (STARTED, failed("crash"), SAVED, ev.ContinuousRecovered(), DONE), "not closed as its own: crash"),
        ("crash", (STARTED, CALL, ANSWER, failed("crash"), SAVED, NEXT, DONE), "nothing was staged"),
        ("background", (STARTED, CALL, replace(ANSWER, is_error=True), DONE), "nothing was staged"),
        ("false-done", (*GOOD["false-done"], DENIED), "the agent was denied what it needs: Write(a)"),
        ("denied", (STARTED, replace(PUSHED, evidence=Evidence()), DONE), "the push was not denied"),
        ("background", (STARTED,), "the run did not come to its end"),
        ("background", (STARTED, replace(DONE, verified=False)), "done without a passed check"),
    ],
)
def test_each_wrong_turn_is_red_and_named(act: str, events: Sequence[Event], wrong: str) -> None:
    assert wrong in "\n".join(faults_of(BY_NAME[act], seen(*events)))


def reply(message_id: str) -> AgentReply:
    return AgentReply(iteration_num=1, message_id=message_id, model="m", usage=Usage(), cost_usd=0.1)


def served(message_id: str, **more: object) -> LedgerLine:
    values: dict[str, object] = {
        "n": 1, "message_id": message_id, "model": "m", "input_tokens": 1, "output_tokens": 1,
        "cache_read_tokens": 0, "cache_write_tokens": 0, "complete": True, "status": 200, "at": 0.0,
    }  # fmt: skip
    return LedgerLine(**(values | more))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("booked", "books", "wrong"),
    [
        ("ab", [served("a"), served("b")], []),
        ("a", [served("a"), served("b")], ["1 of 2 served replies are not in the books"]),
        ("aa", [served("a")], ["1 replies are in the books twice"]),
        ("a", [served("a"), served("b", complete=False), served("c", kind="side")], []),
    ],
)
def test_the_books_of_both_sides_must_agree(booked: str, books: list[LedgerLine], wrong: list[str]) -> None:
    events = (*GOOD["garbage"], *(reply(name) for name in booked))
    assert faults_of(BY_NAME["garbage"], seen(*events, ledger=tuple(books))) == wrong


@pytest.mark.parametrize(
    ("facts", "wrong"),
    [
        ({"left_running": 2}, ["2 processes outlived the run"]),
        ({"left_running": None}, []),
        ({"in_head": False}, ["the work is not in the last commit"]),
        ({"in_head": None}, []),
        (
            {"in_head": False, "ignored": True},
            ["the work is not in the last commit: the repository ignores every new file, so no work is ever committed"],
        ),
        ({"trouble": "the stage fell down"}, ["the stage fell down"]),
    ],
)
def test_git_processes_and_the_stage_are_judged_too(facts: dict[str, object], wrong: list[str]) -> None:
    assert faults_of(BY_NAME["garbage"], seen(*GOOD["garbage"], **facts)) == wrong


def test_what_happened_is_told_from_events() -> None:
    assert told(seen(*GOOD["usage-limit"])) == (
        "iteration 1, fault usage_limit, waits for usage_limit 1.0 s, try 2 in the same session, checks passed, "
        "stopped: validation_passed"
    )
    assert told(seen()) == "nothing was recorded"


def test_every_act_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "night.md").read_text(encoding="utf-8")
    assert [act.name for act in ACTS if f"| `{act.name}` |" not in page] == []


# --- the certificate ---


def scene(verdict: str, **more: object) -> Scene:
    return Scene(name="hang", staged="it hangs", expected="it ends", verdict=verdict, **more)  # type: ignore[arg-type]


def certificate(*scenes: Scene) -> Certificate:
    return Certificate(
        at=0.0, seconds=9.0, version="1", claude=None, repository="/a|b<c", scenes=scenes, changed={"off": "hooks"}
    )


@pytest.mark.parametrize(
    ("verdicts", "passed", "line"),
    [
        (["green", "green"], True, "passed: 2 acts green, 0 red"),
        (["green", "not rehearsed"], True, "passed: 1 act green, 0 red, 1 not rehearsed"),
        (["green", "red"], False, "NOT passed: 1 act green, 1 red"),
        (["not rehearsed"], False, "NOT passed: 0 acts green, 0 red, 1 not rehearsed (nothing was proved)"),
        (["red", "not rehearsed"], False, "NOT passed: 0 acts green, 1 red, 1 not rehearsed"),
        ([], False, "NOT passed: 0 acts green, 0 red (nothing was proved)"),
    ],
)
def test_something_green_and_nothing_red_passes_and_what_is_missing_is_not_green(
    verdicts: list[str], passed: bool, line: str
) -> None:
    night = certificate(*map(scene, verdicts))
    assert (night.passed, headline(night)) == (passed, line)
    assert as_json(night)["passed"] is passed


def test_the_certificate_for_people_and_programs() -> None:
    red = scene("red", why=("no `fault` | named",), happened="iteration 1", evidence="/kept/a b")
    night = certificate(red, scene("green"))
    text = markdown(night)
    for said in ("# Night rehearsal", "| hang | red | it hangs | iteration 1 |", "expected: it ends", "/a\\|b&lt;c"):
        assert said in text
    assert "  - no `fault` \\| named" in text
    assert "  - what is kept of it: /kept/a b (`untildone log night-hang --store '/kept/a b/state'`)" in text
    assert text.count("what is kept") == 1
    as_object = json.loads(json.dumps(as_json(night)))
    assert (as_object["green"], as_object["red"], as_object["not_rehearsed"]) == (1, 1, 0)
    assert as_object["scenes"][0]["why"] == ["no `fault` | named"]


# --- the stage ---

SPEC = RunSpec(
    goal="mine",
    cwd="/mine",
    name="mine",
    contract=Contract(checks=commands("make")),
    notify=("https://me",),
    then=("next.md",),
    then_goals=("next",),
    options=AgentOptions(
        model="opus", mcp_config=("m.json",), hooks_file="h.json", fallback=("haiku",), config_dir="/login",
        add_dirs=("/etc",), extra_args=("--effort", "high"), permission_mode="plan",
    ),
    tending=Tending(on_stop="rm -rf /"),
)  # fmt: skip


def test_the_users_settings_are_played_with_but_nothing_that_reaches_outside(tmp_path: Path) -> None:
    props = Props("a b.txt", "draft.txt")
    spec = staged_spec(SPEC, BY_NAME["crash"], tmp_path, "/bin/claude", props)
    assert (spec.options.model, spec.options.permission_mode) == ("opus", "plan")
    assert (spec.notify, spec.then, spec.then_goals, spec.tending) == ((), (), (), Tending())
    options = spec.options
    assert (options.mcp_config, options.hooks_file, options.fallback, options.config_dir) == ((), None, (), None)
    assert options.add_dirs == ()
    assert options.extra_args == ("--setting-sources", "user", "--strict-mcp-config")
    assert (spec.cwd, spec.checks, spec.goal) == (str(tmp_path), ("test -s 'a b.txt'",), "Write the file a b.txt.")


def test_time_is_scaled_and_what_is_switched_off_stays_off() -> None:
    mine = Policy(error_threshold=2, outage_budget=9.0, max_cost_usd=0.01, deadline=1.0, wait=False)
    policy = staged_policy(mine, BY_NAME["hang"])
    assert (policy.error_threshold, policy.outage_budget, policy.wait) == (2, 9.0, False)
    assert (policy.idle_timeout, policy.max_cost_usd, policy.deadline, policy.disk_reserve) == (4.0, None, None, 0)
    assert staged_policy(replace(mine, idle_timeout=None), BY_NAME["hang"]).idle_timeout is None
    assert staged_policy(mine, BY_NAME["disk"]).disk_reserve == DISK_RESERVE
    assert staged_policy(replace(mine, disk_reserve=0), BY_NAME["disk"]).disk_reserve == 0


def test_the_garbler_loses_nothing_of_the_programs_own(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    lines = b"".join(b"line %d\n" % n for n in range(20))
    assert garbler.main(["sh", "-c", f"printf '{lines.decode()}'; exit 3"]) == 3
    out = capfdbinary.readouterr().out
    assert b"".join(line for line in out.splitlines(keepends=True) if line.startswith(b"line ")) == lines
    assert all(piece in out for piece in garbler.GARBAGE)

"""The warm agent against the real Claude Code: what reaches the model, what comes back, what it costs.

One process serves all tests here that do not need one of their own.
"""

import asyncio
import contextlib
import json
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agents.conformance import FAILURES, assert_failed
from agents.sdk_stage import DONE, RULES, STATUS, Stage, bash, staged
from patience import soon
from repositories import new_repository
from untildone.agents import claude_sdk
from untildone.agents.argv import as_prompt, claude_argv, find_claude
from untildone.agents.report_tool import REMINDER
from untildone.agents.tool_detail import REPORT_TOOL
from untildone.core.claims import REPORT_SCHEMA
from untildone.core.events import Event
from untildone.core.policy import AgentOptions
from untildone.core.trace import AgentReply, AgentReplyStarted, AgentSession, AgentStarted, AgentToolUse
from untildone.rehearsal.environment import claude_environment
from untildone.rehearsal.model import RecordedRequest, ScriptedModel
from untildone.rehearsal.scenario import Reply, Scenario, ToolCall
from untildone.sandbox.guard import descendants

pytestmark = [pytest.mark.anyio, pytest.mark.claude]

REPORT = {"status": "COMPLETE", "exit_signal": True, "summary": "all done", "tasks_completed": 3}
DEAR = 80_000
"""Output tokens that cost 1.60 $ with the default model."""
ENDLESS = "python3 -c 'import time; time.sleep(600)'"  # a plain sleep would be refused, and the turn go on, at once


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """All tests run in one event loop: the agent lives in it."""
    return "asyncio"


@pytest.fixture(scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    """An agent with a process that has served one iteration. A hook of the user notes the tools that ran."""
    tmp_path = tmp_path_factory.mktemp("warm")
    new_repository(tmp_path / "folder", files={"CLAUDE.md": "The first instructions.\n"})
    command = {"type": "command", "command": f"touch {tmp_path}/hook-ran"}
    hooks = tmp_path / "hooks.json"
    hooks.write_text(json.dumps({"hooks": {"PostToolUse": [{"matcher": "Bash", "hooks": [command]}]}}))
    options = AgentOptions(allowed_tools=("Bash",), hooks_file=str(hooks))
    async with staged(tmp_path, options=options, background_grace=1.0) as stage:
        await stage.iterate()
        yield stage


@pytest.fixture
def warm(running: Stage) -> Stage:
    """The running agent, at the beginning of a new story."""
    running.play()
    return running


async def test_iterations_share_a_process_but_no_context(warm: Stage) -> None:
    """And no prompt is taken for a slash command."""
    prompts = ("Prompt number 1.", "/clear the table", "  /cost of living", "/tmp/x is the file", "Prompt number 5.")
    warm.play(bash("echo {i}"), DONE)
    outcomes = [await warm.iterate(prompt) for prompt in prompts]
    assert [outcome.failure for outcome in outcomes] == [None] * 5
    assert len(set(warm.pids)) == 1
    assert all(event.warm for event in warm.all_told(AgentStarted))
    assert len({outcome.session_id for outcome in outcomes}) == 5
    assert [event.session_id for event in warm.all_told(AgentSession)] == [o.session_id for o in outcomes]
    for number, prompt in enumerate(prompts):
        assert json.dumps(as_prompt(prompt)) in warm.messages(2 * number)
        assert as_prompt(prompt).endswith(prompt)
        assert sum(json.dumps(as_prompt(other)) in warm.messages(2 * number) for other in prompts) == 1
    booked = sum(outcome.cost_usd or 0.0 for outcome in outcomes)
    assert booked == pytest.approx(warm.ledger_cost(), abs=1e-9)
    assert booked > 0
    replies = sum(event.cost_usd for event in warm.all_told(AgentReply))
    assert replies == pytest.approx(booked, abs=1e-9)


def first_user_blocks(request: RecordedRequest) -> list[str]:
    """Return the texts of the first user message without what `/clear` leaves there."""
    texts = [block["text"] for block in request.body["messages"][0]["content"]]
    noise = ("<local-command-caveat>", "<command-name>/clear</command-name>", "<local-command-stdout></local")
    return [text for text in texts if not text.startswith(noise)]


def as_seen(request: RecordedRequest) -> dict[str, Any]:
    """Return everything the model is shown, except the billing header and the loop's own tool."""
    body = request.body
    # A process that takes many prompts gives background commands half an hour by default, not ten minutes.
    tools = json.loads(json.dumps(body["tools"]).replace("(default 1800000", "(default 600000"))
    return {
        "system": body["system"][1:],
        "tools": {tool["name"]: tool for tool in tools if tool["name"] != REPORT_TOOL},
        "first": first_user_blocks(request),
        "rest": body["messages"][1:],
        "model": body["model"],
    }


def cold_request(stage: Stage, prompt: str) -> RecordedRequest:
    """Return the first request of a plain `claude -p` in the same folder."""
    with ScriptedModel(Scenario(name="cold", replies=(DONE,))) as model:
        argv = claude_argv(
            AgentOptions(allowed_tools=("Bash",)), claude=find_claude(), rules=RULES, mode="print", prompt=prompt
        )
        subprocess.run(
            argv,
            cwd=stage.folder,
            env=claude_environment(stage.home, model.url),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            timeout=240,
        )
        return model.requests[0]


async def test_a_warm_iteration_sees_what_a_cold_start_would_see(warm: Stage) -> None:
    (warm.folder / "CLAUDE.md").write_text("The first instructions.\n")
    await warm.iterate("Work on it.")
    (warm.folder / "CLAUDE.md").write_text("The second instructions.\n")
    (warm.folder / "new-file").write_text("x")
    subprocess.run(["git", "commit", "-qam", "second commit"], cwd=warm.folder, check=True, timeout=240)
    await warm.iterate("Work on it.")
    cold = cold_request(warm, "Work on it.")
    first, second = warm.model.requests
    assert as_seen(second) == as_seen(cold)
    assert "The second instructions." in json.dumps(second.body)
    assert "second commit" in json.dumps(second.body)
    assert "The first instructions." in json.dumps(first.body)
    # The cacheable prefix is the same in every iteration.
    prefixes = [(request.body["system"][1], request.body["tools"]) for request in (first, second)]
    assert prefixes[0] == prefixes[1]
    assert RULES in json.dumps(first.body["system"])


async def report_twice(stage: Stage) -> None:
    stage.play(Reply(tools=(ToolCall(REPORT_TOOL, REPORT),)), Reply(text="bye"))
    for _ in range(2):  # it must still be there after a `/clear`
        outcome = await stage.iterate()
        assert outcome.report is not None
        assert (outcome.report.status, outcome.report.exit_signal) == ("COMPLETE", True)
        assert outcome.report.summary == "all done"
        assert (outcome.denials, outcome.final_text) == ((), "bye")
    assert len(stage.model.requests) == 4  # the agent was not asked for a status
    assert "noted" in stage.messages(1)
    offered = {tool["name"]: tool for tool in stage.model.requests[2].body["tools"]}[REPORT_TOOL]
    assert offered["input_schema"]["properties"].keys() == REPORT_SCHEMA["properties"].keys()
    assert offered["input_schema"]["required"] == REPORT_SCHEMA["required"]


async def test_the_report_tool_is_offered_in_full_and_its_report_read(warm: Stage) -> None:
    await report_twice(warm)


@pytest.mark.soak
@pytest.mark.parametrize("mode", ["default", "dontAsk"])
async def test_the_report_tool_works_in_every_permission_mode(tmp_path: Path, mode: str) -> None:
    async with staged(tmp_path, options=AgentOptions(permission_mode=mode)) as stage:
        await report_twice(stage)


async def test_a_report_that_breaks_the_schema_is_refused(warm: Stage) -> None:
    warm.play(Reply(tools=(ToolCall(REPORT_TOOL, {"status": "SPLENDID", "exit_signal": True}),)), DONE)
    outcome = await warm.iterate()
    assert outcome.report is None
    assert "validation" in warm.messages(1).lower()


async def test_an_agent_that_stops_without_a_status_is_asked_exactly_once(warm: Stage) -> None:
    warm.play(Reply(text="I am done, I think."))
    for number in (1, 2):
        outcome = await warm.iterate()
        assert outcome.failure is None
        assert len(warm.model.requests) == 2 * number
        assert warm.messages(-1).count(json.dumps(REMINDER)[1:-1]) == 1


async def test_an_agent_that_gives_its_status_is_not_asked(warm: Stage) -> None:
    for text in (f"fine{STATUS}", "CONTINUOUS_CLAUDE_PROJECT_COMPLETE"):
        warm.play(Reply(text=text))
        await warm.iterate()
        assert len(warm.model.requests) == 1


async def test_a_session_goes_on_in_the_same_process(warm: Stage) -> None:
    first = await warm.iterate("Remember the word heron.")
    second = await warm.iterate("Go on.", resume_session=first.session_id)
    third = await warm.iterate("Afresh.")
    assert second.session_id == first.session_id != third.session_id
    assert ["heron" in warm.messages(n) for n in range(3)] == [True, True, False]
    assert len(set(warm.pids)) == 1
    booked = [first.cost_usd, second.cost_usd, third.cost_usd]
    assert sum(cost or 0.0 for cost in booked) == pytest.approx(warm.ledger_cost(), abs=1e-9)


async def test_hooks_of_the_user_are_run(warm: Stage) -> None:
    ran = warm.home.parent / "hook-ran"
    ran.unlink(missing_ok=True)
    warm.play(bash("true"), DONE)
    await warm.iterate()
    assert ran.exists()


async def test_a_permission_mode_the_agent_changed_is_set_back(warm: Stage) -> None:
    made = warm.folder / "made"
    warm.play(Reply(tools=(ToolCall("Write", {"file_path": str(made), "content": "x"}),)), DONE)
    process = warm.agent._warm
    assert process is not None
    await process.pipe.control.ask("set_permission_mode", mode="plan")
    outcome = await warm.iterate()
    assert made.exists()
    assert outcome.denials == ()
    assert warm.all_told(AgentStarted)[0].warm


async def test_an_api_failure_is_named_and_leaves_the_process_warm(warm: Stage) -> None:
    for reply, fault in FAILURES:
        warm.play(reply, DONE)
        outcome = await warm.iterate()
        assert_failed(outcome, reply, fault)
        if fault == "rate_limit":
            again = await warm.iterate("Go on.", resume_session=outcome.session_id)
            assert again.failure is None
            assert "Work." in warm.messages(-1)
        assert all(event.warm for event in warm.all_told(AgentStarted))


def dear(command: str) -> Reply:
    return Reply(tools=(ToolCall("Bash", {"command": command}),), input_tokens=0, output_tokens=DEAR)


async def test_a_budget_is_kept_to_the_reply(warm: Stage) -> None:
    spent = 0.0
    warm.play(iterations=((dear("touch one"), dear("touch two"), dear("touch three"), DONE), (DONE,)))

    async def on_event(event: Event) -> None:
        nonlocal spent
        if isinstance(event, AgentReply):
            spent += event.cost_usd or 0.0
            if spent >= 1.0:
                await warm.agent.interrupt()

    warm.on_event = on_event
    outcome = await warm.iterate()
    assert outcome.interrupted
    assert outcome.failure is None
    assert outcome.cost_usd == pytest.approx(1.60, abs=1e-9)
    assert len(warm.model.requests) == 1
    assert not (warm.folder / "two").exists()
    warm.on_event = None
    after = await warm.iterate()
    assert (after.interrupted, after.failure) == (False, None)
    assert len(set(warm.pids)) == 1


async def test_an_interrupt_works_at_any_moment(warm: Stage) -> None:
    slow = Reply(text="word " * 200, chunk_delay=0.02, tools=(ToolCall("Bash", {"command": ENDLESS}),))
    for kind in (AgentSession, AgentReplyStarted, AgentToolUse):
        warm.play(iterations=((slow, DONE), (DONE,)))
        warm.interrupt_when(kind)
        outcome = await warm.iterate()
        assert outcome.interrupted
        assert len(warm.model.requests) <= 1
        assert all(event.warm for event in warm.all_told(AgentStarted))
    warm.play()
    await warm.agent.interrupt()  # an idle agent takes no notice
    outcome = await warm.iterate()
    assert (outcome.failure, outcome.interrupted) == (None, False)
    assert warm.all_told(AgentStarted)[0].warm


async def gone(pid: int | None, word: str) -> None:
    """Return when no process of the agent has this word in its command line; the agent itself must be alive."""
    guard = pid or 0
    await soon(lambda: word not in " ".join(command_lines(guard)))
    assert "claude" in " ".join(command_lines(guard))


def command_lines(guard: int) -> list[str]:
    found = []
    for pid in descendants(guard):
        with contextlib.suppress(OSError):
            found.append(Path(f"/proc/{pid}/cmdline").read_text())
    return found


async def test_an_interrupt_does_not_wait_for_background_commands(warm: Stage) -> None:
    warm.play(iterations=((bash("sleep 6124", run_in_background=True), bash(f"touch began; {ENDLESS}")), (DONE,)))
    iterating = asyncio.create_task(warm.iterate())
    await soon((warm.folder / "began").exists)
    await warm.agent.interrupt()
    assert (await iterating).interrupted
    await gone(warm.pids[-1], "6124")
    await warm.iterate()
    assert len(set(warm.pids)) == 1


async def test_a_background_command_that_never_ends_is_stopped_after_the_grace(warm: Stage) -> None:
    warm.play(bash("sleep 6123", run_in_background=True), Reply(text=f"it runs{STATUS}"))
    outcome = await warm.iterate()
    assert (outcome.failure, outcome.interrupted) == (None, False)
    assert outcome.final_text.startswith("it runs")
    await gone(warm.pids[-1], "6123")


async def test_a_background_agent_is_stopped_after_the_grace_and_paid_for(warm: Stage) -> None:
    call = {
        "description": "look",
        "prompt": "SUBORDINATE: look around",
        "subagent_type": "general-purpose",
        "run_in_background": True,
    }
    conversation = (
        Reply(when="SUBORDINATE", tools=(ToolCall("Bash", {"command": "touch looked"}),)),
        Reply(when="SUBORDINATE", text="never heard", latency=600.0),
        Reply(tools=(ToolCall("Agent", call),)),
        bash("until [ -e looked ]; do sleep 0.05; done"),  # a reply that is cut in mid-air would be no certain price
        Reply(text=f"it looks around{STATUS}"),
        DONE,
    )
    warm.play(iterations=(conversation, (DONE,)))
    outcome = await warm.iterate()
    assert (outcome.failure, outcome.interrupted) == (None, False)
    assert outcome.cost_usd == pytest.approx(warm.ledger_cost(), abs=1e-9)
    await warm.iterate("Afresh.")
    assert "SUBORDINATE" not in warm.messages(-1)


async def test_an_older_session_another_model_and_other_rules_need_a_new_process(tmp_path: Path) -> None:
    async with staged(tmp_path, options=AgentOptions(model="claude-opus-5-5")) as stage:
        first = await stage.iterate("Remember the word heron.", budget_usd=1.0)
        await stage.iterate("Afresh.", budget_usd=0.9)
        older = {"resume_session": first.session_id, "budget_usd": 0.9}
        resumed = await stage.iterate("Go on.", **older)
        cheaper = await stage.iterate("Go on.", **older, model="claude-haiku-5-5")
        [transcript] = (tmp_path / "home").rglob(f"{first.session_id}.jsonl")
        before = transcript.read_bytes()
        other = {"model": "claude-haiku-5-5", "rules": "Other rules hold here.", "fork": True, "new_rules": True}
        forked = await stage.iterate("Which word?", **older, **other)
        assert [outcome.failure for outcome in (resumed, cheaper, forked)] == [None] * 3
        assert stage.pids[0] == stage.pids[1]
        assert len(set(stage.pids[1:])) == 4
        assert ["heron" in stage.messages(number) for number in range(5)] == [True, False, True, True, True]
        assert resumed.cost_usd == first.cost_usd  # its own cost, not the session's
        assert resumed.session_id == cheaper.session_id == first.session_id
        models = [request.body["model"].removeprefix("claude-")[:5] for request in stage.model.requests]
        assert models == ["opus-", "opus-", "opus-", "haiku", "haiku"]
        # A fork leaves the conversation that it copies as it is.
        assert forked.session_id not in {None, first.session_id}
        # The process that had it open only adds its last notes when it ends.
        assert transcript.read_bytes().startswith(before)
        assert b"Which word?" not in transcript.read_bytes()
        system = json.dumps(stage.model.requests[4].body["system"])
        assert ("Other rules hold here." in system, RULES in system) == (True, False)


@pytest.mark.soak
async def test_a_process_is_replaced_after_many_iterations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claude_sdk, "RECYCLE_AFTER", 2)
    async with staged(tmp_path) as stage:
        for _ in range(3):
            await stage.iterate()
        assert stage.pids[0] == stage.pids[1] != stage.pids[2]


@pytest.mark.soak
async def test_a_hundred_iterations_share_a_process_and_are_booked(tmp_path: Path) -> None:
    async with staged(tmp_path, bash("echo {i}"), DONE) as stage:
        outcomes = [await stage.iterate(f"Prompt number {number}.") for number in range(100)]
        assert [outcome.failure for outcome in outcomes] == [None] * 100
        assert len(set(stage.pids)) == 1
        assert all(stage.messages(-n).count("Prompt number") == 1 for n in range(1, 101))
        assert sum(outcome.cost_usd or 0.0 for outcome in outcomes) == pytest.approx(stage.ledger_cost(), abs=1e-9)

"""The warm agent when things go wrong: interrupts, budgets, crashes, hangs, failures at the start."""

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from agents.sdk_stage import DONE, STATUS, Stage, bash, claude_pid, staged
from untildone.agents.claude_sdk import ClaudeSdk
from untildone.core.events import Event
from untildone.core.faults import classify
from untildone.core.outcome import Order
from untildone.core.policy import AgentOptions
from untildone.core.trace import AgentReply, AgentReplyStarted, AgentSession, AgentStarted, AgentToolUse
from untildone.errors import AgentError, AgentMissing, ConfigError, LeaseLost
from untildone.rehearsal.environment import claude_environment
from untildone.rehearsal.model import ScriptedModel
from untildone.rehearsal.scenario import Reply, Scenario, ToolCall
from untildone.sandbox.guard import descendants
from untildone.sandbox.host import HostSpawner

pytestmark = [pytest.mark.anyio, pytest.mark.claude]

DEAR = 80_000
"""Output tokens that cost 1.60 $ with the default model."""


def dear(command: str) -> Reply:
    return Reply(tools=(ToolCall("Bash", {"command": command}),), input_tokens=0, output_tokens=DEAR)


def interrupt_when(stage: Stage, kind: type[Event]) -> None:
    """Interrupt from inside `tell`, the first time such an event is told."""
    done = False

    async def on_event(event: Event) -> None:
        nonlocal done
        if isinstance(event, kind) and not done:
            done = True
            await stage.agent.interrupt()

    stage.on_event = on_event


async def test_a_budget_is_kept_to_the_reply(tmp_path: Path) -> None:
    spent = 0.0
    conversations = ((dear("touch one"), dear("touch two"), dear("touch three"), DONE), (DONE,))
    async with staged(tmp_path, scenario=Scenario(name="dear", iterations=conversations)) as stage:

        async def on_event(event: Event) -> None:
            nonlocal spent
            if isinstance(event, AgentReply):
                spent += event.cost_usd or 0.0
                if spent >= 1.0:
                    await stage.agent.interrupt()

        stage.on_event = on_event
        outcome = await stage.iterate()
        assert outcome.interrupted
        assert outcome.failure is None
        assert outcome.cost_usd == pytest.approx(1.60, abs=1e-9)
        assert len(stage.model.requests) == 1
        assert not (stage.folder / "two").exists()
        stage.on_event = None
        after = await stage.iterate()
        assert (after.interrupted, after.failure) == (False, None)
        assert len(set(stage.pids)) == 1


@pytest.mark.parametrize("kind", [AgentSession, AgentReplyStarted, AgentToolUse])
async def test_an_interrupt_works_at_any_moment(tmp_path: Path, kind: type[Event]) -> None:
    waits = "python3 -c 'import time; time.sleep(9)'"  # a plain sleep would be refused, and the turn go on, at once
    slow = Reply(text="word " * 200, chunk_delay=0.02, tools=(ToolCall("Bash", {"command": waits}),))
    conversations = ((slow, DONE), (DONE,))
    async with staged(tmp_path, scenario=Scenario(name="slow", iterations=conversations)) as stage:
        interrupt_when(stage, kind)
        started = time.monotonic()
        outcome = await stage.iterate()
        assert outcome.interrupted
        assert time.monotonic() - started < 20
        assert len(stage.model.requests) <= 1
        assert (await stage.iterate()).failure is None
        assert len(set(stage.pids)) == 1


async def test_an_interrupt_ends_a_running_tool(tmp_path: Path) -> None:
    conversations = ((bash("touch began; sleep 61"), DONE), (DONE,))
    async with staged(tmp_path, scenario=Scenario(name="tool", iterations=conversations)) as stage:
        iterating = asyncio.create_task(stage.iterate())
        while not (stage.folder / "began").exists():
            await asyncio.sleep(0.02)
        await stage.agent.interrupt()
        outcome = await iterating
        assert (outcome.interrupted, outcome.failure) == (True, None)
        assert outcome.cost_usd == pytest.approx(stage.ledger_cost(), abs=1e-9)
        await stage.iterate()
        assert len(set(stage.pids)) == 1


async def test_an_interrupt_during_the_start_is_obeyed(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        interrupt_when(stage, AgentStarted)
        outcome = await stage.iterate()
        assert (outcome.interrupted, outcome.failure, len(stage.model.requests)) == (True, None, 0)
        assert (await stage.iterate()).failure is None


async def test_an_interrupt_when_idle_is_harmless(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        await stage.agent.interrupt()
        assert not (await stage.iterate()).interrupted
        await stage.agent.interrupt()
        assert not (await stage.iterate()).interrupted


async def gone(stage: Stage, word: str) -> None:
    """Return when no process of the agent has this word in its command line; the agent itself must be alive."""
    guard = stage.pids[-1] or 0
    async with asyncio.timeout(10):
        while word in " ".join(command_lines(guard)):
            await asyncio.sleep(0.02)
    assert "claude" in " ".join(command_lines(guard))


def command_lines(guard: int) -> list[str]:
    found = []
    for pid in descendants(guard):
        with contextlib.suppress(OSError):
            found.append(Path(f"/proc/{pid}/cmdline").read_text())
    return found


async def test_a_background_command_that_never_ends_is_stopped_after_the_grace(tmp_path: Path) -> None:
    replies = (bash("sleep 6123", run_in_background=True), Reply(text=f"it runs{STATUS}"))
    async with staged(tmp_path, *replies, background_grace=0.5) as stage:
        outcome = await stage.iterate()
        assert (outcome.failure, outcome.interrupted) == (None, False)
        assert outcome.final_text.startswith("it runs")
        await gone(stage, "6123")
        await stage.iterate()
        assert len(set(stage.pids)) == 1


async def test_an_interrupt_does_not_wait_for_background_commands(tmp_path: Path) -> None:
    conversations = ((bash("sleep 6124", run_in_background=True), bash("touch began; sleep 61")), (DONE,))
    async with staged(tmp_path, scenario=Scenario(name="both", iterations=conversations)) as stage:
        iterating = asyncio.create_task(stage.iterate())
        while not (stage.folder / "began").exists():
            await asyncio.sleep(0.02)
        asked = time.monotonic()
        await stage.agent.interrupt()
        assert (await iterating).interrupted
        assert time.monotonic() - asked < 10
        await gone(stage, "6124")
        await stage.iterate()
        assert len(set(stage.pids)) == 1


def transcript(stage: Stage) -> str:
    """Return what Claude has written down of the newest session."""
    path = Path(stage.all_told(AgentSession)[-1].transcript)
    return path.read_text() if path.exists() else ""


async def test_a_claude_killed_in_mid_iteration_is_named_and_is_replaced(tmp_path: Path) -> None:
    replies = (bash("touch began; sleep 61"), DONE)
    async with staged(tmp_path, scenario=Scenario(name="crash", replies=replies)) as stage:
        iterating = asyncio.create_task(stage.iterate())
        # The transcript lags behind: what it does not hold cannot be resumed.
        while not (stage.folder / "began").exists() or "Work." not in transcript(stage):
            await asyncio.sleep(0.02)
        os.kill(claude_pid(stage.pids[-1]), signal.SIGKILL)
        outcome = await iterating
        assert outcome.failure is not None
        assert (outcome.failure.has_result, outcome.failure.signal) == (False, signal.SIGKILL)
        assert classify(outcome.failure).name == "crash"
        assert outcome.cost_usd == pytest.approx(stage.ledger_cost(), abs=1e-9)
        assert outcome.session_id is not None
        resumed = await stage.iterate("Go on.", resume_session=outcome.session_id)
        assert resumed.failure is None
        assert resumed.session_id == outcome.session_id
        assert "Work." in stage.messages(-1)
        assert len(set(stage.pids)) == 2


async def test_a_stopped_claude_does_not_hold_up_an_interrupt(tmp_path: Path) -> None:
    async with staged(tmp_path, scenario=Scenario(name="frozen", iterations=((bash("sleep 61"),), (DONE,)))) as stage:

        async def on_event(event: Event) -> None:
            if isinstance(event, AgentToolUse):
                os.kill(claude_pid(stage.pids[-1]), signal.SIGSTOP)
                await stage.agent.interrupt()

        stage.on_event = on_event
        outcome = await stage.iterate()
        assert (outcome.interrupted, outcome.failure) == (True, None)
        stage.on_event = None
        assert (await stage.iterate()).failure is None


@pytest.mark.parametrize(
    ("status", "name"), [(401, "authentication"), (429, "rate_limit"), (529, "overloaded"), (500, "server_error")]
)
async def test_an_api_failure_is_named_and_leaves_the_process_warm(tmp_path: Path, status: int, name: str) -> None:
    replies = (Reply(status=status), DONE)
    async with staged(tmp_path, scenario=Scenario(name="failing", replies=replies)) as stage:
        outcome = await stage.iterate()
        assert outcome.failure is not None
        assert classify(outcome.failure).name == name
        again = await stage.iterate("Go on.", resume_session=outcome.session_id)
        assert again.failure is None
        assert "Work." in stage.messages(-1)
        assert len(set(stage.pids)) == 1


async def test_closing_in_mid_iteration_ends_everything_at_once(tmp_path: Path) -> None:
    async with staged(tmp_path, bash("touch began; sleep 61")) as stage:
        iterating = asyncio.create_task(stage.iterate())
        while not (stage.folder / "began").exists():
            await asyncio.sleep(0.02)
        guard = stage.pids[0]
        assert guard is not None
        started = time.monotonic()
        await stage.agent.close()
        assert time.monotonic() - started < 10
        outcome = await iterating
        assert (outcome.interrupted, outcome.failure) == (True, None)
        assert descendants(guard) == []
        assert not Path(f"/proc/{guard}").exists()
        await stage.agent.close()
        with pytest.raises(AgentError, match="closed"):
            await stage.iterate()


async def test_an_error_while_telling_reaches_the_engine_and_the_process_is_not_used_again(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:

        async def on_event(event: Event) -> None:
            if isinstance(event, AgentReplyStarted):
                raise LeaseLost("another driver took this run over")

        stage.on_event = on_event
        with pytest.raises(LeaseLost):
            await stage.iterate()
        stage.on_event = None
        assert (await stage.iterate("Anew.")).final_text.startswith("word")
        assert len(set(stage.pids)) == 2


async def test_what_claude_says_about_a_failed_start_is_passed_on(tmp_path: Path) -> None:
    options = AgentOptions(extra_args=("--no-such-option",))
    async with staged(tmp_path, options=options) as stage:
        outcome = await stage.iterate()
        assert outcome.failure is not None
        assert "--no-such-option" in outcome.failure.text
        assert (outcome.failure.has_result, outcome.failure.exit_code) == (False, 1)


async def test_resuming_a_session_that_does_not_exist_is_a_failure_with_a_reason(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        outcome = await stage.iterate(resume_session="00000000-0000-4000-8000-000000000000")
        assert outcome.failure is not None
        assert "No conversation found" in outcome.failure.text
        assert (await stage.iterate()).failure is None


def program(path: Path, script: str) -> str:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


async def test_a_program_that_is_no_claude_is_a_failure_not_a_hang(tmp_path: Path) -> None:
    fake = program(tmp_path / "fake", "echo 'this is not claude' >&2; exit 3")
    async with staged(tmp_path, options=AgentOptions(claude=fake)) as stage:
        outcome = await stage.iterate()
        assert outcome.failure is not None
        assert (outcome.failure.exit_code, outcome.failure.text) == (3, "this is not claude")


async def test_a_program_that_says_nothing_can_be_interrupted(tmp_path: Path) -> None:
    mute = program(tmp_path / "mute", "exec sleep 61")
    async with staged(tmp_path, options=AgentOptions(claude=mute)) as stage:
        iterating = asyncio.create_task(stage.iterate())
        while not stage.pids:
            await asyncio.sleep(0.02)
        await stage.agent.interrupt()
        assert (await iterating).interrupted


async def test_a_missing_claude_or_hooks_file_is_said_in_one_line(tmp_path: Path) -> None:
    order = Order(run_id="r", iteration_num=1, prompt="Work.", rules="")
    async with staged(tmp_path, options=AgentOptions(claude="/no/such/claude")) as stage:
        with pytest.raises(AgentMissing, match="/no/such"):
            await stage.agent.iterate(order, stage._tell)
    with pytest.raises(ConfigError, match="/no/such"):
        async with staged(tmp_path, options=AgentOptions(hooks_file="/no/such/hooks.json")):
            pass


async def test_closing_an_agent_that_never_ran_is_harmless(tmp_path: Path) -> None:
    agent = ClaudeSdk(AgentOptions(), HostSpawner(), cwd=str(tmp_path), env={})
    await agent.close()
    await agent.close()


async def test_an_agent_without_turns_left_is_not_asked_into_a_failure(tmp_path: Path) -> None:
    options = AgentOptions(allowed_tools=("Bash",), max_turns=2)
    async with staged(tmp_path, bash("true"), Reply(text="no status"), options=options) as stage:
        assert (await stage.iterate()).failure is None
        assert len(stage.model.requests) == 2


async def test_a_background_agent_is_stopped_after_the_grace_and_paid_for(tmp_path: Path) -> None:
    call = {
        "description": "look",
        "prompt": "SUBORDINATE: look around",
        "subagent_type": "general-purpose",
        "run_in_background": True,
    }
    replies = (
        Reply(when="SUBORDINATE", tools=(ToolCall("Bash", {"command": "true"}),)),
        Reply(when="SUBORDINATE", text="never heard", latency=30.0),
        Reply(tools=(ToolCall("Agent", call),)),
        Reply(text=f"it looks around{STATUS}"),
        DONE,
    )
    scenario = Scenario(name="background agent", replies=replies)
    async with staged(tmp_path, scenario=scenario, background_grace=1.0) as stage:
        outcome = await stage.iterate()
        assert (outcome.failure, outcome.interrupted) == (None, False)
        assert outcome.cost_usd == pytest.approx(stage.ledger_cost(), abs=1e-9)
        await stage.iterate("Afresh.")
        assert "SUBORDINATE" not in stage.messages(-1)


DRIVER = """
import asyncio, json, os, sys
from untildone.agents.claude_sdk import ClaudeSdk
from untildone.core.outcome import Order
from untildone.core.policy import AgentOptions
from untildone.sandbox.host import HostSpawner

async def tell(event):
    if event.TYPE == "agent.started":
        print(event.pid, flush=True)

async def main():
    folder, env = sys.argv[1], json.loads(sys.argv[2])
    agent = ClaudeSdk(AgentOptions(allowed_tools=("Bash",)), HostSpawner(), cwd=folder, env=env)
    await agent.iterate(Order(run_id="r", iteration_num=1, prompt="Work.", rules=""), tell)

asyncio.run(main())
"""


async def test_a_busy_claude_does_not_survive_the_loop(tmp_path: Path) -> None:
    command = "env -i setsid /bin/sleep 6125 & touch began; sleep 61"
    with ScriptedModel(Scenario(name="orphans", replies=(bash(command),))) as model:
        env = claude_environment(tmp_path / "home", model.url)
        driver = await asyncio.create_subprocess_exec(
            sys.executable, "-c", DRIVER, str(tmp_path), json.dumps(env), stdout=asyncio.subprocess.PIPE
        )
        assert driver.stdout is not None
        guard = int(await driver.stdout.readline())
        async with asyncio.timeout(30):
            while not (tmp_path / "began").exists():
                await asyncio.sleep(0.02)
            family = [guard, *descendants(guard)]
            assert len(family) >= 4
            driver.kill()
            await driver.wait()
            while any(Path(f"/proc/{pid}").exists() for pid in family):
                await asyncio.sleep(0.02)
        asked = len(model.requests)
    assert asked == 1

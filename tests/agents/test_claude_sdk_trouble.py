"""The warm agent when things go wrong: interrupts, budgets, crashes, hangs, failures at the start."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from agents.sdk_stage import DONE, Stage, bash, claude_pid, staged
from patience import soon
from untildone.agents.claude_sdk import ClaudeSdk
from untildone.core.events import Event
from untildone.core.faults import classify
from untildone.core.outcome import Order
from untildone.core.policy import AgentOptions
from untildone.core.trace import AgentReplyStarted, AgentSession, AgentStarted, AgentToolUse
from untildone.errors import AgentError, AgentMissing, ConfigError, LeaseLost
from untildone.rehearsal.environment import claude_environment
from untildone.rehearsal.model import ScriptedModel
from untildone.rehearsal.scenario import Reply, Scenario
from untildone.sandbox.guard import descendants
from untildone.sandbox.host import HostSpawner

pytestmark = [pytest.mark.anyio, pytest.mark.claude]

ENDLESS = "python3 -c 'import time; time.sleep(600)'"  # a plain sleep would be refused at once


def transcript(stage: Stage) -> str:
    """Return what Claude has written down of the newest session."""
    path = Path(stage.all_told(AgentSession)[-1].transcript)
    return path.read_text() if path.exists() else ""


async def test_a_process_that_broke_is_named_and_a_new_one_goes_on(tmp_path: Path) -> None:
    """Each story ends the process that the one before has started."""
    async with staged(tmp_path) as stage:
        await interrupted_at_its_start(stage)
        await killed(stage)
        await stopped(stage)
        await given_up_by_the_engine(stage)
        await resumed_without_a_session(stage)
        await closed(stage)


async def interrupted_at_its_start(stage: Stage) -> None:
    stage.interrupt_when(AgentStarted)
    outcome = await stage.iterate()
    assert (outcome.interrupted, outcome.failure, len(stage.model.requests)) == (True, None, 0)


async def killed(stage: Stage) -> None:
    stage.play(iterations=((bash(f"touch began; {ENDLESS}"), DONE),))
    iterating = asyncio.create_task(stage.iterate())
    # The transcript lags behind: what it does not hold cannot be resumed.
    await soon(lambda: (stage.folder / "began").exists() and "Work." in transcript(stage))
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


async def stopped(stage: Stage) -> None:
    """A Claude that gets no CPU does not hold up an interrupt."""
    stage.play(bash(ENDLESS))

    async def on_event(event: Event) -> None:
        if isinstance(event, AgentToolUse):
            os.kill(claude_pid(stage.pids[-1]), signal.SIGSTOP)
            await stage.agent.interrupt()

    stage.on_event = on_event
    outcome = await stage.iterate()
    assert (outcome.interrupted, outcome.failure) == (True, None)


async def given_up_by_the_engine(stage: Stage) -> None:
    """An error while telling reaches the engine, and the process is not used again."""
    stage.play()

    async def on_event(event: Event) -> None:
        if isinstance(event, AgentReplyStarted):
            raise LeaseLost("another driver took this run over")

    stage.on_event = on_event
    with pytest.raises(LeaseLost):
        await stage.iterate()


async def resumed_without_a_session(stage: Stage) -> None:
    stage.play()
    outcome = await stage.iterate(resume_session="00000000-0000-4000-8000-000000000000")
    assert outcome.failure is not None
    assert classify(outcome.failure).name == "session_lost"
    assert "No conversation found" in outcome.failure.text
    after = await stage.iterate("Anew.")
    assert after.failure is None
    assert after.final_text.startswith("word")
    assert [event.warm for event in stage.all_told(AgentStarted)] == [False, False]


async def closed(stage: Stage) -> None:
    (stage.folder / "began").unlink()
    stage.play(bash(f"touch began; {ENDLESS}"))
    iterating = asyncio.create_task(stage.iterate())
    await soon((stage.folder / "began").exists)
    guard = stage.pids[0]
    assert guard is not None
    await stage.agent.close()
    outcome = await iterating
    assert (outcome.interrupted, outcome.failure) == (True, None)
    assert descendants(guard) == []
    assert not Path(f"/proc/{guard}").exists()
    await stage.agent.close()
    with pytest.raises(AgentError, match="closed"):
        await stage.iterate()


async def test_what_claude_says_about_a_failed_start_is_passed_on(tmp_path: Path) -> None:
    options = AgentOptions(extra_args=("--no-such-option",))
    async with staged(tmp_path, options=options) as stage:
        outcome = await stage.iterate()
        assert outcome.failure is not None
        assert "--no-such-option" in outcome.failure.text
        assert (outcome.failure.has_result, outcome.failure.exit_code) == (False, 1)


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
    mute = program(tmp_path / "mute", "exec sleep 600")
    async with staged(tmp_path, options=AgentOptions(claude=mute)) as stage:
        iterating = asyncio.create_task(stage.iterate())
        await soon(lambda: stage.pids)
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


@pytest.mark.soak
async def test_an_agent_without_turns_left_is_not_asked_into_a_failure(tmp_path: Path) -> None:
    options = AgentOptions(allowed_tools=("Bash",), max_turns=2)
    async with staged(tmp_path, bash("true"), Reply(text="no status"), options=options) as stage:
        for number in range(1, 4):  # turns are counted anew in each iteration, also in the same process
            assert (await stage.iterate()).failure is None
            assert len(stage.model.requests) == 2 * number
        assert len(set(stage.pids)) == 1


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
    command = "env -i setsid /bin/sleep 6125 & touch began; sleep 600"
    with ScriptedModel(Scenario(name="orphans", replies=(bash(command),))) as model:
        env = claude_environment(tmp_path / "home", model.url)
        driver = await asyncio.create_subprocess_exec(
            sys.executable, "-c", DRIVER, str(tmp_path), json.dumps(env), stdout=asyncio.subprocess.PIPE
        )
        assert driver.stdout is not None
        guard = int(await driver.stdout.readline())
        await soon((tmp_path / "began").exists)
        family = [guard, *descendants(guard)]
        assert len(family) >= 4
        driver.kill()
        await driver.wait()
        await soon(lambda: not any(Path(f"/proc/{pid}").exists() for pid in family))
        asked = len(model.requests)
    assert asked == 1

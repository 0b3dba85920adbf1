"""The scripted agent keeps the same promises as the real ones."""

import asyncio
import itertools
from pathlib import Path

import pytest

from patience import PATIENCE
from untildone.agents.scripted import ScriptedAgent, Step
from untildone.core.events import Event
from untildone.core.outcome import Order, Outcome
from untildone.core.trace import AgentMessage, AgentSession, AgentStarted
from untildone.errors import AgentError

pytestmark = pytest.mark.anyio


def order(number: int = 1) -> Order:
    return Order(run_id="r", iteration_num=number, prompt="p", rules="r")


class Told(list[Event]):
    async def __call__(self, event: Event) -> None:
        self.append(event)


async def test_it_plays_values_actions_and_steps_in_order(tmp_path: Path) -> None:
    def write(asked: Order) -> Outcome:
        (tmp_path / "out.txt").write_text(asked.prompt)
        return Outcome(final_text=f"iteration {asked.iteration_num}")

    said = AgentMessage(iteration_num=3, text="hello")
    agent = ScriptedAgent([Outcome(session_id="s1", final_text="one"), write, Step(outcome=Outcome(), events=(said,))])
    told = Told()
    assert (await agent.iterate(order(1), told)).final_text == "one"
    assert (await agent.iterate(order(2), told)).final_text == "iteration 2"
    assert (tmp_path / "out.txt").read_text() == "p"
    await agent.iterate(order(3), told)
    assert [type(event) for event in told] == [AgentStarted, AgentSession, AgentStarted, AgentStarted, AgentMessage]
    assert [asked.iteration_num for asked in agent.orders] == [1, 2, 3]


async def test_a_used_up_script_says_so() -> None:
    with pytest.raises(AgentError, match="no step for iteration 1"):
        await ScriptedAgent([]).iterate(order(), Told())


async def test_an_endless_script() -> None:
    agent = ScriptedAgent(itertools.repeat(Outcome(cost_usd=0.1)))
    assert [(await agent.iterate(order(n), Told())).cost_usd for n in range(5)] == [0.1] * 5


async def test_an_interruption_cuts_a_step_and_the_agent_goes_on(tmp_path: Path) -> None:
    def never(_: Order) -> Outcome:
        raise AssertionError("the work of a step that was cut must not be done")

    agent = ScriptedAgent([Step(outcome=never, delay=60), Outcome(final_text="again")])
    await agent.interrupt()  # harmless while idle
    running = asyncio.create_task(agent.iterate(order(), Told()))
    while not agent.orders:
        await asyncio.sleep(0)
    await agent.interrupt()
    assert (await asyncio.wait_for(running, PATIENCE)).interrupted
    after = await agent.iterate(order(2), Told())
    assert after.final_text == "again"
    assert not after.interrupted


async def test_closing_ends_the_step_and_the_agent() -> None:
    agent = ScriptedAgent([Step(outcome=Outcome(), delay=60), Outcome()])
    running = asyncio.create_task(agent.iterate(order(), Told()))
    while not agent.orders:
        await asyncio.sleep(0)
    await agent.close()
    await agent.close()
    assert (await asyncio.wait_for(running, PATIENCE)).interrupted
    with pytest.raises(AgentError, match="closed"):
        await agent.iterate(order(2), Told())

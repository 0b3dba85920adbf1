"""Limits and outages in the whole loop: waits that end when they should, and who takes over meanwhile."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from engine.rig import Rig, claim
from patience import PATIENCE
from untildone.core import events as ev
from untildone.core.outcome import FaultEvidence, Outcome
from untildone.core.policy import AgentOptions, Policy

pytestmark = pytest.mark.anyio


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def refused(**evidence: Any) -> Outcome:
    failure = FaultEvidence(**{"is_error": True, "subtype": "success", "terminal_reason": "api_error", **evidence})
    return Outcome(session_id="s1", failure=failure)


def used_up(rig: Rig, seconds: float) -> Outcome:
    return refused(api_error="usage_limit_reached", api_error_status=429, resets_at=rig.clock.now() + seconds)


async def test_a_wait_is_ended_by_skip_wait_and_the_session_goes_on(rig: Rig) -> None:
    run = asyncio.create_task(rig.run([used_up(rig, 36_000), claim()], checks=("true",)))
    await rig.until(ev.ContinuousWaiting)
    await rig.say(ev.SkipWaitRequested(by="u"))
    state, agent = await asyncio.wait_for(run, PATIENCE)
    assert (state.stop_reason, state.attempts) == ("validation_passed", 1)
    assert [order.resume_session for order in agent.orders] == [None, "s1"]


async def test_a_skipped_wait_is_waited_again_when_the_limit_still_holds(rig: Rig) -> None:
    run = asyncio.create_task(rig.run([used_up(rig, 36_000), used_up(rig, 36_001), claim()], checks=("true",)))
    await rig.until(ev.ContinuousWaiting)
    await rig.say(ev.SkipWaitRequested(by="u"))
    await rig.until(ev.ContinuousWaiting, 2)
    await rig.say(ev.SkipWaitRequested(by="u"))
    state, agent = await asyncio.wait_for(run, PATIENCE)
    assert (state.attempts, len(agent.orders)) == (1, 3)


async def test_an_hour_is_waited_out_to_the_second(rig: Rig) -> None:
    limit = used_up(rig, 3600)
    run = asyncio.create_task(rig.run([limit, claim()], checks=("true",)))
    await rig.until(ev.ContinuousWaiting)
    rig.clock.skip(3599)
    state, agent = await asyncio.wait_for(run, PATIENCE)
    assert (state.stop_reason, state.attempts, len(agent.orders)) == ("validation_passed", 1, 2)
    tries = [record.at for record in rig.records if isinstance(record.event, ev.IterationStarted)]
    assert limit.failure is not None
    assert limit.failure.resets_at is not None
    assert tries[1] > limit.failure.resets_at


async def test_a_fallback_works_at_once_and_the_first_choice_comes_back(rig: Rig) -> None:
    options = AgentOptions(fallback=("haiku", "agent:claude_cli"))
    steps = [used_up(rig, 36_000), used_up(rig, 36_000), Outcome(final_text="went on"), claim()]
    state, agent = await asyncio.wait_for(
        rig.run(steps, Policy(max_runs=2), checks=("true",), options=options), PATIENCE
    )
    assert (state.stop_reason, state.attempts) == ("validation_passed", 2)
    assert [order.model for order in agent.orders] == [None, "haiku", "agent:claude_cli", None]

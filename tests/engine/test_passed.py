"""What passed the door of a sandbox decides what is booked: in a run that goes on, and after a killed driver."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from engine.rig import FastClock, Rig, claim, idle
from untildone.agents.scripted import Step
from untildone.agents.wire_notes import WireNotes
from untildone.core import events as ev
from untildone.core import trace as tr
from untildone.core.beginning import beginning
from untildone.core.outcome import FaultEvidence, Order, Outcome
from untildone.core.policy import Policy
from untildone.core.wire_book import WireReply
from untildone.store.leftovers import LAST_WORDS, WIRE_NOTES

pytestmark = pytest.mark.anyio

POLICY = Policy(max_runs=10, completion_threshold=1)
BEGUN = WireReply(status=200, message_id="m1", model="claude-opus-5-5", usage={"input_tokens": 1000})
WHOLE = replace(BEGUN, usage={"input_tokens": 1000, "output_tokens": 100}, is_whole=True)
BEGUN_USD, WHOLE_USD = 0.004, 0.006
FREE = {"cost_usd": 0.0}
BROKEN = Outcome(cost_usd=0.0, failure=FaultEvidence(is_error=True, api_error_status=529))


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def notes_of(rig: Rig) -> WireNotes:
    return WireNotes(rig.tmp / "state" / LAST_WORDS / f"{rig.run_id}{WIRE_NOTES}")


def passes(rig: Rig, reply: WireReply) -> None:
    """The door notes it: always the same request."""
    notes_of(rig).request()(reply)


def doing(act: Callable[[], object], outcome: Outcome) -> Callable[[Order], Outcome]:
    def step(_: Order) -> Outcome:
        act()
        return outcome

    return step


async def test_what_the_agent_does_not_tell_of_is_booked_and_told_once(rig: Rig) -> None:
    asks = doing(lambda: passes(rig, replace(WHOLE, is_over=True)), replace(idle(), cost_usd=0.001))
    state, _ = await rig.run([asks, replace(claim(), **FREE)], POLICY)
    assert state.spend.cost_usd == pytest.approx(WHOLE_USD)
    assert [(reply.message_id, reply.by_wire) for reply in rig.seen(tr.AgentReply)] == [("m1", True)]
    (differ,) = rig.seen(tr.AgentBooksDiffer)
    assert (differ.told_usd, differ.passed_usd, differ.replies) == (0.001, pytest.approx(WHOLE_USD), 1)
    assert state.untold_usd == pytest.approx(WHOLE_USD - 0.001)
    assert notes_of(rig).passed() is None, "it is forgotten"


async def test_prices_that_differ_are_said_once_and_the_larger_sum_is_booked(rig: Rig) -> None:
    steps = [doing(lambda: passes(rig, replace(WHOLE, is_over=True)), replace(idle(), cost_usd=0.01))] * 3
    state, _ = await rig.run([*steps, replace(claim(), **FREE)], POLICY)
    assert state.spend.cost_usd == pytest.approx(0.03)
    assert [differ.replies for differ in rig.seen(tr.AgentBooksDiffer)] == [0]


async def test_a_reply_that_was_cut_off_is_estimated_once_however_late_the_door_hears_of_it(rig: Rig) -> None:
    told = tr.AgentReplyStarted(iteration_num=1, message_id="m1", model="x", usage=idle().usage, cost_usd=BEGUN_USD)
    broken = replace(BROKEN, cut_replies=(("m1", BEGUN_USD),), estimated_usd=BEGUN_USD)
    steps = [
        Step(outcome=doing(lambda: passes(rig, BEGUN), broken), events=(told,)),
        doing(lambda: passes(rig, replace(BEGUN, is_over=True)), BROKEN),
        replace(claim(), **FREE),
    ]
    state, _ = await rig.run(steps, POLICY)
    assert (state.spend.cost_usd, state.spend.estimated_usd) == (0.0, pytest.approx(BEGUN_USD))


async def test_the_wait_that_the_model_asked_for_last_is_kept(tmp_path: Path) -> None:
    rig = Rig(tmp_path, clock=FastClock(speed=100))
    refused = doing(lambda: passes(rig, WireReply(status=529, retry_after=60.0, is_over=True)), BROKEN)
    began = rig.clock.now()
    await rig.run([refused, replace(claim(), **FREE)], POLICY)
    (failed,) = rig.seen(ev.IterationFailed)
    assert failed.retry_at is not None
    assert failed.retry_at - began >= 60.0


async def test_after_a_killed_driver_exactly_that_is_booked_which_had_passed(rig: Rig) -> None:
    lease = await rig.log.acquire(rig.run_id, name="it", folder=str(rig.repo))
    started = ev.IterationStarted(iteration_num=1, prompt_preview="## The task")
    logged = tr.AgentReply(iteration_num=1, message_id="m0", model="x", usage=idle().usage, cost_usd=WHOLE_USD)
    await rig.log.append(rig.run_id, [beginning(rig.run_id, rig.spec(), POLICY), started, logged], lease=lease)
    await rig.log.release(lease, status="running")
    notes = notes_of(rig)
    for reply in (replace(WHOLE, message_id="m0"), WHOLE, replace(BEGUN, message_id="m2")):
        notes.request()(reply)
    notes.request()
    state, _ = await rig.resume([replace(claim(), **FREE)])
    (failed,) = rig.seen(ev.IterationFailed)
    assert (failed.error_type, failed.unseen_requests) == ("driver_died", 1)
    assert (failed.cost_usd, failed.estimated_usd) == (pytest.approx(2 * WHOLE_USD), pytest.approx(BEGUN_USD))
    assert [reply.message_id for reply in rig.seen(tr.AgentReply)] == ["m1"]
    assert rig.seen(tr.AgentBooksDiffer) == [], "the log could not know of it"
    assert state.spend.cost_usd == pytest.approx(2 * WHOLE_USD)
    assert notes_of(rig).passed() is None

"""Humans far away hear what happens; a channel in trouble neither hurts nor holds up the run."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from engine.rig import Rig, Steps, claim, idle
from notify.ear import listening
from patience import PATIENCE, run_out, soon
from untildone import wiring
from untildone.agents.scripted import ScriptedAgent, Step
from untildone.core import events as ev
from untildone.core.notice import Note
from untildone.core.outcome import FaultEvidence, Order, Outcome
from untildone.core.policy import Policy
from untildone.core.state import LoopState
from untildone.engine import announce
from untildone.errors import ConfigError, LeaseLost, StoreError
from untildone.notify.quiet import Quiet
from untildone.ports import EventLog, Lease, Notifier

pytestmark = pytest.mark.anyio

DONE = [claim(), claim()]


class Endless:
    """A channel that never answers."""

    name = "nowhere"

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def send(self, note: Note) -> str:
        self.asked.set()
        await asyncio.Event().wait()
        return ""


class Broken:
    """A channel with a bug."""

    name = "broken"

    async def send(self, note: Note) -> str:
        raise RuntimeError("https://secret.example")


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


async def run(rig: Rig, steps: Steps, to: Sequence[Notifier], policy: Policy | None = None, **spec: Any) -> LoopState:
    around = replace(rig.around(ScriptedAgent(steps)), notifiers=to)
    async with asyncio.timeout(PATIENCE):
        return await wiring.start_run(rig.spec(**spec), policy or Policy(max_runs=9), around, run_id=rig.run_id)


def warnings(rig: Rig, about: str) -> list[str]:
    return [warning.message for warning in rig.seen(ev.ContinuousWarning) if about in warning.message]


async def test_every_channel_hears_the_end(rig: Rig) -> None:
    one, other = Quiet(), Quiet()
    state = await run(rig, DONE, [one, other])
    assert state.stop_reason == "completion_signal"
    assert [note.kind for note in one.notes] == ["done"]
    assert one.notes == other.notes


async def test_a_webhook_hears_the_whole_story(rig: Rig) -> None:
    reset = rig.clock.now() + 86_400
    limited = Outcome(
        session_id="s1", failure=FaultEvidence(api_error="usage_limit_reached", resets_at=reset, text="5h")
    )
    with listening() as ear:
        going = asyncio.create_task(
            rig.run([replace(idle(), cost_usd=0.85), limited], Policy(max_cost_usd=1.0), notify=(ear.url,))
        )
        await rig.until(ev.ContinuousWaiting)
        await rig.say(ev.StopRequested(by="u"))
        state, _ = await asyncio.wait_for(going, PATIENCE)
    assert state.stop_reason == "stop_requested"
    assert [heard["kind"] for heard in ear.heard] == ["budget", "waiting", "stopped"]
    assert ear.heard[1]["facts"]["until"] == pytest.approx(reset, abs=60)
    assert ear.heard[2]["facts"]["reason"] == "stop_requested"
    assert not any("s3cret" in warning for warning in warnings(rig, ""))


async def test_trouble_is_told_once_for_each_channel(rig: Rig) -> None:
    reset = rig.clock.now() + 86_400
    limited = Outcome(
        session_id="s1", failure=FaultEvidence(api_error="usage_limit_reached", resets_at=reset, text="5h")
    )
    silent, broken, fine = Quiet(trouble="it answered 500"), Broken(), Quiet()
    going = asyncio.create_task(
        run(rig, [replace(idle(), cost_usd=0.85), limited], [silent, broken, fine], Policy(max_cost_usd=1.0))
    )
    await rig.until(ev.ContinuousWaiting)
    await rig.say(ev.StopRequested(by="u"))
    state = await going
    assert (state.stop_reason, len(silent.notes), len(fine.notes)) == ("stop_requested", 3, 3)
    assert warnings(rig, "was not told") == [
        "nobody was not told: it answered 500",
        "broken was not told: RuntimeError",
    ]


async def test_a_silent_channel_is_left_behind_at_the_end(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(announce, "LAST_WORDS", 5000.0)
    monkeypatch.setattr(announce, "SEND_PATIENCE", 50_000.0)
    endless, fine = Endless(), Quiet()
    around = replace(rig.around(ScriptedAgent(DONE)), notifiers=[endless, fine])
    going = asyncio.create_task(wiring.start_run(rig.spec(), Policy(max_runs=9), around, run_id=rig.run_id))
    await soon(lambda: fine.notes, "the note")
    await run_out(5000.0)
    state = await going
    assert state.stop_reason == "completion_signal"
    assert len(fine.notes) == 1
    assert warnings(rig, "was not told") == ["nowhere was not told: it did not answer in time"]


async def test_who_pressed_ctrl_c_does_not_wait_long(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(announce, "LAST_WORDS", 300.0)
    monkeypatch.setattr(announce, "LAST_WORDS_IN_A_HURRY", 0.1)
    going = asyncio.create_task(run(rig, [Step(outcome=claim(), delay=300)], [Endless()]))
    await rig.until(ev.IterationStarted)
    await rig.say(ev.StopRequested(by="signal", signal="SIGINT"))
    began = time.monotonic()
    state = await going
    assert state.stop_reason == "shutdown_signal"
    assert time.monotonic() - began < PATIENCE


async def test_a_silent_channel_delays_no_iteration(rig: Rig) -> None:
    endless = Endless()
    going = asyncio.create_task(
        run(
            rig,
            [replace(idle(), cost_usd=0.85), Step(outcome=idle("b"), delay=300)],
            [endless],
            Policy(max_cost_usd=1.0),
        )
    )
    await endless.asked.wait()
    await rig.until(ev.IterationStarted, 2)
    await rig.say(ev.StopRequested(by="signal", signal="SIGINT"))
    assert (await going).stop_reason == "shutdown_signal"


async def test_of_too_many_notes_the_newest_are_kept() -> None:
    channel = announce.Channel(Quiet())
    notes = [
        Note(kind="waiting", run_id="r", name="n", title=str(n), body="", facts={})
        for n in range(announce.WAITING_NOTES + 3)
    ]
    for note in notes:
        channel.offer(note)
    kept = [channel.notes.get_nowait() for _ in range(announce.WAITING_NOTES)]
    assert kept == notes[3:]
    assert channel.notes.empty()


async def test_what_was_told_before_is_not_told_again_on_resuming(rig: Rig) -> None:
    first, second = Quiet(), Quiet()
    await run(rig, [idle()], [first], Policy(max_runs=1))
    around = replace(rig.around(ScriptedAgent(DONE)), notifiers=[second])
    raised = ev.LimitsChanged(by="u", changes={"max_runs": 9})
    await wiring.resume_run(rig.run_id, around, asked=[raised])
    assert [note.facts["reason"] for note in first.notes] == ["max_runs_reached"]
    assert [note.kind for note in second.notes] == ["done"]


async def test_an_address_that_cannot_work_is_refused_before_anything_begins(rig: Rig) -> None:
    with pytest.raises(ConfigError, match="cannot be notified"):
        await rig.run(DONE, notify=("https://",))
    assert await rig.log.runs() == []


class FullDisk:
    """A log on a disk that is full from some moment on."""

    def __init__(self, log: EventLog, error: type[StoreError]) -> None:
        self._log = log
        self._error = error
        self.is_full = False

    async def append(self, run_id: str, events: Sequence[ev.Event], *, lease: Lease | None = None) -> list[ev.Record]:
        if self.is_full:
            raise self._error("the log cannot be written: No space left on device")
        return await self._log.append(run_id, events, lease=lease)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


@pytest.mark.parametrize(("error", "told"), [(StoreError, 1), (LeaseLost, 0)])
async def test_a_run_that_cannot_write_its_log_still_cries_for_help(
    rig: Rig, error: type[StoreError], told: int
) -> None:
    quiet, log = Quiet(), FullDisk(rig.log, error)

    def fills(_: Order) -> Outcome:
        log.is_full = True
        return idle()

    around = replace(rig.around(ScriptedAgent([fills])), notifiers=[quiet], log=cast("EventLog", log))
    with pytest.raises(error, match="No space left"):
        await wiring.start_run(rig.spec(), Policy(max_runs=9), around, run_id=rig.run_id)
    assert [(note.kind, note.facts["reason"]) for note in quiet.notes] == [("needs_you", "store")] * told
    assert all("No space left" in note.body and f"untildone resume {rig.run_id}" in note.body for note in quiet.notes)

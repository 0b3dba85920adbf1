"""Runs that fall silent: whoever follows is told once, by the clock."""

import asyncio
from pathlib import Path

import pytest

from core.run_kit import opening, records, started
from patience import PATIENCE
from server.archive_kit import HandClock, archive_in, receive, stored
from untildone.server.archive.port import Sender
from untildone.server.fanout import Fanout, Follower
from untildone.server.projecting import Projector
from untildone.server.silence import Silence

pytestmark = pytest.mark.anyio


def told(follower: Follower) -> list[str]:
    return [note.run_id for note in follower.waiting()]


async def test_whoever_follows_is_told_once_of_a_run_that_fell_silent(tmp_path: Path) -> None:
    clock = HandClock()
    events = stored(records([*opening(), started(1)]))
    async with archive_in(tmp_path) as archive:
        fanout = Fanout(archive)
        projector = Projector(archive, fanout, every=0.001)
        silence = Silence(archive, fanout, clock)  # type: ignore[arg-type]  # nobody sleeps here
        async with projector.running():
            await receive(archive, "far", events, now=clock.now())
            await receive(
                archive, "here", events, now=clock.now(), sender=Sender(sandbox_id="local", origin="local")
            )  # fmt: skip
            await projector.settled("far")
            await projector.settled("here")
        with fanout.follow(None) as all_runs, fanout.follow("here") as one:
            await silence.look()
            assert told(all_runs) == []
            clock.at += 16
            await silence.look()
            await silence.look()
            assert (told(all_runs), told(one)) == (["here"], ["here"])
            clock.at += 75
            await silence.look()
            assert told(all_runs) == ["far"]
            await archive.runs.heard("far", now=clock.now())
            await silence.look()
            clock.at += 91
            await silence.look()
            assert told(all_runs) == ["far"], "heard of again, and silent again"


async def test_it_goes_on_after_trouble(tmp_path: Path) -> None:
    clock = HandClock()
    async with archive_in(tmp_path) as archive:
        fanout = Fanout(archive)
        asked = asyncio.Event()
        real, failures = archive.runs.entries, iter([OSError("away")])

        async def entries(wanted: object) -> object:
            if (failure := next(failures, None)) is not None:
                raise failure
            asked.set()
            return await real(wanted)  # type: ignore[arg-type]

        archive.runs.entries = entries  # type: ignore[method-assign]
        silence = Silence(archive, fanout, clock, every=0.01)  # type: ignore[arg-type]  # nobody sleeps here
        with fanout.follow(None):
            async with silence.running(), asyncio.timeout(PATIENCE):
                await asked.wait()

"""Patience with a forge: told again with fresh figures, and ended when it was agreed."""

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.pull_kit import GREEN, PullRig, pull_rig
from engine.rig import Act, claim, writes
from untildone.core import events as ev
from untildone.engine.waits import RETOLD_AFTER

pytestmark = pytest.mark.anyio


@pytest.fixture
def away(tmp_path: Path) -> Iterator[PullRig]:
    """A forge that never says what became of the checks."""
    with pull_rig(tmp_path, lambda _, __: [GREEN], speed=500.0) as rig:
        rig.github.fail("GET", "/check-runs", 503, "Service Unavailable", times=1000)
        yield rig


def work(rig: PullRig) -> Act:
    return writes(rig.repo / "new.txt", "new\n", claim())


async def test_a_forge_that_is_away_has_as_long_as_ci_has(away: PullRig) -> None:
    landing = away.landing(ci_timeout=300.0)
    async with asyncio.timeout(60):
        state, _ = await away.run([work(away)], checks=("test -f new.txt",), landing=landing)
    assert (state.stop_reason, state.arrival.held_up) == ("landing_failed", "")
    assert "it answered 503" in state.stop_detail
    pushed, gave_up = (next(r.at for r in away.records if isinstance(r.event, kind)) for kind in _ENDS)
    assert 300 <= gave_up - pushed < 900, "the outage budget of the model is another one"


async def test_its_trouble_is_told_again_with_fresh_figures_but_not_all_the_time(away: PullRig) -> None:
    await away.run([work(away)], checks=("test -f new.txt",), landing=away.landing(ci_timeout=1200.0))
    waits = [r for r in away.records if isinstance(r.event, ev.ContinuousWaiting) and r.event.cause == "forge"]
    untils = [r.event.until for r in waits if isinstance(r.event, ev.ContinuousWaiting)]
    assert len(waits) >= 3
    assert len(set(untils)) == len(untils)
    assert all(later.at - one.at >= RETOLD_AFTER for one, later in itertools.pairwise(waits))
    assert all(until is not None and until > r.at for until, r in zip(untils, waits, strict=True))


_ENDS = (ev.LandingPushed, ev.LandingGaveUp)

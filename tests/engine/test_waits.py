"""Patience with a forge: told again with fresh figures, and ended when it was agreed."""

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.pull_kit import GREEN, PullRig, pull_rig
from engine.rig import Act, claim, writes
from patience import PATIENCE
from untildone.core import events as ev
from untildone.engine.waits import RETOLD_AFTER

pytestmark = pytest.mark.anyio


@pytest.fixture
def away(tmp_path: Path) -> Iterator[PullRig]:
    """A forge that never says what became of the checks."""
    with pull_rig(tmp_path, lambda _, __: [GREEN], speed=200.0) as rig:
        rig.github.fail("GET", "/check-runs", 503, "Service Unavailable", times=1000)
        yield rig


def work(rig: PullRig) -> Act:
    return writes(rig.repo / "new.txt", "new\n", claim())


async def test_a_forge_that_is_away_is_told_again_with_fresh_figures_and_has_as_long_as_ci_has(away: PullRig) -> None:
    landing = away.landing(ci_timeout=1200.0)
    async with asyncio.timeout(PATIENCE):
        state, _ = await away.run([work(away)], checks=("test -f new.txt",), landing=landing)
    assert (state.stop_reason, state.arrival.held_up) == ("landing_failed", "")
    assert "has trouble of its own: it answered 503" in state.stop_detail
    pushed, gave_up = (next(r.at for r in away.records if isinstance(r.event, kind)) for kind in _ENDS)
    assert 1200 <= gave_up - pushed < state.policy.outage_budget, "the outage budget of the model is another one"
    waits = [r for r in away.records if isinstance(r.event, ev.ContinuousWaiting) and r.event.cause == "forge"]
    untils = [r.event.until for r in waits if isinstance(r.event, ev.ContinuousWaiting)]
    assert len(waits) >= 3
    assert all(one is not None and later is not None and one < later for one, later in itertools.pairwise(untils))
    assert all(later.at - one.at >= RETOLD_AFTER for one, later in itertools.pairwise(waits))


_ENDS = (ev.LandingPushed, ev.LandingGaveUp)

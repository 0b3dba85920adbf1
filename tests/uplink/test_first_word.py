"""A run that is taken up again asks its server first: one that another machine has by now does not go on here."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from engine.rig import Rig
from untildone import wiring
from untildone.core import events as ev
from untildone.core.outcome import Outcome
from untildone.core.policy import Policy
from untildone.engine.journal import load_state
from untildone.errors import RunElsewhere
from untildone.uplink import opening, outbox, serving
from untildone.uplink.owed import Accounts
from untildone.uplink.settings import UplinkSettings
from uplink.uplink_kit import PATIENCE, ActingAgent, MemoryUplink, down, refused, taken, until

pytestmark = pytest.mark.anyio
SETTINGS = UplinkSettings(server="http://server.test", sandbox_id="box", poll=0.01, patience=PATIENCE)
MORE = ev.LimitsChanged(by="cli", changes={"max_runs": 2})


@pytest.fixture
def uplink(monkeypatch: pytest.MonkeyPatch) -> MemoryUplink:
    """A server in memory, behind every line that is opened."""
    made = MemoryUplink()
    monkeypatch.setattr(opening, "SandboxUplink", lambda *_, **__: made)
    monkeypatch.setattr(outbox, "FIRST_REST", 0.02)
    monkeypatch.setattr(outbox, "LONGEST_REST", 0.1)
    monkeypatch.setattr(serving, "UNNOTICED", PATIENCE)  # how long the last words take is told elsewhere
    monkeypatch.setattr(serving, "FIRST_PATIENCE", PATIENCE)
    return made


@pytest.fixture
async def rig(tmp_path: Path, uplink: MemoryUplink) -> Rig:
    """One iteration of a worker's run is over, and the server knows all of it."""
    rig = Rig(tmp_path)
    around = replace(rig.around(ActingAgent(Outcome(final_text="did it"))), uplink=SETTINGS)
    await wiring.start_run(rig.spec(), Policy(max_runs=1), around, run_id=rig.run_id)
    assert max(uplink.kept[rig.run_id]) == (await rig.log.read(rig.run_id, trace=True))[-1].seq
    return rig


def resumed(rig: Rig, said: list[str]) -> wiring.Surroundings:
    """As `untildone resume` does it: nobody names the server."""
    agent = ActingAgent(Outcome(final_text="again"))
    return replace(rig.around(agent), notice=said.append)


async def test_what_reported_before_reports_again_to_the_same_server(rig: Rig, uplink: MemoryUplink) -> None:
    said: list[str] = []
    state = await wiring.resume_run(rig.run_id, resumed(rig, said), asked=[MORE])
    assert (state.successes, said) == (2, [])
    assert max(uplink.kept[rig.run_id]) == (await rig.log.read(rig.run_id, trace=True))[-1].seq


async def test_a_run_that_was_taken_while_nobody_drove_it_is_refused_for_good(rig: Rig, uplink: MemoryUplink) -> None:
    uplink.fail = taken
    before = len(rig.records)
    with pytest.raises(
        RunElsewhere, match=r"another machine took it over .* `untildone resume --from-server .* --take`"
    ):
        await wiring.resume_run(rig.run_id, resumed(rig, []), asked=[MORE])
    assert [type(one.event) for one in rig.records[before:]] == [ev.StopRequested, ev.ContinuousSuspended]
    state = await load_state(rig.log, rig.run_id)
    assert (state.phase, state.stop_reason, state.policy.max_runs) == ("suspended", "taken_over", 1)
    assert [(row.status, row.alive) for row in await rig.log.runs()] == [("suspended", False)]
    account = Accounts(rig.tmp / "state").read(rig.run_id)
    assert account is not None
    assert account.given_up
    uplink.fail = down  # it knows by itself now
    with pytest.raises(RunElsewhere):
        await wiring.resume_run(rig.run_id, resumed(rig, []), asked=[MORE])


@pytest.mark.parametrize(
    ("trouble", "line"),
    [(down, "cannot be asked (the server is away)"), (refused, "nothing of this run is reported until that is mended")],
)
async def test_what_cannot_be_asked_or_reported_is_said_before_the_first_iteration(
    rig: Rig, uplink: MemoryUplink, trouble: Callable[[], None], line: str
) -> None:
    uplink.fail = trouble
    said: list[str] = []

    async def act(_: object) -> Outcome:
        assert line in said[0]
        return Outcome(final_text="again")

    around = replace(resumed(rig, said), agent=ActingAgent(act), uplink=replace(SETTINGS, patience=0.2))
    assert (await wiring.resume_run(rig.run_id, around, asked=[MORE])).successes == 2


async def test_after_the_run_was_taken_nobody_is_told_the_rest(
    rig: Rig, uplink: MemoryUplink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "UNNOTICED", 0.0)
    said: list[str] = []

    async def act(_: object) -> Outcome:
        uplink.fail = taken
        await until(lambda: any(isinstance(one.event, ev.StopRequested) for one in rig.records))
        return Outcome(final_text="again")

    around = replace(resumed(rig, said), agent=ActingAgent(act), uplink=replace(SETTINGS, heartbeat=0.05))
    state = await wiring.resume_run(rig.run_id, around, asked=[MORE])
    assert (state.stop_reason, said) == ("taken_over", [])
    told = [one.event.message for one in rig.records if isinstance(one.event, ev.ContinuousWarning)]
    assert [line for line in told if "could not go on" in line] == []

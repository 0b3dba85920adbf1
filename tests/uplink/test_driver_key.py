"""The driver of a run has a key that nobody else knows: shown with every word about that run, and nowhere else."""

import json
import os
import stat
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.rig import Rig
from untildone import wiring
from untildone.core.events import LimitsChanged
from untildone.core.outcome import Order, Outcome
from untildone.core.policy import Policy
from untildone.errors import UplinkDown, UplinkRefused
from untildone.ports import Parcel
from untildone.uplink.client import HttpUplink
from untildone.uplink.owed import Account, Accounts, new_key
from untildone.uplink.settings import UplinkSettings
from uplink.test_client import Canned, record
from uplink.uplink_kit import PATIENCE, RUN, ActingAgent, RealServer, until

pytestmark = pytest.mark.anyio
KEY = new_key()
ACCOUNT = Account(run_id=RUN, server="http://server.test", sandbox_id="box")
Said = Callable[[HttpUplink], Awaitable[Any]]
WORDS: dict[str, tuple[Said, Any]] = {
    "receipt": (lambda uplink: uplink.received(RUN), {"last_seq": 0}),
    "events": (lambda uplink: uplink.send(RUN, [record()]), {"last_seq": 1}),
    "sign of life": (lambda uplink: uplink.send(RUN, []), {"last_seq": 1}),
    "orders": (lambda uplink: uplink.orders(RUN, after=0, wait=0), []),
    "parcel": (lambda uplink: uplink.put(RUN, Parcel(name="tree", content=b"x")), {}),
    "take": (lambda uplink: uplink.take(RUN, tenure=4), {"tenure": 5}),
}


def keyed(server: Canned | RealServer, key: str = KEY) -> HttpUplink:
    return HttpUplink(f"http://127.0.0.1:{server.port}", "box", key=lambda _: key)


@pytest.mark.parametrize("said", WORDS)
async def test_every_word_about_a_run_shows_the_key(said: str) -> None:
    speak, answer = WORDS[said]
    async with Canned(body=json.dumps(answer).encode()).running() as server:
        uplink = keyed(server)
        await speak(uplink)
        await uplink.ask("GET", "/api/v1/runs")
        await uplink.close()
        silent = keyed(server, "")
        await speak(silent)
        await silent.close()
    assert [headers.get("untildone-driver") for _, headers, _ in server.asked] == [KEY, None, None]
    assert all(KEY.encode() not in body and KEY not in line for line, _, body in server.asked)


@pytest.mark.parametrize("status", [403, 409, 500])
async def test_a_server_that_repeats_the_key_is_not_repeated(status: int) -> None:
    async with Canned(status=status, body=json.dumps({"error": f"you said {KEY}"}).encode()).running() as server:
        uplink = keyed(server)
        with pytest.raises((UplinkDown, UplinkRefused)) as told:
            await uplink.received(RUN)
        await uplink.close()
    assert KEY not in str(told.value)


@pytest.mark.parametrize(
    ("body", "taken", "behind"),
    [({"tenure": 3, "taken": False}, False, 3), ({"taken": True}, True, None), ({"tenure": -1}, False, None)],
)
async def test_a_conflict_says_what_to_do_about_it(body: dict[str, Any], taken: bool, behind: int | None) -> None:
    async with Canned(status=409, body=json.dumps({"error": "no", **body}).encode()).running() as server:
        uplink = keyed(server)
        with pytest.raises(UplinkRefused) as told:
            await uplink.send(RUN, [])
        assert (told.value.taken, told.value.behind) == (taken, behind)
        if behind is not None:  # the outbox mends it: the parcel waits
            with pytest.raises(UplinkDown):
                await uplink.put(RUN, Parcel(name="tree", content=b"x"))
        await uplink.close()


async def test_a_full_disk_is_asked_about_seldom() -> None:
    async with Canned(status=507, body=b'{"error": "nearly full"}').running() as server:
        uplink = keyed(server)
        with pytest.raises(UplinkDown, match="nearly full") as told:
            await uplink.send(RUN, [])
        await uplink.close()
    assert told.value.seldom


def test_the_key_is_made_once_and_only_the_user_reads_it(tmp_path: Path) -> None:
    accounts = Accounts(tmp_path)
    made = accounts.begun(ACCOUNT)
    assert len(made.key) > 40
    assert accounts.begun(ACCOUNT).key == accounts.key(RUN) == made.key
    assert accounts.begun(msgspec.structs.replace(ACCOUNT, server="http://other.test")).key == made.key
    assert accounts.begun(msgspec.structs.replace(ACCOUNT, run_id="another")).key not in {"", made.key}
    for path in (tmp_path / "uplink").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "uplink").stat().st_mode) == 0o700
    assert made.key not in repr(made)


def test_a_run_that_began_without_a_key_goes_on_without(tmp_path: Path) -> None:
    accounts = Accounts(tmp_path)
    accounts.write(ACCOUNT)
    assert accounts.begun(ACCOUNT).key == ""


def test_a_key_that_no_disk_keeps_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "uplink").write_text("in the way")
    assert Accounts(tmp_path).begun(ACCOUNT).key == ""


def test_a_file_that_somebody_changed_is_no_account(tmp_path: Path) -> None:
    accounts = Accounts(tmp_path)
    accounts.write(msgspec.structs.replace(ACCOUNT, key="a\r\nX-Other: b"))
    assert accounts.read(RUN) is None


async def test_a_run_is_heard_from_its_driver_alone_before_and_after_a_restart(
    tmp_path: Path, server: RealServer
) -> None:
    rig = Rig(tmp_path)
    rig.run_id = "the-drivers-own"
    settings = UplinkSettings(server=server.url, sandbox_id="box", poll=0.01, patience=PATIENCE)
    stranger = HttpUplink(server.url, "box")
    keys: list[str] = []

    async def act(order: Order) -> Outcome:
        await until(lambda: bool(server.rows(rig.run_id)))
        keys.append(Accounts(rig.tmp / "state").key(rig.run_id))
        newest = server.rows(rig.run_id)[-1][0]
        for forged in ([record(newest + 1)], []):
            with pytest.raises(UplinkRefused, match="another driver's"):
                await stranger.send(rig.run_id, forged)
        with pytest.raises(UplinkRefused):
            await stranger.orders(rig.run_id, after=0, wait=0)
        with pytest.raises(UplinkRefused):
            await stranger.put(rig.run_id, Parcel(name="tree", content=b"x"))
        with pytest.raises(UplinkRefused, match="needs a token"):
            await stranger.take(rig.run_id, tenure=0)
        return Outcome(final_text=f"I found {keys[-1]}")

    for turn in range(2):
        around = replace(rig.around(ActingAgent(act)), uplink=settings)
        if turn:
            more = LimitsChanged(by="me", changes={"max_runs": 2})
            await wiring.resume_run(rig.run_id, around, asked=[more])
        else:
            await wiring.start_run(rig.spec(), Policy(max_runs=1), around, run_id=rig.run_id)
    await stranger.close()
    assert len(set(keys)) == 1
    written = [one.seq for one in await rig.log.read(rig.run_id, trace=True)]
    assert [seq for seq, _, _ in server.rows(rig.run_id)] == written
    assert all(keys[0] not in data for _, _, data in server.rows(rig.run_id))
    assert any("[secret: untildone token]" in data for _, _, data in server.rows(rig.run_id))
    assert keys[0] not in str(os.environ)

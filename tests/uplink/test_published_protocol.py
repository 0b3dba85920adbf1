"""A server that knows the published protocol alone: single events in order, messages by polling, nothing twice."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from published_kit import PublishedServer
from untildone.core.events import ContinuousSuspended, Record
from untildone.core.wire import wire
from untildone.engine.clock import SystemClock
from untildone.errors import UplinkDown, UplinkRefused
from untildone.ports import Parcel
from untildone.store.memory import MemoryLog
from untildone.uplink.outbox import Outbox
from untildone.uplink.owed import Account, Accounts
from untildone.uplink.published_protocol import SandboxUplink
from uplink.test_client import Canned
from uplink.uplink_kit import PATIENCE, RUN, RealServer, begun, control, trace, until

pytestmark = pytest.mark.anyio


@pytest.fixture
async def published() -> AsyncIterator[PublishedServer]:
    made = PublishedServer()
    made.start()
    yield made
    await asyncio.to_thread(made.stop)


def uplink(url: str, folder: Path, sandbox: str = "box") -> SandboxUplink:
    return SandboxUplink(url, sandbox, accounts=Accounts(folder), dress=wire)


def records(*seqs: int) -> list[Record]:
    return [Record(seq=n, at=1000.0 + n, event=control(n) if n % 2 else trace(f"text {n}")) for n in seqs]


@pytest.mark.parametrize(("unknown", "wrong_body"), [(404, 422), (405, 405), (404, 404), (400, 500), (404, 200)])
async def test_a_server_that_knows_no_batches_gets_single_events(tmp_path: Path, unknown: int, wrong_body: int) -> None:
    server = PublishedServer(unknown=unknown, wrong_body=wrong_body)
    server.start()
    ours = uplink(server.url, tmp_path)
    assert (await ours.received(RUN)).last_seq == 0
    receipt = await ours.send(RUN, records(1, 2, 3))
    assert (receipt.last_seq, receipt.stored) == (3, 3)
    assert server.events[0] == {
        "event_type": "continuous.limits_changed",
        "event_data": {"by": "me", "order": None, "changes": {"max_runs": 1}},
        "source": "system",
    }
    assert server.keys == [f"{RUN}:1", f"{RUN}:2", f"{RUN}:3"]
    await ours.put(RUN, Parcel(name="notes", content=b"x"))
    await ours.close()
    await asyncio.to_thread(server.stop)


async def test_what_was_taken_is_known_after_a_crash_and_not_sent_again(
    published: PublishedServer, tmp_path: Path
) -> None:
    first = uplink(published.url, tmp_path)
    await first.send(RUN, records(1, 2))
    await first.close()
    second = uplink(published.url, tmp_path)
    assert (await second.received(RUN)).last_seq == 2
    assert (await second.send(RUN, records(1, 2, 3))).stored == 1
    await second.close()
    assert len(published.events) == 3
    other = uplink(published.url, tmp_path, sandbox="another")
    assert (await other.received(RUN)).last_seq == 0, "how far it is counts for one sandbox of one server"
    await other.close()


async def test_messages_are_polled_once_each_and_numbered_as_the_log_goes_on(
    published: PublishedServer, tmp_path: Path
) -> None:
    ours = uplink(published.url, tmp_path)
    with pytest.raises(UplinkDown):
        await ours.orders(RUN, after=0, wait=0)
    assert published.polls == 0, "no message is taken from a server before it has taken an event"
    await ours.send(RUN, records(1))
    published.say("first")
    published.say("second", "guardian_nudge")
    found = await ours.orders(RUN, after=7, wait=PATIENCE)
    assert [(one.number, one.data["content"], one.data["message_type"]) for one in found] == [
        (8, "first", "user_message"), (9, "second", "guardian_nudge"),
    ]  # fmt: skip
    assert [one.number for one in await ours.orders(RUN, after=8, wait=PATIENCE)] == [9], "until it is written down"
    assert await ours.orders(RUN, after=9, wait=PATIENCE) == []
    await ours.close()


async def test_every_end_of_a_run_is_the_published_one(published: PublishedServer, tmp_path: Path) -> None:
    ours = uplink(published.url, tmp_path)
    await ours.send(RUN, [Record(seq=1, at=1.0, event=ContinuousSuspended(stop_reason="consecutive_errors"))])
    await ours.close()
    (end,) = published.events
    assert (end["event_type"], end["event_data"]["stop_reason"]) == ("continuous.completed", "consecutive_errors")


async def test_a_server_of_ours_behind_a_proxy_that_knows_nothing_for_a_while_is_never_taken_for_another(
    published: PublishedServer, tmp_path: Path
) -> None:
    Accounts(tmp_path).write(Account(run_id=RUN, server=published.url, sandbox_id="box", acknowledged=5))
    ours = uplink(published.url, tmp_path)
    with pytest.raises(UplinkDown, match="404"):
        await ours.received(RUN)
    await ours.close()
    answer = b'{"status": "received", "event_id": "published-box:1"}'
    async with Canned(body=answer).running() as canned:
        again = uplink(f"http://127.0.0.1:{canned.port}", tmp_path / "again")
        with pytest.raises(UplinkDown, match="restarted"):
            await again.send(RUN, records(1))
        assert Accounts(tmp_path / "again").cursor(RUN) is None
        await again.close()


@pytest.mark.parametrize(("status", "kind"), [(401, UplinkRefused), (403, UplinkRefused), (503, UplinkDown)])
async def test_trouble_decides_nothing(tmp_path: Path, status: int, kind: type[Exception]) -> None:
    async with Canned(status=status, body=b'{"detail": "no"}').running() as canned:
        ours = uplink(f"http://127.0.0.1:{canned.port}", tmp_path)
        with pytest.raises(kind, match=f"{status}: no"):
            await ours.received(RUN)
        with pytest.raises(kind, match=f"{status}: no"):
            await ours.send(RUN, records(1))
        await ours.close()
    assert not [body for _, _, body in canned.asked if b'"event_type"' in body and b'"run_id"' not in body]


async def test_a_run_that_another_machine_has_is_told_so_although_it_may_not_be_looked_at(tmp_path: Path) -> None:
    async with Canned(status=401, body=b'{"error": "another machine", "taken": true}').running() as canned:
        ours = uplink(f"http://127.0.0.1:{canned.port}", tmp_path)
        with pytest.raises(UplinkRefused):
            await ours.received(RUN)
        canned.status = 409
        with pytest.raises(UplinkRefused) as refused:
            await ours.send(RUN, [])
        assert refused.value.taken
        await ours.close()


@pytest.mark.parametrize("body", [b"ok", b"", b"{}", b"[]", b'"received"'])
async def test_any_answer_with_200_is_an_acknowledgement(tmp_path: Path, body: bytes) -> None:
    async with Canned(body=body).running() as canned:
        ours = uplink(f"http://127.0.0.1:{canned.port}", tmp_path)
        assert (await ours.send(RUN, records(1, 2))).stored == 2
        await ours.close()
    assert [b'"event_type"' in sent and b'"run_id"' not in sent for _, _, sent in canned.asked].count(True) == 2


async def test_a_page_of_somebody_else_takes_no_events(tmp_path: Path) -> None:
    async with Canned(body=b"<html>log in</html>").running() as canned:
        ours = uplink(f"http://127.0.0.1:{canned.port}", tmp_path)
        with pytest.raises(UplinkDown, match="something else"):
            await ours.send(RUN, records(1))
        await ours.close()


async def test_our_own_server_is_spoken_to_in_batches(server: RealServer, tmp_path: Path) -> None:
    ours = uplink(server.url, tmp_path, "batches")
    assert (await ours.send("batched", records(1, 2, 3))).stored == 3
    assert [seq for seq, _, _ in server.rows("batched")] == [1, 2, 3]
    assert Accounts(tmp_path).cursor("batched") is None
    await ours.close()


async def test_the_outbox_goes_on_after_a_restart_and_cuts_what_is_too_large(
    published: PublishedServer, tmp_path: Path
) -> None:
    log = MemoryLog(SystemClock())
    await begun(log)
    ours = uplink(published.url, tmp_path)
    outbox = Outbox(log, RUN, ours)
    sending = asyncio.create_task(outbox.run())
    await until(lambda: len(published.events) == 1)
    await asyncio.to_thread(published.stop)
    published.most = 10_000
    lease = await log.acquire(RUN, name=RUN, folder="/")
    await log.append(RUN, [control(2), trace("x" * 50_000), control(4)], lease=lease)
    await asyncio.to_thread(published.start)
    left = await outbox.settle(PATIENCE)
    assert left.events == 0
    told = [event["event_data"] for event in published.events]
    assert [data.get("changes", {}).get("max_runs") for data in told] == [1, 2, None, 4]
    assert told[2].keys() == {"left_out_bytes"}
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)
    await ours.close()

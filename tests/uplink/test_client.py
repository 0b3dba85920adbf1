"""What a server may answer, and what is made of it: one line, never with the token in it."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import pytest

from ports import own_port
from untildone.core.events import OrderRefused, Record
from untildone.core.state import LoopState
from untildone.core.wire import Receipt
from untildone.errors import ConfigError, UplinkDown, UplinkRefused
from untildone.ports import Parcel
from untildone.uplink.client import HttpUplink
from untildone.uplink.inbox import event_for
from untildone.uplink.settings import UplinkSettings, sandbox_slug
from uplink.uplink_kit import PATIENCE, RUN, control, trace

pytestmark = pytest.mark.anyio
TOKEN = "ud_T0psecretT0ken"
RECEIPT = json.dumps({"last_seq": 3, "stored": 0, "orders": 0}).encode()


@dataclass
class Canned:
    """A server that gives one answer, and remembers what it was asked."""

    status: int = 200
    body: bytes = RECEIPT
    headers: str = ""
    delay: float = 0.0
    port: int = 0
    asked: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    connections: int = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Canned"]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                first, *lines = head.strip().split("\r\n")
                headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                self.asked.append((first, headers, body))
                await asyncio.sleep(self.delay)
                writer.write(
                    f"HTTP/1.1 {self.status} X\r\nContent-Length: {len(self.body)}\r\n{self.headers}\r\n".encode()
                )
                writer.write(self.body)
                await writer.drain()
        writer.close()

    def uplink(self, patience: float = PATIENCE) -> HttpUplink:
        return HttpUplink(f"http://127.0.0.1:{self.port}/", "box 1", TOKEN, patience=patience)


def record(seq: int = 1, text: str = "hello") -> Record:
    return Record(seq=seq, at=5.5, event=trace(text))


async def test_a_batch_travels_as_published_with_our_numbers_beside() -> None:
    async with Canned().running() as server:
        uplink = server.uplink()
        assert await uplink.send(RUN, [record(), Record(seq=2, at=6.0, event=control(9))], tenure=4) == Receipt(
            last_seq=3
        )
        await uplink.close()
    line, headers, body = server.asked[0]
    assert line == "POST /api/v1/sandboxes/box%201/events HTTP/1.1"
    assert headers["content-type"] == "application/json"
    assert headers["authorization"] == f"Bearer {TOKEN}"
    assert json.loads(body) == {
        "run_id": RUN,
        "tenure": 4,
        "events": [
            {
                "event_type": "continuous.warning",
                "event_data": {"message": "hello"},
                "seq": 1,
                "at": 5.5,
                "kind": "trace",
            },
            {
                "event_type": "continuous.limits_changed",
                "event_data": {"by": "me", "order": None, "changes": {"max_runs": 9}},
                "seq": 2,
                "at": 6.0,
                "source": "system",
            },
        ],
    }


async def test_large_bodies_are_packed_and_connections_kept() -> None:
    async with Canned().running() as server:
        uplink = server.uplink()
        for _ in range(3):
            await uplink.send(RUN, [record(text="x" * 50_000)])
        await uplink.received(RUN)
        await uplink.put(RUN, Parcel(name="transcript/s 1", content=b"\x1f\x8b", seq=9))
        await uplink.close()
        await uplink.close()
    _, headers, body = server.asked[0]
    assert headers["content-encoding"] == "gzip"
    assert len(body) < 5000
    assert json.loads(gzip.decompress(body))["events"][0]["event_data"]["message"] == "x" * 50_000
    assert server.connections == 1
    assert (
        server.asked[4][0]
        == f"PUT /api/v1/sandboxes/box%201/runs/{RUN}/parcels/transcript/s%201?seq=9&tenure=0 HTTP/1.1"
    )


@pytest.mark.parametrize("status", [404, 408, 425, 429, 500, 502, 503, 504])
async def test_what_may_pass_is_down(status: int) -> None:
    async with Canned(status=status, body=b'{"error": "busy"}').running() as server:
        uplink = server.uplink()
        with pytest.raises(UplinkDown, match=rf"127.0.0.1:\d+ answered {status}: busy"):
            await uplink.received(RUN)
        await uplink.close()


@pytest.mark.parametrize("status", [301, 400, 401, 403, 409, 413, 415, 422])
async def test_what_will_not_pass_is_refused(status: int) -> None:
    async with Canned(status=status, body=b'{"error": "no", "taken": true}').running() as server:
        uplink = server.uplink()
        with pytest.raises(UplinkRefused, match=f"answered {status}: no") as told:
            await uplink.send(RUN, [record()])
        assert told.value.taken
        await uplink.close()


@pytest.mark.parametrize(
    ("status", "said", "helps"),
    [
        (401, "this needs a token", True), (403, "this token is for another sandbox", True), (403, "", True),
        (403, "this run is another sandbox's", False), (422, "not an id of a sandbox", False),
    ],
)  # fmt: skip
async def test_whoever_has_the_wrong_token_is_told_which_one_fits(status: int, said: str, *, helps: bool) -> None:
    async with Canned(status=status, body=json.dumps({"error": said}).encode()).running() as server:
        uplink = server.uplink()
        with pytest.raises(UplinkRefused) as told:
            await uplink.received(RUN)
        assert ("`untildone token create --scope worker --sandbox box 1`" in str(told.value)) is helps
        assert ("this is sandbox box 1" in str(told.value)) is helps
        with pytest.raises(UplinkRefused) as looked:
            await uplink.ask("GET", "/api/v1/runs")
        assert "token create" not in str(looked.value)
        await uplink.close()


@pytest.mark.parametrize(
    "body",
    [
        b"", b"<html>", b"[]", b"{}", b'{"last_seq": "x"}', b"\xff\xfe", b"[" * 100_000, b"null",
        json.dumps({"error": f"bad token {TOKEN}"}).encode(), b'{"error": "\\u001b[31mred\\nline"}', b'{"error": 7}',
    ],
)  # fmt: skip
@pytest.mark.parametrize("status", [200, 401, 500])
async def test_whatever_a_server_answers_is_one_line_without_the_token(status: int, body: bytes) -> None:
    async with Canned(status=status, body=body).running() as server:
        uplink = server.uplink()
        with pytest.raises((UplinkDown, UplinkRefused)) as told:
            await uplink.received(RUN)
        await uplink.close()
    said = str(told.value)
    assert TOKEN not in said
    assert said.isprintable()
    assert len(said) < 400


@pytest.mark.parametrize("last", [-1, 2**53 + 1, 10**30])
async def test_a_number_that_nobody_can_hold_is_no_answer(last: int) -> None:
    async with Canned(body=json.dumps({"last_seq": last}).encode()).running() as server:
        uplink = server.uplink()
        with pytest.raises(UplinkDown, match="something else"):
            await uplink.received(RUN)
        await uplink.close()
    async with Canned(body=json.dumps([{"number": last, "kind": "stop"}]).encode()).running() as server:
        uplink = server.uplink()
        with pytest.raises(UplinkDown, match="something else"):
            await uplink.orders(RUN, after=0, wait=0)
        await uplink.close()


async def test_a_token_that_is_not_taken_any_more_is_read_again() -> None:
    kept = iter(["ud_new", "ud_new"])
    async with Canned(status=401, body=b"{}").running() as server:
        uplink = HttpUplink(f"http://127.0.0.1:{server.port}", "box", TOKEN, renewed=lambda: next(kept))
        with pytest.raises(UplinkRefused):
            await uplink.received(RUN)
        assert [f"Bearer {token}" in str(server.asked) for token in (TOKEN, "ud_new")] == [True, True]
        with pytest.raises(UplinkRefused):
            await uplink.received(RUN)
        await uplink.close()
    assert len(server.asked) == 3
    assert "ud_new" in str(server.asked[-1])


async def test_an_answer_without_end_is_cut() -> None:
    async with Canned(body=b" " * (5 << 20)).running() as server:
        uplink = server.uplink()
        with pytest.raises(UplinkDown, match="more than 4 MB"):
            await uplink.received(RUN)
        await uplink.close()


async def test_a_redirection_is_not_followed_with_the_token() -> None:
    async with Canned().running() as elsewhere:
        moved = Canned(status=307, body=b"", headers=f"Location: http://127.0.0.1:{elsewhere.port}/\r\n")
        async with moved.running() as server:
            uplink = server.uplink()
            with pytest.raises(UplinkRefused, match="another address"):
                await uplink.received(RUN)
            await uplink.close()
        assert elsewhere.asked == []


async def test_nobody_there_is_down_and_says_so() -> None:
    uplink = HttpUplink(f"http://127.0.0.1:{own_port()}", "box", TOKEN)
    with pytest.raises(UplinkDown, match=r"cannot be reached: .+") as told:
        await uplink.received(RUN)
    assert TOKEN not in str(told.value)
    await uplink.close()


async def test_a_server_that_is_silent_is_not_waited_for() -> None:
    async with Canned(delay=PATIENCE).running() as server:
        uplink = server.uplink(patience=0.2)
        with pytest.raises(UplinkDown, match="no answer in time"):
            await uplink.received(RUN)
        await uplink.close()


async def test_an_order_of_a_kind_we_do_not_know_is_answered() -> None:
    orders = [
        {"number": 4, "kind": "dance", "by": "ann", "at": 1.0, "age": 2.0, "data": {"a": {"deep": [1]}}},
        {"number": 5, "kind": "stop"},
    ]
    async with Canned(body=json.dumps(orders).encode()).running() as server:
        uplink = server.uplink()
        found = await uplink.orders(RUN, after=3, wait=0.5)
        await uplink.close()
    assert server.asked[0][0].split()[1].endswith(f"/runs/{RUN}/orders?after=3&wait=0.5")
    assert [one.number for one in found] == [4, 5]
    assert isinstance(event_for(found[0], LoopState(phase="running"), 9.0), OrderRefused)


@pytest.mark.parametrize(
    "url", ["", "localhost:8642", "ftp://host", "http://", "http://me:pw@host", "http://host:port", "file:///etc"]
)
def test_an_address_that_cannot_work_is_refused_without_what_it_holds(url: str) -> None:
    with pytest.raises(ConfigError) as told:
        UplinkSettings(server=url, sandbox_id="box")
    assert "pw" not in str(told.value)


@pytest.mark.parametrize("wrong", [{"heartbeat": 0.0}, {"poll": -1.0}, {"patience": -1.0}])
def test_intervals_that_cannot_work_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="longer than zero"):
        UplinkSettings(server="http://host", sandbox_id="box", **wrong)


def test_the_token_is_in_no_text() -> None:
    assert TOKEN not in repr(UplinkSettings(server="http://host", sandbox_id="box", token=TOKEN))
    with pytest.raises(ConfigError) as told:
        UplinkSettings(server="http://host", sandbox_id="box", token=TOKEN + "\n")
    assert TOKEN not in str(told.value)


@pytest.mark.parametrize(
    ("name", "slug"), [("box-1.local", "box-1.local"), ("my box!", "my-box"), ("...", "sandbox"), ("ü" * 9, "sandbox")]
)
def test_a_host_name_becomes_the_id_of_a_sandbox(name: str, slug: str) -> None:
    assert sandbox_slug(name) == slug

"""The door, asked through its socket; what lies beyond it is a server on this machine."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from patience import PATIENCE
from untildone.agents.wire_notes import WireNotes
from untildone.core.door import MODEL_HOST, Refused, Table, host_rules, model_way
from untildone.core.wire_book import WireReply
from untildone.ports import Watcher
from untildone.sandbox.door import Door

pytestmark = pytest.mark.anyio

KEY = (("x-api-key", "the-real-one"),)
MESSAGE = b'{"type":"message","id":"msg_1","model":"claude-x","usage":{"input_tokens":11,"cache_read_input_tokens":5}}'
STREAM = (
    b'event: message_start\ndata: {"type":"message_start","message":' + MESSAGE + b"}\n\n",
    b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"outp',
    b'ut_tokens":42,"input_tokens":0}}\n\n',
    b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
)
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def beyond(handler: Handler) -> AsyncIterator[int]:
    server = await asyncio.start_server(handler, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


class KilledNow(OSError):
    """Ends what the door does with one connection."""


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not holds():
            await asyncio.sleep(0.01)


class Stage:
    """A door, whoever knocks at it, and what was noticed."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.notes: list[list[WireReply]] = []
        """For each request of the model, what was noted of its answer."""
        self.refused: list[Refused] = []
        self.door = Door(table, Watcher(asked=self.note, refused=self.refused.append))
        self.port = 0

    def note(self) -> Callable[[WireReply], None]:
        self.notes.append([])
        return self.notes[-1].append

    @property
    def replies(self) -> list[WireReply]:
        return [notes[-1] for notes in self.notes]

    @asynccontextmanager
    async def open(self) -> AsyncIterator[httpx2.AsyncClient]:
        listening = socket.create_server(("127.0.0.1", 0))
        self.port = listening.getsockname()[1]
        async with self.door, httpx2.AsyncClient(base_url=f"http://127.0.0.1:{self.port}") as inside:
            await self.door.serve(listening)
            yield inside


class Upstream:
    """Answers each request with the same pieces, and remembers what it was sent."""

    def __init__(self, *pieces: bytes, kind: str = "text/event-stream", status: str = "200 OK", more: str = "") -> None:
        self.pieces, self.kind, self.status, self.more = pieces, kind, status, more
        self.asked: list[str] = []
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                text = head.decode()
                length = next(
                    (int(line.split(":")[1]) for line in text.lower().split("\r\n") if "content-length" in line), 0
                )
                self.asked.append(text + (await reader.readexactly(length)).decode())
                writer.write(f"HTTP/1.1 {self.status}\r\ncontent-type: {self.kind}\r\n{self.more}".encode())
                writer.write(b"transfer-encoding: chunked\r\n\r\n")
                for piece in self.pieces:
                    writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                    await writer.drain()
                    await self.go_on.wait()
                writer.write(b"0\r\n\r\n")
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()


async def test_the_key_is_added_outside_and_what_the_reply_cost_is_noted() -> None:
    upstream = Upstream(*STREAM)
    async with beyond(upstream) as port:
        stage = Stage(Table(ways=(model_way(f"http://127.0.0.1:{port}/base", KEY),)))
        async with stage.open() as inside:
            for _ in range(2):
                headers = {"x-api-key": "placeholder", "authorization": "Bearer mine", "x-more": "kept"}
                reply = await inside.post("/v1/messages?beta=true", json={"model": "claude-x"}, headers=headers)
                assert (reply.status_code, reply.content) == (200, b"".join(STREAM))
    assert all(asked.startswith("POST /base/v1/messages?beta=true HTTP/1.1\r\n") for asked in upstream.asked)
    assert all("x-api-key: the-real-one" in asked and "x-more: kept" in asked for asked in upstream.asked)
    assert not any(word in asked for asked in upstream.asked for word in ("placeholder", "Bearer", MODEL_HOST))
    assert [json.loads(asked.partition("\r\n\r\n")[2]) for asked in upstream.asked] == [{"model": "claude-x"}] * 2
    assert all("accept-encoding: identity" in asked for asked in upstream.asked), "what is compressed cannot be read"
    first, _ = stage.replies
    assert (first.status, first.message_id, first.model, first.is_whole) == (200, "msg_1", "claude-x", True)
    assert first.usage == {"input_tokens": 11, "cache_read_input_tokens": 5, "output_tokens": 42}


async def test_pieces_are_passed_on_as_they_come_and_a_reply_that_breaks_off_does_so_inside() -> None:
    upstream = Upstream(*STREAM)
    upstream.go_on.clear()
    async with beyond(upstream) as port:
        stage = Stage(Table(ways=(model_way(f"http://127.0.0.1:{port}", KEY),)))
        async with stage.open() as inside:
            async with inside.stream("POST", "/v1/messages", json={}) as reply:
                pieces = reply.aiter_raw()
                assert await anext(pieces) == STREAM[0]
                assert [(seen.message_id, seen.is_whole) for seen in stage.notes[0]] == [("msg_1", False)]
                upstream.go_on.set()
                assert b"".join([piece async for piece in pieces]) == b"".join(STREAM[1:])

            async def broken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
                )
                writer.write(b"%x\r\n%b\r\n" % (len(STREAM[0]), STREAM[0]))
                writer.close()

        async with beyond(broken) as other:
            stage = Stage(Table(ways=(model_way(f"http://127.0.0.1:{other}", KEY),)))
            async with stage.open() as inside:
                with pytest.raises(httpx2.RemoteProtocolError):
                    await inside.post("/v1/messages", json={})
    assert [(reply.message_id, reply.is_whole, reply.is_over) for reply in stage.replies] == [("msg_1", False, True)]


@pytest.mark.parametrize(
    ("kind", "pieces"), [("text/event-stream", STREAM), ("application/json", (MESSAGE[:40], MESSAGE[40:]))]
)
async def test_a_reply_is_noted_before_its_end_is_passed_on(kind: str, pieces: tuple[bytes, ...]) -> None:
    """A loop that is killed at this moment has let nothing through that is in no book."""
    noted: list[str] = []

    def note(reply: WireReply) -> None:
        if reply.is_whole:
            noted.append(reply.message_id)
            raise KilledNow

    passed = b""
    async with beyond(Upstream(*pieces, kind=kind)) as port:
        stage = Stage(Table(ways=(model_way(f"http://127.0.0.1:{port}", KEY),)))
        stage.door = Door(stage.table, Watcher(asked=lambda: note, refused=stage.refused.append))
        async with stage.open() as inside, inside.stream("POST", "/v1/messages", json={}) as reply:
            with contextlib.suppress(httpx2.RemoteProtocolError):
                async for piece in reply.aiter_raw():
                    passed += piece
    assert noted[:1] == ["msg_1"]
    assert passed == b"".join(pieces[: 1 if kind == "application/json" else 2])


async def test_a_client_that_leaves_before_the_reply_begins_leaves_a_note(tmp_path: Path) -> None:
    """Claude Code does so when it is interrupted; the model may have served the whole of it."""
    asked, gone = asyncio.Event(), asyncio.Event()

    async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        await gone.wait()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
        for piece in STREAM:
            writer.write(piece)
        writer.close()

    notes = WireNotes(tmp_path / "run.wire")
    async with beyond(late) as port:
        stage = Stage(Table(ways=(model_way(f"http://127.0.0.1:{port}", KEY),)))
        stage.door = Door(stage.table, Watcher(asked=notes.request, refused=stage.refused.append))
        async with stage.open():
            _, writer = await asyncio.open_connection("127.0.0.1", stage.port)
            writer.write(b"POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}")
            await asked.wait()
            assert (found := notes.passed()) is not None
            assert found.unanswered == 1
            writer.transport.abort()
            gone.set()
            await until(lambda: (now := notes.passed()) is not None and not now.unanswered)
    assert (found := notes.passed()) is not None
    assert found.unseen + len(found.begun) + len(found.replies) == 1, "it is in one of the columns, whatever was seen"


async def test_errors_of_the_model_are_passed_on_and_noted() -> None:
    error = b'{"type":"error","error":{"type":"rate_limit_error"}}'
    upstream = Upstream(error, kind="application/json", status="429 Too Many Requests", more="retry-after: 9\r\n")
    async with beyond(upstream) as port:
        stage = Stage(Table(ways=(model_way(f"http://127.0.0.1:{port}", KEY),)))
        async with stage.open() as inside:
            reply = await inside.post("/v1/messages", json={})
    assert (reply.status_code, reply.headers["retry-after"], reply.content) == (429, "9", error)
    assert [(seen.status, seen.retry_after, seen.message_id) for seen in stage.replies] == [(429, 9.0, "")]


async def test_a_model_that_is_not_there_is_said_in_one_line() -> None:
    stage = Stage(Table(ways=(model_way("http://127.0.0.1:9", KEY),)))
    async with stage.open() as inside:
        reply = await inside.post("/v1/messages", json={})
        assert reply.status_code == 502
        assert "127.0.0.1 cannot be reached from inside: it does not answer" in reply.text
    assert [(seen.status, seen.is_over) for seen in stage.replies] == [(502, True)]


async def knock(stage: Stage, request: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", stage.port)
    writer.write(request)
    return reader, writer, await reader.readuntil(b"\r\n\r\n")


async def test_a_tunnel_leads_only_to_what_is_allowed() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.read(100))
        writer.close()

    async with beyond(echo) as port:
        stage = Stage(Table(rules=host_rules([f"127.0.0.1:{port}"])))
        async with stage.open():
            reader, writer, head = await knock(stage, b"CONNECT 127.0.0.1:%d HTTP/1.1\r\nhost: x\r\n\r\n" % port)
            assert head.startswith(b"HTTP/1.1 200 ")
            writer.write(b"\x16\x03 not http")
            assert await reader.read() == b"\x16\x03 not http"
            writer.close()
            for target in (b"127.0.0.1:1", b"localhost:%d" % port, b"example.org:443"):
                reader, writer, head = await knock(stage, b"CONNECT %b HTTP/1.1\r\nhost: x\r\n\r\n" % target)
                assert head.startswith(b"HTTP/1.1 403 ")
                assert b"would allow it" in await reader.read()
                writer.close()
    assert [refused.host for refused in stage.refused] == ["127.0.0.1:1", f"localhost:{port}", "example.org"]


async def test_a_name_that_leads_to_this_machine_is_refused_unless_it_was_named() -> None:
    upstream = Upstream(b"hello", kind="text/plain")
    async with beyond(upstream) as port:
        request = b"GET http://localhost:%d/x HTTP/1.1\r\nhost: evil.example\r\ncookie: mine\r\n\r\n" % port
        for table, status in (
            (Table(network="open"), b"502"),
            (Table(rules=host_rules([f"localhost:{port}"])), b"200"),
        ):
            stage = Stage(table)
            async with stage.open():
                _, writer, head = await knock(stage, request)
                assert head.split()[1] == status
                writer.close()
    assert upstream.asked == [f"GET /x HTTP/1.1\r\nhost: localhost:{port}\r\nconnection: close\r\ncookie: mine\r\n\r\n"]


async def test_whoever_talks_nonsense_disturbs_nobody_and_the_end_ends_all() -> None:
    upstream = Upstream(*STREAM)
    async with beyond(upstream) as port:
        stage = Stage(Table(ways=(model_way(f"http://127.0.0.1:{port}", KEY),)))
        async with stage.open() as inside:
            for nonsense in (
                b"\x00\xff\r\n\r\n",
                b"GET / HTTP/9\r\n\r\n",
                b"POST /v1/messages HTTP/1.1\r\n" + b"a" * 70_000,
            ):
                reader, writer = await asyncio.open_connection("127.0.0.1", stage.port)
                writer.write(nonsense)
                await reader.read()
                writer.close()
            idle = await asyncio.open_connection("127.0.0.1", stage.port)
            assert (await inside.post("/v1/messages", json={})).status_code == 200
        assert await idle[0].read() == b""
        idle[1].close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", stage.port)

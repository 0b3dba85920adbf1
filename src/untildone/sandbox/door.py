"""The door: a small proxy, the only thing that leads out of a sandbox.

It lives in the loop's process and listens in the sandbox's network. The key of the model is added here, outside; who
is inside asks with a placeholder.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Self

import h11
import httpx2

from untildone.core.door import Forward, Refused, Table, Tunnel, answer, may_lead_to
from untildone.core.printable import one_line
from untildone.core.wire_book import ReplyReader, WireReply
from untildone.ports import Watcher

_PIECE = 1 << 16
_CONNECT_PATIENCE = 15.0
_MOST_CONNECTIONS = 256
_HTTP = 80
_BAD_GATEWAY = 502
_OF_ONE_HOP = frozenset(
    {
        b"connection", b"keep-alive", b"proxy-connection", b"proxy-authenticate", b"te", b"trailer",
        b"transfer-encoding", b"upgrade", b"host", b"content-length",
    }
)  # fmt: skip

Visit = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""Answers one connection."""


class Door:
    """Answers requests from inside, for as long as the block it is opened in."""

    def __init__(self, table: Table, watcher: Watcher) -> None:
        self._table = table
        self._watcher = watcher
        self._held = contextlib.AsyncExitStack()
        self._busy: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as held:
            timeout = httpx2.Timeout(None, connect=_CONNECT_PATIENCE)
            limits = httpx2.Limits(max_connections=None, max_keepalive_connections=16)
            self._client = await held.enter_async_context(httpx2.AsyncClient(timeout=timeout, limits=limits))
            held.push_async_callback(self._end)
            self._held = held.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._held.aclose()

    async def serve(self, listening: socket.socket) -> asyncio.Server:
        """Answer whoever connects to this socket, until the server is closed or the door is."""
        return await self._answer(listening, self._visit)

    async def lead(self, listening: socket.socket, to: Tunnel) -> asyncio.Server:
        """Pass on what is said over this socket, unread, to one place outside."""

        async def visit(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            out, back = await _connected(to)
            try:
                await _both_ways((reader, back), (out, writer))
            finally:
                back.close()

        return await self._answer(listening, visit)

    async def _answer(self, listening: socket.socket, visit: Visit) -> asyncio.Server:
        server = await asyncio.start_server(partial(self._accept, visit), sock=listening)
        self._held.callback(server.close)
        return server

    async def _visit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _Visit(reader, writer, self._table, self._watcher, self._client).serve()

    async def _end(self) -> None:
        for task in self._busy:
            task.cancel()
        if self._busy:
            await asyncio.wait(self._busy)

    async def _accept(self, visit: Visit, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._busy.add(task)
        try:
            if len(self._busy) <= _MOST_CONNECTIONS:
                await visit(reader, writer)
        except (OSError, h11.RemoteProtocolError, h11.LocalProtocolError, asyncio.CancelledError):
            pass  # whoever came is gone, or talks no HTTP
        finally:
            self._busy.discard(task)
            writer.close()


class _Visit:
    """One connection from inside: requests one after the other, or a tunnel."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        table: Table,
        watcher: Watcher,
        client: httpx2.AsyncClient,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._table = table
        self._watcher = watcher
        self._client = client
        self._http = h11.Connection(h11.SERVER)

    async def serve(self) -> None:
        """Answer until the other side closes."""
        while isinstance(request := await self._next(), h11.Request):
            found = answer(self._table, request.method.decode(), request.target.decode("latin-1"))
            match found:
                case Tunnel():
                    return await self._tunnel(request, found)
                case Refused():
                    await self._refuse(found)
                case Forward():
                    await self._forward(request, found)
            if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
                return None
            self._http.start_next_cycle()
        return None

    async def _next(self) -> object:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            if self._http.they_are_waiting_for_100_continue:
                await self._say(h11.InformationalResponse(status_code=100, headers=[]))
            self._http.receive_data(await self._reader.read(_PIECE))
        return event

    async def _say(self, *events: h11.Event) -> None:
        for event in events:
            self._writer.write(self._http.send(event) or b"")
        await self._writer.drain()

    async def _refuse(self, refused: Refused, status: int = 403) -> None:
        if refused.can_be_allowed:
            self._watcher.refused(refused)
        text = one_line(f"untildone: {refused.host} cannot be reached from inside: {refused.said}", 500).encode()
        headers = [("content-type", "text/plain"), ("content-length", str(len(text))), ("connection", "close")]
        await self._say(h11.Response(status_code=status, headers=headers), h11.Data(data=text), h11.EndOfMessage())

    async def _body(self) -> AsyncIterator[bytes]:
        while isinstance(event := await self._next(), h11.Data):
            yield bytes(event.data)

    async def _forward(self, request: h11.Request, way: Forward) -> None:
        added = {name.lower() for name, _ in way.adds}
        headers = [
            (name.decode(), value.decode("latin-1"))
            for name, value in request.headers
            if name not in _OF_ONE_HOP
            and name.decode() not in way.withheld | added
            and name.decode().startswith(way.passes)
        ]
        length = next((value.decode() for name, value in request.headers if name == b"content-length"), None)
        headers += [*way.adds, *([("content-length", length)] if length else [])]
        has_body = length is not None or any(name == b"transfer-encoding" for name, _ in request.headers)
        if way.is_metered:
            headers = [*(pair for pair in headers if pair[0] != "accept-encoding"), ("accept-encoding", "identity")]
        asked = self._client.build_request(
            request.method.decode(), way.url, headers=headers, content=self._body() if has_body else None
        )
        note = self._watcher.asked() if way.is_metered else _not_noted
        try:
            reply = await self._client.send(asked, stream=True)
        except httpx2.HTTPError as trouble:
            note(WireReply(status=_BAD_GATEWAY, is_over=True))
            said = f"it does not answer ({trouble})"
            refused = Refused(host=asked.url.host, said=said, can_be_allowed=False)
            return await self._refuse(refused, _BAD_GATEWAY)
        try:
            await self._pass_back(reply, note)
        finally:
            await reply.aclose()
        return None

    async def _pass_back(self, reply: httpx2.Response, note: Callable[[WireReply], None]) -> None:
        book = ReplyReader(reply.status_code, reply.headers.items())
        headers = [(name, value) for name, value in reply.headers.raw if name.lower() not in _OF_ONE_HOP]
        length = [(name, value) for name, value in reply.headers.raw if name.lower() == b"content-length"]
        try:
            await self._say(h11.Response(status_code=reply.status_code, headers=[*headers, *length]))
            async for piece in reply.aiter_raw():
                if book.feed(piece):
                    note(book.reply())
                await self._say(h11.Data(data=piece))
            await self._say(h11.EndOfMessage())
        except httpx2.HTTPError:
            self._writer.close()  # it broke off: so does what we pass on
        finally:
            note(book.reply(is_over=True))

    async def _tunnel(self, request: h11.Request, to: Tunnel) -> None:
        try:
            async with asyncio.timeout(_CONNECT_PATIENCE):
                reader, writer = await _connected(to)
        except (OSError, TimeoutError, UnicodeError) as trouble:
            said, can_be_allowed = f"it does not answer ({trouble})", isinstance(trouble, PermissionError)
            return await self._refuse(Refused(host=to.host, said=said, can_be_allowed=can_be_allowed), _BAD_GATEWAY)
        try:
            if request.method == b"CONNECT":
                await self._say(h11.Response(status_code=200, headers=[]))
            else:
                writer.write(_rewritten(request, to))
            rest, _ = self._http.trailing_data
            writer.write(rest)
            await _both_ways((self._reader, writer), (reader, self._writer))
        finally:
            writer.close()
        return None


def _not_noted(_: WireReply) -> None:
    """Only what the model is asked costs anything."""


def _rewritten(request: h11.Request, to: Tunnel) -> bytes:
    """The head as a server expects it. It closes after its reply: the next request may be for another host."""
    kept = [(name, value) for name, value in request.headers if name not in _OF_ONE_HOP - {b"transfer-encoding"}]
    kept += [(name, value) for name, value in request.headers if name == b"content-length"]
    shown = to.host if to.port == _HTTP else f"{to.host}:{to.port}"
    first = b"%s %s HTTP/1.1\r\nhost: %s\r\nconnection: close\r\n" % (
        request.method, to.path.encode("latin-1"), shown.encode("latin-1"),
    )  # fmt: skip
    return first + b"".join(b"%s: %s\r\n" % pair for pair in kept) + b"\r\n"


async def _connected(to: Tunnel) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the first address of a host that may be connected to: a name can lead anywhere."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(to.host, to.port, type=socket.SOCK_STREAM)
    addresses = dict.fromkeys(str(place[0]) for *_, place in found)
    trouble: OSError = PermissionError("the name leads to this machine: allow it by its full name, with the port")
    for address in addresses:
        if may_lead_to(address, named=to.named):
            try:
                return await asyncio.open_connection(address, to.port)
            except OSError as failed:
                trouble = failed
    raise trouble


Side = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _both_ways(out: Side, back: Side) -> None:
    """Pass on what either side says until both have ended."""
    async with asyncio.TaskGroup() as pumps:
        for reader, writer in (out, back):
            pumps.create_task(_pump(reader, writer))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while piece := await reader.read(_PIECE):
            writer.write(piece)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()

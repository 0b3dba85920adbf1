"""Connections as uvicorn serves them, with an end: to headers that never finish, and to readers that never read.

One look a second at all connections does it, so that a request costs no timer.
"""

import asyncio
import resource
import socket
import struct
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from untildone.server.access import is_loopback_name, neighbourhood

HEADER_BYTES = 32 * 1024
HEADER_COUNT = 100
HEADER_SECONDS = 10.0
"""For a connection to come up with a whole request's headers."""
STUCK_SECONDS = 30.0
"""For which a client may leave an answer unread, once the buffers are full."""
LINGER_SECONDS = 10.0
"""For a client to stop sending what nobody wants, or to take the last bytes of a connection that is closed."""
SWEEP_EVERY = 1.0
MOST_CONNECTIONS = 4000
MOST_FROM_ONE = 500
"""From one address, unless it is this machine."""
_SPARE_FILES = 128
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_BUSY = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 5\r\ncontent-length: 0\r\n\r\n"


class BoundedProtocol(HttpToolsProtocol):
    """HTTP over a connection that cannot be held for nothing."""

    waiting_since: float | None = None
    """Since when the headers of a request are due: none are there yet, or not all."""
    stuck_since: float | None = None
    """Since when the client does not read."""
    ending_since: float | None = None
    """Since when nothing more is wanted of the client."""
    peer: str | None = None
    """Whose connection it is."""
    begun_at = 0.0
    _header_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection, unless there are too many."""
        super().connection_made(transport)
        self.peer = neighbourhood(self.client[0]) if self.client else None
        self.waiting_since = self.begun_at = self.loop.time()
        full = len(self.connections) > most_connections()
        if self._is_one_too_many() or (full and not make_room(self)):
            transport.write(_BUSY)
            transport.close()

    def data_received(self, data: bytes) -> None:
        """Read on; headers that are too large end it."""
        if self.transport.is_closing():
            return
        if self.waiting_since is not None:
            self._header_bytes += len(data)
        super().data_received(data)
        if self.waiting_since is None and self._is_idle():
            # Blank lines before a request begin none, but they switch off uvicorn's own clock.
            self.waiting_since = self.loop.time()
        if self.waiting_since is not None and self._header_bytes > HEADER_BYTES:
            self._refuse_headers()

    def on_message_begin(self) -> None:
        """A request begins."""
        if self.waiting_since is None:
            self._header_bytes = 0
            self.waiting_since = self.loop.time()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The headers are there."""
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        self.waiting_since = None
        self._header_bytes = 0
        if size > HEADER_BYTES or len(self.headers) > HEADER_COUNT:
            self._refuse_headers()
            raise httptools.HttpParserError("headers too large")
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """Say that this is no HTTP, unless more was said already."""
        if not self.transport.is_closing():
            super().send_400_response(msg)

    def pause_writing(self) -> None:
        """The client does not take what it is sent."""
        self.stuck_since = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        """It does again."""
        self.stuck_since = None
        super().resume_writing()

    def is_overdue(self, now: float) -> bool:
        """Whether this connection is held for nothing."""
        cycle: Any = self.cycle
        ends = self.transport.is_closing() or (cycle is not None and cycle.response_complete and cycle.more_body)
        self.ending_since = (self.ending_since or now) if ends else None
        return (
            _is_over(self.waiting_since, HEADER_SECONDS, now)
            or _is_over(self.stuck_since, STUCK_SECONDS, now)
            or _is_over(self.ending_since, LINGER_SECONDS, now)
        )

    def _is_idle(self) -> bool:
        cycle: Any = self.cycle
        return cycle is None or bool(cycle.response_complete and not cycle.more_body)

    def _refuse_headers(self) -> None:
        if not self.transport.is_closing():
            self.transport.write(_TOO_LARGE)
            self.transport.close()

    def _is_one_too_many(self) -> bool:
        if self.peer is None or is_loopback_name(self.client[0] if self.client else "localhost"):
            return False
        same = [other for other in self.connections if getattr(other, "peer", None) == self.peer]
        return len(same) > MOST_FROM_ONE


def make_room(newcomer: BoundedProtocol) -> bool:
    """End the oldest connection without a key, of whoever has most: nobody keeps others out by coming first."""
    theirs: dict[str | None, list[BoundedProtocol]] = {}
    for one in newcomer.connections:
        is_known = bool((getattr(one, "scope", None) or {}).get("untildone.known"))
        if isinstance(one, BoundedProtocol) and one is not newcomer and not is_known:
            theirs.setdefault(one.peer, []).append(one)
    if not theirs:
        return False
    busiest = max(theirs, key=lambda peer: len(theirs[peer]))
    _cut(min(theirs[busiest], key=lambda one: one.begun_at).transport)
    return True


def _is_over(since: float | None, seconds: float, now: float) -> bool:
    return since is not None and now - since > seconds


def most_connections() -> int:
    """As many as the system gives us files for, and not more than can be served."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(MOST_CONNECTIONS, max(soft - _SPARE_FILES, 16))


def raise_file_limit() -> None:
    """Use what the system allows: a browser that watches is an open file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_CONNECTIONS + _SPARE_FILES
    wanted = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


async def sweep_for_ever(state: ServerState) -> None:
    """End connections that are held for nothing."""
    while True:
        await asyncio.sleep(SWEEP_EVERY)
        sweep(list(state.connections), asyncio.get_running_loop().time())


def sweep(connections: Iterable[Any], now: float) -> None:
    """End those of these connections that are overdue."""
    for connection in connections:
        if isinstance(connection, BoundedProtocol) and connection.is_overdue(now):
            _cut(connection.transport)


def _cut(transport: asyncio.Transport) -> None:
    """Hang up for good: closing would wait for the client to take what is left, here or in the system."""
    wire = transport.get_extra_info("socket")
    with suppress(OSError, AttributeError):
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()

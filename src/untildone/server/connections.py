"""Connections as uvicorn serves them, with an end: to headers that never finish, and to readers that never read.

Whoever has most gives way to whoever comes, and an operator is always let in.

One look a second at all connections does it, so that a request costs no timer.
"""

import asyncio
import resource
import socket
import struct
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, ClassVar

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
MOST_OF_ONE_KEY = 1000
BACKLOG = 512
"""Connections that wait to be taken: all of them are, in one go, before any of them is read."""
RESERVE = BACKLOG
"""Places that keys cannot have, unless they steer: as many as may come before an operator is known for one."""
MOST_UNREAD = 64 * 1024 * 1024
"""Bytes of answers that wait for those who do not read them, of all connections of this process."""
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
    is_cut = False
    """Its place was given to somebody else, and it is about to go."""
    unread: ClassVar[dict["BoundedProtocol", int]] = {}
    """What those have before them who do not read."""
    _leaving: ClassVar[Counter[int]] = Counter()
    """How many are about to go, of each server in this process."""
    _header_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection, unless there are too many."""
        super().connection_made(transport)
        self.peer = neighbourhood(self.client[0]) if self.client else None
        self.waiting_since = self.begun_at = self.loop.time()
        full = len(self.connections) - self._leaving[id(self.connections)] > most_connections()
        if self._is_one_too_many() or (full and not make_room(self)):
            transport.write(_BUSY)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self.unread.pop(self, None)
        if self.is_cut:
            self._leaving[id(self.connections)] -= 1
        super().connection_lost(exc)

    def give_way(self) -> None:
        """Go, for somebody else."""
        self.is_cut = True
        self._leaving[id(self.connections)] += 1
        _cut(self.transport)

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
        self.unread[self] = self.transport.get_write_buffer_size()
        shed(self.unread)

    def resume_writing(self) -> None:
        """It does again."""
        self.stuck_since = None
        self.unread.pop(self, None)
        super().resume_writing()

    @property
    def key(self) -> str:
        """The key that its request came with; empty: none, or no request is there yet."""
        return (getattr(self, "scope", None) or {}).get("untildone.known") or ""

    @property
    def steers(self) -> bool:
        """Whether it is an operator's."""
        return bool((getattr(self, "scope", None) or {}).get("untildone.steers"))

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
    """End some connections: nobody keeps others out by coming first, or by coming often.

    Of keys that have too many, the youngest. Else the oldest without a key, of whoever has most. Else of the key that
    has most. Some at once, for looking through all takes a while.
    """
    most = most_connections()
    others = [one for one in newcomer.connections if isinstance(one, BoundedProtocol) and one is not newcomer]
    there = [one for one in others if not one.is_cut]
    keys = _grouped((one.key, one) for one in there if one.key and not one.steers)
    strangers = _grouped((one.peer or "", one) for one in there if not one.key)
    operators = _grouped((one.key, one) for one in there if one.key and one.steers)
    crowded = sum(map(len, keys.values())) > most - min(RESERVE, most // 4)
    if keys and (crowded or max(map(len, keys.values())) > _most_of_one_key(most) or not strangers):
        theirs = sorted(_largest(keys), key=lambda one: -one.begun_at)
    elif strangers:
        theirs = sorted(_largest(strangers), key=lambda one: one.begun_at)
    elif operators:
        theirs = sorted(_largest(operators), key=lambda one: -one.begun_at)
    else:
        return False
    for one in theirs[: max(1, most // 100)]:
        one.give_way()
    return True


def shed(unread: dict[BoundedProtocol, int]) -> None:
    """End those who have most before them and do not read it, first those without a key, until the rest has room."""
    while sum(unread.values()) > MOST_UNREAD:
        worst = max(unread, key=lambda one: (not one.key, unread[one]))
        del unread[worst]
        _cut(worst.transport)


def _grouped(named: Iterable[tuple[str, BoundedProtocol]]) -> dict[str, list[BoundedProtocol]]:
    groups: dict[str, list[BoundedProtocol]] = {}
    for name, one in named:
        groups.setdefault(name, []).append(one)
    return groups


def _largest(groups: dict[str, list[BoundedProtocol]]) -> list[BoundedProtocol]:
    return max(groups.values(), key=len)


def _most_of_one_key(most: int) -> int:
    return min(MOST_OF_ONE_KEY, most // 2)


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
    """End those of these connections that are overdue, and the youngest of a key that has too many."""
    ours = [one for one in connections if isinstance(one, BoundedProtocol)]
    for one in ours:
        if one.is_overdue(now):
            _cut(one.transport)
    most = _most_of_one_key(most_connections())
    for theirs in _grouped((one.key, one) for one in ours if one.key and not one.is_cut).values():
        for one in sorted(theirs, key=lambda one: one.begun_at)[most:]:
            one.give_way()


def _cut(transport: asyncio.Transport) -> None:
    """Hang up for good: closing would wait for the client to take what is left, here or in the system."""
    wire = transport.get_extra_info("socket")
    with suppress(OSError, AttributeError):
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()

"""Events a server takes in a second, against an endpoint written the usual way; the load runs on the same cores."""

import asyncio
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from postgres import postgres
from result import Figure, Result, ratio
from servers import server

EVENTS = 100
"""In one batch."""
CONNECTIONS = 32
"""Each sends one run, one batch after the other, as workers do."""
GATE = 1 / 8
"""Of the time that the plain endpoint takes."""
_WARM = 2
_SAID = "The agent reads the file, thinks about it, and goes on with the next part of the work. "


def measure(*, quick: bool) -> Result:
    """Both servers in turns, on both databases."""
    rounds = 5 if quick else 9
    figures = []
    with ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="untildone-bench-")))
        url = held.enter_context(postgres())
        places: dict[str, Callable[[str], str]] = {
            "SQLite": lambda kind: f"sqlite:///{folder / kind}.db",
            "PostgreSQL": lambda _: url,
        }
        for name, place in places.items():
            figures.append(_compare(name, place, rounds, quick=quick))
    return Result(
        title=f"Taking events: batches of {EVENTS}, {CONNECTIONS} connections, durable and idempotent, "
        "against FastAPI with pydantic and an ORM",
        figures=tuple(figures),
    )


def _compare(name: str, place: Callable[[str], str], rounds: int, *, quick: bool) -> Figure:
    plain_batches, our_batches = (96, 640) if quick else (192, 1280)
    ours, plain = [], []
    with server("ours", place("ours")) as (our_port, _), server("plain", place("plain")) as (plain_port, _):
        for port in (our_port, plain_port):
            asyncio.run(send(port, "warm", CONNECTIONS * _WARM))
        for number in range(rounds):
            plain.append(asyncio.run(send(plain_port, f"round-{number}", plain_batches)))
            ours.append(asyncio.run(send(our_port, f"round-{number}", our_batches)))
    return Figure(
        name=f"time for an event, {name}",
        value=ratio(ours, plain),
        at_most=GATE,
        note=f"{1 / median(ours):,.0f} events a second against {1 / median(plain):,.0f}: "
        f"{1 / ratio(ours, plain):.1f} times as many",
    )


async def send(port: int, run: str, batches: int) -> float:
    """Send so many batches; seconds for each event."""
    each = batches // CONNECTIONS
    requests = [list(_requests(f"{run}-{number}", each)) for number in range(CONNECTIONS)]
    senders = [await _connected(port, waiting) for waiting in requests]
    began = time.perf_counter()
    await asyncio.gather(*(sender.run() for sender in senders))
    took = time.perf_counter() - began
    stored = sum(sender.stored for sender in senders)
    if stored != each * CONNECTIONS * EVENTS:
        raise RuntimeError(f"{stored} events were kept, {each * CONNECTIONS * EVENTS} were sent")
    return took / stored


def _requests(run: str, batches: int) -> Iterator[bytes]:
    for number in range(batches):
        first = number * EVENTS + 1
        body = json.dumps({"run_id": run, "events": [_event(seq) for seq in range(first, first + EVENTS)]}).encode()
        head = (
            f"POST /api/v1/sandboxes/bench/events HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        yield head.encode() + body


def _event(seq: int) -> dict[str, object]:
    return {
        "event_type": "agent.assistant_message",
        "event_data": {"iteration_num": 1 + seq // 500, "text": _SAID * 2, "subagent": False},
        "seq": seq,
        "at": 1_760_000_000 + seq / 10,
        "source": "agent",
        "kind": "trace",
    }


async def _connected(port: int, requests: list[bytes]) -> "_Sender":
    _, sender = await asyncio.get_running_loop().create_connection(lambda: _Sender(requests), "127.0.0.1", port)
    return sender


class _Sender(asyncio.Protocol):
    """One connection: the next batch goes when the one before is acknowledged. It does as little as it can."""

    def __init__(self, requests: list[bytes]) -> None:
        self._requests = iter(requests)
        self._answer = b""
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.stored = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember where to write."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    async def run(self) -> None:
        """Send all of them."""
        self._next()
        await self._done
        self._transport.close()

    def data_received(self, data: bytes) -> None:
        """Look for the end of an answer."""
        self._answer += data
        head, end, body = self._answer.partition(b"\r\n\r\n")
        if not end:
            return
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        if len(body) < length:
            return
        self._answer = body[length:]
        if not head.startswith(b"HTTP/1.1 200"):
            self._done.set_exception(RuntimeError(f"the server refused: {head[:40]!r} {body[:200]!r}"))
            return
        self.stored += json.loads(body[:length])["stored"]
        self._next()

    def connection_lost(self, error: Exception | None) -> None:
        """The server went away."""
        if not self._done.done():
            self._done.set_exception(error or ConnectionResetError("the server closed the connection"))

    def _next(self) -> None:
        request = next(self._requests, None)
        if request is not None:
            self._transport.write(request)
        elif not self._done.done():
            self._done.set_result(None)

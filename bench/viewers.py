"""Many browsers watch one busy run: how long an event is under way, and whether the server's memory stays flat.

The events, the viewers and the server share the same cores.
"""

import asyncio
import json
import re
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles

from ingest import send
from result import Curve, Figure, Result
from servers import server

VIEWERS = 200
BATCHES_A_SECOND = 20
EVENTS = 10
"""In one batch: 200 events a second are what a run with several subagents does at its busiest."""
DELIVERY_GATE = 250.0
FILLING = 960
"""Batches that come before the long load."""
MEMORY_GATE = 1.1
"""Memory at the end, against that after the first part of the load."""
_RUN = "busy"
_SAID = "The agent reads the file, thinks about it, and goes on with the next part of the work. "
_SENT = re.compile(rb'^id: (\d+)\ndata: .*?"sent": ([0-9.]+)', re.MULTILINE)


def measure(*, quick: bool) -> Result:
    """A few viewers, then many, then many for long."""
    crowds = (20, VIEWERS) if quick else (10, 30, 100, VIEWERS)
    seconds, long = (5, 20) if quick else (15, 600)
    with tempfile.TemporaryDirectory(prefix="untildone-bench-") as folder:
        with server("ours", f"sqlite:///{Path(folder) / 'short.db'}") as (port, pid):
            found = {crowd: asyncio.run(watch(port, pid, f"{_RUN}-{crowd}", crowd, seconds)) for crowd in crowds}
        with server("ours", f"sqlite:///{Path(folder) / 'long.db'}") as (port, pid):
            # SQLite keeps up to a fixed amount of the file in memory: that is no growth, once it is there.
            asyncio.run(send(port, "before", FILLING))
            load = asyncio.run(watch(port, pid, _RUN, VIEWERS, long))
    return Result(
        title=f"{VIEWERS} viewers of one run with {BATCHES_A_SECOND * EVENTS} events a second, all on the same cores",
        figures=(
            Figure(
                name="delivery, 99 of 100",
                value=load.percentile(99),
                unit="ms",
                at_most=DELIVERY_GATE,
                note=f"from before sending until read by the viewer, over {long} s; "
                f"half within {load.percentile(50):.0f} ms, the slowest took {max(load.delays) * 1000:.0f} ms",
            ),
            Figure(
                name="memory after the load",
                value=load.growth,
                at_most=MEMORY_GATE,
                note=f"{load.memory[-1]:.0f} MB after {long} s, of which the first fifth is for warming up",
            ),
            Figure(name="events delivered", value=load.delivered, unit="", note="none lost, none twice, all in order"),
        ),
        curves=(
            Curve(
                name="viewers",
                title="Delivery of events to many viewers",
                x_label="viewers of one run",
                y_label="milliseconds",
                lines={
                    "99 of 100": [(crowd, one.percentile(99)) for crowd, one in found.items()],
                    "half": [(crowd, one.percentile(50)) for crowd, one in found.items()],
                },
            ),
        ),
    )


class Load:
    """What was seen."""

    def __init__(self) -> None:
        self.delays: list[float] = []
        self.memory: list[float] = []
        self.delivered = 0

    def percentile(self, wanted: int) -> float:
        """Milliseconds within which so many of a hundred events arrived."""
        return quantiles(self.delays, n=100)[wanted - 1] * 1000

    @property
    def growth(self) -> float:
        """Memory of the last fifth against that of the second."""
        fifth = max(1, len(self.memory) // 5)
        return median(self.memory[-fifth:]) / median(self.memory[fifth : 2 * fifth])


async def watch(port: int, pid: int, run: str, viewers: int, seconds: int) -> Load:
    """So many viewers, for so long."""
    load = Load()
    sender = await _Sender.connected(port, run)
    await sender.send()
    crowd = [await _Viewer.connected(port, run, load) for _ in range(viewers)]
    loop = asyncio.get_running_loop()
    began = loop.time()
    for number in range(seconds * BATCHES_A_SECOND):
        await asyncio.sleep(began + number / BATCHES_A_SECOND - loop.time())
        await sender.send()
        if number % BATCHES_A_SECOND == 0:
            load.memory.append(_resident_megabytes(pid))
    async with asyncio.timeout(30):
        await asyncio.gather(*(viewer.has(sender.last) for viewer in crowd))
    for viewer in crowd:
        viewer.close()
    sender.close()
    return load


class _Sender:
    """A worker that sends one batch after the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, run: str) -> None:
        self._reader = reader
        self._writer = writer
        self._run = run
        self.last = 0

    @classmethod
    async def connected(cls, port: int, run: str) -> "_Sender":
        return cls(*await asyncio.open_connection("127.0.0.1", port), run)

    async def send(self) -> None:
        first, self.last = self.last + 1, self.last + EVENTS
        events = [
            {
                "event_type": "agent.assistant_message",
                "event_data": {"sent": time.monotonic(), "iteration_num": 1, "text": _SAID * 2},
                "seq": seq,
                "at": 1_760_000_000 + seq / 10,
                "source": "agent",
                "kind": "trace",
            }
            for seq in range(first, self.last + 1)
        ]
        body = json.dumps({"run_id": self._run, "events": events}).encode()
        head = (
            f"POST /api/v1/sandboxes/bench/events HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self._writer.write(head.encode() + body)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        if not answer.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"the server refused: {answer[:60]!r}")
        length = int(answer.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        await self._reader.readexactly(length)

    def close(self) -> None:
        self._writer.close()


class _Viewer(asyncio.Protocol):
    """A browser that looks at a run, and notes when it learnt of each event."""

    def __init__(self, run: str, load: Load) -> None:
        self._request = f"GET /api/v1/runs/{run}/stream?after={EVENTS} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        self._load = load
        self._rest = b""
        self._last = EVENTS
        self.here = asyncio.Event()
        self._more = asyncio.Event()

    @classmethod
    async def connected(cls, port: int, run: str, load: Load) -> "_Viewer":
        _, viewer = await asyncio.get_running_loop().create_connection(lambda: cls(run, load), "127.0.0.1", port)
        await viewer.here.wait()
        return viewer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._request.encode())

    def data_received(self, data: bytes) -> None:
        now = time.monotonic()
        self.here.set()
        whole, end, self._rest = (self._rest + data).rpartition(b"\n\n")
        for seq, sent in _SENT.findall(whole + end):
            self._last += 1
            if int(seq) != self._last:
                raise RuntimeError(f"event {int(seq)} came in the place of {self._last}")
            self._load.delays.append(now - float(sent))
            self._load.delivered += 1
        self._more.set()

    async def has(self, seq: int) -> None:
        """Wait until it knows of this one."""
        while self._last < seq:
            self._more.clear()
            await self._more.wait()

    def close(self) -> None:
        self._transport.abort()


def _resident_megabytes(pid: int) -> float:
    told = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(told.partition("VmRSS:")[2].split()[0]) / 1024

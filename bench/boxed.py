"""An agent in a sandbox against the same on the host, and a request through the door against one without it."""

import asyncio
import json
import os
import socket
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median

import httpx2

from result import Figure, Result, ratio
from stage import Stage, open_stage, our_loop
from untildone.agents.wire_notes import WireNotes
from untildone.core.door import Table, model_way
from untildone.errors import NoSandbox
from untildone.ports import Watcher
from untildone.sandbox.containers import DEFAULT_IMAGE, find_engine, has_image
from untildone.sandbox.door import Door

GATES = {"bwrap": 1.1, "docker": 1.25, "podman": 1.25}
"""Containers are measured where `untildone image build` has made their image."""
STREAM = b"".join(
    b"data: %s\n\n" % json.dumps(event).encode()
    for event in (
        {
            "type": "message_start",
            "message": {"type": "message", "id": "m", "model": "x", "usage": {"input_tokens": 9}},
        },
        *({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "word " * 12}} for _ in range(40)),
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    )
)
REPLY = 0.1
"""Seconds the model takes for a reply."""


def measure(*, quick: bool) -> Result:
    """Run both in turns."""
    iterations, rounds = (10, 2) if quick else (20, 5)
    kinds = [kind for kind in GATES if kind == "bwrap" or _can_run(kind)]
    with open_stage() as stage:
        found = [
            {kind: _per_iteration(stage, iterations, kind) for kind in (*kinds, "host")} for _ in range(rounds)
        ]  # fmt: skip
    seconds = {kind: [one[kind] for one in found] for kind in (*kinds, "host")}
    through, direct = asyncio.run(_requests(10 if quick else 40))
    return Result(
        title="An agent in a sandbox, against the host",
        figures=(
            *(
                Figure(
                    name=f"per iteration after the first, in {kind}",
                    value=ratio(seconds[kind], seconds["host"]),
                    at_most=GATES[kind],
                    note=_shown(seconds[kind], seconds["host"]),
                )
                for kind in kinds
            ),
            Figure(
                name=f"a request through the door, of {REPLY * 1000:.0f} ms",
                value=ratio(through, direct),
                at_most=GATES["bwrap"],
                note=_shown(through, direct),
            ),
        ),
    )


def _can_run(kind: str) -> bool:
    try:
        return has_image(find_engine(kind, os.environ), DEFAULT_IMAGE)
    except NoSandbox:
        return False


def _per_iteration(stage: Stage, iterations: int, sandbox: str) -> float:
    ended: list[float] = our_loop(stage, iterations, sandbox=sandbox)["ended"]
    return (ended[-1] - ended[0]) / (iterations - 1)


async def _requests(count: int) -> tuple[list[float], list[float]]:
    """Seconds for each, through the door and without it, in turns."""

    async def model(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = next(
                    int(line.split(b":")[1]) for line in head.split(b"\r\n") if b"content-length" in line.lower()
                )
                await reader.readexactly(length)
                await asyncio.sleep(REPLY)
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n" % len(STREAM)
                )
                writer.write(STREAM)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            writer.close()

    server = await asyncio.start_server(model, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    folder = tempfile.TemporaryDirectory(prefix="untildone-bench-")
    watcher = Watcher(asked=WireNotes(Path(folder.name) / "run.wire").request, refused=lambda _: None)
    listening = socket.create_server(("127.0.0.1", 0))
    inside = f"http://127.0.0.1:{listening.getsockname()[1]}"
    body = {"text": "x" * 47_000}
    async with (
        server,
        Door(Table(ways=(model_way(url, ()),)), watcher) as door,
        httpx2.AsyncClient(timeout=60) as client,
    ):
        await door.serve(listening)

        def asking(base: str) -> Callable[[], Awaitable[object]]:
            return lambda: client.post(f"{base}/v1/messages", json=body)

        found = [[await _timed(asking(base)) for base in (inside, url)] for _ in range(count + 1)]
    folder.cleanup()
    return [one[0] for one in found[1:]], [one[1] for one in found[1:]]


async def _timed(work: Callable[[], Awaitable[object]]) -> float:
    began = time.monotonic()
    await work()
    return time.monotonic() - began


def _shown(ours: list[float], other: list[float]) -> str:
    return f"{median(ours) * 1000:.1f} ms against {median(other) * 1000:.1f} ms"

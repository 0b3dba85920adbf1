"""A process tree shows what it does: computing, reading and writing, talking, starting others."""

import asyncio
import socket
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from patience import PATIENCE
from untildone.core.liveness import Pulse
from untildone.ports import Process
from untildone.sandbox.host import HostSpawner

pytestmark = pytest.mark.anyio

ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin"}


async def spawn(tmp_path: Path, *argv: str) -> Process:
    return await HostSpawner().spawn(argv, cwd=str(tmp_path), env=ENV)


async def until(process: Process, holds: Callable[[Pulse], bool]) -> Pulse:
    give_up = time.monotonic() + PATIENCE
    while not holds(pulse := process.vitals()):
        assert time.monotonic() < give_up, pulse
        await asyncio.sleep(0.02)
    return pulse


async def ready(process: Process) -> Pulse:
    assert await asyncio.wait_for(process.read(), PATIENCE) == b"ready\n"
    return process.vitals()


def shows_nothing(before: Pulse, after: Pulse) -> bool:
    used = (after.cpu_seconds or 0) - (before.cpu_seconds or 0)
    return after.processes == before.processes == 3 and used < 0.05 and after.io_bytes == before.io_bytes


async def test_a_tree_that_sleeps_shows_nothing(tmp_path: Path) -> None:
    process = await spawn(tmp_path, "sh", "-c", "sleep 1000 & echo ready; wait")
    try:
        before = await ready(process)
        give_up = time.monotonic() + PATIENCE
        while not shows_nothing(before, after := process.vitals()):  # the last of them has still to begin its sleep
            assert time.monotonic() < give_up, after
            before = after
            await asyncio.sleep(0.3)
    finally:
        await process.end(0.0)


async def test_computing_anywhere_in_the_tree_is_seen(tmp_path: Path) -> None:
    burn = "setsid sh -c 'while :; do :; done' & echo ready; wait"
    process = await spawn(tmp_path, "sh", "-c", burn)
    try:
        before = await ready(process)
        await until(process, lambda pulse: (pulse.cpu_seconds or 0) > (before.cpu_seconds or 0) + 0.3)
    finally:
        await process.end(0.0)


async def test_what_ended_between_two_looks_is_not_lost(tmp_path: Path) -> None:
    code = "import time\nend = time.process_time() + 0.4\nwhile time.process_time() < end: pass"
    script = f'echo ready; read go; python3 -c "{code}"; python3 -c "{code}"; echo over; read end'
    process = await spawn(tmp_path, "sh", "-c", script)
    try:
        before = await ready(process)
        await process.write(b"go\n")
        assert await asyncio.wait_for(process.read(), PATIENCE) == b"over\n"
        after = process.vitals()
        assert (after.cpu_seconds or 0) - (before.cpu_seconds or 0) >= 0.75
    finally:
        await process.end(0.0)


async def test_the_sums_never_go_down(tmp_path: Path) -> None:
    script = "until [ -e enough ]; do head -c 99999 /dev/zero > f; sleep 0.2; done; echo ready; read end"
    process = await spawn(tmp_path, "sh", "-c", script)
    over = asyncio.create_task(ready(process))
    try:
        seen = [process.vitals()]
        while not over.done():
            await asyncio.wait([over], timeout=0.01)
            seen.append(process.vitals())
            if (seen[-1].processes or 0) > 6:
                (tmp_path / "enough").touch()
        for one, other in pairwise(seen):
            assert (one.cpu_seconds or 0) <= (other.cpu_seconds or 0)
            assert (one.io_bytes or 0) <= (other.io_bytes or 0)
            assert (one.processes or 0) <= (other.processes or 0)
        assert (seen[-1].processes or 0) > 6
        await over
    finally:
        await process.end(0.0)


async def test_files_written_are_seen(tmp_path: Path) -> None:
    process = await spawn(tmp_path, "sh", "-c", "echo ready; read go; head -c 300000 /dev/zero > big; read end")
    try:
        before = await ready(process)
        await process.write(b"go\n")
        await until(process, lambda pulse: (pulse.io_bytes or 0) - (before.io_bytes or 0) >= 300_000)
    finally:
        await process.end(0.0)


async def test_bytes_of_a_connection_are_seen_although_no_file_call_moves_them(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        listens = (
            "import socket, sys\n"
            f"s = socket.create_connection(('127.0.0.1', {port}))\n"
            "print('ready', flush=True)\n"
            "while s.recv(4096): pass\n"
            "sys.stdin.read()"
        )
        process = await spawn(tmp_path, "python3", "-c", listens)
        try:
            before = await ready(process)
            peer, _ = server.accept()
            with peer:
                peer.sendall(b"x" * 50_000)
                pulse = await until(process, lambda pulse: (pulse.io_bytes or 0) - (before.io_bytes or 0) >= 50_000)
            assert (pulse.io_bytes or 0) - (before.io_bytes or 0) < 60_000
        finally:
            await process.end(0.0)


async def test_new_processes_are_counted_and_the_family_is_known(tmp_path: Path) -> None:
    process = await spawn(tmp_path, "sh", "-c", "echo ready; read go; setsid sleep 1000 & read end")
    try:
        before = await ready(process)
        family = process.family()
        assert process.pid in family
        await process.write(b"go\n")
        await until(process, lambda pulse: (pulse.processes or 0) > (before.processes or 0))
        assert process.family() > family
    finally:
        await process.end(0.0)
    assert process.family() == set()


async def test_a_tree_that_is_gone_keeps_its_sums(tmp_path: Path) -> None:
    process = await spawn(tmp_path, "sh", "-c", "echo ready; read end")
    before = await ready(process)
    await process.end(0.0)
    assert process.vitals() == before

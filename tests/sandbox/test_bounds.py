"""What works in a sandbox stays within bounds; real programs that use too much, of which only those are ended."""

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from patience import soon
from sandbox.test_sandboxes import Box
from untildone.core.door import Table
from untildone.ports import Watcher
from untildone.sandbox.bounds import Bounds, Keeper, memory_bound
from untildone.sandbox.boxed import BoxedSpawner
from untildone.sandbox.host import HostProcess, HostSpawner

pytestmark = pytest.mark.anyio

ENV = {"PATH": "/usr/bin:/bin"}
MB = 1 << 20
# An agent that answers, and what its commands do: Claude Code gives each command a session of its own.
AGENT = """
for command in "$@"; do setsid {python} -c "$command" & done
while read line; do echo "$line"; done
"""
FORKS = """
import os, time
made = 0
while made < 400 and (child := os.fork()):
    made += 1
time.sleep(1000)
"""
HOG = """
import time
held = []
for _ in range(800):
    held.append(b"x" * (1 << 20))
time.sleep(1000)
"""
SHARING = """
import os, time
held = b"x" * (150 << 20)
for _ in range(4):
    if not os.fork():
        break
print("ready", flush=True)
time.sleep(1000)
"""
WRITER = """
import os, time
with open({file!r}, "wb") as file:
    file.write(b"x" * (64 << 20))
    file.flush()
    print("ready", flush=True)
    time.sleep(1000)
"""
IDLE = "import time; print('ready', flush=True); time.sleep(1000)"
THREADS = """
import threading, time
for _ in range(300):
    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
time.sleep(1000)
"""


@asynccontextmanager
async def agent(*commands: str) -> AsyncIterator[HostProcess]:
    words = ["sh", "-c", AGENT.format(python=sys.executable), "agent", *commands]
    process = await HostSpawner().spawn(words, cwd="/", env=ENV)
    try:
        yield process
    finally:
        await process.end(0.0)


async def answers(process: HostProcess) -> bool:
    """The agent itself lives, whatever became of its commands."""
    await process.write(b"are you there?\n")
    said = b""
    async with asyncio.timeout(60):
        while not said.endswith(b"are you there?\n"):
            said += await process.read()
    return True


async def ready(process: HostProcess, times: int) -> None:
    said = b""
    while said.count(b"ready") < times:
        said += await process.read()


@pytest.mark.parametrize("command", [FORKS, THREADS], ids=["processes", "threads"])
async def test_a_bomb_is_ended_and_the_agent_is_not(command: str) -> None:
    keeper, told = Keeper(Bounds(pids=200)), []
    async with agent(command) as process, keeper.keeping(lambda *one: told.append(one)):
        keeper.watch(process)
        await soon(lambda: told)
        await soon(lambda: not process.commands())
        assert await answers(process)
    assert [what for what, _ in told] == ["pids"]
    assert "of 200 processes and threads" in told[0][1]


async def test_an_agent_that_is_the_bomb_itself_is_ended() -> None:
    keeper, told = Keeper(Bounds(pids=200)), []
    process = await HostSpawner().spawn([sys.executable, "-c", FORKS], cwd="/", env=ENV)
    async with keeper.keeping(lambda *one: told.append(one)):
        keeper.watch(process)
        assert await process.wait() != 0
    assert [what for what, _ in told] == ["pids"]


async def test_what_has_most_memory_is_ended_and_nothing_else() -> None:
    keeper, told = Keeper(Bounds(memory=400 * MB)), []
    async with agent(IDLE, HOG) as process, keeper.keeping(lambda *one: told.append(one)):
        keeper.watch(process)
        await soon(lambda: told)
        await soon(lambda: len(process.commands()) == 1)
        assert await answers(process)
    ((what, said),) = told
    assert what == "memory"
    assert "of 400 MiB: ended" in said


async def test_memory_that_processes_share_counts_once() -> None:
    async with agent(SHARING) as process:
        await ready(process, 5)
        for bound, kept in ((400 * MB, True), (100 * MB, False)):
            keeper = Keeper(Bounds(memory=bound))
            keeper.watch(process)
            assert (keeper.enforce() is None) is kept


async def test_who_fills_a_disk_is_ended() -> None:
    with tempfile.NamedTemporaryFile(dir="/var/tmp") as file:
        async with agent(IDLE, WRITER.format(file=file.name)) as process:
            await ready(process, 2)
            keeper = Keeper(Bounds(disk_reserve=1 << 60, disks=(file.name,)))
            keeper.watch(process)
            exceeded = keeper.enforce()
            assert exceeded is not None
            assert exceeded.what == "disk_reserve"
            assert "which wrote 64 MiB" in exceeded.said
            await soon(lambda: len(process.commands()) == 1)
            # Nobody writes any more, and there still is no room: something took it in another way.
            exceeded = keeper.enforce()
            assert exceeded is not None
            await soon(lambda: not process.commands())
            assert keeper.enforce() is None
            assert await answers(process)


async def test_disks_with_room_are_nobodys_fault(tmp_path: Path) -> None:
    async with agent(IDLE) as process:
        await ready(process, 1)
        keeper = Keeper(Bounds(disk_reserve=1, disks=(str(tmp_path), "/no/such/folder")))
        keeper.watch(process)
        assert keeper.enforce() is None


def test_the_usual_bound_is_a_share_of_what_there_is() -> None:
    total = int(subprocess.run(["free", "-b"], capture_output=True, text=True, check=True).stdout.split()[7])
    assert 0 < memory_bound(None) <= 0.8 * total
    assert memory_bound(7) == 7


async def test_in_bubblewrap_a_bomb_is_ended_and_the_next_command_works(tmp_path: Path) -> None:
    box, told = Box("bwrap", tmp_path), []
    box.sandbox = BoxedSpawner(HostSpawner(), box.walls(), Table(), Bounds(pids=200, memory=1 << 40))
    watcher = Watcher(asked=lambda: lambda _: None, refused=box.refused.append, exceeded=lambda *one: told.append(one))
    async with box.sandbox.open(watcher) as _:
        words = ("sh", "-c", AGENT.format(python="/usr/bin/python3"), "agent", FORKS)
        process = await box.sandbox.spawn(words, cwd=str(box.folder), env=ENV)
        assert isinstance(process, HostProcess)
        await soon(lambda: told)
        await soon(lambda: not process.commands())
        assert await answers(process)
        await process.end(0.0)
        assert await box.run("echo", "on") == (0, b"on\n", "")
    assert [what for what, _ in told] == ["pids"]


async def test_in_bubblewrap_no_memory_is_used_up_by_files(tmp_path: Path) -> None:
    box = Box("bwrap", tmp_path)
    fill = 'head -c 1200M /dev/zero > "$folder/fill" && echo "$folder"; rm -f "$folder/fill"'
    fill = f"for folder in / /dev /etc /dev/shm; do {fill}; done"
    async with box.open():
        _, filled, said = await box.run("sh", "-c", f"{fill}; echo small > /dev/shm/small && cat /dev/shm/small")
    assert filled == b"small\n"
    assert "No space left" in said


async def test_who_started_what_filled_a_disk_is_not_ended() -> None:
    with tempfile.NamedTemporaryFile(dir="/var/tmp") as file:
        writer = ["head", "-c", "64M", "/dev/zero"]
        parent = f"import subprocess; subprocess.run({writer}, stdout=open({file.name!r}, 'wb')); {IDLE}"
        async with agent(parent) as process:
            await ready(process, 1)
            disk = os.statvfs("/var/tmp")
            keeper = Keeper(Bounds(disk_reserve=disk.f_bavail * disk.f_frsize * 3 // 2, disks=(file.name,)))
            keeper.watch(process)
            assert keeper.enforce() is None


async def test_no_file_is_larger_than_the_room_there_is() -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        disk = os.statvfs(folder)
        bounds = Bounds(disk_reserve=disk.f_bavail * disk.f_frsize * 2, disks=(folder,))
        words = ["sh", "-c", f"read go; head -c 64M /dev/zero > {folder}/large; stat -c %s {folder}/large"]
        process = await HostSpawner().spawn(words, cwd="/", env=ENV)
        Keeper(bounds).watch(process)
        await process.write(b"go\n")
        assert int(await process.read()) == 16 * MB
        await process.wait()

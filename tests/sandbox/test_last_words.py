"""What a program says after its loop was killed, and how it is ended: the guard writes it down, whole lines of it."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sandbox.test_host import ENV, eventually, living
from untildone.sandbox import guard
from untildone.sandbox.host import HostSpawner
from untildone.sandbox.memory import Memory

pytestmark = pytest.mark.anyio

# A loop that reads what comes and understands none of it: it says "ready" after the first bytes.
DRIVER = """
import asyncio, os, sys
from pathlib import Path
from untildone.sandbox.host import HostSpawner

async def main():
    env = {"PATH": os.environ["PATH"], "UNTILDONE_RUN": sys.argv[3]}
    spawner = HostSpawner(Path(sys.argv[2]))
    process = await spawner.spawn([sys.executable, "-c", sys.argv[1]], cwd="/", env=env)
    await process.read(1)
    print("ready", process.pid, flush=True)
    if len(sys.argv) > 4:
        os.kill(os.getpid(), 19)
    await process.wait()

asyncio.run(main())
"""

# Says when which signal came, in Claude's own form, and goes only when it must.
STUBBORN = """
import json, signal, sys, time
def say(**line): print(json.dumps(line, separators=(",", ":")), flush=True)
def heard(number, frame):
    say(type="heard", signal=number)
    if number == int(LEAVES_AT): sys.exit(0)
both = (signal.SIGINT, signal.SIGTERM)
for number in both: signal.signal(number, heard)
signal.pthread_sigmask(signal.SIG_BLOCK, both)
say(type="first")
{more}
signal.pthread_sigmask(signal.SIG_UNBLOCK, both)
while True: time.sleep(0.01)
"""
RUN = f"r{os.getpid()}"
"""Its own in each process: a sweep ends all processes of a run, also those of tests that run beside it."""
REQUESTING = 'say(type="system", subtype="status", status="requesting")'


def stubborn(leaves_at: int, more: str = "") -> str:
    return STUBBORN.replace("LEAVES_AT", str(leaves_at)).replace("{more}", more)


def killed_driver(program: str, folder: Path, *more: str) -> int:
    """Start a loop, kill it once the program spoke; returns the guard's pid."""
    argv = [sys.executable, "-c", DRIVER, program, str(folder), RUN, *more]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        word, pid = driver.stdout.readline().split()
        assert word == "ready"
        driver.kill()
        return int(pid)


async def words_of(folder: Path, pid: int) -> list[dict[str, object]]:
    path = folder / f"{RUN}-{pid}.jsonl"
    assert await eventually(path.exists)
    assert path.stat().st_mode & 0o777 == 0o600
    assert await eventually(lambda: guard.is_zombie(pid))
    return [json.loads(line) for line in path.read_bytes().splitlines()]


async def test_signals_come_in_the_order_that_lets_claude_speak(tmp_path: Path) -> None:
    pid = killed_driver(stubborn(signal.SIGKILL), tmp_path)
    said = await words_of(tmp_path, pid)
    assert [line.get("signal") for line in said] == [None, signal.SIGINT, signal.SIGTERM]


async def test_what_was_read_and_what_was_still_in_the_pipe_are_kept(tmp_path: Path) -> None:
    """The driver stops reading at once: the rest stays in the pipe, and the program must not stand still on it."""
    flood = 'for n in range(3000): say(type="more", n=n, text="x" * 100)'
    pid = killed_driver(stubborn(signal.SIGINT, flood), tmp_path, "stop reading")
    said = await words_of(tmp_path, pid)
    assert [line["n"] for line in said if line["type"] == "more"] == list(range(3000))
    assert said[0] == {"type": "first"}
    assert said[-1] == {"type": "heard", "signal": signal.SIGINT}


async def test_a_reply_under_way_may_come_to_its_end(tmp_path: Path) -> None:
    served = f'{REQUESTING}\ntime.sleep(0.3)\nsay(type="stream_event", event=dict(type="message_stop"))'
    said = await words_of(tmp_path, killed_driver(stubborn(signal.SIGINT, served), tmp_path, "stop reading"))
    assert [line["type"] for line in said] == ["first", "system", "stream_event", "heard"]


async def test_a_reply_that_takes_longer_is_cut(tmp_path: Path) -> None:
    said = await words_of(tmp_path, killed_driver(stubborn(signal.SIGINT, REQUESTING), tmp_path, "stop reading"))
    assert [line["type"] for line in said] == ["first", "system", "heard"]


async def test_only_the_end_of_very_much_is_kept_and_from_a_whole_line_on(tmp_path: Path) -> None:
    more = 'for n in range(24): say(n=n, text="x" * (1 << 20))'
    said = await words_of(tmp_path, killed_driver(stubborn(signal.SIGINT, more), tmp_path))
    kept = [line["n"] for line in said if "n" in line]
    assert kept == list(range(24))[-len(kept) :]
    assert 6 <= len(kept) <= 8


async def test_an_orderly_end_leaves_no_words(tmp_path: Path) -> None:
    env = {**ENV, "UNTILDONE_RUN": RUN}
    process = await HostSpawner(tmp_path / "words").spawn(["sh", "-c", "echo hi; sleep 100"], cwd="/", env=env)
    assert await process.read() == b"hi\n"
    await process.end(0.2)
    assert list((tmp_path / "words").iterdir()) == []


async def test_words_that_cannot_be_written_keep_nothing_alive(tmp_path: Path) -> None:
    folder = tmp_path / "words"
    argv = [sys.executable, "-c", DRIVER, "import time; print(1, flush=True); time.sleep(987654)", str(folder), RUN]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        pid = int(driver.stdout.readline().split()[1])
        folder.rmdir()
        driver.kill()
    assert await eventually(lambda: guard.is_zombie(pid))
    assert not folder.exists()


async def test_a_sweep_lets_a_guard_finish(tmp_path: Path) -> None:
    """A driver that comes right after the death must not cut the last words short."""
    pid = killed_driver(stubborn(signal.SIGKILL, REQUESTING), tmp_path)
    assert await asyncio.to_thread(HostSpawner().sweep, RUN) >= 1
    assert guard.is_zombie(pid)
    assert (await words_of(tmp_path, pid))[-1] == {"type": "heard", "signal": signal.SIGTERM}


async def test_children_of_their_own_session_are_gone_in_time(tmp_path: Path) -> None:
    token = str(time.monotonic_ns())[-9:]
    more = f'import subprocess; subprocess.Popen(["setsid", "sleep", "{token}"])'
    killed_driver(stubborn(signal.SIGKILL, more), tmp_path)
    assert await eventually(lambda: not living(token))


@pytest.mark.parametrize("sizes", [(3, 5), (10,), (11,), (7, 7, 7), (25,), (3, 30, 2), (10, 10)])
def test_the_memory_holds_the_end_of_what_was_read(sizes: tuple[int, ...]) -> None:
    file = os.memfd_create("test")
    memory = Memory(file, size=10)
    said = b""
    for size in sizes:
        chunk = bytes(97 + (len(said) + n) % 26 for n in range(size))
        memory.remember(chunk)
        said += chunk
    ring = guard._remembered(file)
    os.close(file)
    # Without a line end nothing but the whole is whole.
    assert ring == (said if len(said) <= 10 else b"")


def test_the_memory_gives_whole_lines() -> None:
    file = os.memfd_create("test")
    memory = Memory(file, size=10)
    for line in (b"first\n", b"second\n", b"3rd"):
        memory.remember(line)
    assert guard._remembered(file) == b"3rd"
    memory.remember(b"\n4")
    assert guard._remembered(file) == b"3rd\n4"
    os.close(file)

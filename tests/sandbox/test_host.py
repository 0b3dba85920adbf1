"""Real programs behind the real guard: what goes in and out, and that nothing is left behind."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from patience import PATIENCE
from processes import state_of
from untildone.errors import AgentError, AgentMissing
from untildone.ports import Process, Spawner
from untildone.sandbox.guard import descendants
from untildone.sandbox.host import STDERR_KEPT, HostSpawner, behind_guard
from untildone.witness.command import run_command

pytestmark = pytest.mark.anyio

ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
CHECK = behind_guard(whole_tree=True)

# A program with a child, a child in its own session, and one that dropped the environment too. All ignore SIGTERM.
FAMILY = """
trap '' TERM INT
(trap '' TERM; exec sleep {token}1) &
setsid sh -c "trap '' TERM; exec sleep {token}2" &
env -i setsid sh -c "trap '' TERM; exec sleep {token}3" &
setsid sh -c "(setsid sh -c 'exec sleep {token}4' &) ; exit 0"
echo ready
exec sleep {token}0
"""


def living(token: str) -> list[int]:
    """Return processes whose command line holds the token and that are no zombies."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if any(word.startswith(token.encode()) for word in words[1:2]) and words[0].endswith(b"sleep"):
                found.append(int(folder.name))
    return found


async def eventually(holds: Callable[[], bool], patience: float = PATIENCE) -> bool:
    give_up = time.monotonic() + patience
    while not holds():
        if time.monotonic() > give_up:
            return False
        await asyncio.sleep(0.02)
    return True


@pytest.fixture
def token() -> str:
    """A duration nobody else sleeps: it names the family."""
    return str(uuid.uuid4().int)[:9]


async def run(*argv: str, cwd: Path, stdin: bytes | None = None) -> tuple[int, bytes, str]:
    process = await HostSpawner().spawn(argv, cwd=str(cwd), env=ENV, stdin="null" if stdin is None else "pipe")
    feeding = asyncio.create_task(feed(process, stdin)) if stdin is not None else None
    output = bytearray()
    async with asyncio.timeout(PATIENCE * 3):
        while chunk := await process.read():
            output += chunk
        if feeding:
            await feeding
        return await process.wait(), bytes(output), process.stderr_tail()


async def feed(process: Process, data: bytes) -> None:
    await process.write(data)
    await process.close_stdin()


async def test_the_spawner_satisfies_its_port() -> None:
    spawner: Spawner = HostSpawner()
    assert spawner.sweep("no-such-run") == 0


async def test_exit_status_output_and_errors_come_through(tmp_path: Path) -> None:
    assert await run("sh", "-c", "echo out; echo bad >&2; exit 7", cwd=tmp_path) == (7, b"out\n", "bad\n")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
async def test_death_by_signal_comes_through(tmp_path: Path, number: signal.Signals) -> None:
    status, _, _ = await run("sh", "-c", f"kill -{int(number)} $$", cwd=tmp_path)
    assert status == -number


async def test_the_environment_is_exactly_the_one_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_SHELL", "1")
    _, output, _ = await run("/usr/bin/env", cwd=tmp_path)
    names = {line.partition(b"=")[0] for line in output.splitlines()}
    assert names <= {b"PATH", b"LC_CTYPE"}  # Python itself coerces the C locale
    assert b"SECRET_OF_THE_SHELL" not in names


async def test_it_runs_in_the_folder_and_in_its_own_session(tmp_path: Path) -> None:
    status, output, _ = await run(sys.executable, "-c", "import os; print(os.getcwd(), os.getsid(0))", cwd=tmp_path)
    folder, session = output.decode().split()
    assert (status, folder) == (0, str(tmp_path))
    assert int(session) != os.getsid(0)


async def test_twenty_megabytes_go_in_and_come_out_unchanged(tmp_path: Path) -> None:
    data = os.urandom(1 << 20) * 20
    status, output, _ = await run("cat", cwd=tmp_path, stdin=data)
    assert status == 0
    assert output == data


async def test_a_flood_on_stderr_neither_blocks_nor_grows(tmp_path: Path) -> None:
    script = (
        "import sys; [sys.stderr.write('x' * 65535 + chr(10)) for _ in range(200)]; "
        "sys.stderr.write('the end'); print('ok')"
    )
    status, output, tail = await run(sys.executable, "-c", script, cwd=tmp_path)
    assert (status, output) == (0, b"ok\n")
    assert tail.endswith("the end")
    assert len(tail) <= STDERR_KEPT


async def test_writing_to_a_program_that_is_gone_is_a_broken_pipe(tmp_path: Path) -> None:
    process = await HostSpawner().spawn(["true"], cwd=str(tmp_path), env=ENV)
    await process.wait()
    with pytest.raises(BrokenPipeError):
        await process.write(b"x" * (1 << 20))


async def test_a_missing_program_or_folder_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "not-executable").write_text("#!/bin/sh\n")
    for name in ("no-such-program", str(tmp_path / "not-executable")):
        with pytest.raises(AgentMissing, match=name):
            await HostSpawner().spawn([name], cwd=str(tmp_path), env=ENV)
    with pytest.raises(AgentError, match="gone"):
        await HostSpawner().spawn(["true"], cwd=str(tmp_path / "gone"), env=ENV)


async def test_a_program_that_cannot_be_executed_ends_with_a_line_on_stderr(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/no/such/interpreter\n")
    broken.chmod(0o755)
    status, _, tail = await run(str(broken), cwd=tmp_path)
    assert status == 127
    assert tail == f"cannot start {broken}: No such file or directory\n"


async def test_what_the_program_left_behind_ends_with_it(tmp_path: Path, token: str) -> None:
    script = f"setsid sleep {token}1 & env -i setsid sleep {token}2 & (sleep {token}3 &) ; exit 3"
    status, _, _ = await run("sh", "-c", script, cwd=tmp_path)
    assert status == 3
    assert living(token) == []


async def test_end_lets_nothing_survive(tmp_path: Path, token: str) -> None:
    process = await HostSpawner().spawn(["sh", "-c", FAMILY.format(token=token)], cwd=str(tmp_path), env=ENV)
    assert await process.read() == b"ready\n"
    assert await eventually(lambda: len(living(token)) == 5)
    await process.end(grace=0.4)
    assert living(token) == []
    assert await process.wait() == -signal.SIGKILL
    await process.end()  # harmless


async def test_a_polite_program_ends_at_the_first_asking(tmp_path: Path) -> None:
    script = "trap 'exit 5' INT; echo ready; while :; do sleep 0.05; done"
    process = await HostSpawner().spawn(["sh", "-c", script], cwd=str(tmp_path), env=ENV)
    assert await process.read() == b"ready\n"
    await process.end(grace=20)
    assert await process.wait() == 5


async def test_ending_a_program_that_just_ended_does_not_lose_its_status(tmp_path: Path) -> None:
    for _ in range(20):
        process = await HostSpawner().spawn(["sh", "-c", "exit 6"], cwd=str(tmp_path), env=ENV)
        assert await process.read() == b""  # its pipes are closed: it is gone, or about to be
        await process.end()
        assert await process.wait() == 6


DRIVER = """
import asyncio, os, sys
from untildone.sandbox.host import HostSpawner

async def main():
    process = await HostSpawner().spawn(["sh", "-c", sys.argv[1]], cwd="/", env={"PATH": os.environ["PATH"]})
    await process.read()
    print("ready", flush=True)
    await process.wait()

asyncio.run(main())
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_nothing_survives_the_death_of_the_loop(token: str, number: signal.Signals) -> None:
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, FAMILY.format(token=token)], stdout=subprocess.PIPE, env=os.environ
    )
    with driver:
        assert driver.stdout is not None
        assert await asyncio.to_thread(driver.stdout.readline) == b"ready\n"
        assert await eventually(lambda: len(living(token)) == 5)
        driver.send_signal(number)
        assert await eventually(lambda: not living(token))


async def test_a_killed_guard_takes_the_program_with_it(tmp_path: Path, token: str) -> None:
    process = await HostSpawner().spawn(["sleep", f"{token}0"], cwd=str(tmp_path), env=ENV)
    assert await eventually(lambda: len(living(token)) == 1)
    os.kill(process.pid, signal.SIGKILL)
    assert await eventually(lambda: not living(token))
    assert await process.wait() == -signal.SIGKILL


# Kills one of its two guards and leaves a daemon behind, without the marker, that holds its output.
UNGUARDED = """
env -i setsid sh -c 'echo $$ > daemon; exec sleep {token}1' &
while ! [ -s daemon ]; do :; done
kill -9 {guard}; exec sleep {token}2
"""
KEEPER = "$(cut -d' ' -f4 /proc/$PPID/stat)"


@pytest.mark.parametrize("victim", ["$PPID", KEEPER], ids=["guard", "keeper"])
async def test_a_program_that_kills_one_of_its_guards_leaves_nothing_behind(
    tmp_path: Path, token: str, victim: str
) -> None:
    script = UNGUARDED.format(token=token, guard=victim)
    process = await HostSpawner().spawn(["sh", "-c", script], cwd=str(tmp_path), env=ENV, stdin="null")
    async with asyncio.timeout(PATIENCE):
        assert await process.read() == b""
        assert await process.wait() == -signal.SIGKILL
    assert await eventually(lambda: not living(token))


# A loop that is stopped while its program may work for a second more; going on, it says how that ended.
STOPPED_LOOP = """
import asyncio, os, signal, sys
from pathlib import Path
from untildone.sandbox.host import HostSpawner

async def main():
    spawner = HostSpawner(Path(sys.argv[2]))
    env = {"PATH": os.environ["PATH"], "UNTILDONE_RUN": "stopped-" + sys.argv[3]}
    process = await spawner.spawn(["sh", "-c", sys.argv[1]], cwd="/", env=env)
    await process.read()
    sys.stdin.readline()
    spawner.end_within(1.0)
    os.kill(os.getpid(), signal.SIGSTOP)
    print(await process.wait(), spawner.has_enforced(), flush=True)

asyncio.run(main())
"""


async def test_a_stopped_loop_does_not_lift_the_limit_of_time(tmp_path: Path, token: str) -> None:
    script = f"trap '' INT; setsid sleep {token}1 & echo ready; exec sleep {token}2"
    argv = [sys.executable, "-c", STOPPED_LOOP, script, str(tmp_path), token]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as loop:
        try:
            assert await eventually(lambda: len(living(token)) == 2)
            assert loop.stdin is not None
            loop.stdin.write("\n")
            loop.stdin.flush()
            assert await eventually(lambda: not living(token))
            assert await eventually(lambda: state_of(loop.pid) == "T")
            loop.send_signal(signal.SIGCONT)
            assert loop.stdout is not None
            assert await asyncio.to_thread(loop.stdout.read) == f"{-signal.SIGTERM} True\n"
        finally:
            loop.kill()


@pytest.mark.parametrize("number", [4, pytest.param(200, marks=pytest.mark.soak)])
async def test_no_zombie_is_left(tmp_path: Path, number: int) -> None:
    """Of programs, of checks, and of what outlived them."""

    def dead() -> list[str]:
        children: list[str] = []
        for thread in Path(f"/proc/{os.getpid()}/task").iterdir():
            with contextlib.suppress(FileNotFoundError):  # threads come and go
                children += (thread / "children").read_text().split()
        return [pid for pid in children if state_of(int(pid)) == "Z"]

    before = dead()
    for _ in range(number):
        assert await run("sh", "-c", "(setsid true &) ; exit 3", cwd=tmp_path) == (3, b"", "")
        told = await run_command("(setsid true &) ; exit 4", cwd=tmp_path, timeout=240, behind=CHECK)
        assert told.exit_code == 4
    assert await eventually(lambda: set(dead()) <= set(before))


def orphan(marker: str, token: str, variable: str = "UNTILDONE_RUN", *, stubborn: bool = False) -> None:
    """Leave a process behind that belongs to nobody any more; a stubborn one ignores SIGTERM."""
    trap = "trap '' TERM; " if stubborn else ""
    subprocess.run(
        ["sh", "-c", f'setsid sh -c "{trap}exec sleep {token}" >/dev/null 2>&1 &'],
        env={**ENV, variable: marker},
        check=True,
    )


RUN = f"run-{os.getpid()}"
"""Its own in each process: a sweep ends all processes of a run, also those of tests that run beside it."""


@pytest.mark.parametrize(("marker", "stubborn"), [("UNTILDONE_RUN", True), ("UNTILDONE_CHECK_OF", False)])
async def test_sweep_ends_the_orphans_of_this_run_and_spares_others(token: str, marker: str, *, stubborn: bool) -> None:
    mine, other = f"{token}1", f"{token}2"
    orphan(RUN, mine, marker, stubborn=stubborn)
    orphan(f"{RUN}b", other)
    try:
        assert await eventually(lambda: len(living(token)) == 2)
        assert HostSpawner().sweep(RUN) == 1
        assert (living(mine), len(living(other))) == ([], 1)
        assert HostSpawner().sweep(RUN) == 0
        # The same run in another store, such as a copy, is somebody else's.
        assert HostSpawner(mark="UNTILDONE_STORE=/elsewhere").sweep(f"{RUN}b") == 0
    finally:
        assert HostSpawner().sweep(f"{RUN}b") == 1
    assert living(other) == []


@pytest.mark.parametrize(("how", "stays"), [("(setsid sleep {} &);", True), ("setsid sleep {} &", False)])
async def test_leftovers_end_and_a_program_stays_unless_it_waits_for_one(
    tmp_path: Path, token: str, how: str, *, stays: bool
) -> None:
    spawner, env = HostSpawner(), {**ENV, "UNTILDONE_RUN": token}
    script = f"sleep {token}0 & {how.format(f'{token}1')} exec sleep {token}2"
    process = await spawner.spawn(["sh", "-c", script], cwd=str(tmp_path), env=env)
    try:
        assert await eventually(lambda: len(living(token)) == 3)
        assert spawner.end_leftovers(token) == (1 if stays else 5)  # its guards, too
        assert len(living(token)) == (2 if stays else 0)
        assert living(f"{token}1") == []
    finally:
        await process.end(grace=0.2)


# A sweep while processes come and go; it ends with what the sweep asked the kernel for.
BUSY_SWEEP = """
import subprocess, sys, threading
from untildone.sandbox.host import HostSpawner

opened, over = set(), threading.Event()

def notice(event, arguments):
    if event in ("open", "os.listdir", "os.scandir"):
        opened.add(str(arguments[0]))

def come_and_go():
    while not over.is_set():
        subprocess.run(["true"], check=True)

coming = threading.Thread(target=come_and_go)
coming.start()
sys.addaudithook(notice)
try:
    for _ in range(20):
        assert HostSpawner().sweep("no-such-run") == 0
finally:
    over.set()
    coming.join()
print(sorted(path for path in opened if "cgroup" in path or "mountinfo" in path))
"""


def test_a_sweep_where_processes_come_and_go_does_not_read_control_groups() -> None:
    """Groups that vanished while they were listed once ended runs."""
    done = subprocess.run([sys.executable, "-c", BUSY_SWEEP], capture_output=True, text=True, check=False, timeout=240)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_sweep_spares_itself_and_its_ancestors(token: str) -> None:
    script = "from untildone.sandbox.host import HostSpawner; print(HostSpawner().sweep('nested'))"
    shell = ["sh", "-c", f'"{sys.executable}" -c "{script}"; echo alive']
    done = subprocess.run(shell, env={**ENV, "UNTILDONE_RUN": "nested"}, capture_output=True, text=True, check=False)
    assert done.stdout == "0\nalive\n"


async def test_descendants_are_found_at_any_depth(tmp_path: Path, token: str) -> None:
    process = await HostSpawner().spawn(["sh", "-c", f"sh -c 'sleep {token}; true'; true"], cwd=str(tmp_path), env=ENV)
    assert await eventually(lambda: len(living(token)) == 1)
    assert set(living(token)) < set(descendants(process.pid))
    await process.end(grace=0.2)


def test_the_thread_that_spawns_may_be_any_that_lives_on(tmp_path: Path) -> None:
    statuses: list[int] = []

    async def work() -> None:
        process = await HostSpawner().spawn(["sh", "-c", "exit 4"], cwd=str(tmp_path), env=ENV)
        statuses.append(await process.wait())

    thread = threading.Thread(target=lambda: asyncio.run(work()))
    thread.start()
    thread.join(PATIENCE)
    assert statuses == [4]

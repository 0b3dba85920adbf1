"""Control groups: what escaped its guard is found by membership. Where none can be made, the marker has to do."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from untildone.ports import Process
from untildone.sandbox import cgroup
from untildone.sandbox.guard import is_zombie
from untildone.sandbox.host import HostSpawner

RUN = f"test-{os.getpid()}"
ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin", "UNTILDONE_RUN": RUN}
PATIENCE = 60.0


@pytest.fixture
def has_groups() -> Iterator[bool]:
    """Whether groups can be made here; what a test left in one is ended."""
    group = cgroup.make_group(RUN)
    if group is not None:
        cgroup.clear(group)
    yield group is not None
    for left in cgroup.groups_of(RUN):
        cgroup.clear(left)


@pytest.fixture
def made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree of groups made of plain folders: our own is in the middle of it."""
    root = tmp_path / "tree"
    ours = root / "user.slice" / "ours"
    ours.mkdir(parents=True)
    (ours / "cgroup.procs").write_text("")
    (tmp_path / "mounts").write_text(f"21 1 0:19 / /proc rw - proc proc rw\n30 1 0:26 / {root} rw,x - cgroup2 c rw\n")
    (tmp_path / "cgroup").write_text("4:memory:/elsewhere\n0::/user.slice/ours\n")
    monkeypatch.setattr(cgroup, "MOUNTS", tmp_path / "mounts")
    monkeypatch.setattr(cgroup, "OURS", tmp_path / "cgroup")
    return ours


async def written(place: Path) -> int:
    async with asyncio.timeout(PATIENCE):
        while not (place.exists() and place.read_text().endswith("\n")):
            await asyncio.sleep(0.01)
    return int(place.read_text())


async def output(process: Process) -> bytes:
    """All it says, to its end."""
    said = b""
    async with asyncio.timeout(PATIENCE):
        while chunk := await process.read():
            said += chunk
    return said


def test_a_group_is_made_below_our_own(made_up: Path) -> None:
    one, two = cgroup.make_group(RUN), cgroup.make_group(RUN)
    assert one is not None
    assert two is not None
    assert one != two
    assert {one.parent, two.parent} == {made_up}
    assert set(cgroup.groups_of(RUN)) == {one, two}
    assert [cgroup.groups_of(other) for other in ("test", "test-*", "")] == [[], [], []]


@pytest.mark.parametrize("run_id", ["", "../x", "a/b", "a.b", "*", "x" * 200])
def test_a_name_that_could_lead_elsewhere_gets_no_group(made_up: Path, run_id: str) -> None:
    assert cgroup.make_group(run_id) is None
    assert [place.name for place in made_up.iterdir()] == ["cgroup.procs"]


def test_members_are_counted_with_those_of_groups_below(made_up: Path) -> None:
    group = cgroup.make_group(RUN)
    assert group is not None
    (group / "cgroup.procs").write_text("11\n12\n")
    (group / "inner").mkdir()
    (group / "inner" / "cgroup.procs").write_text("13\n")
    assert cgroup.members(group) == {11, 12, 13}
    assert cgroup.members(made_up / "gone") == set()


@pytest.mark.parametrize(
    "mounts", ["", "30 1 0:26 /part {root} rw - cgroup2 c rw\n", "30 1 0:26 / /x rw - tmpfs c rw\n"]
)
def test_without_a_tree_of_groups_there_is_none(made_up: Path, tmp_path: Path, mounts: str) -> None:
    (tmp_path / "mounts").write_text(mounts.format(root=made_up.parent.parent))
    assert cgroup.make_group(RUN) is None
    assert cgroup.groups_of(RUN) == []


def test_clearing_ends_all_but_the_spared_and_removes_the_group(has_groups: bool) -> None:
    group = cgroup.make_group(RUN)
    assert (group is not None) is has_groups
    if group is None:
        assert cgroup.clear(Path("/nowhere/at/all")) == set()
        return
    sleepers = [subprocess.Popen(["sleep", "60"]) for _ in range(2)]
    for sleeper in sleepers:
        (group / "cgroup.procs").write_text(str(sleeper.pid))
    spared, other = (sleeper.pid for sleeper in sleepers)
    assert cgroup.clear(group, spared={spared}) == {other}
    assert sleepers[0].poll() is None
    assert cgroup.clear(group) == {spared}
    assert [sleeper.wait() for sleeper in sleepers] == [-signal.SIGKILL] * 2
    assert not group.exists()
    assert cgroup.clear(group) == set()


def kills_its_guard(*, unmarked: bool) -> str:
    """A script that leaves a daemon behind; `unmarked`: one without the marker that holds the script's output."""
    daemon = "setsid sh -c 'echo $$ > daemon; exec sleep 600'"
    daemon = f"env -i {daemon}" if unmarked else f"{daemon} >/dev/null 2>&1"
    return f"{daemon} & while ! [ -s daemon ]; do :; done; kill -9 $PPID"


@pytest.mark.anyio
async def test_a_program_that_kills_its_guard_leaves_nothing_behind(tmp_path: Path, has_groups: bool) -> None:
    """Without control groups only what kept the marker can be found, and only by the next driver."""
    spawner = HostSpawner()
    script = kills_its_guard(unmarked=has_groups)
    process = await spawner.spawn(["sh", "-c", script], cwd=str(tmp_path), env=ENV, stdin="null")
    daemon = await written(tmp_path / "daemon")
    if has_groups:
        # It holds the pipe: the end of the output comes with its own.
        assert await output(process) == b""
    assert await asyncio.wait_for(process.wait(), PATIENCE) == -signal.SIGKILL
    if not has_groups:
        assert await asyncio.to_thread(spawner.sweep, RUN) >= 1
    assert is_zombie(daemon)
    assert cgroup.groups_of(RUN) == []
    await process.end(0.0)


@pytest.mark.anyio
async def test_the_next_driver_finds_what_survived_loop_and_guard(tmp_path: Path, has_groups: bool) -> None:
    spawner = HostSpawner()
    script = kills_its_guard(unmarked=has_groups).replace("kill -9 $PPID", "wait")
    process = await spawner.spawn(["sh", "-c", script], cwd=str(tmp_path), env=ENV, stdin="null")
    daemon = await written(tmp_path / "daemon")
    os.kill(process.pid, signal.SIGKILL)
    assert not is_zombie(daemon)
    assert spawner.sweep(RUN) >= 1  # at once: a loop that lives would clear the group by itself
    assert is_zombie(daemon)
    assert cgroup.groups_of(RUN) == []
    assert await output(process) == b""
    await asyncio.wait_for(process.wait(), PATIENCE)


@pytest.mark.anyio
async def test_an_orderly_end_leaves_no_group(tmp_path: Path, has_groups: bool) -> None:
    process = await HostSpawner().spawn(["cat", "/proc/self/cgroup"], cwd=str(tmp_path), env=ENV, stdin="null")
    said = await output(process)
    assert (f"untildone-{RUN}.".encode() in said) is has_groups
    assert await process.wait() == 0
    assert cgroup.groups_of(RUN) == []


@pytest.mark.anyio
async def test_programs_of_no_run_get_no_group(tmp_path: Path) -> None:
    process = await HostSpawner().spawn(
        ["cat", "/proc/self/cgroup"], cwd=str(tmp_path), env={"PATH": ENV["PATH"]}, stdin="null"
    )
    assert b"untildone-" not in await output(process)
    assert await process.wait() == 0


@pytest.mark.anyio
async def test_where_no_group_can_be_made_all_else_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup, "MOUNTS", tmp_path / "none")
    spawner = HostSpawner()
    script = kills_its_guard(unmarked=False)
    process = await spawner.spawn(["sh", "-c", script], cwd=str(tmp_path), env=ENV, stdin="null")
    daemon = await written(tmp_path / "daemon")
    assert await asyncio.wait_for(process.wait(), PATIENCE) == -signal.SIGKILL
    assert await asyncio.to_thread(spawner.sweep, RUN) >= 1
    assert is_zombie(daemon)
    assert await output(process) == b""

"""A run has one driver: whoever dies gives it up, whoever is merely stopped does not."""

import asyncio
import fcntl
import json
import os
import shutil
import signal
from asyncio.subprocess import Process
from collections.abc import Iterator
from pathlib import Path

import pytest

from patience import PATIENCE
from store.store_kit import OpenSqlite, StartDriver, asks, begin, line_of
from untildone.errors import LeaseLost, RunBusy, StoreError
from untildone.store.lease import Held, Locks, overlaps, process_started

pytestmark = pytest.mark.anyio


async def _holding(start_driver: StartDriver, folder: Path, token: int = 1) -> Process:
    driver = await start_driver("hold", "r1", str(folder))
    assert await line_of(driver) == f"held {token}"
    return driver


async def test_a_killed_driver_gives_up_its_run_at_once(
    open_sqlite: OpenSqlite, start_driver: StartDriver, tmp_path: Path
) -> None:
    driver = await _holding(start_driver, tmp_path)
    log = open_sqlite()
    with pytest.raises(RunBusy, match=rf"in {tmp_path} \(process {driver.pid}, since 2027-01-15 08:00:00 UTC\)"):
        await begin(log, tmp_path)
    await log.append("r1", [asks("x")])
    driver.kill()
    await driver.wait()
    assert [(row.status, row.alive) for row in await log.runs()] == [("running", False)]
    assert (await begin(log, tmp_path)).token == 2


async def test_a_stopped_driver_keeps_its_run(
    open_sqlite: OpenSqlite, start_driver: StartDriver, tmp_path: Path
) -> None:
    driver = await _holding(start_driver, tmp_path)
    driver.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, driver.pid, os.WSTOPPED | os.WNOWAIT)
    log = open_sqlite()
    assert [row.alive for row in await log.runs()] == [True]
    with pytest.raises(RunBusy):
        await begin(log, tmp_path)
    driver.send_signal(signal.SIGCONT)
    assert driver.stdin is not None
    driver.stdin.close()
    async with asyncio.timeout(PATIENCE):
        assert await driver.wait() == 0
    assert (await begin(log, tmp_path)).token == 2


async def test_a_process_the_driver_started_does_not_inherit_the_lease(open_sqlite: OpenSqlite, tmp_path: Path) -> None:
    first = open_sqlite()
    await begin(first, tmp_path)
    child = await asyncio.create_subprocess_exec("sleep", "60")
    try:
        await first.close()
        assert (await begin(open_sqlite(), tmp_path)).token == 2
    finally:
        child.kill()
        await child.wait()


async def test_a_driver_whose_locks_were_deleted_is_fenced_off(
    open_sqlite: OpenSqlite, tmp_path: Path, db: Path
) -> None:
    old_log, new_log = open_sqlite(), open_sqlite()
    old = await begin(old_log, tmp_path)
    shutil.rmtree(db.parent / "locks")
    new = await begin(new_log, tmp_path)
    with pytest.raises(LeaseLost, match=r"lease 1, now 2"):
        await old_log.append("r1", [asks("late")], lease=old)
    await old_log.append("r1", [asks("a command")])
    await new_log.append("r1", [asks("mine")], lease=new)
    await old_log.release(old, status="completed")
    assert [(row.status, row.alive) for row in await new_log.runs()] == [("running", True)]


@pytest.fixture
def question(db: Path) -> Iterator[int]:
    """Someone is just asking whether run r1 is alive: an open, shared lock."""
    path = db.parent / "locks" / "r1.lock"
    path.parent.mkdir(parents=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(fd, fcntl.LOCK_SH)
    yield fd
    os.close(fd)


async def test_a_driver_that_starts_while_someone_asks_waits_for_the_answer(
    open_sqlite: OpenSqlite, tmp_path: Path, question: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    def answered(seconds: float) -> None:
        pauses.append(seconds)
        fcntl.flock(question, fcntl.LOCK_UN)

    monkeypatch.setattr("untildone.store.lease.time.sleep", answered)
    assert (await begin(open_sqlite(), tmp_path)).token == 1
    assert len(pauses) == 1


async def test_two_who_ask_do_not_take_each_other_for_the_driver(db: Path, question: int) -> None:
    assert Locks(db.parent / "locks").holder("r1") is None


async def test_asking_does_not_disturb_the_driver(open_sqlite: OpenSqlite, tmp_path: Path) -> None:
    log, other = open_sqlite(), open_sqlite()
    lease = await begin(log, tmp_path)
    for _ in range(3):
        assert [row.alive for row in await other.runs()] == [True]
    with pytest.raises(RunBusy):
        await begin(other, tmp_path)
    await log.append("r1", [asks("still here")], lease=lease)


async def test_the_lock_files_say_who_holds_them(open_sqlite: OpenSqlite, tmp_path: Path, db: Path) -> None:
    await begin(open_sqlite(), tmp_path)
    texts = [json.loads(path.read_text()) for path in (db.parent / "locks").glob("*.lock")]
    assert len(texts) == 2
    assert texts[0] == texts[1]
    assert texts[0]["pid"] == os.getpid()
    assert texts[0]["started"] == process_started(os.getpid())
    assert (texts[0]["run_id"], texts[0]["folder"]) == ("r1", str(tmp_path))


@pytest.mark.parametrize("text", [b"", b"\xff\xfe", b"[]", b'{"pid": "x", "since": [], "nonsense": 1}', b"{" * 9999])
async def test_a_spoilt_lock_file_still_locks_and_is_still_taken_over(
    open_sqlite: OpenSqlite, tmp_path: Path, db: Path, text: bytes
) -> None:
    log, other = open_sqlite(), open_sqlite()
    lease = await begin(log, tmp_path)
    for path in (db.parent / "locks").glob("*.lock"):
        path.write_bytes(text)
    with pytest.raises(RunBusy, match="another process drives this run or works in this folder"):
        await begin(other, tmp_path)
    with pytest.raises(RunBusy):
        await begin(other, tmp_path, "r2")
    await log.release(lease, status="suspended")
    assert (await begin(other, tmp_path)).token == 2


async def test_a_folder_that_cannot_hold_locks_is_said_in_one_line(
    open_sqlite: OpenSqlite, tmp_path: Path, db: Path
) -> None:
    log = open_sqlite()
    (db.parent / "locks").write_text("in the way")
    with pytest.raises(StoreError, match=r"cannot lock in .*locks: .*you may write to"):
        await begin(log, tmp_path)
    assert await log.runs() == []


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("/a/b", "/a/b", True),
        ("/a/b", "/a/b/c/d", True),
        ("/a/b/c", "/a", True),
        ("/", "/a", True),
        ("/a/b", "/a/bc", False),
        ("/a/b", "/a/c", False),
        ("", "/a", False),
    ],
)
def test_which_folders_overlap(one: str, other: str, same: bool) -> None:
    assert overlaps(one, other) is same


def test_the_start_time_of_a_process() -> None:
    assert process_started(os.getpid()) is not None
    assert process_started(2**22 + 1) is None


# --- folders, for all stores of a user ---


def _take(locks: Locks, run_id: str, folder: Path) -> Held:
    return locks.take(run_id, name=run_id, folder=str(folder), now=1.0)


def _stores(tmp_path: Path) -> tuple[Locks, Locks]:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    shared = tmp_path / "home" / "locks"
    return Locks(tmp_path / "one" / "locks", shared), Locks(tmp_path / "two" / "locks", shared)


@pytest.mark.parametrize("inside", ["", "sub"])
async def test_a_folder_has_one_run_whatever_store_it_is_in(tmp_path: Path, inside: str) -> None:
    one, two = _stores(tmp_path)
    held = _take(one, "r1", tmp_path)
    with pytest.raises(RunBusy, match=f"`untildone stop r1 --store {tmp_path}/one`"):
        _take(two, "r2", tmp_path / inside)
    assert two.holder("r2") is None, "who is refused holds nothing"
    held.close()
    _take(two, "r2", tmp_path / inside).close()


async def test_a_home_that_takes_no_locks_is_no_reason_to_stay_at_home(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "home").write_text("not a folder")
    locks = Locks(tmp_path / "store" / "locks", tmp_path / "home" / "locks")
    held = _take(locks, "r1", tmp_path)
    with pytest.raises(RunBusy, match="`untildone stop r1`"):
        _take(locks, "r2", tmp_path)
    held.close()

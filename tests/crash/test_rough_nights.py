"""A full disk, a store that cannot be written or is taken away, a stopped driver, a second one."""

import ctypes
import os
import resource
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from crash.crash_kit import CrashStage, ending_of
from crash.laborer import WORK
from patience import eventually
from processes import living_of, state_of
from untildone.core import events as ev

IN_MID_WORK = "before append agent.reply 2"
PR_CAPBSET_DROP, CAP_DAC_OVERRIDE = 24, 1


def no_room() -> None:
    """As on a full disk, no file gets longer than this: the store's own is the first to reach it."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))


def bound_by_modes() -> None:
    """Not even root may write where the modes forbid it."""
    ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0)


def wait_for_state(pid: int, wanted: str) -> None:
    eventually(lambda: state_of(pid) == wanted)


def test_a_full_disk_and_then_a_store_that_cannot_be_written(tmp_path: Path) -> None:
    """Each ends the run in one line and loses nothing."""
    stage = CrashStage(tmp_path / "stage")
    assert_refused(stage.start(before=no_room))
    assert living_of(stage.run_id) == []
    store = stage.folder / "state"
    kept = {path: path.stat().st_mode for path in (store, *store.rglob("*"))}
    for path in kept:
        path.chmod(0o500 if path.is_dir() else 0o400)
    assert_refused(stage.start(before=bound_by_modes))
    for path, mode in kept.items():
        path.chmod(mode)
    stage.drive_to_the_end()
    stage.check(deaths=1)


def assert_refused(driver: "subprocess.Popen[str]") -> None:
    said = ending_of(driver)
    assert driver.returncode == 1, said
    assert said.startswith("StoreError: "), said
    assert said.count("\n") == 1, said


@pytest.mark.parametrize(
    "what",
    ["untildone.db*", *(pytest.param(what, marks=pytest.mark.soak) for what in ("untildone.db", "."))],
    ids=["files", "database", "folder"],
)
def test_a_store_deleted_by_the_agent_comes_back(tmp_path: Path, what: str) -> None:
    stage = CrashStage(tmp_path / "stage")
    store = shlex.quote(str(stage.folder / "state"))
    assert stage.drive(misdeed=f"rm -r {store}" if what == "." else f"rm {store}/{what}") == 0
    stage.check(deaths=0)


def test_a_record_that_lost_its_end_is_told(tmp_path: Path) -> None:
    """Half of SQLite's write-ahead log is gone after a crash: the database is whole, and ends too early."""
    stage = CrashStage(tmp_path / "stage")
    places = ("before settle 1", "before settle 2", "before settle 3")
    driver = stage.start(",".join(places), "SIGSTOP")
    log, kept = stage.folder / "state" / "untildone.db-wal", 0
    try:
        for place in places:
            wait_for_state(driver.pid, "T")
            assert stage.passed()[-1] == place
            kept = kept or log.stat().st_size
            if place != places[-1]:
                os.kill(driver.pid, signal.SIGCONT)
                eventually(lambda place=place: stage.passed()[-1] != place)
    finally:
        driver.kill()
        ending_of(driver)
    assert log.stat().st_size > kept
    os.truncate(log, kept)
    stage.drive_to_the_end()
    records = stage.records(trace=True)
    said = [record.event.message for record in records if isinstance(record.event, ev.ContinuousWarning)]
    lost = "the record of this run ends with iteration 1, git has work of iteration 2"
    assert [line for line in said if line.startswith(lost)], said


def test_a_driver_that_was_stopped_for_a_while_goes_on_as_if_nothing_had_been(tmp_path: Path) -> None:
    stage = CrashStage(tmp_path / "stage")
    places = (IN_MID_WORK, "before settle 2", "after check 4")
    driver = stage.start(",".join(places), "SIGSTOP")
    try:
        for place in places:
            wait_for_state(driver.pid, "T")
            assert stage.passed()[-1] == place
            if place == IN_MID_WORK:
                second = stage.start()
                refused = ending_of(second)
                assert second.returncode == 2, refused
                assert refused.startswith(f"RunBusy: run crashing ({stage.run_id}) is running in "), refused
                assert f"(process {driver.pid}, since " in refused
            os.kill(driver.pid, signal.SIGCONT)
            eventually(lambda place=place: stage.passed()[-1] != place or driver.poll() is not None)
    finally:
        said = ending_of(driver)
    assert driver.returncode == 0, said
    stage.check(deaths=0)


def test_a_driver_that_lost_its_lease_writes_nothing_more_and_ends_its_agent(tmp_path: Path) -> None:
    stage = CrashStage(tmp_path / "stage")
    driver = stage.start(IN_MID_WORK, "SIGSTOP")
    try:
        wait_for_state(driver.pid, "T")
        for lock in [lock for place in ("state", ".local") for lock in (stage.folder / place).rglob("*.lock")]:
            lock.unlink()  # whoever tidies up by hand takes the lease away from the living
        stage.drive_to_the_end()
        stage.check(deaths=1)
        os.kill(driver.pid, signal.SIGCONT)
    finally:
        said = ending_of(driver)
    assert driver.returncode == 1, said
    assert said.startswith("LeaseLost: another driver took over"), said
    stage.check(deaths=1)


def test_drivers_started_at_the_same_moment_are_one(tmp_path: Path) -> None:
    stage = CrashStage(tmp_path / "stage")
    drivers = [stage.start() for _ in range(2)]
    endings = [(ending_of(driver), driver.returncode) for driver in drivers]
    assert sorted(code for _, code in endings if code != 0) == [2] * len([code for _, code in endings if code != 0])
    assert [code for _, code in endings].count(0) >= 1, endings
    assert sorted(path.name for path in stage.repo.glob("*.txt")) == sorted(WORK)
    subjects = stage.git("log", "--format=%s", "HEAD").splitlines()
    assert len(set(subjects)) == len(subjects)

"""A test that leaves a process behind fails, by name. A process that a wider fixture started may stay."""

import gc
import os
import shlex
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from patience import PATIENCE

STARTS = ("subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty")
SUPERVISE = Path(__file__).parent / "supervise.py"


class Child(NamedTuple):
    """A process. The moment it started tells it apart from a later one with the same number."""

    pid: int
    started: str


def children() -> dict[Child, str]:
    """The processes that this worker started and the orphans of its tests, with their commands."""
    parents = [str(os.getpid())]
    if os.environ.get("TEST_SUPERVISOR") == str(os.getppid()):  # otherwise it supervises a test that runs pytest
        parents.append(str(os.getppid()))
    lists = [path for parent in parents for path in Path(f"/proc/{parent}/task").glob("*/children")]
    pids = {pid for path in lists for pid in _read(path).split()} - set(parents)
    found = {}
    for pid in pids:
        name, _, rest = _read(Path(f"/proc/{pid}/stat")).rpartition(")")
        if rest:
            command = _read(Path(f"/proc/{pid}/cmdline")).replace("\0", " ")[:300]
            found[Child(int(pid), rest.split()[19])] = f"{name}) {rest.split()[0]} {command}"
    return found


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode(errors="replace")
    except OSError:  # the process has just ended
        return ""


class Leaks:
    """Looks at the processes after each test that started one."""

    def __init__(self) -> None:
        self._known: set[Child] = set()
        self._has_started = False
        sys.addaudithook(self._notice)

    def _notice(self, event: str, _: object) -> None:
        if event in STARTS:
            self._has_started = True

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
        """What a fixture of a module or of the session starts is not a leak of the test that asked for it first."""
        if fixturedef.scope == "function":
            return (yield)
        had_started, self._has_started = self._has_started, False
        before = set(children()) if had_started else self._known
        made = yield
        if self._has_started:
            self._known |= set(children()) - before
        self._has_started = had_started
        return made

    def left(self) -> list[str]:
        """What the test left behind; it is ended now."""
        if not self._has_started:
            return []
        self._has_started = False
        deadline = time.monotonic() + PATIENCE
        while (new := {child: said for child, said in children().items() if child not in self._known}) and (
            time.monotonic() < deadline
        ):
            time.sleep(0.02)
        for child in new:
            os.kill(child.pid, signal.SIGKILL)
        self._known |= set(new)  # one test is blamed, not the next as well
        return sorted(new.values())


_LEAKS = Leaks()


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    gc.disable()  # until the tests are collected: what is made until then stays
    config.pluginmanager.register(_LEAKS, "leaks-of-fixtures")
    supervised = f"popen//python={shlex.join([sys.executable, str(SUPERVISE)])}"
    if getattr(config.option, "tx", None):
        config.option.tx = [supervised for _ in config.option.tx]


def collect_garbage() -> None:
    """Raise the warnings of unclosed resources now: they belong to this test, not to the next one."""
    gc.collect()
    # What is still in use was not made by the next test: a collection that looks at it again takes ten times as long.
    gc.freeze()


def pytest_collection_finish() -> None:
    collect_garbage()
    gc.enable()


@pytest.fixture(autouse=True)
def _nothing_left_behind() -> Iterator[None]:
    yield
    collect_garbage()
    left = _LEAKS.left()
    assert not left, "left behind by this test:\n" + "\n".join(left)

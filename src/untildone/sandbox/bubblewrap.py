"""Runs commands in a view of this machine, with bubblewrap. Processes started inside end with the command."""

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache, partial
from pathlib import Path
from typing import Literal

from untildone.core.dataclass import dataclass
from untildone.core.policy import NOT_LINUX
from untildone.core.printable import one_line
from untildone.errors import AgentError
from untildone.sandbox.host import HostProcess, HostSpawner
from untildone.sandbox.view import Mount, View, make_places
from untildone.sandbox.walls import Close, MakeDoor, listening_in, place_outside

_INSTALL = "install bubblewrap (`sudo apt-get install bubblewrap`)"
_PERMIT = "let it make user namespaces (on Ubuntu, by an AppArmor profile; in a container, by its options)"

# What root may do to files and its own processes. Without it, root could not become the user of a database server or
# unpack an archive; with more of it, root could take the view away.
_ROOT_MAY = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE", "SETGID", "SETUID")
# Root may write there without any capability: a setting names the program that the kernel starts after a crash.
_OF_THE_KERNEL = ("/proc/sys", "/proc/sysrq-trigger")
_SHARED_MEMORY = 1 << 30
"""Bytes for files in /dev/shm: they belong to no process that could be told to have too many."""
_PROBE_TIMEOUT = 10.0
_BEGIN_PATIENCE = 20.0
_GLANCE = 0.005
_SAID = 200
_WORDS = {"empty": ("--tmpfs",), "read": ("--ro-bind",), "write": ("--bind",), "link": ("--symlink",)}


def enclosed(view: View, *, program: str = "bwrap") -> tuple[str, ...]:
    """The words that go before a command so that it has this view."""
    argv = [program, "--unshare-pid", "--unshare-ipc", "--die-with-parent", "--cap-drop", "ALL"]
    argv += [] if view.whole_system else ["--unshare-uts", "--unshare-cgroup-try"]
    argv += [] if view.network else ["--unshare-net"]
    argv += ["--unshare-user"] if view.as_user else []
    argv += [word for name in _ROOT_MAY if view.root for word in ("--cap-add", f"CAP_{name}")]
    argv += ["--ro-bind", "/", "/"] if view.whole_system else []
    argv += ["--dev", "/dev", "--proc", "/proc"]
    argv += [word for place in _OF_THE_KERNEL for word in ("--ro-bind-try", place, place)]
    # Of everybody: a database server that root starts as another user has its shared memory there.
    argv += [*_bound(program), "--perms", "1777", "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]  # noqa: S108
    # What lies deeper comes later: it is seen on top of what lies around it.
    for mount in sorted(view.mounts, key=lambda one: len(Path(one.place).parts)):
        argv += [*_WORDS[mount.kind], *([mount.source] if mount.source else []), mount.place]
    empty = [mount.place for mount in view.mounts if mount.kind == "empty"]
    argv += [] if view.whole_system else [word for place in ("/", *empty) for word in ("--remount-ro", place)]
    for name, value in view.env:
        argv += ["--unsetenv", name] if value is None else ["--setenv", name, value]
    return tuple(argv)


@cache
def _bound(program: str) -> tuple[str, ...]:
    """What bounds the next folder that is kept in memory, if this bubblewrap can (0.7 and newer)."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        asked = [program, "--help"]
        done = subprocess.run(asked, capture_output=True, timeout=_PROBE_TIMEOUT, check=False)  # noqa: S603, TID251
        if b"--size BYTES" in done.stdout + done.stderr:
            return ("--size", str(_SHARED_MEMORY))
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """Whether commands can be enclosed here."""

    program: str = ""
    as_user: bool = False
    trouble: str = ""
    """Why they cannot; "" when they can."""
    remedy: str = ""
    """What the user can do about it."""


class Bubblewrap:
    """sandbox.Walls: namespaces for each program, which end with it."""

    def __init__(self, host: HostSpawner, look: Callable[[str], View], *, program: str = "bwrap") -> None:
        """`look` says what is seen by a program that works in a folder."""
        self._host = host
        self._look = look
        self._program = program
        self._make_door: MakeDoor | None = None
        self._ports: Sequence[int] = ()
        self._watches: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def stand(self, make_door: MakeDoor, ports: Sequence[int]) -> AsyncIterator[None]:
        """sandbox.Walls. Nothing is shared, and nothing outlives its program."""
        self._make_door, self._ports = make_door, ports
        try:
            yield
        finally:
            for watch in self._watches:
                watch.cancel()
            await asyncio.gather(*self._watches, return_exceptions=True)

    def words(self, cwd: str) -> tuple[str, ...]:
        """sandbox.Walls."""
        return self._words(cwd, self._look(cwd))

    def _words(self, cwd: str, seen: View) -> tuple[str, ...]:
        make_places(seen)
        return (*enclosed(seen, program=self._program), "--chdir", os.path.realpath(cwd), "--")

    async def start(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        stdin: Literal["pipe", "null"],
        seen: View | None = None,
    ) -> HostProcess:
        """sandbox.Walls. Bubblewrap waits until it can read from a pipe, with all but the program itself made."""
        assert self._make_door is not None, "a sandbox without a door"
        look = partial(self.words, cwd) if seen is None else partial(self._words, cwd, seen)
        first, *words = await asyncio.to_thread(look)
        waiting, release = os.pipe()
        try:
            process = await self._host.spawn(
                (first, "--block-fd", str(waiting), *words, *argv),
                cwd=place_outside(cwd, seen), env=env, stdin=stdin, apart=True, files=(waiting,),
            )  # fmt: skip
            try:
                listening = await asyncio.to_thread(listening_in, await _inside(process), self._ports)
                close = await self._make_door(listening)
            except BaseException:
                await process.end(0.0)
                raise
            os.write(release, b".")
        finally:
            os.close(waiting)
            os.close(release)
        watch = asyncio.create_task(_close_after(process, close))
        self._watches.add(watch)
        watch.add_done_callback(self._watches.discard)
        return process


async def _close_after(process: HostProcess, close: Close) -> None:
    """A socket that listens keeps its network alive, and with it all that the kernel holds for it."""
    try:
        await process.wait()
    finally:
        close()


async def _inside(process: HostProcess) -> int:
    """A process in the network that is made for a program. AgentError if there will be none."""
    ours = _network_of("self")
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_BEGIN_PATIENCE):
            while family := process.family():
                for pid in sorted(family):
                    with contextlib.suppress(OSError):
                        if _network_of(pid) != ours:
                            return pid
                await asyncio.sleep(_GLANCE)  # nothing tells of it
    await process.end(0.0)
    await process.wait()
    said = one_line(process.stderr_tail().strip(), _SAID)
    raise AgentError(f"the sandbox did not start: {said or 'it ended at once'}")


def _network_of(pid: int | str) -> Path:
    return Path(f"/proc/{pid}/ns/net").readlink()


@cache
def can_enclose() -> Probe:
    """Try it once. Containers and hardened systems may forbid what it needs."""
    if sys.platform != "linux":
        return Probe(trouble=NOT_LINUX, remedy="use --sandbox docker")
    # The system's own first: a PATH may lead to folders that an agent writes to.
    program = shutil.which("bwrap", path=os.defpath) or shutil.which("bwrap")
    if program is None:
        return Probe(trouble="bubblewrap is not installed", remedy=_INSTALL)
    said = ""
    for as_user in (False, True):
        view = View(mounts=(Mount(place="/tmp", kind="empty"),), root=os.geteuid() == 0, as_user=as_user)  # noqa: S108
        said = _failure([*enclosed(view, program=program), "true"])
        if not said:
            return Probe(program=program, as_user=as_user)
    return Probe(trouble=f"bubblewrap cannot work here ({said})", remedy=_PERMIT)


def _failure(argv: Sequence[str]) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, timeout=_PROBE_TIMEOUT, check=False)  # noqa: S603, TID251
    except (OSError, subprocess.TimeoutExpired) as trouble:
        return one_line(str(trouble), _SAID)
    said = one_line(done.stderr.decode("utf-8", "replace").strip(), _SAID)
    return (said or f"exit {done.returncode}") if done.returncode else ""

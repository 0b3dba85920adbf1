"""Keeps what works in a sandbox within bounds: how much memory, how many processes, and what a disk must have left.

They are watched from outside. So they hold for root, whom the kernel does not bound, and without rights to a control
group, which few users have. A look costs three short reads; who uses what is found out only if the machine as a whole
is beyond what the sandbox alone may use.
"""

import asyncio
import os
import resource
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from untildone.core.dataclass import dataclass
from untildone.core.figures import size
from untildone.core.printable import one_line
from untildone.sandbox.host import HostProcess

SHARE_OF_MEMORY = 0.8
"""What is left to the rest of the machine keeps it alive."""
EVERY = 0.2
"""Seconds between two looks: what is used up in that time must fit beside the bounds."""
_WHO_EVERY = 0.3
"""Seconds more after a look at every process that found nothing: it costs a hundred times as much."""
_ROUNDS = 50
_LITTLE = 16 << 20
"""Bytes: who has not written more since the last look did not fill the disk."""
_KIB = 1024
_NAME = 40
_SACRIFICED_FIRST = "500"
"""If the kernel itself runs out of memory, it ends something of the sandbox before anything else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What all programs of one sandbox may use together."""

    memory: int = 1 << 50
    """Bytes."""
    pids: int = 1 << 22
    """Processes, and threads besides their first."""
    disk_reserve: int = 0
    """Bytes that every disk must have left."""
    disks: tuple[str, ...] = ()
    """A folder on each disk that can be written."""


class Exceeded(NamedTuple):
    """A bound that was exceeded, by its setting, and what was done about it."""

    what: str
    said: str


class Member(NamedTuple):
    """One process of a sandbox."""

    pid: int
    name: str
    threads: int
    memory: int
    """Bytes, with what it shares with others."""
    written: int
    """Bytes it has written to disks since it was started."""


def memory_bound(wanted: int | None) -> int:
    """Bytes: what is wanted, or the usual share of what this machine or the container we are in has."""
    if wanted is not None:
        return wanted
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):
            total = min(total, int(Path(file).read_text("ascii")))
    return int(total * SHARE_OF_MEMORY)


class Keeper:
    """Watches the programs of a sandbox, and ends what uses too much."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._living: set[HostProcess] = set()
        self._written: Mapping[int, int] = {}

    def watch(self, process: HostProcess) -> None:
        """Count this program and all that it starts, until they are gone."""
        self._living.add(process)
        free = _disk_free(self._bounds.disks)
        # One fast writer could fill a disk between two looks.
        largest = max(_LITTLE, free - self._bounds.disk_reserve) if free and self._bounds.disk_reserve else None
        known: set[int] = set()
        while new := process.family() - known:  # what was started before its parent was bound is found by another look
            known |= new
            for pid in new:
                with suppress(OSError):
                    if largest is not None:
                        resource.prlimit(pid, resource.RLIMIT_FSIZE, (largest, largest))
                    Path(f"/proc/{pid}/oom_score_adj").write_text(_SACRIFICED_FIRST, "ascii")

    @asynccontextmanager
    async def keeping(self, tell: Callable[[str, str], None]) -> AsyncIterator[None]:
        """Until the end of the block, all of them together stay within their bounds."""
        task = asyncio.create_task(self._keep(tell))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _keep(self, tell: Callable[[str, str], None]) -> None:
        while True:
            await asyncio.sleep(EVERY)
            self._living = {process for process in self._living if process.lives()}
            if not self._living or not _may_exceed(self._bounds):
                continue
            if exceeded := await asyncio.to_thread(self.enforce):
                tell(*exceeded)
            else:
                await asyncio.sleep(_WHO_EVERY)

    def enforce(self) -> Exceeded | None:
        """Look at every process, and end what uses too much."""
        bounds, free = self._bounds, _disk_free(self._bounds.disks)
        members = self._members(writers=free is not None and free < 2 * bounds.disk_reserve)
        before, self._written = self._written, {member.pid: member.written for member in members}
        threads, memory = sum(member.threads for member in members), sum(member.memory for member in members)
        if threads > bounds.pids:
            return Exceeded(
                "pids", f"{threads:,} of {bounds.pids:,} processes and threads: {self._end_commands(members)}"
            )
        if memory > bounds.memory and (memory := sum(map(_exact_memory, members))) > bounds.memory:
            worst = max(members, key=lambda member: member.memory)
            _end([worst.pid])
            return Exceeded("memory", f"{size(memory)} of {size(bounds.memory)}: ended {worst.name}")
        if free is not None and free < bounds.disk_reserve:
            return self._spare_disk(members, before, free)
        return None

    def _spare_disk(self, members: Sequence[Member], before: Mapping[int, int], free: int) -> Exceeded | None:
        """End what has written most since the last look; when room was taken without writing into it, all commands."""
        reserve = self._bounds.disk_reserve
        left = f"{size(free)} of {size(reserve)} are left"
        lately = {member.pid: member.written - before.get(member.pid, 0) for member in members}
        worst = max(members, key=lambda member: lately[member.pid], default=None)
        if worst is not None and lately[worst.pid] > _LITTLE:
            _end([worst.pid])
            return Exceeded("disk_reserve", f"{left}: ended {worst.name}, which wrote {size(lately[worst.pid])}")
        if free < reserve // 2 and any(process.commands() for process in self._living):
            return Exceeded("disk_reserve", f"{left}: {self._end_commands(members)}")
        return None

    def _members(self, *, writers: bool = False) -> list[Member]:
        found = (_member(pid, writers=writers) for process in self._living for pid in process.family())
        return [member for member in found if member is not None]

    def _end_commands(self, members: Sequence[Member]) -> str:
        """End all that commands of the agent have started; if that is nothing, or does not end, the agent as well."""
        names = Counter(member.name for member in members)
        for _ in range(_ROUNDS):
            if not _end({pid for process in self._living for pid in process.commands()}):
                break
        if sum(member.threads for member in self._members()) > self._bounds.pids:
            _end({pid for process in self._living for pid in process.family()})
        return f"ended the agent's commands, most of them {names.most_common(1)[0][0]}" if names else "nothing is left"


def _may_exceed(bounds: Bounds) -> bool:
    """Whether the machine as a whole uses more than the sandbox may: a look at a few numbers."""
    memory = _fields("/proc/meminfo")
    free = _disk_free(bounds.disks)
    return (
        memory.get("MemTotal", 0) - memory.get("MemAvailable", 0) > bounds.memory
        or _processes() > bounds.pids
        # Twice as much, so that it is known who wrote before.
        or (free is not None and free < 2 * bounds.disk_reserve)
    )


def _processes() -> int:
    """How many there are on this machine, with their threads."""
    with suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/loadavg").read_text("ascii").split()[3].partition("/")[2])
    return 0


def _disk_free(disks: Iterable[str]) -> int | None:
    free = []
    for folder in disks:
        with suppress(OSError):
            disk = os.statvfs(folder)
            free.append(disk.f_bavail * disk.f_frsize)
    return min(free, default=None)


def _member(pid: int, *, writers: bool) -> Member | None:
    """None for a process that is gone. `writers`: what it has written is of interest."""
    told = _fields(f"/proc/{pid}/status")
    if not told:
        return None
    name = ""
    with suppress(OSError):
        name = Path(f"/proc/{pid}/comm").read_text("utf-8", "replace").strip()
    return Member(
        pid=pid,
        name=one_line(name, _NAME),
        threads=told.get("Threads", 1),
        memory=told.get("RssAnon", 0) + told.get("RssShmem", 0),
        written=_written(pid) if writers else 0,
    )


def _written(pid: int) -> int:
    """By its living threads: the counters of a process hold those of children that have ended, too."""
    total = 0
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            counters = _fields(str(thread / "io"))
            # Some file systems count only what a program says that it writes, some only what is written in its name.
            total += max(counters.get("write_bytes", 0), counters.get("wchar", 0))
    return total


def _exact_memory(member: Member) -> int:
    """What several processes share, such as copies of one another, counts once."""
    told = _fields(f"/proc/{member.pid}/smaps_rollup")
    return told.get("Pss_Anon", 0) + told.get("Pss_Shmem", 0) if "Pss_Anon" in told else member.memory


def _fields(file: str) -> dict[str, int]:
    """The numbers in one of the kernel's lists, in bytes; empty for what is gone or may not be read."""
    found = {}
    with suppress(OSError):
        for line in Path(file).read_text("utf-8", "replace").splitlines():
            name, _, rest = line.partition(":")
            number, *unit = rest.split() or [""]
            if number.isdigit():
                found[name] = int(number) * (_KIB if unit == ["kB"] else 1)
    return found


def _end(pids: Iterable[int]) -> bool:
    """Whether there was anything to end."""
    ended = False
    for pid in pids:
        ended = True
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return ended

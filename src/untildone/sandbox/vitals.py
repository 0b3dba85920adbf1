"""Signs of life of a process tree, by /proc and the kernel's socket statistics (Linux).

Covered: CPU time of every process in the tree and of those that ended in it, bytes that went through read and write
(files, pipes), bytes of its TCP connections in this network namespace, and how many processes it ever had. Not
covered: what a daemon outside the tree does for it, memory-mapped files, UDP, connections inside a namespace of the
tree's own. Elsewhere than on Linux nothing can be told.
"""

import contextlib
import os
import socket
import struct
from collections.abc import Iterable

from untildone.core.dataclass import dataclass
from untildone.core.liveness import Pulse

_SOCK_DIAG = 4
_BY_FAMILY = 20
_REQUEST_DUMP = 0x301
_DONE_OR_ERROR = (2, 3)
_TCP_INFO = 2
_ALL_STATES = 0xFFFFFFFF
_HEADER = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBBBI48x")
_ATTRIBUTE = struct.Struct("=HH")
_INODE_AT = _HEADER.size + 68
_ATTRIBUTES_AT = _HEADER.size + 72
_BYTES_AT = 120
"""Where struct tcp_info holds the bytes that were acknowledged and received, 64 bits each."""
_BYTES = struct.Struct("=QQ")
_ANSWER = 1 << 18
_PATIENCE = 1.0


@dataclass(frozen=True, slots=True)
class _Seen:
    """One process, or one connection, at the last look."""

    cpu: float
    io: int


class TreeVitals:
    """Adds up what a tree does, look by look: what ended in between must not make the sums smaller.

    The guard is not part of it: it looks at the loop every second, which is no sign of life.
    """

    def __init__(self) -> None:
        self._can_tell = os.path.exists("/proc/self/stat")  # noqa: PTH110 - one stat
        self._ticks = os.sysconf("SC_CLK_TCK")
        self._processes: dict[tuple[int, bytes], _Seen] = {}
        self._sockets: dict[int, int] = {}
        self._cpu = 0.0
        self._io = 0
        self._count = 0

    def look(self, tree: Iterable[int]) -> Pulse:
        """Return the sums up to now. `tree`: the processes that there are."""
        if not self._can_tell:
            return Pulse()
        inodes: set[int] = set()
        processes: dict[tuple[int, bytes], _Seen] = {}
        for pid in tree:
            if (found := self._process(pid)) is not None:
                key, seen = found
                processes[key] = seen
                inodes |= _socket_inodes(pid)
        self._add(processes)
        self._add_sockets(inodes)
        return Pulse(cpu_seconds=self._cpu, io_bytes=self._io, processes=self._count)

    def _process(self, pid: int) -> tuple[tuple[int, bytes], _Seen] | None:
        """A process by pid and start time, with its CPU time and that of the children it has waited for."""
        try:
            fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        except OSError:
            return None
        if len(fields) < 20:  # noqa: PLR2004 - up to its start time; see proc(5)
            return None
        cpu = sum(int(field) for field in fields[11:15]) / self._ticks
        return (pid, fields[19]), _Seen(cpu, _io_bytes(pid))

    def _add(self, processes: dict[tuple[int, bytes], _Seen]) -> None:
        for key, now in processes.items():
            before = self._processes.get(key)
            self._count += before is None
            self._cpu += max(0.0, now.cpu - (before.cpu if before else 0.0))
            self._io += max(0, now.io - (before.io if before else 0))
        self._processes = processes

    def _add_sockets(self, inodes: set[int]) -> None:
        moved = {inode: total for inode, total in _tcp_bytes().items() if inode in inodes} if inodes else {}
        self._io += sum(max(0, total - self._sockets.get(inode, 0)) for inode, total in moved.items())
        self._sockets = moved


def memory_kills() -> int | None:
    """How many processes the kernel has killed for want of memory since it started; None: it does not tell."""
    with contextlib.suppress(OSError):
        for line in _read("/proc/vmstat").splitlines():
            if line.startswith(b"oom_kill "):
                return int(line.split()[1])
    return None


def _io_bytes(pid: int) -> int:
    """Bytes through read and write; 0 for a process whose counters are not ours to see."""
    with contextlib.suppress(OSError):
        counters = dict(line.split(b": ") for line in _read(f"/proc/{pid}/io").splitlines())
        return int(counters.get(b"rchar", 0)) + int(counters.get(b"wchar", 0))
    return 0


def _socket_inodes(pid: int) -> set[int]:
    found = set()
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208 - thousands of them, several times a minute
            with contextlib.suppress(OSError):
                target = os.readlink(f"/proc/{pid}/fd/{name}")  # noqa: PTH115 - as above
                if target.startswith("socket:["):
                    found.add(int(target[8:-1]))
    return found


def _tcp_bytes() -> dict[int, int]:
    """Bytes sent and received so far by every TCP connection, by the inode of its socket; empty if not told."""
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
            kernel.settimeout(_PATIENCE)
            return _ask(kernel, socket.AF_INET) | _ask(kernel, socket.AF_INET6)
    except (OSError, AttributeError, struct.error):
        return {}


def _ask(kernel: socket.socket, family: int) -> dict[int, int]:
    request = _REQUEST.pack(family, socket.IPPROTO_TCP, 1 << (_TCP_INFO - 1), 0, _ALL_STATES)
    kernel.send(_HEADER.pack(_HEADER.size + len(request), _BY_FAMILY, _REQUEST_DUMP, 1, 0) + request)
    found: dict[int, int] = {}
    while True:
        answer = kernel.recv(_ANSWER)
        at = 0
        while at < len(answer):
            length, kind, *_ = _HEADER.unpack_from(answer, at)
            if kind in _DONE_OR_ERROR or length < _HEADER.size:
                return found
            (inode,) = struct.unpack_from("=I", answer, at + _INODE_AT)
            found[inode] = _moved(answer, at + _ATTRIBUTES_AT, at + length)
            at += _aligned(length)


def _moved(answer: bytes, at: int, end: int) -> int:
    """Look through a connection's attributes for the bytes it moved."""
    while at + _ATTRIBUTE.size <= end:
        length, kind = _ATTRIBUTE.unpack_from(answer, at)
        value = at + _ATTRIBUTE.size
        if kind == _TCP_INFO and at + length >= value + _BYTES_AT + _BYTES.size:
            return sum(_BYTES.unpack_from(answer, value + _BYTES_AT))
        at += max(_aligned(length), _ATTRIBUTE.size)
    return 0


def _aligned(length: int) -> int:
    return (length + 3) & ~3


def _read(path: str) -> bytes:
    with open(path, "rb") as file:  # noqa: PTH123 - hundreds of small files, several times a minute
        return file.read()

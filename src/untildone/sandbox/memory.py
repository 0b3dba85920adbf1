"""Remembers the end of what was read from a program where it outlives the reader: its guard can look there."""

import asyncio
import mmap
import os
import time

from untildone.sandbox.guard import ENDS_AT, ENFORCED, HEADER, POSITION

LONGEST = 1e9
"""Seconds: without a limit of time a program may work for thirty years."""
SIZE = 4 << 20
"""Bytes remembered: more than the longest reply takes on the wire, and more than can wait to be understood."""


class Memory:
    """A ring of bytes in shared memory. What a killed loop had read but not yet written down is still in it."""

    def __init__(self, file: int, size: int = SIZE) -> None:
        """`file` is emptied."""
        os.ftruncate(file, HEADER + size)
        self.file = file
        self._size = size
        self._map = mmap.mmap(file, HEADER + size)
        self._count = 0

    @classmethod
    def make(cls) -> "Memory | None":
        """A new one; None where the system has no memory to share by a descriptor alone, or gives none."""
        if not hasattr(os, "memfd_create"):
            return None
        file = None
        try:
            file = os.memfd_create("last words")
            return cls(file)
        except OSError:
            # A comfort for the day the loop is killed: no reason to start nothing at all.
            if file is not None:
                os.close(file)
            return None

    def hand_over(self) -> None:
        """The guard has the descriptor now; we have the memory."""
        os.close(self.file)

    def remember(self, chunk: bytes) -> None:
        """Add to the end."""
        kept = chunk[-self._size :]
        start = (self._count + len(chunk) - len(kept)) % self._size
        first = kept[: self._size - start]
        self._map[HEADER + start : HEADER + start + len(first)] = first
        self._map[HEADER : HEADER + len(kept) - len(first)] = kept[len(first) :]
        self._count += len(chunk)
        # Last: killed before this, the guard knows nothing of what would be half written.
        self._map[:POSITION] = self._count.to_bytes(POSITION, "little")

    def end_within(self, seconds: float | None) -> None:
        """Tell the guard how long the program may work from now on; None: it rests."""
        moment = 0 if seconds is None else time.monotonic_ns() + int(min(seconds, LONGEST) * 1e9)
        self._map[ENDS_AT] = moment.to_bytes(8, "little")
        if seconds is None:
            self._map[ENFORCED] = 0

    def was_enforced(self) -> bool:
        """Whether the guard ended the program because the loop could not."""
        return self._map[ENFORCED] == 1


class Listener(asyncio.StreamReaderProtocol):
    """Remembers every chunk the moment it is read."""

    def __init__(self, stream: asyncio.StreamReader, memory: Memory | None) -> None:
        super().__init__(stream)
        self._memory = memory

    def data_received(self, data: bytes) -> None:
        """Remember, then pass on."""
        if self._memory is not None:
            self._memory.remember(data)
        super().data_received(data)

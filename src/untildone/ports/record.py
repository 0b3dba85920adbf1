"""Where runs are written down, and who may write."""

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from untildone.core.dataclass import dataclass
from untildone.core.events import Event, Record


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to drive a run. `token` grows with every driver: an older one is refused."""

    run_id: str
    token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """One line of the list of runs."""

    run_id: str
    name: str
    folder: str
    created_at: float
    updated_at: float
    status: str
    """running, waiting, paused, suspended, completed: as last recorded by a driver."""
    alive: bool
    """A driver holds the lease right now."""


class EventLog(Protocol):
    """The runs. Append-only; one numbering per run.

    What somebody else wrote into it is never given back; a driver finds it recorded as `continuous.tampered`.
    """

    async def append(self, run_id: str, events: Sequence[Event], *, lease: Lease | None = None) -> list[Record]:
        """Append all or nothing, durably if any is a control event.

        Without a lease only what humans ask for belongs here. With one: LeaseLost if another driver took over.
        """
        ...

    async def transcribe(
        self, run_id: str, happened: Sequence[tuple[float, Event]], *, name: str, folder: str, status: str, after: int
    ) -> bool:
        """Append what happened elsewhere, each event with its own moment, to a run that nobody here drives.

        All or nothing, durably, and only if `after` still is the number of its newest control event (0: there is no
        such run yet): False when somebody else was faster.
        """
        ...

    async def adopt(
        self, run_id: str, records: Sequence[Record], *, name: str, folder: str, status: str, replacing: bool = False
    ) -> bool:
        """Take up a run that lived on another machine, each record with its own number and moment, in rising order.

        All or nothing, durably, and only if there is no such run here: False when there is. The next number continues.
        `replacing`: there may be one, which another machine had taken over; these records take the place of its own.
        """
        ...

    async def read(self, run_id: str, *, after: int = 0, trace: bool = False, limit: int | None = None) -> list[Record]:
        """Records with seq > after, in order; control events only unless `trace`."""
        ...

    def follow(self, run_id: str, *, after: int = 0, trace: bool = False) -> AsyncIterator[Record]:
        """Records with seq > after as they arrive, also from other processes, for ever."""
        ...

    async def acquire(self, run_id: str, *, name: str, folder: str) -> Lease:
        """Become the driver of this run and the only one in this folder. RunBusy if someone living is."""
        ...

    async def release(self, lease: Lease, *, status: str) -> None:
        """Stop being the driver. A run that is still "new", of which nothing was recorded, is forgotten."""
        ...

    async def runs(self) -> list[RunRow]:
        """All runs that began or are about to: a start that was refused takes nobody's name."""
        ...

    async def save_snapshot(self, lease: Lease, seq: int, state: bytes) -> None:
        """Keep a disposable copy of the folded state up to `seq`; only the newest is kept."""
        ...

    async def load_snapshot(self, run_id: str) -> tuple[int, bytes] | None: ...

    async def rebuild(self, lease: Lease, seq: int, state: bytes) -> None:
        """After StoreSpoilt: go on in a new store that begins with this snapshot. What is left of the old is kept."""
        ...

    async def trim_trace(self, lease: Lease, *, keep_bytes: int, keep_seconds: float) -> int:
        """Remove the oldest trace events beyond these bounds; returns how many. Numbers are never given again."""
        ...

    async def trim_ended(self, *, before: float, most: int) -> int:
        """Remove the trace of runs nobody drives or touched since then, about `most` events; returns how many."""
        ...

    async def close(self) -> None: ...

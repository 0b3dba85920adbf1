"""The server that keeps a copy of runs, as a worker sees it."""

from collections.abc import Sequence
from typing import Protocol

from untildone.core.dataclass import dataclass
from untildone.core.events import Record
from untildone.core.wire import Order, Receipt


@dataclass(frozen=True, slots=True, kw_only=True)
class Parcel:
    """Something of a run that travels beside its events, compressed: a transcript, the notes, the tree."""

    name: str
    """`transcript/SESSION`, `notes`, `tree`: the newest of a name replaces the one before."""
    content: bytes
    seq: int = 0
    """The number of the event after which it was packed."""
    tenure: int = 0
    """Whose it is: of a machine that lost the run to another one nothing is taken."""


class Uplink(Protocol):
    """Where copies go. Every method raises `UplinkDown` when nobody answers (try again) and `UplinkRefused` when
    the server will not have it (`taken` is final; anything else may be mended, so that it is tried again seldom).
    """

    losses: int
    """How often the server turned out to have less of a run than it said before: it was put back to an older state."""

    async def received(self, run_id: str) -> Receipt:
        """How much of a run the server has; `last_seq` 0: nothing."""
        ...

    async def send(self, run_id: str, records: Sequence[Record], *, tenure: int = 0) -> Receipt:
        """Hand over records, in order. Those it has already are left out by the server. None: a sign of life."""
        ...

    async def take(self, run_id: str, *, tenure: int) -> int:
        """Have the run driven from here, with the key of this driver, where its tenure still is this one: the new one.

        UplinkRefused with `taken` where it is not.
        """
        ...

    async def orders(self, run_id: str, *, after: int, wait: float) -> list[Order]:
        """Orders with a higher number than `after`, in order; waits so many seconds for the first one to come."""
        ...

    async def put(self, run_id: str, parcel: Parcel) -> None:
        """Send a parcel."""
        ...

    async def close(self) -> None: ...

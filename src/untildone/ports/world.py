"""The world around a run: who is told, and the machine it works on."""

from typing import TYPE_CHECKING, Protocol

from untildone.core.dataclass import dataclass

if TYPE_CHECKING:
    from untildone.core.notice import Note


class Notifier(Protocol):
    """A channel on which a human is told what happens."""

    @property
    def name(self) -> str:
        """How it is called in messages: never with a secret in it."""
        ...

    async def send(self, note: "Note") -> str:
        """Deliver a note: "" or one line of trouble. Bounded in time, may be cancelled at any moment."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFacts:
    """What the machine has left. None: it cannot be told here."""

    disk_free: int | None = None
    """Bytes, on the fullest of the disks the run writes to."""
    disk_where: str = ""
    memory_free: int | None = None
    memory_total: int | None = None
    processes: int | None = None
    """Of this user."""
    process_limit: int | None = None


class Machine(Protocol):
    """The computer the run works on. Both methods may block for a moment: call them in a thread."""

    def look(self) -> MachineFacts: ...

    def reclaimable(self, where: str) -> list[tuple[str, int]]:
        """What on that disk could be removed, and its bytes (at least), largest first."""
        ...

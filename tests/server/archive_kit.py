"""An archive in a file, and runs put into it as a worker's batches do."""

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from archives import new_archive
from core.run_kit import START
from untildone.core import codec
from untildone.core.codec import encode, event_kind, event_type, event_version
from untildone.core.event import Record
from untildone.core.wire import Receipt
from untildone.server.archive.opening import open_archive
from untildone.server.archive.port import Archive, Sender, StoredEvent

WORKER = Sender(sandbox_id="box", after=0)


class HandClock:
    """A clock that stands still until it is set."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.at = now

    def now(self) -> float:
        return self.at


@asynccontextmanager
async def archive_in(folder: Path) -> AsyncIterator[Archive]:
    archive = await open_archive(new_archive(folder))
    try:
        yield archive
    finally:
        await archive.close()


def stored(records: Iterable[Record]) -> list[StoredEvent]:
    return [
        StoredEvent(
            seq=record.seq,
            at=record.at,
            kind=event_kind(record.event),
            type=event_type(record.event),
            source=record.event.SOURCE,
            version=event_version(record.event),
            data=encode(record.event).decode(),
        )
        for record in records
    ]


async def receive(
    archive: Archive, run_id: str, events: Sequence[StoredEvent], *, now: float, sender: Sender = WORKER
) -> Receipt:
    return await archive.events.receive(sender, run_id, events, now=now)


def control(told: Sequence[Record]) -> list[Record]:
    return [record for record in told if codec.event_kind(record.event) == "control"]


def raw(seq: int, type_name: str, data: str, *, at: float = START, version: int = 1) -> StoredEvent:
    return StoredEvent(
        seq=seq, at=at, kind="control", type=type_name, source="worker", version=version, data=data
    )  # fmt: skip

"""Events as they come from outside."""

from untildone.core.event import Kind
from untildone.server.archive.port import Sender, StoredEvent

BOX = Sender(sandbox_id="box")


def told(
    seq: int, *, kind: Kind = "trace", name: str = "agent.assistant_message", data: str = "{}", at: float | None = None
) -> StoredEvent:
    when = float(seq) if at is None else at
    return StoredEvent(seq=seq, at=when, kind=kind, type=name, source="agent", version=1, data=data)


def many(first: int, last: int, *, control_every: int = 10) -> list[StoredEvent]:
    return [
        told(seq, kind="control" if seq % control_every == 0 else "trace", data=f'{{"text": "number {seq}"}}')
        for seq in range(first, last + 1)
    ]


def start(seq: int, iteration: int) -> StoredEvent:
    return told(seq, kind="control", name="iteration.started", data=f'{{"iteration_num": {iteration}}}')

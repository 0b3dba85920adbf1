"""What people ask of runs, and messages for programs that speak the published endpoints."""

from typing import Any
from uuid import uuid4

import msgspec
from sqlalchemy import delete, insert, select, update

from untildone.core.wire import Order, OrderKind
from untildone.server.archive.database import Database
from untildone.server.archive.fitting import text_of, whole_of
from untildone.server.archive.port import QueuedMessage
from untildone.server.archive.tables import messages, orders, runs

_DATA = dict[str, str | int | float | bool | list[str] | None]


class OrderBook:
    """Orders carry a number that grows over all runs."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def give(self, run_id: str, kind: OrderKind, data: dict[str, object], *, by: str, now: float) -> Order:
        """Write an order down."""
        run_id, by = text_of(run_id), text_of(by)
        encoded = msgspec.json.encode(data)
        written = {"run_id": run_id, "kind": kind, "given_by": by, "at": now, "data": encoded.decode()}
        async with self._database.writing() as connection:
            # First the run, then the number: were two written at once, a higher number could be seen before a lower
            # one, and whoever fetches by number would never see that.
            run = select(runs.c.last_seq).where(runs.c.run_id == run_id).with_for_update()
            seen: int = (await connection.execute(run)).scalar() or 0
            given = await connection.execute(insert(orders).values(**written, seen=seen).returning(orders.c.number))
            number: int = given.scalar_one()
            await connection.execute(update(runs).where(runs.c.run_id == run_id).values(newest_order=number))
        return Order(number=number, kind=kind, by=by, at=now, seen=seen, data=msgspec.json.decode(encoded, type=_DATA))

    async def after(self, run_id: str, number: int, *, now: float, limit: int = 100) -> list[Order]:
        """Orders with higher numbers, in order, with their ages."""
        query = (
            select(orders)
            .where(orders.c.run_id == text_of(run_id), orders.c.number > whole_of(number))
            .order_by(orders.c.number)
            .limit(max(1, min(limit, 1_000)))
        )
        async with self._database.reading() as connection:
            return [_order(row, now) for row in await connection.execute(query)]

    async def newest(self, run_id: str) -> int:
        """The number of the newest order; 0: there is none."""
        query = select(runs.c.newest_order).where(runs.c.run_id == text_of(run_id))
        async with self._database.reading() as connection:
            number: int | None = (await connection.execute(query)).scalar()
        return number or 0

    async def put(self, sandbox_id: str, content: str, message_type: str, *, now: float) -> QueuedMessage:
        """Queue a message for the published endpoint."""
        message = QueuedMessage(id=str(uuid4()), content=text_of(content), message_type=text_of(message_type), at=now)
        written = {
            "id": message.id,
            "sandbox_id": text_of(sandbox_id),
            "content": message.content,
            "message_type": message.message_type,
            "at": now,
        }
        async with self._database.writing() as connection:
            await connection.execute(insert(messages).values(written))
        return message

    async def take(self, sandbox_id: str) -> list[QueuedMessage]:
        """All messages queued for a sandbox, which are gone then: each is given to one caller only."""
        wanted = messages.c.sandbox_id == text_of(sandbox_id)
        async with self._database.reading() as connection:
            # Programs ask every second or so, and mostly there is nothing: that must not cost a write.
            if (await connection.execute(select(messages.c.number).where(wanted).limit(1))).first() is None:
                return []
        async with self._database.writing() as connection:
            taken = (await connection.execute(delete(messages).where(wanted).returning(messages))).all()
        return [
            QueuedMessage(id=row.id, content=row.content, message_type=row.message_type, at=row.at)
            for row in sorted(taken, key=lambda row: row.number)
        ]

    async def sweep(self, *, before: float) -> int:
        """Remove messages nobody has fetched since then; returns how many."""
        async with self._database.writing() as connection:
            gone = await connection.execute(delete(messages).where(messages.c.at < before).returning(messages.c.number))
            return len(gone.all())


def _order(row: Any, now: float) -> Order:
    return Order(
        number=row.number,
        kind=row.kind,
        by=row.given_by,
        at=row.at,
        age=max(0.0, now - row.at),
        seen=row.seen,
        data=msgspec.json.decode(row.data, type=_DATA),
    )

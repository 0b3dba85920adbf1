"""What people ask of runs, and messages for programs that speak the published endpoints."""

from typing import Any
from uuid import uuid4

import msgspec
from sqlalchemy import delete, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from untildone.core.wire import Order, OrderKind
from untildone.server.archive.database import Database
from untildone.server.archive.fitting import text_of, whole_of
from untildone.server.archive.port import QueuedMessage
from untildone.server.archive.tables import messages, orders, runs

MOST_LOST = 1_000_000
"""Orders that a database can have forgotten. What a run says beyond that is not believed: numbers are shared by all."""
_LOCK = 0x6F726472
_DATA = dict[str, str | int | float | bool | list[str] | None]


class OrderBook:
    """Orders carry a number that grows over all runs."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def give(
        self, run_id: str, kind: OrderKind, data: dict[str, object], *, by: str, now: float, after: int = 0
    ) -> Order:
        """Write an order down, with a number beyond what the run has answered."""
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
            if 0 <= after - number <= MOST_LOST:
                number = await self._renumbered(connection, number, after + 1)
            await connection.execute(update(runs).where(runs.c.run_id == run_id).values(newest_order=number))
        return Order(number=number, kind=kind, by=by, at=now, seen=seen, data=msgspec.json.decode(encoded, type=_DATA))

    async def _renumbered(self, connection: AsyncConnection, number: int, new: int) -> int:
        """A database that was put back to an older state counts from there, and runs have answered higher numbers."""
        if self._database.kind == "postgresql":
            await connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
            counter = "pg_get_serial_sequence('orders', 'number')"
            ahead = f"SELECT setval({counter}, GREATEST(:new, nextval({counter})))"
        else:
            ahead = "UPDATE sqlite_sequence SET seq = :new WHERE name = 'orders' AND seq < :new"
        await connection.execute(update(orders).where(orders.c.number == number).values(number=new))
        await connection.execute(text(ahead), {"new": new})
        return new

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

    async def queued(self, sandbox_id: str, *, limit: int = 20) -> list[QueuedMessage]:
        """The newest messages that wait for a sandbox, in order: they stay."""
        query = select(messages).where(messages.c.sandbox_id == text_of(sandbox_id))
        query = query.order_by(messages.c.number.desc()).limit(max(1, min(limit, 100)))
        async with self._database.reading() as connection:
            return [_message(row) for row in await connection.execute(query)][::-1]

    async def take(self, sandbox_id: str) -> list[QueuedMessage]:
        """All messages queued for a sandbox, which are gone then: each is given to one caller only."""
        wanted = messages.c.sandbox_id == text_of(sandbox_id)
        async with self._database.reading() as connection:
            # Programs ask every second or so, and mostly there is nothing: that must not cost a write.
            if (await connection.execute(select(messages.c.number).where(wanted).limit(1))).first() is None:
                return []
        async with self._database.writing() as connection:
            taken = (await connection.execute(delete(messages).where(wanted).returning(messages))).all()
        return [_message(row) for row in sorted(taken, key=lambda row: row.number)]

    async def sweep(self, *, before: float) -> int:
        """Remove messages nobody has fetched since then; returns how many."""
        async with self._database.writing() as connection:
            gone = await connection.execute(delete(messages).where(messages.c.at < before).returning(messages.c.number))
            return len(gone.all())


def _message(row: Any) -> QueuedMessage:
    return QueuedMessage(id=row.id, content=row.content, message_type=row.message_type, at=row.at)


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

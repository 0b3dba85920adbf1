"""Transcripts, notes and trees, beside the events of a run."""

import asyncio
from hashlib import sha256
from typing import Any

from sqlalchemy import select

from untildone.server.archive.database import Database
from untildone.server.archive.fitting import text_of, whole_of
from untildone.server.archive.port import StoredParcel
from untildone.server.archive.tables import parcels

_LISTED = (parcels.c.name, parcels.c.seq, parcels.c.at, parcels.c.size, parcels.c.sha256)


class ParcelShelf:
    """The newest parcel of each name."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, run_id: str, name: str, content: bytes, *, seq: int, now: float) -> StoredParcel:
        """Keep a parcel, unless a later one of that name is there; returns the one that is there then."""
        run_id, name = text_of(run_id), text_of(name)
        digest = await asyncio.to_thread(lambda: sha256(content).hexdigest())
        put = self._database.upsert(parcels).values(
            run_id=run_id, name=name, seq=whole_of(seq), at=now, size=len(content), sha256=digest, content=content
        )
        replaced = {column: put.excluded[column] for column in ("seq", "at", "size", "sha256", "content")}
        put = put.on_conflict_do_update(
            index_elements=["run_id", "name"], set_=replaced, where=parcels.c.seq <= put.excluded.seq
        )
        async with self._database.writing() as connection:
            await connection.execute(put)
            there = await connection.execute(select(*_LISTED).where(parcels.c.run_id == run_id, parcels.c.name == name))
            return _parcel(there.one())

    async def get(self, run_id: str, name: str) -> StoredParcel | None:
        """A parcel with its content."""
        query = select(*_LISTED, parcels.c.content).where(
            parcels.c.run_id == text_of(run_id), parcels.c.name == text_of(name)
        )
        async with self._database.reading() as connection:
            row = (await connection.execute(query)).first()
        return _parcel(row) if row is not None else None

    async def all(self, run_id: str) -> list[StoredParcel]:
        """All of a run, without their contents."""
        query = select(*_LISTED).where(parcels.c.run_id == text_of(run_id)).order_by(parcels.c.name)
        async with self._database.reading() as connection:
            return [_parcel(row) for row in await connection.execute(query)]


def _parcel(row: Any) -> StoredParcel:
    return StoredParcel(**row._mapping)  # noqa: SLF001 - the public way to read a row by name

"""Transcripts, notes and trees, beside the events of a run."""

import asyncio
from hashlib import sha256
from typing import Any

from sqlalchemy import delete, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from untildone.errors import SenderRefused
from untildone.server.archive.accepting import of_another_tenure
from untildone.server.archive.database import Database
from untildone.server.archive.fitting import text_of, whole_of
from untildone.server.archive.port import StoredParcel
from untildone.server.archive.tables import parcels, runs

MOST_PARCELS = 200
"""Of one run."""
MOST_BYTES = 512 << 20
"""Of one run, all together."""
TRANSCRIPT = "transcript/"
"""How names begin of which there are more and more: the oldest of them make room."""
_LISTED = (parcels.c.name, parcels.c.seq, parcels.c.at, parcels.c.size, parcels.c.sha256)


class ParcelShelf:
    """The newest parcel of each name."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(
        self, run_id: str, name: str, content: bytes, *, seq: int, now: float, tenure: int = 0
    ) -> StoredParcel:
        """Keep a parcel, unless a later one of that name is there; returns the one that is there then."""
        self._database.must_have_room()
        run_id, name = text_of(run_id), text_of(name)
        digest = await asyncio.to_thread(lambda: sha256(content).hexdigest())
        async with self._database.writing() as connection:
            last_seq = await _last_seq(connection, run_id, tenure)
            put = self._database.upsert(parcels).values(
                run_id=run_id,
                name=name,
                tenure=tenure,
                # It may overtake its events; a number that never comes would keep all later ones out.
                seq=min(whole_of(seq), last_seq),
                at=now,
                size=len(content),
                sha256=digest,
                content=content,
            )
            new = put.excluded
            replaced = {column: new[column] for column in ("tenure", "seq", "at", "size", "sha256", "content")}
            later = or_(parcels.c.tenure < new.tenure, parcels.c.seq <= new.seq)
            put = put.on_conflict_do_update(index_elements=["run_id", "name"], set_=replaced, where=later)
            await connection.execute(put)
            await _make_room(connection, run_id, name)
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


async def _last_seq(connection: AsyncConnection, run_id: str, tenure: int) -> int:
    """The newest event of a run, which stays as it is until the transaction ends; refused unless it is its driver's."""
    query = select(runs.c.tenure, runs.c.last_seq).where(runs.c.run_id == run_id).with_for_update()
    run = (await connection.execute(query)).first()
    if run is None:
        raise SenderRefused(f"there is no run {run_id} here: its events come first")
    if (other := of_another_tenure(run_id, run.tenure, tenure)) is not None:
        raise other
    last_seq: int = run.last_seq
    return last_seq


async def _make_room(connection: AsyncConnection, run_id: str, name: str) -> None:
    """Remove the oldest transcripts beyond the bounds; refused when that does not help."""
    query = select(parcels.c.name, parcels.c.size).where(parcels.c.run_id == run_id).order_by(parcels.c.at)
    there = (await connection.execute(query)).all()
    count, size, gone = len(there), sum(row.size for row in there), []
    for row in there:
        if count <= MOST_PARCELS and size <= MOST_BYTES:
            break
        if row.name.startswith(TRANSCRIPT) and row.name != name:
            count, size = count - 1, size - row.size
            gone.append(row.name)
    if count > MOST_PARCELS or size > MOST_BYTES:
        raise SenderRefused(f"run {run_id} has parcels enough: {MOST_PARCELS}, or {MOST_BYTES >> 20} MiB")
    if gone:
        await connection.execute(delete(parcels).where(parcels.c.run_id == run_id, parcels.c.name.in_(gone)))


def _parcel(row: Any) -> StoredParcel:
    return StoredParcel(**row._mapping)  # noqa: SLF001 - the public way to read a row by name

"""The hot path on PostgreSQL: one connection of its own, rows in by COPY."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import asyncpg  # type: ignore[import-untyped] # it ships no types

from untildone.errors import ServeError
from untildone.server.archive.accepting import (
    EVENT_COLUMNS,
    FACT_COLUMNS,
    Offer,
    RunFacts,
    by_run,
    doubtful,
    first_facts,
    judge,
    misnamed,
)
from untildone.server.archive.group_commit import Answer

_TRIES = 3

# Whoever writes events of a run holds its row: what is there and whose it is cannot change meanwhile.
_FACTS = f"""SELECT {", ".join(FACT_COLUMNS)} FROM runs WHERE run_id = ANY($1::text[])
    ORDER BY run_id FOR UPDATE"""  # noqa: S608 - names of columns
_BEGIN = """INSERT INTO runs (run_id, sandbox_id, origin, created_at, heard_at, tenure, driver_hash)
    SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::float8[], $5::float8[], $6::int8[], $7::text[])
    ON CONFLICT (run_id) DO NOTHING"""
_PRESENT = "SELECT seq FROM events WHERE run_id = $1 AND seq BETWEEN $2 AND $3"
_HEARD = """UPDATE runs SET heard_at = new.heard_at, last_seq = new.last_seq, control_seq = new.control_seq,
        tenure = new.tenure, trace_chars = new.trace_chars
    FROM unnest($1::text[], $2::float8[], $3::int8[], $4::int8[], $5::int8[], $6::int8[])
        AS new (run_id, heard_at, last_seq, control_seq, tenure, trace_chars)
    WHERE runs.run_id = new.run_id"""

Connect = Callable[[], Awaitable[Any]]


class PostgresIntake:
    """Writes groups of requests."""

    def __init__(self, connect: Connect, place: str) -> None:
        self._connect = connect
        self._place = place
        self._connection: Any = None

    async def flush(self, offers: list[Offer]) -> list[Answer]:
        """Commit all of these in one transaction."""
        for _ in range(_TRIES):
            try:
                return await self._flush(offers)
            except (asyncpg.DeadlockDetectedError, asyncpg.SerializationError):
                continue  # another server process was in the way, and has won
            except (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError, ValueError, OverflowError):
                raise
            except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as trouble:
                # Whether it was committed is not known. Whoever sent it sends it again, which changes nothing then.
                await self._drop()
                raise ServeError(f"the database does not answer: {_line(trouble)} ({self._place})") from trouble
        raise ServeError(f"the database does not answer: too many writers at once ({self._place})")

    async def close(self) -> None:
        """Let the connection go."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
                await connection.close(timeout=5)

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()

    async def _flush(self, offers: list[Offer]) -> list[Answer]:
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._connect()
        connection = self._connection
        async with connection.transaction():
            judged = judge(await _known(connection, offers), offers)
            if judged.rows:
                await connection.copy_records_to_table("events", records=judged.rows, columns=EVENT_COLUMNS)
            if judged.heard:
                await connection.execute(_HEARD, *_columns(judged.heard))
        return judged.answers


async def _known(connection: Any, offers: list[Offer]) -> dict[str, RunFacts]:
    """The runs that are spoken of, locked, with the numbers that may be among those on offer."""
    offered = by_run(offers)
    known = await _locked(connection, list(offered))
    begun = [
        first_facts(own)
        for run_id, own in offered.items()
        if run_id not in known and any(misnamed(offer) is None for offer in own)
    ]
    if begun:
        await connection.execute(
            _BEGIN,
            *zip(*map(_begun, begun), strict=True),
        )
        known |= await _locked(connection, [facts.run_id for facts in begun])
    for run_id, own in offered.items():
        facts = known.setdefault(run_id, first_facts(own))  # left over: those that are refused for their name
        span = doubtful(facts, own)
        if span is not None:
            facts.present.update(row[0] for row in await connection.fetch(_PRESENT, run_id, *span))
    return known


async def _locked(connection: Any, run_ids: list[str]) -> dict[str, RunFacts]:
    return {row[0]: RunFacts(*row) for row in await connection.fetch(_FACTS, run_ids)}


def _begun(new: RunFacts) -> tuple[object, ...]:
    return (new.run_id, new.sandbox_id, new.origin, new.created_at, new.heard_at, new.tenure, new.driver_hash)


def _columns(heard: list[RunFacts]) -> tuple[list[Any], ...]:
    return (
        [facts.run_id for facts in heard],
        [facts.heard_at for facts in heard],
        [facts.last_seq for facts in heard],
        [facts.control_seq for facts in heard],
        [facts.tenure for facts in heard],
        [facts.trace_chars for facts in heard],
    )


def _line(trouble: Exception) -> str:
    return (str(trouble).strip().splitlines() or [type(trouble).__name__])[0]

"""The list of runs, and what is derived from their events."""

from collections.abc import Sequence
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid5

import msgspec
from sqlalchemy import ColumnElement, and_, case, func, not_, or_, select, update

from untildone.core.history import IterationRow
from untildone.server.archive.database import Database
from untildone.server.archive.fitting import number_of, text_of, whole_of
from untildone.server.archive.port import (
    AT_WORK,
    HEARD_HERE_WITHIN,
    HEARD_WITHIN,
    INTERRUPTED,
    Origin,
    Projection,
    RunEntry,
    RunFilter,
)
from untildone.server.archive.tables import IS_BEHIND, continuous_iterations, run_states, runs

MOST_LISTED = 1_000
_MOST_TENURE = 2**62
_ITERATIONS = UUID("6a5f0c4e-6f0f-4a3e-9a34-6b9f5d4b7c11")
_DERIVED = tuple(field.name for field in fields(Projection) if field.name != "state")
_OWN = tuple(field.name for field in fields(RunEntry) if field.name != "projection")
_ENTRY = tuple(runs.c[name] for name in (*_OWN, *_DERIVED))
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_STATUSES = {"ok": "completed", "running": "running", "abandoned": "abandoned"}


class RunList:
    """Runs the server knows."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def entry(self, run_id: str) -> RunEntry | None:
        """One run, with its folded state."""
        query = _WITH_STATE.where(runs.c.run_id == text_of(run_id))
        async with self._database.reading() as connection:
            row = (await connection.execute(query)).first()
        return _entry(row) if row is not None else None

    async def entries(self, wanted: RunFilter) -> list[RunEntry]:
        """Without their folded states."""
        query = (
            select(*_ENTRY)
            .where(*_conditions(self._database, wanted))
            .order_by(runs.c.heard_at.desc(), runs.c.run_id.desc())
            .limit(max(1, min(wanted.limit, MOST_LISTED)))
        )
        async with self._database.reading() as connection:
            return [_entry(row) for row in await connection.execute(query)]

    async def counts(self, *, now: float) -> dict[str, int]:
        """Runs by status, as it is at that moment."""
        silent = case((_is_heard(now), 0), else_=1).label("silent")
        query = select(runs.c.status, silent, func.count()).group_by(runs.c.status, silent)
        counted: dict[str, int] = {}
        async with self._database.reading() as connection:
            for status, is_silent, count in await connection.execute(query):
                seen = INTERRUPTED if is_silent and status in AT_WORK else status
                counted[seen] = counted.get(seen, 0) + count
        return counted

    async def spent_since(self, moment: float) -> float:
        """Dollars that iterations begun since then have cost, of all runs, estimates included."""
        table = continuous_iterations
        query = select(func.sum(func.coalesce(table.c.cost_usd, 0.0) + table.c.estimated_usd))
        query = query.where(table.c.started_at >= (_moment(moment) or _EPOCH))
        async with self._database.reading() as connection:
            return float((await connection.execute(query)).scalar() or 0.0)

    async def behind(self, *, limit: int) -> list[RunEntry]:
        """Runs whose projection lacks events, the one that waits longest first, with their folded states."""
        query = _WITH_STATE.where(IS_BEHIND).order_by(runs.c.heard_at).limit(limit)
        async with self._database.reading() as connection:
            return [_entry(row) for row in await connection.execute(query)]

    async def project(self, run_id: str, projection: Projection, rows: Sequence[IterationRow]) -> bool:
        """Replace what is derived. Rows of iterations that are not given stay as they are."""
        run_id = text_of(run_id)
        derived = {name: _fit(getattr(projection, name)) for name in _DERIVED}
        replaced = (
            update(runs)
            .where(runs.c.run_id == run_id, runs.c.folded_seq <= derived["folded_seq"])
            .values(derived)
            .returning(runs.c.sandbox_id)
        )
        async with self._database.writing() as connection:
            sandbox_id = (await connection.execute(replaced)).scalar()
            if sandbox_id is None:
                return False
            state = self._database.upsert(run_states).values(run_id=run_id, state=projection.state)
            state = state.on_conflict_do_update(index_elements=["run_id"], set_={"state": state.excluded.state})
            await connection.execute(state)
            if rows:
                await connection.execute(self._put_rows(), [_row(run_id, sandbox_id, row) for row in rows])
        return True

    def _put_rows(self) -> Any:
        put = self._database.upsert(continuous_iterations)
        kept = {"id", "created_at", "transcript_b64", "run_id", "iteration_num"}
        names = [column.name for column in continuous_iterations.columns if column.name not in kept]
        return put.on_conflict_do_update(
            index_elements=["run_id", "iteration_num"], set_={name: put.excluded[name] for name in names}
        )

    async def iterations(self, run_id: str, *, before: int | None = None, limit: int = 100) -> list[IterationRow]:
        """The newest ones, in ascending order."""
        table = continuous_iterations
        query = select(table).where(table.c.run_id == text_of(run_id))
        if before is not None:
            query = query.where(table.c.iteration_num < whole_of(before))
        query = query.order_by(table.c.iteration_num.desc()).limit(max(1, min(limit, MOST_LISTED)))
        async with self._database.reading() as connection:
            rows = [_iteration(row) for row in await connection.execute(query)]
        return rows[::-1]

    async def heard(self, run_id: str, *, now: float) -> None:
        """A sign of life."""
        later = update(runs).where(runs.c.run_id == text_of(run_id), runs.c.heard_at < now).values(heard_at=now)
        async with self._database.writing() as connection:
            await connection.execute(later)

    async def take_over(
        self, run_id: str, *, sandbox_id: str, tenure: int, origin: Origin = "worker", driver_hash: str = ""
    ) -> int | None:
        """Let another driver have the run, if its tenure still is this one: the new one; None: it is not."""
        tenure = min(whole_of(tenure), _MOST_TENURE)
        taken = (
            update(runs)
            .where(runs.c.run_id == text_of(run_id), runs.c.tenure == tenure, runs.c.origin != "published")
            .values(tenure=tenure + 1, sandbox_id=text_of(sandbox_id), origin=origin, driver_hash=driver_hash)
            .returning(runs.c.tenure)
        )
        async with self._database.writing() as connection:
            new: int | None = (await connection.execute(taken)).scalar()
        return new


_WITH_STATE = select(*_ENTRY, run_states.c.state).select_from(
    runs.outerjoin(run_states, runs.c.run_id == run_states.c.run_id)
)


def _conditions(database: Database, wanted: RunFilter) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = []
    if wanted.text:
        places = (runs.c.name, runs.c.goal, runs.c.folder, runs.c.run_id, runs.c.sandbox_id)
        conditions.append(or_(*(database.has(place, wanted.text[:200]) for place in places)))
    if wanted.statuses and wanted.now is None:
        conditions.append(runs.c.status.in_([text_of(status) for status in wanted.statuses]))
    elif wanted.statuses and wanted.now is not None:
        conditions.append(_is_seen(wanted.statuses, wanted.now))
    if wanted.heard_since is not None:
        conditions.append(runs.c.heard_at >= wanted.heard_since)
    if wanted.sandbox_id is not None:
        conditions.append(runs.c.sandbox_id == text_of(wanted.sandbox_id))
    if wanted.run_ids:
        conditions.append(runs.c.run_id.in_([text_of(run_id) for run_id in wanted.run_ids[:MOST_LISTED]]))
    if wanted.before is not None:
        heard_at, run_id = wanted.before
        same = and_(runs.c.heard_at == heard_at, runs.c.run_id < text_of(run_id))
        conditions.append(or_(runs.c.heard_at < heard_at, same))
    return conditions


def _is_seen(statuses: Sequence[str], now: float) -> ColumnElement[bool]:
    """Whether a run has one of these statuses at that moment."""
    at_work = [status for status in statuses if status in AT_WORK]
    ended = [text_of(status) for status in statuses if status not in AT_WORK]
    either: list[ColumnElement[bool]] = [runs.c.status.in_(ended)] if ended else []
    if at_work:
        either.append(and_(runs.c.status.in_(at_work), _is_heard(now)))
    if INTERRUPTED in ended:
        either.append(and_(runs.c.status.in_(sorted(AT_WORK)), not_(_is_heard(now))))
    return or_(*either)


def _is_heard(now: float) -> ColumnElement[bool]:
    """Whether somebody was heard lately. The first bound holds for all: an index gives what is newer than that."""
    recent = or_(runs.c.origin != "local", runs.c.heard_at >= now - HEARD_HERE_WITHIN)
    return and_(runs.c.heard_at >= now - HEARD_WITHIN, runs.c.heard_at <= now + HEARD_WITHIN, recent)


def _entry(row: Any) -> RunEntry:
    found = row._mapping  # noqa: SLF001 - the public way to read a row by name
    own = {name: found[name] for name in _OWN}
    derived = {name: found[name] for name in _DERIVED}
    return RunEntry(**own, projection=Projection(**derived, state=found.get("state") or b""))


def _fit(value: Any) -> Any:
    match value:
        case str():
            return text_of(value)
        case bool() | None:
            return value
        case int():
            return whole_of(value)
        case float():
            return number_of(value)
    return value


def _row(run_id: str, sandbox_id: str, row: IterationRow) -> dict[str, Any]:
    ended = row.outcome != "running"
    return {
        "id": uuid5(_ITERATIONS, f"{run_id}/{row.number}"),
        "sandbox_id": sandbox_id,
        "run_id": run_id,
        "iteration_num": whole_of(row.number),
        "status": _STATUSES.get(row.outcome, "failed"),
        "session_id": text_of(row.session_id) or None,
        "output_preview": text_of(row.summary),
        "started_at": _moment(row.started_at),
        "completed_at": _moment(row.started_at + row.seconds) if ended else None,
        "faults": msgspec.json.encode(row.faults).decode(),
        "commits": msgspec.json.encode(row.commits).decode(),
        **{name: _fit(getattr(row, name)) for name in _SAME},
    }


_SAME = (
    "first_seq",
    "cost_usd",
    "tries",
    "outcome",
    "error",
    "estimated_usd",
    "unknown_costs",
    "seconds",
    "files_changed",
    "claim",
    "verdict",
    "review",
)


def _iteration(row: Any) -> IterationRow:
    return IterationRow(
        number=row.iteration_num,
        started_at=_seconds(row.started_at),
        faults=msgspec.json.decode(row.faults, type=tuple[str, ...]),
        commits=msgspec.json.decode(row.commits, type=tuple[str, ...]),
        summary=row.output_preview or "",
        session_id=row.session_id or "",
        **{name: getattr(row, name) for name in _SAME},
    )


def _moment(seconds: float) -> datetime | None:
    try:
        return datetime.fromtimestamp(seconds, UTC) if seconds else None
    except (OverflowError, ValueError, OSError):
        return None  # a machine whose clock tells the year 300,000


def _seconds(moment: datetime | None) -> float:
    if moment is None:
        return 0.0
    # SQLite forgets the zone.
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()

"""Copies of events: kept in groups, read by number."""

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, delete, func, literal_column, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from untildone.core.dataclass import dataclass
from untildone.core.wire import Receipt
from untildone.server.archive.accepting import Offer
from untildone.server.archive.database import Database
from untildone.server.archive.fitting import text_of, whole_of
from untildone.server.archive.group_commit import GroupCommit, Lanes
from untildone.server.archive.port import EventFilter, EventPage, Sender, StoredEvent, published_run
from untildone.server.archive.tables import DIFF_TYPES, IS_CONTROL, IS_DIFF, IS_START, events, runs

MOST_SCANNED = 50_000
"""Events looked at for a text, at most, from where the reading begins."""
MOST_READ = 5_000
MOST_PAGE = 8 << 20
"""Bytes of payload after which a page ends, whatever its limit."""
_LONGEST_TEXT = 200
_STORED = (
    events.c.seq,
    events.c.at,
    events.c.kind,
    events.c.type,
    events.c.source,
    events.c.version,
    events.c.data,
)


class EventCopies:
    """The copies themselves."""

    def __init__(self, database: Database, intake: GroupCommit | Lanes) -> None:
        self._database = database
        self._intake = intake

    async def receive(self, sender: Sender, run_id: str, events: Sequence[StoredEvent], *, now: float) -> Receipt:
        """Keep what is new, durably, before returning."""
        if events:
            self._database.must_have_room()
        return await self._intake.keep(Offer(sender=sender, run_id=run_id, events=events, now=now))

    async def publish(self, sandbox_id: str, events: Sequence[StoredEvent], *, now: float) -> Receipt:
        """Keep events that came without a number, as trace of the sandbox's published run."""
        self._database.must_have_room()
        sender = Sender(sandbox_id=sandbox_id, origin="published")
        trace = [event if event.kind == "trace" else _as_trace(event) for event in events]
        offer = Offer(sender=sender, run_id=published_run(sandbox_id), events=trace, now=now, numbered=False)
        return await self._intake.keep(offer)

    def must_be_writable(self) -> None:
        """NoRoom when the disk is nearly full, ServeError when the newest write has just failed."""
        self._database.must_have_room()
        self._intake.must_work()

    async def read(self, run_id: str, wanted: EventFilter) -> EventPage:
        """Those that are wanted, in ascending order."""
        run_id = text_of(run_id)
        backwards = wanted.after is None and wanted.before is not None
        async with self._database.reading() as connection:
            spans = None
            if wanted.iteration is not None:
                spans = await _spans(connection, run_id, wanted.iteration)
                if not spans:
                    return EventPage()
            narrowed = _narrowed(wanted, _conditions(wanted, spans), run_id)
            order = events.c.seq.desc() if backwards else events.c.seq
            limit = max(1, min(wanted.limit, MOST_READ))
            if wanted.text:
                seqs = (await connection.execute(self._search(narrowed, wanted.text, order, limit))).scalars().all()
                narrowed = _Narrowed(select().where(events.c.run_id == run_id, events.c.seq.in_(seqs)))
            cut = self._cut(narrowed, order, limit, backwards=backwards)
            query = narrowed.of(*_STORED).where(events.c.seq >= cut if backwards else events.c.seq <= cut)
            stored = [_event(row) for row in await connection.execute(query.order_by(order).limit(limit))]
        if backwards:
            stored.reverse()
        return EventPage(stored, more=len(stored) == limit or sum(map(_size, stored)) >= MOST_PAGE)

    def _search(self, narrowed: "_Narrowed", text: str, order: Any, limit: int) -> Select[Any]:
        """The numbers of those with this text, of as many as may be looked at."""
        looked_at = narrowed.of(events.c.seq, events.c.data).order_by(order).limit(MOST_SCANNED).subquery()
        # The payload is JSON: what is looked for is written there as JSON writes it.
        written = json.dumps(text[:_LONGEST_TEXT], ensure_ascii=False)[1:-1]
        found = select(looked_at.c.seq).where(self._database.has(looked_at.c.data, written))
        return found.order_by(looked_at.c.seq.desc() if order is not events.c.seq else looked_at.c.seq).limit(limit)

    def _cut(self, narrowed: "_Narrowed", order: Any, limit: int, *, backwards: bool) -> ColumnElement[int]:
        """The number at which a page is full of bytes: payloads beyond it are never read."""
        # PostgreSQL knows the bytes of a text without reading it; SQLite reads it, one at a time, and stops.
        size = func.octet_length if self._database.kind == "postgresql" else func.length
        sized = narrowed.of(events.c.seq, size(events.c.data).label("size")).order_by(order).limit(limit).subquery()
        by_seq = sized.c.seq.desc() if backwards else sized.c.seq
        total = func.sum(sized.c.size).over(order_by=by_seq, rows=(None, 0)).label("total")
        running = select(sized.c.seq, total).subquery()
        by_seq = running.c.seq.desc() if backwards else running.c.seq
        full = select(running.c.seq).where(running.c.total >= MOST_PAGE).order_by(by_seq).limit(1)
        return func.coalesce(full.scalar_subquery(), literal_column("0" if backwards else str(2**62)))

    async def event(self, run_id: str, seq: int) -> StoredEvent | None:
        """The one with this number."""
        query = select(*_STORED).where(events.c.run_id == text_of(run_id), events.c.seq == whole_of(seq))
        async with self._database.reading() as connection:
            row = (await connection.execute(query)).first()
        return _event(row) if row is not None else None

    async def trim(self, run_id: str, *, before: float, keep_bytes: int, most: int) -> int:
        """Remove at most so many of the oldest trace events beyond these bounds; returns how many."""
        async with self._database.writing() as connection:
            run = (
                await connection.execute(
                    select(runs.c.trimmed_seq, runs.c.trace_chars, runs.c.heard_at)
                    .where(runs.c.run_id == run_id)
                    .with_for_update()
                )
            ).first()
            if run is None:
                return 0
            trace = (events.c.run_id == run_id, events.c.kind == "trace", events.c.seq > run.trimmed_seq)
            oldest = await connection.execute(
                select(events.c.seq, events.c.at, func.length(events.c.data))
                .where(*trace)
                .order_by(events.c.seq)
                .limit(most)
            )
            # By the clock of the run's machine; one nobody hears of any more is old, whatever that clock said.
            silent = run.heard_at < before
            removed, chars, cut = 0, 0, run.trimmed_seq
            for seq, at, length in oldest:
                if not (silent or at < before or run.trace_chars - chars > keep_bytes):
                    break
                removed, chars, cut = removed + 1, chars + length, seq
            if removed:
                await connection.execute(delete(events).where(*trace, events.c.seq <= cut))
                left = {"trimmed_seq": cut, "trace_chars": max(0, run.trace_chars - chars)}
                await connection.execute(update(runs).where(runs.c.run_id == run_id).values(left))
        return removed

    async def overgrown(self, *, before: float, keep_bytes: int, limit: int) -> list[str]:
        """Runs of which `trim` would remove something."""
        oldest = (
            select(events.c.at)
            .where(events.c.run_id == runs.c.run_id, events.c.kind == "trace", events.c.seq > runs.c.trimmed_seq)
            .order_by(events.c.seq)
            .limit(1)
            .scalar_subquery()
        )
        # What came first to the server after that moment is looked at when it has been here for as long.
        aged = and_(runs.c.trace_chars > 0, runs.c.created_at < before, or_(runs.c.heard_at < before, oldest < before))
        query = select(runs.c.run_id).where(or_(runs.c.trace_chars > keep_bytes, aged)).limit(limit)
        async with self._database.reading() as connection:
            return list((await connection.execute(query)).scalars())


@dataclass(frozen=True, slots=True)
class _Narrowed:
    """Which events are looked at, whatever is wanted of them."""

    select: Select[Any]

    def of(self, *columns: Any) -> Select[Any]:
        return self.select.add_columns(*columns)


def _narrowed(wanted: EventFilter, conditions: list[Any], run_id: str) -> _Narrowed:
    query = select().where(events.c.run_id == run_id, *conditions)
    if wanted.kind == "control":
        query = query.with_hint(events, "INDEXED BY events_control", "sqlite")
    elif wanted.types and DIFF_TYPES.issuperset(wanted.types):
        query = query.with_hint(events, "INDEXED BY events_diffs", "sqlite")
    return _Narrowed(query)


def _size(event: StoredEvent) -> int:
    return len(event.data) if event.data.isascii() else len(event.data.encode())


def _as_trace(event: StoredEvent) -> StoredEvent:
    return StoredEvent(
        seq=event.seq,
        at=event.at,
        kind="trace",
        type=event.type,
        source=event.source,
        version=event.version,
        data=event.data,
    )


def _event(row: Any) -> StoredEvent:
    seq, at, kind, name, source, version, data = row
    return StoredEvent(seq=seq, at=at, kind=kind, type=name, source=source, version=version, data=data)


def _conditions(wanted: EventFilter, spans: list[tuple[int, int | None]] | None) -> list[Any]:
    conditions: list[Any] = []
    if wanted.after is not None:
        conditions.append(events.c.seq > whole_of(wanted.after))
    if wanted.before is not None:
        conditions.append(events.c.seq < whole_of(wanted.before))
    if wanted.kind == "control":
        conditions.append(IS_CONTROL)
    elif wanted.kind is not None:
        conditions.append(events.c.kind == wanted.kind)
    if wanted.types:
        if DIFF_TYPES.issuperset(wanted.types):
            conditions.append(IS_DIFF)
        conditions.append(or_(*(_of_type(text_of(name)) for name in wanted.types)))
    if spans is not None:
        conditions.append(or_(*(_within(first, end) for first, end in spans)))
    return conditions


def _of_type(name: str) -> ColumnElement[bool]:
    if not name.endswith(".*"):
        return events.c.type == name
    # A LIKE would do; plain comparison is the same in every collation of a dotted name.
    prefix = name[:-1]
    return func.substr(events.c.type, 1, len(prefix)) == prefix


def _within(first: int, end: int | None) -> ColumnElement[bool]:
    return events.c.seq >= first if end is None else and_(events.c.seq >= first, events.c.seq < end)


_MOST_SPANS = 50


async def _spans(connection: AsyncConnection, run_id: str, iteration: int) -> list[tuple[int, int | None]]:
    """From each start of an iteration up to the next start; 0 is what came before the first one."""
    starts = (
        select(
            events.c.seq,
            events.c.iteration,
            func.lead(events.c.seq).over(order_by=events.c.seq).label("next"),
        )
        .where(events.c.run_id == run_id, IS_START)
        .subquery()
    )
    if iteration == 0:
        first = (await connection.execute(select(func.min(starts.c.seq)))).scalar()
        return [(0, first)]
    found = await connection.execute(
        select(starts.c.seq, starts.c.next)
        .where(starts.c.iteration == whole_of(iteration))
        .order_by(starts.c.seq.desc())
        .limit(literal_column(str(_MOST_SPANS)))
    )
    return _joined([(seq, after) for seq, after in reversed(found.all())])


def _joined(spans: list[tuple[int, int | None]]) -> list[tuple[int, int | None]]:
    """Tries in a row are one span."""
    joined: list[tuple[int, int | None]] = []
    for first, end in spans:
        if joined and joined[-1][1] == first:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((first, end))
    return joined

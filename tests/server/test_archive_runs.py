import asyncio
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from server.archive_kit import archive_in
from server.events_kit import BOX, many, told
from untildone.core.history import IterationRow
from untildone.server.archive.opening import DatabaseArchive
from untildone.server.archive.port import Archive, Projection, RunFilter, Sender
from untildone.server.archive.tables import continuous_iterations
from untildone.server.folding import seen

pytestmark = pytest.mark.anyio

PROJECTION = Projection(
    folded_seq=20,
    name="night",
    goal="50% less\nof it",
    folder="/home/me/work",
    host="here",
    status="running",
    phase="agent",
    why="it waits",
    success=True,
    verified=True,
    verdict="passed",
    cost_usd=1.25,
    estimated_usd=0.5,
    unknown_costs=2,
    attempts=7,
    successes=6,
    progress=0.5,
    waiting_until=99.5,
    started_at=12.5,
    state=b"\x00\xffstate",
)
ROW = IterationRow(
    number=1,
    started_at=1_700_000_000.25,
    first_seq=17,
    tries=2,
    outcome="ok",
    faults=("rate_limit", "x"),
    error="it broke",
    cost_usd=0.125,
    estimated_usd=0.25,
    unknown_costs=1,
    seconds=12.5,
    files_changed=3,
    commits=("abc", "def"),
    claim="done (report)",
    summary="all \0 of it",
    verdict="passed",
    review="approved",
    session_id="s-1",
)


async def _ids(archive: Archive, wanted: RunFilter) -> list[str]:
    return [entry.run_id for entry in await archive.runs.entries(wanted)]


async def test_a_projection_comes_back_as_it_was(archive: Archive) -> None:
    await archive.events.receive(BOX, "run", many(1, 20), now=1.0)
    assert await archive.runs.project("run", PROJECTION, [])
    entry = await archive.runs.entry("run")
    assert entry is not None
    assert entry.projection == PROJECTION
    (listed,) = await archive.runs.entries(RunFilter())
    assert listed.projection == replace(PROJECTION, state=b"")
    assert await archive.runs.entry("other") is None


async def test_an_older_projection_does_not_replace_a_newer_one(archive: Archive) -> None:
    await archive.events.receive(BOX, "run", many(1, 30), now=1.0)
    assert await archive.runs.project("run", PROJECTION, [ROW])
    assert not await archive.runs.project(
        "run", replace(PROJECTION, folded_seq=19, name="old"), [replace(ROW, tries=9)]
    )
    assert await archive.runs.project("run", replace(PROJECTION, name="same"), [])
    assert not await archive.runs.project("nobody's", PROJECTION, [])
    entry = await archive.runs.entry("run")
    assert entry is not None
    assert entry.projection.name == "same"
    assert [row.tries for row in await archive.runs.iterations("run")] == [2]


async def test_hostile_numbers_and_texts_are_kept_as_far_as_they_can_be(archive: Archive) -> None:
    await archive.events.receive(BOX, "run", [], now=1.0)
    hostile = replace(
        PROJECTION, goal="a\0b\ud800", cost_usd=float("nan"), attempts=10**40, progress=float("inf"), waiting_until=None
    )
    row = replace(ROW, started_at=1e300, cost_usd=float("inf"), tries=10**30, seconds=float("nan"))
    assert await archive.runs.project("run", hostile, [row])
    entry = await archive.runs.entry("run")
    assert entry is not None
    kept = entry.projection
    assert (kept.goal, kept.cost_usd, kept.attempts, kept.progress) == ("a\ufffdb?", 0.0, 2**63 - 1, 0.0)
    (back,) = await archive.runs.iterations("run")
    assert (back.started_at, back.cost_usd, back.tries, back.seconds) == (0.0, 0.0, 2**63 - 1, 0.0)


async def test_iterations_are_replaced_one_by_one_and_paged(archive: Archive) -> None:
    await archive.events.receive(BOX, "run", [], now=1.0)
    rows = [replace(ROW, number=number, summary=f"n{number}") for number in range(1, 8)]
    await archive.runs.project("run", PROJECTION, rows)
    await archive.runs.project("run", PROJECTION, [replace(rows[2], outcome="running", summary="again")])
    rows[2] = replace(rows[2], outcome="running", summary="again")
    assert await archive.runs.iterations("run") == rows
    assert await archive.runs.iterations("run", limit=3) == rows[4:]
    assert await archive.runs.iterations("run", before=5, limit=3) == rows[1:4]
    assert await archive.runs.iterations("other") == []


async def test_an_iteration_is_all_there_in_the_published_table(archive: Archive) -> None:
    await archive.events.receive(BOX, "run", [], now=1.0)
    failed = replace(ROW, number=2, outcome="timeout")
    await archive.runs.project("run", PROJECTION, [ROW, failed, replace(ROW, number=3, outcome="running")])
    assert (await archive.runs.iterations("run"))[0] == replace(ROW, summary="all \ufffd of it")
    assert isinstance(archive, DatabaseArchive)
    async with archive.database.reading() as connection:
        query = continuous_iterations.select().order_by(continuous_iterations.c.iteration_num)
        kept = (await connection.execute(query)).all()
    assert [row.status for row in kept] == ["completed", "failed", "running"]
    assert [row.completed_at is None for row in kept] == [False, False, True]
    first = kept[0]
    assert (first.sandbox_id, first.session_id, first.transcript_b64, first.cost_usd) == ("box", "s-1", None, 0.125)
    assert (first.completed_at - first.started_at).total_seconds() == 12.5
    assert first.created_at is not None


async def test_runs_are_listed_by_when_they_were_heard_and_paged(archive: Archive) -> None:
    for number, now in enumerate([5.0, 3.0, 5.0, 9.0, 5.0]):
        await archive.events.receive(BOX, f"run{number}", [], now=now)
    assert await _ids(archive, RunFilter()) == ["run3", "run4", "run2", "run0", "run1"]
    first = await archive.runs.entries(RunFilter(limit=2))
    place = (first[-1].heard_at, first[-1].run_id)
    assert await _ids(archive, RunFilter(limit=2, before=place)) == ["run2", "run0"]
    await archive.runs.heard("run1", now=10.0)
    await archive.runs.heard("run3", now=1.0)
    assert await _ids(archive, RunFilter(limit=2)) == ["run1", "run3"]


async def test_runs_are_found_by_text_status_sandbox_and_id(archive: Archive) -> None:
    for run_id, box in (("alpha", "one"), ("beta", "one"), ("gamma", "two")):
        await archive.events.receive(Sender(sandbox_id=box), run_id, [], now=1.0)
    await archive.runs.project("alpha", PROJECTION, [])
    await archive.runs.project("beta", replace(PROJECTION, goal="500 less", status="completed"), [])
    assert await _ids(archive, RunFilter(text="50% LESS")) == ["alpha"]
    assert await _ids(archive, RunFilter(text="GAM")) == ["gamma"]
    assert await _ids(archive, RunFilter(text="a_pha")) == []
    assert await _ids(archive, RunFilter(statuses=("completed", "new"))) == ["gamma", "beta"]
    assert await _ids(archive, RunFilter(sandbox_id="one", statuses=("running",))) == ["alpha"]
    assert await _ids(archive, RunFilter(run_ids=("gamma", "alpha", "nobody's"))) == ["gamma", "alpha"]
    assert await archive.runs.counts(now=1.0) == {"running": 1, "completed": 1, "new": 1}


async def test_a_run_at_work_that_is_silent_is_interrupted_in_lists_and_counts(archive: Archive) -> None:
    """The same runs as `seen` would tell, without reading them all."""
    now, states = 1_000_000.0, ("running", "waiting", "paused", "suspended", "completed")
    senders = {"w": BOX, "l": Sender(sandbox_id="local", origin="local")}
    for state in states:
        for kind, sender in senders.items():
            for age in (0.0, 14.0, 16.0, 89.0, 91.0, 90_000.0):
                run_id = f"{state}-{kind}-{age:.0f}"
                await archive.events.receive(sender, run_id, [], now=now - age)
                await archive.runs.project(run_id, replace(PROJECTION, status=state), [])
    entries = await archive.runs.entries(RunFilter(limit=1000))
    told = {entry.run_id: seen(entry, now).status for entry in entries}
    for state in (*states, "interrupted", "new"):
        found = await _ids(archive, RunFilter(statuses=(state,), now=now, limit=1000))
        assert sorted(found) == sorted(run_id for run_id, is_now in told.items() if is_now == state), state
    assert "interrupted" in told.values()
    some = await _ids(archive, RunFilter(statuses=("paused", "interrupted"), now=now, limit=1000))
    assert {told[run_id] for run_id in some} == {"paused", "interrupted"}
    assert await archive.runs.counts(now=now) == Counter(told.values())
    lately = await _ids(archive, RunFilter(statuses=("interrupted",), now=now, heard_since=now - 100, limit=1000))
    assert "running-w-91" in lately
    assert "running-w-90000" not in lately


async def test_runs_at_work_are_found_by_when_they_were_heard(tmp_path: Path) -> None:
    """Not by looking at all that ever were."""
    asked: list[tuple[str, Any]] = []
    async with archive_in(tmp_path) as archive:
        assert isinstance(archive, DatabaseArchive)
        engine = archive.database.engine.sync_engine
        event.listen(engine, "before_cursor_execute", lambda *told: asked.append((told[2], told[3])))
        await archive.runs.entries(RunFilter(statuses=("running",), now=1_000_000.0))
        (query, values) = asked[-1]
        async with archive.database.reading() as connection:
            plan = [str(row) for row in await connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {query}", values)]
    assert len(plan) == 1
    assert "SEARCH runs USING INDEX runs_by_heard (heard_at>?" in plan[0]


async def test_who_is_behind(archive: Archive) -> None:
    await archive.events.receive(BOX, "trace", [told(1)], now=1.0)
    await archive.events.receive(BOX, "control", many(1, 20), now=3.0)
    await archive.events.publish("box", [told(1)], now=2.0)
    behind = await archive.runs.behind(limit=9)
    assert [entry.run_id for entry in behind] == ["published-box", "control"]
    await archive.runs.project("control", PROJECTION, [])
    await archive.runs.project("published-box", replace(PROJECTION, folded_seq=1), [])
    assert await archive.runs.behind(limit=9) == []
    await archive.events.receive(BOX, "control", many(21, 30), now=3.0)
    (entry,) = await archive.runs.behind(limit=9)
    assert (entry.control_seq, entry.projection) == (30, PROJECTION)


async def test_one_of_many_takes_a_run_over(archive: Archive) -> None:
    await archive.events.receive(BOX, "run", [], now=1.0)
    tries = [archive.runs.take_over("run", sandbox_id=f"box{number}", tenure=0) for number in range(8)]
    won = [(number, tenure) for number, tenure in enumerate(await asyncio.gather(*tries)) if tenure is not None]
    assert [tenure for _, tenure in won] == [1]
    entry = await archive.runs.entry("run")
    assert entry is not None
    assert (entry.sandbox_id, entry.tenure) == (f"box{won[0][0]}", 1)
    assert await archive.runs.take_over("run", sandbox_id="x", tenure=0) is None
    assert await archive.runs.take_over("run", sandbox_id="x", tenure=1, origin="local") == 2
    assert await archive.runs.take_over("nobody's", sandbox_id="x", tenure=0) is None
    await archive.events.publish("box", [told(1)], now=2.0)
    assert await archive.runs.take_over("published-box", sandbox_id="x", tenure=0) is None


async def test_what_was_spent_since_then(archive: Archive) -> None:
    assert await archive.runs.spent_since(0.0) == 0.0
    for run_id in ("one", "two"):
        await archive.events.receive(BOX, run_id, [], now=1.0)
        rows = [replace(ROW, number=number, started_at=1000.0 * number) for number in (1, 2, 3)]
        await archive.runs.project(run_id, PROJECTION, rows)
    assert await archive.runs.spent_since(2000.0) == pytest.approx(4 * 0.375)
    assert await archive.runs.spent_since(0.0) == pytest.approx(6 * 0.375)

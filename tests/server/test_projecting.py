"""What the list of runs shows is folded from events, costs what is new, and survives whatever workers send."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec
import pytest

from core.night_kit import night
from core.run_kit import START, completed, opening, records, started
from costs import takes_at_most
from patience import PATIENCE
from server.archive_kit import archive_in, control, raw, receive, stored
from untildone.core import codec
from untildone.core import events as ev
from untildone.core import trace as tr
from untildone.core.event import Event, Record
from untildone.core.fold import fold
from untildone.core.history import iteration_rows
from untildone.core.outcome import Usage
from untildone.server.archive.port import Archive, RunEntry
from untildone.server.fanout import Fanout
from untildone.server.folding import Folded, state_of
from untildone.server.projecting import UNREADABLE, Projector

pytestmark = pytest.mark.anyio


@pytest.fixture
async def file_archive(tmp_path: Path) -> AsyncIterator[Archive]:
    async with archive_in(tmp_path) as opened:
        yield opened


@pytest.fixture
async def projector(archive: Archive) -> AsyncIterator[Projector]:
    projector = Projector(archive, Fanout(archive), every=0.01)
    async with projector.running():
        yield projector


async def current(archive: Archive, run_id: str = "run1") -> RunEntry:
    found = await archive.runs.entry(run_id)
    assert found is not None
    return found


HOSTILE = [
    raw(3, "iteration.started", '{"iteration_num": 99999999999999}'),
    raw(3, "iteration.started", '{"iteration_num": -5}'),
    raw(3, "iteration.started", "["),
    raw(3, "iteration.completed", '{"iteration_num": 1, "cost_usd": 1e308, "duration_seconds": 1e308}'),
    raw(3, "iteration.completed", '{"iteration_num": 1, "cost_usd": -1e308, "estimated_usd": 1e308}'),
    raw(3, "iteration.failed", '{"iteration_num":1,"error":"\\u0000","error_type":"\\u0000","retry_allowed":true}'),
    raw(3, "continuous.suspended", '{"stop_reason": "\\u001b[31m\\u202e\\u0000"}'),
    raw(3, "continuous.waiting", '{"cause": "\\u202e", "until": 1e300}'),
    raw(3, "continuous.limits_changed", '{"by": "x", "changes": {"max_runs": 1e300, "deadline": -1e300}}'),
    raw(3, "continuous.limits_changed", '{"by": "x", "changes": {"max_duration": null, "max_runs": null}}'),
    raw(3, "agent.assistant_message", '{"iteration_num": 1, "text": "trace sent as control"}'),
    raw(3, "continuous.started", "{}", version=2),
    raw(3, "continuous.started", "{}", version=9),
    raw(3, "no.such.event", "not json"),
    raw(3, "iteration.started", '{"iteration_num": 1}', at=1e300),
    raw(3, "iteration.tasks", '{"iteration_num":0,"open_blocking":-3,"open_optional":0,"ticked":3}'),
]  # fmt: skip


async def test_hostile_events_are_folded_and_stored_and_the_run_goes_on(archive: Archive, projector: Projector) -> None:
    told = stored(records(opening()))
    later = [msgspec.structs.replace(event, seq=event.seq + 3) for event in stored(records([started(1), completed(1)]))]
    for number, hostile in enumerate(HOSTILE):
        run_id = f"run{number}"
        await receive(archive, run_id, [*told, hostile], now=START)
        await projector.settled(run_id)
        shown_now = (await current(archive, run_id)).projection
        assert (shown_now.folded_seq, shown_now.name) == (3, "it"), hostile
        assert not {"\x1b", "\0", "\u202e"} & {*shown_now.why, *shown_now.phase}, hostile
        assert 0 <= shown_now.cost_usd <= 1e12, hostile
        assert shown_now.progress is None or 0 <= shown_now.progress <= 1, hostile
        await receive(archive, run_id, later, now=START)
        await projector.settled(run_id)
        assert (await current(archive, run_id)).projection.folded_seq == 5
        assert [row.outcome for row in await archive.runs.iterations(run_id)][-1:] == ["ok"], hostile


@pytest.mark.parametrize(
    ("version", "said"), [(99, "newer version: upgrade this server"), (2, "(continuous.started) is not what it")]
)
async def test_a_run_whose_beginning_makes_no_sense_is_unreadable(
    archive: Archive, projector: Projector, version: int, said: str
) -> None:
    await receive(archive, "run1", [raw(1, "continuous.started", "{}", version=version)], now=START)
    await projector.settled("run1")
    found = (await current(archive)).projection
    assert (found.status, found.name, found.folded_seq) == (UNREADABLE, "run1", 1)
    assert said in found.why
    assert await archive.runs.behind(limit=10) == []


@pytest.mark.parametrize(
    "nonsense",
    [
        [completed(number, cost_usd=1.7e308) for number in range(1, 4)],
        [ev.BudgetWarning(limit_type="x" * 1_000_000, limit_value=1, current_value=1)] * 20,
    ],
    ids=["an endless sum", "a state without bounds"],
)
async def test_a_state_that_cannot_be_kept_begins_anew_and_says_so(
    file_archive: Archive, nonsense: list[Event]
) -> None:
    projector = Projector(file_archive, Fanout(file_archive), every=0.001)
    told = stored(records([*opening(), *nonsense, started(7), completed(7)]))
    async with projector.running():
        for part in (told[:2], told[2:-2], told[-2:]):
            await receive(file_archive, "run1", part, now=START)
            await projector.settled("run1")
    known = await current(file_archive)
    assert (known.projection.status, known.projection.name) == (UNREADABLE, "it")
    assert "cannot be kept" in known.projection.why
    # Large events are folded a few at a time: what came after the new beginning is in it.
    assert len(known.projection.state) < 3_000_000
    assert state_of(known).last_seq == told[-1].seq
    assert (await file_archive.runs.iterations("run1"))[-1].number == 7


async def test_a_run_that_grows_is_projected_and_followers_are_told(archive: Archive) -> None:
    fanout = Fanout(archive)
    projector = Projector(archive, fanout, every=0.01)
    told = control(night())
    with fanout.follow(None) as follower:
        async with projector.running():
            for upto in range(1, len(told) + 1):
                await receive(archive, "run1", stored(told[upto - 1 : upto]), now=START)
                await projector.settled("run1")
                state, known = fold(told[:upto]), await current(archive)
                assert state_of(known) == state
                assert known.projection.cost_usd == pytest.approx(state.served_usd)
        assert [note.run_id for note in follower.waiting()] == ["run1"]
    rows = await archive.runs.iterations("run1")
    assert [replace(row, started_at=0.0) for row in rows] == [
        replace(row, started_at=0.0) for row in iteration_rows(told)
    ]


async def test_what_was_stored_while_nobody_projected_is_found(file_archive: Archive) -> None:
    for number in range(5):
        await receive(file_archive, f"run{number}", stored(control(night())), now=START)
    projector = Projector(file_archive, Fanout(file_archive), every=0.01)
    async with projector.running(), asyncio.timeout(PATIENCE):
        while await file_archive.runs.behind(limit=10):
            await asyncio.sleep(0.01)
    assert (await file_archive.runs.counts(now=0.0)) == {"completed": 5}


async def test_a_late_word_about_an_early_iteration_finds_its_row(archive: Archive, projector: Projector) -> None:
    early = [event for number in range(1, 6) for event in (started(number), completed(number))]
    told = records([*opening(), *early])
    await receive(archive, "run1", stored(told), now=START)
    await projector.settled("run1")
    late = ev.LandingCommitted(iteration_num=2, commit="c0ffee", branch="b", files_changed=1, message="m")
    told.append(Record(seq=len(told) + 1, at=START + 99, event=late))
    await receive(archive, "run1", stored(told[-1:]), now=START)
    await projector.settled("run1")
    second = (await archive.runs.iterations("run1"))[1]
    assert (second.number, second.commits, second.tries, second.outcome) == (2, ("c0ffee",), 1, "ok")
    assert second.cost_usd == pytest.approx(0.1)


async def test_several_servers_on_one_database_count_everything_once(archive: Archive) -> None:
    projectors = [Projector(archive, Fanout(archive), every=0.001) for _ in range(3)]
    told = control(night())
    late = ev.LandingCommitted(iteration_num=1, commit="c0ffee", branch="b", files_changed=1, message="m")
    told.append(Record(seq=told[-1].seq + 1, at=START + 999, event=late))
    async with AsyncExitStack() as held:
        for projector in projectors:
            await held.enter_async_context(projector.running())
        for record in told:
            await receive(archive, "run1", stored([record]), now=START)
            for projector in projectors:
                projector.touch("run1")
            await asyncio.sleep(0.002)
        await asyncio.gather(*(projector.settled("run1") for projector in projectors))
    assert state_of(await current(archive)) == fold(told)
    rows = await archive.runs.iterations("run1")
    assert [(row.tries, row.commits) for row in rows] == [(row.tries, row.commits) for row in iteration_rows(told)]
    assert [row.cost_usd for row in rows] == pytest.approx([row.cost_usd for row in iteration_rows(told)])


async def test_what_another_version_folded_is_folded_anew(archive: Archive, projector: Projector) -> None:
    told = control(night())
    await receive(archive, "run1", stored(told[:-1]), now=START)
    await projector.settled("run1")
    known = (await current(archive)).projection
    old = codec.encode_value(Folded(version="0.0.0", state=replace(fold(told[:-1]), attempts=77)))
    assert await archive.runs.project("run1", replace(known, state=old), [])
    await receive(archive, "run1", stored(told[-1:]), now=START)
    await projector.settled("run1")
    assert state_of(await current(archive)) == fold(told)
    rows = await archive.runs.iterations("run1")
    assert [row.cost_usd for row in rows] == pytest.approx([row.cost_usd for row in iteration_rows(told)])


@pytest.mark.parametrize("most", [10_000, pytest.param(100_000, marks=pytest.mark.soak)])
async def test_a_projection_costs_what_is_new(file_archive: Archive, most: int) -> None:
    """A hundred events on top of many thousand take about as long as on top of a hundred."""
    newest = {}
    projector = Projector(file_archive, Fanout(file_archive), every=0.001)
    async with projector.running():
        for run_id, size in (("short", 100), ("long", most)):
            told = stored(records(_a_long_run(size)))
            for start in range(0, len(told), 10_000):
                await receive(file_archive, run_id, told[start : start + 10_000], now=START)
            await projector.settled(run_id)
            newest[run_id] = told[-1]

        async def project(run_id: str) -> None:
            last = newest[run_id]
            news = [msgspec.structs.replace(last, seq=last.seq + n, at=last.at + n) for n in range(1, 101)]
            newest[run_id] = news[-1]
            await receive(file_archive, run_id, news, now=START)
            await projector.settled(run_id)

        await takes_at_most(3, partial(project, "long"), partial(project, "short"))


def _a_long_run(size: int) -> list[Event]:
    """Of so many events most are for eyes only, as in life."""
    events: list[Event] = opening()
    number = 0
    while len(events) < size:
        number += 1
        word = tr.AgentThinking(iteration_num=number, chars=number)
        events += [started(number), *[word] * min(98, size // 10), completed(number)]
    reply = tr.AgentReply(iteration_num=number + 1, message_id="m", model="m", usage=Usage(), cost_usd=0.001)
    return [*events, started(number + 1), reply]


class _Broken:
    """An archive whose runs cannot be read for a while."""

    def __init__(self, archive: Archive, failures: int) -> None:
        self._archive = archive
        self.failures = failures
        self.runs = self
        self.events = archive.events

    async def entry(self, run_id: str) -> RunEntry | None:
        if self.failures:
            self.failures -= 1
            raise OSError("the database is away")
        return await self._archive.runs.entry(run_id)

    def __getattr__(self, name: str) -> object:
        return getattr(self._archive.runs, name)


async def test_a_database_that_is_away_is_asked_again(file_archive: Archive) -> None:
    await receive(file_archive, "run1", stored(records(opening())), now=START)
    broken = _Broken(file_archive, failures=3)
    projector = Projector(broken, Fanout(file_archive), every=0.005)  # type: ignore[arg-type]
    async with projector.running(), asyncio.timeout(PATIENCE):
        await projector.settled("run1")
    assert broken.failures == 0
    assert (await current(file_archive)).projection.status == "running"


async def test_touching_often_projects_seldom(file_archive: Archive) -> None:
    told = stored(records(opening()))
    await receive(file_archive, "run1", told, now=START)
    counting = _Broken(file_archive, failures=0)
    asked = 0

    async def counted(run_id: str) -> RunEntry | None:
        nonlocal asked
        asked += 1
        return await file_archive.runs.entry(run_id)

    counting.entry = counted  # type: ignore[method-assign]
    projector = Projector(counting, Fanout(file_archive), every=0.2)  # type: ignore[arg-type]
    clock = asyncio.get_running_loop().time
    began = clock()
    async with projector.running():
        for _ in range(30):
            projector.touch("run1")
            await asyncio.sleep(0.01)
        meanwhile, took = asked, clock() - began
        await projector.settled("run1")
    assert asked >= 2
    assert meanwhile <= 2 + took / 0.2

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from functools import partial

import pytest
from msgspec.structs import replace as changed

from costs import takes_at_most
from patience import PATIENCE
from server.events_kit import BOX, many, start, told
from untildone.core.wire import Receipt
from untildone.errors import SenderRefused, ServeError
from untildone.server.archive.accepting import Offer
from untildone.server.archive.group_commit import Answer, Flush, GroupCommit, Lanes
from untildone.server.archive.opening import open_archive
from untildone.server.archive.port import Archive, EventFilter, RunFilter, Sender

pytestmark = pytest.mark.anyio


async def _seqs(archive: Archive, wanted: EventFilter, run_id: str = "run") -> list[int]:
    return [event.seq for event in await archive.events.read(run_id, wanted)]


# --- what is kept ------------------------------------------------------------------------------------


async def test_a_batch_that_comes_twice_changes_nothing(archive: Archive) -> None:
    first = await archive.events.receive(BOX, "run", many(1, 100), now=1.0)
    other = [changed(event, data='{"text": "another"}') for event in many(1, 100)]
    again = await archive.events.receive(BOX, "run", other, now=2.0)
    assert (first, again) == (Receipt(last_seq=100, stored=100), Receipt(last_seq=100, stored=0))
    assert await archive.events.read("run", EventFilter(after=0)) == many(1, 100)


async def test_events_come_back_as_they_were_sent(archive: Archive) -> None:
    sent = changed(
        told(2**53, kind="control", name="iteration.completed", data='{"x": "é\\u0000\\ud800 \U0001f40d"}', at=1.25),
        source="system",
        version=7,
    )
    await archive.events.receive(BOX, "run", [sent], now=1.0)
    assert await archive.events.event("run", 2**53) == sent
    assert await archive.events.event("run", 1) is None
    assert await archive.events.event("other", 2**53) is None


async def test_an_overlap_and_a_hole_are_filled(archive: Archive) -> None:
    await archive.events.receive(BOX, "run", [*many(1, 5), *many(9, 10)], now=1.0)
    receipt = await archive.events.receive(BOX, "run", [*many(4, 12), *many(11, 12)], now=1.0)
    assert receipt == Receipt(last_seq=12, stored=5)
    assert await _seqs(archive, EventFilter(after=0)) == list(range(1, 13))


async def test_two_receivers_of_one_run_at_once(archive: Archive) -> None:
    batches = [many(first, first + 19) for first in range(1, 200, 10)]
    receipts = await asyncio.gather(
        *(archive.events.receive(BOX, "run", batch, now=1.0) for batch in [*batches, *reversed(batches)])
    )
    assert sum(receipt.stored for receipt in receipts) == 210
    assert await archive.events.read("run", EventFilter(after=0, limit=500)) == many(1, 210)


async def test_two_server_processes_receive_one_run(postgres_url: str) -> None:
    archives = [await open_archive(postgres_url) for _ in range(3)]
    batches = [many(first, first + 19) for first in range(1, 400, 10)]
    runs = ("a", "b", "c")
    sent = [
        archives[(number + turn) % 3].events.receive(
            replace(BOX, after=0), runs[(number * 7 + turn) % 3], batch, now=1.0
        )
        for turn in range(3)
        for number, batch in enumerate(batches)
    ]
    receipts = await asyncio.gather(*sent)
    for run_id in runs:
        assert await archives[0].events.read(run_id, EventFilter(after=0, limit=1000)) == many(1, 410)
    assert sum(receipt.stored for receipt in receipts) == 3 * 410
    for archive in archives:
        await archive.close()


async def test_an_empty_batch_is_a_sign_of_life(archive: Archive) -> None:
    assert await archive.events.receive(BOX, "run", [], now=7.0) == Receipt(last_seq=0)
    await archive.events.receive(BOX, "run", [], now=9.0)
    await archive.events.receive(BOX, "run", [], now=8.0)
    entry = await archive.runs.entry("run")
    assert entry is not None
    assert (entry.created_at, entry.heard_at, entry.last_seq, entry.sandbox_id) == (7.0, 8.0, 0, "box")


async def test_facts_of_the_run_follow_its_events(archive: Archive) -> None:
    await archive.events.receive(BOX, "run", [told(1, kind="control"), told(2), told(3, kind="control")], now=1.0)
    await archive.events.receive(BOX, "run", [told(4), told(5)], now=2.0)
    entry = await archive.runs.entry("run")
    assert entry is not None
    assert (entry.last_seq, entry.control_seq, entry.origin, entry.tenure) == (5, 3, "worker", 0)


# --- whose events they are ---------------------------------------------------------------------------


async def _refused(sent: Awaitable[Receipt]) -> SenderRefused:
    with pytest.raises(SenderRefused) as refused:
        await sent
    return refused.value


async def test_a_run_belongs_to_the_sandbox_it_came_from(archive: Archive) -> None:
    receive = archive.events.receive
    await receive(BOX, "run", many(1, 3), now=1.0)
    strangers = [Sender(sandbox_id="other"), replace(BOX, origin="local"), Sender(sandbox_id="other", tenure=9)]
    for stranger in strangers:
        refused = await _refused(receive(stranger, "run", many(4, 6), now=5.0))
        assert not refused.taken
    entry = await archive.runs.entry("run")
    assert entry is not None
    assert (entry.last_seq, entry.heard_at, entry.tenure) == (3, 1.0, 0)


async def test_a_refused_batch_does_not_spoil_those_committed_with_it(archive: Archive) -> None:
    await archive.events.receive(BOX, "run", many(1, 3), now=1.0)
    answers = await asyncio.gather(
        archive.events.receive(BOX, "run", many(4, 6), now=1.0),
        archive.events.receive(Sender(sandbox_id="other"), "run", many(4, 9), now=1.0),
        archive.events.receive(Sender(sandbox_id="other"), "theirs", many(1, 2), now=1.0),
        return_exceptions=True,
    )
    assert [type(answer) for answer in answers] == [Receipt, SenderRefused, Receipt]
    assert await _seqs(archive, EventFilter(after=0)) == [1, 2, 3, 4, 5, 6]


async def test_whoever_was_replaced_is_told_so(archive: Archive) -> None:
    receive = archive.events.receive
    await receive(BOX, "run", many(1, 3), now=1.0)
    assert await archive.runs.take_over("run", sandbox_id="new", tenure=0) == 1
    refused = await _refused(receive(BOX, "run", many(4, 6), now=2.0))
    assert refused.taken
    assert await receive(Sender(sandbox_id="new", tenure=1), "run", many(4, 5), now=2.0) == Receipt(
        last_seq=5, stored=2
    )
    assert (await _refused(receive(Sender(sandbox_id="new"), "run", [], now=2.0))).taken


async def test_a_worker_cannot_sit_in_the_place_of_published_events(archive: Archive) -> None:
    answers = await asyncio.gather(
        archive.events.receive(BOX, "published-victim", many(1, 1), now=1.0),
        archive.events.publish("victim", [told(0)], now=1.0),
        return_exceptions=True,
    )
    assert isinstance(answers[0], SenderRefused)
    assert answers[1] == Receipt(last_seq=1, stored=1)


async def test_published_events_are_numbered_here_as_trace(archive: Archive) -> None:
    sent = [told(0, kind="control", name=f"iteration.{number}") for number in range(40)]
    receipts = await asyncio.gather(*(archive.events.publish("box", [event], now=1.0) for event in sent))
    assert sorted(receipt.last_seq for receipt in receipts) == list(range(1, 41))
    kept = await archive.events.read("published-box", EventFilter(after=0))
    assert [(event.seq, event.kind) for event in kept] == [(seq, "trace") for seq in range(1, 41)]
    assert {event.type for event in kept} == {event.type for event in sent}
    entry = await archive.runs.entry("published-box")
    assert entry is not None
    assert (entry.origin, entry.last_seq, entry.control_seq) == ("published", 40, 0)


async def test_text_that_no_database_can_hold_is_mended(archive: Archive) -> None:
    hostile = told(1, name="agent.\0odd\ud800", data='{"a": "b\0c\udfff"}', at=float("nan"))
    await archive.events.receive(BOX, "run", [hostile], now=1.0)
    kept = await archive.events.event("run", 1)
    assert kept is not None
    assert (kept.type, kept.data, kept.at) == ("agent.\ufffdodd?", '{"a": "b\ufffdc?"}', 0.0)


async def test_what_cannot_be_stored_at_all_is_refused_alone(archive: Archive) -> None:
    answers = await asyncio.gather(
        archive.events.receive(BOX, "good", many(1, 3), now=1.0),
        archive.events.receive(BOX, "bad", [told(2**70)], now=1.0),
        return_exceptions=True,
    )
    assert answers[0] == Receipt(last_seq=3, stored=3)
    assert isinstance(answers[1], SenderRefused)
    assert await archive.runs.entry("bad") is None


async def test_who_asks_and_goes_does_not_stop_the_others(archive: Archive) -> None:
    gone = [asyncio.create_task(archive.events.receive(BOX, "run", many(1, 5), now=1.0)) for _ in range(3)]
    stays = asyncio.create_task(archive.events.receive(BOX, "run", many(6, 9), now=1.0))
    await asyncio.sleep(0)
    for task in gone:
        task.cancel()
    assert (await stays).last_seq == 9


async def test_what_waits_is_committed_before_the_archive_is_closed(archive_url: str) -> None:
    archive = await open_archive(archive_url)
    sent = [asyncio.create_task(archive.events.receive(BOX, f"run{n}", many(1, 50), now=1.0)) for n in range(20)]
    await asyncio.sleep(0)
    await archive.close()
    assert {(await task).stored for task in sent} == {50}
    with pytest.raises(ServeError, match="closing"):
        await archive.events.receive(BOX, "run", [], now=1.0)
    again = await open_archive(archive_url)
    assert len(await again.runs.entries(RunFilter())) == 20
    await again.close()


async def test_requests_that_wait_are_committed_together() -> None:
    groups: list[int] = []
    begin = asyncio.Event()

    async def flush(offers: list) -> list:  # type: ignore[type-arg]
        await begin.wait()
        groups.append(len(offers))
        return [Receipt(last_seq=0) for _ in offers]

    group = GroupCommit(flush)
    offers = [Offer(sender=BOX, run_id="run", events=[], now=1.0) for _ in range(50)]
    first = asyncio.create_task(group.keep(offers[0]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    others = [asyncio.create_task(group.keep(offer)) for offer in offers[1:]]
    await asyncio.sleep(0)
    begin.set()
    await asyncio.gather(first, *others)
    await group.close()
    assert groups == [1, 49]


async def test_lanes_work_side_by_side_and_a_run_keeps_to_its_own() -> None:
    both = asyncio.Barrier(2)
    runs: list[set[str]] = [set(), set()]

    def flush_of(lane: int) -> Flush:
        async def flush(offers: list[Offer]) -> list[Answer]:
            runs[lane].update(offer.run_id for offer in offers)
            await both.wait()  # nobody goes on alone: both are at work at one moment
            return [Receipt(last_seq=0) for _ in offers]

        return flush

    lanes = Lanes([flush_of(0), flush_of(1)])
    for _ in range(3):
        offers = [Offer(sender=BOX, run_id=f"run{n}", events=[], now=1.0) for n in range(20)]
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*(lanes.keep(offer) for offer in offers))
    await lanes.close()
    assert not runs[0] & runs[1]
    assert len(runs[0] | runs[1]) == 20


# --- reading -----------------------------------------------------------------------------------------


async def test_pages_both_ways(archive: Archive) -> None:
    await archive.events.receive(BOX, "run", many(1, 25), now=1.0)
    forwards, after = [], 0
    while page := await _seqs(archive, EventFilter(after=after, limit=10)):
        forwards.append(page)
        after = page[-1]
    backwards, before = [], 2**53
    while page := await _seqs(archive, EventFilter(before=before, limit=10)):
        backwards.append(page)
        before = page[0]
    assert forwards == [list(range(1, 11)), list(range(11, 21)), list(range(21, 26))]
    assert backwards == [list(range(16, 26)), list(range(6, 16)), list(range(1, 6))]
    assert await _seqs(archive, EventFilter(after=3, before=6)) == [4, 5]
    assert await _seqs(archive, EventFilter(limit=2)) == [1, 2]
    assert await _seqs(archive, EventFilter(), "nobody's") == []


async def test_numbers_beyond_all_bounds_are_only_very_large(archive: Archive) -> None:
    await archive.events.receive(BOX, "run", many(1, 3), now=1.0)
    assert await _seqs(archive, EventFilter(before=10**30, limit=10**30)) == [1, 2, 3]
    assert await _seqs(archive, EventFilter(after=-(10**30), limit=-5)) == [1]
    assert await _seqs(archive, EventFilter(after=10**30)) == []
    assert await _seqs(archive, EventFilter(iteration=10**30)) == []
    assert await archive.events.event("run", 10**30) is None
    assert await archive.orders.after("run", 10**30, now=1.0) == []
    assert await archive.runs.iterations("run", before=10**30, limit=10**30) == []
    assert await archive.runs.take_over("run", sandbox_id="x", tenure=10**30) is None


async def test_filters_by_kind_and_type(archive: Archive) -> None:
    types = [
        "agent.tool_use",
        "agent.file_edited",
        "iteration.files_changed",
        "agentic.other",
        "Agent.tool_use",
        "agent.",
    ]
    sent = [told(seq, name=name, kind="control" if seq == 3 else "trace") for seq, name in enumerate(types, 1)]
    await archive.events.receive(BOX, "run", sent, now=1.0)
    assert await _seqs(archive, EventFilter(types=("agent.*",))) == [1, 2, 6]
    assert await _seqs(archive, EventFilter(types=("agent.file_edited", "iteration.files_changed"))) == [2, 3]
    assert await _seqs(archive, EventFilter(types=("agent.file_edited",))) == [2]
    assert await _seqs(archive, EventFilter(types=("agentic.*", "agent.tool_use"))) == [1, 4]
    assert await _seqs(archive, EventFilter(kind="control")) == [3]
    assert await _seqs(archive, EventFilter(kind="trace", types=("iteration.*",))) == []
    assert await _seqs(archive, EventFilter(kind="control", types=("iteration.files_changed",))) == [3]
    assert await _seqs(archive, EventFilter(types=("%.*", "agent.\0"))) == []


async def test_filters_by_text_in_the_payload(archive: Archive) -> None:
    payloads = ['{"t": "50% of it"}', '{"t": "50 parts of it"}', '{"t": "say \\"hi\\" a_b"}', '{"t": "axb C:\\\\x"}']
    await archive.events.receive(BOX, "run", [told(seq, data=data) for seq, data in enumerate(payloads, 1)], now=1.0)
    assert await _seqs(archive, EventFilter(text="50% OF")) == [1]
    assert await _seqs(archive, EventFilter(text='"HI"')) == [3]
    assert await _seqs(archive, EventFilter(text="a_b")) == [3]
    assert await _seqs(archive, EventFilter(text="c:\\x")) == [4]
    assert await _seqs(archive, EventFilter(text="of it", before=99, limit=1)) == [2]
    assert await _seqs(archive, EventFilter(text="\0nothing")) == []


async def test_filters_by_iteration(archive: Archive) -> None:
    sent = [told(1), start(2, 1), told(3), start(4, 1), told(5), start(6, 2), told(7), start(8, 1), told(9)]
    await archive.events.receive(BOX, "run", sent, now=1.0)
    assert await _seqs(archive, EventFilter(iteration=0)) == [1]
    assert await _seqs(archive, EventFilter(iteration=1)) == [2, 3, 4, 5, 8, 9]
    assert await _seqs(archive, EventFilter(iteration=1, before=9, kind="trace")) == [3, 5]
    assert await _seqs(archive, EventFilter(iteration=2)) == [6, 7]
    assert await _seqs(archive, EventFilter(iteration=3)) == []


async def test_a_start_without_a_sane_number_starts_nothing(archive: Archive) -> None:
    odd = [
        "[]",
        '{"iteration_num": "1"}',
        '{"iteration_num": 1e400}',
        "nonsense",
        '{"iteration_num": -99999999999999999999}',
    ]
    sent = [told(seq, name="iteration.started", data=data) for seq, data in enumerate(odd, 1)]
    assert (await archive.events.receive(BOX, "run", sent, now=1.0)).stored == 5
    assert await _seqs(archive, EventFilter(iteration=1)) == []


@pytest.mark.parametrize("most", [10_000, pytest.param(100_000, marks=pytest.mark.soak)])
async def test_a_long_run_opens_as_fast_as_one_of_100_events(archive: Archive, most: int) -> None:
    def edit(seq: int, last: int) -> bool:
        return seq in {last // 3, last // 2}

    for run_id, last in (("small", 100), ("large", most)):
        for first in range(1, last, 1000):
            batch = many(first, min(first + 999, last), control_every=last // 20)
            batch = [changed(event, type="agent.file_edited") if edit(event.seq, last) else event for event in batch]
            batch[0] = start(first, first // 1000 + 1)
            await archive.events.receive(BOX, run_id, batch, now=1.0)
    looks: tuple[EventFilter, ...] = (
        EventFilter(before=2**53, limit=50),
        EventFilter(after=0, kind="control", limit=20),
        EventFilter(before=2**53, types=("agent.file_edited", "iteration.files_changed"), limit=10),
        EventFilter(iteration=1, limit=50),
    )
    for wanted in looks:
        small, large = (partial(archive.events.read, run_id, wanted) for run_id in ("small", "large"))
        await takes_at_most(4, large, small)
    assert len(await archive.events.read("large", looks[2])) == 2


# --- removing ----------------------------------------------------------------------------------------


async def test_trim_removes_old_trace_and_never_control(archive: Archive) -> None:
    sent = [told(seq, at=100.0 + seq, kind="control" if seq % 5 == 0 else "trace") for seq in range(1, 21)]
    await archive.events.receive(BOX, "run", sent, now=200.0)
    assert await archive.events.overgrown(before=111.0, keep_bytes=10**9, limit=9) == []  # it came only now
    trim = archive.events.trim
    assert await trim("run", before=111.0, keep_bytes=10**9, most=3) == 3
    assert await trim("run", before=111.0, keep_bytes=10**9, most=100) == 5
    assert await trim("run", before=111.0, keep_bytes=10**9, most=100) == 0
    assert await _seqs(archive, EventFilter()) == [5, 10, *range(11, 21)]
    entry = await archive.runs.entry("run")
    assert entry is not None
    assert entry.trimmed_seq == 9
    assert await trim("nobody's", before=111.0, keep_bytes=0, most=100) == 0


async def test_trim_keeps_so_many_bytes(archive: Archive) -> None:
    sent = [told(seq, data='{"x": "' + "y" * 91 + '"}') for seq in range(1, 21)]
    await archive.events.receive(BOX, "run", sent, now=5.0)
    await archive.events.receive(BOX, "run", sent, now=5.0)
    await archive.events.receive(BOX, "other", [told(1)], now=5.0)
    assert await archive.events.overgrown(before=0.0, keep_bytes=1000, limit=9) == ["run"]
    assert await archive.events.trim("run", before=0.0, keep_bytes=1000, most=100) == 10
    assert await archive.events.overgrown(before=0.0, keep_bytes=1000, limit=9) == []
    assert await _seqs(archive, EventFilter()) == list(range(11, 21))


async def test_what_was_trimmed_does_not_come_back(archive: Archive) -> None:
    sent = [told(1), told(2, kind="control"), told(3)]
    await archive.events.receive(BOX, "run", sent, now=5.0)
    assert await archive.events.trim("run", before=3.0, keep_bytes=10**9, most=100) == 1
    assert (await archive.events.receive(BOX, "run", sent, now=5.0)).stored == 0
    assert await _seqs(archive, EventFilter()) == [2, 3]


async def test_trace_of_a_run_nobody_hears_of_is_old_whatever_its_clock_said(archive: Archive) -> None:
    await archive.events.receive(BOX, "run", [told(1, at=9e9), told(2, kind="control")], now=5.0)
    assert await archive.events.overgrown(before=50.0, keep_bytes=10**9, limit=9) == ["run"]
    assert await archive.events.trim("run", before=50.0, keep_bytes=10**9, most=100) == 1
    assert await archive.events.overgrown(before=50.0, keep_bytes=10**9, limit=9) == []


async def test_an_old_beginning_of_a_run_that_goes_on_is_overgrown(archive: Archive) -> None:
    await archive.events.receive(BOX, "run", [told(1, at=5.0), told(2, at=60.0)], now=5.0)
    await archive.events.receive(BOX, "run", [], now=60.0)
    assert await archive.events.overgrown(before=50.0, keep_bytes=10**9, limit=9) == ["run"]
    assert await archive.events.trim("run", before=50.0, keep_bytes=10**9, most=100) == 1
    assert await archive.events.overgrown(before=50.0, keep_bytes=10**9, limit=9) == []

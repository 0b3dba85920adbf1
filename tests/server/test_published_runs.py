"""Runs of programs that speak the published endpoints only: guessed from payloads that nobody checked."""

import json
import random
from typing import Any

import pytest

from server.archive_kit import HandClock
from untildone.core.history import IterationRow
from untildone.core.stopping import Reason
from untildone.server.archive.port import Archive, Projection, StoredEvent, published_run
from untildone.server.fanout import Fanout
from untildone.server.projecting import Projector, seen, state_of
from untildone.server.published import named_iterations, published_projection

NOW = HandClock().now()


def event(seq: int, type_name: str, **data: Any) -> StoredEvent:
    return raw(seq, type_name, json.dumps(data))


def raw(seq: int, type_name: str, data: str) -> StoredEvent:
    return StoredEvent(
        seq=seq, at=NOW + 10 * seq, kind="trace", type=type_name, source="worker", version=1, data=data
    )  # fmt: skip


LIMITS = {"max_runs": 4, "max_cost_usd": 10.0, "max_duration_seconds": None}
STORY = [
    event(1, "agent.started", task_id="t", sandbox_id="box"),
    event(2, "continuous.started", goal="port\nthe parser", limits=LIMITS, completion_threshold=3),
    event(3, "iteration.started", iteration_num=1, prompt_preview="## GOAL", successful_iterations=0),
    event(
        4, "iteration.completed", iteration_num=1, cost_usd=1.5, output_preview="did it", total_cost_usd=1.5,
        successful_iterations=1,
    ),
    event(5, "iteration.started", iteration_num=2, successful_iterations=1, total_cost_usd=1.5),
    event(6, "iteration.failed", iteration_num=2, error="no result", error_type="no_result", retry_allowed=True),
    event(7, "iteration.started", iteration_num=3),
    event(8, "iteration.completed", iteration_num=3, cost_usd=None, total_cost_usd=2.0, successful_iterations=2),
    event(9, "iteration.completion_signal", iteration_num=3, signal_count=3, threshold=3),
    event(10, "iteration.validation", iteration_num=3, passed=True),
    event(11, "continuous.completed", stop_reason="completion_signal", total_cost_usd=2.0),
]  # fmt: skip


def told(events: list[StoredEvent]) -> tuple[Projection, dict[int, IterationRow]]:
    projection, rows = published_projection(events, Projection(name="box"), {})
    return projection, {row.number: row for row in rows}


def test_the_story_of_a_published_worker() -> None:
    early, _ = told(STORY[:4])
    assert (early.status, early.goal, early.attempts, early.successes) == ("running", "port the parser", 1, 1)
    assert early.cost_usd == pytest.approx(1.5)
    assert early.progress == pytest.approx(0.25)
    end, rows = told(STORY)
    assert (end.status, end.success, end.verified, end.progress) == ("completed", True, False, 1.0)
    assert end.why.startswith("Done: by the agent's word")
    assert (end.attempts, end.successes, end.cost_usd) == (3, 2, 2.0)
    assert [row.outcome for row in rows.values()] == ["ok", "no_result", "ok"]
    assert (rows[1].summary, rows[1].cost_usd, rows[1].seconds) == ("did it", 1.5, 10.0)
    assert (rows[2].error, rows[2].faults) == ("no result", ("no_result",))
    assert (rows[3].claim, rows[3].verdict, rows[3].unknown_costs) == ("done", "passed", 1)


@pytest.mark.parametrize("seed", range(3))
def test_in_pieces_it_is_the_same_story(seed: int) -> None:
    pieces = random.Random(seed)
    projection, rows, rest = Projection(name="box"), dict[int, IterationRow](), STORY
    while rest:
        size = pieces.randint(1, 3)
        piece, rest = rest[:size], rest[size:]
        known = {number: rows[number] for number in named_iterations(piece) if number in rows}
        projection, changed = published_projection(piece, projection, known)
        rows |= {row.number: row for row in changed}
    assert (projection, rows) == told(STORY)


@pytest.mark.parametrize(
    "reason", ["max_cost_reached", "shutdown_signal", "consecutive_errors", "unknown", "\x1b[31mx"]
)
def test_a_stop_that_is_no_success_says_why(reason: str) -> None:
    end, _ = told([*STORY[:4], event(5, "continuous.completed", stop_reason=reason)])
    assert (end.status, end.success) == ("suspended", False)
    assert end.why.startswith("Stopped: ")
    assert "\x1b" not in end.why + end.phase


def test_a_sandbox_can_be_used_again() -> None:
    again, _ = told([*STORY, event(12, "continuous.started", goal="next", limits={})])
    assert (again.goal, again.status, again.attempts, again.cost_usd) == ("next", "running", 0, 0.0)
    assert (again.success, again.progress) == (False, None)


def test_a_worker_without_a_loop_is_shown_too() -> None:
    waiting, _ = told([event(1, "agent.started"), event(2, "agent.waiting")])
    assert (waiting.status, waiting.why) == ("waiting", "It waits for a message.")
    ended, _ = told([event(1, "agent.started"), event(2, "agent.completed"), event(3, "agent.shutdown")])
    assert ended.status == "completed"
    broken, _ = told([event(1, "agent.started"), event(2, "agent.error", error="key\nrefused")])
    assert (broken.status, broken.why) == ("suspended", "The agent met an error: key refused")


WRONG = [
    None,
    True,
    -1,
    0,
    1e308,
    10**400,
    "1",
    "\0\x1b[31m",
    "x" * 100_000,
    [],
    {},
    [1],
    {"max_runs": []},
    float("1e9"),
]
NAMES = [
    "iteration_num", "cost_usd", "total_cost_usd", "successful_iterations", "goal", "limits", "stop_reason", "error",
    "error_type", "output_preview", "passed",
]  # fmt: skip


@pytest.mark.parametrize(
    "type_name", sorted({one.type for one in STORY} | {"agent.error", "continuous.x", "iteration.x"})
)
def test_any_value_may_be_of_any_kind(type_name: str) -> None:
    events = [
        event(n, type_name, **{name: value}) for n, (name, value) in enumerate((n, v) for n in NAMES for v in WRONG)
    ]
    events += [event(900, type_name, iteration_num=1, **{name: value}) for name in NAMES[1:] for value in WRONG]
    events += [
        raw(1000, type_name, data) for data in ("", "{", "[]", "7", '"x"', "[" * 100_000, '{"iteration_num": NaN}')
    ]
    projection, rows = told(events)
    assert 0 <= projection.cost_usd <= 1e12
    assert 0 <= projection.attempts < 2**31
    assert projection.progress is None or 0 <= projection.progress <= 1
    assert len(projection.goal) <= 501
    assert all(0 <= number < 2**31 and row.cost_usd >= 0 for number, row in rows.items())
    assert "\0" not in projection.goal + projection.why + "".join(row.error + row.summary for row in rows.values())


@pytest.mark.anyio
async def test_a_published_run_is_projected_where_it_is_kept(archive: Archive) -> None:
    projector = Projector(archive, Fanout(archive), every=0.01)
    run_id = published_run("box")
    async with projector.running():
        for one in STORY:
            noise = event(0, "agent.tool_result", text="x" * 100, iteration_num=7)
            await archive.events.publish("box", [one, noise], now=NOW)
            await projector.settled(run_id)
    entry = await archive.runs.entry(run_id)
    assert entry is not None
    assert (entry.projection.name, entry.projection.status) == ("box", "completed")
    assert entry.projection.folded_seq == entry.last_seq == 2 * len(STORY)
    assert await archive.runs.behind(limit=10) == []
    assert [row.number for row in await archive.runs.iterations(run_id)] == [1, 2, 3]
    assert state_of(entry).phase == "new"
    assert seen(entry, NOW + 10_000).status == "completed"


def test_reasons_that_are_done_are_known() -> None:
    end, _ = told([event(1, "continuous.completed", stop_reason=Reason.VALIDATION_PASSED)])
    assert end.success

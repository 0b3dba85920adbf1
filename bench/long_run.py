"""Long runs, made quickly: real events through the real journal and store, as a driver would leave them."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from untildone.core import events as ev
from untildone.core import trace as tr
from untildone.core.beginning import beginning
from untildone.core.claims import Claim, Report
from untildone.core.outcome import Evidence, Usage
from untildone.core.policy import Policy, RunSpec
from untildone.engine.journal import SNAPSHOT_EVERY, Journal
from untildone.store.sqlite import SqliteLog
from untildone.wiring import STORE_FILE

RUN = "longrun00001"
TRACE_BATCH = 10_000
_MINUTE = 60.0
_EVENTS_AN_ITERATION = 5


class SteadyClock:
    """Time that goes on by itself: one iteration a minute, however quickly they are written."""

    def __init__(self) -> None:
        self.minutes = 0.0

    def now(self) -> float:
        return 1_700_000_000.0 + self.minutes * _MINUTE

    def monotonic(self) -> float:
        return self.now()

    async def sleep(self, seconds: float) -> None:
        self.minutes += seconds / _MINUTE


async def write_run(folder: Path, *, control: int, trace: int = 0) -> None:
    """Write a run of so many control events, the trace events spread among them, and stop being its driver."""
    clock = SteadyClock()
    log = SqliteLog(folder / STORE_FILE, clock)
    try:
        lease = await log.acquire(RUN, name="long", folder=str(folder))
        journal = Journal(log, lease, clock)
        await journal.open()
        for number in journal_steps(control):
            await journal.record(*islice(_events(journal.state.last_seq), number))
            clock.minutes += number / _EVENTS_AN_ITERATION
        for _ in range(0, trace, TRACE_BATCH):
            await log.append(RUN, trace_events(min(trace, TRACE_BATCH)), lease=lease)
        await log.release(lease, status=journal.state.phase)
    finally:
        await log.close()


def journal_steps(control: int) -> Iterator[int]:
    """How many events to record at once, so that the last snapshot is as old as it can ever be."""
    tail = min(control, SNAPSHOT_EVERY - 1)
    whole, first = divmod(control - tail, SNAPSHOT_EVERY)
    yield from (number for number in (first, *[SNAPSHOT_EVERY] * whole, tail) if number)


def control_events(count: int) -> list[ev.Event]:
    """The first control events of a run."""
    return list(islice(_events(0), count))


def trace_events(count: int) -> list[ev.Event]:
    """What an agent's tools did, for eyes."""
    return list(islice(_trace(), count))


def _events(written: int) -> Iterator[ev.Event]:
    """The control events of a run that never ends, from the one after `written` on."""
    spec = RunSpec(goal="Make the parser pass its tests. " * 10, cwd="/", name="long")
    opening = (
        beginning(RUN, spec, Policy(max_cost_usd=500.0)),
        ev.ContinuousResumed(pid=1, host="here", version="0", lease=1),
    )
    yield from opening[written:]
    place = max(0, written - len(opening))
    number, within = divmod(place, _EVENTS_AN_ITERATION)
    yield from _iteration(number + 1)[within:]
    while True:
        number += 1
        yield from _iteration(number + 1)


def _iteration(number: int) -> tuple[ev.Event, ...]:
    usage = Usage(1200, 340, 18_000, 900)
    message, session = f"msg_{number:024d}", f"df333391-15d7-40d7-9a8e-{number:012d}"
    model = "claude-opus-5-5"
    report = Report(tasks_completed=1, files_modified=2, tests_status="PASSING", summary=f"step {number} of the parser")
    evidence = Evidence(changed=True, files_changed=2, tree=f"{number:064x}", activity=(f"{number:016x}",) * 12)
    return (
        ev.IterationStarted(iteration_num=number, prompt_preview="Make the parser pass its tests. " * 5),
        tr.AgentSession(iteration_num=number, session_id=session, model=model),
        tr.AgentReplyStarted(iteration_num=number, message_id=message, model=model, usage=usage, cost_usd=0.01),
        tr.AgentReply(iteration_num=number, message_id=message, model=model, usage=usage, cost_usd=0.02),
        ev.IterationCompleted(
            iteration_num=number,
            cost_usd=0.02,
            session_id=session,
            output_preview="The tokenizer keeps the last byte now. " * 10,
            usage=usage,
            duration_seconds=55.0,
            claim=Claim(form="report", report=report),
            evidence=evidence,
        ),
    )


def _trace() -> Iterator[ev.Event]:
    while True:
        yield tr.AgentToolUse(iteration_num=1, tool="Bash", tool_use_id="toolu_01", detail="pytest -q tests/parser")
        yield tr.AgentToolResult(iteration_num=1, tool_use_id="toolu_01", text="12 passed in 0.31s\n" * 3)

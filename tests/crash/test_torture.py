"""kill -9 at random moments, again and again, on the real Claude Code: the books stay right and no work is lost."""

import asyncio
import json
import random
import signal
import time
from pathlib import Path

import pytest

from crash.crash_kit import check_books
from e2e.kit import Stage, price, staged, working
from processes import living_of
from untildone import wiring
from untildone.core import events as ev
from untildone.core.fold import fold
from untildone.core.state import LoopState
from untildone.rehearsal.scenario import Reply, Scenario, ToolCall

pytestmark = pytest.mark.claude

MOST_REPLIES = 6
"""A driver dies at the latest in its third iteration."""
LATEST = 0.2
"""Seconds after the chosen reply: enough for it to be read, booked, and acted upon, or for any part of that."""

APPENDS = ToolCall(name="Bash", input={"command": "echo {n} >> work.txt"})
ROUND = (
    Reply(text="Working.", tools=(APPENDS,), input_tokens=3000, output_tokens=200),
    Reply(text="Again.", tools=(APPENDS,), input_tokens=4000, output_tokens=50, chunk_delay=0.01),
    Reply(text=working("Round {i}.", tasks=1), input_tokens=5000, output_tokens=300, chunk_delay=0.01),
)
ENDLESS = Scenario(name="endless", iterations=(ROUND,))


def command(most: int) -> tuple[str, ...]:
    return (
        "run", "keep at it", "-m", str(most), "--name", "tortured", "--allowed-tools", "Bash", "--loop-delay", "0.1s",
        "--json",
    )  # fmt: skip


def live_a_while(stage: Stage, chance: random.Random) -> None:
    """Start the product and kill it at a random moment around a random reply, or before any."""
    served = len(stage.model.ledger.lines)
    driver = stage.popen(*command(100_000))
    try:
        if more := chance.randrange(MOST_REPLIES + 1):
            stage.model.ledger.wait_for(served + more, timeout=60)
            time.sleep(chance.uniform(0, LATEST))
        else:
            time.sleep(chance.uniform(0, 10 * LATEST))
    finally:
        driver.send_signal(signal.SIGKILL)
        said = driver.communicate()
    assert driver.returncode == -signal.SIGKILL, said


def story_of(stage: Stage) -> list[ev.Record]:
    async def read() -> list[ev.Record]:
        log = wiring.open_log(stage.tmp / "state", wiring.system_clock())
        try:
            (run,) = [row for row in await log.runs() if await log.read(row.run_id, limit=1)]
            return await log.read(run.run_id)
        finally:
            await log.close()

    return asyncio.run(read())


def books(stage: Stage, events: list[ev.Event], state: LoopState) -> str:
    served = {line.message_id: price(line) for line in stage.model.ledger.served() if line.kind == "main"}
    unseen = check_books(served, events, state)
    # On a machine so busy that Claude does not get to hear a reply for a second, it stays an estimate.
    assert unseen <= len(served) // 20, "Claude's last words were not kept"
    return f"{len(served)} replies served, none lost or doubled; {unseen} estimated or unknown"


def check_iterations(stage: Stage, events: list[ev.Event], state: LoopState) -> str:
    started = [(event.iteration_num, event.retry) for event in events if isinstance(event, ev.IterationStarted)]
    closed = [event for event in events if isinstance(event, ev.IterationCompleted | ev.IterationFailed)]
    assert [number for number, _ in started] == list(range(1, len(started) + 1))
    assert [event.iteration_num for event in closed] == [number for number, _ in started]
    assert {event.error_type for event in closed if isinstance(event, ev.IterationFailed)} <= {"driver_died"}
    commits = stage.git("log", "--reverse", "--format=%H %s", "HEAD").splitlines()[1:]
    landed = [event.commit for event in events if isinstance(event, ev.LandingCommitted)]
    assert landed == [line.split(" ", 1)[0] for line in commits]
    assert len({line.split(" ", 1)[1] for line in commits}) == len(commits), "the same work was committed twice"
    assert len(commits) == state.successes
    return f"{len(started)} iterations, {state.successes} of them whole"


def torture(tmp: Path, kills: int, seed: int) -> str:
    chance = random.Random(seed)
    with staged(tmp, ENDLESS) as stage:
        for _ in range(kills):
            live_a_while(stage, chance)
        last = stage.here(*command(1))
        result = json.loads(last.stdout)
        assert result["exit_reason"] == "max_runs_reached", last
        records = story_of(stage)
        events, state = [record.event for record in records], fold(records)
        assert living_of(result["run_id"]) == [], "orphans"
        written = (stage.repo / "work.txt").read_text().split()
        assert len(set(written)) == len(written), "a tool call was made twice"
        return f"{kills} kills: {books(stage, events, state)}; {check_iterations(stage, events, state)}; 0 orphans"


def test_three_kills_at_random_moments(tmp_path: Path) -> None:
    print(torture(tmp_path, 3, seed=15))


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(4))
def test_two_hundred_kills_at_random_moments(tmp_path: Path, seed: int) -> None:
    """Fifty each, so that several processes can share them."""
    print(torture(tmp_path, 50, seed=1000 + seed))

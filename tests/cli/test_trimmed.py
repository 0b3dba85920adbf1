"""What people see of a run whose older details are gone."""

import asyncio
import json
from pathlib import Path

import pytest

from cli.cli_kit import DONE, FIRST, Runs, Say
from untildone.core.codec import encode
from untildone.core.trace import AgentMessage
from untildone.engine.clock import SystemClock
from untildone.store.sqlite import SqliteLog
from untildone.store.trim import ROW_BYTES

WORDS = tuple(AgentMessage(iteration_num=1, text=f"word {n}") for n in range(10))


@pytest.fixture
def trimmed(runs: Runs, project: Path) -> None:
    """A run of which seven words are gone."""
    runs.begin(project, FIRST[0], *WORDS, FIRST[1], DONE, status="completed")

    async def trim() -> None:
        log = SqliteLog(runs.path, SystemClock())
        lease = await log.acquire("abc123def456", name="night", folder=str(project))
        three = 3 * (len(encode(WORDS[0])) + ROW_BYTES)
        assert await log.trim_trace(lease, keep_bytes=three, keep_seconds=1e9) == 7
        await log.release(lease, status="completed")
        await log.close()

    asyncio.run(trim())


def test_the_log_says_that_older_details_are_gone(say: Say, trimmed: None) -> None:
    said = say("log", "-v").out.splitlines()
    assert "7 older details trimmed" in said[0]
    assert [f"word {n}" in "\n".join(said) for n in range(10)] == [False] * 7 + [True] * 3
    assert "trimmed" not in say("log").out, "nothing of that is gone"


def test_programs_see_the_gap_in_the_numbers(say: Say, trimmed: None) -> None:
    seqs = [json.loads(line)["seq"] for line in say("log", "-v", "--json").out.splitlines()]
    assert seqs == [1, 2, 3, 11, 12, 13, 14, 15]


@pytest.mark.parametrize("command", [("brief",), ("replay",), ("status", "--json"), ("attach",), ("log",)])
def test_everything_else_is_as_it_was(say: Say, runs: Runs, project: Path, command: tuple[str, ...]) -> None:
    runs.begin(project, FIRST[0], *WORDS, FIRST[1], DONE, status="completed")
    before = say(*command)

    async def trim() -> int:
        log = SqliteLog(runs.path, SystemClock())
        lease = await log.acquire("abc123def456", name="night", folder=str(project))
        removed = await log.trim_trace(lease, keep_bytes=0, keep_seconds=0)
        await log.release(lease, status="completed")
        await log.close()
        return removed

    assert asyncio.run(trim()) == 10
    assert say(*command) == before
    assert before.code == 0


def test_a_run_that_died_between_its_last_word_and_the_list_is_done(say: Say, runs: Runs, project: Path) -> None:
    runs.begin(project, *FIRST, DONE, status="running")
    assert "done by the agent's word" in say("ls").out
    assert "interrupted" not in say("ls").out
    assert [row["status"] for row in json.loads(say("ls", "--json").out)] == ["completed"]
    assert "interrupted" not in say("status").out
    assert "no interrupted runs" in say("resume", "--interrupted").out

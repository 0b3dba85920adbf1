"""On the real Claude Code in a sandbox: what the door keeps, counts and passes on."""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from e2e.kit import Stage, finished, price, staged, working
from patience import eventually
from processes import living_of
from untildone.rehearsal.scenario import Reply, Scenario, ToolCall

pytestmark = pytest.mark.claude

RUN = ("run", "live in a box", "--name", "boxed", "--sandbox", "bwrap", "--allowed-tools", "Bash")
DONE = (Reply(text=finished()),)
ASKS = """
curl -sS "$ANTHROPIC_BASE_URL/v1/messages" -H 'content-type: application/json' -d '{{
 "model": "claude-sonnet-4-5", "max_tokens": 9, "stream": {stream}, "messages": [
 {{"role": "user", "content": "{words}"}}]}}' {more}
"""
DUMPS_CORE = "ulimit -c unlimited; sh -c 'kill -ABRT $$'"
LARGEST_MAPPING = 1 << 30


def bash(command: str, **more: Any) -> Reply:
    return Reply(text="Working.", tools=(ToolCall(name="Bash", input={"command": command}),), **more)


def told(stage: Stage, kind: str) -> list[dict[str, Any]]:
    return [event["event_data"] for event in stage.events("boxed") if event["event_type"] == kind]


def test_what_other_programs_ask_the_model_for_is_booked_and_told(tmp_path: Path) -> None:
    """Claude Code knows nothing of it: without the door's notes a script of the agent's would be free."""
    whole = Reply(text="Sure.", when="asked in one piece", input_tokens=30_000, output_tokens=500)
    streamed = Reply(text="Sure.", when="asked as a stream", input_tokens=20_000, output_tokens=400)
    asks = (
        ASKS.format(stream="false", words="asked in one piece", more="> /dev/null"),
        ASKS.format(stream="true", words="asked as a stream", more="--compressed > /dev/null"),
    )
    first = (whole, streamed, bash("\n".join(asks)), Reply(text=working()))
    scenario = Scenario(name="aside", iterations=(first, DONE))
    with staged(tmp_path, scenario) as stage:
        result = stage.result_here(*RUN, "-m", "3")
        served = stage.model.ledger.served()
        assert sum(line.input_tokens in {30_000, 20_000} for line in served) == 2, "the script reached the model"
        assert result["total_cost_usd"] == pytest.approx(stage.ledger_usd(), abs=1e-9)
        unseen = {reply["message_id"] for reply in told(stage, "agent.reply") if reply["by_wire"]}
        aside = [line for line in served if line.message_id in unseen]
        assert len(aside) == 2
        (differ,) = told(stage, "agent.books_differ")
        assert (differ["iteration_num"], differ["replies"]) == (1, 2)
        assert differ["passed_usd"] - differ["told_usd"] == pytest.approx(sum(map(price, aside)), abs=1e-9)
        assert "2 replies it does not tell of" in stage.here("log", "boxed").stdout
        assert "passed the door of the sandbox" in stage.here("brief", "boxed").stdout
    assert not list((tmp_path / "state" / "last-words").glob("*.wire")), "all of it is in the log"


def test_a_budget_holds_for_what_other_programs_ask_for(tmp_path: Path) -> None:
    dear = Reply(text="Sure.", when="asked in one piece", input_tokens=1_000_000, output_tokens=10)
    ask = ASKS.format(stream="false", words="asked in one piece", more="> /dev/null")
    scenario = Scenario(name="dear", iterations=((dear, bash(ask), Reply(text=working())),))
    with staged(tmp_path, scenario) as stage:
        result = stage.result_here(*RUN, "--max-cost", "1.00")
        assert (result["exit_reason"], result["attempts"]) == ("max_cost_reached", 1)
        assert result["total_cost_usd"] == pytest.approx(stage.ledger_usd(), abs=1e-9)


def test_trouble_has_the_same_names_as_without_a_door(tmp_path: Path) -> None:
    busy = Reply(status=529, repeat=4)
    limited = Reply(status=429, headers=(("retry-after", "1"),), repeat=4)
    cut = Reply(text="word " * 400, cut_after=0.5, repeat=8)
    refused = Reply(status=401, message="invalid x-api-key")
    scenario = Scenario(name="trouble", replies=(busy, limited, cut, Reply(text=working()), refused))
    with staged(tmp_path, scenario) as stage:
        stage.env["CLAUDE_CODE_MAX_RETRIES"] = "1"
        result = stage.result_here(*RUN, "-m", "20")
        assert result["exit_reason"] == "authentication", result
        names = [failed["error_type"] for failed in told(stage, "iteration.failed")]
        assert list(dict.fromkeys(names)) == ["overloaded", "rate_limit", "network", "authentication"], names
        assert result["total_cost_usd"] == pytest.approx(stage.ledger_usd(), abs=1e-9)


def test_no_byte_of_the_key_is_inside(tmp_path: Path) -> None:
    """Looked for from outside: in the memory of every process inside, and in every file they or the loop wrote."""
    key = f"sk-ant-api03-{uuid4().hex}{uuid4().hex}"
    number = f"1000.{uuid4().int % 10**6}"
    holds = bash(f"env > env.txt; cat /proc/self/environ > environ.txt; {DUMPS_CORE}; sleep {number}")
    with staged(tmp_path, Scenario(name="key", iterations=((holds,),))) as stage:
        stage.env["ANTHROPIC_API_KEY"] = key
        loop = stage.popen(*RUN, "-m", "2", "--json")
        eventually(lambda: any(number in command_of(pid) for pid in inside()))
        (run,) = json.loads(stage.here("ls", "--json").stdout)
        family = [pid for pid in living_of(run["run_id"]) if is_inside(pid)]
        assert any(command_of(pid).split("\0")[0].endswith("claude") for pid in family), "Claude Code is looked at"
        assert any(number in command_of(pid) for pid in family), "and what it started"
        assert holds_in_memory([loop.pid], key.encode()) == [loop.pid], "the loop has it, so this way of looking works"
        assert holds_in_memory(family, key.encode()) == []
        assert holds_in_memory(family, key[20:].encode()) == []
        loop.terminate()
        loop.communicate(timeout=400)
        assert all(request.headers["x-api-key"] == key for request in stage.model.requests)
        looked_at = [path for path in tmp_path.rglob("*") if path.is_file() and not path.is_symlink()]
        assert {"env.txt", "environ.txt"} < {path.name for path in looked_at}
        assert any(path.suffix == ".jsonl" for path in looked_at), "the transcript is among them"
        assert any(path.name == "untildone.db" for path in looked_at), "and the log"
        assert [path for path in looked_at if key[20:].encode() in path.read_bytes()] == []


def inside() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").glob("[0-9]*") if is_inside(int(entry.name))]


def is_inside(pid: int) -> bool:
    """Whether it has another network than we."""
    try:
        return Path(f"/proc/{pid}/ns/net").readlink() != Path("/proc/self/ns/net").readlink()
    except OSError:
        return False


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def holds_in_memory(pids: Iterable[int], secret: bytes) -> list[int]:
    return [pid for pid in pids if any(secret in piece for piece in memory_of(pid))]


def memory_of(pid: int) -> Iterable[bytes]:
    """All that is mapped and can be read, each mapping in pieces that overlap; what was not touched is left out."""
    mapped = re.compile(r"([0-9a-f]+)-([0-9a-f]+) r")
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        if (found := mapped.match(line)) is None or "[v" in line:
            continue
        begin, end = int(found[1], 16), int(found[2], 16)
        with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
            for at in range(begin, min(end, begin + LARGEST_MAPPING), 1 << 24):
                try:
                    memory.seek(at)
                    yield memory.read(min(end, at + (1 << 24) + 200) - at)
                except (OSError, OverflowError, ValueError):
                    break

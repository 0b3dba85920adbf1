"""A driver was killed: what its agent still said is booked before anything else, once, and then forgotten."""

import json
from pathlib import Path
from typing import Any

import pytest

from engine.rig import Rig, claim
from untildone.core import events as ev
from untildone.core import trace as tr
from untildone.core.beginning import beginning
from untildone.core.outcome import Usage
from untildone.core.policy import Policy
from untildone.core.state import LoopState
from untildone.store.leftovers import LAST_WORDS

pytestmark = pytest.mark.anyio

MODEL = "claude-opus-5-5"
REPLY_USD = 0.006
BEGUN_USD = 0.00402
POLICY = Policy(max_runs=10, completion_threshold=1)


def line(kind: str, **said: Any) -> bytes:
    return json.dumps({"type": kind, "session_id": "s1", **said}, separators=(",", ":")).encode() + b"\n"


def begins(name: str) -> bytes:
    message = {"id": name, "model": MODEL, "usage": {"input_tokens": 1000, "output_tokens": 1}}
    return line("stream_event", event={"type": "message_start", "message": message})


def reply(name: str) -> bytes:
    delta = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 100}}
    stop = line("stream_event", event={"type": "message_stop"}, api_message_id=name)
    return begins(name) + line("stream_event", event=delta, api_message_id=name) + stop


INIT = line("system", subtype="init", cwd="/w")
REQUESTING = line("system", subtype="status", status="requesting")


def result(usd: float) -> bytes:
    return line("result", subtype="error_during_execution", total_cost_usd=usd)


def logged(name: str) -> tr.AgentReply:
    return tr.AgentReply(
        iteration_num=1, message_id=name, model=MODEL, usage=Usage(1000, 100, 0, 0), cost_usd=REPLY_USD
    )


async def killed(rig: Rig, *told: ev.Event) -> None:
    """A run whose driver died in its first iteration."""
    lease = await rig.log.acquire(rig.run_id, name="it", folder=str(rig.repo))
    started = ev.IterationStarted(iteration_num=1, prompt_preview="## The task")
    await rig.log.append(rig.run_id, [beginning(rig.run_id, rig.spec(), POLICY), started, *told], lease=lease)
    await rig.log.release(lease, status="running")


def words_file(rig: Rig, *said: bytes) -> Path:
    folder = rig.tmp / "state" / LAST_WORDS
    folder.mkdir(exist_ok=True)
    path = folder / f"{rig.run_id}-7.jsonl"
    path.write_bytes(b"".join(said))
    return path


async def resumed(rig: Rig) -> tuple[LoopState, ev.IterationFailed]:
    state, _ = await rig.resume([claim()])
    [failed] = rig.seen(ev.IterationFailed)
    return state, failed


SESSION = tr.AgentSession(iteration_num=1, session_id="s1")


async def test_what_the_log_lacks_is_booked_and_what_it_has_is_not(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    await killed(rig, SESSION, logged("m1"))
    path = words_file(rig, INIT, reply("m1"), REQUESTING, reply("m2"), REQUESTING, begins("m3"))
    _, failed = await resumed(rig)
    assert [event.message_id for event in rig.seen(tr.AgentReply)] == ["m2"]
    assert failed.cost_usd == pytest.approx(2 * REPLY_USD)
    assert failed.estimated_usd == pytest.approx(BEGUN_USD)
    assert failed.unseen_requests == 0
    assert not path.exists()


CLOSED = ev.IterationFailed(
    iteration_num=1, error="died", error_type="driver_died", retry_allowed=True, cost_usd=REPLY_USD, session_id="s1"
)


async def test_words_read_twice_are_booked_once(tmp_path: Path) -> None:
    """A driver may die after the booking and before the file is gone."""
    rig = Rig(tmp_path)
    await killed(rig, SESSION, logged("m1"), CLOSED)
    path = words_file(rig, INIT, reply("m1"))
    state, _ = await rig.resume([claim()])
    assert rig.seen(tr.AgentReply) == []
    assert state.spend.cost_usd == pytest.approx(REPLY_USD + 0.1)
    assert not path.exists()


async def test_a_reply_after_the_end_of_its_iteration_is_paid_for_too(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    await killed(rig, SESSION, logged("m1"), CLOSED)
    words_file(rig, INIT, reply("m1"), reply("m2"))
    state, _ = await rig.resume([claim()])
    assert [event.message_id for event in rig.seen(tr.AgentReply)] == ["m2"]
    assert state.spend.cost_usd == pytest.approx(2 * REPLY_USD + 0.1)


async def test_a_session_the_driver_never_heard_of_is_known_from_the_words(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    await killed(rig)
    words_file(rig, INIT, REQUESTING, reply("m1"))
    _, failed = await resumed(rig)
    assert (failed.session_id, failed.cost_usd) == ("s1", pytest.approx(REPLY_USD))


async def test_a_request_that_was_out_is_an_unknown_cost(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    await killed(rig, SESSION)
    words_file(rig, INIT, REQUESTING, reply("m1"), REQUESTING)
    state, failed = await resumed(rig)
    assert (failed.unseen_requests, state.spend.unknown_costs) == (1, 1)


async def test_the_agents_own_sum_counts_where_it_knows_of_more(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    await killed(rig, SESSION)
    words_file(rig, INIT, REQUESTING, reply("m1"), result(0.5))
    _, failed = await resumed(rig)
    assert (failed.cost_usd, failed.estimated_usd) == (0.5, 0.0)


@pytest.mark.parametrize("usd", [0.001, REPLY_USD])
async def test_a_smaller_sum_of_the_agents_takes_nothing_away(tmp_path: Path, usd: float) -> None:
    rig = Rig(tmp_path)
    await killed(rig, SESSION)
    words_file(rig, INIT, reply("m1"), result(usd))
    _, failed = await resumed(rig)
    assert failed.cost_usd == pytest.approx(REPLY_USD)


async def test_without_words_the_transcript_is_found_by_the_prompt(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    await killed(rig)
    folder = tmp_path / "home" / ".claude" / "projects" / "".join(c if c.isalnum() else "-" for c in str(rig.repo))
    folder.mkdir(parents=True)
    prompt = {"type": "user", "timestamp": "2999-01-01T00:00:00Z", "message": {"content": "## The task\n\nWork."}}
    served = {"id": "m1", "model": MODEL, "usage": {"input_tokens": 1000, "output_tokens": 100}}
    answer = {"type": "assistant", "message": served}
    (folder / "s9.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in (prompt, answer, prompt)))
    _, failed = await resumed(rig)
    assert (failed.session_id, failed.cost_usd, failed.unseen_requests) == ("s9", pytest.approx(REPLY_USD), 1)

"""What a session cost, read from Claude's own transcripts after a crash."""

import asyncio
import json
import math
import os
import signal
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from agents.conformance import WORKING, Stage, bash, order
from patience import PATIENCE, soon
from untildone.agents.claude_cli import ClaudeCli
from untildone.agents.environment import agent_environment
from untildone.agents.transcripts import TranscriptLedger, transcript_path
from untildone.core.events import Event
from untildone.core.outcome import Usage
from untildone.core.trace import AgentReply, AgentReplyStarted, AgentSession, AgentStarted
from untildone.rehearsal.environment import claude_environment
from untildone.rehearsal.model import ScriptedModel
from untildone.rehearsal.scenario import Reply, Scenario, ToolCall
from untildone.sandbox import guard
from untildone.sandbox.host import HostSpawner

SESSION = "11111111-2222-4333-8444-555555555555"


def reply(message_id: str, output: int = 10, model: str = "claude-opus-5-5") -> dict[str, Any]:
    usage = {"input_tokens": 100, "output_tokens": output}
    return {"type": "assistant", "message": {"id": message_id, "model": model, "usage": usage, "content": []}}


def write(path: Path, *entries: dict[str, Any], tail: bytes = b"") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(json.dumps(entry).encode() + b"\n" for entry in entries) + tail)


def test_each_message_counts_once_and_subagents_too(tmp_path: Path) -> None:
    main = transcript_path(tmp_path, "/work/my_proj.x", SESSION)
    assert main == tmp_path / "projects" / "-work-my-proj-x" / f"{SESSION}.jsonl"
    write(main, reply("m1"), {"type": "user", "message": {"content": '"assistant"'}}, reply("m1"), reply("m2", 20))
    write(main.parent / SESSION / "subagents" / "agent-a.jsonl", reply("s1", 30), reply("m2", 20))
    found = TranscriptLedger(tmp_path).replies(SESSION, "/work/my_proj.x")
    assert all(isinstance(event, AgentReply) for event in found)
    assert [(event.message_id, event.usage) for event in found if isinstance(event, AgentReply)] == [
        ("m1", Usage(100, 10)), ("m2", Usage(100, 20)), ("s1", Usage(100, 30)),
    ]  # fmt: skip


def test_replies_are_told_with_the_moment_they_were_served(tmp_path: Path) -> None:
    moments = ["1970-01-01T00:00:10.500Z", "1970-01-01T00:00:20Z", "yesterday"]
    entries = [reply(f"m{number}") | {"timestamp": moment} for number, moment in enumerate(moments)]
    write(transcript_path(tmp_path, "/p", SESSION), *entries, reply("m9"))
    found = TranscriptLedger(tmp_path).timed_replies(SESSION, "/p")
    assert [(at, event.message_id) for at, event in found] == [(10.5, "m0"), (20.0, "m1"), (0.0, "m2"), (0.0, "m9")]


def test_half_written_foreign_and_synthetic_lines_are_left_out(tmp_path: Path) -> None:
    broken = b'{"type":"assistant","message":"x"}\n{"type":"assistant"}\n\xff"assistant"\n'
    half = b'{"type":"assistant","message":{"id":"m9","mo'
    write(
        transcript_path(tmp_path, "/w", SESSION),
        reply("m1"), reply("c1") | {"isAbortedMidStream": True}, reply("e1", model="<synthetic>"),
        {"type": "assistant", "message": {"id": 3, "model": []}},
        tail=broken + half,
    )  # fmt: skip
    [only] = TranscriptLedger(tmp_path).replies(SESSION, "/w")
    assert isinstance(only, AgentReply)
    assert only.message_id == "m1"


def test_a_session_is_found_under_another_folder_name(tmp_path: Path) -> None:
    write(tmp_path / "projects" / "-shortened-1a2b" / f"{SESSION}.jsonl", reply("m1"))
    assert len(TranscriptLedger(tmp_path).replies(SESSION, "/a/very/long/path")) == 1


@pytest.mark.parametrize("session", ["../../etc/passwd", "*", "", "a/b", "x" * 500])
def test_a_hostile_session_id_reaches_no_file(tmp_path: Path, session: str) -> None:
    write(transcript_path(tmp_path, "/w", SESSION), reply("m1"))
    assert TranscriptLedger(tmp_path).replies(session, "/w") == []


def asked(content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "user", "message": {"content": content}, "timestamp": "2026-01-02T03:04:05.000Z", **more}


def tool_call(message_id: str) -> dict[str, Any]:
    entry = reply(message_id)
    return entry | {"message": entry["message"] | {"stop_reason": "tool_use"}}


ANSWERED = [{"type": "tool_result", "tool_use_id": "t", "content": "ok"}]
CLEARED = (asked("<local-command-caveat>x", isMeta=True), asked("<command-name>/clear</command-name>"))


@pytest.mark.parametrize(
    ("entries", "unanswered"),
    [
        ((), True),
        (CLEARED, True),
        ((*CLEARED, asked("the prompt")), True),
        ((*CLEARED, asked("the prompt"), {"type": "attachment"}, {"type": "cost-state"}), True),
        ((asked("the prompt"), {"type": "api-request"}), True),
        ((asked("the prompt"), {"type": "api-request"}, reply("m1")), False),
        ((asked("the prompt"), reply("m1"), {"type": "attachment"}, {"type": "last-prompt"}), False),
        ((asked("the prompt"), tool_call("m1")), True),
        ((asked("the prompt"), tool_call("m1"), asked(ANSWERED)), True),
        ((asked("the prompt"), tool_call("m1"), asked(ANSWERED), reply("m2")), False),
        ((asked("the prompt"), reply("m1"), asked([{"type": "text", "text": "[Request interrupted by user]"}])), False),
    ],
)
def test_what_was_asked_and_left_no_answer(tmp_path: Path, entries: tuple[Any, ...], unanswered: bool) -> None:
    write(transcript_path(tmp_path, "/w", SESSION), *entries, tail=b'{"type":"user","mess')
    assert TranscriptLedger(tmp_path).unanswered(SESSION, "/w") is unanswered
    assert not TranscriptLedger(tmp_path).unanswered(SESSION, "/w", only_subagents=True)


def test_a_subagent_may_be_left_without_an_answer(tmp_path: Path) -> None:
    main = transcript_path(tmp_path, "/w", SESSION)
    write(main, reply("m1"))
    write(main.parent / SESSION / "subagents" / "agent-a.jsonl", asked("look"), {"type": "api-request"})
    assert TranscriptLedger(tmp_path).unanswered(SESSION, "/w", only_subagents=True)


def test_a_session_is_found_by_its_prompt_and_nobody_elses_is_taken(tmp_path: Path) -> None:
    written = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC).timestamp()
    ledger = TranscriptLedger(tmp_path)
    assert ledger.find_session("/w", since=0, prompt="Do this") is None
    write(transcript_path(tmp_path, "/w", "theirs"), asked("Do that, please"), asked("Do this"))
    write(transcript_path(tmp_path, "/elsewhere", "other"), asked("Do this"))
    transcript_path(tmp_path, "/w", "folder").mkdir()
    assert ledger.find_session("/w", since=written, prompt="Do this") is None
    write(transcript_path(tmp_path, "/w", "ours"), *CLEARED, asked([{"type": "text", "text": "Do this and more"}]))
    assert ledger.find_session("/w", since=written, prompt="Do this") == "ours"
    assert ledger.find_session("/w", since=written + 1, prompt="Do this") is None
    assert ledger.find_session("/w", since=written, prompt="") is None


def test_no_transcript_is_no_reply(tmp_path: Path) -> None:
    assert TranscriptLedger(tmp_path / "none").replies(SESSION, "/w") == []
    assert not TranscriptLedger(tmp_path / "none").unanswered(SESSION, "/w")


@pytest.mark.claude
@pytest.mark.anyio
@pytest.mark.parametrize(
    "number", [signal.SIGKILL, *(pytest.param(n, marks=pytest.mark.soak) for n in (signal.SIGTERM, signal.SIGINT))]
)
async def test_a_reply_cut_by_a_signal_is_not_one_served(tmp_path: Path, number: signal.Signals) -> None:
    (cwd := tmp_path / "work").mkdir()
    streaming = Reply(text="word " * 400, chunk_delay=2.0, input_tokens=50_000)
    with ScriptedModel(Scenario(name="cut", replies=(Reply(tools=(bash("true"),)), streaming))) as model:
        env = agent_environment(claude_environment(tmp_path / "home", model.url), run_id="r")
        agent = ClaudeCli(WORKING, HostSpawner(), cwd=str(cwd), env=env)
        stage = Stage(model, cwd, env)
        ledger = TranscriptLedger(tmp_path / "home" / ".claude")

        async def strike(event: Event) -> None:
            if isinstance(event, AgentReplyStarted) and len(stage.of(AgentReplyStarted)) == 2:
                session = stage.of(AgentSession)[0].session_id
                await soon(lambda: ledger.replies(session, str(cwd)))  # transcripts lag behind the stream
                for pid in guard.descendants(stage.of(AgentStarted)[0].pid):
                    with suppress(ProcessLookupError):
                        os.kill(pid, number)

        stage.on_event = strike
        outcome = await stage.run(agent, order())
    [only] = ledger.replies(outcome.session_id or "", str(cwd))
    assert isinstance(only, AgentReply)
    assert only.cost_usd == outcome.cost_usd == pytest.approx(0.006)
    assert outcome.estimated_usd == pytest.approx(0.2, rel=0.01)
    assert ledger.unanswered(outcome.session_id or "", str(cwd))


@pytest.mark.claude
@pytest.mark.anyio
async def test_a_real_transcript_agrees_with_the_other_sides_books(tmp_path: Path) -> None:
    (cwd := tmp_path / "work").mkdir()
    subagent = ToolCall("Agent", {"description": "sub", "prompt": "SUBTASK", "subagent_type": "general-purpose"})
    replies = (
        Reply(tools=(bash("true"),), cache_write_tokens=700, cache_write_1h_tokens=300, when="THE PROMPT"),
        Reply(tools=(subagent,), input_tokens=11),
        Reply(text="done", output_tokens=5),
    )
    with ScriptedModel(Scenario(name="transcript", replies=replies)) as model:
        env = agent_environment(claude_environment(tmp_path / "home", model.url), run_id="r")
        stage = Stage(model, cwd, env)
        agent = ClaudeCli(WORKING, HostSpawner(), cwd=str(cwd), env=env)
        async with asyncio.timeout(PATIENCE):
            outcome = await agent.iterate(order("THE PROMPT"), stage.tell)
        served = model.ledger.served()
    ledger = TranscriptLedger(tmp_path / "home" / ".claude")
    found = [event for event in ledger.replies(outcome.session_id or "", str(cwd)) if isinstance(event, AgentReply)]
    assert {event.message_id for event in found} == {line.message_id for line in served if line.kind == "main"}
    assert math.fsum(event.cost_usd or math.nan for event in found) == pytest.approx(outcome.cost_usd, rel=1e-9)
    assert not ledger.unanswered(outcome.session_id or "", str(cwd))

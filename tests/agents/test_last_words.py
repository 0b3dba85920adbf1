"""What the guard of a killed loop wrote down: replies, whether a request was out, and hostile content."""

import json
from pathlib import Path
from typing import Any

import pytest

from untildone.agents.last_words import ClaudeLedger
from untildone.core.trace import AgentReply, AgentReplyStarted, AgentSession
from untildone.ports import LastWords, Ledger

RUN = "0123456789ab"
MODEL = "claude-opus-5-5"
INIT = {"type": "system", "subtype": "init", "session_id": "s1", "cwd": "/w"}
REQUESTING = {"type": "system", "subtype": "status", "status": "requesting", "session_id": "s1"}
RESET = {"type": "conversation_reset", "new_conversation_id": "n"}


def started(name: str, tokens: int = 1000) -> dict[str, Any]:
    message = {"id": name, "model": MODEL, "usage": {"input_tokens": tokens, "output_tokens": 1}}
    return {"type": "stream_event", "event": {"type": "message_start", "message": message}, "session_id": "s1"}


def ended(name: str, reason: str | None = "end_turn") -> list[dict[str, Any]]:
    delta = {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 100}}
    return [
        {"type": "stream_event", "event": delta, "api_message_id": name, "session_id": "s1"},
        {"type": "stream_event", "event": {"type": "message_stop"}, "api_message_id": name, "session_id": "s1"},
    ]


def result(usd: float, **more: Any) -> dict[str, Any]:
    return {"type": "result", "subtype": "error_during_execution", "session_id": "s1", "total_cost_usd": usd, **more}


def line(said: dict[str, Any]) -> bytes:
    return json.dumps(said, separators=(",", ":")).encode() + b"\n"


def written(folder: Path, *said: dict[str, Any] | bytes, pid: int = 7, run: str = RUN) -> Path:
    path = folder / f"{run}-{pid}.jsonl"
    path.write_bytes(b"".join(part if isinstance(part, bytes) else line(part) for part in said))
    return path


def words(folder: Path) -> LastWords:
    ledger: Ledger = ClaudeLedger(folder / "claude", folder)
    return ledger.last_words(RUN, 4)


def ids(said: LastWords, kind: type[AgentReply] | type[AgentReplyStarted]) -> list[str]:
    return [event.message_id for event in said.replies if isinstance(event, kind)]


def test_silence_tells_nothing(tmp_path: Path) -> None:
    assert words(tmp_path) == LastWords()
    assert ClaudeLedger(tmp_path, tmp_path / "none").last_words(RUN, 1) == LastWords()


def test_replies_are_found_with_their_price_and_session(tmp_path: Path) -> None:
    written(tmp_path, INIT, REQUESTING, started("m1"), *ended("m1", "tool_use"), REQUESTING, started("m2"))
    said = words(tmp_path)
    assert (ids(said, AgentReplyStarted), ids(said, AgentReply)) == (["m1", "m2"], ["m1"])
    assert isinstance(said.session, AgentSession)
    assert (said.session.session_id, said.session.iteration_num) == ("s1", 4)
    [served] = [event for event in said.replies if isinstance(event, AgentReply)]
    assert served.cost_usd == pytest.approx(0.006)
    assert said.awaits_reply is False


def test_a_reply_that_was_cut_is_not_one_served(tmp_path: Path) -> None:
    written(tmp_path, INIT, REQUESTING, started("m1"), *ended("m1", None), result(0.004))
    said = words(tmp_path)
    assert (ids(said, AgentReplyStarted), ids(said, AgentReply)) == (["m1"], [])


@pytest.mark.parametrize(
    ("said", "awaits"),
    [
        ([INIT], None),
        ([RESET, INIT], False),
        ([INIT, REQUESTING], True),
        ([INIT, REQUESTING, started("m1")], False),
        ([INIT, REQUESTING, started("m1"), *ended("m1")], False),
        ([INIT, REQUESTING, started("m1"), *ended("m1"), {"type": "user", "message": {}}], False),
        ([INIT, started("m1"), *ended("m1"), {"type": "user", "message": {}}], None),
        ([INIT, REQUESTING, {"type": "user", "message": {}}, result(0.1, terminal_reason="aborted_streaming")], True),
        ([INIT, started("m1"), *ended("m1"), {"type": "user"}, result(0.1, terminal_reason="aborted_tools")], False),
    ],
)
def test_whether_a_request_was_out(tmp_path: Path, said: list[dict[str, Any]], awaits: bool | None) -> None:
    written(tmp_path, *said)
    assert words(tmp_path).awaits_reply is awaits


def test_a_result_counts_only_as_the_last_word_of_its_conversation(tmp_path: Path) -> None:
    written(tmp_path, INIT, started("m1"), *ended("m1"), result(0.5))
    assert (words(tmp_path).result_usd, words(tmp_path).result_session) == (0.5, "s1")
    written(tmp_path, INIT, result(0.5), started("m1"))
    assert words(tmp_path).result_usd is None
    written(tmp_path, INIT, started("m1"), *ended("m1"), result(0.5), RESET)
    assert (words(tmp_path).result_usd, words(tmp_path).session) == (None, None)
    assert ids(words(tmp_path), AgentReply) == ["m1"]


@pytest.mark.parametrize("usd", [-1, True, "1", None, 1e400, [1]])
def test_a_result_without_a_sane_sum_says_nothing(tmp_path: Path, usd: Any) -> None:
    written(tmp_path, INIT, result(usd))
    assert words(tmp_path).result_usd is None


def test_cut_lines_and_nonsense_are_passed_over(tmp_path: Path) -> None:
    whole = line(started("m1"))
    nonsense = [b"\xff\xfe\n", b"[]\n", b'"x"\n', b"{" * 5000 + b"\n", b'{"type":["user"],"event":3}\n', b"\0\0\n"]
    hostile = [{"type": "stream_event", "event": {"type": {}, "message": []}}, {"type": "system", "subtype": {}}]
    written(tmp_path, whole[40:], whole, *nonsense, *hostile, *ended("m1"), line(started("m9"))[:-30])
    said = words(tmp_path)
    assert (ids(said, AgentReplyStarted), ids(said, AgentReply)) == (["m1"], ["m1"])


def test_all_files_of_the_run_are_read_and_of_no_other(tmp_path: Path) -> None:
    written(tmp_path, started("m1"), *ended("m1"), pid=1)
    written(tmp_path, started("m2"), *ended("m2"), pid=2)
    other = written(tmp_path, started("m3"), *ended("m3"), run=f"{RUN}-2")
    (tmp_path / f"{RUN}-9.jsonl").mkdir()
    assert set(ids(words(tmp_path), AgentReply)) == {"m1", "m2"}
    ClaudeLedger(tmp_path, tmp_path).forget_last_words(RUN)
    assert words(tmp_path) == LastWords()
    assert other.exists()

"""The last words from a transcript: the agent's own, whatever its length, even when they are a moment late."""

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from hook.stop_kit import Stage, goes_on
from patience import PATIENCE
from untildone.hook import transcript
from untildone.hook.transcript import last_words


def line(kind: str, text: str, **more: Any) -> str:
    return json.dumps({"type": kind, "message": {"content": [{"type": "text", "text": text}]}, **more}) + "\n"


def test_the_last_message_of_the_agent(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    tail = json.dumps({"type": "system", "content": "x"}) + "\n{broken\n"
    path.write_text(line("user", "go") + line("assistant", "one") + line("assistant", "sub", isSidechain=True) + tail)
    assert last_words(str(path)) == "one"


def test_text_that_is_a_plain_string(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(json.dumps({"type": "assistant", "message": {"content": "words"}}))
    assert last_words(str(path)) == "words"


def test_words_that_are_not_written_yet_are_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(line("assistant", "old") + line("user", "go"))
    monkeypatch.setattr(transcript, "PATIENCE", PATIENCE)

    def late() -> None:
        with path.open("a") as file:
            file.write(line("assistant", "new"))

    writing = threading.Timer(0.1, late)
    writing.start()
    try:
        assert last_words(str(path)) == "new"
    finally:
        writing.join()


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"null\n", b'{"type": "assistant"}\n', b"[" * 50_000])
def test_no_words_are_no_words(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(content)
    assert last_words(str(path)) == ""


def test_a_pipe_a_folder_and_nothing_do_not_hold_it_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    began = time.monotonic()
    assert [last_words(str(tmp_path / name)) for name in ("pipe", "", "none", "a\0b")] == [""] * 4
    assert time.monotonic() - began < PATIENCE


def test_only_the_end_is_read(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    with path.open("wb") as file:
        file.truncate(1 << 32)  # 4 GB that would not fit into a test
        file.seek(0, os.SEEK_END)
        file.write(b"\n" + line("assistant", "the end").encode())
    assert last_words(str(path)) == "the end"


def test_the_loop_hears_a_promise_that_stands_only_in_the_transcript(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.start(promises=("DONE",))
    path = tmp_path / "t.jsonl"
    path.write_text(line("assistant", "Fine.\n\nDONE"))
    assert goes_on(stage.stop("", transcript_path=str(path))), "the event says that nothing was said"
    assert not goes_on(stage.stop(None, transcript_path=str(path)))

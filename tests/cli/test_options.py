"""What the help says, and that it fits."""

import pytest

from cli.cli_kit import Say
from untildone.cli.app import COMMANDS

NAMES = [name for part in COMMANDS.values() for name in part]


@pytest.mark.parametrize("argv", [[], *([name] for name in NAMES)], ids=lambda argv: " ".join(argv) or "untildone")
def test_the_help_fits_a_screen_of_80_columns(say: Say, monkeypatch: pytest.MonkeyPatch, argv: list[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = say(*argv, "--help").out
    assert text.startswith("Usage: untildone")
    assert [line for line in text.splitlines() if len(line) > 80] == []


def test_a_command_about_a_run_says_how_to_name_it(say: Say) -> None:
    for name in ("status", "log", "brief", "replay", "stop", "limits", "attach"):
        assert "RUN is a name or an id" in say(name, "--help").out


def test_options_speak_to_people(say: Say) -> None:
    text = " ".join(say("run", "--help").out.split())
    assert "How long a check may take. [10m]" in text
    assert "before a claim is believed. Repeatable." in text
    assert "None:" not in text
    assert "Seconds" not in text

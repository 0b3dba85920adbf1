"""docs/plugin.md says what the hooks do."""

import re
from pathlib import Path

import pytest

from untildone.core.repeats import MOST_FAILURES
from untildone.hook import commanding, installing, limiting, multi_agent, places, starting

PAGE = (Path(__file__).parent.parent / "docs" / "plugin.md").read_text(encoding="utf-8")
WORDS = {5: "Five"}


def test_every_option_of_the_slash_command_is_there_and_no_other() -> None:
    (told,) = re.findall(r"Options of `/untildone:loop`:(.*?)\n\n", PAGE, re.DOTALL)
    assert set(re.findall(r"`--([a-z-]+)", told)) == set(commanding._LOOP)


def test_the_numbers_are_those_of_the_code() -> None:
    assert f"`--max N` turns ({starting.TURNS})" in PAGE
    assert f"refuse {limiting.BLOCK_CAP} stops in a row" in PAGE
    assert f"all within {starting.CHECK_SECONDS / 60:.0f} minutes" in PAGE
    assert f"{WORDS[MOST_FAILURES]}\n  failures in a row at the same point" in PAGE
    assert f"{MOST_FAILURES} failures, {multi_agent.MOST_TURNS} turns" in PAGE
    assert limiting.CAP_SETTING in PAGE


@pytest.mark.parametrize("place", [places.LOOP, places.CONTINUATION, places.AUTONOMOUS, places.DEVTEAM, places.TODOS])
def test_every_file_that_is_looked_at_is_named(place: str) -> None:
    assert f"`{place}`" in PAGE


def test_the_plugin_has_the_name_people_are_told() -> None:
    manifest = (installing.ROOT / ".claude-plugin" / "plugin.json").read_text(encoding="utf-8")
    assert re.search(r'"name":\s*"untildone"', manifest)
    assert "untildone@untildone" in PAGE

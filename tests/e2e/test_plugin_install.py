"""Both ways into the real Claude Code: as a plugin from a marketplace, and by its settings files."""

import json
import shutil
from pathlib import Path

import pytest

import untildone
from e2e.plugin_kit import PLUGIN, house
from rehearsal.rehearsal_client import bundled_claude
from untildone.core.hook_settings import CAP
from untildone.rehearsal.scenario import Reply, ToolCall

pytestmark = pytest.mark.claude

ROOT = Path(__file__).parent.parent.parent


def test_claude_code_finds_nothing_wrong(tmp_path: Path) -> None:
    with house(tmp_path) as here:
        for folder in (PLUGIN, ROOT):
            done = here.claude("plugin", "validate", str(folder))
            assert (done.returncode, "Validation passed" in done.stdout) == (0, True), done.stdout


def test_a_plugin_from_a_marketplace(tmp_path: Path) -> None:
    shop = tmp_path / "shop"
    skipped = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / ".claude-plugin", shop / ".claude-plugin")
    shutil.copytree(PLUGIN, shop / "src" / "untildone", ignore=skipped)
    tools = (
        ToolCall("Bash", {"command": "untildone task add 'Write the parser' && untildone ask 'Which database?'"}),
        ToolCall("Skill", {"skill": "untildone:loop", "args": "take over --max 99"}),
    )
    with house(
        tmp_path, Reply(tools=tools), Reply(text="Half way."), Reply(text="More."), Reply(text="Still not.")
    ) as here:
        assert here.claude("plugin", "marketplace", "add", str(shop)).returncode == 0
        assert here.claude("plugin", "install", "untildone@untildone").returncode == 0
        (cached,) = (here.home / ".claude" / "plugins" / "cache").glob("untildone/untildone/*")
        assert cached.name == untildone.__version__
        said = here.say("/untildone:loop make it work --max 3 --promise 'ALL DONE'")
        assert {f"untildone:{name}" for name in ("loop", "cancel", "status", "implement", "sprint", "ask")} <= set(
            said.init["slash_commands"]
        )
        assert len([name for name in said.init["agents"] if name.startswith("untildone:")]) == 5
        assert "untildone:autonomous-mode" in said.init["skills"]
        # Three turns, of which the first took two requests; the model could start no loop of its own.
        assert (said.requests, said.result) == (4, "Still not.")
        assert "no turns are left, not done (after 3 turns)" in said.notices
        for piece in ("TASK-001 added", "Noted for the human", "disable-model-invocation"):
            assert piece in said.tool_results
        assert f"version {untildone.__version__}" in here.untildone("plugin", "status")
        assert here.claude("plugin", "uninstall", "untildone@untildone").returncode == 0


@pytest.mark.soak
def test_a_copy_of_the_plugin_is_all_it_needs(tmp_path: Path) -> None:
    """A marketplace elsewhere is not read in place."""
    copy = tmp_path / "copies" / untildone.__version__
    shutil.copytree(PLUGIN, copy, ignore=shutil.ignore_patterns("__pycache__"))
    with house(tmp_path) as here:
        said = here.say("/untildone:loop make it work --max 2", "--plugin-dir", str(copy))
        assert (said.requests, said.init["plugins"][0]["path"]) == (2, str(copy))


@pytest.mark.soak
def test_by_settings_with_other_peoples_hooks(tmp_path: Path) -> None:
    with house(tmp_path) as here:
        settings = here.home / ".claude" / "settings.json"
        settings.parent.mkdir()
        ran = here.project / "mine ran"
        others = {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": f"touch '{ran}'"}]}]}, "model": "opus"}
        before = json.dumps(others, indent=4).encode()
        settings.write_bytes(before)
        here.untildone("plugin", "install")
        assert json.loads(settings.read_bytes())["env"][CAP] == "10000"
        # Eleven answers without a tool call are more than Claude Code by itself lets through.
        said = here.say("/untildone:loop make it work --max 11")
        assert (said.requests, ran.exists()) == (11, True)
        assert "no turns are left" in said.notices
        said = here.say("/untildone:status")
        assert (said.requests, "no loop is running in this folder" in said.result) == (0, True)
        here.untildone("plugin", "uninstall")
        assert settings.read_bytes() == before
        assert not (settings.parent / "commands").exists()


SCRUBBED = "env -u CLAUDECODE -u CLAUDE_CODE_SESSION_ID -u CLAUDE_PID -u CLAUDE_CODE_CHILD_SESSION"


WAYS_OUT = (
    f"{bundled_claude()} -p /untildone:cancel --plugin-dir {PLUGIN}",
    f"echo /untildone:loop --adopt | {SCRUBBED} {bundled_claude()} -p --plugin-dir {PLUGIN}",
)


def test_a_session_that_is_held_cannot_let_itself_go(tmp_path: Path) -> None:
    calls = (*WAYS_OUT, *(f"sh {number}.sh" for number in range(len(WAYS_OUT))))
    tried = tuple(Reply(tools=(ToolCall("Bash", {"command": call}),)) for call in calls)
    with house(tmp_path, *tried, Reply(text="Half way."), Reply(text="Not yet.")) as here:
        for number, line in enumerate(WAYS_OUT):
            (here.project / f"{number}.sh").write_text(line)
        said = here.say("/untildone:loop make it work --max 2", "--plugin-dir", str(PLUGIN))
        assert said.tool_results.count("only the user starts, stops or changes loops") == len(WAYS_OUT)
        assert said.tool_results.count("only a human ends or moves its loop") == len(WAYS_OUT)
        assert (said.requests, said.result) == (len(calls) + 2, "Not yet.")

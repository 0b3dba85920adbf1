"""What Claude Code reads of us: manifests, hooks, commands, agents, the skill. They say the same as the code."""

import json
import re
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

import untildone
from untildone.hook import answering, commanding, starting

PLUGIN = Path(untildone.__file__).parent
ROOT = Path(__file__).parent.parent
HOOKS = json.loads((PLUGIN / "plugin" / "hooks.json").read_text())["hooks"]
PAGES = sorted(path for path in (PLUGIN / "plugin").rglob("*.md") if "templates" not in path.parts)
CLAUDE_EVENTS = set(answering._HOMES) - {"Deliver"}


def manifest(folder: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / ".claude-plugin" / name).read_text())
    return found


def front_matter(path: Path) -> dict[str, str]:
    _, head, _ = path.read_text().split("---\n", 2)
    return dict(line.split(": ", 1) for line in head.splitlines())


def test_there_is_one_version() -> None:
    entry = manifest(ROOT, "marketplace.json")["plugins"][0]
    assert manifest(PLUGIN, "plugin.json")["version"] == entry["version"] == untildone.__version__
    assert (ROOT / entry["source"]).resolve() == PLUGIN


def test_everything_the_manifest_names_is_there() -> None:
    given = manifest(PLUGIN, "plugin.json")
    named = [given["hooks"], given["commands"], given["skills"], *given["agents"]]
    assert [name for name in named if not (PLUGIN / name).exists()] == []
    assert sorted((PLUGIN / "plugin" / "agents").glob("*.md")) == sorted(PLUGIN / name for name in given["agents"])


def test_every_event_that_is_handled_is_asked_for_once() -> None:
    assert set(HOOKS) == CLAUDE_EVENTS
    for event, groups in HOOKS.items():
        (group,) = groups
        (hook,) = group["hooks"]
        assert shlex.split(hook["command"])[-3:] == ["sh", "${CLAUDE_PLUGIN_ROOT}/hook/run.sh", event]
        assert group.get("matcher") == ("^untildone:" if event == "UserPromptExpansion" else None)


def test_the_hook_outlives_its_checks() -> None:
    timeouts = {event: groups[0]["hooks"][0]["timeout"] for event, groups in HOOKS.items()}
    assert timeouts.pop("Stop") >= starting.LONGEST_CHECKS + 60
    assert max(timeouts.values()) <= 30


def test_every_command_that_is_read_has_a_page_and_the_model_starts_none() -> None:
    pages = {path.stem: front_matter(path) for path in (PLUGIN / "plugin" / "commands").glob("*.md")}
    assert set(pages) == set(commanding._COMMANDS)
    assert [name for name, page in pages.items() if "disable-model-invocation" not in page] == ["ask"]
    options = re.findall(r"--([a-z-]+)", pages["loop"]["argument-hint"])
    assert set(options) <= set(commanding._LOOP)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_every_page_says_what_it_is_for(path: Path) -> None:
    page = front_matter(path)
    assert page["description"]
    if path.parent.name == "agents":
        assert page["name"] == path.stem


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_every_task_command_a_page_names_is_one(path: Path) -> None:
    from untildone.hook.task_command import _parser

    known = _parser().format_help()
    named = {verb for verbs in re.findall(r"untildone task ([a-z|]+)", path.read_text()) for verb in verbs.split("|")}
    assert [verb for verb in named if not re.search(rf"^    {verb} ", known, re.MULTILINE)] == []


def test_the_controller_keeps_its_protocol() -> None:
    line = "[AUTO] Iteration N | Sprint X/Y | Task: TASK-XXX | Status: CONTINUING"
    banner = "AUTONOMOUS MODE - Iteration {N}"
    for name in ("commands/implement.md", "agents/autonomous-controller.md"):
        text = (PLUGIN / "plugin" / name).read_text()
        assert (line in text, banner in text, "EXIT_SIGNAL: true" in text) == (True, True, True)
    assert line in (PLUGIN / "plugin" / "skills" / "autonomous-mode" / "SKILL.md").read_text()


def test_the_wheel_carries_the_plugin(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(argv, cwd=ROOT, check=True, capture_output=True, timeout=400)
    (wheel,) = tmp_path.glob("*.whl")
    inside = set(zipfile.ZipFile(wheel).namelist())
    folders = (PLUGIN / ".claude-plugin", PLUGIN / "plugin", PLUGIN / "bin")
    wanted = [path for folder in folders for path in folder.rglob("*") if path.is_file()] + [PLUGIN / "hook" / "run.sh"]
    assert [path for path in wanted if f"untildone/{path.relative_to(PLUGIN)}" not in inside] == []

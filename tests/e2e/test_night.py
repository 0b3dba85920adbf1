"""A night on the real Claude Code: all green, and red as soon as one policy is broken on purpose."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from patience import PATIENCE, eventually
from repositories import new_repository
from untildone.rehearsal.acts import ACTS

pytestmark = pytest.mark.claude

NEEDS_A_NAMESPACE = {"usage-limit", "disk"}


def repository(tmp: Path, files: Mapping[str, str] = MappingProxyType({})) -> Path:
    # A repository's own hooks for Claude Code must have no say in a rehearsal.
    touch = {"hooks": [{"type": "command", "command": f"touch {tmp}/hooked"}]}
    settings = json.dumps({"hooks": {"SessionStart": [touch], "Stop": [touch]}})
    return new_repository(tmp / "repo", files={"a.txt": "a\n", ".claude/settings.json": settings, **files})


def rehearse(folder: Path, *args: str, **settings: str) -> tuple[int, dict[str, Any]]:
    tmp = folder.parent
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp / "home"), "TMPDIR": str(tmp), "LANG": "C.UTF-8"}
    done = subprocess.run(
        [sys.executable, "-m", "untildone", "rehearse", "--night", "--json", *args],
        cwd=folder, env=env | settings, capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip
    assert done.stdout.count("\n") == 1, (done.stdout, done.stderr)
    return done.returncode, json.loads(done.stdout)


def may_have_namespaces() -> bool:
    tries = [["unshare", *flags, "true"] for flags in (("-n",), ("-r", "-n"))]
    return any(
        subprocess.run(argv, capture_output=True, timeout=PATIENCE, check=False).returncode == 0 for argv in tries
    )


@pytest.mark.soak
def test_a_short_night_is_green_where_the_loop_does_well_and_red_where_a_policy_is_broken(tmp_path: Path) -> None:
    folder = repository(tmp_path, {"untildone-night.md": "a file that the rehearsal must leave alone\n"})
    before = sorted(path.name for path in folder.iterdir())
    code, certificate = rehearse(folder, "--act", "login", "--act", "crash", UNTILDONE_ERROR_THRESHOLD="1")
    green, red = certificate["scenes"]
    assert [(scene["name"], scene["verdict"]) for scene in (green, red)] == [("login", "green"), ("crash", "red")]
    assert (green["why"], bool(green["happened"])) == ([], True)
    assert any(why.startswith("the night ended early: consecutive_errors") for why in red["why"]), red["why"]
    assert (code, certificate["passed"], certificate["red"], certificate["repository"]) == (1, False, 1, str(folder))
    assert certificate["claude"]
    assert_left_alone(folder, before)
    kept = Path(red["evidence"])
    assert (kept / "state" / "untildone.db").is_file(), "what tells of a red act is kept"
    assert not (kept / "repository").exists()


def assert_left_alone(folder: Path, before: list[str]) -> None:
    assert sorted(path.name for path in folder.iterdir()) == before, "the repository itself is left alone"
    branches = subprocess.run(
        ["git", "branch"], cwd=folder, capture_output=True, text=True, check=True, timeout=PATIENCE
    )
    assert branches.stdout == "* main\n"
    assert not (folder.parent / "hooked").exists()


@pytest.mark.soak
def test_the_whole_night_is_green(tmp_path: Path) -> None:
    folder = repository(tmp_path)
    before = sorted(path.name for path in folder.iterdir())
    code, certificate = rehearse(folder)
    verdicts = {scene["name"]: scene["verdict"] for scene in certificate["scenes"]}
    staged = "green" if may_have_namespaces() else "not rehearsed"
    wanted = {act.name: staged if act.name in NEEDS_A_NAMESPACE else "green" for act in ACTS}
    assert verdicts == wanted, [(scene["name"], scene["why"]) for scene in certificate["scenes"] if scene["why"]]
    assert (code, certificate["passed"], certificate["red"]) == (0, True, 0)
    assert certificate["repository"] == str(folder)
    assert certificate["claude"]
    assert all(scene["happened"] for scene in certificate["scenes"] if scene["verdict"] == "green")
    assert_left_alone(folder, before)
    assert list(tmp_path.glob("untildone-rehearsal-*")) == [], "nothing is left behind"


@pytest.mark.soak
@pytest.mark.parametrize(
    ("act", "broken", "why"),
    [
        # Without a watchdog the act lasts until its own limit: a minute.
        ("hang", {"UNTILDONE_IDLE_TIMEOUT": "0"}, "the fault was not named hang"),
        ("outage", {"UNTILDONE_OUTAGE_BUDGET": "1s"}, "the night ended early: outage"),
    ],
)
def test_one_broken_policy_turns_its_act_red(tmp_path: Path, act: str, broken: dict[str, str], why: str) -> None:
    code, certificate = rehearse(repository(tmp_path), "--act", act, **broken)
    (scene,) = certificate["scenes"]
    assert (code, certificate["passed"], scene["verdict"]) == (1, False, "red")
    assert any(reason.startswith(why) for reason in scene["why"]), scene["why"]


def in_home(home: str) -> list[str]:
    """Living processes that have this home."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and f"HOME={home}".encode() in (entry / "environ").read_bytes():
                found.append(entry.name)
    return found


@pytest.mark.parametrize(
    "number",
    [signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.soak)],
    ids=lambda number: number.name,
)
def test_a_night_that_is_told_to_end_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path), "LANG": "C.UTF-8"}
    night = subprocess.Popen(
        [sys.executable, "-m", "untildone", "rehearse", "--night", "--act", "hang"],
        cwd=repository(tmp_path), env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        claude = eventually(
            lambda: list(tmp_path.glob("untildone-rehearsal-*/home/.claude*")), "the start of Claude Code"
        )
        home = str(claude[0].parent)
        eventually(lambda: in_home(home), "the work of the loop")
        night.send_signal(number)
        night.communicate(timeout=400)
    finally:
        night.kill()
        night.wait()
    assert night.returncode == 130
    assert in_home(home) == []
    assert list(tmp_path.glob("untildone-*")) == []


@pytest.mark.soak
@pytest.mark.parametrize(
    "files", [{".gitignore": "*.md\n"}, {"untildone-night.md": "mine\n"}], ids=["ignored", "there"]
)
def test_the_repositorys_own_files_and_rules_are_no_reason_to_be_red(tmp_path: Path, files: dict[str, str]) -> None:
    code, certificate = rehearse(repository(tmp_path, files), "--act", "false-done")
    assert (code, certificate["green"]) == (0, 1), certificate["scenes"][0]["why"]


def test_what_cannot_be_staged_is_not_green(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "unshare").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "bin" / "unshare").chmod(0o755)
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    code, certificate = rehearse(repository(tmp_path), "--act", "usage-limit", "--act", "disk", PATH=path)
    assert [scene["verdict"] for scene in certificate["scenes"]] == ["not rehearsed"] * 2
    assert (code, certificate["passed"], certificate["green"], certificate["not_rehearsed"]) == (1, False, 0, 2)
    assert all("this machine does not permit" in scene["why"][0] for scene in certificate["scenes"])

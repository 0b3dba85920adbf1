"""A run started in the browser: the same program, in an allowed folder, and nothing of the server's in it."""

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from patience import PATIENCE
from untildone.errors import UntildoneError, UsageError
from untildone.server.starting import Started, Starter, StartRefused, Wish
from untildone.wiring import open_log, system_clock

pytestmark = pytest.mark.anyio

PROBE = """
import json, os, sys
sys.stdout.write(json.dumps({"run_id": "abc", "pid": 7}))
told = {"argv": sys.argv[1:], "goal": sys.stdin.read(), "cwd": os.getcwd(), "env": dict(os.environ)}
open(os.path.join(os.environ["TOLD"]), "w").write(json.dumps(told))
"""


class Desk:
    """A starter whose program only says what it was asked."""

    def __init__(self, root: Path, program: str = PROBE, **env: str) -> None:
        self.told = root / "told.json"
        self.allowed = root / "work"
        self.project = self.allowed / "shop"
        self.project.mkdir(parents=True)
        probe = root / "probe.py"
        probe.write_text(program)
        environment = {"PATH": os.environ["PATH"], "TOLD": str(self.told), **env}
        command = (sys.executable, str(probe))
        self.starter = Starter((str(self.allowed),), store=root / "store", environment=environment, command=command)

    def wish(self, **changes: object) -> Wish:
        facts = {"goal": "make it work", "folder": str(self.project), "limits": {"max_runs": 3}, **changes}
        return Wish(**facts)  # type: ignore[arg-type]

    async def start(self, **changes: object) -> Started:
        return await self.starter.start(self.wish(**changes))

    def asked(self) -> dict[str, object]:
        asked: dict[str, object] = json.loads(self.told.read_text())
        return asked


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


async def test_the_goal_goes_by_another_way_than_the_command_line(desk: Desk, tmp_path: Path) -> None:
    goal = "--new; rm -rf / \u00fc\n" + "x" * 150_000
    started = await desk.start(goal=goal, checks=("pytest -q", "--evil"), name="-x", model="opus")
    assert started == Started(run_id="abc", pid=7)
    asked = desk.asked()
    assert asked["goal"] == goal
    assert asked["cwd"] == str(desk.project)
    assert asked["argv"] == [
        "run", "--prompt-file=-", "--detach", "--json", "--new", "--max-runs=3", "--check=pytest -q", "--check=--evil",
        "--name=-x", "--model=opus", f"--cwd={desk.project}", f"--store={tmp_path / 'store'}",
    ]  # fmt: skip


async def test_limits_are_written_as_the_program_reads_them(desk: Desk) -> None:
    limits = {"max_cost_usd": 2.5, "max_duration": 90.0, "max_tokens": 1000, "max_iterations": 4.0}
    await desk.start(limits=limits)
    argv = desk.asked()["argv"]
    assert isinstance(argv, list)
    assert argv[5:9] == ["--max-cost=2.500000", "--max-duration=90s", "--max-tokens=1000", "--max-iterations=4"]


async def test_nothing_of_the_server_is_in_its_environment(tmp_path: Path) -> None:
    secrets = {
        "UNTILDONE_SERVE_DATABASE": "postgresql://u:secret@h/d", "UNTILDONE_TOKEN": "ud_secret", "PGPASSWORD": "secret",
        "DATABASE_URL": "secret", "CALLBACK_TOKEN": "secret",
    }  # fmt: skip
    desk = Desk(tmp_path, **secrets, ANTHROPIC_API_KEY="kept", UNTILDONE_MODEL="kept")
    await desk.start()
    env = desk.asked()["env"]
    assert isinstance(env, dict)
    assert "secret" not in json.dumps(env)
    assert (env["ANTHROPIC_API_KEY"], env["UNTILDONE_MODEL"]) == ("kept", "kept")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"goal": "  "}, "the goal is empty"),
        ({"goal": "x" * 200_001}, "longer than"),
        ({"limits": {}}, "needs a limit"),
        ({"limits": {"max_runs": 0}}, "above zero"),
        ({"limits": {"max_runs": 1.5}}, "whole number"),
        ({"limits": {"max_cost_usd": float("nan")}}, "above zero"),
        ({"limits": {"max_cost_usd": float("inf")}}, "above zero"),
        ({"limits": {"max_cost_usd": True}}, "above zero"),
        ({"limits": {"unbounded": 1}}, "unbounded is no limit"),
        ({"checks": ("x",) * 21}, "more than 20 checks"),
        ({"checks": ("\0",)}, "the check must be text"),
        ({"name": ""}, "the name must be text"),
        ({"folder": "shop"}, "absolute path"),
        ({"folder": "/a\0b"}, "absolute path"),
    ],
)
async def test_a_wish_that_cannot_work_starts_nothing(desk: Desk, changes: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        await desk.start(**changes)
    assert not desk.told.exists()


async def test_only_folders_that_were_allowed(desk: Desk, tmp_path: Path) -> None:
    outside = tmp_path / "workshop"
    outside.mkdir()
    (desk.allowed / "link").symlink_to(outside)
    for folder in (outside, desk.allowed / "link", desk.allowed / ".." / "workshop", tmp_path, Path("/")):
        with pytest.raises(StartRefused, match="--folder"):
            await desk.start(folder=str(folder))
    with pytest.raises(UsageError, match="is no folder"):
        await desk.start(folder=str(desk.allowed / "gone"))
    assert not desk.told.exists()
    (tmp_path / "way").symlink_to(desk.project)
    await desk.start(folder=str(tmp_path / "way"))
    assert desk.asked()["cwd"] == str(desk.project)


async def test_without_a_folder_nothing_starts_and_the_option_is_named(tmp_path: Path) -> None:
    starter = Starter((), store=tmp_path, environment={})
    with pytest.raises(StartRefused, match="untildone serve --folder DIR"):
        await starter.start(Wish(goal="g", folder="/tmp", limits={"max_runs": 1}))


async def test_what_the_program_says_is_what_the_browser_hears(tmp_path: Path) -> None:
    desk = Desk(
        tmp_path, "import sys; sys.stderr.write('a word\\nuntildone: the folder is \\x1b[31mbusy\\n'); sys.exit(2)"
    )
    with pytest.raises(StartRefused, match=r"^the folder is busy$"):
        await desk.start()


async def test_words_that_make_no_sense_are_said_to(tmp_path: Path) -> None:
    with pytest.raises(UntildoneError, match="makes no sense"):
        await Desk(tmp_path, "print('hello')").start()


async def test_the_real_program_starts_a_real_run(tmp_path: Path) -> None:
    """It reaches the log; that there is nobody who could work for it is another matter."""
    project, store = tmp_path / "shop", tmp_path / "store"
    project.mkdir()
    fake = tmp_path / "claude"
    fake.write_text("#!/bin/sh\nexit 1\n")
    fake.chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "UNTILDONE_AGENT": "claude_cli"}
    starter = Starter((str(tmp_path),), store=store, environment=env)
    wish = Wish(goal="make it work", folder=str(project), limits={"max_iterations": 1}, name="shop")
    started = await starter.start(wish)
    log = open_log(store, system_clock())
    async with asyncio.timeout(PATIENCE):
        while any(row.alive for row in await log.runs()):
            await asyncio.sleep(0.05)
    (row,) = await log.runs()
    assert (row.run_id, row.name, row.folder) == (started.run_id, "shop", str(project))
    await log.close()

"""Nothing heavy is imported until it is needed, and importing does nothing."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import untildone
from cli.cli_kit import FIRST, SUSPENDED, Runs

ROOT = Path(untildone.__file__).parent
HEAVY = (
    "alembic", "asyncpg", "claude_agent_sdk", "fastapi", "httpx", "httpx2", "hypothesis", "jinja2", "mcp", "pydantic",
    "rich", "sqlalchemy", "starlette", "uvicorn",
)  # fmt: skip
NOT_FOR_LOOKING = (
    "agents", "briefing", "cli.progress", "core.fail_to_pass", "core.guard", "core.guard_rules",
    "core.lines", "core.notice", "core.prompt", "core.pull", "core.replay", "core.secrets", "engine.drive",
    "engine.parts", "git.commit", "git.snapshot", "git.worktrees", "moving", "notify", "rehearsal", "sandbox", "server",
    "serving", "trees", "uplink", "witness",
)  # fmt: skip
"""Rooms and files that only those need who drive, prove, land, send or serve."""
STANDARD = re.compile(
    r"^\s*(?:import dataclasses|from dataclasses import (?:\([^)]*|[^\n]*)\bdataclass\b)", re.MULTILINE
)


def all_modules_after(code: str, *argv: str) -> set[str]:
    script = f"import sys\nsys.argv = ['untildone', *{list(argv)!r}]\ntry:\n    {code}\nexcept SystemExit:\n    pass\n"
    script += "print('\\n'.join(sys.modules), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=240, check=True, env=dict(os.environ)
    )
    return set(done.stderr.split())


def modules_after(code: str, *argv: str) -> set[str]:
    return {name.partition(".")[0] for name in all_modules_after(code, *argv)}


MAIN = "from untildone.__main__ import main; main()"


@pytest.mark.parametrize("argv", [("status", "--json"), ("ls",)], ids=" ".join)
def test_looking_at_runs_imports_only_what_is_looked_at(argv: tuple[str, ...], tmp_path: Path) -> None:
    Runs(tmp_path / "store").begin(tmp_path, *FIRST, SUSPENDED)
    loaded = all_modules_after(MAIN, *argv, "--store", str(tmp_path / "store"), "--cwd", str(tmp_path))
    assert "untildone.core.views" in loaded
    assert {name.partition(".")[0] for name in loaded} & set(HEAVY) == set()
    ours = {name.removeprefix("untildone.") for name in loaded if name.startswith("untildone.")}
    assert {name for name in ours if any(f"{name}.".startswith(f"{room}.") for room in NOT_FOR_LOOKING)} == set()


def test_help_and_other_looks_import_nothing_heavy() -> None:
    """One process does all of it: what any of them imports stays."""
    helps = [[command, "--help"] for command in ("run", "stop", "worker", "serve", "token")]
    lines = [*helps, ["log"], ["brief"], ["config"], ["status"], ["ls", "--json"]]
    loaded = all_modules_after(f"from untildone.cli.app import entry; [entry(line) for line in {lines!r}]")
    assert {"untildone.cli.running", "untildone.cli.serving", "untildone.cli.tokens"} <= loaded
    assert {name.partition(".")[0] for name in loaded} & set(HEAVY) == set()


def test_the_list_of_commands_imports_none_of_them() -> None:
    ours = {name for name in all_modules_after(MAIN, "--help") if name.startswith("untildone.")}
    assert ours == {
        "untildone.__main__",
        "untildone.cli",
        "untildone.cli.app",
        "untildone.cli.streams",
        "untildone.errors",
    }


def test_every_dataclass_is_one_whose_methods_are_written_at_need() -> None:
    """The standard decorator compiles six methods of each class at every start: half of it, with hundreds of them."""
    sources = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in ROOT.rglob("*.py")}
    standard = {name for name, source in sources.items() if STANDARD.search(source)}
    assert standard == {"core/dataclass.py"}


def test_garbage_is_looked_for_again_once_the_start_is_over() -> None:
    look = "import click, gc; say = click.echo; click.echo = lambda _: say([gc.isenabled(), gc.get_freeze_count() > 0])"
    script = f"{look}; import sys; sys.argv[1:] = ['ls']; from untildone.__main__ import main as go; go()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=240, check=True)
    assert done.stdout == "[True, True]\n"


def test_the_version_needs_not_even_click() -> None:
    assert modules_after(MAIN, "--version") & {"click", "asyncio", "msgspec", "sqlite3", *HEAVY} == set()


def test_nothing_imports_the_sdk_that_brings_claude_code() -> None:
    sources = (path.read_text(encoding="utf-8") for path in ROOT.rglob("*.py"))
    assert not any(re.search(r"^\s*(?:from|import) claude_agent_sdk", source, re.MULTILINE) for source in sources)


def test_importing_the_package_touches_no_file(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}
    code = "import untildone, untildone.config, untildone.wiring, untildone.cli"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=env, timeout=240, check=True)
    assert list(tmp_path.rglob("*")) == []

"""Nothing heavy is imported until it is needed, and importing does nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("claude_agent_sdk", "mcp", "starlette", "pydantic", "uvicorn", "httpx2", "rich", "hypothesis")


def modules_after(code: str, *argv: str) -> set[str]:
    script = f"import sys\nsys.argv = ['untildone', *{list(argv)!r}]\ntry:\n    {code}\nexcept SystemExit:\n    pass\n"
    script += "print('\\n'.join(sys.modules), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True, env=dict(os.environ)
    )
    return {name.partition(".")[0] for name in done.stderr.split()}


MAIN = "from untildone.__main__ import main; main()"


@pytest.mark.parametrize("argv", [("status",), ("status", "--json"), ("ls",), ("config",)], ids=" ".join)
def test_looking_at_runs_imports_nothing_heavy(argv: tuple[str, ...], tmp_path: Path) -> None:
    assert modules_after(MAIN, *argv) & set(HEAVY) == set()


def test_the_version_needs_not_even_click() -> None:
    assert modules_after(MAIN, "--version") & {"click", "asyncio", "msgspec", "sqlite3", *HEAVY} == set()


def test_the_sdk_agent_is_imported_without_the_sdk() -> None:
    assert "claude_agent_sdk" not in modules_after("import untildone.agents.claude_sdk")


def test_importing_the_package_touches_no_file(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}
    code = "import untildone, untildone.config, untildone.wiring, untildone.cli"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=env, timeout=60, check=True)
    assert list(tmp_path.rglob("*")) == []

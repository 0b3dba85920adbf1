"""The rehearsal everybody sees first: a small real repository, a goal, and a model that lies once."""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from untildone.errors import WorkspaceError
from untildone.rehearsal.scenario import Scenario, shipped_scenario

GOAL = "Implement the two conversions in thermo/convert.py so that the tests pass."
CHECKS = ("python3 -m unittest -q",)

FILES = {
    ".gitignore": "__pycache__/\n",
    "README.md": "# thermo\n\nTurns degrees Celsius into degrees Fahrenheit and back.\n",
    "thermo/__init__.py": "",
    "thermo/convert.py": '''"""Temperatures."""


def celsius_to_fahrenheit(celsius):
    raise NotImplementedError("celsius_to_fahrenheit")


def fahrenheit_to_celsius(fahrenheit):
    raise NotImplementedError("fahrenheit_to_celsius")
''',
    "tests/__init__.py": "",
    "tests/test_convert.py": """import unittest

from thermo.convert import celsius_to_fahrenheit, fahrenheit_to_celsius


class Conversions(unittest.TestCase):
    def test_water_boils(self):
        self.assertEqual(celsius_to_fahrenheit(100), 212)

    def test_and_back_again(self):
        self.assertEqual(fahrenheit_to_celsius(212), 100)


if __name__ == "__main__":
    unittest.main()
""",
}


class Story(NamedTuple):
    """What a rehearsal needs."""

    scenario: Scenario
    goal: str
    checks: tuple[str, ...]


def story() -> Story:
    """The scripted model, the goal, and the commands that decide whether it is reached."""
    return Story(shipped_scenario("story"), GOAL, CHECKS)


def make_scratch_repository(folder: Path) -> None:
    """Fill an empty or absent folder with a small Python project under git whose tests fail."""
    make_repository(folder, FILES, "Two conversions to write")


def make_repository(folder: Path, files: Mapping[str, str], message: str) -> None:
    """Fill an empty or absent folder with these files, under git."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise WorkspaceError(f"{folder}: the scratch repository needs an empty folder")
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    _git(folder, "init", "--quiet", "--initial-branch=main")
    _git(folder, "config", "user.name", "untildone rehearsal")
    _git(folder, "config", "user.email", "rehearsal@localhost")
    _git(folder, "config", "commit.gpgsign", "false")
    _git(folder, "add", "--all")
    _git(folder, "commit", "--quiet", "--no-verify", "--message", message)


def _git(folder: Path, *arguments: str) -> None:
    try:
        # The room for git works inside a run; here there is none yet, only a folder to fill.
        done = subprocess.run(  # noqa: S603, TID251 fixed arguments; see above
            ["git", *arguments],  # noqa: S607 git is found on PATH like everywhere else
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as trouble:
        raise WorkspaceError("git does not answer: the rehearsal needs git on PATH") from trouble
    if done.returncode:
        raise WorkspaceError(f"git {arguments[0]} failed in {folder}: {done.stderr.strip()}")

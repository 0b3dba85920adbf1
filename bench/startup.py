"""How long the command takes to start, against bare Python, and how much it imports on the way."""

import os
import subprocess
import sys
import tempfile
from statistics import median

from result import Figure, Result, ratio
from stopwatch import seconds_of

VERSION_GATE = 2.0
HEAVY = (
    "claude_agent_sdk",
    "fastapi",
    "httpx",
    "httpx2",
    "mcp",
    "pydantic",
    "rich",
    "sqlalchemy",
    "starlette",
    "uvicorn",
)
LIBRARIES = "import asyncio, click, msgspec, sqlite3"
"""What looking at a run cannot do without."""
STATUS_GATE = 2.5
ENTRY = "import sys; from untildone.__main__ import main; sys.exit(main())"
"""What the installed command is."""
COMMANDS = {
    "bare": ["-c", "pass"],
    "libraries": ["-c", LIBRARIES],
    "version": ["-c", ENTRY, "--version"],
    "help": ["-c", ENTRY, "--help"],
    "status": ["-c", ENTRY, "status"],
    "ls": ["-c", ENTRY, "ls"],
}
SHOWN = (
    ("version", "--version", "bare", VERSION_GATE),
    ("help", "--help", "bare", None),
    ("status", "status", "bare", None),
    ("status", "status", "libraries", STATUS_GATE),
    ("ls", "ls", "libraries", STATUS_GATE),
)
AGAINST = {"bare": "", "libraries": ", against its libraries alone"}


def measure(*, quick: bool) -> Result:
    """Start all of them in turns."""
    with tempfile.TemporaryDirectory(prefix="untildone-bench-") as folder:
        env = {"PATH": os.environ.get("PATH", os.defpath), "HOME": folder, "XDG_STATE_HOME": folder}
        rounds = [{name: _seconds(argv, env) for name, argv in COMMANDS.items()} for _ in range(8 if quick else 20)]
        modules = {name: _modules(argv, env) for name, argv in COMMANDS.items()}
    times = {name: [one[name] for one in rounds[1:]] for name in COMMANDS}
    figures = [
        Figure(
            name=f"`untildone {shown}`{AGAINST[against]}",
            value=ratio(times[name], times[against]),
            at_most=gate,
            note=f"{median(times[name]) * 1000:.0f} ms against {median(times[against]) * 1000:.0f} ms, "
            f"{len(modules[name])} modules against {len(modules[against])}",
        )
        for name, shown, against, gate in SHOWN
    ]
    heavy = {module for name in COMMANDS for module in modules[name] if module.partition(".")[0] in HEAVY}
    figures.append(Figure(name="heavy modules imported by any of them", value=len(heavy), unit="", at_most=0))
    return Result(title="Start of the command, against `python -c pass`", figures=tuple(figures))


def _seconds(argv: list[str], env: dict[str, str]) -> float:
    return seconds_of([sys.executable, *argv], env=env)


def _modules(argv: list[str], env: dict[str, str]) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *argv], env=env, capture_output=True, text=True, timeout=60, check=True
    )
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}

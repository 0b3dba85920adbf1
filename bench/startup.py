"""How long the command takes to start, against bare Python, and how much it imports on the way."""

import os
import subprocess
import sys
import tempfile
from statistics import median

from result import Figure, Result, ratio
from stopwatch import seconds_of

VERSION_GATE = 2.0
HEAVY = ("claude_agent_sdk", "mcp", "pydantic", "starlette", "uvicorn", "httpx", "rich")
ENTRY = "import sys; from untildone.__main__ import main; sys.exit(main())"
"""What the installed command is."""
COMMANDS = {"bare": ["-c", "pass"], "version": ["-c", ENTRY, "--version"], "status": ["-c", ENTRY, "status"]}


def measure(*, quick: bool) -> Result:
    """Start all of them in turns."""
    with tempfile.TemporaryDirectory(prefix="untildone-bench-") as folder:
        env = {"PATH": os.environ.get("PATH", os.defpath), "HOME": folder, "XDG_STATE_HOME": folder}
        rounds = [{name: _seconds(argv, env) for name, argv in COMMANDS.items()} for _ in range(8 if quick else 20)]
        modules = {name: _modules(argv, env) for name, argv in COMMANDS.items()}
    times = {name: [one[name] for one in rounds[1:]] for name in COMMANDS}
    figures = [
        Figure(
            name=f"`untildone {shown}`",
            value=ratio(times[name], times["bare"]),
            at_most=gate,
            note=f"{median(times[name]) * 1000:.0f} ms against {median(times['bare']) * 1000:.0f} ms, "
            f"{len(modules[name])} modules against {len(modules['bare'])}",
        )
        for name, shown, gate in (("version", "--version", VERSION_GATE), ("status", "status", None))
    ]
    heavy = {module for name in COMMANDS for module in modules[name] if module.partition(".")[0] in HEAVY}
    figures.append(Figure(name="heavy modules imported by either", value=len(heavy), unit="", at_most=0))
    return Result(title="Start of the command, against `python -c pass`", figures=tuple(figures))


def _seconds(argv: list[str], env: dict[str, str]) -> float:
    return seconds_of([sys.executable, *argv], env=env)


def _modules(argv: list[str], env: dict[str, str]) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *argv], env=env, capture_output=True, text=True, timeout=60, check=True
    )
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}

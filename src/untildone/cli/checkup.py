"""What `doctor` looks at. It never reads a login: whether that is valid shows in the first iteration."""

import asyncio
import os
import shutil
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from untildone import config, wiring
from untildone.agents.argv import find_claude
from untildone.core.figures import count
from untildone.core.printable import one_line
from untildone.errors import UntildoneError

_PATIENCE = 20.0
_LEAST_FREE = 1 << 30


class Finding(NamedTuple):
    """One thing that was looked at."""

    name: str
    ok: bool
    detail: str
    remedy: str = ""


def check_up(folder: Path, store: Path, claude: str | None) -> list[Finding]:
    """Look at everything a run needs, cheapest first."""
    return [
        _python(),
        asyncio.run(_program("git", shutil.which("git"), "install it with `sudo apt-get install git`")),
        _attempt("claude", lambda: _claude(claude), "install Claude Code, or give --claude PROGRAM"),
        _login(),
        _attempt("store", lambda: _store(store), "give another folder with --store"),
        _attempt("settings", lambda: _settings(folder), "mend or trust the file it names"),
        _disk(folder),
    ]


def _attempt(name: str, look: Callable[[], Finding], remedy: str) -> Finding:
    try:
        return look()
    except UntildoneError as trouble:
        return Finding(name, ok=False, detail=str(trouble), remedy=remedy)


def _python() -> Finding:
    return Finding("python", ok=True, detail=f"{sys.version.split()[0]} at {sys.executable}")


def _claude(wanted: str | None) -> Finding:
    return asyncio.run(_program("claude", find_claude(wanted), "install Claude Code, or give --claude PROGRAM"))


async def _program(name: str, path: str | None, remedy: str) -> Finding:
    if path is None:
        return Finding(name, ok=False, detail="not on PATH", remedy=remedy)
    try:
        process = await asyncio.create_subprocess_exec(
            path,
            "--version",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={"PATH": os.environ.get("PATH", os.defpath)},  # a version needs nothing of the person's
        )
        out, _ = await asyncio.wait_for(process.communicate(), _PATIENCE)
    except TimeoutError:
        process.kill()
        await process.wait()
        return Finding(name, ok=False, detail=f"{path} does not answer `--version`", remedy=remedy)
    except OSError as broken:
        return Finding(name, ok=False, detail=f"{path} cannot be started: {broken.strerror}", remedy=remedy)
    said = out.decode("utf-8", "replace").strip()
    return Finding(
        name, ok=process.returncode == 0, detail=f"{said} at {path}", remedy="" if process.returncode == 0 else remedy
    )


def _login() -> Finding:
    keyed = next((name for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN") if os.environ.get(name)), None)
    if keyed:
        return Finding("login", ok=True, detail=f"{keyed} is set: that account pays")
    return Finding(
        "login", ok=True, detail="no key in the environment: Claude Code's own login is used (`claude` to check)"
    )


def _store(store: Path) -> Finding:
    async def open_and_close() -> int:
        log = wiring.open_log(store, wiring.system_clock())
        try:
            return len(await log.runs())
        finally:
            await log.close()

    runs = count(asyncio.run(open_and_close()), "run")
    damage = _damage(store / wiring.STORE_FILE)
    if damage:
        remedy = f"move {store / wiring.STORE_FILE} away, or repair it with `sqlite3 FILE .recover`"
        return Finding("store", ok=False, detail=f"{store} is damaged: {one_line(damage, 80)}", remedy=remedy)
    return Finding("store", ok=True, detail=f"{store}, {runs}")


def _damage(database: Path) -> str:
    """What is wrong with the file, by SQLite's own look at all of it; empty when it is sound."""
    import sqlite3

    with closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        try:
            (said,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        except sqlite3.Error as broken:
            return str(broken)
    return "" if said == "ok" else str(said)


def _settings(folder: Path) -> Finding:
    project, user = config.project_file(folder), config.user_file(os.environ)
    config.resolve({}, env=os.environ, project_file=project, user_file=user)
    files = [str(path) for path in (project, user) if path is not None]
    return Finding("settings", ok=True, detail=", ".join(files) or "no files, all defaults")


def _disk(folder: Path) -> Finding:
    free = shutil.disk_usage(folder).free
    enough = free >= _LEAST_FREE
    return Finding(
        "disk", ok=enough, detail=f"{free / (1 << 30):.1f} GiB free", remedy="" if enough else "make room first"
    )

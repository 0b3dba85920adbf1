"""Processes by their numbers, as /proc knows them."""

import asyncio
from pathlib import Path

PATIENCE = 60.0
"""A process that was told to end may take this long on a busy machine."""


def state_of(pid: int) -> str:
    """The letter of its state; empty once it is gone. It may end while its file is read."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def is_alive(pid: int) -> bool:
    """Whether it still runs. A dead one stays as a zombie until its parent asks."""
    return state_of(pid) not in {"", "Z"}


def living_of(run_id: str) -> list[int]:
    """Living processes that carry the mark of this run."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            environ = (entry / "environ").read_bytes()
        except OSError:
            continue
        if f"UNTILDONE_RUN={run_id}".encode() in environ.split(b"\0") and is_alive(int(entry.name)):
            found.append(int(entry.name))
    return found


async def until_dead(pid: int) -> None:
    """Wait for its end."""
    async with asyncio.timeout(PATIENCE):
        while is_alive(pid):
            await asyncio.sleep(0.01)

"""What a detached run prints is bounded: a file that has grown too large makes way for a new one."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

LOG_CAP = 16 * 1024 * 1024
"""Bytes. One older file of this size is kept beside it."""
LOOK_EVERY = 5.0


@asynccontextmanager
async def bounded(log_file: Path, *, cap: int = LOG_CAP, every: float = LOOK_EVERY) -> AsyncIterator[None]:
    """While inside, our standard output and error, which go to this file, never fill much more than twice `cap`."""
    looking = asyncio.create_task(_look(log_file, cap, every))
    try:
        yield
    finally:
        looking.cancel()
        await asyncio.wait([looking])


async def _look(log_file: Path, cap: int, every: float) -> None:
    while True:
        await asyncio.sleep(every)
        # A full disk or a folder taken away is told elsewhere; printing goes on into what is open.
        with suppress(OSError):
            change_over(log_file, cap)


def make_way(log_file: Path, cap: int = LOG_CAP) -> bool:
    """Move a file that is full aside, in place of the one that was moved before."""
    if not log_file.exists() or log_file.stat().st_size <= cap:
        return False
    log_file.replace(log_file.with_name(f"{log_file.name}.1"))
    return True


def change_over(log_file: Path, cap: int) -> None:
    """Go on in a new file if ours is full. We are its only writer, so there is nothing to copy."""
    if not os.path.samestat(os.fstat(1), log_file.stat()) or not make_way(log_file, cap):
        return
    fresh = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    for stream in (1, 2):
        os.dup2(fresh, stream)
    os.close(fresh)

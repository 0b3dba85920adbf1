"""A program that folds the notes of loops, and dies where it is told to: `loops_kit.py STORE [before|after]`."""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from untildone import loops, wiring
from untildone.core.events import Event
from untildone.store.sqlite import SqliteLog


def dying(log: SqliteLog, where: str) -> SqliteLog:
    """The log, with a death around its next append."""
    append = log.transcribe

    async def transcribe(run_id: str, happened: Sequence[tuple[float, Event]], **how: Any) -> bool:
        if where == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        taken = await append(run_id, happened, **how)
        os.kill(os.getpid(), signal.SIGKILL)
        return taken

    log.transcribe = transcribe  # type: ignore[method-assign]
    return log


async def main(store: Path, where: str) -> None:
    log = wiring.open_log(store, wiring.system_clock())
    assert isinstance(log, SqliteLog)
    try:
        print(await loops.fold_notes(dying(log, where) if where else log, store, {"HOME": str(store)}))
    finally:
        await log.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else ""))

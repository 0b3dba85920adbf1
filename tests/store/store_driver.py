"""A process of its own that uses a store: `store_driver.py VERB DATABASE ARGUMENTS`. One line out per step done."""

import asyncio
import os
import resource
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from untildone.core.codec import event_type
from untildone.core.events import MessageReceived
from untildone.core.trace import AgentMessage
from untildone.errors import StoreError
from untildone.store.sqlite import SqliteLog


class Fixed:
    """A clock that stands still: every process here agrees on the time."""

    def now(self) -> float:
        return 1_800_000_000.0

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def say(*words: object) -> None:
    print(*words, flush=True)


async def hold(log: SqliteLog, run_id: str, folder: str) -> None:
    """Take a run's lease and keep it until the end of stdin."""
    lease = await log.acquire(run_id, name="held", folder=folder)
    say("held", lease.token)
    sys.stdin.read()


async def append(log: SqliteLog, run_id: str, count: str, writer: str) -> None:
    """Append many times, some of it durable."""
    for number in range(int(count)):
        text = f"{writer}:{number}"
        trace = [AgentMessage(iteration_num=number, text=text)]
        control = [MessageReceived(by=writer, content=text)]
        for record in await log.append(run_id, control if number % 5 == 0 else trace):
            say(record.seq, text)


async def pairs(log: SqliteLog, run_id: str) -> None:
    """Append pairs for ever: whoever kills this finds both of a pair or none."""
    number = 0
    while True:
        both = [MessageReceived(by=half, content=str(number)) for half in ("first", "second")]
        records = await log.append(run_id, both)
        say(records[-1].seq)
        number += 1


async def drive(log: SqliteLog, run_id: str, folder: str) -> None:
    """Drive a run: one durable event for each line on stdin, one of the trace for a line that begins with a dot."""
    lease = await log.acquire(run_id, name="driven", folder=folder)
    say("held", lease.token)
    for line in map(str.strip, sys.stdin):
        event = AgentMessage(iteration_num=1, text=line) if line[0] == "." else MessageReceived(by="me", content=line)
        try:
            records = await log.append(run_id, [event], lease=lease)
            say(*(f"{record.seq}:{event_type(record.event)}" for record in records))
        except StoreError as error:
            say(type(error).__name__, error)
    await log.release(lease, status="suspended")
    say("released")


async def full_disk(log: SqliteLog, run_id: str) -> None:
    """Append until the system refuses to let a file grow, then say what we were told."""
    cap = 1 << 20
    resource.setrlimit(resource.RLIMIT_FSIZE, (cap, cap))
    appended = 0
    try:
        while True:
            await log.append(run_id, [MessageReceived(by="me", content="x" * 10_000)])
            appended += 1
    except StoreError as error:
        say(appended)
        say(error)


async def unprivileged(log: SqliteLog) -> None:
    """Nothing more: opening is the test."""
    say("opened")


async def make(log: SqliteLog) -> None:
    """Make each store named on stdin, in step with others who do the same."""
    say("ready")
    for line in sys.stdin:
        try:
            await SqliteLog(Path(line.strip()), Fixed()).close()
            say("made")
        except StoreError as error:
            say(error)


VERBS: dict[str, Callable[..., Awaitable[None]]] = {
    "hold": hold,
    "append": append,
    "pairs": pairs,
    "drive": drive,
    "full_disk": full_disk,
    "make": make,
    "unprivileged": unprivileged,
}


async def main(verb: str, database: str, *arguments: str) -> None:
    if verb == "unprivileged" and os.geteuid() == 0:
        os.setuid(65534)
    try:
        log = SqliteLog(Path(database), Fixed())
    except StoreError as error:
        say(error)
        return
    await VERBS[verb](log, *arguments)
    await log.close()


asyncio.run(main(*sys.argv[1:]))

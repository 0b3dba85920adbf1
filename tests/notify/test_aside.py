"""Work that blocks holds up neither the loop nor the end of the program."""

import subprocess
import sys
import threading

import pytest

from patience import PATIENCE
from untildone.notify.aside import aside

pytestmark = pytest.mark.anyio


async def test_it_answers_and_raises_as_the_work_does() -> None:
    def fails() -> str:
        raise ValueError("no")

    assert await aside(lambda: "yes", within=PATIENCE) == "yes"
    with pytest.raises(ValueError, match="no"):
        await aside(fails, within=PATIENCE)


async def test_what_takes_too_long_is_left_to_itself() -> None:
    never, ended = threading.Event(), threading.Event()

    def work() -> None:
        never.wait(PATIENCE)
        ended.set()

    with pytest.raises(TimeoutError):
        await aside(work, within=0.05)
    never.set()
    assert ended.wait(PATIENCE), "its answer comes to nobody, and that hurts nobody"


async def test_a_program_ends_although_the_work_does_not() -> None:
    program = """
import asyncio, threading
from untildone.notify.aside import aside

async def main():
    try:
        await aside(threading.Event().wait, within=0.05)
    except TimeoutError:
        print("gone on")

asyncio.run(main())
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "gone on\n", "")

"""Programs in sandboxes of ours: the same promises as on the host, and one way out."""

import asyncio
import os
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sandbox.test_host import FAMILY, eventually, feed, living
from untildone.core.door import Refused, Table
from untildone.errors import AgentError
from untildone.ports import Spawner
from untildone.sandbox.agents_view import Quarters, view
from untildone.sandbox.boxed import BoxedSpawner
from untildone.sandbox.bubblewrap import can_enclose, enclosed
from untildone.sandbox.door import Watcher
from untildone.sandbox.host import HostSpawner

pytestmark = pytest.mark.anyio

PATIENCE = 120.0
ENV = {"PATH": "/usr/bin:/bin"}


class Box:
    """A sandbox around one folder."""

    def __init__(self, tmp: Path) -> None:
        self.folder, home = tmp / "home" / "project", tmp / "home"
        self.folder.mkdir(parents=True)
        self.refused: list[Refused] = []
        quarters = Quarters(around=tmp / "around", home=home, writable=(self.folder,))
        probe = can_enclose()
        seen = view(quarters, ENV, root=False, as_user=os.geteuid() != 0 or probe.as_user)
        words = (*enclosed(seen, program=probe.program), "--chdir", str(self.folder), "--")
        self.spawner = BoxedSpawner(HostSpawner(), lambda _: words, Table())

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Spawner]:
        watcher = Watcher(replied=lambda _: None, refused=self.refused.append)
        async with asyncio.timeout(PATIENCE), self.spawner.open(watcher):
            yield self.spawner

    async def run(self, *argv: str, stdin: bytes | None = None) -> tuple[int, bytes, str]:
        process = await self.spawner.spawn(
            argv, cwd=str(self.folder), env=ENV, stdin="null" if stdin is None else "pipe"
        )
        feeding = asyncio.create_task(feed(process, stdin)) if stdin is not None else None
        output = bytearray()
        while chunk := await process.read():
            output += chunk
        if feeding:
            await feeding
        return await process.wait(), bytes(output), process.stderr_tail()


async def test_output_errors_and_the_exit_status_come_through(tmp_path: Path) -> None:
    box = Box(tmp_path)
    async with box.open():
        said = await box.run("sh", "-c", "pwd; echo bad >&2; sleep 0.2; exit 7")
        assert said == (7, f"{box.folder}\n".encode(), "bad\n")
        data = os.urandom(1 << 20) * 20
        assert await box.run("cat", stdin=data) == (0, data, "")


async def test_one_way_leads_out_and_it_is_closed_with_the_program(tmp_path: Path) -> None:
    box = Box(tmp_path)
    ask = "curl -s -m 20 -o said -w '%{http_code}' -x http://127.0.0.1:8484 http://unknown.example/; ls /sys/class/net"
    async with box.open():
        code, output, _ = await box.run("sh", "-c", ask)
        assert (code, output[:3]) == (2, b"403")
        assert "unknown.example:80 cannot be reached from inside" in (box.folder / "said").read_text()
        assert [one.host for one in box.refused] == ["unknown.example:80"]
        assert await eventually(lambda: not box.spawner._watches)


async def test_end_lets_nothing_survive(tmp_path: Path) -> None:
    box, token = Box(tmp_path), str(uuid.uuid4().int)[:9]
    async with box.open() as spawner:
        process = await spawner.spawn(["sh", "-c", FAMILY.format(token=token)], cwd=str(box.folder), env=ENV)
        assert await process.read() == b"ready\n"
        assert await eventually(lambda: len(living(token)) == 5)
        assert len(process.family()) > 5
        await process.end(0.2)
    assert await eventually(lambda: not living(token))


async def test_a_sandbox_that_cannot_start_says_why(tmp_path: Path) -> None:
    box = Box(tmp_path)
    box.spawner = BoxedSpawner(HostSpawner(), lambda _: ("bwrap", "--no-such-option"), Table())
    async with box.open():
        with pytest.raises(AgentError, match="the sandbox did not start: bwrap: Unknown option --no-such-option"):
            await box.run("true")

"""One suite for all sandboxes: the same promises about programs, and behind walls one way out."""

import asyncio
import os
import subprocess
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from containers_kit import IMAGE, Daemon, Engine, docker_engine, podman_engine
from patience import PATIENCE
from sandbox.test_host import FAMILY, eventually, feed, living
from untildone.core.door import Refused, Table
from untildone.core.policy import ENGINES
from untildone.errors import AgentError
from untildone.ports import Sandbox, Watcher
from untildone.sandbox.agents_view import Quarters, view
from untildone.sandbox.boxed import BoxedSpawner
from untildone.sandbox.bubblewrap import Bubblewrap, can_enclose
from untildone.sandbox.containers import Containers, find_engine
from untildone.sandbox.host import HostSpawner
from untildone.sandbox.view import View
from untildone.sandbox.walls import Walls

pytestmark = pytest.mark.anyio

ENV = {"PATH": "/usr/bin:/bin"}
SOAKED = tuple(pytest.param(kind, marks=pytest.mark.soak) for kind in ENGINES)
WALLED = ("bwrap", *SOAKED)


class Box:
    """A sandbox around one folder."""

    def __init__(self, kind: str, tmp: Path, engine: Engine | None = None) -> None:
        self.folder, self._tmp = tmp / "home" / "project", tmp
        self.folder.mkdir(parents=True)
        self.refused: list[Refused] = []
        self._engine = engine
        self._host = HostSpawner()
        self.env = ENV | {"HOME": str(tmp / "home")}
        self.sandbox: Sandbox = self._host if kind == "host" else BoxedSpawner(self._host, self.walls(), Table())

    def walls(self, *needs: str) -> Walls:
        if self._engine is None:
            probe = can_enclose()
            return Bubblewrap(self._host, lambda _: self._view(as_user=probe.as_user), program=probe.program)
        found = find_engine(self._engine.kind, {**ENV, **self._engine.env})
        return Containers(
            self._host, lambda _: self._view(of_image=True),
            engine=found, image=IMAGE, name=f"test-{self._tmp.name}", folder=str(self.folder), needs=needs or ("git",),
        )  # fmt: skip

    def _view(self, *, as_user: bool = False, of_image: bool = False) -> View:
        around, home = self._tmp / "around", self._tmp / "home"
        quarters = Quarters(around=around, home=home, writable=(self.folder,), of_image=of_image)
        return view(quarters, ENV, root=False, as_user=os.geteuid() != 0 or as_user)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Sandbox]:
        watcher = Watcher(asked=lambda: lambda _: None, refused=self.refused.append)
        async with asyncio.timeout(PATIENCE), self.sandbox.open(watcher):
            yield self.sandbox

    async def run(self, *argv: str, stdin: bytes | None = None) -> tuple[int, bytes, str]:
        process = await self.sandbox.spawn(
            argv, cwd=str(self.folder), env=self.env, stdin="null" if stdin is None else "pipe"
        )
        feeding = asyncio.create_task(feed(process, stdin)) if stdin is not None else None
        output = bytearray()
        while chunk := await process.read():
            output += chunk
        if feeding:
            await feeding
        return await process.wait(), bytes(output), process.stderr_tail()

    def command(self, *argv: str, **env: str) -> str:
        """What a command of the loop's own prints."""
        words = self.sandbox.words(str(self.folder))
        done = subprocess.run([*words, *argv], env={**self.env, **env}, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="session")
def docker() -> Iterator[tuple[Engine, Daemon]]:
    with docker_engine() as engine:
        yield engine


@pytest.fixture(scope="session")
def podman() -> Iterator[Engine]:
    with podman_engine() as engine:
        yield engine


@pytest.fixture
def box(request: pytest.FixtureRequest, tmp_path: Path) -> Box:
    engine = request.getfixturevalue(request.param) if request.param in ENGINES else None
    return Box(request.param, tmp_path, engine[0] if isinstance(engine, tuple) else engine)


on_all = pytest.mark.parametrize("box", ["host", *WALLED], indirect=True)
behind_walls = pytest.mark.parametrize("box", WALLED, indirect=True)


@on_all
async def test_output_errors_and_the_exit_status_come_through(box: Box) -> None:
    async with box.open():
        said = await box.run("sh", "-c", "pwd; echo bad >&2; sleep 0.2; exit 7")
        assert said == (7, f"{box.folder}\n".encode(), "bad\n")
        data = os.urandom(1 << 20) * 20
        assert await box.run("cat", stdin=data) == (0, data, "")


@on_all
async def test_a_command_of_the_loop_works_in_the_folder_with_its_environment(box: Box) -> None:
    async with box.open():
        await box.run("sh", "-c", "echo agent > made")
        said = await asyncio.to_thread(box.command, "sh", "-c", 'pwd; cat made; echo "$TOLD"', TOLD="a b\nc")
        assert said == f"{box.folder}\nagent\na b\nc\n"


@on_all
async def test_end_lets_nothing_survive(box: Box) -> None:
    token = str(uuid.uuid4().int)[:9]
    async with box.open() as sandbox:
        process = await sandbox.spawn(["sh", "-c", FAMILY.format(token=token)], cwd=str(box.folder), env=box.env)
        assert await process.read() == b"ready\n"
        assert await eventually(lambda: len(living(token)) == 5)
        assert len(process.family()) > 5
        await process.end(0.2)
    assert await eventually(lambda: not living(token))


@behind_walls
async def test_what_lies_outside_is_not_seen_and_not_changed(box: Box) -> None:
    secret = box.folder.parent / "secret"
    secret.write_text("of the user")
    async with box.open():
        tries = f"cat {secret}; echo mine > {secret}; echo mine > {box.folder.parent}/mine; touch here; ls"
        _, said, _ = await box.run("sh", "-c", tries)
        seen = await asyncio.to_thread(box.command, "sh", "-c", f"cat {secret}")
    assert "of the user" not in said.decode() + seen
    assert secret.read_text() == "of the user"
    assert not (box.folder.parent / "mine").exists()
    assert (box.folder / "here").exists()


@behind_walls
async def test_one_way_leads_out(box: Box) -> None:
    ask = "curl -s -m 20 -o said -w '%{http_code}' -x http://127.0.0.1:8484 http://unknown.example/; ls /sys/class/net"
    async with box.open():
        code, output, _ = await box.run("sh", "-c", ask)
        assert (code, output[:3]) in {(0, b"403"), (2, b"403")}, "some sandboxes show a /sys"
        assert set(output[3:].split()) <= {b"lo"}
        assert "unknown.example:80 cannot be reached from inside" in (box.folder / "said").read_text()
        assert [one.host for one in box.refused] == ["unknown.example:80"]


async def test_bubblewrap_that_cannot_start_says_why(tmp_path: Path) -> None:
    box, host = Box("bwrap", tmp_path), HostSpawner()
    (tmp_path / "bad").write_text("#!/bin/sh\nexec bwrap --no-such-option\n")
    (tmp_path / "bad").chmod(0o755)
    walls = Bubblewrap(host, lambda _: View(), program=str(tmp_path / "bad"))
    box.sandbox = BoxedSpawner(host, walls, Table())
    async with box.open():
        with pytest.raises(AgentError, match="the sandbox did not start: bwrap: Unknown option --no-such-option"):
            await box.run("true")

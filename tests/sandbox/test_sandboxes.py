"""One suite for all sandboxes: the same promises about programs, and behind walls one way out."""

import asyncio
import json
import os
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from containers_kit import IMAGE, Engine, docker_engine, podman_engine
from patience import PATIENCE
from sandbox.test_host import FAMILY, eventually, feed, living
from untildone.core.door import Refused, Table, host_rules
from untildone.core.policy import ENGINES
from untildone.errors import AgentError, NoSandbox
from untildone.ports import Sandbox, Watcher
from untildone.sandbox.agents_view import Quarters, view
from untildone.sandbox.boxed import BoxedSpawner
from untildone.sandbox.bubblewrap import Bubblewrap, can_enclose
from untildone.sandbox.containers import DEFAULT_IMAGE, Containers, find_engine, require_image
from untildone.sandbox.containers import Engine as FoundEngine
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
        self.engine = engine
        self._host = HostSpawner()
        self.env = ENV | {"HOME": str(tmp / "home")}
        self.sandbox: Sandbox = self._host if kind == "host" else BoxedSpawner(self._host, self.walls(), Table())

    def use(self, table: Table) -> None:
        self.sandbox = BoxedSpawner(self._host, self.walls(), table)

    def walls(self, *needs: str) -> Walls:
        if self.engine is None:
            probe = can_enclose()
            return Bubblewrap(self._host, lambda _: self._view(as_user=probe.as_user), program=probe.program)
        return Containers(
            self._host, lambda _: self._view(of_image=True),
            engine=self.found(), image=IMAGE, name=f"test-{self._tmp.name}", folder=str(self.folder),
            needs=needs or ("git",),
        )  # fmt: skip

    def found(self) -> FoundEngine:
        assert self.engine is not None
        return find_engine(self.engine.kind, {**ENV, **self.engine.env})

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
def docker() -> Iterator[Engine]:
    with docker_engine() as (engine, _):
        yield engine


@pytest.fixture(scope="session")
def podman() -> Iterator[Engine]:
    with podman_engine() as engine:
        yield engine


@pytest.fixture
def box(request: pytest.FixtureRequest, tmp_path: Path) -> Box:
    engine = request.getfixturevalue(request.param) if request.param in ENGINES else None
    return Box(request.param, tmp_path, engine)


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


@behind_walls
async def test_a_service_of_this_machine_has_its_port_inside_where_that_is_allowed(box: Box) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"you said " + await reader.readline())
        writer.close()

    ask = "import socket, sys; s = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); s.sendall(b'hello\\n')"
    ask += "; print(s.makefile().read(), end='')"
    async with (
        await asyncio.start_server(answer, "127.0.0.1", 0) as allowed,
        await asyncio.start_server(answer, "127.0.0.1", 0) as other,
    ):
        ports = [server.sockets[0].getsockname()[1] for server in (allowed, other)]
        box.use(Table(rules=host_rules([f"localhost:{ports[0]}"])))
        async with box.open():
            asked = [await box.run("python3", "-c", ask, str(port)) for port in ports]
    assert [output for _, output, _ in asked] == [b"you said hello\n", b""]


async def test_bubblewrap_that_cannot_start_says_why(tmp_path: Path) -> None:
    box, host = Box("bwrap", tmp_path), HostSpawner()
    (tmp_path / "bad").write_text("#!/bin/sh\nexec bwrap --no-such-option\n")
    (tmp_path / "bad").chmod(0o755)
    walls = Bubblewrap(host, lambda _: View(), program=str(tmp_path / "bad"))
    box.sandbox = BoxedSpawner(host, walls, Table())
    async with box.open():
        with pytest.raises(AgentError, match="the sandbox did not start: bwrap: Unknown option --no-such-option"):
            await box.run("true")


# --- containers ------------------------------------------------------------------------------------------

in_containers = pytest.mark.parametrize("box", SOAKED, indirect=True)
ALONE = """
import asyncio, json, sys
from pathlib import Path
from containers_kit import Engine
from sandbox.test_sandboxes import Box

async def main(kind, env, folder):
    box = Box(kind, Path(folder), Engine(kind, env))
    async with box.open():
        ask = "curl -s -m 20 -x http://127.0.0.1:8484 http://unknown.example/"
        print((await box.run("sh", "-c", ask))[1].decode())

asyncio.run(main(sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]))
"""


@in_containers
async def test_nothing_is_left_of_it_and_what_a_dead_driver_left_goes(box: Box) -> None:
    assert box.engine is not None
    namespace, gone = Path("/proc/self/ns/pid").readlink(), str(uuid.uuid4())
    for name, driver in (("dead", f"{namespace} {os.getpid()} 1"), ("elsewhere", f"pid:[1] {os.getpid()} 1")):
        labels = (f"--label=untildone.driver={driver}", "--label=untildone.box=another")
        box.engine("run", "-d", "--rm", "--network=none", *labels, f"--name={name}-{gone}", IMAGE, "sleep", "1000")
    async with box.open():
        there = box.engine.containers()
        assert f"dead-{gone}" not in there
        assert f"elsewhere-{gone}" in there
        assert len(there) == 2
        await box.sandbox.spawn(["sleep", "1000"], cwd=str(box.folder), env=box.env, stdin="null")
        assert len(box.engine.containers()) == 3
    assert box.engine.containers() == [f"elsewhere-{gone}"]
    box.engine("rm", "--force", f"elsewhere-{gone}")


@pytest.mark.soak
async def test_it_goes_on_when_the_engine_was_killed(tmp_path: Path) -> None:
    with docker_engine() as (engine, daemon):
        box = Box("docker", tmp_path, engine)
        async with box.open() as sandbox:
            process = await sandbox.spawn(["cat"], cwd=str(box.folder), env=box.env)
            daemon.kill()
            await asyncio.wait_for(process.wait(), PATIENCE)
            await process.end()
            with pytest.raises(AgentError):
                await box.run("true")
            daemon.start()
            assert await box.run("echo", "again") == (0, b"again\n", "")
        assert engine.containers() == []


@in_containers
async def test_what_an_image_lacks_is_said(box: Box) -> None:
    box.sandbox = BoxedSpawner(HostSpawner(), box.walls("git", "no-such-program", "/no/such/loader"), Table())
    with pytest.raises(NoSandbox, match="it has no no-such-program; it has no /no/such/loader: it must have the C lib"):
        async with box.open():
            pass
    with pytest.raises(NoSandbox, match="has no image localhost:1/none and cannot fetch it"):
        require_image(box.found(), "localhost:1/none")
    with pytest.raises(NoSandbox, match="make one with `untildone image build`, name one with --image"):
        require_image(box.found(), DEFAULT_IMAGE)


@pytest.mark.parametrize("box", SOAKED[:1], indirect=True)  # podman takes such a root for an ordinary user
def test_the_door_is_opened_without_the_right_to_enter_a_network(box: Box) -> None:
    assert box.engine is not None
    tests = str(Path(__file__).parent.parent)
    (box.folder.parent.parent / "alone").mkdir()
    given = (box.engine.kind, json.dumps(box.engine.env), str(box.folder.parent.parent / "alone"))
    done = subprocess.run(
        ["setpriv", "--bounding-set=-sys_admin", sys.executable, "-c", ALONE, *given],
        env={**os.environ, "PYTHONPATH": tests}, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert "unknown.example:80 cannot be reached from inside" in done.stdout, done.stderr

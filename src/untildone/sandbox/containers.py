"""Runs programs in containers, by docker or podman: the system of an image, and of this machine what is lent."""

import asyncio
import contextlib
import csv
import io
import os
import resource
import secrets
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

from untildone.core.dataclass import dataclass
from untildone.core.printable import one_line
from untildone.errors import AgentError, NoSandbox
from untildone.sandbox import enter_container, listen_inside
from untildone.sandbox.bounds import Bounds
from untildone.sandbox.host import HostProcess, HostSpawner
from untildone.sandbox.view import Mount, View, make_places
from untildone.sandbox.walls import Close, MakeDoor, handed_over, joined, listening_in, place_outside

DEFAULT_IMAGE = "untildone-agent"
"""What `untildone image build` makes."""
PREFIX = "untildone-"
_BOX, _DRIVER = "untildone.box", "untildone.driver"
"""Labels: what a container belongs to, and the process that must live for it to stay."""
_OWN = ("DOCKER_", "CONTAINER_", "CONTAINERS_", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "DBUS_SESSION_BUS_ADDRESS")
"""Beginnings of variables that steer an engine's client."""
_MOST_PROCESSES = 1 << 22
"""The kernel counts no further."""
_MOST_OF_USER = 32768
"""Processes of the same user, inside and outside: an engine counts both."""
_MARGIN = 1.25
_SHARED_MEMORY = 1 << 30
_FAILED = 125
"""With this status and the next two, a client says that the program was never started."""
_ANSWER_PATIENCE = 20.0
_START_PATIENCE = 60.0
_PULL_PATIENCE = 1800.0
_END_PATIENCE = 3.0
_REMOVE_PATIENCE = 30.0
_GLANCE = 0.02
_SAID = 300
# Whoever holds its input lives; what the run needs of an image is looked at before anything is paid for.
_HOLD = """
for name in "$@"; do
    case $name in
        /*) [ -e "$name" ] || echo "it has no $name: it must have the C library of Debian, not that of Alpine" ;;
        *) command -v "$name" >/dev/null || echo "it has no $name" ;;
    esac
done
echo ready
exec cat >/dev/null
"""


_PIPE = "/untildone-output"
# What a program says comes to the loop by itself. The engine would pass on every piece of it through three processes.
_TELL_US = ("sh", "-c", f'exec "$@" >{_PIPE}', "sh")


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A program that runs containers, and how it is asked here."""

    kind: str
    program: str
    env: Mapping[str, str]
    """Its own settings."""
    flags: tuple[str, ...] = ()
    """What makes a process inside work as the user who started us."""
    root: bool = False
    """Inside, that user is called root."""

    def ask(self, *words: str, timeout: float = _ANSWER_PATIENCE) -> subprocess.CompletedProcess[str]:
        """Have it do something short."""
        return subprocess.run(  # noqa: S603, TID251
            (self.program, *words), env=dict(self.env), stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=timeout, check=False,
        )  # fmt: skip


def settings_of_engines(env: Mapping[str, str]) -> dict[str, str]:
    """Variables by which the clients of engines find what they speak to."""
    return {name: value for name, value in env.items() if name.startswith(_OWN)}


def find_engine(kind: str, env: Mapping[str, str]) -> Engine:
    """An engine that works here. NoSandbox if it is not installed or does not answer."""
    program = shutil.which(kind, path=os.defpath) or shutil.which(kind, path=env.get("PATH"))
    if program is None:
        package = "docker.io" if kind == "docker" else kind
        raise NoSandbox(f"{kind} is not installed: install it (`sudo apt-get install {package}`)")
    own = {name: value for name, value in env.items() if name in {"HOME", "PATH"}} | settings_of_engines(env)
    engine = Engine(kind=kind, program=str(Path(program).absolute()), env=own)
    facts = "{{.SecurityOptions}}" if kind == "docker" else "rootless={{.Host.Security.Rootless}}"
    try:
        asked = engine.ask("info", "--format", facts)
    except subprocess.TimeoutExpired as late:
        raise NoSandbox(f"{kind} does not answer") from late
    if asked.returncode:
        told = one_line("".join(engine.ask("version").stderr.strip().splitlines()[-1:]), _SAID)
        raise NoSandbox(f"{kind} does not answer ({told}): start it, or let this user speak to it")
    return _as_user(engine, is_rootless="name=rootless" in asked.stdout or "rootless=true" in asked.stdout)


def _as_user(engine: Engine, *, is_rootless: bool) -> Engine:
    """The process inside owns what the user owns: in the folder nobody else's files appear."""
    user, root = f"--user={os.geteuid()}:{os.getegid()}", os.geteuid() == 0
    flags: tuple[str, ...] = (user, "--userns=host") if engine.kind == "docker" else (user,)
    if is_rootless and engine.kind == "docker":
        flags, root = ("--user=0:0",), True
    elif engine.kind == "podman":
        _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
        bounds = {"nofile": files, "nproc": _MOST_OF_USER}
        # What it asks for by itself may be more than can be had here.
        ulimits = [f"--ulimit={name}={bound}:{bound}" for name, bound in bounds.items()]
        flags = (user, *ulimits, *(["--userns=keep-id"] if is_rootless else []))
    return Engine(kind=engine.kind, program=engine.program, env=engine.env, flags=flags, root=root)


def has_image(engine: Engine, image: str) -> bool:
    """Whether it need not be fetched."""
    return engine.ask("image", "inspect", "--format", "{{.Id}}", image).returncode == 0


def require_image(engine: Engine, image: str) -> None:
    """The image is here, or is fetched. NoSandbox in the engine's words if it cannot be had."""
    if has_image(engine, image):
        return
    if image == DEFAULT_IMAGE:
        raise NoSandbox(
            f"there is no image for {engine.kind}: make one with `untildone image build`, name one with --image, such "
            "as `--image node:20`, or put it into the project's file as `image`"
        )
    try:
        fetched = engine.ask("pull", "--quiet", image, timeout=_PULL_PATIENCE)
    except subprocess.TimeoutExpired as late:
        raise NoSandbox(f"{engine.kind} took too long to fetch the image {image}") from late
    if fetched.returncode:
        said = fetched.stderr.strip().splitlines()[-1:] or ["it gave no reason"]
        raise NoSandbox(f"{engine.kind} has no image {image} and cannot fetch it ({one_line(said[0], _SAID)})")


class Containers:
    """sandbox.Walls: a container that holds the network with the door, and for each program one that joins it.

    Each program has a container of its own, which ends with it and with everything it started, and to which the
    client passes on signals. The one that holds the network runs the loop's own commands.
    """

    def __init__(
        self,
        host: HostSpawner,
        look: Callable[[str], View],
        *,
        engine: Engine,
        image: str,
        name: str,
        folder: str,
        needs: Sequence[str] = ("git",),
        bounds: Bounds | None = None,
    ) -> None:
        """`name` tells this sandbox from all others; in `folder` the loop's own commands work.

        `needs` are programs and files that the image must have; `bounds` what each container may use.
        """
        self._host = host
        self._look = look
        self._engine = engine
        self._image = image
        self._name = PREFIX + name
        self._folder = folder
        self._needs = needs
        self._bounds = bounds or Bounds()
        self._holder: HostProcess | None = None
        self._make_door: MakeDoor | None = None
        self._ports: Sequence[int] = ()
        self._close: Close = lambda: None
        self._pipes = Path()
        self._holding = asyncio.Lock()

    @asynccontextmanager
    async def stand(self, make_door: MakeDoor, ports: Sequence[int]) -> AsyncIterator[None]:
        """sandbox.Walls."""
        self._make_door, self._ports = make_door, ports
        await asyncio.to_thread(self._sweep, _is_left_behind)
        self._pipes = Path(tempfile.mkdtemp(prefix="untildone-"))
        try:
            await self._hold()
            yield
        finally:
            shutil.rmtree(self._pipes, ignore_errors=True)
            self._close()
            if self._holder is not None:
                await self._holder.close_stdin()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._holder.wait(), _END_PATIENCE)
                await self._holder.end()
            await asyncio.shield(asyncio.to_thread(self._sweep, lambda _: False))

    async def start(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        stdin: Literal["pipe", "null"],
        seen: View | None = None,
    ) -> HostProcess:
        """sandbox.Walls."""
        await self._hold_again()
        name = f"{self._name}-{secrets.token_hex(3)}"
        own = self._engine.env
        named = [f"--env={one}" for one in env if one not in own or one == "HOME"]
        place = os.path.realpath(cwd)
        words = await asyncio.to_thread(self._run, place, name, f"--network=container:{self._name}", seen)
        pipe = self._pipes / name
        lent = _words_of_mount(Mount(place=_PIPE, kind="read", source=str(pipe)))
        process = await self._host.spawn(
            (*words, *named, f"--mount={lent}", f"--workdir={place}", self._image, *_TELL_US, *argv),
            cwd=place_outside(cwd, seen), env={**env, **own}, stdin=stdin, apart=True, pipe=_opened(pipe),
        )  # fmt: skip
        try:
            pid = await self._first_process(process, name)
        except BaseException:
            await process.end(0.0)
            raise
        if pid is not None:
            process.adopt(pid)
        return process

    def words(self, cwd: str) -> tuple[str, ...]:
        """sandbox.Walls."""
        own = [f"{name}={value}" for name, value in self._engine.env.items() if name not in {"HOME", "PATH"}]
        enter = (sys.executable, "-I", "-S", enter_container.__file__, self._engine.program, self._name, *own, "--")
        return ("/usr/bin/env", f"--chdir={os.path.realpath(cwd)}", *enter)

    def _run(self, cwd: str, name: str, network: str, view: View | None = None) -> tuple[str, ...]:
        """The words that start a container, but for the image and the program."""
        # The kernel ends whatever it likes: what the loop watches is a little less, and ends before that.
        pids = min(int(self._bounds.pids * _MARGIN), _MOST_PROCESSES)
        memory = min(int(self._bounds.memory * _MARGIN) + _SHARED_MEMORY, _memory_of_machine())
        chosen = view or self._look(cwd)
        make_places(chosen)
        seen = sorted(chosen.mounts, key=lambda one: len(Path(one.place).parts))
        return (
            self._engine.program, "run", "--rm", "--interactive", "--init", f"--name={name}", network,
            f"--label={_BOX}={self._name}", f"--label={_DRIVER}={_this_process()}", *self._engine.flags,
            "--cap-drop=ALL", "--security-opt=no-new-privileges", "--security-opt=label=disable", "--read-only",
            f"--pids-limit={pids}", f"--memory={memory}", f"--shm-size={_SHARED_MEMORY}",
            "--log-driver=none", "--entrypoint=", "--tmpfs=/run:exec",
            *(word for mount in seen for word in ("--mount", _words_of_mount(mount))),
        )  # fmt: skip

    async def _hold_again(self) -> None:
        """The engine may have been started anew, or somebody removed the container."""
        async with self._holding:
            if self._holder is not None and self._holder.family():
                return
            try:
                await asyncio.to_thread(self._sweep, lambda _: False)
                await self._hold()
            except NoSandbox as trouble:
                raise AgentError(str(trouble)) from trouble

    async def _hold(self) -> None:
        """Start what holds the network, and open the door in it."""
        assert self._make_door is not None, "a sandbox without a door"
        self._close()
        words = await asyncio.to_thread(self._run, self._folder, self._name, "--network=none")
        needs = ("sh", "-c", _HOLD, "sh", *self._needs)
        self._holder = await self._host.spawn(
            (*words, "--env=HOME", self._image, *needs), cwd="/", env=self._engine.env, apart=True
        )
        said = bytearray()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_START_PATIENCE):
                while not said.endswith(b"ready\n") and (piece := await self._holder.read()):
                    said += piece
        *lacks, last = said.decode("utf-8", "replace").splitlines() or [""]
        if last != "ready" or lacks:
            await self._holder.end(0.0)
            told = one_line("; ".join(lacks) or self._holder.stderr_tail().strip(), _SAID)
            raise NoSandbox(f"{self._engine.kind} cannot run {self._image}: {told or 'it ended at once'}")
        pid = await self._first_process(self._holder, self._name)
        if pid is None or not _is_in_a_network_of_its_own(pid):
            raise NoSandbox(f"{self._engine.kind} runs containers on another machine, where no door can be opened")
        self._holder.adopt(pid)
        self._close = await self._make_door(await asyncio.to_thread(self._listening, pid))

    def _listening(self, pid: int) -> list[socket.socket]:
        """Who is not root may not enter the network of a container, but may have another one join it.

        That one sees this machine read-only and runs nothing but what is installed here.
        """
        with contextlib.suppress(AgentError):
            return listening_in(pid, self._ports)
        with tempfile.TemporaryDirectory(prefix="untildone-") as folder, socket.socket(socket.AF_UNIX) as meeting:
            place = f"{folder}/door"
            meeting.bind(place)
            meeting.listen(1)
            meeting.settimeout(_START_PATIENCE)
            python = (
                "/usr/sbin/chroot",
                "/host",
                sys.executable,
                "-I",
                "-S",
                listen_inside.__file__,
                joined(self._ports),
                place,
            )
            done = self._engine.ask(
                "run", "--rm", f"--network=container:{self._name}", "--user=0:0", "--security-opt=label=disable",
                "--cap-drop=ALL", "--cap-add=SYS_CHROOT", "--cap-add=DAC_OVERRIDE", "--read-only",
                "--mount=type=bind,source=/,target=/host,readonly", *_loaded_by_host(self._image, python),
                timeout=_START_PATIENCE,
            )  # fmt: skip
            if done.returncode:
                raise AgentError(f"no door can be opened in the sandbox: {one_line(done.stderr.strip(), _SAID)}")
            connection, _ = meeting.accept()
            with connection:
                return handed_over(connection)

    async def _first_process(self, process: HostProcess, name: str) -> int | None:
        """Wait until a container is there; None if it has ended already. AgentError if it could not be started."""
        async with asyncio.timeout(_START_PATIENCE):
            while process.family():
                asked = await asyncio.to_thread(self._engine.ask, "inspect", "--format", "{{.State.Pid}}", name)
                if asked.returncode == 0 and (pid := int(asked.stdout)) > 0:
                    return pid
                await asyncio.sleep(_GLANCE)
        if _FAILED <= await process.wait() <= _FAILED + 2:
            said = one_line(process.stderr_tail().strip(), _SAID)
            raise AgentError(f"the sandbox did not start: {said}")
        return None

    def _sweep(self, is_left: Callable[[str], bool]) -> None:
        """Remove what is left of this sandbox, and containers of whose driver this is said."""
        ends_at = time.monotonic() + _REMOVE_PATIENCE
        while time.monotonic() < ends_at:
            # One that ends by itself meanwhile cannot be removed, and may be there for a moment.
            with contextlib.suppress(subprocess.TimeoutExpired):
                if not (left := self._left(is_left)):
                    return
                self._engine.ask("kill", *left)  # podman would first ask them to end, and wait
                self._engine.ask("rm", "--force", "--volumes", *left)

    def _left(self, is_left: Callable[[str], bool]) -> list[str]:
        found = self._engine.ask("ps", "--all", f"--filter=label={_DRIVER}", "--format", "{{.ID}}").stdout.split()
        if not found:
            return []
        labels = f'{{{{.Id}}}} {{{{index .Config.Labels "{_BOX}"}}}} {{{{index .Config.Labels "{_DRIVER}"}}}}'
        lines = self._engine.ask("inspect", "--type=container", "--format", labels, *found).stdout.splitlines()
        split = [line.split(" ", 2) for line in lines]
        return [number for number, box, driver in split if box == self._name or is_left(driver)]


def _opened(pipe: Path) -> tuple[int, int]:
    """Make a pipe that has a name; to read from and to write to."""
    os.mkfifo(pipe, 0o600)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    return reader, os.open(pipe, os.O_WRONLY | os.O_CLOEXEC)


def interpreter_of(program: str) -> str:
    """The loader that a program of this machine needs. NoSandbox for a script, which needs an interpreter."""
    with open(program, "rb") as file:  # noqa: PTH123 - a part of a large one
        head = file.read(1 << 16)
    if head[:5] != b"\x7fELF\x02":
        raise NoSandbox(f"{program} is no program that runs in a container by itself: leave out --claude, or name one")
    start, size, count = struct.unpack_from("<Q", head, 32)[0], *struct.unpack_from("<HH", head, 54)
    for place in range(start, start + size * count, size):
        kind, _, offset = struct.unpack_from("<IIQ", head, place)
        if kind == 3:  # noqa: PLR2004 - PT_INTERP, see elf(5)
            return head[offset : head.index(b"\0", offset)].decode()
    return "/"


def _loaded_by_host(image: str, argv: Sequence[str]) -> list[str]:
    """Words that run a program of this machine, seen at /host, with nothing of the image."""
    loader = os.path.realpath(interpreter_of(argv[0]))
    libraries = {
        os.path.dirname(os.path.realpath(line.split()[-1]))  # noqa: PTH120 - text
        for line in Path("/proc/self/maps").read_text("utf-8").splitlines()
        if line.endswith("/libc.so.6")
    }
    return [f"--entrypoint=/host{loader}", image, "--library-path", ":".join(f"/host{one}" for one in libraries),
            f"/host{argv[0]}", *argv[1:]]  # fmt: skip


def _words_of_mount(mount: Mount) -> str:
    fields = {
        "empty": ["type=tmpfs"],
        "read": ["type=bind", f"source={mount.source}", "readonly"],
        "write": ["type=bind", f"source={mount.source}"],
        "link": [],
    }[mount.kind]
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow([*fields, f"target={mount.place}"])
    return line.getvalue()


def _memory_of_machine() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _this_process() -> str:
    """Told from one that gets its number later, and from one of another machine or container."""
    return f"{Path('/proc/self/ns/pid').readlink()} {os.getpid()} {_begin_of(os.getpid())}"


def _is_left_behind(driver: str) -> bool:
    space, number, begin = driver.split(" ")
    return space == str(Path("/proc/self/ns/pid").readlink()) and _begin_of(int(number)) != begin


def _begin_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()[19]
    return ""


def _is_in_a_network_of_its_own(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/ns/net").readlink() != Path("/proc/self/ns/net").readlink()
    return False

"""A server that can be killed and started again, the way to it that can be cut, and workers that report there."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from patience import PATIENCE
from ports import own_port

T = TypeVar("T")


def until(look: Callable[[], T | None], what: str) -> T:
    """What `look` finds, once it does."""
    deadline = time.monotonic() + PATIENCE
    rest = 0.02
    while time.monotonic() < deadline:
        if found := look():
            return found
        time.sleep(rest)
        rest = min(2 * rest, 0.2)  # who looks is served by the same processor
    raise AssertionError(f"{what} did not come about within {PATIENCE:.0f} s")


class Server:
    """`untildone serve`, as a process of its own, always at the same address and on the same database."""

    def __init__(self, folder: Path, database: str) -> None:
        self.port = own_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._output = folder / "server.log"
        self._env = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "UNTILDONE_HOME": str(folder / "server"),
            "UNTILDONE_SERVE_DATABASE": database,
        }
        self._process: subprocess.Popen[bytes] | None = None
        self.operator = self.token("--scope", "operator")

    def token(self, *args: str) -> str:
        """A new token."""
        made = subprocess.run(
            [sys.executable, "-m", "untildone", "token", "create", *args],
            env=self._env, capture_output=True, text=True, timeout=PATIENCE, check=True,
        )  # fmt: skip
        return made.stdout.strip()

    def start(self, *, wait: bool = True) -> None:
        with self._output.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "untildone", "serve", "--port", str(self.port), "--no-local"],
                env=self._env, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        if wait:
            until(self._answers, f"the server\n{self._output.read_text()}")

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            process.wait(PATIENCE)

    def get(self, path: str) -> Any:
        """What the API says; None where it does not know."""
        return self._ask(urllib.request.Request(f"{self.url}/api/v1{path}"))

    def post(self, path: str, body: object) -> Any:
        headers = {"Authorization": f"Bearer {self.operator}", "Content-Type": "application/json"}
        data = json.dumps(body).encode()
        return self._ask(urllib.request.Request(f"{self.url}/api/v1{path}", data, headers))

    def events(self, run_id: str, *types: str) -> list[dict[str, Any]]:
        """All events of a run, or all of these types."""
        found: list[dict[str, Any]] = []
        asked = "".join(f"&type={name}" for name in types)
        while page := self.get(f"/runs/{run_id}/events?after={found[-1]['seq'] if found else 0}&limit=1000{asked}"):
            if not page["events"]:
                break
            found += page["events"]
        return found

    def parcel(self, run_id: str, name: str) -> bytes | None:
        """What travelled beside the events of a run, under this name."""
        address = f"{self.url}/api/v1/runs/{run_id}/parcels/{name}"
        request = urllib.request.Request(address, headers={"Authorization": f"Bearer {self.operator}"})
        try:
            with urllib.request.urlopen(request, timeout=240) as answer:
                content: bytes = answer.read()
                return content
        except urllib.error.HTTPError:
            return None

    def run_of(self, sandbox: str, status: str = "") -> dict[str, Any] | None:
        """The newest run of a sandbox, once it is as it should be."""
        page = self.get(f"/runs?sandbox={sandbox}" + (f"&status={status}" if status else ""))
        return page["runs"][0] if page and page["runs"] else None

    def log(self) -> str:
        return self._output.read_text()

    def _answers(self) -> bool:
        with suppress(OSError), urllib.request.urlopen(f"{self.url}/healthz", timeout=PATIENCE) as answer:
            return bool(answer.status == 200)
        return False

    @staticmethod
    def _ask(request: urllib.request.Request) -> Any:
        try:
            with urllib.request.urlopen(request, timeout=240) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as refused:
            if refused.code == 404:
                return None
            raise AssertionError(f"{request.full_url}: {refused.code} {refused.read()[:300]!r}") from refused


class Wire:
    """The way to a server, which can be cut: whoever is on it is thrown off, and nobody gets through."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._loop = asyncio.new_event_loop()
        self._pairs: set[asyncio.StreamWriter] = set()
        self._is_cut = False
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = self._do(asyncio.start_server(self._carry, "127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def cut(self) -> None:
        self._is_cut = True
        self._loop.call_soon_threadsafe(self._throw_off)

    def mend(self) -> None:
        self._is_cut = False

    def close(self) -> None:
        self._server.close()
        self._loop.call_soon_threadsafe(self._throw_off)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()

    def _do(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)

    def _throw_off(self) -> None:
        for writer in self._pairs:
            writer.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self._is_cut:
                raise ConnectionError
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._to)
        except OSError:
            writer.transport.abort()
            return
        self._pairs |= {writer, far_writer}
        await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))
        self._pairs -= {writer, far_writer}


@contextmanager
def wired(port: int) -> Iterator[Wire]:
    """A way to a server on this machine."""
    wire = Wire(port)
    try:
        yield wire
    finally:
        wire.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await reader.read(1 << 16):
            writer.write(chunk)
            await writer.drain()
    writer.close()

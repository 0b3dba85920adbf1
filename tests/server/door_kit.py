"""A real server on a real socket, and clients that say exactly what a test wants said."""

import asyncio
import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from archives import new_archive
from patience import PATIENCE, eventually
from untildone.engine.clock import SystemClock
from untildone.server.access import Door
from untildone.server.archive.opening import open_archive
from untildone.server.archive.port import Archive, Key, Scope
from untildone.server.context import Context, ServerSettings
from untildone.server.fanout import Fanout
from untildone.server.keys import hash_of, new_token, token_key
from untildone.server.projecting import Projector
from untildone.server.running import new_loop, serve_forever
from untildone.server.steering import Steering


@dataclass(frozen=True)
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes
    cookies: list[str] = field(default_factory=list)

    @property
    def proof(self) -> str:
        """What the page after a login leaves in the browser."""
        found = re.search(rb'<meta name="untildone-proof" content="([^"]{43})">', self.body)
        assert found, self.body
        return found[1].decode()

    @property
    def error(self) -> str:
        said = json.loads(self.body)
        assert list(said) == ["error", "detail"] or set(said) == {"error", "detail", "taken"}
        assert "\n" not in said["error"]
        return str(said["error"])


class Served:
    """A server at work in a thread of its own."""

    def __init__(self, context: Context, loop: asyncio.AbstractEventLoop, port: int) -> None:
        self.context = context
        self.loop = loop
        self.port = port

    @property
    def door(self) -> Door:
        assert self.context.door is not None
        return self.context.door

    @property
    def archive(self) -> Archive:
        return self.context.archive

    def run(self, work: Any) -> Any:
        """Do something in the server's own loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE)

    def token(self, scope: Scope, sandbox_id: str | None = None, lasts: float | None = None) -> tuple[Key, str]:
        secret = new_token()
        now = SystemClock().now()
        key = token_key(scope, sandbox_id=sandbox_id, label="test", lasts=lasts, now=now)
        self.run(self.archive.keys.add(key, hash_of(secret)))
        return key, secret

    def ask(
        self,
        method: str,
        path: str,
        *,
        token: str = "",
        json_body: Any = None,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        reads: bool = True,
    ) -> Reply:
        """`reads=False`: of a stream, which does not end, only the beginning."""
        said = dict(headers or {})
        if token:
            said["Authorization"] = f"Bearer {token}"
        if json_body is not None:
            body = json.dumps(json_body).encode()
            said.setdefault("Content-Type", "application/json")
        connection = HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request(method, path, body, said)
            answer = connection.getresponse()
            cookies = [value for name, value in answer.getheaders() if name.lower() == "set-cookie"]
            there = {name.lower(): value for name, value in answer.getheaders()}
            is_stream = there.get("content-type", "").startswith("text/event-stream")
            return Reply(answer.status, there, b"" if is_stream and not reads else answer.read(), cookies)
        finally:
            connection.close()

    def log_in(self) -> dict[str, str]:
        """The headers of a browser that logged in, with what its pages send along."""
        code = self.run(_make_link(self.door))
        answer = self.ask("POST", f"/login/{code}", headers=self.own())
        assert answer.status == 200, answer
        return {**self.own(), "Cookie": answer.cookies[0].partition(";")[0], "X-Untildone-Proof": answer.proof}

    def own(self) -> dict[str, str]:
        """What a browser says about one of our own pages."""
        return {"Origin": f"http://127.0.0.1:{self.port}", "Sec-Fetch-Site": "same-origin"}

    def raw(self, said: bytes, timeout: float = PATIENCE) -> bytes:
        """Everything the server answers to these bytes until it hangs up, or nothing more comes."""
        with self.socket(timeout) as line:
            line.sendall(said)
            return drained(line)

    def socket(self, timeout: float = PATIENCE) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=timeout)


def drained(line: socket.socket) -> bytes:
    """What comes until the other side hangs up, or until a whole answer without a body is there."""
    heard = b""
    while True:
        try:
            piece = line.recv(65536)
        except ConnectionResetError:
            return heard
        if not piece:
            return heard
        heard += piece


def trickled(line: socket.socket, byte: bytes) -> bytes:
    """Send a byte now and then until the line is cut: what was heard till then."""
    line.settimeout(0.1)
    heard = bytearray()

    def is_cut() -> bool:
        try:
            line.sendall(byte)
            piece = line.recv(65536)
        except TimeoutError:
            return False
        except (BrokenPipeError, ConnectionResetError):
            return True
        heard.extend(piece)
        return not piece

    eventually(is_cut, "the end of the line")
    return bytes(heard)


def until(holds: Callable[[], bool]) -> None:
    """Wait for something that nobody announces."""
    eventually(holds)


async def _make_link(door: Door) -> str:
    return door.links.make()


@contextmanager
def served(folder: Path, **settings: Any) -> Iterator[Served]:
    """A server with these settings, on a port of its own."""
    made: dict[str, Any] = {}
    up = threading.Event()

    async def serve() -> None:
        given = ServerSettings(database=new_archive(folder), port=0, local=False, **settings)
        archive = await open_archive(given.database)
        clock = SystemClock()
        fanout = Fanout(archive)
        context = Context(
            settings=given,
            archive=archive,
            clock=clock,
            fanout=fanout,
            projector=Projector(archive, fanout),
            steering=Steering(archive, fanout, clock),
        )

        def ready(address: str) -> None:
            made["served"] = Served(context, asyncio.get_running_loop(), int(address.rpartition(":")[2]))
            up.set()

        try:
            async with context.projector.running():
                await serve_forever(context, ready)
        finally:
            await archive.close()

    def work() -> None:
        try:
            with asyncio.Runner(loop_factory=new_loop) as runner:
                runner.run(serve())
        except BaseException as trouble:
            made["trouble"] = trouble
            raise
        finally:
            up.set()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert up.wait(PATIENCE)
    assert "served" in made, made.get("trouble")
    one: Served = made["served"]
    try:
        yield one
    finally:
        one.loop.call_soon_threadsafe(one.context.stopping.set)
        thread.join(PATIENCE)
        assert not thread.is_alive()

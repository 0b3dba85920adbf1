"""The server at its address: the socket, what uvicorn is told, and a clean end."""

import asyncio
import ctypes
import errno
import gc
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import uvicorn

from untildone.errors import ServeError
from untildone.server.app import make_app
from untildone.server.connections import BACKLOG, BoundedProtocol, raise_file_limit, sweep_for_ever
from untildone.server.context import Context

KEEP_ALIVE_SECONDS = 75
"""Longer than workers rest between two batches."""
GRACE_SECONDS = 3
"""For requests under way when the server goes down; streams end at once."""
_MMAP_THRESHOLD, _LARGE_BYTES = -3, 1024 * 1024
"""Memory of this size and above is given back as soon as it is free, where the C library can be told so."""
_YOUNG_OBJECTS = 20_000
"""New objects after which garbage is looked for: a few requests' worth. At Python's 700 it took a tenth of the time."""


class _Server(uvicorn.Server):
    """Goes down when told to, and leaves how the process ends to whoever runs it."""

    def __init__(self, config: uvicorn.Config, context: Context, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._context = context
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer, and say so."""
        await super().startup(sockets)
        self._ready()

    def end(self) -> None:
        """Go down: streams now, requests when they are done."""
        self.should_exit = True
        self._context.fanout.end()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are for whoever runs the server."""
        yield


async def serve_forever(context: Context, ready: Callable[[str], None]) -> None:
    """Serve until `context.stopping` is set; `ready` is told the address once it answers.

    ServeError, in one line, when the address cannot be had.
    """
    raise_file_limit()
    listening = _bound(context.settings.host, context.settings.port)
    url = address(context.settings.host, listening.getsockname()[1])
    server = _Server(_config(context), context, lambda: ready(url))
    tasks = [
        asyncio.create_task(sweep_for_ever(server.server_state)),
        asyncio.create_task(_end_when_told(server, context)),
    ]
    try:
        await server.serve(sockets=[listening])
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        listening.close()


def check_address(host: str, port: int) -> None:
    """ServeError when nobody can listen there; 0 is any port that is free."""
    if port:
        _bound(host, port).close()


def only_serve() -> None:
    """For a process that does nothing else: what is there by now stays, so nobody has to look through it again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS)
    with suppress(OSError, AttributeError):
        # Else the C library learns to keep large pieces, and memory that a crowd once took is never given back.
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)


def new_loop() -> asyncio.AbstractEventLoop:
    """The fastest event loop there is here."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def address(host: str, port: int) -> str:
    """Where a server is reached, as a browser takes it."""
    if host in {"", "0.0.0.0", "::"}:  # noqa: S104 - a look at what was asked for, nothing is bound here
        host = "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _config(context: Context) -> uvicorn.Config:
    return uvicorn.Config(
        make_app(context),
        http=BoundedProtocol,
        ws="none",
        lifespan="off",
        # Errors are logged where they are answered: uvicorn's own words hold whole stacks.
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )


def _bound(host: str, port: int) -> socket.socket:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise ServeError(f"cannot listen on {host}: there is no such address here") from None
    family, kind, protocol, _, place = found[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(place)
    except (OSError, OverflowError) as error:
        listening.close()
        raise ServeError(f"cannot listen on {host} port {port}: {_why(error)}") from None
    listening.setblocking(False)  # noqa: FBT003 - its only argument
    return listening


def _why(error: OSError | OverflowError) -> str:
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return "another program does already; choose another with `--port`"
    if isinstance(error, OSError) and error.errno == errno.EACCES:
        return "this port is for the administrator alone; choose one above 1023 with `--port`"
    return str(error)


async def _end_when_told(server: _Server, context: Context) -> None:
    await context.stopping.wait()
    server.end()

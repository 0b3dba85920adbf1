"""`untildone serve`: the server in the foreground, one calm block about where it is, and an end in order."""

import asyncio
import atexit
import html
import logging
import os
import re
import shutil
import signal
import socket
import sys
import tempfile
import threading
import webbrowser
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import click

from untildone import config
from untildone.cli.guarding import operator_only
from untildone.cli.streams import put, say
from untildone.config import SERVE_PREFIX as PREFIX
from untildone.core.printable import one_line
from untildone.errors import UsageError

if TYPE_CHECKING:
    from untildone.server.context import ServerSettings

F = TypeVar("F", bound=Callable[..., Any])
HOST, PORT = "127.0.0.1", 8642
VARIABLES = ("HOST", "PORT", "DATABASE", "NAMES", "FOLDERS", "KEEP_DAYS", "LOCAL", "CLOSED")
EVERY_ADDRESS = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - a look at what is asked for, nothing is bound here
DATABASE_FILE = "server.db"
DATABASE_PATIENCE = 120.0
"""Seconds for a database that is starting up: machines and containers start both at once."""
LAST_SECONDS = 5.0
"""After everything is closed, for whatever is left."""
_DATABASE = "sqlite:///PATH or postgresql://... [server.db in the folder of the runs]"
_PORT = f"The port; 0: any that is free. [{PORT}]"
_PORTS = click.IntRange(0, 65535)
_KEEP = "What agents wrote and did is deleted after N days. [90]"
_NAME = "A host name it is reached by: everything needs a token then. Repeatable."
_CLOSED = "Everything needs a token, from this machine too: for a proxy or a tunnel that leads here. [no]"
_PASSWORD_SEEN = (
    "everybody on this machine can read a password that is given as an argument: "
    f"set {PREFIX}DATABASE in the environment instead"
)
_LONGEST_KEPT = 36_500
_PAGE_SECONDS = 60.0
"""For a browser to have opened the page that leads it in."""


def database_option(command: F) -> F:
    """Give a command `--database`."""
    return click.option("--database", metavar="URL", envvar=f"{PREFIX}DATABASE", help=_DATABASE)(command)


@click.command()
@click.option("--host", metavar="ADDRESS", default=HOST, envvar=f"{PREFIX}HOST", help=f"Where to listen. [{HOST}]")
@click.option("--port", metavar="N", default=PORT, type=_PORTS, envvar=f"{PREFIX}PORT", help=_PORT)
@database_option
@click.option("--name", "names", metavar="HOST", multiple=True, help=_NAME)
@click.option("--closed", is_flag=True, envvar=f"{PREFIX}CLOSED", help=_CLOSED)
@click.option("--folder", "folders", metavar="DIR", multiple=True, help="Runs may be started in there. Repeatable.")
@click.option("--keep-days", metavar="N", type=float, default=90.0, envvar=f"{PREFIX}KEEP_DAYS", help=_KEEP)
@click.option("--local/--no-local", default=True, envvar=f"{PREFIX}LOCAL", help="Show the runs of this machine. [yes]")
@click.option("--open", "opens", is_flag=True, help="Open it in a browser, logged in.")
@operator_only
def serve(
    *,
    host: str,
    port: int,
    database: str | None,
    names: tuple[str, ...],
    closed: bool,
    folders: tuple[str, ...],
    keep_days: float,
    local: bool,
    opens: bool,
) -> int:
    """See and steer runs in a browser; take the events of workers elsewhere.

    Bound to this machine, looking needs nothing and steering a login. Bound to any other address, with --name or
    --closed, everything needs a token: `untildone token --help`.

    \b
      untildone serve
      untildone serve --host 0.0.0.0 --name runs.example.org
      UNTILDONE_SERVE_DATABASE=postgresql://... untildone serve

    Every option can be set in the environment: UNTILDONE_SERVE_HOST, _PORT, _DATABASE, _NAMES and _FOLDERS (separated
    by commas), _CLOSED, _KEEP_DAYS, _LOCAL.
    """  # noqa: D301 -- click wants the character itself
    from untildone.server.context import ServerSettings

    if not 0 < keep_days <= _LONGEST_KEPT:
        raise UsageError("--keep-days takes a number of days greater than 0")
    settings = ServerSettings(
        host=_host(host),
        port=port,
        database=database_url(database),
        names=_names(_host(host), _given(names, "NAMES")),
        closed=closed,
        folders=tuple(_folder(folder) for folder in _given(folders, "FOLDERS")),
        keep_days=keep_days,
        local=local,
    )
    _note_misspelt()
    if database and _has_password(database) and database != os.environ.get(f"{PREFIX}DATABASE"):
        say(_PASSWORD_SEEN)
    return run_server(settings, opens=opens)


def _note_misspelt() -> None:
    """A variable that looks like a setting and is none would be believed to work."""
    known = {PREFIX + name for name in VARIABLES}
    for name in sorted(name for name in os.environ if name.startswith(PREFIX) and name not in known):
        say(
            f"the environment variable {one_line(name, 100)} sets nothing: `untildone serve --help` lists those that do"
        )


def run_server(settings: "ServerSettings", *, opens: bool) -> int:
    """Serve until a signal comes."""
    from untildone.server.running import new_loop

    logging.basicConfig(level=logging.WARNING, format="untildone: %(message)s")
    runner = asyncio.Runner(loop_factory=new_loop)
    try:
        runner.run(_serve(settings, opens=opens))
    except asyncio.CancelledError:
        say("stopped before it began", fresh=True)
        return 1
    finally:
        _close(runner)
    say("stopped; runs go on without the server", fresh=True)
    return 0


def _close(runner: asyncio.Runner) -> None:
    """Let the rest end, and do not wait for ever: the database is closed by now, nobody has anything to lose."""
    late = threading.Timer(LAST_SECONDS, os._exit, (1,))
    late.daemon = True
    late.start()
    runner.close()
    late.cancel()


async def _serve(settings: "ServerSettings", *, opens: bool) -> None:
    from untildone.cli import whereabouts
    from untildone.server.running import check_address, only_serve
    from untildone.serving import open_server

    starting = asyncio.current_task()
    assert starting is not None
    _on_signals(starting.cancel)
    check_address(settings.host, settings.port)  # before there is a database: one that cannot serve leaves nothing
    state_dir = config.state_dir(os.environ)
    async with open_server(settings, state_dir, patience=DATABASE_PATIENCE, waiting=say) as server:
        has_tokens = bool(await server.context.archive.keys.tokens())

        def ready() -> None:
            door = server.context.door
            assert door is not None
            url = _shown_address(settings, server.url)
            # A log is read by others, and for long: what opens the door is for a terminal.
            link = f"{url}/login/{door.links.make()}" if sys.stdout.isatty() else None
            put(block(settings, url, link, has_tokens=has_tokens))
            whereabouts.note(settings.database, server.url)
            if opens:
                _open_in_browser(f"{server.url}/login/{door.links.make()}")

        _on_signals(server.stop)
        only_serve()
        try:
            await server.serve(ready)
        finally:
            whereabouts.forget(settings.database, server.url)


def _on_signals(end: Callable[[], object]) -> None:
    # Whoever wants it to survive its terminal says so with nohup.
    survives = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    for number in (signal.SIGINT, signal.SIGTERM, *(() if survives else (signal.SIGHUP,))):
        asyncio.get_running_loop().add_signal_handler(number, end)


def block(settings: "ServerSettings", url: str, link: str | None, *, has_tokens: bool) -> str:
    """Where it is, how to come in, and who else can."""
    rows = [
        ("log in", f"{link}  (once, within ten minutes)" if link else "`untildone token login` prints a link"),
        ("database", shown_database(settings.database)),
        ("reachable", _reach(settings)),
    ]
    if settings.host in EVERY_ADDRESS:
        port = urlsplit(url).port
        every = f"on {settings.host}, every address of this machine; from here also http://127.0.0.1:{port}"
        rows.insert(0, ("listens", every))
    if not settings.is_loopback:
        if not has_tokens:
            rows.append(("tokens", "none yet: `untildone token create --scope operator` makes one"))
        rows.append(("careful", "tokens travel readable over http: put a proxy with TLS before it"))
    rows.append(("stop", "Ctrl+C; runs go on without it"))
    return "\n".join((f"untildone serves at {url}", *(f"  {name:<10} {text}" for name, text in rows)))


def _shown_address(settings: "ServerSettings", url: str) -> str:
    """Where people reach it: at every address of the machine, by the name of that."""
    name = socket.gethostname().lower()
    return f"http://{name}:{urlsplit(url).port}" if settings.host in EVERY_ADDRESS and name else url


def _reach(settings: "ServerSettings") -> str:
    if not settings.is_closed:
        return "from this machine only: looking needs nothing, steering needs a login or a token"
    whence = "other machines"
    if settings.is_loopback:
        named = f", as {', '.join(settings.names)}" if settings.names else ""
        whence = f"this machine, and through what leads here{named}"
    return f"from {whence}: everything needs a login or a token"


def shown_database(url: str) -> str:
    """Where the database is, without a password."""
    from untildone.server.archive.places import shown_place

    return shown_place(url)


def database_url(given: str | None) -> str:
    """The database that is meant: a file beside the runs unless another one is named."""
    if not given:
        return f"sqlite:///{config.state_dir(os.environ).absolute() / DATABASE_FILE}"
    if given.startswith("sqlite:///") and len(given) > len("sqlite:///"):
        path = config.expanded(given.removeprefix("sqlite:///")).absolute()
        if not os.path.isdir(path.parent):  # noqa: PTH112 - pathlib raises where a name is too long
            raise UsageError(f"there is no folder {one_line(str(path.parent), 300)} for the database: make it first")
        return f"sqlite:///{path}"
    if given.startswith(("postgresql://", "postgres://")):
        return given
    # It is not repeated: there may be a password in it.
    raise UsageError("the database is no URL this server knows: use sqlite:///PATH or postgresql://USER@HOST/NAME")


def address_of(given: str | None) -> str:
    """Where browsers reach the server, from what was given or how a server is started here."""
    if not given:
        from untildone.server.running import address

        port = os.environ.get(f"{PREFIX}PORT", "")
        return address(os.environ.get(f"{PREFIX}HOST") or HOST, int(port) if port.isdecimal() else PORT)
    try:
        parts = urlsplit(given)
        is_one = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        is_one = False
    if not is_one or parts.path not in ("", "/") or parts.query or parts.username is not None:
        raise UsageError("--address takes a URL such as https://runs.example.org, without a path")
    return given.rstrip("/")


def _given(options: Iterable[str], variable: str) -> list[str]:
    """What the options say, else the environment."""
    return [*options] or [part for part in os.environ.get(f"{PREFIX}{variable}", "").split(",") if part.strip()]


def _host(given: str) -> str:
    return given.strip().removeprefix("[").removesuffix("]") or HOST


def _names(host: str, given: Iterable[str]) -> tuple[str, ...]:
    """What it is called; where it listens on every address, also what the machine is called."""
    own = [socket.gethostname().lower()] if host in EVERY_ADDRESS else []
    return tuple(dict.fromkeys((*(_name(name) for name in given), *filter(None, own))))


def _name(given: str) -> str:
    name = given.strip().rstrip(".").lower()
    if not re.fullmatch(r"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*", name):
        raise UsageError(f"{one_line(given, 100)!r} is not a host name: give it alone, without a scheme or a port")
    return name


def _folder(given: str) -> str:
    folder = config.expanded(given.strip())
    if not os.path.isdir(folder) or not os.access(folder, os.R_OK | os.X_OK):  # noqa: PTH112 - pathlib raises
        raise UsageError(f"{one_line(str(folder), 300)} is not a folder that can be read: give another with --folder")
    return str(folder.resolve())


def _has_password(url: str) -> bool:
    with suppress(ValueError):
        return bool(urlsplit(url).password) or "password=" in url
    return False


def _open_in_browser(link: str) -> None:
    """By way of a file only the user can read: arguments of a browser, everybody on the machine can."""
    folder = Path(tempfile.mkdtemp(prefix="untildone-"))
    page = folder / "login.html"
    page.touch(mode=0o600)
    page.write_text(f'<meta http-equiv="refresh" content="0; url={html.escape(link)}">', encoding="utf-8")

    def clear() -> None:
        shutil.rmtree(folder, ignore_errors=True)

    asyncio.get_running_loop().run_in_executor(None, webbrowser.open, page.as_uri())
    asyncio.get_running_loop().call_later(_PAGE_SECONDS, clear)
    atexit.register(clear)

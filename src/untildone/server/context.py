"""What every part of the server is given: its settings, and the parts it speaks to."""

import asyncio
from dataclasses import field
from functools import cache
from ipaddress import ip_address
from typing import TYPE_CHECKING, cast

from starlette.requests import HTTPConnection

from untildone.core.dataclass import dataclass
from untildone.ports import Clock
from untildone.server.archive.port import Archive
from untildone.server.fanout import Fanout
from untildone.server.metrics import Metrics

if TYPE_CHECKING:
    from untildone.server.access import Door
    from untildone.server.projecting import Projector
    from untildone.server.starting import Starter
    from untildone.server.steering import Steering

MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """How the server is set up."""

    database: str
    """`sqlite:///PATH` or `postgresql://...`."""
    host: str = "127.0.0.1"
    port: int = 8642
    names: tuple[str, ...] = ()
    """More host names it is reached by: a request for any other is refused."""
    folders: tuple[str, ...] = ()
    """Where runs may be started; none: nowhere."""
    keep_days: float = 90
    """Trace events go so many days after they were written."""
    keep_bytes: int = 256 * MEBIBYTE
    """Trace events that are kept of one run."""
    local: bool = True
    """Whether the runs of this machine are shown, too."""
    closed: bool = False
    """Programs of this machine need a token as well: a proxy or a tunnel, which need not tell, may be one of them."""

    @property
    def is_loopback(self) -> bool:
        """Whether only programs of this machine can reach it."""
        return _is_loopback(self.host)

    @property
    def is_closed(self) -> bool:
        """Whether everything needs a token. A name is what others reach it by, so something brings them here."""
        return self.closed or bool(self.names) or not self.is_loopback


@dataclass(slots=True, kw_only=True)
class Context:
    """The parts of a server at work."""

    settings: ServerSettings
    archive: Archive
    clock: Clock
    fanout: Fanout
    projector: "Projector"
    steering: "Steering"
    starter: "Starter | None" = None
    """None: no run can be started from here."""
    metrics: Metrics = field(default_factory=Metrics)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the server goes down: whoever answers for long ends then."""
    catching_up: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(4))
    """Taken to read for a viewer what was missed: pages can be large, and a crowd may want theirs at once."""
    door: "Door | None" = None
    """Who may come in: there as soon as there is an application."""


@cache
def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def context_of(connection: HTTPConnection) -> Context:
    """The context of the server that a request came to."""
    return cast("Context", connection.app.state.context)

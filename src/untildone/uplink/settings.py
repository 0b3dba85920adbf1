"""What a run needs to know about the server it reports to."""

import re
from collections.abc import Mapping
from dataclasses import field
from ipaddress import ip_address
from urllib.parse import urlsplit

from untildone.config import SERVER_TOKEN
from untildone.core.dataclass import dataclass
from untildone.errors import ConfigError

_SLUG = re.compile(r"[^0-9A-Za-z._-]+")
_LONGEST = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class UplinkSettings:
    """Where a run reports to, as whom, and how."""

    server: str
    """Address of the server, without a path of its API."""
    sandbox_id: str
    token: str = field(default="", repr=False)
    token_file: str | None = None
    """Where the token was read: it is read again when the server does not take it any more."""
    heartbeat: float = 30.0
    """Seconds between two signs of life."""
    heartbeat_events: bool = False
    """Write each sign of life into the log, as `agent.heartbeat`."""
    poll: float = 0.5
    """Seconds between two questions for orders, at least: most of the time one question waits at the server."""
    report_transcript: bool = False
    """Put the transcript of each iteration into its last event."""
    ids: Mapping[str, str] = field(default_factory=dict)
    """Added to the payload of every event: task_id, agent_id, ticket_id, spec_id."""
    mask: tuple[str, ...] = ()
    """Patterns of what must not leave the process, beside what is recognised anyway."""
    patience: float = 20.0
    """Seconds at the end of a run for what is still on its way."""
    portable: bool = True
    """Send along what another machine needs to go on: transcripts, notes and the tree."""

    def __post_init__(self) -> None:
        checked_address(self.server)
        if self.heartbeat <= 0 or self.poll < 0 or self.patience < 0:
            raise ConfigError("the intervals of reports to a server must be longer than zero")
        if self.token and not (self.token.isascii() and self.token.isprintable() and " " not in self.token):
            raise ConfigError("the token for the server has characters that no token has: set it again")


def checked_address(url: str) -> str:
    """The address of a server without what it does not need. ConfigError when it is none, or holds a login."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise ConfigError("the address of the server cannot be read: use http://HOST:PORT") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ConfigError("the address of the server must begin with http:// or https:// and name a host")
    if parts.username or parts.password:
        raise ConfigError(f"the address of the server must not hold a login: put the token into {SERVER_TOKEN}")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def is_this_machine(host: str) -> bool:
    """Whether what is sent to this host never leaves the machine."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def is_readable_on_the_way(server: str) -> bool:
    """Whether others can read what is sent to this address, a token too."""
    parts = urlsplit(server)
    return parts.scheme == "http" and not is_this_machine(parts.hostname or "")


def sandbox_slug(name: str) -> str:
    """A host name, or any other, as the id of a sandbox."""
    slug = _SLUG.sub("-", name).strip("-._")[:_LONGEST]
    return slug or "sandbox"

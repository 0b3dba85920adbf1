"""What leads out of a sandbox: a table, asked for every request. The connections are in `sandbox/door`."""

import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from untildone.core.dataclass import dataclass
from untildone.core.policy import Network
from untildone.errors import ConfigError

PORT = 8484
"""Where the door listens, on the sandbox's own loopback."""
MODEL_HOST = "model.invalid"
"""What the model is called in the table: who asks the door itself for something asks the model."""
REGISTRIES = {
    "pypi": ("pypi.org", "files.pythonhosted.org"),
    "npm": ("registry.npmjs.org",),
    "debian": ("deb.debian.org:80", "deb.debian.org", "security.debian.org:80", "security.debian.org"),
    "crates": ("index.crates.io", "static.crates.io", "crates.io"),
    "go": ("proxy.golang.org", "sum.golang.org"),
}
_MESSAGES = "/v1/messages"
_HTTPS = 443
_HTTP = 80
_LAST_PORT = 65535
_TRANSLATED = tuple(map(ipaddress.IPv6Network, ("64:ff9b::/96", "::/96")))
"""Networks whose addresses end with one of IPv4."""
_NAME = re.compile(r"(?:\*\.)?(?:[a-z0-9_](?:[a-z0-9_-]{0,62})\.)*[a-z0-9_](?:[a-z0-9_-]{0,62})\Z")
_ENCODED = re.compile(rb"%([0-9a-fA-F]{2})")
_CROOKED = ("..", "//", "\\", ";", "%", "\N{REPLACEMENT CHARACTER}")
_REFUSED_HEADERS = frozenset({"authorization", "x-api-key", "cookie", "proxy-authorization"})


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRule:
    """A host that may be reached, or with `*.` in front all below a name; port 0: any."""

    name: str
    port: int = _HTTPS

    def covers(self, host: str, port: int) -> bool:
        """Whether this host at this port is meant."""
        if self.port not in (0, port):
            return False
        return host.endswith(self.name[1:]) if self.name.startswith("*.") else host == self.name

    def __str__(self) -> str:
        shown = f"[{self.name}]" if ":" in self.name else self.name
        return shown if self.port == _HTTPS else f"{shown}:{self.port or '*'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A host that is reached through us: what authenticates is added outside, so that nobody inside has it."""

    host: str
    """As it is called inside."""
    upstream: str
    """Scheme, host and port, and a path to put in front."""
    adds: tuple[tuple[str, str], ...] = ()
    """Headers, instead of those that were sent."""
    calls: tuple[tuple[str, str], ...] = (("", "/"),)
    """What may be asked: a method ("" for any) and a path, with a slash at its end all below it."""
    metered: str = ""
    """The path whose answers cost something."""
    passes: tuple[str, ...] = ("",)
    """Beginnings of the names of headers that are passed on, logins aside."""

    def permits(self, method: str, path: str) -> bool:
        """Whether this may be asked. A path that can be read in two ways could lead out of what is permitted."""
        plain = _decoded(path.partition("?")[0])
        is_straight = plain.isprintable() and not any(sign in plain for sign in _CROOKED)
        return is_straight and any(
            verb in ("", method) and _is_call(plain, _decoded(call)) for verb, call in self.calls
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Forward:
    """Ask this host in the name of whoever asked, with these headers in place of theirs."""

    url: str
    adds: tuple[tuple[str, str], ...] = ()
    passes: tuple[str, ...] = ("",)
    """Beginnings of the names of headers that are passed on."""
    withheld: frozenset[str] = frozenset()
    """Names of headers that are not."""
    is_metered: bool = False
    """The answer costs something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tunnel:
    """Connect to this host and pass on what both sides say, unread."""

    host: str
    port: int
    named: bool
    """A rule names exactly this host: only then may it be one of this machine."""
    path: str = ""
    """What to ask for, where it is asked for in plain HTTP."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Everything that leads out."""

    ways: tuple[Way, ...] = ()
    rules: tuple[HostRule, ...] = ()
    network: Network = "registries"

    @property
    def services(self) -> tuple[Tunnel, ...]:
        """What of this machine has its port inside too: whatever speaks to it need know nothing of a proxy."""
        named = (rule for rule in self.rules if is_loopback(rule.name) and rule.port not in (0, PORT))
        by_port = {rule.port: Tunnel(host=rule.name, port=rule.port, named=True) for rule in named}
        return () if self.network == "none" else tuple(by_port.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Nothing leads there."""

    host: str
    said: str
    can_be_allowed: bool = True
    """The user can allow this host by its name."""


Answer = Forward | Tunnel | Refused


def _decoded(path: str) -> str:
    """A path as a server reads it, which does so once."""
    return _ENCODED.sub(lambda found: bytes([int(found[1], 16)]), path.encode("utf-8", "replace")).decode(
        "utf-8", "replace"
    )


def _is_call(path: str, call: str) -> bool:
    return path == (call or "/") or (call.endswith("/") and path.startswith(call))


def model_way(base_url: str, adds: Sequence[tuple[str, str]]) -> Way:
    """The way to the model: what Claude Code asks of it, and no other part of the same account."""
    messages = (("POST", _MESSAGES), ("POST", f"{_MESSAGES}/count_tokens"))
    calls = (*messages, ("GET", "/v1/models"), ("GET", "/v1/models/"), ("HEAD", ""))
    return Way(host=MODEL_HOST, upstream=base_url.rstrip("/"), adds=tuple(adds), calls=calls, metered=_MESSAGES)


def host_rules(wanted: Iterable[str]) -> tuple[HostRule, ...]:
    """The rules that names of registries and hosts stand for. ConfigError for what is neither."""
    names = (name for word in wanted for name in REGISTRIES.get(word.strip().lower(), (word,)))
    return tuple(dict.fromkeys(map(host_rule, names)))


def host_rule(text: str) -> HostRule:
    """`NAME`, `*.NAME`, `NAME:PORT` or an address. ConfigError for anything else."""
    word = text.strip().lower()
    wrong = ConfigError(
        f"{text!r} is no host that can be allowed: use NAME, *.NAME, NAME:PORT or one of {', '.join(REGISTRIES)}"
    )
    name, port = _parted(word)
    if port is None or not (_is_address(name) or _NAME.match(name)):
        raise wrong
    return HostRule(name=name, port=port)


def host_of(address: str) -> str:
    """The host of a web address, as a rule names it."""
    scheme, _, rest = address.strip().lower().partition("://")
    authority = rest.partition("/")[0].rpartition("@")[2]
    name, port = _parted(authority, otherwise=_HTTP if scheme == "http" else _HTTPS)
    return str(HostRule(name=name, port=port or 0))


def is_loopback(host: str) -> bool:
    """Whether a host, with or without a port, is this machine itself."""
    name = _parted(host.lower())[0]
    return (
        name == "localhost"
        or name.endswith(".localhost")
        or (_is_address(name) and ipaddress.ip_address(name).is_loopback)
    )


def _parted(word: str, otherwise: int = _HTTPS) -> tuple[str, int | None]:
    """A host and its port; None for one that is none."""
    if word.startswith("["):
        name, _, rest = word[1:].partition("]")
        port = rest.removeprefix(":")
    elif word.count(":") > 1:
        name, port = word, ""
    else:
        name, _, port = word.partition(":")
    if not port:
        return name, otherwise
    if port == "*":
        return name, 0
    number = int(port) if port.isascii() and port.isdigit() and len(port) <= len(str(_LAST_PORT)) else 0
    return name, number if 0 < number <= _LAST_PORT else None


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def answer(table: Table, method: str, target: str) -> Answer:
    """What becomes of a request with this first line."""
    if method == "CONNECT":
        name, port = _parted(target.lower(), otherwise=0)
        return _beyond(table, name, port) if port else Refused(host=target[:200], said="no host and port")
    if target.startswith("/"):
        name, port, path = MODEL_HOST, _HTTP, target
    else:
        scheme, _, rest = target.partition("://")
        authority, _, below = rest.partition("/")
        if scheme.lower() != "http" or "@" in authority or "?" in authority:
            return Refused(host=target[:200], said="no address")
        name, port = _parted(authority.lower(), otherwise=_HTTP)
        path = f"/{below}"
    way = next((way for way in table.ways if way.host == name), None)
    if way is not None:
        if not way.permits(method, path):
            said = f"{method} {path[:100]} may not be asked there"
            return Refused(host=name, said=said, can_be_allowed=False)
        is_metered = method == "POST" and path.partition("?")[0] == way.metered
        return Forward(
            url=way.upstream + path, adds=way.adds, passes=way.passes, withheld=_REFUSED_HEADERS, is_metered=is_metered
        )
    found = _beyond(table, name, port)
    return found if isinstance(found, Refused) else replace(found, path=path)


def _beyond(table: Table, name: str, port: int | None) -> Tunnel | Refused:
    if not name or not port:
        return Refused(host=name, said="no host and port")
    rule = next((rule for rule in table.rules if rule.covers(name, port)), None)
    if table.network == "none" or (rule is None and table.network != "open"):
        allow = HostRule(name=name, port=port)
        return Refused(host=str(allow), said=f"it is not allowed: --allow-host {allow} would allow it")
    return Tunnel(host=name, port=port, named=rule is not None and rule.name == name)


def may_lead_to(address: str, *, named: bool) -> bool:
    """Whether a name may lead to this address: to one that is not of the internet only if it was named."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    return named or (_inner(found).is_global and not found.is_multicast)


def _inner(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """The address that one of IPv6 stands for, where it stands for another."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if any(address in network for network in _TRANSLATED):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address

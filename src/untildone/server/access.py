"""Who asks, and what they may. A route says `viewer`, `operator` or `worker`; everything else is decided here.

Bound to this machine alone: looking needs nothing, speaking for a sandbox only if a token was made for it, steering
always does. Bound to anything else, behind a name or closed, everything needs a token.

Browsers send a cookie to every port of a host, so also to whatever an agent serves there: it lets its bearer look.
What steers is the proof, which only pages of this very server can read in the browser that logged in, and which they
send as a header of its own. Pages of others can neither read it nor send that header, so nothing else is needed
against requests that they forge.
"""

from dataclasses import field
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Literal, Protocol, cast

from fastapi import HTTPException, Request
from starlette.requests import HTTPConnection

from untildone.core.dataclass import dataclass
from untildone.server.archive.port import Scope
from untildone.server.context import ServerSettings, context_of
from untildone.server.keys import TOKEN_PREFIX, Keyring, Links, cookie_of, hash_of, is_sandbox_id
from untildone.server.paths import SandboxId

Via = Literal["token", "cookie", "loopback"]
BROWSER = "browser"
"""What a session is called whose link nobody gave a label."""
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
PROOF_HEADER = "x-untildone-proof"
SECURE_COOKIE = "__Host-untildone"
_FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")
"""A proxy adds one of these: then whoever asks may be anywhere."""
_NEED_TOKEN = "this needs a token: send `Authorization: Bearer ud_...`; `untildone token create` makes one"  # noqa: S105
_BAD_TOKEN = "this token is not valid: it was revoked, has expired or never was"  # noqa: S105 -- a sentence
_LOG_IN = "this browser is not logged in any more: open a link of `untildone token login` in it"
_UNPROVEN = "this browser has lost what its login left in it: log in again with a link of `untildone token login`"
_LOOKS = "this browser may look, not steer: log in with a link of `untildone token login --scope operator`"


class Refused(HTTPException):
    """The request is not let in: a status and one line for whoever asks."""

    def __init__(self, status: int, line: str, *, headers: dict[str, str] | None = None) -> None:
        super().__init__(status, line, headers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Who asks."""

    scope: Scope
    via: Via
    sandbox_id: str | None = None
    """Of a worker: the only sandbox it speaks for."""
    key_id: str | None = None
    label: str = ""
    """What the token or session was called when it was made."""
    secret_hash: str = field(default="", repr=False)
    unproven: bool = False
    """An operator's cookie without the proof: it looks, until the page that it asks for shows the proof."""

    @property
    def name(self) -> str:
        """What the log of a run says about who gave an order. No label can make it the name of somebody else."""
        if self.via == "cookie":
            named = self.label not in {"", BROWSER}
            return f"{self.label} (in a browser)" if named else f"an {self.scope} in a browser"
        return f"{self.label or self.key_id} (token)" if self.key_id else self.via


class Tries(Protocol):
    """Counts tries."""

    def wait(self, who: str) -> float:
        """Seconds until one more is granted; 0: now."""
        ...

    def take(self, who: str) -> float:
        """Take note of one."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """What this process needs to know who asks."""

    keyring: Keyring
    links: Links
    failures: Tries
    """Secrets that did not open, by address."""


def door_of(connection: HTTPConnection) -> Door:
    """The door of the server that a request came to."""
    door = context_of(connection).door
    assert door is not None
    return door


async def viewer(request: Request) -> Principal:
    """Whoever may look."""
    who = await _who(request)
    if who is None:
        if is_from_here(request, context_of(request).settings):
            return Principal(scope="viewer", via="loopback")
        raise _unknown(request)
    if who.scope == "worker":
        raise Refused(403, "the token of a sandbox speaks for that sandbox alone: looking needs a viewer token")
    return who


async def operator(request: Request) -> Principal:
    """Whoever may steer."""
    who = await _who(request)
    if who is None:
        raise _unknown(request)
    if who.scope != "operator" and who.via == "cookie":
        raise Refused(403, _UNPROVEN if who.unproven else _LOOKS)
    if who.scope != "operator":
        raise Refused(403, f"this needs an operator token, and yours is for a {who.scope}")
    return who


async def worker(request: Request, sandbox_id: SandboxId) -> Principal:
    """Whoever may speak for the sandbox in the path."""
    if not is_sandbox_id(sandbox_id):
        raise Refused(422, "not an id of a sandbox: letters, digits, dots, dashes, at most 100")
    who = await _who(request)
    if who is None:
        from_here = is_from_here(request, context_of(request).settings)
        if from_here and not await door_of(request).keyring.guarded(sandbox_id):
            return Principal(scope="worker", via="loopback", sandbox_id=sandbox_id)
        raise _unknown(request)
    if who.scope == "viewer":
        raise Refused(403, "a viewer token may look, not speak for a sandbox")
    if who.scope == "worker" and who.sandbox_id != sandbox_id:
        raise Refused(403, "this token is for another sandbox")
    return who


async def somebody(request: Request) -> Principal:
    """Whoever has a key at all."""
    who = await _who(request)
    if who is None:
        raise _unknown(request)
    return who


def session_secret(connection: HTTPConnection) -> str:
    """The secret in the session's cookie; empty when there is none.

    Empty also when there are more, for then somebody else set one, unless the proof tells which is ours.
    """
    wanted = {SECURE_COOKIE, cookie_name(connection)}
    found = [
        value
        for line in connection.headers.getlist("cookie")
        for name, _, value in (pair.strip().partition("=") for pair in line.split(";"))
        if name in wanted
    ]
    proven = _proven_secret(connection)
    return proven if proven in found else found[0] if len(found) == 1 else ""


def is_proven(connection: HTTPConnection) -> bool:
    """Whether a session's cookie came with its proof."""
    secret = session_secret(connection)
    return bool(secret) and secret == _proven_secret(connection)


def _proven_secret(connection: HTTPConnection) -> str:
    """What the cookie must hold to go with the proof that was shown; empty without one."""
    proof = connection.headers.get(PROOF_HEADER, "")
    return cookie_of(proof) if proof else ""


def cookie_name(connection: HTTPConnection) -> str:
    """Cookies are shared by all ports of a host: two servers on one machine must not log each other out."""
    if is_secure(connection):
        return SECURE_COOKIE
    return f"untildone-{context_of(connection).settings.port}"


def is_secure(connection: HTTPConnection) -> bool:
    """Whether the browser came by https; a proxy says so. Who lies here only spoils their own cookie."""
    return connection.url.scheme == "https" or connection.headers.get("x-forwarded-proto") == "https"


def is_from_here(connection: HTTPConnection, settings: ServerSettings) -> bool:
    """Whether only a program of this machine can have asked: no proxy in between, and by no other name."""
    if settings.is_closed or any(name in connection.headers for name in _FORWARDED):
        return False
    return is_loopback_name(host_name(connection.headers.get("host", "")))


def host_name(host: str) -> str:
    """The name in a Host header or an origin, without the port, in lower case."""
    name = host.partition("]")[0].removeprefix("[") if host.startswith("[") else host.partition(":")[0]
    return name.lower().removesuffix(".")


@lru_cache(maxsize=1024)
def is_loopback_name(name: str) -> bool:
    """Whether this can only mean the machine itself."""
    if name == "localhost":
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


@lru_cache(maxsize=1024)
def neighbourhood(address: str) -> str:
    """Whom an address stands for: of IPv6, everybody has as many as they like in their network."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(found, IPv6Address):
        return address
    return str(found.ipv4_mapped) if found.ipv4_mapped else found.exploded[:19]


async def _who(request: Request) -> Principal | None:
    """Whoever shows a token or a session; None: nobody in particular."""
    known = getattr(request.state, "principal", None)
    if known is None:
        known = await _by_token(request) if "authorization" in request.headers else await _by_cookie(request)
        request.state.principal = known
    return cast("Principal | None", known)


async def _by_token(request: Request) -> Principal:
    given = request.headers.getlist("authorization")
    kind, _, secret = given[0].partition(" ")
    secret = secret.strip()
    if len(given) != 1 or kind.lower() != "bearer" or not secret.startswith(TOKEN_PREFIX):
        raise Refused(401, _NEED_TOKEN, headers={"WWW-Authenticate": "Bearer"})
    door, secret_hash = door_of(request), hash_of(secret)
    address = neighbourhood(request.client.host if request.client else "")
    key = await door.keyring.token(secret_hash)
    if key is None:
        # Counted after it was looked up: whoever has a token that is valid is not refused for the noise of others.
        pause = door.failures.take(address)
        if pause > 0:
            raise Refused(429, "too many tokens that are not valid: wait", headers={"Retry-After": str(int(pause) + 1)})
        raise Refused(401, _BAD_TOKEN, headers={"WWW-Authenticate": 'Bearer error="invalid_token"'})
    return Principal(
        scope=key.scope,
        via="token",
        sandbox_id=key.sandbox_id,
        key_id=key.key_id,
        label=key.label,
        secret_hash=secret_hash,
    )


async def _by_cookie(request: Request) -> Principal | None:
    secret = session_secret(request)
    if not secret:
        return None
    secret_hash = hash_of(secret)
    key = await door_of(request).keyring.session(secret_hash)
    if key is None:
        return None
    proven = is_proven(request)
    return Principal(
        scope=key.scope if proven else "viewer",
        via="cookie",
        key_id=key.key_id,
        label=key.label,
        secret_hash=secret_hash,
        unproven=key.scope == "operator" and not proven,
    )


def _unknown(request: Request) -> Refused:
    if "hx-request" in request.headers:
        # A page that was open when its session ended: whoever looks at it has no use for a word about headers.
        return Refused(401, _LOG_IN)
    return Refused(401, _NEED_TOKEN, headers={"WWW-Authenticate": "Bearer"})

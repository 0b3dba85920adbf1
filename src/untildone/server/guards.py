"""What holds for every request before a route sees it: by which name, from which page, how much, how often.

A browser can be made to ask this server by any page on the internet, and to take its answer for that page's own
(DNS rebinding). So the name it asked for must be ours, and a page that asks must be ours.
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import field
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from untildone.core.dataclass import dataclass
from untildone.errors import ServeError
from untildone.server import login
from untildone.server.access import (
    SAFE_METHODS,
    Door,
    Principal,
    Refused,
    host_name,
    is_from_here,
    is_loopback_name,
    is_proven,
    neighbourhood,
    session_secret,
    somebody,
)
from untildone.server.context import Context, ServerSettings
from untildone.server.keys import Keyring, Links, hash_of
from untildone.server.limits import (
    FAILURES_BURST,
    FAILURES_RATE,
    HOLD,
    LANES,
    LOOKING,
    STREAMS,
    BodyInTime,
    Buckets,
    Lane,
    lane_of,
    rooms,
    too_large,
    too_often,
)
from untildone.server.login import answer_refusal

CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = {
    "content-security-policy": CONTENT_POLICY,
    "x-content-type-options": "nosniff",
    # Not `no-referrer`: with that, browsers say `Origin: null` when a form is sent, and our own page is not known.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-frame-options": "DENY",
    "cache-control": "no-store",
}
_RAW_HEADERS = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
_HOST = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
_DOTS = re.compile(r"(?:^|/)\.{1,2}(?:/|$)")
_FOREIGN = frozenset({"cross-site", "same-site"})
_UNSEEN = frozenset({"/healthz", "/readyz"})
"""Asked by supervisors that know the machine by whatever address; they tell nothing."""
_OPEN = ("/login/", "/static/", "/favicon.ico")
"""What a browser needs before it is known."""
KNOWN = "untildone.known"
"""In the scope of a request: the key that it came with, if it opens; else empty."""
STEERS = "untildone.steers"
"""In the scope of a request: whether it is an operator's, with all that it takes."""
RECHECK = 2.0
"""Seconds after which an open stream asks again whether its key still opens."""
LAST_WORDS = 1.0
"""Seconds that a stream has to end by itself when the server goes down."""


def guarded(app: FastAPI, context: Context) -> None:
    """Put the guard before all routes, and the door where routes find it."""
    failures = Buckets(FAILURES_RATE, FAILURES_BURST)
    door = Door(keyring=Keyring(context.archive.keys, context.clock), links=Links(), failures=failures)
    context.door = door
    app.include_router(login.router)
    app.add_exception_handler(Refused, answer_refusal)
    app.add_middleware(Guard, context=context, door=door)


class Guard:
    """The first to see a request, and the last to see its answer."""

    def __init__(self, app: ASGIApp, *, context: Context, door: Door) -> None:
        self._app = app
        self._context = context
        self._door = door
        self._buckets = {lane.name: Buckets(lane.rate, lane.burst) for lane in LANES}
        self._rooms = rooms()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse, or pass on."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._serve(scope, receive, send)
        # Nothing here speaks WebSocket: whoever tries is not answered.

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        lane = lane_of(scope["method"], scope["path"])
        body = BodyInTime(receive, lane, self._rooms[lane.name])
        scope[HOLD] = body.hold
        answer = _Answer(send=send, body=body, still_opens=lambda: self._still_opens(scope))
        request = Request(scope, body)
        try:
            _check_path(scope["path"])
            if scope["path"] not in _UNSEEN:
                check_host(request.headers, self._context.settings)
            check_origin(scope["method"], scope["path"], request.headers)
            await self._check_amount(lane, request)
            body.holder = scope[KNOWN]
            await self._check_somebody(request)
            await self._let_in(scope, body, answer)
        except ClientDisconnect:
            return
        except Refused as refused:
            if not answer.begun:
                await (await answer_refusal(request, refused))(scope, body, answer)
        except Exception as bug:
            # Answered here, so that this answer, too, has the headers that all have.
            answered = scope["app"].exception_handlers.get(Exception)
            if answer.begun or answered is None:
                raise
            await (await answered(request, bug))(scope, body, answer)
        finally:
            body.let_go()

    async def _check_somebody(self, request: Request) -> None:
        """On the network, what a route forgot to close is closed, and no body is read of anybody unknown."""
        path = request.scope["path"]
        if path in _UNSEEN or path.startswith(_OPEN) or is_from_here(request, self._context.settings):
            return
        await somebody(request)

    async def _still_opens(self, scope: Scope) -> bool:
        """Whether whoever asked would still be let in."""
        who: Any = scope.get("state", {}).get("principal")
        if not isinstance(who, Principal) or not who.secret_hash:
            return True
        try:
            return await self._door.keyring.opens(who.secret_hash)
        except ServeError:
            # The database does not answer: nobody can have been shut out meanwhile.
            return True

    async def _check_amount(self, lane: Lane, request: Request) -> None:
        length = request.headers.get("content-length", "0")
        if not length.isdecimal():
            raise Refused(400, "the length of the body is a number")
        if int(length) > lane.most_bytes:
            raise too_large(lane)
        known = await self._key_id(request)
        # Seen where connections are counted: one with a key is not ended for those without.
        request.scope[KNOWN] = known
        who = f"key {known}" if known else neighbourhood(request.client.host if request.client else "")
        opens_stream = lane.name == STREAMS.name
        pause = self._buckets[LOOKING.name if known and opens_stream else lane.name].take(who)
        if pause > 0:
            raise too_often(pause, closing=opens_stream)

    async def _key_id(self, request: Request) -> str:
        """The key that was shown, if it opens: the noise of those who have none must not keep out who has one."""
        _, _, secret = request.headers.get("authorization", "").partition(" ")
        secret = secret.strip() or session_secret(request)
        keyring, path = self._door.keyring, request.scope["path"]
        try:
            if path.startswith("/login/"):
                code = path.removeprefix("/login/")
                found = await self._context.archive.keys.find(hash_of(code), now=self._context.clock.now())
                return f"{hash_of(code)}" if found is not None or self._door.links.opens(code) else ""
            if not secret:
                return ""
            secret_hash = hash_of(secret)
            if not keyring.knows(secret_hash) and not await keyring.opens(secret_hash):
                return ""
        except ServeError:
            return ""  # the database does not answer, and nobody is known at the moment
        # A cookie goes to every port of this host: what somebody else asks with it is not counted as its owner's.
        proven = is_proven(request)
        request.scope[STEERS] = keyring.steers(secret_hash) and (proven or "authorization" in request.headers)
        return f"{keyring.knows(secret_hash)}{' proven' if proven else ''}"

    async def _let_in(self, scope: Scope, body: BodyInTime, answer: "_Answer") -> None:
        watch: list[asyncio.Task[None]] = []
        ended = False

        def end() -> None:
            nonlocal ended
            ended = True
            assert task is not None
            task.cancel()

        def is_stream() -> None:
            watch.append(asyncio.ensure_future(self._watch(scope, end)))

        task = asyncio.current_task()
        answer.on_stream = is_stream
        try:
            await self._app(scope, body, answer)
        except asyncio.CancelledError:
            if not ended or task is None or task.uncancel() > 0:
                raise
            if not answer.ended:
                await answer({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            for watching in watch:
                watching.cancel()

    async def _watch(self, scope: Scope, end: Callable[[], None]) -> None:
        """End a stream when the server goes down, or when its key does not open any more."""
        while await self._still_opens(scope):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._context.stopping.wait(), RECHECK)
                # Streams know, and say their last words themselves.
                await asyncio.sleep(LAST_WORDS)
                break
        end()


@dataclass(slots=True)
class _Answer:
    """A `send` that adds the headers every answer has, and that tells nothing to a key that was revoked meanwhile."""

    send: Send
    body: BodyInTime
    still_opens: Callable[[], Awaitable[bool]]
    asked_at: float = field(default_factory=time.monotonic)
    begun: bool = False
    ended: bool = False
    on_stream: Callable[[], None] | None = None

    async def __call__(self, message: Message) -> None:
        if self.ended:
            return
        if message["type"] == "http.response.start":
            await self._begin(message)
        else:
            self.ended = not message.get("more_body", False)
            await self.send(message)

    async def _begin(self, message: Message) -> None:
        self.begun = self.body.answered = True
        there = message.setdefault("headers", [])
        kinds = {name.lower(): value for name, value in there}
        message["headers"] = [*there, *(header for header in _RAW_HEADERS if header[0] not in kinds)]
        if time.monotonic() - self.asked_at > RECHECK and not await self.still_opens():
            # It waited for something to happen, and that is not for this key any more.
            self.ended = True
            await self.send({**message, "status": 401, "headers": [*_RAW_HEADERS, (b"content-length", b"0")]})
            await self.send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        if self.on_stream is not None and kinds.get(b"content-type", b"").startswith(b"text/event-stream"):
            self.on_stream()
        await self.send(message)


def check_host(headers: Headers, settings: ServerSettings) -> None:
    """Refuse a request for a name that is not ours."""
    given = headers.getlist("host")
    if len(given) != 1 or not _HOST.fullmatch(given[0]):
        raise Refused(400, "a request says for which host it is: one Host header")
    name = host_name(given[0])
    if is_loopback_name(name) or name in {own.lower() for own in (settings.host, *settings.names)}:
        return
    # A page can be given any name, but not an address: that is what somebody typed.
    if not settings.is_loopback and _is_address(name):
        return
    raise Refused(421, f"this server is not called {name}: if it should be, start it with `--name {name}`")


def check_origin(method: str, path: str, headers: Headers) -> None:
    """Refuse what a page of somebody else asks; following a link to one of our pages is no asking."""
    origins = headers.getlist("origin")
    if origins and (len(origins) != 1 or not _is_own(origins[0], headers)):
        raise Refused(403, "a page of another site may not ask this; behind a proxy, it has to pass on the Host header")
    referrer = headers.get("referer", "")
    if referrer and path.startswith("/api/") and not _is_own(referrer, headers):
        # Browsers that say nothing else say this; programs do not.
        raise Refused(403, "a page of another site may not ask this")
    if headers.get("sec-fetch-site") in _FOREIGN:
        follows_link = method in SAFE_METHODS and headers.get("sec-fetch-mode") == "navigate"
        framed = headers.get("sec-fetch-dest") != "document"
        if not follows_link or framed or path.startswith("/api/"):
            raise Refused(403, "a page of another site may not ask this")


def _is_own(origin: str, headers: Headers) -> bool:
    try:
        parts = urlsplit(origin)
    except ValueError:  # brackets that are no address
        return False
    if parts.scheme not in ("http", "https") or parts.netloc.lower() != headers.get("host", "").lower():
        return False
    # Over https, a page that came without it may be anybody's.
    return headers.get("x-forwarded-proto") != "https" or parts.scheme == "https"


def _check_path(path: str) -> None:
    if _DOTS.search(path) or not path.isprintable() or "\\" in path:
        raise Refused(400, "there is no such path")


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True

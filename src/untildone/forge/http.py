"""HTTP as a forge needs it: bounded in time and size, the login only to the forge itself, trouble in one line."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import field
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from untildone import __version__
from untildone.core.dataclass import dataclass
from untildone.errors import ForgeError
from untildone.forge.address import is_loopback
from untildone.ports import Clock

if TYPE_CHECKING:
    import httpx2

PATIENCE = 30.0
"""Seconds one answer may take, all of it."""
ANSWER_CAP = 8 * 1024 * 1024
"""Bytes of one answer; nothing a forge says about one pull request is longer."""
LOG_CAP = 64 * 1024 * 1024
"""Bytes of a log that are read in search of its end."""
TAIL = 64 * 1024
"""Bytes of a log's end that are kept."""
GRAPHQL = "/graphql"
_REMEMBERED = 200
_NOT_MODIFIED = 304
_REDIRECTIONS = frozenset({301, 302, 303, 307, 308})
_HOPS = 3


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: Any = None
    """Decoded JSON; None when there was none."""

    @property
    def message(self) -> str:
        """What the forge says about it, if it says something: hostile text."""
        said = self.body.get("message") if isinstance(self.body, dict) else None
        return said if isinstance(said, str) else ""


@dataclass
class Http:
    """One forge's API and the login for it."""

    base: str
    token: str = field(repr=False)
    clock: Clock
    accept: str = "application/json"
    _known: dict[str, tuple[str, Answer]] = field(default_factory=dict, repr=False)
    _trust: ssl.SSLContext | None = field(default=None, repr=False)

    @property
    def host(self) -> str:
        """For messages."""
        return urlsplit(self.base).netloc

    @asynccontextmanager
    async def talk(self) -> AsyncIterator["Talk"]:
        """A few questions over the same connection."""
        import httpx2

        if self._trust is None:
            self._trust = httpx2.create_ssl_context()  # costs more than a question; the same for all of them
        local = is_loopback(self.base)
        async with httpx2.AsyncClient(verify=self._trust, timeout=PATIENCE, trust_env=not local) as client:
            yield Talk(self, client)

    def address(self, path: str) -> str:
        """Where a path of the API lies; GraphQL of an Enterprise server lies beside its REST API."""
        if path == GRAPHQL and self.base.endswith("/v3"):
            return self.base.removesuffix("/v3") + path
        return self.base + path

    def headers(self) -> dict[str, str]:
        """Of every request to the forge itself, and to nobody else."""
        return {"Authorization": f"Bearer {self.token}", "Accept": self.accept, **_ours()}

    def remember(self, url: str, answer: Answer) -> None:
        """Keep an answer that the forge gave a mark to: asking again is then free while nothing changed."""
        if mark := answer.headers.get("etag"):
            self._known[url] = (mark, answer)
            while len(self._known) > _REMEMBERED:
                del self._known[next(iter(self._known))]

    def known(self, url: str) -> tuple[str, Answer] | None:
        """The mark and the answer kept for this address."""
        return self._known.get(url)


def _ours() -> dict[str, str]:
    return {"User-Agent": f"untildone/{__version__}"}


@dataclass(frozen=True, slots=True)
class Talk:
    """Questions and answers over one connection."""

    http: Http
    client: "httpx2.AsyncClient"

    async def ask(
        self, method: str, path: str, *, query: Mapping[str, Any] | None = None, body: object = None
    ) -> Answer:
        """One question. ForgeError only when there is no answer at all: what a refusal means is judged elsewhere."""
        url = str(self.client.build_request(method, self.http.address(path), params=query).url)
        known = self.http.known(url) if method == "GET" else None
        headers = self.http.headers() | ({"If-None-Match": known[0]} if known else {})
        with self._trouble():
            async with asyncio.timeout(PATIENCE):
                answer = await self._answer(method, url, headers, body)
        if answer.status == _NOT_MODIFIED and known:
            return known[1]
        if method == "GET" and answer.status < 300:  # noqa: PLR2004 - 2xx
            self.http.remember(url, answer)
        return answer

    async def tail(self, path: str) -> str | None:
        """The end of a text that may be long and may lie elsewhere; None when it is not to be had.

        Forges keep logs in a store of somebody else's, behind an address that holds its own permission: it is asked
        without our login, and only over https.
        """
        url, headers = self.http.base + path, self.http.headers()
        with self._trouble():
            async with asyncio.timeout(2 * PATIENCE):
                for _ in range(_HOPS):
                    async with self.client.stream("GET", url, headers=headers) as response:
                        if response.status_code not in _REDIRECTIONS:
                            return await _end_of(response) if response.is_success else None
                        url = urljoin(url, response.headers.get("location", ""))
                    if not self._is_ours(url):
                        headers = _ours()
                        if not url.startswith("https://") and not (is_loopback(self.http.base) and is_loopback(url)):
                            return None
        return None

    async def _answer(self, method: str, url: str, headers: Mapping[str, str], body: object) -> Answer:
        for _ in range(_HOPS):
            async with self.client.stream(method, url, headers=dict(headers), json=body) as response:
                if response.status_code not in _REDIRECTIONS:
                    content = await self._content(response)
                    return Answer(response.status_code, _lower(response.headers), self._decoded(content, response))
                # A repository that was renamed answers so. Only a question may follow, and only to the same place.
                url = urljoin(url, response.headers.get("location", ""))
            if method != "GET" or not self._is_ours(url):
                break
        raise ForgeError(
            f"{self.http.host} points to another address: if the repository was renamed or moved, "
            "update the remote, or name it with --repo OWNER/NAME"
        )

    def _is_ours(self, url: str) -> bool:
        ours, asked = urlsplit(self.http.base), urlsplit(url)
        return (ours.scheme, ours.netloc) == (asked.scheme, asked.netloc)

    async def _content(self, response: "httpx2.Response") -> bytes:
        content = bytearray()
        async for piece in response.aiter_bytes():
            content += piece
            if len(content) > ANSWER_CAP:
                raise ForgeError(f"{self.http.host} sent more than {ANSWER_CAP >> 20} MB for one answer", lasting=False)
        return bytes(content)

    def _decoded(self, content: bytes, response: "httpx2.Response") -> Any:
        if not content:
            return None
        try:
            return json.loads(content)
        except (ValueError, RecursionError):
            if not response.is_success:
                return None  # an error page of a proxy on the way: its status says enough
            said = f"{self.http.host} answered with something that is no JSON: is it the address of an API?"
            raise ForgeError(said, lasting=False) from None

    def _trouble(self) -> "_Trouble":
        return _Trouble(self.http.host)


@dataclass(frozen=True, slots=True)
class _Trouble:
    """Turns what a library raises into one line. Nothing of its own text is kept: it may quote what was sent."""

    host: str

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        import httpx2

        if isinstance(error, TimeoutError | httpx2.TimeoutException):
            raise ForgeError(f"{self.host} gave no answer in time", lasting=False) from None
        if isinstance(error, httpx2.HTTPError | httpx2.InvalidURL | httpx2.StreamError | OSError):
            raise ForgeError(f"{self.host} cannot be reached: {_reason(error)}", lasting=False) from None


def _reason(error: BaseException) -> str:
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ssl.SSLCertVerificationError):
            return "its certificate cannot be trusted"
        if isinstance(seen, OSError) and seen.strerror:
            return seen.strerror
        seen = seen.__cause__ or seen.__context__
    return type(error).__name__


def _lower(headers: "httpx2.Headers") -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


async def _end_of(response: "httpx2.Response") -> str:
    kept, read = bytearray(), 0
    async for piece in response.aiter_bytes():
        kept = (kept + piece)[-TAIL:]
        read += len(piece)
        if read > LOG_CAP:
            break
    return bytes(kept).decode("utf-8", "replace")


def retry_at(answer: Answer, now: float) -> float | None:
    """When a limit on the number of questions lets the next one through, as the forge says; None: it says nothing."""
    headers = answer.headers
    if (after := _number(headers.get("retry-after"))) is not None:
        return now + after
    if headers.get("x-ratelimit-remaining", headers.get("ratelimit-remaining")) == "0":
        return _number(headers.get("x-ratelimit-reset", headers.get("ratelimit-reset")))
    return None


def _number(text: str | None) -> float | None:
    return float(text) if text is not None and text.strip().isdecimal() else None

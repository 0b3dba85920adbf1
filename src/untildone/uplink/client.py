"""The server over HTTP: bounded in time and size, the token only to the server itself, trouble in one line."""

import asyncio
import gzip
import re
import ssl
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar
from urllib.parse import quote, urlsplit

import msgspec

from untildone import __version__
from untildone.core import wire
from untildone.core.events import Record
from untildone.core.printable import one_line
from untildone.core.wire import COUNT, DRIVER, TENURE, Batch, Order, Receipt, Wire
from untildone.errors import ConfigError, UplinkDown, UplinkRefused
from untildone.ports import Parcel
from untildone.uplink.settings import checked_address, is_this_machine

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")

PATIENCE = 30.0
"""Seconds one answer may take, all of it."""
CONNECT_PATIENCE = 10.0
PARCEL_PATIENCE = 300.0
ANSWER_CAP = 4 * 1024 * 1024
"""Bytes of one answer that are read."""
WORTH_PACKING = 2048
"""Bytes below which a body travels as it is."""

# Answers that say nothing about what was asked: the same may work in a while. A proxy whose server is being
# restarted says "not found", too.
_PASSING = frozenset({404, 408, 421, 425, 429})
_SERVER_TROUBLE = 500
_CONFLICT = 409
_TOO_LARGE = 413
_FULL = 507
_NOT_LET_IN = frozenset({401, 403})
_OF_A_RUN = re.compile(r"\brun\b")
"""The server speaks of the run, not of who asks: no token would help."""
_JSON = "application/json"
_BYTES = "application/octet-stream"


class _Order(msgspec.Struct, frozen=True):
    """An order of any version: one of a kind we do not know must be answered, too."""

    number: COUNT
    kind: Any
    by: str = ""
    at: float = 0.0
    age: float = 0.0
    seen: COUNT = 0
    data: dict[str, Any] = {}


class _Tenure(msgspec.Struct, frozen=True):
    tenure: TENURE


class _Told(msgspec.Struct, frozen=True):
    """Why the server will not have something."""

    error: str = ""
    detail: Any = ""
    """Where other servers say it: FastAPI's own key, a text or a list."""
    taken: bool = False
    """Another machine has the run."""
    tenure: TENURE | None = None
    """It does not know that we have taken the run over: by its book this tenure holds."""


class HttpUplink:
    """An Uplink to `untildone serve`."""

    def __init__(
        self,
        url: str,
        sandbox_id: str,
        token: str = "",
        *,
        dress: Callable[[Record], Wire] = wire.wire,
        patience: float = PATIENCE,
        renewed: Callable[[], str] | None = None,
        key: Callable[[str], str] = lambda _: "",
        wants: str = "",
    ) -> None:
        """`renewed` reads the token again, wherever it came from: the one we have may have been replaced.

        `wants`: which token is needed, where not one of a worker is: told to whoever is not let in.

        `key` knows what the driver of a run shows; it is asked once, when something of that run is first spoken of.
        """
        self._base = checked_address(url)
        self._sandbox_id = sandbox_id
        self._sandbox = f"/api/v1/sandboxes/{quote(sandbox_id, safe='')}"
        self._token = token
        self._dress = dress
        self._patience = patience
        self._renewed = renewed
        self._wants = wants
        self._client: httpx2.AsyncClient | None = None
        self._ends: dict[str, int] = {}
        """The newest event of each run that the server has, as it last said."""
        self.losses = 0
        self._key = key
        self._keys: dict[str, str] = {}

    @property
    def name(self) -> str:
        """For messages."""
        return urlsplit(self._base).netloc

    async def received(self, run_id: str) -> Receipt:
        """How much of a run the server has."""
        answer = await self.ask("GET", self._run(run_id), headers=self._shown(run_id))
        return self._noted(run_id, self._read(answer, Receipt))

    async def send(self, run_id: str, records: Sequence[Record], *, tenure: int = 0) -> Receipt:
        """Hand over records, in order."""
        body, packed = await self._packed(run_id, records, tenure)
        headers = {"Content-Type": _JSON} | ({"Content-Encoding": "gzip"} if packed else {}) | self._shown(run_id)
        answer = await self.ask("POST", f"{self._sandbox}/events", body=body, headers=headers)
        return self._noted(run_id, self._read(answer, Receipt))

    async def take(self, run_id: str, *, tenure: int) -> int:
        """Have the run driven from here, with this driver's key; the new tenure."""
        headers = {"Content-Type": _JSON} | self._shown(run_id)
        body = msgspec.json.encode({"tenure": tenure})
        answer = await self.ask("POST", f"{self._run(run_id)}/take", body=body, headers=headers)
        return self._read(answer, _Tenure).tenure

    def _shown(self, run_id: str) -> dict[str, str]:
        """The key of whoever drives this run."""
        if run_id not in self._keys:
            self._keys[run_id] = self._key(run_id)
        return {DRIVER: self._keys[run_id]} if self._keys[run_id] else {}

    def _noted(self, run_id: str, receipt: Receipt) -> Receipt:
        self.losses += receipt.last_seq < self._ends.get(run_id, 0)
        self._ends[run_id] = receipt.last_seq
        return receipt

    async def orders(self, run_id: str, *, after: int, wait: float) -> list[Order]:
        """Orders with a higher number, waiting for the first one at the server."""
        path = f"{self._run(run_id)}/orders?after={after:d}&wait={wait:g}"
        answer = await self.ask("GET", path, headers=self._shown(run_id), patience=self._patience + wait)
        found = self._read(answer, list[_Order])
        return [
            Order(number=o.number, kind=o.kind, by=o.by, at=o.at, age=o.age, seen=o.seen, data=o.data) for o in found
        ]

    async def put(self, run_id: str, parcel: Parcel) -> None:
        """Send a parcel."""
        path = f"{self._run(run_id)}/parcels/{quote(parcel.name)}?seq={parcel.seq:d}&tenure={parcel.tenure:d}"
        headers = {"Content-Type": _BYTES} | self._shown(run_id)
        try:
            await self.ask("PUT", path, body=parcel.content, headers=headers, patience=PARCEL_PATIENCE)
        except UplinkRefused as refused:
            if refused.behind is None:
                raise
            raise UplinkDown(str(refused)) from None  # the outbox mends that

    async def close(self) -> None:
        """Give up the connections. Harmless when done twice."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def _run(self, run_id: str) -> str:
        return f"{self._sandbox}/runs/{quote(run_id, safe='')}"

    async def _packed(self, run_id: str, records: Sequence[Record], tenure: int) -> tuple[bytes, bool]:
        """The body, and whether it is compressed."""

        def pack() -> tuple[bytes, bool]:
            events = [self._dress(one) for one in records]
            # A log that lost old trace skips numbers, and the server must know that nothing is missing by mistake.
            body = msgspec.json.encode(Batch(run_id=run_id, events=events, tenure=tenure, after=self._ends.get(run_id)))
            return (gzip.compress(body, 1), True) if len(body) >= WORTH_PACKING else (body, False)

        # The driver of the run is in the same loop: it must not wait for a long list to be looked through.
        return await asyncio.to_thread(pack) if records else pack()

    async def ask(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        patience: float | None = None,
        cap: int = ANSWER_CAP,
    ) -> bytes:
        """What the server answers, at most `cap` bytes. `path` is one of its API, from the root."""
        patience = self._patience if patience is None else patience
        given = headers or {}
        status, content = await self._asked(method, path, body, given, patience=patience, cap=cap)
        if status in _NOT_LET_IN and self._has_another_token():
            status, content = await self._asked(method, path, body, given, patience=patience, cap=cap)
        if not 200 <= status < 300:  # noqa: PLR2004 - all that is well
            self._refuse(status, content, speaks=path.startswith(self._sandbox))
        return content

    def _has_another_token(self) -> bool:
        with suppress(ConfigError):
            before, self._token = self._token, self._renewed() if self._renewed is not None else self._token
            return before != self._token
        return False

    async def _asked(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str], *, patience: float, cap: int
    ) -> tuple[int, bytes]:
        import httpx2

        login = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        try:
            async with asyncio.timeout(patience):
                client = self._opened()
                request = client.build_request(
                    method,
                    self._base + path,
                    content=body,
                    headers={**headers, **login},
                    timeout=httpx2.Timeout(patience, connect=CONNECT_PATIENCE),
                )
                return await self._answer(client, request, cap)
        except (TimeoutError, httpx2.TimeoutException):
            raise UplinkDown(f"{self.name} gave no answer in time") from None
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError) as trouble:
            raise UplinkDown(f"{self.name} cannot be reached: {_reason(trouble)}") from None

    def _opened(self) -> "httpx2.AsyncClient":
        import httpx2

        if self._client is None:
            ours = {"User-Agent": f"untildone/{__version__}", "Accept": _JSON}
            # No proxy stands between a machine and itself.
            is_local = is_this_machine(urlsplit(self._base).hostname or "")
            # Loading the certificates takes longer than a request. Every request goes to the same address.
            verify = self._base.startswith("https:")
            self._client = httpx2.AsyncClient(
                headers=ours, verify=verify, follow_redirects=False, trust_env=not is_local
            )
        return self._client

    async def _answer(self, client: "httpx2.AsyncClient", request: "httpx2.Request", cap: int) -> tuple[int, bytes]:
        response = await client.send(request, stream=True)
        try:
            content = bytearray()
            async for piece in response.aiter_bytes():
                content += piece
                if len(content) > cap:
                    raise UplinkDown(f"{self.name} sent more than {cap >> 20} MB for one answer")
            return response.status_code, bytes(content)
        finally:
            await response.aclose()

    def _refuse(self, status: int, content: bytes, *, speaks: bool) -> NoReturn:
        """`speaks`: it was asked for a sandbox, so that a token for that one would open."""
        told = _told(content)
        said = one_line(told.error or (told.detail if isinstance(told.detail, str) else ""), 200)
        if any(secret and secret in said for secret in (self._token, *self._keys.values())):
            said = ""
        what = f"{self.name} answered {status}" + (f": {said}" if said else "")
        # A conflict that names the end of the copy: the server lost something, and is asked what it has.
        if status >= _SERVER_TROUBLE or status in _PASSING or (status == _CONFLICT and b'"last_seq":' in content):
            raise UplinkDown(what, seldom=status == _FULL, status=status)
        if status in {401, 403} and not said:
            what += ": the token is not valid for this sandbox"
        if status in {401, 403} and self._wants:
            what += f"; {self._wants}"
        elif status in {401, 403} and speaks and not _OF_A_RUN.search(said):
            command = f"untildone token create --scope worker --sandbox {self._sandbox_id}"
            what += f"; this is sandbox {self._sandbox_id}, and `{command}` on the server makes a token for it "
            what += "(another name: --sandbox-id, of a worker SANDBOX_ID)"
        if 300 <= status < 400:  # noqa: PLR2004 - all that points elsewhere
            what += ": it points to another address, give that one"
        raise UplinkRefused(what, taken=told.taken, too_large=status == _TOO_LARGE, behind=told.tenure, status=status)

    def _read(self, content: bytes, type_: type[T]) -> T:
        try:
            return msgspec.json.decode(content, type=type_)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            said = f"{self.name} answered with something else than expected: is it the address of an untildone server?"
            raise UplinkDown(said) from None


def _told(content: bytes) -> _Told:
    """What the server says about it, as far as that can be read."""
    with suppress(ValueError, RecursionError):
        return msgspec.json.decode(content, type=_Told)
    return _Told()


def _reason(error: BaseException) -> str:
    """Nothing of a library's own text is kept: it may quote what was sent."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ssl.SSLCertVerificationError):
            return "its certificate cannot be trusted"
        if isinstance(seen, OSError) and seen.strerror:
            return seen.strerror
        seen = seen.__cause__ or seen.__context__
    return type(error).__name__

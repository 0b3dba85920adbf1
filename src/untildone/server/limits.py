"""How much anybody may send: bytes, seconds for a body, requests in a second. Checked before a byte is read."""

import asyncio
import time
from collections.abc import Callable

from starlette.types import Message, Receive

from untildone.core.dataclass import dataclass
from untildone.server.access import SAFE_METHODS, Refused

KIBIBYTE = 1024
MEBIBYTE = 1024 * KIBIBYTE
_MOST_BUCKETS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """What holds for one sort of request."""

    name: str
    most_bytes: int
    """Of a body."""
    seconds: float
    """For a body to arrive, all of it."""
    rate: float
    """Requests of one key, or one address, in a second."""
    burst: float
    """That may come at once."""


EVENTS = Lane(name="events", most_bytes=32 * MEBIBYTE, seconds=60, rate=3000, burst=6000)
PARCELS = Lane(name="parcels", most_bytes=64 * MEBIBYTE, seconds=600, rate=20, burst=200)
LOGIN = Lane(name="login", most_bytes=4 * KIBIBYTE, seconds=10, rate=5, burst=100)
STEERING = Lane(name="steering", most_bytes=256 * KIBIBYTE, seconds=20, rate=50, burst=500)
LOOKING = Lane(name="looking", most_bytes=4 * KIBIBYTE, seconds=10, rate=500, burst=2000)
LANES = (EVENTS, PARCELS, LOGIN, STEERING, LOOKING)
FAILURES_RATE, FAILURES_BURST = 0.5, 30.0
"""Tokens that are not valid, by address."""


def lane_of(method: str, path: str) -> Lane:
    """The lane of a request, by its decoded path: the same that routes go by."""
    if method in SAFE_METHODS:
        return LOOKING
    if path.startswith("/api/v1/sandboxes/"):
        if path.endswith("/events"):
            return EVENTS
        if method == "PUT" and "/parcels/" in path:
            return PARCELS
    return LOGIN if path.startswith("/login/") else STEERING


class Buckets:
    """Token buckets, one for each key or address, as few as needed."""

    def __init__(self, rate: float, burst: float, *, ticks: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._burst = burst
        self._ticks = ticks
        self._empty_at: dict[str, float] = {}
        """When the bucket would be empty if it were full for ever before: one number says all about it."""

    def wait(self, who: str) -> float:
        """Seconds until one more is granted; 0: now."""
        full = self._ticks() - self._burst / self._rate
        return max(0.0, self._empty_at.get(who, full) - self._ticks() + 1 / self._rate)

    def take(self, who: str) -> float:
        """Take one out: 0 when there was one, else seconds until there is."""
        now = self._ticks()
        start = max(self._empty_at.get(who, 0.0), now - self._burst / self._rate)
        if start + 1 / self._rate > now:
            return start + 1 / self._rate - now
        if len(self._empty_at) >= _MOST_BUCKETS and who not in self._empty_at:
            self._thin_out(now)
        self._empty_at[who] = start + 1 / self._rate
        return 0.0

    def _thin_out(self, now: float) -> None:
        """Full buckets need not be remembered; if that is not enough, whoever came first is forgotten."""
        full = now - self._burst / self._rate
        left = [(who, at) for who, at in self._empty_at.items() if at > full]
        self._empty_at = dict(left[-_MOST_BUCKETS // 2 :])


class BodyInTime:
    """A `receive` that ends a body that is too long, or that comes too slowly."""

    def __init__(self, receive: Receive, lane: Lane) -> None:
        self._receive = receive
        self._lane = lane
        self._left = lane.most_bytes
        self._deadline: float | None = None
        self._complete = False
        self.answered = False
        """The response has begun: it is too late for a status."""

    async def __call__(self) -> Message:
        if self._complete:
            return await self._receive()
        if self._deadline is None:
            self._deadline = asyncio.get_running_loop().time() + self._lane.seconds
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            return self._end(Refused(408, "the body came too slowly", headers={"Connection": "close"}))
        if message["type"] == "http.request":
            self._left -= len(message.get("body", b""))
            self._complete = not message.get("more_body", False)
        if self._left < 0:
            return self._end(too_large(self._lane))
        return message

    def _end(self, refusal: Refused) -> Message:
        self._complete = True
        if self.answered:
            return {"type": "http.disconnect"}
        raise refusal


def too_large(lane: Lane) -> Refused:
    """The refusal of a body."""
    amount = f"{lane.most_bytes // MEBIBYTE} MiB" if lane.most_bytes >= MEBIBYTE else f"{lane.most_bytes // 1024} KiB"
    return Refused(413, f"the body is larger than {amount}: send less at a time")


def too_often(pause: float) -> Refused:
    """The refusal of one request too many."""
    return Refused(429, "too many requests: wait a little", headers={"Retry-After": str(int(pause) + 1)})

"""How much anybody may send: bytes, seconds for a body, requests in a second. Checked before a byte is read."""

import asyncio
import re
import time
from collections.abc import Callable

from starlette.types import Message, Receive

from untildone.core.dataclass import dataclass
from untildone.server.access import SAFE_METHODS, Refused
from untildone.server.room import Room

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
    room: tuple[int, int] = (16 * MEBIBYTE, 8 * MEBIBYTE)
    """Bytes of bodies in memory at one time: of all, and of one key, or of all without one."""


_LARGE = (128 * MEBIBYTE, 80 * MEBIBYTE)
EVENTS = Lane(name="events", most_bytes=32 * MEBIBYTE, seconds=60, rate=3000, burst=6000, room=_LARGE)
PARCELS = Lane(name="parcels", most_bytes=64 * MEBIBYTE, seconds=600, rate=20, burst=200, room=_LARGE)
LOGIN = Lane(name="login", most_bytes=4 * KIBIBYTE, seconds=10, rate=5, burst=100)
STEERING = Lane(name="steering", most_bytes=256 * KIBIBYTE, seconds=20, rate=50, burst=500)
LOOKING = Lane(name="looking", most_bytes=4 * KIBIBYTE, seconds=10, rate=500, burst=2000)
STREAMS = Lane(name="streams", most_bytes=4 * KIBIBYTE, seconds=10, rate=20, burst=400)
"""Of those without a key: to open a stream costs more than to read a page, and leaves something behind."""
LANES = (EVENTS, PARCELS, LOGIN, STEERING, LOOKING, STREAMS)
IDLE_SECONDS = 10.0
"""For which a body may come slower than its pace: so long after its last byte, one that hangs is ended."""
PACE, OPEN_PACE = 8 * KIBIBYTE, 256 * KIBIBYTE
"""Bytes of a body in a second, at least. Whoever sends one without a key is on this machine."""
FAILURES_RATE, FAILURES_BURST = 0.5, 30.0
"""Tokens that are not valid, by address."""
HOLD = "untildone.hold"
"""In the scope of a request: asks for room for what its body becomes."""
_STREAM = re.compile(r"/api/v1/(?:runs/[^/]+/)?stream|/runs/[^/]+/live")


def lane_of(method: str, path: str) -> Lane:
    """The lane of a request, by its decoded path: the same that routes go by."""
    if method in SAFE_METHODS:
        return STREAMS if _STREAM.fullmatch(path) else LOOKING
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
        full = now - self._burst / self._rate  # may be below zero: the machine started a moment ago
        start = max(self._empty_at.get(who, full), full)
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
    """A `receive` that ends a body that is too long, that comes too slowly, or that there is no room for."""

    def __init__(self, receive: Receive, lane: Lane, room: Room) -> None:
        self._receive = receive
        self._lane = lane
        self._left = lane.most_bytes
        self._room = room
        self._held = 0
        self._idle = IDLE_SECONDS
        self._deadline: float | None = None
        self._complete = False
        self.holder = ""
        """Whose room it takes: a key's, or empty."""
        self.answered = False
        """The response has begun: it is too late for a status."""

    async def __call__(self) -> Message:
        if self._complete:
            return await self._receive()
        try:
            message = await self._next()
        except TimeoutError:
            return self._end(Refused(408, "the body came too slowly", headers={"Connection": "close"}))
        if message["type"] != "http.request":
            return message
        size = len(message.get("body", b""))
        self._left -= size
        self._complete = not message.get("more_body", False)
        if self._left < 0:
            return self._end(too_large(self._lane))
        if size:
            try:
                await self.hold(size)
            except Refused as refused:
                return self._end(refused)
        return message

    async def hold(self, amount: int) -> None:
        """Take room until the request is over."""
        if not await self._room.take(self.holder, amount):
            raise no_room()
        self._held += amount

    def let_go(self) -> None:
        """The request is over, or what its body was is not needed any more."""
        if self._held:
            self._room.give_back(self.holder, self._held)
            self._held = 0

    async def _next(self) -> Message:
        """What comes next, if it comes in time: only the time of the client counts, not what it waits for us."""
        clock = asyncio.get_running_loop().time
        began = clock()
        if self._deadline is None:
            self._deadline = began + self._lane.seconds
        async with asyncio.timeout_at(min(self._deadline, began + self._idle)):
            message = await self._receive()
        earned = len(message.get("body", b"")) / (PACE if self.holder else OPEN_PACE)
        self._idle = min(IDLE_SECONDS, self._idle - (clock() - began) + earned)
        return message

    def _end(self, refusal: Refused) -> Message:
        self._complete = True
        if self.answered:
            return {"type": "http.disconnect"}
        raise refusal


def rooms() -> dict[str, Room]:
    """Room for the bodies of each lane: those of one do not wait for those of another."""
    return {lane.name: Room(*lane.room) for lane in LANES}


def too_large(lane: Lane) -> Refused:
    """The refusal of a body."""
    amount = f"{lane.most_bytes // MEBIBYTE} MiB" if lane.most_bytes >= MEBIBYTE else f"{lane.most_bytes // 1024} KiB"
    return Refused(413, f"the body is larger than {amount}: send less at a time")


def no_room() -> Refused:
    """The refusal of a body when there are too many already."""
    return Refused(
        503, "too much is being sent here at once: wait a little", headers={"Retry-After": "5", "Connection": "close"}
    )


def too_often(pause: float, *, closing: bool = False) -> Refused:
    """The refusal of one request too many."""
    headers = {"Retry-After": str(int(pause) + 1), **({"Connection": "close"} if closing else {})}
    return Refused(429, "too many requests: wait a little", headers=headers)

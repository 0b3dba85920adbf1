"""Secrets that open the door: tokens, one-time links, browser sessions. What is kept of them is a hash.

A secret has 256 random bits, so its hash needs no salt and is looked up as it is: nothing is compared byte by byte.
"""

import asyncio
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Coroutine
from dataclasses import field
from typing import Any, TypeVar

import msgspec

from untildone.core.dataclass import dataclass
from untildone.core.wire import RUN_ID
from untildone.ports import Clock
from untildone.server.archive.port import Key, Keys, Scope

TOKEN_PREFIX = "ud_"  # noqa: S105 -- how tokens begin, so that scanners and people know one
LINK_PREFIX = "once_"
LINK_SECONDS = 600.0
SESSION_IDLE = 30 * 86400.0
"""A browser that did not come for so long has to log in again."""
SESSION_SECONDS = 365 * 86400.0
"""However often it comes."""
TRUSTED_FOR = 1.0
"""Seconds for which an answer of the database about a key holds: a revoked token fails after that."""
_USED_EVERY = 60.0
_MOST_REMEMBERED = 4096
V = TypeVar("V")


def new_secret() -> str:
    """A secret nobody can guess."""
    return secrets.token_urlsafe(32)


def new_token() -> str:
    """A secret for a program."""
    return TOKEN_PREFIX + new_secret()


def new_link() -> str:
    """A secret for one login."""
    return LINK_PREFIX + new_secret()


def new_key_id() -> str:
    """The public name of a key: people type it to revoke one."""
    return secrets.token_hex(5)


def hash_of(secret: str) -> str:
    """What is kept of a secret."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def is_sandbox_id(text: str) -> bool:
    """Whether a sandbox may be called so."""
    try:
        msgspec.convert(text, RUN_ID)
    except msgspec.ValidationError:
        return False
    # The pattern's `$` lets a line end through.
    return text.isprintable()


def cookie_of(proof: str) -> str:
    """What the cookie of a session holds. It follows from the session's proof, which nobody finds by the cookie."""
    return hmac.new(proof.encode("utf-8", "surrogatepass"), b"untildone cookie", hashlib.sha256).hexdigest()


def token_key(scope: Scope, *, sandbox_id: str | None, label: str, lasts: float | None, now: float) -> Key:
    """A program, or a person at a terminal."""
    return Key(
        key_id=new_key_id(),
        kind="token",
        scope=scope,
        sandbox_id=sandbox_id,
        label=label,
        created_at=now,
        expires_at=None if lasts is None else now + lasts,
    )


def link_key(scope: Scope, *, label: str, now: float) -> Key:
    """A link that logs a browser in, once."""
    return Key(
        key_id=new_key_id(),
        kind="login",
        scope=scope,
        sandbox_id=None,
        label=label,
        created_at=now,
        expires_at=now + LINK_SECONDS,
    )


def session_key(scope: Scope, *, label: str, parent_id: str | None, now: float) -> Key:
    """A browser that logged in."""
    return Key(
        key_id=new_key_id(),
        kind="session",
        scope=scope,
        sandbox_id=None,
        label=label,
        created_at=now,
        expires_at=now + SESSION_SECONDS,
        last_used_at=now,
        parent_id=parent_id,
    )


@dataclass(slots=True)
class Links:
    """One-time links that this process gave out itself: they die with it."""

    ticks: Callable[[], float] = time.monotonic
    _until: dict[str, float] = field(default_factory=dict)

    def make(self) -> str:
        """The secret of a new link."""
        secret = new_link()
        self._until[hash_of(secret)] = self.ticks() + LINK_SECONDS
        return secret

    def opens(self, secret: str) -> bool:
        """Whether it would open the door."""
        return self._until.get(hash_of(secret), 0.0) > self.ticks()

    def spend(self, secret: str) -> bool:
        """Whether it opens the door; it never does again."""
        return self._until.pop(hash_of(secret), 0.0) > self.ticks()


class Keyring:
    """Answers whose secret it is, without asking the database for each of a thousand requests in a second."""

    def __init__(self, keys: Keys, clock: Clock, *, ticks: Callable[[], float] = time.monotonic) -> None:
        self._keys = keys
        self._clock = clock
        self._ticks = ticks
        self._found: dict[str, tuple[float, Key]] = {}
        self._guarded: dict[str, tuple[float, bool]] = {}
        self._used: dict[str, float] = {}
        self._asking: dict[str, asyncio.Future[Any]] = {}

    async def token(self, secret_hash: str) -> Key | None:
        """The living token with this hash."""
        key = await self._find(secret_hash)
        return key if key is not None and key.kind == "token" else None

    async def session(self, secret_hash: str) -> Key | None:
        """The living session with this hash."""
        key = await self._find(secret_hash)
        if key is None or key.kind != "session":
            return None
        seen = key.last_used_at or key.created_at
        return key if self._clock.now() - seen < SESSION_IDLE else None

    async def opens(self, secret_hash: str) -> bool:
        """Whether it still is the hash of a living token or session."""
        return await self.token(secret_hash) is not None or await self.session(secret_hash) is not None

    async def guarded(self, sandbox_id: str) -> bool:
        """Whether it takes a token to speak for this sandbox, from this very machine too."""
        until, answer = self._guarded.get(sandbox_id, (0.0, False))
        if until <= self._ticks():
            answer = await self._once(f"guarded {sandbox_id}", lambda: self._keys.guarded(sandbox_id))
            _remember(self._guarded, sandbox_id, (self._ticks() + TRUSTED_FOR, answer))
        return answer

    def knows(self, secret_hash: str) -> str | None:
        """The key with this hash, if it opened the door lately; says nothing about whether it still does."""
        return self._found[secret_hash][1].key_id if secret_hash in self._found else None

    def steers(self, secret_hash: str) -> bool:
        """Whether the key with this hash, if it opened the door lately, is an operator's."""
        return secret_hash in self._found and self._found[secret_hash][1].scope == "operator"

    def forget(self, secret_hash: str) -> None:
        """Ask the database the next time."""
        self._found.pop(secret_hash, None)
        self._asking.pop(secret_hash, None)

    async def _once(self, name: str, ask: Callable[[], Coroutine[Any, Any, V]]) -> V:
        """What the database says; many who want to know the same at one moment ask it once."""
        asked = self._asking.get(name)
        if asked is None:
            asked = self._asking[name] = asyncio.ensure_future(ask())
            asked.add_done_callback(lambda done: self._answered(name, done))
        # Whoever goes away does not take the answer of the others along.
        answer: V = await asyncio.shield(asked)
        return answer

    def _answered(self, name: str, done: asyncio.Future[Any]) -> None:
        if self._asking.get(name) is done:
            del self._asking[name]
        if not done.cancelled():
            done.exception()  # seen, also when all who asked have gone

    async def _find(self, secret_hash: str) -> Key | None:
        until, key = self._found.get(secret_hash, (0.0, None))
        if key is None or until <= self._ticks():
            key = await self._once(secret_hash, lambda: self._keys.find(secret_hash, now=self._clock.now()))
            if key is None:
                self.forget(secret_hash)
                return None
            _remember(self._found, secret_hash, (self._ticks() + TRUSTED_FOR, key))
            await self._note_use(key.key_id)
        # It may run out while its answer is trusted.
        return key if key.expires_at is None or self._clock.now() < key.expires_at else None

    async def _note_use(self, key_id: str) -> None:
        if self._ticks() - self._used.get(key_id, -_USED_EVERY) >= _USED_EVERY:
            _remember(self._used, key_id, self._ticks())
            await self._keys.used(key_id, now=self._clock.now())


def _remember(into: dict[str, V], name: str, value: V) -> None:
    if len(into) >= _MOST_REMEMBERED:
        into.clear()
    into[name] = value

"""The keyring in front of a real database: quick, and never wrong for long."""

import asyncio

import pytest

from untildone.engine.clock import SystemClock
from untildone.server.archive.port import Archive, Key, Keys
from untildone.server.keys import (
    TRUSTED_FOR,
    Keyring,
    cookie_of,
    hash_of,
    is_sandbox_id,
    link_key,
    new_link,
    new_secret,
    new_token,
    session_key,
    token_key,
)

pytestmark = pytest.mark.anyio


class Ticks:
    def __init__(self) -> None:
        self.at = 0.0

    def __call__(self) -> float:
        return self.at


async def test_a_key_opens_what_it_was_made_for_and_nothing_else(archive: Archive) -> None:
    keyring, now = Keyring(archive.keys, SystemClock()), SystemClock().now()
    token, session, link = new_token(), new_secret(), new_link()
    made = token_key("operator", sandbox_id=None, label="laptop", lasts=None, now=now)
    await archive.keys.add(made, hash_of(token))
    await archive.keys.add(session_key("operator", label="", parent_id=made.key_id, now=now), hash_of(session))
    await archive.keys.add(link_key("operator", label="", now=now), hash_of(link))
    found = {
        secret: (await keyring.token(hash_of(secret)) is not None, await keyring.session(hash_of(secret)) is not None)
        for secret in (token, session, link, hash_of(token), "")
    }
    assert list(found.values()) == [(True, False), (False, True), (False, False), (False, False), (False, False)]


async def test_what_is_revoked_fails_a_moment_later_with_all_that_came_from_it(archive: Archive) -> None:
    ticks = Ticks()
    keyring, now = Keyring(archive.keys, SystemClock(), ticks=ticks), SystemClock().now()
    token, session = new_token(), new_secret()
    made = token_key("viewer", sandbox_id=None, label="", lasts=None, now=now)
    await archive.keys.add(made, hash_of(token))
    await archive.keys.add(session_key("viewer", label="", parent_id=made.key_id, now=now), hash_of(session))
    assert await keyring.opens(hash_of(token))
    assert await keyring.opens(hash_of(session))
    assert await archive.keys.revoke(made.key_id)
    ticks.at += TRUSTED_FOR + 0.01
    assert not await keyring.opens(hash_of(token))
    assert not await keyring.opens(hash_of(session))
    assert keyring.knows(hash_of(token)) is None


async def test_a_token_runs_out_also_while_it_is_trusted(archive: Archive) -> None:
    class Clock(SystemClock):
        later = 0.0

        def now(self) -> float:
            return super().now() + self.later

    clock = Clock()
    keyring, token = Keyring(archive.keys, clock, ticks=Ticks()), new_token()
    made = token_key("viewer", sandbox_id=None, label="", lasts=60, now=clock.now())
    await archive.keys.add(made, hash_of(token))
    assert await keyring.token(hash_of(token))
    clock.later = 61
    assert await keyring.token(hash_of(token)) is None


async def test_a_sandbox_is_guarded_from_its_first_token_on(archive: Archive) -> None:
    ticks = Ticks()
    keyring, now = Keyring(archive.keys, SystemClock(), ticks=ticks), SystemClock().now()
    assert not await keyring.guarded("box")
    made = token_key("worker", sandbox_id="box", label="", lasts=None, now=now)
    await archive.keys.add(made, hash_of(new_token()))
    ticks.at += TRUSTED_FOR + 0.01
    assert await keyring.guarded("box")
    assert not await keyring.guarded("Box")


async def test_secrets_are_long_and_never_the_same() -> None:
    made = {make() for make in (new_token, new_link, new_secret) for _ in range(100)}
    assert len(made) == 300
    assert min(map(len, made)) >= 43
    assert cookie_of("a") != cookie_of("b")
    assert cookie_of("a") != hash_of("a")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("box-7", True),
        ("a" * 100, True),
        ("a" * 101, False),
        ("", False),
        ("a/b", False),
        ("..", False),
        ("a\n", False),
    ],
)
async def test_names_of_sandboxes(text: str, *, expected: bool) -> None:
    assert is_sandbox_id(text) is expected


class Counted:
    """The real keys, and how often they were asked."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self.asked = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._keys, name)

    async def find(self, secret_hash: str, *, now: float) -> Key | None:
        self.asked += 1
        return await self._keys.find(secret_hash, now=now)

    async def guarded(self, sandbox_id: str) -> bool:
        self.asked += 1
        return await self._keys.guarded(sandbox_id)


async def test_many_who_ask_at_one_moment_ask_the_database_once(archive: Archive) -> None:
    counted, token = Counted(archive.keys), new_token()
    keyring = Keyring(counted, SystemClock())  # type: ignore[arg-type] # the rest goes through
    made = token_key("viewer", sandbox_id=None, label="", lasts=None, now=SystemClock().now())
    await archive.keys.add(made, hash_of(token))
    found = await asyncio.gather(*(keyring.token(hash_of(token)) for _ in range(50)))
    assert {key.key_id for key in found if key} == {made.key_id}
    assert counted.asked == 1
    assert set(await asyncio.gather(*(keyring.guarded("box") for _ in range(50)))) == {False}
    assert counted.asked == 2


async def test_who_goes_away_does_not_take_the_answer_of_the_others_along(archive: Archive) -> None:
    keyring = Keyring(archive.keys, SystemClock())
    impatient = asyncio.create_task(keyring.guarded("box"))
    patient = asyncio.create_task(keyring.guarded("box"))
    await asyncio.sleep(0)
    impatient.cancel()
    assert await patient is False
    with pytest.raises(asyncio.CancelledError):
        await impatient

import asyncio
from dataclasses import replace

import pytest

from untildone.errors import ServeError
from untildone.server.archive.port import Archive, Key

pytestmark = pytest.mark.anyio

TOKEN = Key(
    key_id="t1", kind="token", scope="operator", sandbox_id=None, label="mine", created_at=10.0, expires_at=None
)
SESSION = replace(TOKEN, key_id="s1", kind="session", parent_id="t1", created_at=11.0, expires_at=50.0)
LOGIN = replace(SESSION, key_id="l1", kind="login", expires_at=20.0)


async def test_a_key_is_found_by_its_hash_until_it_expires(archive: Archive) -> None:
    await archive.keys.add(replace(TOKEN, expires_at=20.0), "hash")
    assert await archive.keys.find("hash", now=19.0) == replace(TOKEN, expires_at=20.0)
    assert await archive.keys.find("hash", now=20.0) is None
    assert await archive.keys.find("other\0", now=19.0) is None
    await archive.keys.used("t1", now=15.0)
    assert [key.last_used_at for key in await archive.keys.tokens()] == [15.0]


async def test_a_login_is_spent_once_whoever_else_tries(archive: Archive) -> None:
    await archive.keys.add(TOKEN, "token")
    await archive.keys.add(LOGIN, "login")
    assert await archive.keys.spend("login", now=20.0) is None
    spent = await asyncio.gather(*(archive.keys.spend("login", now=12.0) for _ in range(10)))
    assert [key for key in spent if key is not None] == [LOGIN]
    assert await archive.keys.find("login", now=12.0) is None


async def test_what_came_from_a_key_ends_with_it(archive: Archive) -> None:
    await archive.keys.add(TOKEN, "token")
    await archive.keys.add(SESSION, "session")
    await archive.keys.add(LOGIN, "login")
    await archive.keys.add(replace(TOKEN, key_id="t2", created_at=12.0), "token2")
    assert [key.key_id for key in await archive.keys.tokens()] == ["t2", "t1"]
    assert [key.key_id for key in await archive.keys.sessions()] == ["s1"]
    assert await archive.keys.revoke("t1")
    assert not await archive.keys.revoke("t1")
    assert not await archive.keys.revoke("nobody's")
    for secret in ("token", "session", "login"):
        assert await archive.keys.find(secret, now=12.0) is None
    assert await archive.keys.spend("login", now=12.0) is None
    assert [key.key_id for key in await archive.keys.tokens()] == ["t2"]
    assert await archive.keys.find("token2", now=12.0) is not None


async def test_a_session_ends_with_the_time_of_its_token(archive: Archive) -> None:
    await archive.keys.add(replace(TOKEN, expires_at=30.0), "token")
    await archive.keys.add(SESSION, "session")
    await archive.keys.add(replace(SESSION, key_id="s2", parent_id="never there"), "orphan")
    assert await archive.keys.find("session", now=29.0) is not None
    assert await archive.keys.find("session", now=30.0) is None
    assert await archive.keys.find("orphan", now=29.0) is None


async def test_a_sandbox_that_had_a_token_stays_guarded(archive: Archive) -> None:
    assert not await archive.keys.guarded("box")
    await archive.keys.add(replace(TOKEN, scope="worker", sandbox_id="box", expires_at=11.0), "token")
    await archive.keys.revoke("t1")
    assert await archive.sweep(now=99.0, messages_before=0.0) == 0
    assert await archive.keys.guarded("box")
    assert not await archive.keys.guarded("other")


async def test_spent_logins_and_old_sessions_are_swept_out(archive: Archive) -> None:
    await archive.keys.add(TOKEN, "token")
    await archive.keys.add(LOGIN, "login")
    await archive.keys.add(SESSION, "session")
    assert await archive.sweep(now=19.0, messages_before=0.0) == 0
    assert await archive.sweep(now=21.0, messages_before=0.0) == 1
    assert await archive.sweep(now=51.0, messages_before=0.0) == 1
    assert await archive.keys.find("token", now=51.0) is not None


async def test_a_hash_that_is_there_already_is_one_line(archive: Archive) -> None:
    await archive.keys.add(TOKEN, "token")
    with pytest.raises(ServeError, match="the database refuses") as refused:
        await archive.keys.add(replace(TOKEN, key_id="t2"), "token")
    assert "\n" not in str(refused.value)

"""Who may come in: hashes of secrets, and what they are good for."""

from dataclasses import asdict, fields
from typing import Any

from sqlalchemy import ColumnElement, delete, exists, insert, or_, select, true, update

from untildone.server.archive.database import Database
from untildone.server.archive.fitting import text_of
from untildone.server.archive.port import Key
from untildone.server.archive.tables import keys

_parents = keys.alias("parents")
_KEY = tuple(keys.c[field.name] for field in fields(Key))


class KeyRing:
    """Tokens, one-time logins and browser sessions."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, key: Key, secret_hash: str) -> None:
        """Let somebody in; what nobody can use any more is swept out on the way."""
        values = {name: text_of(value) if isinstance(value, str) else value for name, value in asdict(key).items()}
        async with self._database.writing() as connection:
            await connection.execute(delete(keys).where(*_spent(key.created_at)))
            await connection.execute(insert(keys).values(**values, secret_hash=secret_hash))

    async def find(self, secret_hash: str, *, now: float) -> Key | None:
        """The living key with that hash."""
        query = select(*_KEY).where(keys.c.secret_hash == text_of(secret_hash), *_living(now))
        async with self._database.reading() as connection:
            row = (await connection.execute(query)).first()
        return _key(row) if row is not None else None

    async def spend(self, secret_hash: str, *, now: float) -> Key | None:
        """The same, and it is gone."""
        spent = (
            update(keys)
            .where(keys.c.secret_hash == text_of(secret_hash), *_living(now))
            .values(revoked=True)
            .returning(*_KEY)
        )
        async with self._database.writing() as connection:
            row = (await connection.execute(spent)).first()
        return _key(row) if row is not None else None

    async def used(self, key_id: str, *, now: float) -> None:
        """Note that somebody came in with it."""
        async with self._database.writing() as connection:
            await connection.execute(update(keys).where(keys.c.key_id == text_of(key_id)).values(last_used_at=now))

    async def tokens(self) -> list[Key]:
        """Tokens that were not revoked, the newest first; expired ones are among them."""
        return await self._all("token")

    async def sessions(self) -> list[Key]:
        """Sessions of browsers that were not ended, the newest first."""
        return await self._all("session")

    async def _all(self, kind: str) -> list[Key]:
        query = (
            select(*_KEY)
            .where(keys.c.kind == kind, keys.c.revoked.is_not(true()))
            .order_by(keys.c.created_at.desc(), keys.c.key_id)
        )
        async with self._database.reading() as connection:
            return [_key(row) for row in await connection.execute(query)]

    async def revoke(self, key_id: str) -> bool:
        """End a key and all that came from it. False: there is none."""
        family = select(keys.c.key_id).where(keys.c.key_id == text_of(key_id)).cte("family", recursive=True)
        family = family.union(select(keys.c.key_id).where(keys.c.parent_id == family.c.key_id))
        living = (keys.c.key_id == text_of(key_id), keys.c.revoked.is_not(true()))
        async with self._database.writing() as connection:
            if (await connection.execute(select(keys.c.key_id).where(*living).with_for_update())).first() is None:
                return False
            ended = update(keys).where(keys.c.key_id.in_(select(family.c.key_id))).values(revoked=True)
            await connection.execute(ended)
        return True

    async def guarded(self, sandbox_id: str) -> bool:
        """Whether a token was ever given out for this sandbox."""
        given = keys.c.sandbox_id == text_of(sandbox_id)
        query = select(exists().where(given, keys.c.kind == "token", keys.c.scope == "worker"))
        async with self._database.reading() as connection:
            return bool((await connection.execute(query)).scalar())

    async def sweep(self, *, now: float) -> int:
        """Remove logins and sessions nobody can use any more; returns how many."""
        async with self._database.writing() as connection:
            return len((await connection.execute(delete(keys).where(*_spent(now)).returning(keys.c.key_id))).all())


def _spent(now: float) -> tuple[ColumnElement[bool], ...]:
    # Tokens stay when they are over: it must be known that there was one (see `guarded`).
    return (keys.c.kind != "token", or_(keys.c.revoked, keys.c.expires_at <= now))


def _living(now: float) -> tuple[ColumnElement[bool], ...]:
    parent = exists().where(
        _parents.c.key_id == keys.c.parent_id,
        _parents.c.revoked.is_not(true()),
        or_(_parents.c.expires_at.is_(None), _parents.c.expires_at > now),
    )
    return (
        keys.c.revoked.is_not(true()),
        or_(keys.c.expires_at.is_(None), keys.c.expires_at > now),
        or_(keys.c.parent_id.is_(None), parent),
    )


def _key(row: Any) -> Key:
    return Key(**row._mapping)  # noqa: SLF001 - the public way to read a row by name

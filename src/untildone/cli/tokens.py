"""`token create|ls|revoke|rotate|login`: who may speak to the server. A secret is shown once, alone on its line."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from untildone import wiring
from untildone.cli.guarding import operator_only
from untildone.cli.serving import address_of, database_option, database_url
from untildone.cli.streams import say
from untildone.cli.tables import aligned
from untildone.core.durations import DAY, HOUR, LONGEST, MINUTE
from untildone.core.figures import count
from untildone.core.printable import one_line
from untildone.errors import UsageError

if TYPE_CHECKING:
    from untildone.server.archive.port import Key, Keys, Scope

T = TypeVar("T")
_LABEL = 60


@click.group()
def token() -> None:
    """Who may look at runs on the server, steer them, and send events.

    \b
      viewer     looks
      operator   looks and steers
      worker     sends the events of one sandbox, and takes its messages

    \b
      untildone token create --scope operator --label laptop
      untildone token create --scope worker --sandbox box-7 --days 30
      untildone token login

    Only a hash of each secret is kept: it is printed once, alone on standard output.
    """  # noqa: D301 -- click wants the character itself


@token.command()
@click.option("--scope", type=click.Choice(["viewer", "operator", "worker"]), required=True, help="What it allows.")
@click.option("--sandbox", metavar="ID", help="Of a worker: the sandbox it speaks for, and no other.")
@click.option("--label", metavar="TEXT", default="", help="What it is for: shown in the list.")
@click.option("--days", metavar="N", type=float, help="It expires after so many days. Without it: never.")
@database_option
@operator_only
def create(scope: "Scope", sandbox: str | None, label: str, days: float | None, database: str | None) -> None:
    """Make a token."""
    from untildone.server.keys import hash_of, new_token, token_key

    _check(scope, sandbox, days)
    now = wiring.system_clock().now()
    lasts = days * DAY if days is not None else None
    key = token_key(scope, sandbox_id=sandbox, label=one_line(label, _LABEL), lasts=lasts, now=now)
    secret = new_token()
    _with_keys(database, lambda keys: keys.add(key, hash_of(secret)))
    say(f"token {key.key_id} for {_whom(key)}{_until(key, now)}; it is shown only now")
    click.echo(secret)


@token.command()
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
@database_option
@operator_only
def ls(database: str | None, *, as_json: bool) -> None:
    """List the tokens that open, and the browsers that are logged in."""

    async def look(keys: "Keys") -> "list[Key]":
        return [*await keys.tokens(), *await keys.sessions()]

    found = _with_keys(database, look)
    now = wiring.system_clock().now()
    if as_json:
        click.echo(json.dumps([_facts(key) for key in found], indent=2))
    elif not found:
        click.echo("no tokens yet: make one with `untildone token create --scope operator`")
    else:
        head = ("ID", "SCOPE", "FOR", "LABEL", "MADE", "USED", "EXPIRES")
        click.echo(aligned([head, *(_cells(key, now) for key in found)]))


@token.command()
@click.argument("key_id", metavar="ID")
@database_option
@operator_only
def revoke(key_id: str, database: str | None) -> None:
    """End a token, and every browser that came in with it. It fails at once."""
    if not _with_keys(database, lambda keys: keys.revoke(key_id)):
        raise _unknown(key_id)
    say(f"revoked {key_id}")


@token.command()
@click.argument("key_id", metavar="ID")
@database_option
@operator_only
def rotate(key_id: str, database: str | None) -> None:
    """Make a new secret in place of an old one, which fails at once."""
    from untildone.server.keys import hash_of, new_token, token_key

    secret, now = new_token(), wiring.system_clock().now()

    async def exchange(keys: "Keys") -> "Key":
        old = next((key for key in await keys.tokens() if key.key_id == key_id), None)
        if old is None:
            raise _unknown(key_id)
        lasts = None if old.expires_at is None else old.expires_at - old.created_at
        new = token_key(old.scope, sandbox_id=old.sandbox_id, label=old.label, lasts=lasts, now=now)
        await keys.add(new, hash_of(secret))
        await keys.revoke(old.key_id)
        return new

    key = _with_keys(database, exchange)
    say(f"token {key.key_id} for {_whom(key)}{_until(key, now)} in place of {key_id}; it is shown only now")
    click.echo(secret)


@token.command()
@click.option("--scope", type=click.Choice(["viewer", "operator"]), default="operator", help="What it allows.")
@click.option("--label", metavar="TEXT", default="browser", help="What it is for: shown in the list.")
@click.option("--address", metavar="URL", help="Where browsers reach the server. [where it listens]")
@database_option
@operator_only
def login(scope: "Scope", label: str, address: str | None, database: str | None) -> None:
    """Make a link that logs a browser in, once, within ten minutes."""
    from untildone.cli.whereabouts import noted
    from untildone.server.keys import hash_of, link_key, new_link

    base = address_of(address or noted(database_url(database)))
    code = new_link()
    key = link_key(scope, label=one_line(label, _LABEL), now=wiring.system_clock().now())
    _with_keys(database, lambda keys: keys.add(key, hash_of(code)))
    say(f"open this within ten minutes; it works once, for the server on {base}")
    click.echo(f"{base}/login/{code}")


def _check(scope: str, sandbox: str | None, days: float | None) -> None:
    from untildone.server.keys import is_sandbox_id

    if (scope == "worker") != bool(sandbox):
        raise UsageError("a worker's token is for one sandbox: give `--scope worker` and `--sandbox ID` together")
    if sandbox and not is_sandbox_id(sandbox):
        raise UsageError(f"{one_line(sandbox, _LABEL)!r} is not an id of a sandbox: letters, digits, dots, dashes")
    if days is not None and not 0 < days * DAY <= LONGEST:
        raise UsageError("--days takes a number of days greater than 0")


def _with_keys(database: str | None, ask: "Callable[[Keys], Awaitable[T]]") -> T:
    from untildone.server.archive.opening import open_archive

    async def run() -> T:
        archive = await open_archive(database_url(database), serving=False)
        try:
            return await ask(archive.keys)
        finally:
            await archive.close()

    return asyncio.run(run())


def _unknown(key_id: str) -> UsageError:
    return UsageError(f"there is no token {one_line(key_id, _LABEL)!r}: `untildone token ls` shows all")


def _whom(key: "Key") -> str:
    return f"the worker of {key.sandbox_id}" if key.sandbox_id else f"{key.scope}s"


def _until(key: "Key", now: float) -> str:
    return "" if key.expires_at is None else f", for {_about(key.expires_at - now)}"


def _cells(key: "Key", now: float) -> tuple[str, ...]:
    used = "never" if key.last_used_at is None else f"{_about(now - key.last_used_at)} ago"
    whom = "a browser" if key.kind == "session" else key.sandbox_id or "-"
    made = f"{_about(now - key.created_at)} ago"
    ends = _ends(key, now)
    return (key.key_id, key.scope, whom, one_line(key.label, _LABEL) or "-", made, used, ends)


def _ends(key: "Key", now: float) -> str:
    from untildone.server.keys import SESSION_IDLE

    if key.expires_at is None:
        return "never"
    left = key.expires_at - now
    if key.kind == "session" and left > SESSION_IDLE:
        return f"{_about(SESSION_IDLE)} after the last visit"
    return f"in {_about(left)}"


def _about(seconds: float) -> str:
    """A time as people say it, to two digits or so."""
    for unit, size in (("day", DAY), ("hour", HOUR), ("minute", MINUTE)):
        if seconds >= 2 * size - 1:
            return count(round(seconds / size), unit)
    return count(max(0, round(seconds)), "second")


def _facts(key: "Key") -> dict[str, Any]:
    return {
        "id": key.key_id,
        "kind": key.kind,
        "scope": key.scope,
        "sandbox_id": key.sandbox_id,
        "label": key.label,
        "created_at": key.created_at,
        "expires_at": key.expires_at,
        "last_used_at": key.last_used_at,
    }

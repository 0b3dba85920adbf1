"""`untildone token`: secrets are shown once and kept nowhere."""

import asyncio
import json
import re
import sqlite3
import time
from pathlib import Path

import pytest

from cli.cli_kit import Say
from untildone.server.archive.opening import open_archive
from untildone.server.archive.port import Key
from untildone.server.keys import hash_of, session_key


def made(say: Say, *options: str) -> tuple[str, str]:
    """A new token: its id and its secret."""
    said = say("token", "create", *options)
    assert said.code == 0, said
    assert said.out.count("\n") == 1
    assert said.out.startswith("ud_")
    assert said.out.strip() not in said.err
    return said.err.split()[2], said.out.strip()


def listed(say: Say) -> list[dict[str, object]]:
    said = say("token", "ls", "--json")
    assert (said.code, said.err) == (0, "")
    found: list[dict[str, object]] = json.loads(said.out)
    return found


def test_a_token_is_made_listed_and_revoked(say: Say) -> None:
    key_id, secret = made(say, "--scope", "operator", "--label", "lap\x1b[31mtop")
    (key,) = listed(say)
    assert (key["id"], key["scope"], key["label"], key["expires_at"]) == (key_id, "operator", "laptop", None)
    table = say("token", "ls").out
    assert key_id in table
    assert "never" in table
    assert secret not in table
    assert say("token", "revoke", key_id).code == 0
    assert listed(say) == []
    again = say("token", "revoke", key_id)
    assert (again.code, again.err.count("\n")) == (2, 1)


def test_rotating_changes_the_secret_and_nothing_else(say: Say) -> None:
    key_id, secret = made(say, "--scope", "worker", "--sandbox", "box-7", "--days", "30", "--label", "night")
    (old,) = listed(say)
    said = say("token", "rotate", key_id)
    assert (said.code, said.out.count("\n")) == (0, 1)
    assert said.out.startswith("ud_")
    assert said.out.strip() != secret
    (new,) = listed(say)
    assert new["id"] != key_id
    assert {name: new[name] for name in ("scope", "sandbox_id", "label")} == {
        name: old[name] for name in ("scope", "sandbox_id", "label")
    }
    assert float(str(new["expires_at"])) >= float(str(old["expires_at"]))
    assert say("token", "rotate", key_id).code == 2


def test_times_are_told_as_people_say_them(say: Say, store: Path) -> None:
    made(say, "--scope", "viewer", "--label", "month", "--days", "30")
    assert (
        say("token", "create", "--scope", "viewer", "--label", "hours", "--days", "0.5").err.count("for 12 hours") == 1
    )
    browser = session_key("operator", label="firefox", parent_id=None, now=time.time())
    asyncio.run(_add(store, browser))
    rows = {line.split()[3]: line for line in say("token", "ls").out.replace("a browser", "browser").splitlines()[1:]}
    assert rows["month"].endswith("  in 30 days")
    assert rows["hours"].endswith("  in 12 hours")
    assert rows["firefox"].endswith("  30 days after the last visit")
    assert re.search(r"  \d+ (second|minute)s? ago  ", rows["month"])


async def _add(store: Path, key: Key) -> None:
    archive = await open_archive(f"sqlite:///{store}/server.db", serving=False)
    await archive.keys.add(key, hash_of("x"))
    await archive.close()


def test_no_secret_is_in_the_database(say: Say, store: Path) -> None:
    secrets = [made(say, "--scope", scope)[1] for scope in ("viewer", "operator")]
    link = say("token", "login", "--address", "https://runs.example.org")
    assert link.out.startswith("https://runs.example.org/login/once_")
    secrets.append(link.out.strip().rpartition("/")[2])
    with sqlite3.connect(store / "server.db") as database:
        kept = repr(database.execute("SELECT * FROM keys").fetchall())
    assert kept.count("operator") == 2
    assert [secret for secret in secrets if secret in kept] == []
    content = b"".join(path.read_bytes() for path in store.iterdir() if path.is_file())
    assert [secret for secret in secrets if secret.encode() in content] == []
    assert (store / "server.db").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "options",
    [
        ("--scope", "worker"),
        ("--scope", "viewer", "--sandbox", "box"),
        ("--scope", "worker", "--sandbox", "a/b"),
        ("--scope", "worker", "--sandbox", "box\n"),
        ("--scope", "worker", "--sandbox", "x" * 101),
        ("--scope", "viewer", "--days", "0"),
        ("--scope", "viewer", "--days", "nan"),
        ("--scope", "viewer", "--days", "inf"),
        ("--scope", "everything"),
        (),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(say: Say, store: Path, options: tuple[str, ...]) -> None:
    said = say("token", "create", *options)
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert not (store / "server.db").exists()


@pytest.mark.parametrize(
    "address",
    ["runs.example.org", "ftp://x", "http://", "http://x/path", "http://u:p@x", "http://x:99999", "http://[x"],
)
def test_a_login_needs_an_address(say: Say, address: str) -> None:
    said = say("token", "login", "--address", address)
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)


def test_the_address_is_the_one_servers_are_started_with_here(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    assert say("token", "login").out.startswith("http://127.0.0.1:8642/login/")
    monkeypatch.setenv("UNTILDONE_SERVE_HOST", "0.0.0.0")
    monkeypatch.setenv("UNTILDONE_SERVE_PORT", "9000")
    assert say("token", "login").out.startswith("http://127.0.0.1:9000/login/")


@pytest.mark.parametrize(
    ("url", "code"), [("mysql://u:s3cret@h/d", 2), ("s3cret", 2), ("sqlite:///", 2), ("sqlite:////proc/no/x.db", 2)]
)
def test_a_database_that_cannot_be_had_is_one_line_without_its_password(
    say: Say, monkeypatch: pytest.MonkeyPatch, url: str, code: int
) -> None:
    monkeypatch.setenv("UNTILDONE_SERVE_DATABASE", url)
    said = say("token", "ls")
    assert (said.code, said.out, said.err.count("\n")) == (code, "", 1)
    assert "s3cret" not in said.err


@pytest.mark.parametrize(
    "command", [("create", "--scope", "operator"), ("ls",), ("revoke", "x"), ("rotate", "x"), ("login",)]
)
def test_an_agent_gets_no_token(say: Say, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]) -> None:
    monkeypatch.setenv("UNTILDONE_RUN", "run1")
    said = say("token", *command)
    assert (said.code, said.out) == (5, "")


def test_an_empty_list_says_what_to_do(say: Say) -> None:
    assert "untildone token create" in say("token", "ls").out

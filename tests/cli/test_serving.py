"""`untildone serve`: one block, one process, one line at its end."""

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cli.cli_kit import Say
from patience import PATIENCE, eventually
from untildone.cli.serving import block, database_url, shown_database
from untildone.server.context import ServerSettings

SERVE = (sys.executable, "-m", "untildone", "serve", "--port", "0")


@contextmanager
def serving(*options: str, **env: str) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """A server as a service is started, and the block it prints."""
    process = subprocess.Popen(
        [*SERVE, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **env},
    )
    try:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if line.startswith("  stop"):
                break
        assert lines, process.communicate(timeout=PATIENCE)
        yield process, "".join(lines)
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE)


def ended(process: "subprocess.Popen[str]", number: int) -> tuple[int, str, str]:
    process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE)
    return process.returncode, out, err


def pressed(link: str) -> tuple[int, str]:
    """What comes of pressing the button behind a link: status, and the cookie."""
    try:
        with urllib.request.urlopen(urllib.request.Request(link, method="POST"), timeout=PATIENCE) as answer:
            return answer.status, answer.headers.get("set-cookie", "")
    except urllib.error.HTTPError as said:
        return said.code, said.headers.get("set-cookie", "")


@pytest.mark.usefixtures("store")
def test_the_login_link_is_for_a_terminal() -> None:
    terminal, its = os.openpty()
    process = subprocess.Popen(SERVE, stdout=its)
    os.close(its)
    shown = b""  # a read may end within a character
    try:
        while b"\n  stop " not in shown:
            shown += os.read(terminal, 4096)
        said = shown.decode()
        link = re.search(r"http://\S+/login/\S+", said)
        assert link
        assert link[0].startswith(f"{said.split()[3]}/login/once_")
        status, cookie = pressed(link[0])
        assert (status, "HttpOnly" in cookie) == (200, True)
        assert pressed(link[0]) == (403, "")
    finally:
        process.kill()
        process.wait(PATIENCE)
        os.close(terminal)


def test_it_says_where_it_is_and_ends_with_one_line(say: Say, store: Path) -> None:
    noted = Path(f"{database_url(None).removeprefix('sqlite:///')}.address")
    with serving() as (process, said):
        eventually(noted.exists, "the note of its address")
        url = said.split()[3]
        # Into a log, which others read: nothing that opens the door.
        assert "once_" not in said
        assert "`untildone token login` prints a link" in said
        assert str(store / "server.db") in said
        assert "from this machine only" in said
        with urllib.request.urlopen(f"{url}/healthz", timeout=PATIENCE) as answer:
            assert answer.status == 200
        # A link for a login leads to the server that is running.
        link = say("token", "login").out.strip()
        assert link.startswith(f"{url}/login/")
        assert pressed(link)[0] == 200
        # A browser that watches does not keep it from ending.
        stream = urllib.request.urlopen(f"{url}/api/v1/stream", timeout=PATIENCE)
        code, out, err = ended(process, signal.SIGTERM)
        stream.close()
        assert (code, out, err) == (0, "", "untildone: stopped; runs go on without the server\n")
    assert not noted.exists(), "nobody answers there any more"
    assert say("token", "login").out.startswith("http://127.0.0.1:8642/login/")


def test_tokens_of_the_command_work_while_it_runs_and_fail_at_once_when_revoked(say: Say) -> None:
    with serving("--host", "0.0.0.0") as (process, said):
        assert "everything needs a login or a token" in said
        assert "untildone token create --scope operator" in said
        name, port = socket.gethostname().lower(), said.split()[3].rpartition(":")[2]
        assert said.split()[3] == f"http://{name}:{port}"
        assert "listens    on 0.0.0.0, every address of this machine" in said
        url = f"http://127.0.0.1:{port}"
        by_name = urllib.request.Request(f"{url}/favicon.ico", headers={"Host": f"{name}:{port}"})
        with urllib.request.urlopen(by_name, timeout=PATIENCE) as answer:
            assert answer.status == 200
        created = say("token", "create", "--scope", "viewer")
        secret, key_id = created.out.strip(), created.err.split()[2]

        def status(token: str) -> int:
            asked = urllib.request.Request(f"{url}/api/v1/runs", headers={"Authorization": f"Bearer {token}"})
            try:
                with urllib.request.urlopen(asked, timeout=PATIENCE) as answer:
                    return int(answer.status)
            except urllib.error.HTTPError as refused:
                return refused.code

        assert status(secret) == 200
        rotated = say("token", "rotate", key_id)
        assert status(rotated.out.strip()) == 200
        eventually(lambda: status(secret) == 401, "the end of the old token")
        link = say("token", "login", "--address", url).out.strip()
        assert pressed(link)[0] == 200
        assert pressed(link)[0] == 403
        code, out, err = ended(process, signal.SIGINT)
        for hidden in (secret, rotated.out.strip(), link.rpartition("/")[2]):
            assert hidden not in out + err
        assert (code, err.count("\n")) == (0, 1)


def test_the_environment_sets_everything(store: Path, tmp_path: Path) -> None:
    env = {
        "UNTILDONE_SERVE_DATABASE": f"sqlite:///{tmp_path / 'other.db'}",
        "UNTILDONE_SERVE_HOST": "localhost",
        "UNTILDONE_SERVE_NAMES": "a.example, B.example",
        "UNTILDONE_SERVE_FOLDERS": str(tmp_path),
        "UNTILDONE_SERVE_KEEP_DAYS": "7",
        "UNTILDONE_SERVE_LOCAL": "no",
    }
    seen = tmp_path / "seen"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$@" > {seen}.new; cat "${{1#file://}}" >> {seen}.new; mv {seen}.new {seen}\n')
    browser.chmod(0o755)
    with serving("--open", BROWSER=str(browser), **env) as (process, said):
        eventually(seen.exists, "the browser")
        arguments, _, page = seen.read_text().partition("\n")
        # What a browser is started with, everybody on the machine can read.
        assert "once_" not in arguments
        assert "/login/once_" in page
        assert str(tmp_path / "other.db") in said
        assert "as a.example, b.example: everything needs a login or a token" in said
        url = said.split()[3]
        for host in ("b.example", "localhost"):
            asked = urllib.request.Request(f"{url}/api/v1/runs", headers={"Host": host})
            with pytest.raises(urllib.error.HTTPError, match="401"):
                urllib.request.urlopen(asked, timeout=PATIENCE)
        assert ended(process, signal.SIGHUP)[0] == 0
        assert not Path(arguments.removeprefix("file://")).exists()
    assert not (store / "server.db").exists()


def test_a_port_that_is_taken_is_one_line(say: Say) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        said = say("serve", "--port", str(taken.getsockname()[1]))
    assert (said.code, said.out, said.err.count("\n")) == (1, "", 1)
    assert "--port" in said.err


@pytest.mark.parametrize(
    "options",
    [
        ("--host", "no such host"),
        ("--host", "203.0.113.7"),
        ("--port", "70000"),
        ("--name", "http://x"),
        ("--name", "x:80"),
        ("--folder", "/no/such/folder"),
        ("--keep-days", "0"),
        ("--keep-days", "nan"),
        ("--database", "mysql://u:s3cret@h/d"),
    ],
    ids=" ".join,
)
def test_what_cannot_work_is_one_line(say: Say, options: tuple[str, ...]) -> None:
    said = say("serve", *options)
    assert said.code in {1, 2}
    assert (said.out, said.err.count("\n"), "s3cret" in said.err) == ("", 1, False)


def test_a_password_in_the_arguments_is_warned_of_and_not_repeated(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    # The first try takes a second of its own on a busy machine.
    monkeypatch.setattr("untildone.cli.serving.DATABASE_PATIENCE", 4.0)
    said = say("serve", "--database", "postgresql://me:s3cret@127.0.0.1:1/runs")
    assert said.code == 1
    assert ["waiting for it" in line for line in said.err.splitlines()].count(True) == 1
    assert "UNTILDONE_SERVE_DATABASE" in said.err
    assert "s3cret" not in said.err


def test_a_variable_that_sets_nothing_is_said(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNTILDONE_SERVE_PROT", "1")
    monkeypatch.setenv("UNTILDONE_SERVE_PORT", "1")
    assert "UNTILDONE_SERVE_PROT sets nothing" in say("serve", "--host", "203.0.113.7").err
    assert "UNTILDONE_SERVE" not in say("config").err


def test_an_agent_may_not_serve(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNTILDONE_RUN", "run1")
    assert say("serve").code == 5


def test_what_is_shown_of_a_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = shown_database("postgresql://me:s3cret@db.example:5432/runs?password=s3cret")
    assert shown == "postgresql://db.example:5432/runs"
    monkeypatch.setenv("HOME", str(tmp_path))
    assert database_url("sqlite:///~/x.db") == f"sqlite:///{tmp_path}/x.db"


def test_the_block_says_what_binding_means() -> None:
    def said(host: str, *, has_tokens: bool = False, closed: bool = False) -> str:
        settings = ServerSettings(database="sqlite:////x", host=host, closed=closed)
        return block(settings, "http://x", "http://x/login/y", has_tokens=has_tokens)

    assert "TLS" not in said("127.0.0.1")
    assert "looking needs nothing" in said("127.0.0.1")
    assert "everything needs a login or a token" in said("127.0.0.1", closed=True)
    assert "TLS" in said("0.0.0.0")
    assert "token create" in said("10.0.0.1")
    assert "token create" not in said("10.0.0.1", has_tokens=True)


def test_a_server_that_cannot_begin_leaves_nothing_behind(say: Say, store: Path, tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        said = say("serve", "--port", port, "--database", f"sqlite:///{tmp_path}/new.db")
        assert (said.code, said.err.count("\n")) == (1, 1), said
        assert f"port {port}: another program does already" in said.err
        assert say("serve", "--port", port).code == 1
    assert not list(tmp_path.glob("new.db*"))
    assert not list(store.glob("server.db*"))
    said = say("serve", "--database", f"sqlite:///{tmp_path}/no/such/x.db")
    assert (said.code, said.err.count("\n")) == (2, 1), said
    assert f"there is no folder {tmp_path}/no/such for the database" in said.err
    assert not (tmp_path / "no").exists()


def test_a_task_that_does_not_end_does_not_keep_the_server() -> None:
    program = """
import asyncio
from untildone.cli import serving

async def stubborn():
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass

async def main():
    main.kept = asyncio.create_task(stubborn())
    await asyncio.sleep(0)

serving.LAST_SECONDS = 0.2
runner = asyncio.Runner()
runner.run(main())
serving._close(runner)
"""
    done = subprocess.run([sys.executable, "-c", program], timeout=PATIENCE, capture_output=True, check=False)
    assert done.returncode == 1

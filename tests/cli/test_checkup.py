"""What `doctor` says: facts where they can be had, `unknown` where not, and the exit code of what is missing."""

import asyncio
import fcntl
import json
import os
import re
import stat
import subprocess
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from math import inf
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from cli.cli_kit import Runs, Said, Say
from untildone.agents.argv import find_claude
from untildone.core.checkup import (
    Finding,
    Login,
    Status,
    clock_row,
    containers_row,
    disk_row,
    folder_row,
    is_fit,
    login_life_row,
    login_row,
    read_login,
    reply_row,
    sandbox_row,
)
from untildone.core.policy import NOT_LINUX
from untildone.core.trace import AgentMessage
from untildone.engine.clock import SystemClock
from untildone.rehearsal.environment import claude_environment
from untildone.rehearsal.model import ScriptedModel
from untildone.rehearsal.scenario import Reply, Scenario
from untildone.store.sqlite import SqliteLog

SOAK = pytest.mark.soak
STATUS = '{{"loggedIn": {logged_in}, "authMethod": "claude.ai", "loginExpiresAt": {expires}}}'


# --- what is made of facts ---


@pytest.mark.parametrize(
    ("answer", "login"),
    [
        ("", Login(known=False)),
        ("not logged in", Login(known=False)),
        ("[1]", Login(known=False)),
        ('{"loggedIn": "yes"}', Login(known=False)),
        ("[" * 100_000, Login(known=False)),
        ('{"loggedIn": false}', Login(known=True)),
        ('{"loggedIn": false, "apiProvider": "bedrock"}', Login(known=False)),
        (
            '{"loggedIn": true, "authMethod": "api_key", "apiKeySource": "K"}',
            Login(known=True, logged_in=True, method="K"),
        ),
        (
            '{"loggedIn": true, "authMethod": "x", "loginExpiresAt": 1700000000000}',
            Login(known=True, logged_in=True, method="x", expires_at=1.7e9),
        ),
        (
            '{"loggedIn": true, "authMethod": "x", "loginExpiresAt": 1700000000}',
            Login(known=True, logged_in=True, method="x", expires_at=1.7e9),
        ),
        (
            '{"loggedIn": true, "authMethod": "x", "loginExpiresAt": "2023-11-14T22:13:20Z"}',
            Login(known=True, logged_in=True, method="x", expires_at=1.7e9),
        ),
        (
            '{"loggedIn": true, "authMethod": "x", "loginExpiresAt": "soon"}',
            Login(known=True, logged_in=True, method="x"),
        ),
        *(
            (f'{{"loggedIn": true, "loginExpiresAt": {nonsense}}}', Login(known=True, logged_in=True))
            for nonsense in ("1e999", "-1e999", "NaN", "1e18", "-5", "0", "1" * 400, "true", '""', '"9999-12-31"')
        ),
    ],
)
def test_what_claude_says_of_its_login(answer: str, login: Login) -> None:
    assert read_login(answer) == login


IN = Login(known=True, logged_in=True, method="claude.ai", expires_at=1000.0)


@pytest.mark.parametrize(
    ("row", "status"),
    [
        (login_row(IN), "unknown"),
        (login_row(Login(known=True)), "missing"),
        (login_row(Login(known=False)), "unknown"),
        (login_life_row(IN, 999.0, 0.0), "ok"),
        (login_life_row(IN, 1001.0, 0.0), "missing"),
        (login_life_row(Login(known=True, logged_in=True), 1.0, 0.0), "unknown"),
        (disk_row({"/a": 400, "/b": 1000}, 100), "ok"),
        (disk_row({"/a": 399, "/b": 1000}, 100), "warning"),
        (disk_row({"/a": 1000, "/b": 99}, 100), "missing"),
        (disk_row({"/a": 5}, 0), "ok"),
        (clock_row("UTC", synchronized=True), "ok"),
        (clock_row("UTC", synchronized=False), "warning"),
        (clock_row("UTC", synchronized=None), "unknown"),
        (sandbox_row("none", trouble="it cannot work here", missing=["bwrap"]), "ok"),
        (sandbox_row("docker", trouble="", missing=[]), "ok"),
        (containers_row((), "i", {"docker": "it does not answer", "podman": "it is not installed"}), "ok"),
        (containers_row((), "i", {"docker": "it does not answer", "podman": False}), "ok"),
        (containers_row(("docker",), "i", {"docker": "it does not answer", "podman": True}), "missing"),
        (containers_row(("docker", "podman"), "i", {"docker": "it does not answer", "podman": True}), "ok"),
        (containers_row(("docker",), "i", {"docker": False, "podman": True}), "warning"),
        (sandbox_row("claude", trouble="", missing=["socat"]), "missing"),
        (sandbox_row("claude", trouble="", missing=[]), "ok"),
        (sandbox_row("bwrap", trouble="bubblewrap is not installed", missing=["bwrap"]), "missing"),
        (sandbox_row("bwrap", trouble="", missing=[]), "ok"),
        (sandbox_row("auto", trouble="", missing=[]), "ok"),
        (sandbox_row("auto", trouble="bubblewrap is not installed", missing=[]), "warning"),
        (sandbox_row("auto", trouble=f"{NOT_LINUX}; use --sandbox docker", missing=[]), "ok"),
        (folder_row("/a", busy="night", dirty=0, keep_dirty=False), "missing"),
        (folder_row("/a", busy="", dirty=None, keep_dirty=False), "warning"),
        (folder_row("/a", busy="", dirty=2, keep_dirty=False), "warning"),
        (folder_row("/a", busy="", dirty=2, keep_dirty=True), "ok"),
        (folder_row("/a", busy="", dirty=0, keep_dirty=False), "ok"),
    ],
)
def test_each_fact_has_its_status(row: Finding, status: Status) -> None:
    assert row.status == status
    assert "\n" not in row.detail + row.remedy
    assert row.remedy or status != "missing"


def test_only_what_is_missing_is_in_the_way() -> None:
    every: tuple[Status, ...] = ("ok", "warning", "unknown", "missing")
    rows = [Finding(name="x", status=status, detail="") for status in every]
    assert is_fit(rows[:3])
    assert not is_fit(rows)


def failed(text: str, status: int | None = None, word: str | None = None) -> str:
    facts = {"is_error": True, "result": text, "terminal_reason": "api_error"}
    return json.dumps(facts | {"api_error_status": status, "api_error": word})


@pytest.mark.parametrize(
    ("answer", "status", "detail"),
    [
        ('{"is_error": false, "result": "ok", "total_cost_usd": 0.01}', "ok", "it answers ($0.01)"),
        (
            failed("API Error: Connection refused (ECONNREFUSED)", None, "connection_failed"),
            "missing",
            "the API is unreachable: API Error: Connection refused (ECONNREFUSED)",
        ),
        (failed("overloaded", 529, "overloaded"), "warning", "it cannot answer now: overloaded"),
        (failed("too many", 429, "rate_limit"), "warning", "it cannot answer now: too many"),
        (failed("invalid key", 401, "authentication_failed"), "missing", "it was refused: invalid key"),
        ("no answer within 90 s", "missing", "no answer: no answer within 90 s"),
        ("", "missing", "no answer: exit 1"),
        ("[" * 100_000, "missing", f"no answer: {'[' * 199}…"),
        ('{"is_error": true, "api_error_status": "x", "api_error": 3}', "missing", "it was refused: "),
    ],
)
def test_what_became_of_one_tiny_request(answer: str, status: str, detail: str) -> None:
    row = reply_row(answer, 1)
    assert (row.status, row.detail) == (status, detail)
    assert bool(row.remedy) == (status != "ok")


@pytest.mark.parametrize(
    ("answer", "remedy"),
    [
        (failed("Invalid API key", 401, "authentication_failed"), "put a valid key into ANTHROPIC_API_KEY"),
        (failed("Credit balance is too low", 400, "billing_error"), "add credit to the account"),
    ],
)
def test_what_was_refused_is_named(answer: str, remedy: str) -> None:
    assert reply_row(answer, 1, "ANTHROPIC_API_KEY").remedy.startswith(remedy)
    assert "untildone login" in reply_row(failed("x", 401), 1, "claude.ai").remedy


def test_a_folder_for_temporary_files_that_is_gone(
    doctor: Callable[[], Said], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "gone"))
    said = doctor()
    assert rows(said)["temp"]["detail"] == f"TMPDIR is {tmp_path / 'gone'}, where nothing can be written"
    assert said.code == 1
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert "temp" not in rows(doctor())


# --- on this machine ---


@pytest.fixture
def claude(tmp_path: Path) -> Callable[[str], str]:
    """A program that answers `--version`, and `auth status` as told."""

    def make(status: str) -> str:
        program = tmp_path / "claude"
        program.write_text(f"#!/bin/sh\ncase $1 in --version) echo 1.2.3;; auth) echo '{status}';; *) exit 9;; esac\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        return str(program)

    return make


@pytest.fixture
def doctor(say: Say, claude: Callable[[str], str]) -> Callable[[], Said]:
    """The command, with such a program: the real one takes half a second to say its version."""
    program = claude(STATUS.format(logged_in="true", expires="null"))
    return lambda: say("doctor", "--claude", program, "--json")


def rows(said: Said) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in json.loads(said.out)}


def test_every_row_is_there_and_names_what_to_do(say: Say, claude: Callable[[str], str]) -> None:
    program = claude(STATUS.format(logged_in="true", expires="null"))
    said = say("doctor", "--claude", program, "--until", "07:30", "--json")
    found = rows(said)
    assert set(found) == {
        "python", "settings", "git", "claude", "login", "login lives", "remote", "store", "folder", "clock", "notify",
        "awake", "rights", "sandbox", "containers", "disk",
    }  # fmt: skip
    assert "git push" in found["rights"]["detail"]
    assert said.code == 0
    assert {row["status"] for row in found.values()} <= {"ok", "warning", "unknown"}
    assert (found["login"]["status"], found["login lives"]["status"]) == ("unknown", "unknown")
    assert "--online" in found["login"]["remedy"]
    page = (Path(__file__).parents[2] / "docs" / "night.md").read_text(encoding="utf-8")
    assert [row for row in found if f"`{row}`" not in page] == []
    text = say("doctor", "--claude", program).out
    assert [row for row in found if row != "login lives" and f" {row} " not in text] == []


@pytest.mark.parametrize(
    ("expires", "status", "code"),
    [('"2099-01-01T00:00:00Z"', "ok", 0), ("1000000000", "missing", 1)],
)
def test_a_login_that_ends_in_the_night(
    say: Say, claude: Callable[[str], str], expires: str, status: str, code: int
) -> None:
    program = claude(STATUS.format(logged_in="true", expires=expires))
    said = say("doctor", "--claude", program, "--until", "07:30", "--json")
    assert (rows(said)["login lives"]["status"], said.code) == (status, code)


def test_nobody_is_logged_in(say: Say, claude: Callable[[str], str]) -> None:
    said = say("doctor", "--claude", claude(STATUS.format(logged_in="false", expires="null")), "--json")
    assert (rows(said)["login"]["status"], said.code) == ("missing", 1)


def test_an_hour_that_is_none(say: Say) -> None:
    said = say("doctor", "--until", "25:99")
    assert (said.code, said.err.count("\n"), said.out) == (2, 1, "")
    assert said.err.startswith("untildone: --until ")


@pytest.mark.claude
@pytest.mark.parametrize(
    ("reply", "row"),
    [
        (Reply(text="ok"), ("ok", "it answers ($")),
        pytest.param(
            Reply(status=401, message="invalid x-api-key", repeat=20), ("missing", "it was refused: "), marks=SOAK
        ),
        pytest.param(
            Reply(status=529, message="overloaded", repeat=20), ("warning", "it cannot answer now: "), marks=SOAK
        ),
    ],
)
def test_online_asks_the_real_claude(
    say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reply: Reply, row: tuple[str, str]
) -> None:
    with ScriptedModel(Scenario(name="doctor", replies=(reply,))) as model:
        for name, value in claude_environment(tmp_path / "home", model.url, path=os.environ["PATH"]).items():
            monkeypatch.setenv(name, value)
        found = rows(say("doctor", "--claude", find_claude(), "--online", "--json"))
        assert found["login"]["status"] == row[0]
        assert row[1] in found["login"]["detail"]
        assert len(model.requests) == 1, "one tiny request, no more"
        say("doctor", "--claude", find_claude())
        assert len(model.requests) == 1, "and none without being asked to"


def git(folder: Path, *args: str) -> None:
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *args], cwd=folder, check=True, timeout=240)


def test_the_folder_its_remote_and_who_commits(doctor: Callable[[], Said], project: Path, tmp_path: Path) -> None:
    git(project, "init", "-q", "-b", "main")
    git(project, "remote", "add", "origin", str(tmp_path / "nowhere"))
    (project / "mine.txt").write_text("mine")
    found = rows(doctor())
    assert (found["folder"]["status"], found["remote"]["status"]) == ("warning", "warning")
    assert "1 uncommitted file" in found["folder"]["detail"]
    git(tmp_path, "init", "-q", "--bare", "nowhere")
    git(project, "add", ".")
    git(project, "commit", "-qm", "first")
    git(project, "config", "user.name", "Ada")
    git(project, "config", "user.email", "ada@example.org")
    found = rows(doctor())
    assert [found[name]["status"] for name in ("folder", "remote", "git")] == ["ok", "ok", "ok"]
    assert found["git"]["detail"].endswith("commits as Ada <ada@example.org>")


def test_a_repository_that_git_refuses_is_named_with_the_way_out(
    doctor: Callable[[], Said], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(project, "init", "-q", "-b", "main")
    other = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: other)
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    said = doctor()
    row = rows(said)["folder"]
    assert (row["status"], said.code) == ("missing", 1)
    assert "dubious ownership" in row["detail"]
    assert row["detail"].endswith(f"`git config --global --add safe.directory {project}`")


def test_a_run_that_works_here_is_in_the_way(doctor: Callable[[], Said], runs: Runs, project: Path) -> None:
    run_id = runs.begin(project)
    with (runs.path.parent / "locks" / f"{run_id}.lock").open("r+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        busy = doctor()
    assert rows(busy)["folder"]["status"] == "missing"
    assert "night is running here" in rows(busy)["folder"]["detail"]
    assert rows(doctor())["folder"]["status"] != "missing"


def test_the_store_says_how_large_it_is_and_how_much_of_it_is_free(
    doctor: Callable[[], Said], runs: Runs, project: Path
) -> None:
    words = [AgentMessage(iteration_num=1, text="x" * 1000)] * 3000
    runs.begin(project, *words)

    def detail() -> str:
        return str(rows(doctor())["store"]["detail"])

    assert re.search(r"1 run, \d\.\d MiB(, \d+ KiB of it not used)?$", detail()), detail()

    async def trim() -> None:
        log = SqliteLog(runs.path, SystemClock())
        await log.trim_ended(before=inf, most=9999)
        await log.close()

    asyncio.run(trim())
    assert re.search(r"1 run, \d\.\d MiB, [34]\.\d MiB of it not used$", detail()), detail()


def test_a_disk_below_the_reserve(doctor: Callable[[], Said], project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNTILDONE_DISK_RESERVE", "900TB")
    said = doctor()
    assert (rows(said)["disk"]["status"], said.code) == ("missing", 1)


class Mailbox(BaseHTTPRequestHandler):
    """Takes every message, and counts them."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.taken += 1  # type: ignore[attr-defined]
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


def test_a_channel_is_tried_only_when_asked(say: Say, claude: Callable[[str], str]) -> None:
    program = claude("")
    server = HTTPServer(("127.0.0.1", 0), Mailbox)
    server.taken = 0  # type: ignore[attr-defined]
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/secret"
        ask = ("doctor", "--claude", program, "--notify", url, "--json")
        quiet, loud = rows(say(*ask))["notify"], rows(say(*ask, "--online"))["notify"]
        assert (quiet["status"], loud["status"], server.taken) == ("unknown", "ok", 1)  # type: ignore[attr-defined]
        assert "secret" not in json.dumps([quiet, loud])
    finally:
        server.shutdown()
        server.server_close()
    assert rows(say(*ask, "--online"))["notify"]["status"] == "missing"
    assert rows(say("doctor", "--claude", program, "--notify", "nonsense", "--json"))["notify"]["status"] == "missing"


def test_without_git_it_goes_on_looking(
    say: Say, monkeypatch: pytest.MonkeyPatch, claude: Callable[[str], str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    said = say("doctor", "--claude", claude(""), "--json")
    found = rows(said)
    assert (found["git"]["status"], found["claude"]["status"], said.code) == ("missing", "ok", 1)
    assert found["folder"]["status"] == "unknown"


LONG = "a" * 300


@pytest.mark.parametrize("store", [f"/{LONG}/x", "~nobody-of-that-name/x"])
def test_a_store_that_cannot_be_is_a_row_like_any_other(
    say: Say, claude: Callable[[str], str], store: str, project: Path
) -> None:
    program = claude(STATUS.format(logged_in="true", expires="null"))
    found = rows(say("doctor", "--claude", program, "--store", store, "--json"))
    assert "disk" in found
    assert (found["store"]["status"] == "missing") == (LONG in store)

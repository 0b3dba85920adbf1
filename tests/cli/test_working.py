"""`worker`: all mistakes at once, a look without secrets, help that names every variable, and its exit codes."""

from pathlib import Path

import pytest

from cli.cli_kit import Say
from untildone.cli import working
from untildone.core.stopping import Reason
from untildone.core.worker_env import WorkerConfig, worker_config
from untildone.core.worker_table import VARIABLES

LEAST = {"CALLBACK_URL": "http://127.0.0.1:8642", "ANTHROPIC_API_KEY": "sk-ant-s3cret", "INITIAL_PROMPT": "Do it"}


@pytest.fixture(autouse=True)
def _no_login(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CLAUDE_CONFIG_DIR", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name)


def given(monkeypatch: pytest.MonkeyPatch, **more: str) -> None:
    for name, value in (LEAST | more).items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("check", [(), ("--check",)])
def test_every_mistake_is_a_line_and_nothing_is_started(say: Say, store: Path, check: tuple[str, ...]) -> None:
    said = say("worker", *check)
    assert said.code == 1
    assert [line.split()[1] for line in said.err.splitlines()] == ["CALLBACK_URL", "ANTHROPIC_API_KEY", "there"]
    assert not store.exists()


def test_what_only_together_is_wrong_is_told_as_configuration(
    say: Say, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given(monkeypatch, UNTILDONE_FAIL_TO_PASS="true")
    said = say("worker")
    assert (said.code, said.err.count("\n")) == (1, 1)
    assert "--fail-to-pass needs a command" in said.err
    assert not store.exists()


def test_a_look_shows_what_holds_and_no_secret(say: Say, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given(
        monkeypatch, CALLBACK_TOKEN="ud_s3cret", GITHUB_TOKEN="ghp_s3cret", GITHUB_REPO="me/shop", SANDBOX_ID="sb-1",
        UNTILDONE_CHECKS="make test", UNTILDONE_NOTIFY="https://hooks.example/s3cret", CONTINUOUS_MODE="true",
        CONTINUOUS_MAX_RUNS="4", TICKET_TITLE="evil \x1b[31mtitle",
    )  # fmt: skip
    said = say("worker", "--check")
    assert (said.code, said.err) == (0, "")
    assert "s3cret" not in said.out
    assert "\x1b" not in said.out
    shown = {tuple(line.split(maxsplit=1)) for line in said.out.splitlines() if len(line.split()) > 1}
    assert {
        ("CALLBACK_TOKEN", "set, not shown"), ("max_runs", "4"), ("completion_threshold", "3"), ("land", "pr"),
        ("checks", "make test"), ("branch_prefix", "continuous-claude/"), ("goal", "Do it"),
    } <= shown  # fmt: skip
    assert "http://127.0.0.1:8642 as sb-1" in said.out
    assert not store.exists()


def test_the_help_names_every_variable_with_its_meaning(say: Say) -> None:
    text = " ".join(say("worker", "--help").out.split())
    assert [one.name for one in VARIABLES if f"{one.name} {one.meaning.split()[0]}" not in text] == []


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (Reason.COMPLETION_SIGNAL, 0), (Reason.VALIDATION_PASSED, 0), (Reason.MAX_RUNS, 0), (Reason.MAX_COST, 0),
        (Reason.MAX_DURATION, 0), (Reason.MAX_ITERATIONS, 0), (Reason.DEADLINE, 0), (Reason.SHUTDOWN_SIGNAL, 0),
        (Reason.STOP_REQUESTED, 0), (Reason.CONSECUTIVE_ERRORS, 1), (Reason.CIRCUIT_OPEN, 4), (Reason.BLOCKED, 5),
        (Reason.AUTHENTICATION, 6), (Reason.LANDING_FAILED, 7), ("unheard of", 1), ("", 1),
    ],
)  # fmt: skip
def test_planned_stops_are_no_failure(reason: str, code: int) -> None:
    assert working.worker_exit(reason) == code


def test_the_server_is_told_who_speaks() -> None:
    wanted = worker_config(LEAST | {"TASK_ID": "t", "CALLBACK_TOKEN": "ud_x", "HEARTBEAT_INTERVAL": "7"})
    assert isinstance(wanted, WorkerConfig)
    settings = working.uplink_settings(wanted)
    assert settings.sandbox_id
    assert (settings.server, settings.token, settings.heartbeat, settings.heartbeat_events, dict(settings.ids)) == (
        "http://127.0.0.1:8642", "ud_x", 7.0, True, {"task_id": "t"},
    )  # fmt: skip
    assert "ud_x" not in repr(settings)


def test_a_folder_that_is_not_there_is_said_before_anything_begins(
    say: Say, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given(monkeypatch, CWD="/no/such/folder", CALLBACK_TOKEN="ud_x", MAX_TURNS="many")
    for check in ((), ("--check",)):
        said = say("worker", *check)
        assert said.code == 1
        assert [line.split()[1] for line in said.err.splitlines()] == ["MAX_TURNS", "CWD"]
        assert "CWD /no/such/folder is not a folder" in said.err
        assert "--cwd" not in said.err
    assert not store.exists()
    given(monkeypatch, CWD="/no/such/folder", GITHUB_REPO="me/shop")
    monkeypatch.delenv("MAX_TURNS")
    assert say("worker", "--check").code == 0


def test_names_that_look_like_ours_are_no_secret_wish(say: Say, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given(
        monkeypatch, UNTILDONE_CHEKS="pytest", UNTILDONE_MAX_COST="abc", CONTINUOUS_MAX_COST="2",
        CONTINUOUS_MAX_RUN="3", ALOWED_TOOLS="Read", UNTILDONE_MAX_RUNS="abc",
    )  # fmt: skip
    for check in ((), ("--check",)):
        said = say("worker", *check)
        assert said.code == 1
        for name, meant in (
            ("UNTILDONE_CHEKS", "UNTILDONE_CHECKS"), ("UNTILDONE_MAX_COST", "UNTILDONE_MAX_COST_USD"),
            ("CONTINUOUS_MAX_COST", "CONTINUOUS_MAX_COST_USD"), ("CONTINUOUS_MAX_RUN", "CONTINUOUS_MAX_RUNS"),
            ("ALOWED_TOOLS", "ALLOWED_TOOLS"),
        ):  # fmt: skip
            assert any(f"{name} is no" in line and f"did you mean {meant}?" in line for line in said.err.splitlines())
        assert "UNTILDONE_MAX_RUNS must be" in said.err
    assert not store.exists()


def test_a_login_of_claude_code_will_do_if_there_is_one(
    say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given(monkeypatch)
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    for place in (Path.home() / ".claude", tmp_path / "own"):
        said = say("worker", "--check")
        assert (said.code, "ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN is missing" in said.err) == (1, True)
        place.mkdir()
        (place / ".credentials.json").write_text("{}")
        assert say("worker", "--check").code == 0
        monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "own"))
    (tmp_path / "own" / ".credentials.json").unlink()
    (tmp_path / "own" / "settings.json").write_text('{"apiKeyHelper": "give-key"}')
    assert say("worker", "--check").code == 0
    for damaged in ("[]", "{", '{"apiKeyHelper": ""}'):
        (tmp_path / "own" / "settings.json").write_text(damaged)
        assert say("worker", "--check").code == 1
    monkeypatch.setenv("CLAUDE_CODE_USE_FOUNDRY", "1")
    assert say("worker", "--check").code == 0

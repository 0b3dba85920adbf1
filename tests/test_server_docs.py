"""What the pages about the server, its API and its workers promise is so, on a server at work."""

import json
import os
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import click
import pytest

from server.door_kit import Served, served
from untildone.cli.app import cli, entry
from untildone.cli.serving import PREFIX, VARIABLES
from untildone.config import SERVER_TOKEN
from untildone.core.settings import SETTINGS
from untildone.core.wire import MOST_EVENTS, OrderKind
from untildone.core.worker_table import VARIABLES as WORKER_VARIABLES
from untildone.server import event_stream, folding, keys, limits, runs_api, sandboxes, tidying
from untildone.server.archive.events import MOST_SCANNED
from untildone.server.archive.port import Scope
from untildone.server.context import MEBIBYTE, ServerSettings

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
API, SERVER, WORKER = ((DOCS / name).read_text(encoding="utf-8") for name in ("api.md", "server.md", "worker.md"))
ROUTE = re.compile(r"^\| `(GET|POST|PUT|DELETE) (/[^`]*)` \| (none|`[a-z]+`) \|", re.MULTILINE)


def typed(text: str) -> list[list[str]]:
    """What people are told to type: in blocks, and within a sentence."""
    blocks = "\n".join(re.findall(r"```(?:sh)?\n(.*?)```", text, re.DOTALL)).replace("\\\n", " ")
    command = r"(?<![/.])untildone [^\n`)]+"
    found = [*re.findall(command, blocks), *re.findall(rf"`[^`\n]*?({command})`", text)]
    return [shlex.split(line, comments=True)[1:] for line in found]


def flags_of(words: list[str]) -> tuple[str, set[str]]:
    """The command that these words mean, and what it takes."""
    command: click.Command | None = cli
    named = []
    for word in words:
        if not isinstance(command, click.Group):
            break
        named.append(word)
        command = command.get_command(click.Context(command), word)
        assert command is not None, words
    assert command is not None
    params = command.get_params(click.Context(command))
    return " ".join(named), {flag for param in params for flag in (*param.opts, *param.secondary_opts)}


@pytest.mark.parametrize("text", [API, SERVER, WORKER], ids=["api", "server", "worker"])
def test_every_command_and_option_exists(text: str) -> None:
    told = typed(text)
    assert len(told) >= 3
    for words in told:
        name, known = flags_of(words)
        assert [word for word in words if word.startswith("--") and word not in known] == [], name


def test_what_people_need_is_told() -> None:
    told = {(flags_of(words)[0], word) for words in typed(SERVER + API) for word in words}
    wanted = [
        ("resume", "--from-server"),
        ("run", "--server"),
        ("serve", "--name"),
        ("serve", "--closed"),
        ("serve", "--folder"),
    ]
    wanted += [("token create", word) for word in ("--scope", "--sandbox", "--label", "--days", *get_args(Scope))]
    wanted += [("token login", "--address"), ("token ls", "ls"), ("token rotate", "ID"), ("token revoke", "ID")]
    assert [pair for pair in wanted if pair not in told] == []
    assert [word for word in ("--take", "--trust", "--portable", "--mask") if f"`{word}" not in SERVER] == []
    assert "untildone worker --check" in WORKER


@pytest.mark.parametrize("text", [API, SERVER, WORKER], ids=["api", "server", "worker"])
def test_every_variable_is_read(text: str) -> None:
    known = {SERVER_TOKEN, *(PREFIX + name for name in VARIABLES), *(name for s in SETTINGS for name in s.env)}
    compose = (ROOT / "deploy" / "compose.yaml").read_text(encoding="utf-8")
    known |= set(re.findall(r"\$\{(UNTILDONE_[A-Z]+)", compose)) | {"UNTILDONE_NAME"}
    told = set(re.findall(r"\bUNTILDONE_[A-Z_]+", text))
    assert told - known == set()


def test_the_example_of_a_worker_is_a_whole_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (example,) = re.findall(r"```sh\n(SANDBOX_ID=.*?) untildone worker\n```", WORKER, re.DOTALL)
    given = dict(pair.split("=", 1) for pair in shlex.split(example.replace("\\\n", " ")))
    assert set(given) <= {one.name for one in WORKER_VARIABLES} | {"UNTILDONE_CHECKS"}
    for name in [name for name in os.environ if name.startswith(("UNTILDONE_", "CONTINUOUS_", "ANTHROPIC_"))]:
        monkeypatch.delenv(name)
    for name, value in {**given, "CWD": str(tmp_path), "UNTILDONE_HOME": str(tmp_path / "state")}.items():
        monkeypatch.setenv(name, value)
    assert entry(["worker", "--check"]) == 0
    assert "nothing was started" in capsys.readouterr().out


# --- the API -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def everywhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("everywhere"), host="0.0.0.0") as one:
        yield one


def test_every_route_needs_the_token_that_is_told(everywhere: Served) -> None:
    tokens = {"": ""} | {
        scope: everywhere.token(scope, "box" if scope == "worker" else None)[1] for scope in get_args(Scope)
    }
    tokens["worker of another"] = everywhere.token("worker", "other")[1]
    batch = {"token": tokens["worker"], "json_body": {"run_id": "run", "events": []}}
    assert everywhere.ask("POST", "/api/v1/sandboxes/box/events", **batch).status == 200
    enough = {
        "none": set(tokens),
        "`viewer`": {"viewer", "operator"},
        "`operator`": {"operator"},
        "`worker`": {"worker", "operator"},
    }
    routes = ROUTE.findall(API)
    described = json.loads(everywhere.ask("GET", "/api/openapi.json", token=tokens["viewer"]).body)["paths"]
    assert {(method.lower(), path) for method, path, _ in routes} == {
        (method, path) for path, operations in described.items() for method in operations
    }
    for method, path, scope in routes:
        place = path.format(sandbox_id="box", run_id="run", name="notes", seq=1, session_id="abc")
        answers = {who: everywhere.ask(method, place, token=token, reads=False) for who, token in tokens.items()}
        let_in = {who for who, answer in answers.items() if answer.status not in (401, 403)}
        assert let_in == enough[scope], (method, path)


def test_orders_metrics_and_numbers_are_those_of_the_code(everywhere: Served) -> None:
    told = API.partition("<!-- generated: orders -->")[2].partition("<!-- end of orders -->")[0]
    assert {
        kind for cell in re.findall(r"^\| (`[^|]+) \|", told, re.MULTILINE) for kind in cell.replace("`", "").split()
    } - {"kind", "answer"} == set(get_args(OrderKind))  # an answer goes as a message
    exposed = everywhere.ask("GET", "/metrics", token=everywhere.token("viewer")[1]).body.decode()
    named = set(re.findall(r"^\| `(untildone_[a-z_]+)` \|", API, re.MULTILINE))
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", exposed, re.MULTILINE))
    assert named == {name for name in types if not name.endswith("_created")}
    numbers = {
        f"{MOST_EVENTS:,} events and {limits.EVENTS.most_bytes // MEBIBYTE} MiB": API,
        f"at most {limits.PARCELS.most_bytes // MEBIBYTE} MiB each": API,
        f"up to {sandboxes.LONGEST_WAIT:.0f} seconds": API,
        f"silent for {folding.HEARD_WITHIN:.0f} seconds": API,
        f"once it has {runs_api.MOST_BYTES // MEBIBYTE} MiB": API,
        f"looked at {MOST_SCANNED:,} events": API,
        f"after {tidying.MESSAGES_KEPT / 86400:.0f} days": API,
        f"after {event_stream.HEARTBEAT_SECONDS:.0f} seconds of silence": API,
        f"nothing for {event_stream.SLOW_SECONDS:.0f} seconds": API,
        f"`--keep-days` ({ServerSettings(database='').keep_days})": SERVER,
        f"more than {ServerSettings(database='').keep_bytes // MEBIBYTE} MiB": SERVER,
    }
    assert [number for number, text in numbers.items() if number not in text] == []
    assert keys.LINK_SECONDS == 600
    assert "for ten minutes" in SERVER


def test_every_dependency_has_a_reason() -> None:
    reasons = (DOCS / "decisions" / "dependencies.md").read_text(encoding="utf-8").partition("## Out")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"].values()
    needed = [*project["project"]["dependencies"], *(one for extra in extras for one in extra)]
    names = [re.split(r"[^A-Za-z0-9_-]", one)[0] for one in needed]
    assert [name for name in names if f"`{name}`" not in reasons[0]] == []
    for_work = [re.split(r"[^A-Za-z0-9_-]", one)[0] for one in project["dependency-groups"]["dev"]]
    assert [name for name in for_work if name.removeprefix("pytest-") not in "".join(reasons)] == []
    vendored = (DOCS.parent / "src/untildone/server/static/vendor").glob("*.js")
    assert [file.name for file in vendored if f"`{file.name.partition('.')[0]}`" not in reasons[0]] == []

"""What is shipped to run the server elsewhere fits the server."""

import configparser
import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from untildone.cli.serving import PREFIX, serve

DEPLOY = Path(__file__).parent.parent / "deploy"
CONTAINERFILE = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))


def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # systemd's names have capitals
    parser.read_string((DEPLOY / "untildone-server.service").read_text(encoding="utf-8"))
    return parser


def parsed(words: list[str]) -> click.Context:
    return serve.make_context("serve", words)


@pytest.mark.parametrize(
    "text",
    [
        (DEPLOY / name).read_text(encoding="utf-8")
        for name in ("Containerfile", "compose.yaml", "untildone-server.service")
    ],
)
def test_every_variable_is_one_the_server_reads(text: str) -> None:
    known = {param.envvar for param in serve.params} | {f"{PREFIX}NAMES", f"{PREFIX}FOLDERS"}
    assert set(re.findall(rf"{PREFIX}[A-Z_]+", text)) <= known


def test_the_unit_starts_the_server_with_options_it_has() -> None:
    program, command, *words = shlex.split(unit()["Service"]["ExecStart"])
    assert (Path(program).name, command) == ("untildone", "serve")
    assert parsed(words).params["local"] is False


def test_the_image_serves_where_others_reach_it_and_is_asked_whether_it_lives() -> None:
    port = parsed([]).params["port"]
    assert f"EXPOSE {port}" in CONTAINERFILE
    assert f"http://127.0.0.1:{port}/healthz" in CONTAINERFILE
    assert 'ENTRYPOINT ["untildone"]\nCMD ["serve"]\n' in CONTAINERFILE
    assert "USER untildone" in CONTAINERFILE.split("ENTRYPOINT")[0]


def test_compose_waits_for_a_database_that_is_ready_and_shows_its_port_to_this_machine_only() -> None:
    server, database = COMPOSE["services"]["server"], COMPOSE["services"]["database"]
    assert server["depends_on"]["database"]["condition"] == "service_healthy"
    assert all(port.startswith("127.0.0.1:") for port in server["ports"])
    assert "ports" not in database
    assert ":?" in database["environment"]["POSTGRES_PASSWORD"], "no password is ever guessed"
    place = Path(server["build"]["dockerfile"])
    assert (DEPLOY / server["build"]["context"] / place).resolve() == (DEPLOY / "Containerfile").resolve()

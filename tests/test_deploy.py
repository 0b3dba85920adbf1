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
from untildone.errors import UsageError

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


def test_the_image_serves_where_others_reach_it() -> None:
    port = parsed([]).params["port"]
    assert f"EXPOSE {port}" in CONTAINERFILE
    assert 'ENTRYPOINT ["untildone"]\nCMD ["serve"]\n' in CONTAINERFILE
    assert "USER untildone" in CONTAINERFILE.split("ENTRYPOINT", maxsplit=1)[0]


def test_a_server_is_asked_whether_it_works_and_a_worker_is_not() -> None:
    # A worker of the same image answers on no port: asked, it would be unwell for ever.
    assert "HEALTHCHECK" not in CONTAINERFILE
    asked = " ".join(COMPOSE["services"]["server"]["healthcheck"]["test"])
    assert f"http://127.0.0.1:{parsed([]).params['port']}/readyz" in asked


def test_the_image_has_the_versions_that_were_tested_and_nothing_else_of_this_tree() -> None:
    assert "--constraint requirements.lock" in CONTAINERFILE
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", CONTAINERFILE, re.MULTILINE)
    names = {name for line in copied for name in line.split()}
    ignored = (DEPLOY / "Containerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    assert {line[1:] for line in ignored if line.startswith("!")} == names
    assert all((DEPLOY.parent / name).exists() for name in names)


def test_the_server_in_a_container_can_use_its_home_and_nothing_else() -> None:
    server = COMPOSE["services"]["server"]
    uid = re.findall(r"--uid (\d+)", CONTAINERFILE)[0]
    assert server["read_only"] is True
    assert server["cap_drop"] == ["ALL"]
    assert f"/home/untildone:uid={uid},gid={uid},mode=700" in server["tmpfs"], "a home that is mounted is root's"


def test_a_password_may_hold_any_character() -> None:
    environment = COMPOSE["services"]["server"]["environment"]
    assert "PASSWORD" not in environment["UNTILDONE_SERVE_DATABASE"]
    assert environment["PGPASSWORD"] == "${POSTGRES_PASSWORD}"
    assert ".env" in (DEPLOY / ".gitignore").read_text(encoding="utf-8").split()


def test_the_page_names_what_is_there() -> None:
    page = (DEPLOY.parent / "docs" / "server.md").read_text(encoding="utf-8")
    services = set(re.findall(r"docker compose (?:exec(?: -T)?|stop|start) (\w+)", page))
    assert services == set(COMPOSE["services"])
    assert f"--network {COMPOSE['name']}_default" in page
    assert f"http://{COMPOSE['services']['server']['hostname']}:8642" in page
    assert all((DEPLOY.parent / path).exists() for path in re.findall(r"\bdeploy/[\w.-]+", page))
    directory = unit()["Service"]["StateDirectory"]
    assert set(re.findall(r"/var/lib/([\w-]+)/", page)) == {directory}
    assert set(re.findall(r"systemctl (?:stop|start|restart|enable --now) (\S+)", page)) == {"untildone-server"}


def test_the_unit_gives_up_on_settings_that_cannot_work() -> None:
    assert unit()["Service"]["RestartPreventExitStatus"] == str(UsageError.exit_code)


def test_compose_waits_for_a_database_that_is_ready_and_shows_its_port_to_this_machine_only() -> None:
    server, database = COMPOSE["services"]["server"], COMPOSE["services"]["database"]
    assert server["depends_on"]["database"]["condition"] == "service_healthy"
    assert all(port.startswith("127.0.0.1:") for port in server["ports"])
    assert "ports" not in database
    assert ":?" in database["environment"]["POSTGRES_PASSWORD"], "no password is ever guessed"
    place = Path(server["build"]["dockerfile"])
    assert (DEPLOY / server["build"]["context"] / place).resolve() == (DEPLOY / "Containerfile").resolve()

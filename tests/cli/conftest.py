"""The command line as a person meets it: argv in, exit code and two streams out."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from archives import new_archive
from cli.background_kit import Background, reaping
from cli.cli_kit import Runs, Said, Say
from cli.far_kit import Elsewhere
from e2e.worker_kit import Server
from untildone.cli.app import entry


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "state"
    monkeypatch.setenv("UNTILDONE_HOME", str(folder))
    return folder


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def say(store: Path, project: Path, capsys: pytest.CaptureFixture[str]) -> Say:
    def run(*argv: str) -> Said:
        code = entry(argv)
        out, err = capsys.readouterr()
        return Said(code, out, err)

    return run


@pytest.fixture
def runs(store: Path) -> Runs:
    return Runs(store)


@pytest.fixture
def background(tmp_path: Path, project: Path, store: Path) -> Iterator[Background]:
    made = Background(tmp_path, project, store)
    with reaping():
        yield made
        made.end()


@pytest.fixture(scope="session")
def far_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    server = Server(folder, new_archive(folder))
    server.start()
    yield server
    server.end()
    assert "Traceback" not in server.log()


@pytest.fixture
def far(tmp_path: Path, far_server: Server, monkeypatch: pytest.MonkeyPatch) -> Elsewhere:
    monkeypatch.setenv("UNTILDONE_SERVER", far_server.url)
    monkeypatch.setenv("UNTILDONE_TOKEN", far_server.operator)
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude-here"))
    return Elsewhere(tmp_path, far_server)

"""What the pages about proof and arrival promise is understood by the program."""

import re
import shlex
from pathlib import Path

import click
import pytest

from untildone import config
from untildone.cli.app import cli, entry
from untildone.core.settings_delivery import OLDER_FLAGS

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *(ROOT / "docs" / name for name in ("contract.md", "landing.md", "worktrees.md"))]


def typed(page: Path) -> list[list[str]]:
    blocks = re.findall(r"```(?:sh)?\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("untildone ")]


def flags_of(command: click.Command) -> set[str]:
    ctx = click.Context(command)
    return {flag for param in command.get_params(ctx) for flag in (*param.opts, *param.secondary_opts)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_examples_are_understood(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UNTILDONE_HOME", str(tmp_path / "state"))
    commands = typed(page)
    assert commands
    starts = [words for words in commands if words[0] == "run"]
    assert [words for words in starts if entry([*words, "--dry-run", "--json"]) != 0] == []
    for name, *rest in (words for words in commands if words[0] != "run"):
        command = cli.get_command(click.Context(cli), name)
        assert command is not None, name
        if isinstance(command, click.Group):
            command = command.get_command(click.Context(command), rest[0])
            assert command is not None, rest
        assert [word for word in rest if word.startswith("--") and word not in flags_of(command)] == []


def test_the_contract_in_the_docs_is_one(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "contract.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    file = tmp_path / "untildone.toml"
    file.write_text(text, encoding="utf-8")
    found = config.resolve({}, env={"HOME": str(tmp_path)}, user_file=file)
    contract = config.run_spec(found, goal="g", cwd=tmp_path, name="n").contract
    assert [check.name for check in contract.checks] == ["unit tests", "web", "hidden check 1", "tree-clean"]
    assert (contract.setup, contract.share, contract.guard) == ("uv sync --frozen", ("node_modules",), "strict")


def test_what_older_names_became_exists() -> None:
    run = cli.get_command(click.Context(cli), "run")
    assert run is not None
    known = flags_of(run)
    assert [here for _, here, _ in OLDER_FLAGS if here.split(" ")[0] not in known] == []
    # What is called the same must be the same flag; the others are told, not taken.
    assert [there for there, here, _ in OLDER_FLAGS if there == here and there not in known] == []

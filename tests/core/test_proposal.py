"""What is proposed for a repository: a table from what lies there to checks, setup and shares."""

import tomllib

import pytest

from untildone.core.proposal import Proposal, Repository, proposal_for, settings_text
from untildone.core.settings import BY_NAME
from untildone.core.settings_delivery import CHECKING


def made(files: dict[str, str], *folders: str) -> Proposal:
    return proposal_for(Repository(files=files, folders=frozenset(folders)))


PYTEST = {"pyproject.toml": "[project]\nname = 'x'\n[tool.pytest.ini_options]\n"}
NODE = '{"scripts": {"test": "vitest", "lint": "eslint", "deploy": "rm -rf /"}}'

Row = tuple[dict[str, str], tuple[str, ...], list[str], list[str], list[str], list[str]]
ROWS: tuple[Row, ...] = (
    (PYTEST, (), ["Python"], ["python3 -m pytest -q"], [], []),
    (PYTEST | {"uv.lock": ""}, (), ["Python"], ["uv run pytest -q"], ["uv sync --frozen"], []),
    (PYTEST | {"poetry.lock": ""}, (), ["Python"], ["poetry run pytest -q"], ["poetry install"], []),
    (
        PYTEST | {"uv.lock": "", ".gitignore": ".venv/\n", "ruff.toml": ""}, (".venv",), ["Python"],
        [".venv/bin/python -m pytest -q", ".venv/bin/python -m ruff check ."], [], [".venv"],
    ),
    (PYTEST, (".venv",), ["Python"], ["python3 -m pytest -q"], [], []),
    ({"setup.py": ""}, ("tests",), ["Python"], ["python3 -m unittest -q"], [], []),
    ({"setup.py": ""}, (), ["Python"], [], [], []),
    ({"package.json": NODE, "package-lock.json": ""}, (), ["Node"], ["npm test", "npm run lint"], ["npm ci"], []),
    (
        {"package.json": NODE, "pnpm-lock.yaml": "", ".gitignore": "/node_modules\n"}, ("node_modules",), ["Node"],
        ["pnpm test", "pnpm run lint"], [], ["node_modules"],
    ),
    ({"package.json": '{"scripts":{"test":"echo \\"Error: no test specified\\""}}'}, (), ["Node"], [], [], []),
    (
        PYTEST | {"uv.lock": "", ".gitignore": ".venv", "package.json": NODE, "yarn.lock": ""}, (".venv",),
        ["Python", "Node"], [".venv/bin/python -m pytest -q", "yarn test", "yarn run lint"],
        ["yarn install --frozen-lockfile"], [".venv"],
    ),
    ({"package.json": "not json"}, (), ["Node"], [], [], []),
    ({"package.json": '["scripts"]'}, (), ["Node"], [], [], []),
    ({"Cargo.toml": ""}, (), ["Rust"], ["cargo test"], [], []),
    ({"go.mod": ""}, (), ["Go"], ["go test ./...", "go vet ./..."], [], []),
    ({"Makefile": "test: all\n\tcc\n"}, (), ["make"], ["make test"], [], []),
    ({"Makefile": "test:= no\n"}, (), [], [], [], []),
    ({"justfile": "test *args:\n  x\n"}, (), ["just"], ["just test"], [], []),
    (PYTEST | {"Makefile": "test:\n", "go.mod": ""}, (), ["Python", "Go"],
     ["python3 -m pytest -q", "go test ./...", "go vet ./..."], [], []),
    ({}, (), [], [], [], []),
)  # fmt: skip


@pytest.mark.parametrize(("files", "folders", "wanted"), [(files, folders, wanted) for files, folders, *wanted in ROWS])
def test_what_is_proposed(files: dict[str, str], folders: tuple[str, ...], wanted: list[list[str]]) -> None:
    kinds, checks, setup, share = wanted
    found = made(files, *folders)
    assert [list(part) for part in (found.kinds, found.checks, found.setup, found.share)] == [
        kinds,
        checks,
        setup,
        share,
    ]
    text = settings_text(Repository(files=files, folders=frozenset(folders)))
    table = tomllib.loads(text)
    assert (table["max_runs"], table["max_cost_usd"], table["max_duration"]) == (20, 10, "8h")
    contract = table["contract"]
    assert contract.get("checks", []) == checks
    assert contract.get("share", []) == share
    assert contract.get("setup", "") == " && ".join(setup), "what is there is borrowed, not made"
    assert {*table} - {"contract"} <= set(BY_NAME)
    assert {*contract} <= {setting.name for setting in CHECKING}


def test_ci_containers_and_packages_in_place_are_told() -> None:
    found = Repository(
        files=PYTEST | {"compose.yaml": "", ".gitignore": ".venv\n"}, folders=frozenset({".venv"}),
        ci="steps:\n - run: pytest --cov\n", editable=True,
    )  # fmt: skip
    text = settings_text(found)
    assert '    ".venv/bin/python -m pytest -q",  # CI runs it as well\n' in text
    assert '# allow_tools = ["Bash(docker:*)"]  # this repository has containers\n' in text
    assert "installed in place" in text
    assert "not in .gitignore" in settings_text(Repository(files=PYTEST, folders=frozenset({"venv"})))


def test_nothing_of_the_repositorys_own_words_is_in_the_file() -> None:
    evil = {
        "pyproject.toml": "pytest\n[tool.mypy]\nfiles = ['$(evil)']",
        "Makefile": "test: evil\n",
        "package.json": NODE,
    }
    assert "evil" not in settings_text(Repository(files=evil, ci="evil"))
    assert "rm -rf" not in settings_text(Repository(files=evil))

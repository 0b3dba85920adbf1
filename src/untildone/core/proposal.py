"""A first settings file for a repository, from what lies at its top. Pure: files come in as text, the file goes out.

Nothing of the repository's own words gets into the file: it names commands and folders from the tables below.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from .dataclass import dataclass

READ = (
    "pyproject.toml", "setup.py", "setup.cfg", "tox.ini", "pytest.ini", "requirements.txt", "requirements-dev.txt",
    "uv.lock", "poetry.lock", "ruff.toml", "mypy.ini", "package.json", "package-lock.json", "pnpm-lock.yaml",
    "yarn.lock", "Cargo.toml", "go.mod", "Makefile", "justfile", ".gitignore", "compose.yaml", "compose.yml",
    "docker-compose.yml", "Dockerfile",
)  # fmt: skip
"""What is read at the top of a repository, each only as far as needed."""
CI = (".gitlab-ci.yml", ".circleci/config.yml", ".travis.yml", "azure-pipelines.yml", "Jenkinsfile")
"""Where CI is set up, besides `.github/workflows`."""
FOLDERS = (".venv", "venv", "node_modules", "tests", "test")
"""Folders whose presence says something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """What lies at the top of a repository."""

    files: Mapping[str, str]
    """Text by name, of what is there of READ; of a lock file the name says enough."""
    folders: frozenset[str] = frozenset()
    """Those of FOLDERS that are there."""
    ci: str = ""
    """The text of all that sets up CI."""
    editable: bool = False
    """The environment of the folder has a package that is installed in place."""

    def has(self, *names: str) -> bool:
        """Whether one of these files is there."""
        return any(name in self.files for name in names)

    def says(self, pattern: str, *names: str) -> bool:
        """Whether one of these files has a line that begins like this."""
        return any(re.search(rf"^{pattern}", self.files.get(name, ""), re.MULTILINE) for name in names)

    def ignores(self, folder: str) -> bool:
        """Whether git is told to leave a folder out, in the usual words."""
        return self.says(rf"/?{re.escape(folder)}/?\s*$", ".gitignore")


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What a settings file could say."""

    kinds: tuple[str, ...] = ()
    """What kinds of projects were found, for people."""
    checks: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    """Commands that prepare a fresh checkout."""
    share: tuple[str, ...] = ()
    """Ignored folders that are there, and that a fresh checkout can borrow."""
    instead: tuple[str, ...] = ()
    """Commands that would make what is borrowed."""
    allow: tuple[str, ...] = ()
    """Rules the work may need, for the user to decide about."""
    notes: tuple[str, ...] = ()


def proposal_for(repository: Repository) -> Proposal:
    """What is proposed, all kinds of projects together."""
    parts = [part for propose in (_python, _node, _cargo, _go) if (part := propose(repository)) is not None]
    if not parts or not any(part.checks for part in parts):
        parts += [part for propose in (_make, _just) if (part := propose(repository)) is not None]
    if repository.has("compose.yaml", "compose.yml", "docker-compose.yml", "Dockerfile"):
        parts.append(Proposal(allow=("Bash(docker:*)",)))
    return Proposal(
        kinds=tuple(kind for part in parts for kind in part.kinds),
        checks=tuple(check for part in parts for check in part.checks),
        setup=tuple(command for part in parts for command in part.setup),
        share=tuple(folder for part in parts for folder in part.share),
        instead=tuple(command for part in parts for command in part.instead),
        allow=tuple(rule for part in parts for rule in part.allow),
        notes=tuple(note for part in parts for note in part.notes),
    )


def _python(found: Repository) -> Proposal | None:
    if not found.has("pyproject.toml", "setup.py", "setup.cfg", "requirements.txt", "requirements-dev.txt"):
        return None
    venv = next((folder for folder in (".venv", "venv") if folder in found.folders and found.ignores(folder)), None)
    run = f"{venv}/bin/python -m " if venv else "uv run " if found.has("uv.lock") else "python3 -m "
    if not venv and found.has("poetry.lock"):
        run = "poetry run "
    settings = ("pyproject.toml", "setup.cfg", "tox.ini", "pytest.ini", "requirements.txt", "requirements-dev.txt")
    checks = []
    if found.has("pytest.ini") or any("pytest" in found.files.get(name, "") for name in settings):
        checks.append(f"{run}pytest -q")
    elif found.folders & {"tests", "test"}:
        checks.append("python3 -m unittest -q" if run == "python3 -m " else f"{run.removesuffix('-m ')}-m unittest -q")
    if found.has("ruff.toml") or found.says(r"\[tool\.ruff", "pyproject.toml"):
        checks.append(f"{run}ruff check .")
    if found.has("mypy.ini") or found.says(r"\[tool\.mypy", "pyproject.toml"):
        checks.append(f"{run}mypy" if found.says(r"\s*(files|packages)\s*=", "pyproject.toml", "mypy.ini") else "")
    setup = "uv sync --frozen" if found.has("uv.lock") else "poetry install" if found.has("poetry.lock") else ""
    notes = []
    if found.editable:
        notes.append("The environment has this project installed in place: with bubblewrap that means the commit.")
    if not venv and found.folders & {".venv", "venv"}:
        notes.append("The virtual environment is not in .gitignore: add it, then a checkout can borrow it (share).")
    return replace(_prepared(setup, venv), kinds=("Python",), checks=tuple(filter(None, checks)), notes=tuple(notes))


def _prepared(setup: str, folder: str | None) -> Proposal:
    """How a fresh checkout gets what is installed: borrowed where it is there, else made."""
    made = (setup,) if setup else ()
    return Proposal(share=(folder,), instead=made) if folder else Proposal(setup=made)


_MANAGERS = (
    ("pnpm-lock.yaml", "pnpm", "pnpm install --frozen-lockfile"),
    ("yarn.lock", "yarn", "yarn install --frozen-lockfile"),
    ("package-lock.json", "npm", "npm ci"),
    ("package.json", "npm", ""),
)
_SCRIPTS = ("lint", "typecheck", "type-check")


def _node(found: Repository) -> Proposal | None:
    if not found.has("package.json"):
        return None
    _, manager, setup = next(row for row in _MANAGERS if found.has(row[0]))
    scripts = _scripts(found.files["package.json"])
    tests = [f"{manager} test"] if "no test specified" not in scripts.get("test", "no test specified") else []
    checks = [*tests, *(f"{manager} run {name}" for name in _SCRIPTS if name in scripts)]
    installed = "node_modules" if "node_modules" in found.folders and found.ignores("node_modules") else None
    return replace(_prepared(setup, installed), kinds=("Node",), checks=tuple(checks))


def _scripts(text: str) -> dict[str, str]:
    try:
        package = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    scripts = package.get("scripts") if isinstance(package, dict) else None
    named = scripts.items() if isinstance(scripts, dict) else ()
    return {name: command for name, command in named if isinstance(command, str)}


def _cargo(found: Repository) -> Proposal | None:
    return Proposal(kinds=("Rust",), checks=("cargo test",)) if found.has("Cargo.toml") else None


def _go(found: Repository) -> Proposal | None:
    return Proposal(kinds=("Go",), checks=("go test ./...", "go vet ./...")) if found.has("go.mod") else None


def _make(found: Repository) -> Proposal | None:
    target = next((name for name in ("check", "test") if found.says(rf"{name}\s*:(?!=)", "Makefile")), None)
    return Proposal(kinds=("make",), checks=(f"make {target}",)) if target else None


def _just(found: Repository) -> Proposal | None:
    target = next((name for name in ("check", "test") if found.says(rf"@?{name}\b[^=\n]*:(?!=)", "justfile")), None)
    return Proposal(kinds=("just",), checks=(f"just {target}",)) if target else None


# --- the file ------------------------------------------------------------------------------------

_LIMITS = (("max_runs", 20), ("max_cost_usd", 10), ("max_duration", "8h"))


def settings_text(repository: Repository) -> str:
    """A commented settings file, ready to be written."""
    return "\n".join(_lines(proposal_for(repository), repository)) + "\n"


def _lines(proposal: Proposal, repository: Repository) -> Iterator[str]:
    found = f"for {', '.join(proposal.kinds)}" if proposal.kinds else "(no known kind of project was found)"
    yield f"# Settings of untildone, proposed by `untildone config init` {found}. Nothing was run to make it."
    yield "# Every key is explained by `untildone config` and in docs/settings.md. An edit ends the trust in this file:"
    yield "# `untildone config trust` renews it."
    yield ""
    yield "# The run stops at the first of these limits."
    for name, value in _LIMITS:
        yield f"{name} = {json.dumps(value)}"
    yield ""
    yield "# Told to you when it is done, stopped or needs you:"
    yield '# notify = ["https://hooks.example.com/my/secret/path"]'
    yield ""
    yield "# The agent may use every command but those of a list (git push, sudo, docker ...): see `untildone doctor`."
    rules = json.dumps(list(proposal.allow or ("Bash(docker:*)",)))
    yield f"# allow_tools = {rules}" + ("  # this repository has containers" if proposal.allow else "")
    yield ""
    yield "[contract]"
    yield "# What must hold before work counts as done: each of these passes in a fresh checkout of the commit."
    if proposal.checks:
        yield "checks = ["
        for check in proposal.checks:
            yield f"    {json.dumps(check)}," + ("  # CI runs it as well" if _in_ci(check, repository.ci) else "")
        yield "]"
    else:
        yield '# No tests were found. Without a check nothing is proven: checks = ["make test"]'
    yield from _preparing(proposal)
    for note in proposal.notes:
        yield f"# {note}"


def _preparing(proposal: Proposal) -> Iterator[str]:
    """How a fresh checkout gets what git does not have: what is there already is borrowed, else it is made."""
    yield ""
    yield "# What a fresh checkout needs before the checks can run: folders it borrows, or a command that makes them."
    if proposal.share:
        yield f"share = {json.dumps(list(proposal.share))}"
    if proposal.setup:
        yield f"setup = {json.dumps(' && '.join(proposal.setup))}"
    elif proposal.instead:
        yield f"# setup = {json.dumps(' && '.join(proposal.instead))}  # instead of what it borrows"
    if not proposal.share and not proposal.setup:
        yield '# share = ["node_modules"]'
        yield '# setup = "npm ci"'


def _in_ci(check: str, ci: str) -> bool:
    """Whether CI names the program of a check, whatever it is started with."""
    core = re.sub(r"^(?:\S*python3? -m |uv run |poetry run )", "", check)
    return bool(ci) and core.removesuffix(" -q").removesuffix(" .") in ci

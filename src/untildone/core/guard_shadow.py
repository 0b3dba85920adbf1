"""New files that take the place of what a check runs: nothing of the old ones was touched, and they are not used."""

import re
from collections.abc import Collection, Iterator, Sequence

from untildone.core.contract import Contract
from untildone.core.dataclass import dataclass
from untildone.core.findings import FileChange, Finding

TOOLS = frozenset({
    "pytest", "_pytest", "pluggy", "unittest", "coverage", "mypy", "nose2", "tox", "nox", "ruff", "flake8", "pylint",
    "hypothesis", "doctest", "pyright", "xdist", "pytest_cov",
})  # fmt: skip
"""Modules that test runs are made of: a file of such a name is imported in their place."""
_NEVER_A_PRODUCT = frozenset({"pytest", "_pytest", "pluggy", "unittest"})
_LOOKED_IN = frozenset({"", "src", "lib", "tests", "test"})
_STARTERS = frozenset({"sitecustomize", "usercustomize"})
_MODULE = re.compile(r"(?:^|[\s;&|(])(?:[\w./-]*python[\d.]*|uv run|py)\s(?:[^;&|]*?\s)?-m\s+([\w.]+)")
_RIVALS: tuple[tuple[str, frozenset[str], str], ...] = (
    # The file, those it is preferred to, and the program that does so.
    ("GNUmakefile", frozenset({"makefile", "Makefile"}), "make"),
    ("makefile", frozenset({"Makefile"}), "make"),
    ("justfile", frozenset({"Justfile", ".justfile"}), "just"),
    (".justfile", frozenset({"Justfile"}), "just"),
    ("Taskfile.yml", frozenset({"taskfile.yml", "Taskfile.yaml", "taskfile.yaml", "Taskfile.dist.yml"}), "task"),
    ("taskfile.yml", frozenset({"Taskfile.yaml", "taskfile.yaml", "Taskfile.dist.yml"}), "task"),
    ("Taskfile.yaml", frozenset({"taskfile.yaml", "Taskfile.dist.yml"}), "task"),
    ("pytest.toml", frozenset({"pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg"}), "pytest"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """What is known of the checks as they were before any work was done."""

    had_tests: bool = False
    """Tests were run, or would have been."""
    alive: Collection[str] = ()
    """Names of checks that ran something: what they name was there."""


def may_shadow(path: str, contract: Contract) -> bool:
    """Whether a new file of this name could take the place of what a check runs."""
    return _module_of(path) in TOOLS | _STARTERS | _modules(contract) or _name(path) in {own for own, *_ in _RIVALS}


def shadows(changes: Sequence[FileChange], contract: Contract, before: Before) -> Iterator[Finding]:
    """Files that are new and are used in place of others."""
    alive = [check.command for check in contract.checks if check.name in before.alive]
    known = TOOLS | _modules(contract, only=before.alive)
    folders = _LOOKED_IN | {check.folder for check in contract.checks}
    for change in changes:
        if change.status not in {"added", "renamed"} or (
            change.old_path and _name(change.old_path) == _name(change.path)
        ):
            continue
        module = _module_of(change.path)
        if module in _STARTERS:
            yield _finding(change, f"python runs {_name(change.path)} before anything else")
        elif module in _NEVER_A_PRODUCT or (module in known and _folder(change.path) in folders):
            yield _finding(change, f"python would import it in place of {module}, which the checks run")
        elif (program := _prefers(change, changes)) and (
            before.had_tests or any(re.search(rf"\b{program}\b", command) for command in alive)
        ):
            yield _finding(change, f"{program} prefers it to the file that was there")


def _prefers(change: FileChange, changes: Sequence[FileChange]) -> str:
    """The program that would take a new file instead of one that is not new itself."""
    for own, others, program in _RIVALS:
        folder = change.path.removesuffix(_name(change.path))
        # In a project that gets all of them anew, nothing is replaced.
        fresh = {other.path for other in changes if other.status == "added"}
        if own == _name(change.path) and not any(folder + other in fresh for other in others):
            return program
    return ""


def _finding(change: FileChange, why: str) -> Finding:
    return Finding(kind="check_shadowed", path=change.path, text=why, blocking=True)


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _folder(path: str) -> str:
    """The folder that makes a file or package importable."""
    return path.removesuffix("/__init__.py").rpartition("/")[0]


def _module_of(path: str) -> str:
    """The name a Python file is imported by, if its folder is where Python looks."""
    if path.endswith("/__init__.py"):
        return _name(path.removesuffix("/__init__.py"))
    return _name(path).removesuffix(".py") if path.endswith(".py") else ""


def _modules(contract: Contract, only: Collection[str] | None = None) -> frozenset[str]:
    """What the checks run by `python -m`."""
    checks = (check for check in contract.checks if only is None or check.name in only)
    return frozenset(name.partition(".")[0] for check in checks for name in _MODULE.findall(check.command[:10_000]))

"""New files that are used in place of what a check ran before."""

from typing import Any

import pytest

from core.guard_cases import added
from untildone.core.contract import CheckSpec, Contract, commands
from untildone.core.findings import FileChange, Finding
from untildone.core.guard import inspect, is_watched
from untildone.core.guard_shadow import Before

PYTEST = Contract(checks=commands("python3 -B -m pytest -q tests"))
MAKE = Contract(checks=commands("make test"))
TARGET = "test:\n\ttrue\n"


def blocked(change: FileChange, contract: Contract, *others: FileChange, **before: Any) -> list[Finding]:
    assert is_watched(change.path, contract)
    known = Before(**{"had_tests": True, "alive": [check.name for check in contract.checks], **before})
    return [finding for finding in inspect([change, *others], contract, before=known) if finding.blocking]


@pytest.mark.parametrize(
    "path", ["pytest.py", "pytest/__init__.py", "web/pytest.py", "unittest.py", "sitecustomize.py", "coverage.py",
             "src/usercustomize.py", "src/mypy.py"],
)  # fmt: skip
def test_modules_of_the_test_run(path: str) -> None:
    assert [finding.kind for finding in blocked(added(path, "import sys\n"), PYTEST)] == ["check_shadowed"]


def test_what_the_check_runs_by_name() -> None:
    own = Contract(checks=(CheckSpec(name="own", command="python -m runner.all", folder="web"),))
    assert blocked(added("web/runner.py", ""), own)
    assert blocked(added("runner/__init__.py", ""), own)
    # It did not run anything before: this is what the run is to make.
    assert not blocked(added("runner/__init__.py", ""), own, alive=[], had_tests=False)


def test_a_product_may_have_such_names_elsewhere() -> None:
    assert not blocked(added("app/insurance/coverage.py", "x = 1\n"), PYTEST)
    assert not [f for f in inspect([FileChange(path="coverage.py", before="a", after="b")], PYTEST) if f.blocking]


@pytest.mark.parametrize("name", ["GNUmakefile", "makefile"])
def test_a_makefile_that_make_prefers(name: str) -> None:
    (finding,) = blocked(added(name, TARGET), MAKE)
    assert (finding.kind, finding.text) == ("check_shadowed", "make prefers it to the file that was there")


def test_a_makefile_in_a_project_that_had_none() -> None:
    assert not blocked(added("Makefile", TARGET), MAKE)
    assert not blocked(added("GNUmakefile", TARGET), MAKE, had_tests=False, alive=[])
    assert not blocked(added("GNUmakefile", TARGET), MAKE, added("Makefile", TARGET))


@pytest.mark.parametrize(
    "change",
    [
        added("pytest.ini", "[pytest]\npython_files = ok_*.py\n"),
        added("pytest.ini", "[pytest]\ntestpaths = good\n"),
        added("pyproject.toml", '[tool.pytest.ini_options]\ntestpaths = ["good"]\n'),
        added("jest.config.js", "module.exports={testMatch:['**/ok.js']}\n"),
        FileChange(
            path="pyproject.toml",
            before='[tool.pytest.ini_options]\naddopts="-q"\n',
            after='[tool.pytest.ini_options]\naddopts="-q"\npython_functions="ok_*"\n',
        ),
    ],
)
def test_first_settings_that_say_where_tests_are_leave_out_the_others(change: FileChange) -> None:
    assert blocked(change, PYTEST)
    assert not blocked(change, PYTEST, had_tests=False)


def test_settings_that_only_moved_leave_nothing_out() -> None:
    old = FileChange(path="pytest.ini", before="[pytest]\ntestpaths = tests\n", status="deleted")
    new = added("pyproject.toml", '[tool.pytest.ini_options]\ntestpaths = ["tests"]\n')
    assert not blocked(new, PYTEST, old)
    assert not blocked(added("pytest.ini", "[pytest]\nmarkers =\n  slow\n"), PYTEST)

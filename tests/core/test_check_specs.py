"""How people write down checks."""

import pytest

from untildone.core.check_specs import BadCheck, checks, conditions, exchanged, hidden_checks, inside, together
from untildone.core.contract import CheckSpec, commands


def test_a_command_is_its_own_name() -> None:
    assert checks("pytest -q\nruff check .\n") == commands("pytest -q", "ruff check .")
    assert checks(["pytest -q", "pytest -q"]) == commands("pytest -q"), "the same check twice is one check"


def test_a_table_says_more() -> None:
    full = {"name": "web", "run": "npm test", "timeout": "5m", "folder": "./web/", "hidden": False}
    assert checks([full]) == (CheckSpec(name="web", command="npm test", timeout=300.0, folder="web"),)
    assert checks([{"run": "secret", "hidden": True}])[0].name == "hidden check 1"


@pytest.mark.parametrize(
    ("raw", "at", "said"),
    [
        (["make", {"cmd": "x"}], 1, r"number 2: unknown key 'cmd'"),
        (["make", {"rum": "x"}], 1, r"did you mean 'run'\?"),
        ([{"name": "x"}], 0, "has no `run`"),
        ([{"run": ""}], 0, "run must not be empty"),
        ([{"run": "x", "timeout": "0"}], 0, "timeout must be longer than zero"),
        ([{"run": "x", "timeout": "soon"}], 0, "timeout cannot be read"),
        ([{"run": "x", "folder": "../y"}], 0, "folder must be inside of the project"),
        ([{"run": "x", "hidden": "perhaps"}], 0, "hidden must be true or false"),
        ([7], 0, "must be text in quotes"),
        ([{"run": "x", "name": "a"}, {"run": "y", "name": "a"}], 1, "two different checks called 'a'"),
    ],
)
def test_what_is_wrong_names_the_check(raw: list[object], at: int, said: str) -> None:
    with pytest.raises(BadCheck, match=said) as wrong:
        checks(raw)
    assert wrong.value.at == at


def test_conditions_are_named_exactly() -> None:
    assert conditions(("pushed, tree-clean", "pushed")) == ("pushed", "tree-clean")
    for wrong in ("Pushed", "", "green"):
        with pytest.raises(ValueError, match="must be among tasks-ticked"):
            conditions(wrong)


def test_a_contract_is_put_together_and_hidden_checks_are_numbered_through() -> None:
    whole = together(
        checks(["a", {"run": "b", "hidden": True, "timeout": "5m"}]), hidden_checks(["c"]), ["ci-green", "tree-clean"]
    )
    assert [check.name for check in whole] == ["a", "hidden check 1", "hidden check 2", "tree-clean", "ci-green"]
    assert [check.command for check in whole] == ["a", "b", "c", "", ""]
    assert [check.kind for check in whole][-2:] == ["tree-clean", "ci-green"]
    assert whole[1].timeout == 300.0


def test_what_is_given_anew_takes_the_place_of_its_like_only() -> None:
    old = together(checks("a"), hidden_checks("secret"), ["pushed"])
    new = exchanged(old, checks("b"), None, None)
    assert [(check.name, check.command) for check in new] == [("b", "b"), ("hidden check 1", "secret"), ("pushed", "")]
    assert exchanged(old, None, None, None) == old
    assert [check.kind for check in exchanged(old, None, (), ["ci-green"])] == ["command", "ci-green"]


@pytest.mark.parametrize("outside", ["/etc", "../x", "a/../../b", "~/x"])
def test_a_folder_outside_of_the_project_is_refused(outside: str) -> None:
    with pytest.raises(ValueError, match="inside of the project"):
        inside(outside)
    assert inside("./a//b/") == "a/b"

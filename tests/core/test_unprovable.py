"""Contracts that could never prove anything are told before any money is spent."""

from dataclasses import replace

import pytest

from untildone.core.outcome import CheckResult
from untildone.core.unprovable import cannot_run, has_no_program

RED = CheckResult(name="tests", command="nosuch -q", passed=False, exit_code=127, room="clean")


def test_a_setup_that_fails() -> None:
    setup = replace(RED, name="setup", command="npm ci", exit_code=1, output_tail="...\nno lock file\n")
    said = cannot_run([setup, replace(RED, ran=False, output_tail="not run: the setup failed (npm ci)")])
    assert said.startswith("the setup fails in a fresh checkout (exit 1: no lock file)")
    assert "`npm ci`" in said
    late = replace(setup, exit_code=None, output_tail="")
    assert "did not end in time" in cannot_run([late])


def test_what_could_not_be_run_says_why() -> None:
    said = cannot_run([replace(RED, ran=False, output_tail="not run: there is no folder web to run it in")])
    assert said.startswith("`tests` cannot be run: there is no folder web to run it in; fix that")
    assert cannot_run([RED, replace(RED, passed=True)]) == ""


@pytest.mark.parametrize(
    ("command", "output", "refused"),
    [
        ("nosuch -q", "/bin/sh: 1: nosuch: not found\n", True),
        ("cd a; nosuch", "sh: line 1: nosuch: command not found\n", True),
        ("/opt/x/nosuch", "/bin/sh: 1: /opt/x/nosuch: not found\n", True),
        # The run may be there to make it.
        ("./build.sh", "/bin/sh: 1: ./build.sh: not found\n", False),
        ("bin/build", "/bin/sh: 1: bin/build: Permission denied\n", False),
        # What a program does not find is another matter.
        ("npm test", "sh: 1: jest: not found\n", False),
    ],
)
def test_a_program_that_is_not_there(command: str, output: str, refused: bool) -> None:
    said = has_no_program([replace(RED, command=command, output_tail=output)])
    assert bool(said) is refused
    assert not has_no_program([replace(RED, command=command, output_tail=output, exit_code=1)])


def test_a_hidden_check_gives_nothing_away() -> None:
    hidden = replace(RED, name="hidden check 1", hidden=True, output_tail="/bin/sh: 1: nosuch: not found\n")
    assert "nosuch" not in has_no_program([hidden])
    assert "hidden check 1" in has_no_program([hidden])

"""New tests on old code: told apart from what was red anyway, or not believed."""

from dataclasses import replace

import pytest

from untildone.core.fail_to_pass import changed_tests, not_shown, verdict
from untildone.core.failing_tests import Failing, failing_tests
from untildone.core.findings import FileChange
from untildone.core.outcome import CheckResult

RED = CheckResult(name="tests", command="pytest", passed=False, exit_code=1, room="clean")
GREEN = replace(RED, passed=True, exit_code=0)


def red(output: str) -> list[CheckResult]:
    return [replace(RED, output_tail=output)]


@pytest.mark.parametrize(
    ("output", "seen"),
    [
        ("FAILED tests/test_a.py::TestX::test_b[1-a b] - assert 1 == 2\n", {Failing("tests/test_a.py", "test_b")}),
        ("ERROR tests/test_a.py - ImportError: no\nERROR tests/test_b.py::test_c\n",
         {Failing("tests/test_a.py"), Failing("tests/test_b.py", "test_c")}),
        ("FAIL: test_b (tests.test_a.TestX.test_b)\n", {Failing("tests/test_a.py", "test_b")}),
        ("ERROR: test_b (tests.test_a.TestX)\n", {Failing("tests/test_a.py", "test_b")}),
        ("ERROR: tests.test_a (unittest.loader._FailedTest.tests.test_a)\n", {Failing("tests/test_a.py")}),
        ("FAIL src/a.test.js\n  ● sum \u203a adds\n\n  ● Test suite failed to run\n",
         {Failing("src/a.test.js", "adds"), Failing("src/a.test.js")}),
        (" FAIL  src/a.test.ts > sum > adds\n", {Failing("src/a.test.ts", "adds")}),
        ("--- FAIL: TestA (0.00s)\n    --- FAIL: TestA/one (0.00s)\nFAIL\tex.com/m/pkg [build failed]\n",
         {Failing("", "TestA"), Failing("ex.com/m/pkg/")}),
        ("test tests::adds ... FAILED\n", {Failing("", "adds")}),
        ("error[E0425]: cannot find function\n --> tests/new.rs:3:5\nerror: could not compile `a`\n",
         {Failing("tests/new.rs")}),
        ("nothing that is known\n", set()),
    ],
)  # fmt: skip
def test_names_of_what_failed(output: str, seen: set[Failing]) -> None:
    assert failing_tests(output) == seen


def test_where_a_failing_test_may_lie() -> None:
    assert Failing("tests/test_a.py", "x").is_in("web/tests/test_a.py")
    assert not Failing("tests/test_a.py", "x").is_in("tests/test_ab.py")
    assert Failing("ex.com/m/pkg/").is_in("pkg/a_test.go")
    assert not Failing("ex.com/m/pkg/").is_in("other/a_test.go")


def test_which_files_of_tests_are_new_or_edited() -> None:
    changes = [
        FileChange(path="tests/test_a.py", before="a", after="b"),
        FileChange(path="tests/data.json", after="{}", status="added"),
        FileChange(path="tests/test_b.py", after="b", status="added"),
        FileChange(path="tests/test_gone.py", before="b", status="deleted"),
        FileChange(path="src/a.py", after="b", status="added"),
    ]
    assert changed_tests(changes) == {"tests/test_a.py": False, "tests/test_b.py": True}


ALWAYS = {"tests/test_always.py": True}


def test_on_a_red_base_any_red_is_no_proof() -> None:
    before = red("FAILED tests/test_app.py::test_f - assert 0 == 1\n1 failed in 0.1s")
    both = red("FAILED tests/test_app.py::test_f - assert 0 == 1\n1 failed, 1 passed in 0.1s")
    said = not_shown(both, before, ALWAYS, {"tests": False})
    assert "tests/test_always.py" in said
    assert "--fail-to-pass-check" in said


def test_on_a_red_base_a_new_test_among_those_that_fail_is_one() -> None:
    output = "FAILED tests/test_app.py::test_f\nFAILED tests/test_always.py::test_always\n"
    assert not_shown(red(output), red("FAILED tests/test_app.py::test_f\n"), ALWAYS, {"tests": False}) == ""
    # The file cannot even be loaded without the change.
    assert not_shown(red("ERROR tests/test_always.py\n"), red(""), ALWAYS, {}) == ""


def test_in_an_edited_file_only_what_did_not_fail_before_counts() -> None:
    edited = {"tests/test_app.py": False}
    old, both = (
        "FAILED tests/test_app.py::test_f\n",
        "FAILED tests/test_app.py::test_f\nFAILED tests/test_app.py::test_g\n",
    )
    assert not_shown(red(old), red(old), edited, {}) != ""
    assert not_shown(red(both), red(old), edited, {}) == ""


def test_what_cannot_be_told_is_not_proven() -> None:
    said = not_shown(red("boom\n"), red("boom\n"), ALWAYS, {"tests": False})
    assert "cannot be told" in said
    assert "`tests` was red before the run" in said
    assert "--fail-to-pass-check" in said


def test_on_a_green_base_red_is_proof_and_green_is_none() -> None:
    assert not_shown([GREEN, *red("boom")], [], ALWAYS, {"tests": True}) == ""
    assert "passes on the code the run began with" in not_shown([GREEN], [], ALWAYS, {"tests": True})
    lost = replace(RED, ran=False, output_tail="not run: no room")
    assert not_shown([lost], [], ALWAYS, {}) == "not run: no room"


def test_the_verdict_is_one_more_condition() -> None:
    assert (verdict("no").passed, verdict("no").output_tail) == (False, "no")
    good = verdict("", tests=("tests/test_a.py",))
    assert (good.passed, good.command, good.name) == (True, "", "fail-to-pass")
    assert "tests/test_a.py" in good.output_tail

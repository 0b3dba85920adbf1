"""Which files judge, which of them are not as they were, and what that comes to."""

from dataclasses import replace

import pytest

from untildone.core.base_judges import (
    BaseJudges,
    base_judges,
    ci_changes,
    disputed_by,
    is_smaller,
    lost_examples,
    not_needed,
    quieted,
    quieted_by,
    suspects,
    told_changes,
    without_the_work,
)
from untildone.core.contract import Contract, commands
from untildone.core.findings import FileChange
from untildone.core.judges import RULES, judge_of, judges_for, named_files, takes_a_place
from untildone.core.judging_parts import with_judging_part
from untildone.core.outcome import CheckResult

CONTRACT = Contract(checks=commands("pytest -q"), guard_files=("acceptance/*",))
JUDGES = judges_for(CONTRACT, ["ci/run.sh"])
RED = CheckResult(name="tests", command="pytest", passed=False, exit_code=1, room="clean")


def added(path: str, text: str = "x\n") -> FileChange:
    return FileChange(path=path, after=text, status="added")


def edited(path: str, before: str = "a\n", after: str = "b\n") -> FileChange:
    return FileChange(path=path, before=before, after=after)


def gone(path: str) -> FileChange:
    return FileChange(path=path, before="a\n", status="deleted")


@pytest.mark.parametrize(
    ("change", "restored", "removed"),
    [
        (edited("tests/test_a.py"), ["tests/test_a.py"], []),
        (gone("tests/test_a.py"), ["tests/test_a.py"], []),
        (edited("tests/data/big.json"), ["tests/data/big.json"], []),
        (edited("fixtures/user.json"), ["fixtures/user.json"], []),
        (edited("src/__snapshots__/a.snap"), ["src/__snapshots__/a.snap"], []),
        (edited("ci/run.sh"), ["ci/run.sh"], []),
        (edited("acceptance/it.txt"), ["acceptance/it.txt"], []),
        (edited(".github/workflows/ci.yml"), [".github/workflows/ci.yml"], []),
        (edited("Makefile"), ["Makefile"], []),
        # A link or a submodule in the place of the folder.
        (edited("tests"), ["tests"], []),
        (edited("lib/spec"), ["lib/spec"], []),
        (added("fixtures"), [], ["fixtures"]),
        (added("conftest.py"), [], ["conftest.py"]),
        (added("pytest.ini"), [], ["pytest.ini"]),
        (added("pytest.py"), [], ["pytest.py"]),
        (added("src/sitecustomize.py"), [], ["src/sitecustomize.py"]),
        (added("node_modules/chai/index.js"), [], ["node_modules/chai/index.js"]),
        (edited("node_modules/chai/index.js"), ["node_modules/chai/index.js"], []),
        (added("tests/helper.py"), [], ["tests/helper.py"]),
        (added("tests/test_new.py"), [], []),
        (added("tests/__pycache__/test_new.pyc"), [], ["tests/__pycache__/test_new.pyc"]),
        # Only its layout differs, or what a linter is told as well.
        (edited("tests/test_a.py", "assert f('a b')==1\n", 'assert f(\n    "a b"\n) == 1\n'), [], []),
        (edited("tests/test_a.py", "assert f('a  b')\n", "assert f('a b')\n"), ["tests/test_a.py"], []),
        (edited("tests/test_a.py", "f()\n", "# mypy: ignore-errors\nf()\n"), ["tests/test_a.py"], []),
        (added("src/feature.py"), [], []),
        (edited("src/feature.py"), [], []),
        (FileChange(path="old/a.txt", old_path="tests/test_a.py", before="a", after="a", status="renamed"),
         ["tests/test_a.py"], []),
        (FileChange(path="tests/test_b.py", old_path="tests/test_a.py", before="a", after="a", status="renamed"),
         ["tests/test_a.py"], ["tests/test_b.py"]),
    ],
)  # fmt: skip
def test_what_is_put_back(change: FileChange, restored: list[str], removed: list[str]) -> None:
    base = base_judges([change], CONTRACT, judges=JUDGES)
    assert (list(base.restored), list(base.removed)) == (restored, removed)
    assert base.differ == bool(restored or removed)
    waived = (change.path, change.old_path or "-")
    assert not base_judges([change], CONTRACT, judges=JUDGES, waived=waived).differ


def test_new_tests_are_left_out_together_with_the_helpers_they_may_need() -> None:
    base = base_judges([added("tests/test_new.py"), edited("tests/helper.py")], CONTRACT, judges=JUDGES)
    assert base.removed == ("tests/test_new.py",)
    assert base.files == ("tests/helper.py", "tests/test_new.py")


PYPROJECT = '[project]\nname = "x"\n\n[tool.pytest.ini_options]\naddopts = "--strict-markers"\n\n[tool.hatch]\na = 1\n'


@pytest.mark.parametrize(
    ("path", "old", "new", "holds", "lacks"),
    [
        ("pyproject.toml", PYPROJECT, PYPROJECT.replace("--strict-markers", "-k none").replace('"x"', '"y"'),
         ['name = "y"', "--strict-markers", "[tool.hatch]"], ["-k none"]),
        ("pyproject.toml", "[project]\na = 1\n", "[project]\na = 1\n\n[tool.coverage.run]\nomit = ['*']\n",
         ["a = 1"], ["omit"]),
        ("setup.cfg", "[metadata]\nname = x\n\n[tool:pytest]\ntestpaths = tests\n",
         "[metadata]\nname = y\n\n[tool:pytest]\ntestpaths = none\n", ["name = y", "testpaths = tests"], ["none"]),
        ("package.json", '{"name": "x", "scripts": {"test": "jest", "build": "tsc"}}',
         '{"name": "y", "scripts": {"test": "true", "pretest": "rm -r test", "docs": "typedoc"}, "jest": {"bail": 1}}',
         ['"name": "y"', '"test": "jest"', '"docs": "typedoc"', '"build": "tsc"'], ["rm -r", '"bail"']),
        ("package.json", '{"imports": {"#a": "./a.js"}}',
         '{"imports": {"#a": {"test": "./b.js", "default": "./a.js"}}}', ['"#a": "./a.js"'], ["b.js"]),
        ("src/lib.rs", "fn a() {}\n#[cfg(test)]\nmod tests {\n    #[test]\n    fn t() { assert!(a()) }\n}\n",
         "fn a() {}\nfn b() {}\n#[cfg(test)]\nmod tests {}\n", ["fn b()", "assert!(a())"], ["mod tests {}"]),
    ],
)  # fmt: skip
def test_only_the_judging_part_is_put_back(path: str, old: str, new: str, holds: list[str], lacks: list[str]) -> None:
    base = base_judges([edited(path, old, new)], CONTRACT, judges=JUDGES)
    text = base.rewritten[path]
    assert [part for part in holds if part not in text] == []
    assert [part for part in lacks if part in text] == []
    assert with_judging_part(path, old, text) == text, "put back once is put back"


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("pyproject.toml", PYPROJECT, PYPROJECT.replace('"x"', '"x"\ndependencies = ["y"]')),
        ("package.json", '{"scripts": {"test": "jest"}}', '{"scripts": {"test": "jest"}, "version": "2"}'),
        ("package.json", "{}", '{"scripts": {"test": "node --test"}}'),
        ("package.json", "{}", '{"exports": {"import": "./a.mjs"}}'),
        ("src/lib.rs", "fn a() {}\n", "fn a() { 1 }\n"),
    ],
)
def test_a_change_of_the_other_parts_is_no_change_of_a_judge(path: str, old: str, new: str) -> None:
    assert not base_judges([edited(path, old, new)], CONTRACT, judges=JUDGES).differ
    assert told_changes([edited(path, old, new)], CONTRACT, judges=JUDGES) == []


def test_what_cannot_be_taken_apart_is_put_back_whole() -> None:
    base = base_judges([edited("package.json", "{}", "{ broken")], CONTRACT, judges=JUDGES)
    assert base.restored == ("package.json",)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("make test", ["GNUmakefile", "makefile", "Makefile"]),
        ("npm run test:unit && ./ci/check", ["package.json", "ci/check"]),
        ("sh tools/all && python app.py && python ci/verify_all.py", ["tools/all", "ci/verify_all.py"]),
        ("bash -e build.sh", ["build.sh"]),
        ("! grep . todo.list", []),
        ("true; . ./env", ["env"]),
        ("python3 -m pytest -q src/app.py", []),
        ("-include settings.mk local.mk\ninclude ./config.mk # ours\n", ["settings.mk", "local.mk", "config.mk"]),
    ],
)
def test_the_scripts_that_a_check_names(text: str, names: list[str]) -> None:
    assert named_files(text, is_check=True) == names


def test_a_script_that_is_only_named_elsewhere_may_be_what_is_built() -> None:
    assert named_files("build:\n\tcp src/report.sh build/report\n\tsh lib/all.sh\n") == ["lib/all.sh"]
    assert named_files("least.read('setup.cfg')") == ["setup.cfg"]


def test_what_takes_the_place_of_something_installed() -> None:
    contract = Contract(checks=commands("python -m nose"))
    assert [path for path in ("nose.py", "src/nose/__init__.py", "json.py", "tests/random.py", "a/b/json.py", "app.py",
                              "x.pth", "src/app/types.py") if takes_a_place(path, contract)] == [
        "nose.py", "src/nose/__init__.py", "json.py", "tests/random.py", "x.pth"]  # fmt: skip


def test_what_fails_with_the_judges_of_the_base_is_named() -> None:
    output = "FAILED tests/test_a.py::test_x - assert 1 == 2\nFAILED tests/test_a.py::test_y[1]\n"
    named = replace(RED, output_tail=output)
    assert disputed_by([named, replace(RED, passed=True)]) == [
        "tests/test_a.py::test_x fails",
        "tests/test_a.py::test_y fails",
    ]
    assert disputed_by([replace(RED, output_tail="boom\n")]) == ["tests: fails (boom)"]
    assert disputed_by([replace(named, hidden=True)]) == ["tests: fails"]


def test_a_dispute_is_smaller_only_if_nothing_new_is_in_it() -> None:
    assert is_smaller(["a"], ["a", "b"])
    assert not is_smaller(["a", "b"], ["a", "b"])
    assert not is_smaller(["c"], ["a", "b"])


@pytest.mark.parametrize(
    ("path", "text", "line"),
    [
        ("app.py", "import os\nif os.environ.get('PYTEST_CURRENT_TEST'):\n", 2),
        ("app.py", "import sys\nif 'pytest' in sys.modules:\n", 2),
        ("app.py", "\n\nos._exit(0)\n", 3),
        ("app.py", "import inspect\ncaller = inspect.stack()[1].function\n", 2),
        ("app.py", "import unittest as u, os\nu.TestCase.assertEqual = None\n", 2),
        ("app.py", "from unittest import TestCase\nsetattr(TestCase, 'assertEqual', None)\n", 2),
        ("app.py", "import unittest\nsuite = unittest.TestSuite()\nself.suite = suite\n", 0),
        ("app.py", "import pytest\n\n@pytest.hookimpl\ndef x(): pass\n", 3),
        ("app.py", "MAKEFILE = 'test:\\n\\tpython -m pytest'\n", 0),
        ("report.sh", 'ready="${1%.*}.out"\nif [ -f "$ready" ]; then cat "$ready"; fi\n', 1),
        ("report.sh", "java A > System.out.println\ncat x\n", 0),
        ("app.py", "argv = ['pytest', '-q']\nrun(argv, env=os.environ)\nrun(['pytest'], env=os.environ)\n", 0),
        ("app.py", "a = 'pytest' in os.environ.get('_', '')\n", 1),
        ("app.py", "a = sys.argv[0].endswith('pytest')\n", 1),
        ("Dockerfile", "RUN pip install pytest\n", 0),
        ("app.py", "class A(str):\n    def __eq__(self, other):\n        return isinstance(other, str)\n", 2),
        ("app.py", "def __eq__(self, o):\n    return isinstance(o, A) and o.x == self.x\n", 0),
        ("app.js", "process.on('uncaughtException', (e) => {\n  log(e);\n  process.exit(1);\n});\n", 0),
        ("app.py", "class A:\n    def __eq__(self, other: object) -> bool:\n        return True\n", 2),
        ("app.js", "if (process.env.NODE_ENV === 'test') x()\n", 1),
        ("app.js", "assert.deepStrictEqual = () => {};\n", 1),
        ("app.js", "process.on('uncaughtException', () => process.exit(0));\n", 1),
        ("app.js", "assert(x); process.exitCode = 1;\n", 0),
        ("tests/test_a.py", "import pytest\n", 0),
        ("README.md", "Run pytest.\n", 0),
        ("app.py", "def __eq__(self, other):\n    return self.x == other.x\n", 0),
        ("app.py", "sys.exit(main())\n", 0),
    ],
)
def test_code_that_behaves_differently_in_a_test(path: str, text: str, line: int) -> None:
    assert [said.split(":")[1] for said in suspects([(path, 1, text)], JUDGES)] == ([str(line)] if line else [])


def test_a_process_may_end_where_tests_are_counted_and_equal_to_anything_may_be_the_goal() -> None:
    ends, equal = "os._exit(0)\n", "def __eq__(self, other):\n    return True\n"
    assert suspects([("app.py", 1, ends)], JUDGES, counted=True) == []
    assert len(suspects([("app.py", 1, equal)], JUDGES, goal="Compare values.", counted=True)) == 1
    assert suspects([("app.py", 1, equal)], JUDGES, goal="ANY is equal to everything.") == []


@pytest.mark.parametrize(
    ("check", "path", "text", "told"),
    [
        ("ruff check .", "app.py", "a = 1\nimport os  # noqa: F401\n", 1),
        ("ruff check .", "tests/test_a.py", "# ruff: noqa\n", 0),
        ("pytest", "app.py", "import os  # noqa\n", 0),
        ("mypy src", "app.py", "f(1)  # type: ignore[arg-type]\n", 1),
        ("npx eslint .", "app.js", "/* eslint-disable */\n", 1),
        ("cargo clippy", "src/bin/a.txt", "#![allow(dead_code)]\n", 1),
    ],
)
def test_comments_that_tell_a_check_to_say_nothing(check: str, path: str, text: str, told: int) -> None:
    comments = quieted_by([check])
    assert len(quieted([added(path, text)], JUDGES, comments) if comments else []) == told
    assert not comments or quieted([edited(path, text, f"{text.rstrip()} edited\n")], JUDGES, comments) == []


def test_examples_that_doctest_ran_may_not_go_or_show_something_else() -> None:
    was = 'def f():\n    """F.\n\n    >>> f(1)\n    2\n    >>> f(2)\n    3\n    """\n    return 1\n'
    assert lost_examples([edited("a.py", was, was.replace("F.", "Better.").replace("return 1", "return 2"))]) == []
    assert lost_examples([edited("a.py", was, was.replace("    >>> f(2)\n    3\n", ""))]) == [
        "a.py: an example is gone or was changed: >>> f(2)"
    ]
    assert len(lost_examples([edited("a.py", was, was.replace("3\n", "4\n"))])) == 1


@pytest.mark.parametrize(
    ("changed", "goal", "work", "others"),
    [
        # Nothing but the work: no run. `None`: the work is no part of what can be taken out.
        ([edited("a.py"), edited("README.md"), edited("tests/test_a.py")], "", ["a.py"], []),
        ([edited("a.py"), added("b.py")], "", ["a.py", "b.py"], []),
        ([edited("a.py"), added("settings.mk")], "", ["a.py"], ["settings.mk"]),
        ([edited("a.py"), added("bin/diff")], "", ["a.py"], ["bin/diff"]),
        ([edited("a.py"), edited("ref/a.html")], "", ["a.py"], ["ref/a.html"]),
        ([edited("a.py"), edited("budget.json")], "Lower budget.json.", ["a.py", "budget.json"], []),
        ([edited("a.py"), edited("budget.json")], "Keep the budget of json.", ["a.py"], ["budget.json"]),
        ([edited("a.py"), added("tests/test_b.py")], "Fix a. All tests must pass.", ["a.py"], ["tests/test_b.py"]),
        ([edited("a.py"), added("tests/test_b.py")], "Fix a and add tests.", ["a.py"], []),
        ([edited("a.py"), edited("let/pass.json")], "", ["a.py", "let/pass.json"], []),
        ([edited("a.py"), edited("let/tests/test_a.py")], "", ["a.py", "let/tests/test_a.py"], []),
        ([edited("deploy.yaml")], "", [], []),
        ([edited("config.mk"), edited("index.html"), edited("notes.txt")], "", [], ["config.mk"]),
        ([added("tests/test_b.py")], "", [], []),
    ],
)  # fmt: skip
def test_what_was_changed_besides_the_work(
    changed: list[FileChange], goal: str, work: list[str], others: list[str]
) -> None:
    base = BaseJudges(restored=("tests/test_a.py",))
    found = without_the_work(changed, base, CONTRACT, goal, ("let/**",))
    assert [path for path in found.base.files if path != "README.md"] == work
    assert list(found.others) == others


def test_a_file_that_a_check_names_is_the_work() -> None:
    contract = Contract(checks=commands("test -e done.flag"))
    assert without_the_work([added("done.flag"), added("other.flag")], BaseJudges(), contract, "").others == (
        "other.flag",
    )


def test_what_made_a_check_pass_is_named() -> None:
    assert not_needed(["make"], [f"{n}.mk" for n in range(7)]) == [
        "make passes as well without the changes to the code: 0.mk, 1.mk, 2.mk, 3.mk, 4.mk and 2 more made it pass"
    ]


CI = "name: ci\non: [push]\njobs:\n  test:\n    steps:\n      - uses: actions/checkout@v4\n      - run: make test\n"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("name: ci", "name: tests", 0),
        ("checkout@v4", "checkout@v5", 0),
        ("[push]", "[push, pull_request]", 0),
        ("    steps:", "    strategy:\n      matrix: { python: ['3.11', '3.12'] }\n    steps:", 0),
        ("- run: make test", "- run: make build\n      - run: make test", 0),
        ("on: [push]", "on:\n  push:\n  pull_request:", 0),
        ("[push]", "[workflow_dispatch]", 1),
        ("make test", "make build", 1),
        ("make test", "make test || true", 1),
        ("      - run: make test\n", "", 1),
        ("    steps:", "    continue-on-error: true\n    steps:", 1),
        ("    steps:", "    if: false\n    steps:", 1),
        ("on: [push]", "on:\n  push:\n    paths-ignore: ['**']", 1),
        ("actions/checkout", "other/checkout", 1),
    ],
)
def test_ci_that_does_what_it_did_is_not_questioned(old: str, new: str, told: int) -> None:
    assert old in CI
    assert len(ci_changes([edited(".github/workflows/ci.yml", CI, CI.replace(old, new))], ())) == told


def test_ci_that_was_there_is_questioned_and_new_ci_is_not() -> None:
    changes = [edited(".github/workflows/ci.yml"), added(".github/workflows/more.yml"), gone(".gitlab-ci.yml")]
    assert [said.partition(":")[0] for said in ci_changes(changes, ())] == [
        ".github/workflows/ci.yml",
        ".gitlab-ci.yml",
    ]
    assert ci_changes(changes, (".github", ".gitlab-ci.yml")) == []


def test_every_change_is_told_and_only_strict_blocks() -> None:
    changes = [gone("tests/test_a.py"), added("tests/test_b.py"), edited("src/a.py"), added("sitecustomize.py")]
    told = told_changes(changes, CONTRACT, judges=JUDGES)
    assert [(finding.kind, finding.path, finding.blocking) for finding in told] == [
        ("check_shadowed", "sitecustomize.py", False),
        ("test_deleted", "tests/test_a.py", False),
        ("test_added", "tests/test_b.py", False),
    ]
    strict = told_changes(changes, replace(CONTRACT, guard="strict"), judges=JUDGES, waived=("tests/test_b.py",))
    assert [finding.blocking for finding in strict] == [True, True, False]


@pytest.mark.parametrize(
    ("path", "judge"),
    [
        ("tests/test_x/notes.txt", "test"),
        ("src/test_x/notes.py", None),
        ("a/conftest.py", "settings"),
        ("src/lib.rs", "inline tests"),
        ("setup.cfg", "mixed settings"),
        (".github/workflows/a.yml", "ci"),
        ("src/contest.py", None),
        ("tests.py", "test"),
        ("src/openapi_spec.yaml", None),
        ("spec/openapi.yaml", None),
        ("spec/support/stubs.rb", "test"),
        ("app/src/androidTest/java/Stubs.kt", "test"),
        ("Shop.UnitTests/Stubs.cs", "test"),
        ("src/checkout.py", None),
        ("src/latest/spectrum.py", None),
        ("src/test_runner/main.py", None),
        ("web/.eslintrc.json", "settings"),
        (".gitignore", None),
        ("vite.config.ts", "settings"),
        ("src/config.ts", None),
    ],
)
def test_what_a_file_is_to_a_run(path: str, judge: str | None) -> None:
    found = judge_of(path)
    assert (found.judge if found else None) == judge


def test_the_examples_of_each_rule_are_recognised_by_that_rule() -> None:
    assert [(example, rule.what) for rule in RULES for example in rule.examples if judge_of(example) is not rule] == []


def test_every_test_lies_under_the_patterns_that_git_looks_under() -> None:
    words = ("test", "spec", "e2e")
    tests = [example for rule in RULES if rule.judge == "test" and not rule.by_folder for example in rule.examples]
    assert [path for path in tests if not any(word in path.lower() for word in words)] == ["cart.bats"]


# --- hostile texts -------------------------------------------------------------------------------------------

DEEP = '{"a":' * 5000 + "1" + "}" * 5000


@pytest.mark.parametrize("depth", [300, 450, 600, 900, 5000])
def test_json_that_is_nested_deeply_judges_as_a_whole_at_worst(depth: int) -> None:
    base, new = (
        f'{{"scripts": {{"test": "{test}"}}, "x": {DEEP[: 5 * depth]}1{"}" * depth}}}' for test in ("false", "true")
    )
    part = with_judging_part("package.json", base, new)
    assert part is None or '"test": "false"' in part


@pytest.mark.parametrize("name", ["pyproject.toml", "setup.cfg", "package.json", "Cargo.toml"])
def test_settings_that_were_empty_or_have_no_headers(name: str) -> None:
    assert with_judging_part(name, "", "a = 1\n") in {"a = 1\n", None}
    assert with_judging_part(name, "a = 1\n", "") in {"", None}


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("pyproject.toml", "[" + " " * 60_000),
        ("pyproject.toml", "[" * 60_000),
        ("src/a.rs", "#[cfg(test)]\nmod a {\n" * 3_000),
        ("src/a.rs", "#[cfg(test)]\n" + "\n" * 60_000),
    ],
)
def test_settings_and_sources_that_make_a_reader_look_again_and_again_are_read_once(path: str, text: str) -> None:
    # By rules that looked back this took minutes, up to days.
    assert with_judging_part(path, "", text) is not None


@pytest.mark.parametrize(
    "piece",
    [
        "import pytest as a\n",
        "a.b" * 50,
        "sys.modules " * 50,
        "from pytest",
        "uncaughtException",
        "def __eq__(",
        "assert.a",
        "x = pytest\n",
        "def __eq__():" + " " * 900,
        'def __eq__(): """',
    ],
)
def test_sources_that_look_suspect_all_over_are_looked_through_once(piece: str) -> None:
    text = piece * (300_000 // len(piece))
    assert len(suspects([("app.py", 1, text)], JUDGES)) <= 20


def test_suspect_lines_are_told_once_each_with_their_numbers() -> None:
    text = "a = 1\nx = sys.modules, 'pytest'\n\n\nclass A:\n    def __eq__(self, other):\n        return True\n"
    told = suspects([("app.py", 10, text), ("tests/x.py", 1, "import pytest\n")], JUDGES)
    assert told == [
        "app.py:11: this code behaves differently in a test: x = sys.modules, 'pytest'",
        "app.py:15: this code behaves differently in a test: def __eq__(self, other):",
    ]

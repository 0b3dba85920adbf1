"""What is done to tests, CI and settings: caught, told, or left alone."""

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.guard_cases import CAUGHT, INNOCENT, PY, added, edit
from untildone.core.contract import Contract, commands
from untildone.core.findings import FileChange, Finding, matches
from untildone.core.guard import MOST_FINDINGS, inspect, is_guarded, is_watched
from untildone.core.guard_languages import LANGUAGES


def blocking(changes: list[FileChange], **contract: Any) -> list[Finding]:
    return [finding for finding in inspect(changes, Contract(**contract)) if finding.blocking]


def kinds(changes: list[FileChange], **contract: Any) -> list[str]:
    return [finding.kind for finding in inspect(changes, Contract(**contract))]


def test_the_table_is_large_enough():
    assert len(CAUGHT) + len(INNOCENT) >= 60


@pytest.mark.parametrize("name", CAUGHT)
def test_caught(name):
    case = CAUGHT[name]
    found = blocking(case.changes)
    told = {(finding.kind, place) for finding in found for place in (finding.place, finding.path)}
    assert (case.kind, case.place) in told, found
    assert case.words in " ".join(finding.text for finding in found)


@pytest.mark.parametrize("name", INNOCENT)
def test_innocent(name):
    assert blocking(INNOCENT[name]) == []
    assert all(is_guarded(change.path) for change in INNOCENT[name]) or "only sounds like" in name


def test_what_is_added_or_edited_is_told():
    assert kinds(INNOCENT["tests added in a new file"]) == ["test_added"]
    assert kinds(INNOCENT["a test edited"]) == ["test_edited"]
    assert kinds(INNOCENT["a workflow added"]) == ["ci_changed"]
    assert kinds(INNOCENT["a threshold raised"]) == ["settings_changed"]
    moved = inspect(INNOCENT["a test file renamed"], Contract())
    assert [(finding.kind, finding.text) for finding in moved] == [("test_edited", "moved from tests/test_a.py")]


def test_what_has_nothing_to_do_with_checks_is_not_told():
    assert kinds(INNOCENT["a dependency added (python)"]) == []
    assert kinds(INNOCENT["a dependency added (npm)"]) == []
    assert kinds(INNOCENT["a build target changed"]) == []
    assert kinds(INNOCENT["rust: code changed, tests untouched"]) == []


@pytest.mark.parametrize(
    "name", ["a test edited", "tests added in a new file", "a threshold raised", "a workflow added"]
)
def test_strict_blocks_any_change_of_a_guarded_file(name):
    assert blocking(INNOCENT[name], guard="strict")


@pytest.mark.parametrize("name", ["a dependency added (npm)", "rust: code changed, tests untouched"])
def test_strict_does_not_hinder_other_work(name):
    assert not blocking(INNOCENT[name], guard="strict")


@pytest.mark.parametrize(
    "pattern", ["tests/test_a.py", "tests/*", "tests/**/*.py", "tests", "tests/", "./tests/", "*.py"]
)
def test_a_waived_file_is_told_and_does_not_block(pattern):
    changes = [*CAUGHT["a test file deleted"].changes, *CAUGHT["the workflow changed"].changes]
    found = inspect(changes, Contract(), waived=(pattern,))
    assert {(finding.path, finding.blocking) for finding in found} == {
        ("tests/test_a.py", False), (".github/workflows/ci.yml", True),
    }  # fmt: skip


def test_off_tells_and_never_blocks():
    assert kinds(CAUGHT["a test file deleted"].changes, guard="off") == ["test_deleted"]
    assert not blocking(CAUGHT["a test file deleted"].changes, guard="off")


def test_files_the_user_names_may_not_change_at_all():
    change = edit("golden/a.txt", "1\n2\n", "2", "3")
    assert not is_guarded("golden/a.txt")
    assert is_guarded("golden/a.txt", ("golden/**",))
    assert [(f.kind, f.place) for f in blocking([change], guard_files=("golden/**",))] == [
        ("settings_changed", "golden/a.txt:2")
    ]
    assert not blocking([added("golden/b.txt", "1")], guard_files=("golden/**",))


@pytest.mark.parametrize("command", ["./check.sh", "sh check.sh --all", "cd . && bash ./check.sh"])
def test_the_script_that_a_check_runs_may_not_be_rewritten(command):
    contract = Contract(checks=commands(command))
    change = edit("check.sh", "make test\n", "make test", "exit 0")
    assert is_watched("check.sh", contract)
    assert is_watched("sub/check.sh", contract)
    assert [finding.place for finding in inspect([change], contract) if finding.blocking] == ["check.sh:1"]
    assert not [f for f in inspect([added("check.sh", "make test\n")], contract) if f.blocking]


def test_the_program_under_test_is_not_guarded():
    contract = Contract(checks=commands("python app.py --selftest", "node src/index.js", "make test"))
    assert not any(is_watched(path, contract) for path in ("app.py", "src/index.js", "lib/a.go"))


@pytest.mark.parametrize(("command", "path"), [("python ci/check.py", "ci/check.py"), ("sh ci/check", "ci/check")])
def test_what_a_check_names_and_what_judges_is_guarded(command, path):
    contract = Contract(checks=commands(command))
    change = FileChange(path=path, before="x\n", after="y\n")
    assert is_watched(path, contract)
    assert [finding.place for finding in inspect([change], contract) if finding.blocking] == [f"{path}:1"]
    assert not [finding for finding in inspect([added(path, "x\n")], contract) if finding.blocking]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("tests/unit/test_a.py", True), ("a/b/c_test.go", True), ("src/__tests__/a.tsx", True), ("x/a.spec.ts", True),
        ("src/test/java/A.java", True), (".github/workflows/ci.yml", True), ("sub/pyproject.toml", True),
        ("Jenkinsfile", True), ("src/lib.rs", True), ("spec/models/a_spec.rb", True), ("conftest.py", True),
        ("src/app.py", False), ("README.md", False), ("src/testing.py", False), ("test_x/notes.py", False),
        ("src/attest.go", False), ("docs/tests.md", False), ("latest/app.ts", False), (".github/FUNDING.yml", False),
    ],
)  # fmt: skip
def test_which_files_are_guarded(path, expected):
    assert is_guarded(path) is expected


def test_globs_mean_what_people_expect():
    assert matches("a/b.py", ["a"])
    assert matches("a/b.py", ["a/**/*.py"])
    assert not matches("ab/c.py", ["a"])
    assert not matches("a/b.py", ["", "b"])


def test_findings_are_bounded_and_safe_to_show():
    names = "".join(f"def test_{n}():\n    assert {n}\n" for n in range(200))
    many = [FileChange(path=f"tests/test_{n}.py", before=names, after="\n") for n in range(20)]
    found = inspect(many, Contract())
    assert len(found) == MOST_FINDINGS
    long = "@pytest.mark.skip  \x1b[2J" + "x" * 10_000 + "\ndef test_sub"
    hostile = edit("tests/test_a.py", PY, "def test_sub", long)
    assert all(len(f.text) <= 200 and f.text.isprintable() for f in inspect([hostile], Contract()))


PATHS = [
    "tests/test_a.py", "a.test.js", "a_test.go", "src/lib.rs", "tests/A.java", "a_spec.rb", "x.bats", "ATest.php",
    "pyproject.toml", "package.json", "tox.ini", "Makefile", "codecov.yml", "jest.config.js", "conftest.py",
    "tsconfig.json", ".github/workflows/a.yml", "Tests/a.cs", "phpunit.xml", "tests/what.xyz",
]  # fmt: skip
PIECES = st.sampled_from(
    [
        "def test_a():\n", "    assert x\n", "it('a', () => {\n", "});\n", "#[test]\n", "fn a() {\n", "}\n", "@Test\n",
        '"""', "'''", "/*", "*/", "//", "#", "\\", '"', "'", "`", "\n", "\t", " ", "[tool.ruff]\n", "ignore = ['a']\n",
        "{", "[", "a: 1\n", "- b\n", "test:\n", "\tpytest\n", "fail_under = 9\n", "<min>1</min>\n",
        "@pytest.mark.skip\n", "\x00", "é",
    ]
)  # fmt: skip
TEXTS = st.one_of(st.none(), st.text(max_size=200), st.lists(PIECES, max_size=60).map("".join))


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(PATHS), TEXTS, TEXTS, st.sampled_from(["added", "modified", "deleted", "renamed"]))
def test_any_content_is_taken(path, before, after, status):
    old = "b" if status == "renamed" else ""
    change = FileChange(path=path, before=before, after=after, status=status, old_path=old)
    for finding in inspect([change], Contract()):
        assert len(finding.text) <= 200


@settings(max_examples=50, deadline=None)
@given(st.sampled_from(PATHS), TEXTS.filter(lambda text: text is not None))
def test_what_did_not_change_is_never_blocked(path, text):
    same = FileChange(path=path, before=text, after=text)
    assert not [f for f in inspect([same], Contract()) if f.blocking and f.kind != "ci_changed"]


HOSTILE = [
    '\\"', "'", '"""', "/*", "def test_a(", "it('", "@Test ", "#[test", "[" * 3, '{"a":', "a: ", "- ", "   ", "\n",
    "it(`a`, () => {\n", "def test_x():\n", "@pytest.mark.skip\n", "\ttest:\n", "x=", "--cov ", "<a>", "((((", "\\",
]  # fmt: skip


@pytest.mark.parametrize("piece", HOSTILE)
def test_hostile_content_costs_no_more_than_its_size(piece):
    """Four times the size may cost four times the time, with some room, but never sixteen times."""

    def seconds(size: int) -> float:
        text = piece * (size // len(piece))
        changes = [FileChange(path=path, before=text[: size // 2], after=text) for path in PATHS]
        start = time.thread_time()
        inspect(changes, Contract())
        return time.thread_time() - start

    limit = 10 * max(seconds(7_500), 0.02)
    assert any(seconds(30_000) < limit for _ in range(5)), "not even once in five tries"


def test_no_two_languages_claim_a_file():
    ends = [end for language in LANGUAGES for end in language.ends]
    assert len(ends) == len(set(ends))

"""Which files judge a run, as data: tests and what they read, CI, and the settings of tests, coverage and linters."""

import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import translate
from functools import cache
from typing import Literal

from untildone.core.contract import Contract
from untildone.core.dataclass import dataclass
from untildone.core.findings import matches

Judge = Literal["test", "inline tests", "ci", "settings", "mixed settings", "script"]


@dataclass(frozen=True, slots=True)
class Rule:
    """Files of one kind. A glob without a slash is a file's name, one with a slash may begin at any folder."""

    judge: Judge
    what: str
    globs: tuple[str, ...]


RULES: tuple[Rule, ...] = (
    # First match wins: a helper in a test folder that configures the tests is a setting.
    Rule("settings", "pytest's own hooks", ("conftest.py",)),
    Rule("ci", "GitHub, Gitea, Forgejo", (
        ".github/workflows/*", ".github/actions/*", ".gitea/workflows/*", ".forgejo/workflows/*")),
    Rule("ci", "GitLab", (".gitlab-ci.yml", ".gitlab-ci.yaml", ".gitlab/ci/*")),
    Rule("ci", "other CI services", (
        ".circleci/*", ".buildkite/*", ".semaphore/*", ".teamcity/*", ".azure-pipelines/*", "azure-pipelines*.yml",
        "azure-pipelines*.yaml", "Jenkinsfile", "Jenkinsfile.*", "*.jenkinsfile", ".travis.yml", "appveyor.yml",
        ".appveyor.yml", "bitbucket-pipelines.yml", ".drone.yml", ".woodpecker.yml", ".woodpecker/*", ".cirrus.yml",
        "cloudbuild.yaml", "cloudbuild.yml", "buildspec.yml", "buildspec.yaml", "codefresh.yml", "wercker.yml")),
    Rule("ci", "hooks that run before a commit or a push", (
        ".pre-commit-config.yaml", "lefthook.yml", "lefthook.yaml", ".lefthook.yml", ".husky/*", ".githooks/*")),
    Rule("test", "Python", ("test_*.py", "*_test.py", "tests.py")),
    Rule("test", "JavaScript and TypeScript", tuple(
        f"*{part}.{end}" for part in (".test", ".spec", "-test", "_test", ".cy", ".e2e")
        for end in ("js", "jsx", "mjs", "cjs", "ts", "tsx", "mts", "cts", "vue", "svelte"))),
    Rule("test", "Go", ("*_test.go",)),
    Rule("test", "Java, Kotlin, Scala, Groovy", (
        "*Test.java", "*Tests.java", "*IT.java", "*Test.kt", "*Tests.kt", "*Spec.kt", "*Test.scala", "*Spec.scala",
        "*Suite.scala", "*Spec.groovy", "*Test.groovy")),
    Rule("test", "Ruby", ("*_spec.rb", "*_test.rb", "test_*.rb")),
    Rule("test", "PHP", ("*Test.php", "*.phpt")),
    Rule("test", "C# and F#", ("*Test.cs", "*Tests.cs", "*Test.fs", "*Tests.fs")),
    Rule("test", "Elixir", ("*_test.exs",)),
    Rule("test", "Swift", ("*Test.swift", "*Tests.swift")),
    Rule("test", "Dart", ("*_test.dart",)),
    Rule("test", "C and C++", (
        "*_test.c", "*_test.cc", "*_test.cpp", "*_test.cxx", "*_tests.cpp", "*_unittest.cc", "test_*.c", "test_*.cpp",
        "*Test.cpp", "*Tests.cpp")),
    Rule("test", "shell", ("*.bats", "*_test.sh", "test_*.sh")),
    Rule("test", "others", (
        "*_spec.lua", "*_test.lua", "*.feature", "*_test.clj", "*_test.cljs", "*Spec.hs", "*_SUITE.erl", "*_tests.erl",
        "test_*.jl", "*_test.zig", "*.robot")),
    Rule("test", "Rust", ("tests/*.rs", "src/tests.rs", "src/*/tests.rs", "src/*/tests/*.rs")),
    Rule("inline tests", "Rust (tests lie among the code)", ("*.rs",)),
    Rule("settings", "Python", (
        "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", ".coveragerc", "mypy.ini", ".mypy.ini",
        "ruff.toml", ".ruff.toml", ".flake8", ".pylintrc", "pylintrc", "pyrightconfig.json", ".bandit", "noxfile.py")),
    Rule("settings", "JavaScript and TypeScript", (
        "jest.config.*", "jest.setup.*", "vitest.config.*", "vitest.workspace.*", "vitest.setup.*", ".mocharc*",
        ".nycrc*", ".c8rc*", "karma.conf.*", "playwright.config.*", "cypress.config.*", "cypress.json", ".eslintrc*",
        "eslint.config.*", ".eslintignore", ".oxlintrc.json", "tsconfig*.json", "biome.json", "biome.jsonc",
        ".stylelintrc*", "stylelint.config.*")),
    Rule("settings", "Go, Rust, C", (
        ".golangci.yml", ".golangci.yaml", ".golangci.toml", ".golangci.json", "clippy.toml", ".clippy.toml",
        "tarpaulin.toml", ".tarpaulin.toml", ".nextest.toml", ".config/nextest.toml", ".clang-tidy")),
    Rule("settings", "Ruby, PHP, Java, Swift, Elixir", (
        ".rubocop.yml", ".rubocop_todo.yml", ".simplecov", ".rspec", "phpunit.xml*", "phpunit.dist.xml",
        "phpstan.neon*", "psalm.xml*", ".phpcs.xml*", "phpcs.xml*", "checkstyle.xml", "detekt.yml", "pmd.xml",
        "spotbugs*.xml", ".swiftlint.yml", ".credo.exs", ".formatter.exs", "coveralls.json")),
    Rule("settings", "coverage services", (
        "codecov.yml", ".codecov.yml", "codecov.yaml", ".codecov.yaml", ".coveralls.yml", "sonar-project.properties",
        ".codeclimate.yml", ".deepsource.toml")),
    Rule("mixed settings", "sections of files that also hold other things", (
        "pyproject.toml", "setup.cfg", "tox.ini", "package.json", "deno.json", "composer.json", "Makefile", "makefile",
        "GNUmakefile", "justfile", "Justfile", ".justfile", "Cargo.toml", ".cargo/config.toml", ".npmrc", "pom.xml",
        "build.gradle", "build.gradle.kts")),
    Rule("test", "anything in a folder of tests", (
        "tests/*", "test/*", "__tests__/*", "spec/*.rb", "spec/*.js", "spec/*.ts", "spec/*.lua", "e2e/*",
        "src/test/*", "src/androidTest/*",
        "src/integrationTest/*", "cypress/*", "*.Tests/*", "*.UnitTests/*", "Tests/*")),
    Rule("test", "what tests compare with", (
        "fixtures/*", "testdata/*", "test_data/*", "golden/*", "goldens/*", "__snapshots__/*", "snapshots/*",
        "__mocks__/*", "*.snap", "*.golden", "expected/*", "node_modules/*")),
)  # fmt: skip
"""Every file that judges, by kind; the first rule that fits counts."""

_BY_FOLDER = frozenset(RULES[-2:])


@dataclass(frozen=True, slots=True)
class Judged:
    """What a path is to a run."""

    judge: Judge
    by_name: bool
    """The file's own name says so, not just the folder it lies in: test runners collect it by that name."""


@cache
def _patterns() -> tuple[tuple[Rule, re.Pattern[str]], ...]:
    return tuple((rule, _compiled(rule.globs)) for rule in RULES)


def _compiled(globs: Iterable[str]) -> re.Pattern[str]:
    whole = []
    for glob in globs:
        whole.append(translate(glob))
        whole.append(translate(f"*/{glob}"))
    return re.compile("|".join(whole))


def judge_of(path: str) -> Judged | None:
    """What a file is to the run, by its path alone; None: nothing that judges it."""
    name = path.rpartition("/")[2]
    for rule, pattern in _patterns():
        # A name's own `*` must not reach into its folders: `test_x/notes.py` is no test.
        by_name = not any("/" in glob for glob in rule.globs)
        if pattern.match(name if by_name else path):
            return Judged(rule.judge, by_name=rule not in _BY_FOLDER)
    return None


# --- scripts that the checks run ------------------------------------------------------------------------------

_WORD = re.compile(r"[\w./-]+")
_SCRIPT = re.compile(r"\.(?:sh|bash|zsh|mk)$")
_DATA = re.compile(r"\.(?:txt|csv|tsv|json|jsonl|ya?ml|xml|in|out|dat|lst|list|golden|expected|approved|cfg|ini)$")
_PROGRAM = re.compile(r"\.(?:py|js|mjs|cjs|ts|rb|pl|php)$")
_RUN_BY_A_SHELL = re.compile(
    r"(?:(?:^|[\s;&|(@])(?:(?:ba|da|z|k)?sh|source)|(?:^|[;&|(])\s*\.)\s+(?:-[a-z]+\s+)*([\w./-]*\w)", re.MULTILINE
)
_NAMED_AS_A_JUDGE = re.compile(
    r"(?:^|/)(?:tools|scripts|hack)/|(?:^|[/_.-])(?:ci|check\w*|tests?|tester|testing|verify\w*|lint\w*|accept\w*|spec|qa|e2e|run_?tests?)(?:[/_.-]|$)"
)
_RUNNERS = {
    "make": ("GNUmakefile", "makefile", "Makefile"),
    "just": ("justfile", "Justfile", ".justfile"),
    "npm": ("package.json",), "pnpm": ("package.json",), "yarn": ("package.json",), "bun": ("package.json",),
    "tox": ("tox.ini",), "nox": ("noxfile.py",), "composer": ("composer.json",),
}  # fmt: skip
"""Programs that read from a file which commands they run."""
_FOLLOWED = 200
_TEXT = 200_000


def named_files(text: str, *, is_check: bool = False) -> list[str]:
    """The files that a check, or a script or file of targets that it uses, runs in order to judge, by their names.

    A shell script that a check names judges. One that another file names may be what is built: it has to be run there.
    """
    text = text[:_TEXT]
    words = [word.removeprefix("./") for word in _WORD.findall(text)]
    run = {word.removeprefix("./") for word in _RUN_BY_A_SHELL.findall(text)}
    runners = [file for word in words for file in _RUNNERS.get(word, ())]
    named = (
        word
        for word in words
        # Data that a check itself names is most likely what it looks at; a script names what it compares with.
        if word in run or _judges_by_name(word) or (_SCRIPT.search(word) if is_check else is_data(word))
    )
    return list(dict.fromkeys([*runners, *named]))[:_FOLLOWED]


def is_data(path: str) -> bool:
    """Whether a file holds no code: if what judges names it, it is part of the judgement."""
    return _DATA.search(path) is not None


def _judges_by_name(word: str) -> bool:
    """A script or program whose name says that it judges; any other may be what is under test."""
    is_plain = "/" in word and "." not in word.rpartition("/")[2]
    return (is_plain or bool(_SCRIPT.search(word) or _PROGRAM.search(word))) and bool(_NAMED_AS_A_JUDGE.search(word))


# --- new files that are used in place of others ---------------------------------------------------------------

_IMPORTED_BY_CHECKS = frozenset({
    "sitecustomize", "usercustomize", "pytest", "_pytest", "pluggy", "unittest", "coverage", "mypy", "nose2", "tox",
    "nox", "ruff", "flake8", "pylint", "hypothesis", "doctest", "pyright", "xdist", "pytest_cov", "importlib", "runpy",
    "traceback", "types", "inspect", "re", "os", "sys", "io", "contextlib", "functools", "operator", "collections",
    "dataclasses", "decimal", "fractions", "math", "json", "random", "subprocess", "tempfile", "pathlib", "warnings",
    "logging", "argparse", "enum", "typing", "copy", "difflib", "ast", "textwrap", "time", "datetime", "signal",
})  # fmt: skip
"""Python modules that runs of tests import: a file of such a name where Python looks first takes their place."""
_SEARCHED_FIRST = frozenset({"", "src", "lib", "tests", "test"})
_PYTHON_MODULE = re.compile(r"python[\d.]*\s(?:[^;&|]*?\s)?-m\s+(\w+)")


def takes_a_place(path: str, contract: Contract) -> bool:
    """Whether a new file of this name would be used instead of an installed program or module."""
    folder, _, name = path.removesuffix("/__init__.py").rpartition("/")
    if name.endswith(".pth") or "node_modules/" in f"{path}/" or name in {"sitecustomize.py", "usercustomize.py"}:
        return True
    if not path.endswith(".py"):
        return False
    commands = [check.command[:_TEXT] for check in contract.checks]
    run = {module for command in commands for module in _PYTHON_MODULE.findall(command)}
    searched = _SEARCHED_FIRST | {check.folder for check in contract.checks}
    return folder in searched and name.removesuffix(".py") in _IMPORTED_BY_CHECKS | run


def test_globs() -> list[str]:
    """The files of tests, as git takes them from the top of a repository."""
    globs = [glob for rule in RULES if rule.judge == "test" for glob in rule.globs]
    return [f":(top,glob)**/{glob}{'*' if glob.endswith('/*') else ''}" for glob in globs]


def judges_for(contract: Contract, scripts: Sequence[str]) -> Callable[[str], bool]:
    """Whether a file judges the run: by the table, as a script that the checks run, or because the user said so."""
    run = frozenset(scripts)

    def judges(path: str) -> bool:
        return judge_of(path) is not None or path in run or matches(path, contract.guard_files)

    return judges

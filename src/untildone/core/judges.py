"""Which files judge a run, as data: tests and what they read, CI, and the settings of tests, coverage and linters."""

import re
import sys
from collections.abc import Callable, Sequence
from typing import Literal

from untildone.core.contract import Contract
from untildone.core.dataclass import dataclass
from untildone.core.findings import matches

Judge = Literal["test", "inline tests", "ci", "settings", "mixed settings", "script"]


@dataclass(frozen=True, slots=True)
class Rule:
    """Files of one kind, recognised by a regular expression that begins at a folder or file name in the path."""

    judge: Judge
    what: str
    pattern: str
    examples: tuple[str, ...]
    """For the documentation; each one matches."""
    by_folder: bool = False
    """The folder decides. A test runner collects the other tests by their own name."""


_NO_CODE = r"(?!.*\.(?:ya?ml|json|md|rst|txt|toml|html?)$)"

RULES: tuple[Rule, ...] = (
    # The first match wins: a helper in a folder of tests that configures the tests is a setting.
    Rule("settings", "pytest's own hooks", r"conftest\.py$", ("conftest.py",)),
    Rule("ci", "CI and git hooks",
        r"\.(?:github|gitea|forgejo)/(?:workflows|actions)/|\.(?:gitlab-ci|gitlab/ci|circleci|buildkite|semaphore"
        r"|teamcity|azure-pipelines|travis|appveyor|drone|woodpecker|cirrus|pre-commit|husky|githooks|lefthook)"
        r"|(?:[\w-]+-pipelines|Jenkinsfile|appveyor|cloudbuild|buildspec|codefresh|wercker|lefthook)\b[^/]*$",
        (".github/workflows/ci.yml", ".gitlab-ci.yml", "Jenkinsfile", ".pre-commit-config.yaml", ".husky/pre-push")),
    Rule("test", "tests, by the name of the file",
        rf"{_NO_CODE}(?:test_[^/]*\.|(?:[^/]+[._-])?(?:tests?|e2e)\.|[^/]+[._-](?:spec|cy|unittest)\."
        r"|[^/]*[a-z0-9](?:Tests?|Spec|Suite|IT)\.|[^/]+_SUITE\.)\w+$|[^/]+\.(?:bats|feature|robot|phpt)$",
        ("test_cart.py", "cart_test.go", "cart.spec.ts", "CartTest.java", "cart_spec.rb", "cart.bats")),
    Rule("inline tests", "Rust, where tests are part of a source file", r"[^/]+\.rs$", ("src/cart.rs",)),
    Rule("mixed settings", "files with settings of tests among others",
        r"(?:pyproject\.toml|setup\.cfg|tox\.ini|(?:package|deno|composer)\.json|(?:GNUm|[Mm])akefile|[Jj]ustfile"
        r"|Cargo\.toml|pom\.xml|build\.gradle(?:\.kts)?)$",
        ("pyproject.toml", "setup.cfg", "package.json", "Makefile", "Cargo.toml")),
    Rule("settings", "hidden files: settings of linters, test runners and tools",
        r"\.(?!\.?/|(?:gitignore|gitkeep)$)[^/]+", (".coveragerc", ".eslintrc.json", ".rspec", ".npmrc", ".env")),
    Rule("settings", "other settings of test runners, linters and coverage",
        r"(?:[^/]*(?:pytest|mypy|ruff|lint|pyright|bandit|tsconfig|jsconfig|biome|clippy|tarpaulin|phpunit|phpstan"
        r"|psalm|phpcs|checkstyle|detekt|pmd|spotbugs|codecov|coveralls|sonar)[^/]*\.(?:ini|toml|json|jsonc|xml|ya?ml"
        r"|dist|neon|properties)|[^/]+\.(?:config|setup|workspace|conf)\.\w+|noxfile\.py|pylintrc)$",
        ("pytest.ini", "mypy.ini", "tsconfig.json", "jest.config.js", "codecov.yml", "phpunit.xml.dist")),
    Rule("test", "everything in a folder of tests",
        r"(?:(?:[^/]+[._-])?(?:[Tt]ests?|UnitTests|e2e)|__tests__|[a-z]\w*Tests?|cypress)(?:/|$)"
        rf"|specs?(?:/{_NO_CODE}|$)",
        ("tests/helpers.py", "src/test/java/Stubs.java", "spec/support/stubs.rb"), by_folder=True),
    Rule("test", "what tests compare with",
        r"(?:fixtures?|test_?data|goldens?|__snapshots__|snapshots|__mocks__|expected|node_modules)(?:/|$)"
        r"|[^/]+\.(?:snap|golden)$",
        ("fixtures/user.json", "testdata/big.csv", "__snapshots__/cart.snap"), by_folder=True),
)  # fmt: skip
"""Every file that judges, by kind."""

_PATTERNS = tuple((rule, re.compile(rf"(?:^|/)(?:{rule.pattern})")) for rule in RULES)


def judge_of(path: str) -> Rule | None:
    """The rule by which a file judges the run, by its path alone; None: it does not judge."""
    return next((rule for rule, pattern in _PATTERNS if pattern.search(path)), None)


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
    return list(dict.fromkeys([*runners, *included_files(text), *named]))[:_FOLLOWED]


def is_data(path: str) -> bool:
    """Whether a file holds no code: if what judges names it, it is part of the judgement."""
    return _DATA.search(path) is not None


_INCLUDED = re.compile(r"^[ \t]*[-s]?include[ \t]+([^\n#]+)", re.MULTILINE)


def included_files(text: str) -> list[str]:
    """What a file for make includes. Such a file judges even where it was not there: `-include settings.mk`."""
    return [name.removeprefix("./") for names in _INCLUDED.findall(text[:_TEXT]) for name in names.split()][:_FOLLOWED]


_SOURCE = re.compile(
    r"\.(?:pyi?|pyx|[cm]?[jt]sx?|go|rs|[chm]|cc|cpp|cxx|hpp|hh|mm|java|kts?|scala|groovy|clj|rb|php|phpt|p[lm]|ba?sh|zsh"
    r"|swift|cs|fs|vb|lua|r|jl|dart|exs?|erl|hs|mli?|nim|zig|vue|svelte|sh|bats|feature|robot)$",
    re.IGNORECASE,
)
_DOCUMENT = re.compile(r"\.(?:md|rst|adoc|sql|css|scss|sass|less|tf|proto|ipynb)$", re.IGNORECASE)
_SWITCHES = re.compile(r"\.(?:mk|cfg|ini|toml|env|conf|properties|so|dll|dylib|exe|whl|jar|class|pyc|o|a)$")


def is_source(path: str) -> bool:
    """Whether a file is written in a language of programs, by its ending."""
    return _SOURCE.search(path) is not None


def is_product(path: str) -> bool:
    """Whether a file is what a goal is usually about: source, style sheets, queries, documents."""
    return is_source(path) or _DOCUMENT.search(path) is not None


def is_switch(path: str) -> bool:
    """Whether a file is configuration or compiled: on its own it rarely is what a goal asks for."""
    return _SWITCHES.search(path) is not None


def _judges_by_name(word: str) -> bool:
    """A script or program whose name says that it judges; any other may be what is under test."""
    is_plain = "/" in word and "." not in word.rpartition("/")[2]
    return (is_plain or bool(_SCRIPT.search(word) or _PROGRAM.search(word))) and bool(_NAMED_AS_A_JUDGE.search(word))


# --- new files that are used in place of others ---------------------------------------------------------------

_RUNNERS_OF_CHECKS = frozenset({
    "sitecustomize", "usercustomize", "pytest", "_pytest", "pluggy", "coverage", "mypy", "nose2", "tox", "nox", "ruff",
    "flake8", "pylint", "hypothesis", "pyright", "xdist", "pytest_cov",
})  # fmt: skip
"""Python modules besides the standard library that checks import: a file of such a name takes their place."""
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
    return folder in searched and name.removesuffix(".py") in sys.stdlib_module_names | _RUNNERS_OF_CHECKS | run


_TEST_SUPPORT = re.compile(
    r"(?:^|/)(?:testing|assertions?)(?:/|\.\w+$)|(?:^|/)_?(?:vendor|third_party)/(?:[^/]+/)*(?:expect|assert|chai|should)\b"
)


def supports_tests(path: str) -> bool:
    """Whether a file that was there is for tests although it lies in the product: what they compare with."""
    return _TEST_SUPPORT.search(path) is not None


PERHAPS_TESTS = tuple(
    f":(top,glob,icase)**/*{word}*{below}" for word in ("test", "spec", "e2e") for below in ("", "/**")
)
"""Patterns of git for tests, and for some other files: `judge_of` tells them apart."""


def judges_for(contract: Contract, scripts: Sequence[str]) -> Callable[[str], bool]:
    """Whether a file judges the run: by the table, as a script that the checks run, or because the user said so."""
    run = frozenset(scripts)

    def judges(path: str) -> bool:
        return judge_of(path) is not None or path in run or matches(path, contract.guard_files)

    return judges

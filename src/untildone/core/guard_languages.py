"""How tests are written in each language, as data: where one begins, how it is skipped, what it asserts.

Every pattern is matched against single lines of bounded length, without the comments.
"""

import re
from functools import cache
from typing import Literal

from untildone.core.dataclass import dataclass

_QUOTED = r"""\s*\(?\s*(?P<q>['"`])(?P<name>.{1,300}?)(?P=q)"""
_NOTHING = r"(?!)"

_ASSERTS = (
    r"\bassert|\bexpect|\bshould|\brequire\b|\brequire\.|\bverify|\bensure|\bcheck\w*\s*\(|\braises\b|\bfail\w*\s*\("
    r"|\bt\.(?:Error|Fatal|Fail)|\bAssert\b|XCTAssert|\bEXPECT_|\bASSERT_|\bREQUIRE|\bCHECK|\bmust_|\bwont_|\bis\(|\bok\("
    r"|\bmatch\w*\s*\(|\brefute|\breject|\.to\b|\bpanic!|\bsnapshot|\bapprov|\bdiff\b|\btest\s+-|\[\[?\s|\bgrep\b|\breturn\s+Err"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """How one family of languages writes tests."""

    name: str
    ends: tuple[str, ...]
    comments: Literal["#", "//"] = "//"
    cases: str = _NOTHING
    """A line that begins a test; the group `name` names it."""
    marks: str = _NOTHING
    """An annotation: the next name before a parenthesis is a test."""
    skips: str = _NOTHING
    """Keeps a test from being run, or from being believed."""
    focus: str = _NOTHING
    """Keeps all other tests from being run."""
    asserts: str = _ASSERTS


LANGUAGES: tuple[Language, ...] = (
    Language(
        name="Python",
        ends=("py", "pyi"),
        comments="#",
        cases=r"^\s*(?:async\s+)?def\s+(?P<name>test\w*)",
        skips=(
            r"\bmark\.(?:skip|skipif|xfail)\b|\bpytest\.(?:skip|xfail|importorskip)\b|\bskipTest\(|\bSkipTest\b"
            r"|\bunittest\.(?:skip\w*|expectedFailure)\b|^\s*@(?:skip|skipIf|skipUnless|expectedFailure)\b"
            r"|\b__test__\s*=\s*False\b|\bparametrize\([^\[\]]{1,200},\s*\[\s*\]"
        ),
        focus=r"^(?:.*;\s*)?(?:os\._exit|pytest\.exit)\(",
    ),
    Language(
        name="JavaScript and TypeScript",
        ends=("js", "jsx", "mjs", "cjs", "ts", "tsx", "mts", "cts", "vue", "svelte"),
        cases=r"(?<![\w.$])[xf]?(?:it|test|specify)(?:\.(?!describe)\w+(?:\([^()]{0,200}\))?)*" + _QUOTED,
        skips=(
            r"(?<![\w$])(?:it|test|describe|context|suite|specify|bench|t)(?:\.\w+)*"
            r"\.(?:skip|todo|fixme|fails|failing|skipIf|runIf)\b"
            r"|(?<![\w.$])x(?:it|test|describe|context|specify)\s*[(.]|\bthis\.skip\(|\bskip\s*:\s*(?:true|['\"])"
        ),
        focus=(
            r"(?<![\w$])(?:it|test|describe|context|suite|specify)(?:\.\w+)*\.only\b"
            r"|(?<![\w.$])f(?:it|describe|context|specify)\s*[(.]|\bonly\s*:\s*true"
        ),
    ),
    Language(
        name="Go",
        ends=("go",),
        cases=r"^func\s+(?P<name>(?:Test|Benchmark|Fuzz|Example)\w*)\s*\(|\.Run\(\s*\"(?P<sub>[^\"]{1,300})\"",
        skips=r"\b[tb]\.Skip(?:f|Now)?\(|\bSkip\(",
        focus=r"\bos\.Exit\(\s*0\s*\)",
    ),
    Language(
        name="Rust",
        ends=("rs",),
        marks=r"#\[(?:\w+::)*(?:test|rstest|test_case|quickcheck|wasm_bindgen_test|bench)\b[^\]]{0,300}\]",
        skips=r"#\[ignore\b|#\[cfg_attr\([^\]]{0,200}\bignore\b|#\[cfg\((?:any\(\)|FALSE|false|never)\)\]",
    ),
    Language(
        name="Java, Kotlin, Scala, Groovy",
        ends=("java", "kt", "kts", "scala", "groovy"),
        cases=(
            r"^\s*(?:public\s+)?void\s+(?P<name>test\w+)\s*\(|^\s*def\s+['\"](?P<sub>[^'\"]{1,300})['\"]\s*\("
            r"|^\s*(?:ignore|test|it)\(\s*\"(?P<more>[^\"]{1,300})\""
        ),
        marks=r"@(?:Test|ParameterizedTest|RepeatedTest|TestFactory|TestTemplate|Property)\b",
        skips=(
            r"@(?:Ignore\w*|Disabled\w*|PendingFeature)\b|\benabled\s*=\s*false|\bassum(?:e|ing)\w*\(\s*false"
            r"|^\s*ignore\(\s*\"|\bpending\b\s*$"
        ),
        focus=r"@IgnoreRest\b",
    ),
    Language(
        name="C#",
        ends=("cs", "fs", "vb"),
        marks=r"\[(?:Fact|Theory|Test|TestCase|TestMethod|DataTestMethod|TestCaseSource)\b[^\]]{0,300}\]?",
        skips=r"\bSkip\s*=\s*[\"$@]|\[(?:Ignore|Explicit)\b|\bAssert\.(?:Ignore|Inconclusive|Skip)\w*\(",
    ),
    Language(
        name="Ruby",
        ends=("rb", "cr"),
        comments="#",
        cases=r"^\s*(?:def\s+(?P<name>test_\w+)|[xf]?(?:it|specify|example|scenario|test|should)" + _QUOTED.replace(
            "name", "sub") + ")",
        skips=(
            r"^\s*(?:skip|pending)\b|^\s*x(?:it|describe|context|specify|example)\b|\b(?:skip|pending):\s*(?!false)"
            r"|,\s*:(?:skip|pending)\b"
        ),
        focus=r"^\s*f(?:it|describe|context|specify)\b|\bfocus:\s*true|,\s*:focus\b",
    ),
    Language(
        name="PHP",
        ends=("php", "phpt"),
        cases=r"\bfunction\s+(?P<name>test\w*)\s*\(|^\s*(?:it|test)\(\s*(?P<q>['\"])(?P<sub>.{1,300}?)(?P=q)",
        marks=r"#\[(?:\w*\\)*Test\b[^\]]{0,100}\]",
        skips=r"\bmarkTest(?:Skipped|Incomplete)\b|->(?:skip|todo)\(",
        focus=r"->only\(",
    ),
    Language(
        name="Elixir",
        ends=("exs", "ex"),
        comments="#",
        cases=r"^\s*(?:test|property)\s+\"(?P<name>[^\"]{1,300})\"",
        skips=r"@(?:module|describe)?tag\s+:?skip\b",
    ),
    Language(
        name="Swift",
        ends=("swift",),
        cases=r"\bfunc\s+(?P<name>test\w*)\s*\(",
        marks=r"@Test\b",
        skips=r"\bXCTSkip\w*\b|\.disabled\(|\bwithKnownIssue\b|\bXCTExpectFailure\b",
    ),
    Language(
        name="C and C++",
        ends=("c", "cc", "cpp", "cxx", "h", "hpp"),
        cases=(
            r"\b(?:TYPED_)?TEST(?:_F|_P)?\(\s*(?P<name>\w+\s*,\s*\w+)|\b(?:TEST_CASE|SCENARIO)\(\s*\"(?P<sub>[^\"]{1,300})"
            r"|\bBOOST_\w*TEST_CASE\(\s*(?P<more>\w+)"
        ),
        skips=r"\bGTEST_SKIP\b|\bDISABLED_|\[!(?:mayfail|shouldfail)\]|\"\[\.|^\s*SKIP\(|\bTEST_IGNORE",
    ),
    Language(
        name="shell",
        ends=("bats", "sh", "bash"),
        comments="#",
        cases=r"^\s*@test\s+(?P<q>['\"])(?P<name>.{1,300}?)(?P=q)|^(?:function\s+)?(?P<sub>test\w+)\s*\(\)",
        skips=r"^\s*skip\b",
        asserts=_ASSERTS + r"|\brun\b|\$\?",
    ),
    Language(
        name="Dart",
        ends=("dart",),
        cases=r"(?<![\w.])(?:test|testWidgets)" + _QUOTED,
        skips=r"\bskip:\s*(?!false|null)|@Skip\b",
        focus=r"\bsolo:\s*true|\bsolo_test\(",
    ),
    Language(
        name="others",
        ends=("lua", "hs", "clj", "cljs", "erl", "jl", "zig", "feature", "robot"),
        comments="#",
        cases=(
            r"^\s*(?:it|test|@testset)" + _QUOTED + r"|^\s*Scenario(?: Outline)?:\s*(?P<sub>.{1,300})"
            r"|^\(deftest\s+(?P<more>\S{1,300})"
        ),
        skips=r"^\s*(?:pending|xit)\b|@(?:skip|wip|ignore)\b|\^:(?:skip|kaocha/pending)|@test_(?:skip|broken)\b|\[Tags\].*\bskip",
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Reader:
    """A language with its patterns compiled."""

    language: Language
    cases: re.Pattern[str]
    marks: re.Pattern[str]
    skips: re.Pattern[str]
    focus: re.Pattern[str]
    asserts: re.Pattern[str]


def reader_for(path: str) -> Reader | None:
    """How to read the tests of a file, by its name; None: nobody knows."""
    return _readers().get(path.rpartition("/")[2].rpartition(".")[2].lower())


@cache
def _readers() -> dict[str, Reader]:
    found = {}
    for language in LANGUAGES:
        patterns = (language.cases, language.marks, language.skips, language.focus, language.asserts)
        reader = Reader(language, *(re.compile(pattern) for pattern in patterns))
        found.update(dict.fromkeys(language.ends, reader))
    return found

# ruff: noqa: E501 - a diff on one line is easier to read in a table than one on ten
"""What people and agents really do to tests, CI and settings, as diffs."""

from dataclasses import dataclass

from untildone.core.findings import FileChange

PY = "def test_add():\n    assert add(1, 2) == 3\n\n\ndef test_sub():\n    assert sub(2, 1) == 1\n"
JS = "describe('sum', () => {\n  it('adds', () => {\n    expect(sum(1, 2)).toBe(3);\n  });\n\n  it('subs', () => {\n    expect(sub(2, 1)).toBe(1);\n  });\n});\n"
GO = 'package a\n\nfunc TestAdd(t *testing.T) {\n\tif Add(1, 2) != 3 {\n\t\tt.Fatal("no")\n\t}\n}\n\nfunc TestSub(t *testing.T) {\n\tif Sub(2, 1) != 1 {\n\t\tt.Fatal("no")\n\t}\n}\n'
RUST = "pub fn add(a: i32, b: i32) -> i32 {\n    a + b\n}\n\n#[cfg(test)]\nmod tests {\n    use super::*;\n\n    #[test]\n    fn adds() {\n        assert_eq!(add(1, 2), 3);\n    }\n\n    #[tokio::test]\n    async fn subs() {\n        assert_eq!(sub(2, 1), 1);\n    }\n}\n"
JAVA = "class SumTest {\n    @Test\n    void adds() {\n        assertEquals(3, Sum.add(1, 2));\n    }\n\n    @Test\n    void subs() {\n        assertEquals(1, Sum.sub(2, 1));\n    }\n}\n"
RUBY = "describe Sum do\n  it 'adds' do\n    expect(Sum.add(1, 2)).to eq(3)\n  end\n\n  it 'subs' do\n    expect(Sum.sub(2, 1)).to eq(1)\n  end\nend\n"
PHP = "<?php\nclass SumTest extends TestCase {\n    public function testAdds(): void {\n        $this->assertSame(3, add(1, 2));\n    }\n    public function testSubs(): void {\n        $this->assertSame(1, sub(2, 1));\n    }\n}\n"
CS = "public class SumTests {\n    [Fact]\n    public void Adds() {\n        Assert.Equal(3, Sum.Add(1, 2));\n    }\n\n    [Theory]\n    [InlineData(1)]\n    public async Task Subs(int x) {\n        Assert.Equal(1, Sum.Sub(2, x));\n    }\n}\n"
EX = 'defmodule SumTest do\n  test "adds" do\n    assert Sum.add(1, 2) == 3\n  end\n\n  test "subs" do\n    assert Sum.sub(2, 1) == 1\n  end\nend\n'
SWIFT = "class SumTests: XCTestCase {\n    func testAdds() {\n        XCTAssertEqual(add(1, 2), 3)\n    }\n    func testSubs() {\n        XCTAssertEqual(sub(2, 1), 1)\n    }\n}\n"
BATS = '@test "adds" {\n  run add 1 2\n  [ "$output" = "3" ]\n}\n\n@test "subs" {\n  run sub 2 1\n  [ "$output" = "1" ]\n}\n'
CPP = "TEST(Sum, Adds) {\n  EXPECT_EQ(add(1, 2), 3);\n}\n\nTEST(Sum, Subs) {\n  EXPECT_EQ(sub(2, 1), 1);\n}\n"
CI = "on: push\njobs:\n  test:\n    runs-on: ubuntu-latest\n    steps:\n      - run: pytest\n"
PYPROJECT = """[project]
name = "a"
dependencies = ["click"]

[tool.pytest.ini_options]
addopts = "-ra --cov-fail-under=90"

[tool.coverage.report]
fail_under = 90

[tool.ruff.lint]
select = ["ALL"]
ignore = ["D100"]

[tool.mypy]
strict = true
"""
PACKAGE = """{
  "name": "a",
  "scripts": {"build": "tsc", "test": "jest --ci", "lint": "eslint . --max-warnings 0"},
  "dependencies": {"left-pad": "1.0.0"},
  "jest": {"coverageThreshold": {"global": {"branches": 80, "lines": 90}}}
}
"""
MAKE = "all: build\n\nbuild:\n\tcc -o a a.c\n\ntest: build\n\tpytest -q\n\tgo test ./...\n\n.PHONY: all test\n"


def edit(path: str, before: str, old: str, new: str) -> FileChange:
    assert old in before, f"{old!r} is not there"
    return FileChange(path=path, before=before, after=before.replace(old, new, 1))


def added(path: str, text: str) -> FileChange:
    return FileChange(path=path, after=text, status="added")


def deleted(path: str, text: str) -> FileChange:
    return FileChange(path=path, before=text, status="deleted")


def renamed(old: str, new: str, before: str, after: str | None = None) -> FileChange:
    return FileChange(path=new, old_path=old, before=before, after=after or before, status="renamed")


@dataclass(frozen=True)
class Caught:
    """A change that blocks, and how it is told."""

    kind: str
    changes: list[FileChange]
    place: str
    words: str = ""


CAUGHT: dict[str, Caught] = {
    "a test file deleted": Caught("test_deleted", [deleted("tests/test_a.py", PY)], "tests/test_a.py", "test_add"),
    "a spec deleted": Caught("test_deleted", [deleted("src/sum.spec.ts", JS)], "src/sum.spec.ts"),
    "a test file that nobody can read deleted": Caught("test_deleted", [FileChange(path="test_a.py", status="deleted")], "test_a.py"),
    "a test renamed out of sight": Caught("test_deleted", [renamed("tests/test_a.py", "tests/old_a.py.txt", PY)], "tests/test_a.py", "old_a"),
    "a test renamed so that pytest does not collect it": Caught("test_deleted", [renamed("tests/test_a.py", "tests/disabled_a.py", PY)], "tests/test_a.py"),
    "half of the tests of a deleted file moved": Caught("test_deleted", [deleted("tests/test_a.py", PY), added("tests/test_b.py", PY.partition("\n\n\n")[0])], "tests/test_a.py"),
    "a function removed": Caught("test_removed", [edit("tests/test_a.py", PY, "def test_sub():\n    assert sub(2, 1) == 1\n", "")], "tests/test_a.py:5", "def test_sub()"),
    "a function commented out": Caught("test_removed", [edit("tests/test_a.py", PY, "def test_sub():\n    assert", "# def test_sub():\n#     assert")], "tests/test_a.py:5", "commented out"),
    "a function made a string": Caught("test_removed", [edit("tests/test_a.py", PY, "def test_sub():\n    assert sub(2, 1) == 1\n", '"""\ndef test_sub():\n    assert sub(2, 1) == 1\n"""\n')], "tests/test_a.py"),
    "a function renamed so that it is not collected": Caught("test_removed", [edit("tests/test_a.py", PY, "def test_sub", "def dont_test_sub")], "tests/test_a.py:5"),
    "a test replaced by another": Caught("test_removed", [edit("tests/test_a.py", PY, "def test_sub():\n    assert sub(2, 1) == 1", "def test_nothing():\n    x = 1\n    assert x")], "tests/test_a.py:5"),
    "js: a case removed": Caught("test_removed", [edit("src/sum.test.js", JS, "  it('subs', () => {\n    expect(sub(2, 1)).toBe(1);\n  });\n", "")], "src/sum.test.js:6", "subs"),
    "js: a case commented out": Caught("test_removed", [edit("src/sum.test.js", JS, "  it('subs', () => {\n    expect(sub(2, 1)).toBe(1);\n  });\n", "  // it('subs', () => {\n  //   expect(sub(2, 1)).toBe(1);\n  // });\n")], "src/sum.test.js:6"),
    "js: a case in a block comment": Caught("test_removed", [edit("src/sum.test.js", JS, "  it('subs', () => {\n    expect(sub(2, 1)).toBe(1);\n  });\n", "  /*\n  it('subs', () => {\n    expect(sub(2, 1)).toBe(1);\n  });\n  */\n")], "src/sum.test.js"),
    "go: a test removed": Caught("test_removed", [edit("a_test.go", GO, GO[GO.index("func TestSub") :], "")], "a_test.go:9", "TestSub"),
    "rust: a test among the code removed": Caught("test_removed", [edit("src/lib.rs", RUST, "    #[tokio::test]\n    async fn subs() {\n        assert_eq!(sub(2, 1), 1);\n    }\n", "")], "src/lib.rs:15", "subs"),
    "rust: the attribute removed": Caught("test_removed", [edit("src/lib.rs", RUST, "    #[test]\n", "")], "src/lib.rs:10"),
    "java: a test removed": Caught("test_removed", [edit("src/test/java/SumTest.java", JAVA, "    @Test\n    void subs() {\n        assertEquals(1, Sum.sub(2, 1));\n    }\n", "")], "src/test/java/SumTest.java:8"),
    "elixir: a test removed": Caught("test_removed", [edit("test/sum_test.exs", EX, '  test "subs" do\n    assert Sum.sub(2, 1) == 1\n  end\n', "")], "test/sum_test.exs:6"),
    "php: a test removed": Caught("test_removed", [edit("tests/SumTest.php", PHP, "function testSubs", "function helper")], "tests/SumTest.php:6"),
    "c#: a test removed": Caught("test_removed", [edit("Sum.Tests/SumTests.cs", CS, "    [Theory]\n    [InlineData(1)]\n", "")], "Sum.Tests/SumTests.cs:9"),
    "swift: a test removed": Caught("test_removed", [edit("Tests/SumTests.swift", SWIFT, "func testSubs", "func noSubs")], "Tests/SumTests.swift:5"),
    "bats: a test removed": Caught("test_removed", [edit("test/a.bats", BATS, BATS[BATS.index('@test "subs"') :], "")], "test/a.bats:6"),
    "pytest.mark.skip": Caught("skip_added", [edit("tests/test_a.py", PY, "def test_sub", "@pytest.mark.skip\ndef test_sub")], "tests/test_a.py:5", "@pytest.mark.skip"),
    "a skip over several lines": Caught("skip_added", [edit("tests/test_a.py", PY, "def test_sub", '@pytest.mark.skipif(\n    True,\n    reason="slow",\n)\ndef test_sub')], "tests/test_a.py:5"),
    "xfail": Caught("skip_added", [edit("tests/test_a.py", PY, "def test_sub", "@pytest.mark.xfail(strict=False)\ndef test_sub")], "tests/test_a.py:5"),
    "pytest.skip in the body": Caught("skip_added", [edit("tests/test_a.py", PY, "    assert sub", "    pytest.skip('later')\n    assert sub")], "tests/test_a.py:6"),
    "a whole module skipped": Caught("skip_added", [edit("tests/test_a.py", PY, "def test_add", "pytestmark = pytest.mark.skip\n\ndef test_add")], "tests/test_a.py:1"),
    "unittest.skip": Caught("skip_added", [edit("tests/test_a.py", PY, "def test_sub", "@unittest.skip('x')\ndef test_sub")], "tests/test_a.py:5"),
    "it.skip": Caught("skip_added", [edit("src/sum.test.ts", JS, "it('subs'", "it.skip('subs'")], "src/sum.test.ts:6", "it.skip"),
    "xit": Caught("skip_added", [edit("src/sum.test.ts", JS, "it('subs'", "xit('subs'")], "src/sum.test.ts:6"),
    "describe.skip": Caught("skip_added", [edit("src/sum.test.ts", JS, "describe(", "describe.skip(")], "src/sum.test.ts:1"),
    "it.only": Caught("skip_added", [edit("src/sum.test.ts", JS, "it('subs'", "it.only('subs'")], "src/sum.test.ts:6"),
    "it.only in a new file keeps the others from running": Caught("skip_added", [added("src/new.test.ts", JS.replace("it('subs'", "it.only('subs'"))], "src/new.test.ts:6"),
    "t.Skip": Caught("skip_added", [edit("a_test.go", GO, "\tif Sub", '\tt.Skip("flaky")\n\tif Sub')], "a_test.go:10"),
    "a build tag that leaves a test out": Caught("skip_added", [edit("a_test.go", GO, "package a", "//go:build ignore\n\npackage a")], "a_test.go:1"),
    "#[ignore]": Caught("skip_added", [edit("src/lib.rs", RUST, "    #[test]\n", "    #[test]\n    #[ignore]\n")], "src/lib.rs:10"),
    "@Disabled": Caught("skip_added", [edit("src/test/java/SumTest.java", JAVA, "    @Test\n    void subs", '    @Test\n    @Disabled("flaky")\n    void subs')], "src/test/java/SumTest.java:8"),
    "rspec: xit": Caught("skip_added", [edit("spec/sum_spec.rb", RUBY, "  it 'subs'", "  xit 'subs'")], "spec/sum_spec.rb:6"),
    "rspec: skip in the body": Caught("skip_added", [edit("spec/sum_spec.rb", RUBY, "    expect(Sum.sub", "    skip 'later'\n    expect(Sum.sub")], "spec/sum_spec.rb:7"),
    "phpunit: markTestSkipped": Caught("skip_added", [edit("tests/SumTest.php", PHP, "        $this->assertSame(1", "        $this->markTestSkipped();\n        $this->assertSame(1")], "tests/SumTest.php:7"),
    "xunit: Skip": Caught("skip_added", [edit("Sum.Tests/SumTests.cs", CS, "[Fact]", '[Fact(Skip = "flaky")]')], "Sum.Tests/SumTests.cs:2"),
    "elixir: @tag :skip": Caught("skip_added", [edit("test/sum_test.exs", EX, '  test "subs"', '  @tag :skip\n  test "subs"')], "test/sum_test.exs:6"),
    "XCTSkip": Caught("skip_added", [edit("Tests/SumTests.swift", SWIFT, "        XCTAssertEqual(sub", '        throw XCTSkip("x")\n        XCTAssertEqual(sub')], "Tests/SumTests.swift:6"),
    "bats: skip": Caught("skip_added", [edit("test/a.bats", BATS, "  run sub", "  skip\n  run sub")], "test/a.bats:7"),
    "gtest: DISABLED_": Caught("skip_added", [edit("sum_test.cc", CPP, "TEST(Sum, Subs)", "TEST(Sum, DISABLED_Subs)")], "sum_test.cc:5"),
    "a body emptied": Caught("test_removed", [edit("tests/test_a.py", PY, "    assert sub(2, 1) == 1", "    pass")], "tests/test_a.py:5", "nothing is left"),
    "assert True": Caught("test_removed", [edit("tests/test_a.py", PY, "    assert sub(2, 1) == 1", "    assert True")], "tests/test_a.py:5"),
    "js: a body emptied": Caught("test_removed", [edit("src/sum.test.js", JS, "    expect(sub(2, 1)).toBe(1);\n", "")], "src/sum.test.js:6"),
    "js: expect(true)": Caught("test_removed", [edit("src/sum.test.js", JS, "    expect(sub(2, 1)).toBe(1);\n", "    expect(true).toBe(true);\n")], "src/sum.test.js:6"),
    "js: a body emptied onto one line": Caught("test_removed", [edit("src/sum.test.js", JS, "  it('subs', () => {\n    expect(sub(2, 1)).toBe(1);\n  });\n", "  it('subs', () => {});\n")], "src/sum.test.js:6"),
    "rust: assert!(true)": Caught("test_removed", [edit("src/lib.rs", RUST, "        assert_eq!(add(1, 2), 3);\n", "        assert!(true);\n")], "src/lib.rs:10"),
    "a return before the assertions": Caught("test_removed", [edit("tests/test_a.py", PY, "    assert sub", "    return\n    assert sub")], "tests/test_a.py:5", "returns"),
    "the workflow changed": Caught("ci_changed", [edit(".github/workflows/ci.yml", CI, "      - run: pytest", "      - run: pytest || true")], ".github/workflows/ci.yml:6", "|| true"),
    "the workflow deleted": Caught("ci_changed", [deleted(".github/workflows/ci.yml", CI)], ".github/workflows/ci.yml"),
    "gitlab changed": Caught("ci_changed", [edit(".gitlab-ci.yml", "test:\n  script: make test\n", "make test", "true")], ".gitlab-ci.yml:2"),
    "a hook switched off": Caught("ci_changed", [edit(".pre-commit-config.yaml", "repos:\n  - repo: local\n", "  - repo: local\n", "")], ".pre-commit-config.yaml:2"),
    "fail_under lowered": Caught("threshold_lowered", [edit("pyproject.toml", PYPROJECT, "fail_under = 90", "fail_under = 10")], "pyproject.toml:9", "90 became 10"),
    "fail_under taken out": Caught("threshold_lowered", [edit("pyproject.toml", PYPROJECT, "fail_under = 90\n", "")], "pyproject.toml:9", "gone"),
    "--cov-fail-under lowered": Caught("settings_changed", [edit("pyproject.toml", PYPROJECT, "--cov-fail-under=90", "--cov-fail-under=5")], "pyproject.toml:6"),
    "-k in addopts": Caught("settings_changed", [edit("pyproject.toml", PYPROJECT, "-ra ", "-ra -k 'not slow' ")], "pyproject.toml:6", "-k"),
    "--deselect in pytest.ini": Caught("settings_changed", [edit("pytest.ini", "[pytest]\naddopts = -q\n", "-q", "-q --deselect tests/test_a.py::test_add")], "pytest.ini:2"),
    "a new pytest.ini takes over and leaves tests out": Caught("settings_changed", [added("pytest.ini", "[pytest]\naddopts = --ignore=tests/test_a.py\n")], "pytest.ini:2"),
    "ruff ignores more": Caught("threshold_lowered", [edit("pyproject.toml", PYPROJECT, '"D100"', '"D100", "F401"')], "pyproject.toml:13", "F401"),
    "ruff selects less": Caught("settings_changed", [edit("pyproject.toml", PYPROJECT, '"ALL"', '"E"')], "pyproject.toml:12"),
    "mypy is not strict any more": Caught("threshold_lowered", [edit("pyproject.toml", PYPROJECT, "strict = true", "strict = false")], "pyproject.toml:16"),
    "coverage omits more": Caught("threshold_lowered", [edit(".coveragerc", "[run]\nbranch = true\n", "branch = true\n", "branch = true\nomit = src/hard.py\n")], ".coveragerc:3"),
    "jest's threshold lowered": Caught("threshold_lowered", [edit("package.json", PACKAGE, '"branches": 80', '"branches": 8')], "package.json:5"),
    "jest's threshold lowered in its own file": Caught("threshold_lowered", [edit("jest.config.js", "module.exports = {\n  coverageThreshold: {\n    global: {\n      lines: 90,\n    },\n  },\n};\n", "90", "9")], "jest.config.js:4"),
    "npm test redefined": Caught("settings_changed", [edit("package.json", PACKAGE, '"jest --ci"', '"echo ok"')], "package.json:3"),
    "npm test || true": Caught("settings_changed", [edit("package.json", PACKAGE, '"jest --ci"', '"jest --ci || true"')], "package.json:3"),
    "more lint warnings allowed": Caught("settings_changed", [edit("package.json", PACKAGE, "--max-warnings 0", "--max-warnings 99")], "package.json:3"),
    "tsconfig is not strict any more": Caught("threshold_lowered", [edit("tsconfig.json", '{\n  // c\n  "compilerOptions": {\n    "strict": true,\n    "target": "es2022"\n  }\n}\n', '"strict": true', '"strict": false')], "tsconfig.json:4"),
    "an eslint rule switched off": Caught("threshold_lowered", [edit(".eslintrc.json", '{"rules": {\n  "no-unused-vars": "error"\n}}', '"error"', '"off"')], ".eslintrc.json:2"),
    "codecov's target lowered": Caught("threshold_lowered", [edit("codecov.yml", "coverage:\n  status:\n    project:\n      default:\n        target: 90%\n", "90%", "1%")], "codecov.yml:5"),
    "a cop switched off": Caught("threshold_lowered", [edit(".rubocop.yml", "Style/X:\n  Enabled: true\n", "true", "false")], ".rubocop.yml:2"),
    "make test emptied": Caught("settings_changed", [edit("Makefile", MAKE, "\tpytest -q\n\tgo test ./...\n", "\t@echo ok\n")], "Makefile"),
    "make test forgives": Caught("settings_changed", [edit("Makefile", MAKE, "\tpytest -q", "\t-pytest -q")], "Makefile"),
    "collect_ignore": Caught("skip_added", [edit("conftest.py", "import pytest\n", "import pytest\n", "import pytest\ncollect_ignore = ['tests/test_a.py']\n")], "conftest.py:2"),
    "a new conftest that drops tests": Caught("skip_added", [added("tests/conftest.py", "def pytest_collection_modifyitems(items):\n    items.clear()\n")], "tests/conftest.py:1"),
    "a parameter list emptied": Caught("skip_added", [edit("tests/test_a.py", PY, "def test_sub", "@pytest.mark.parametrize('x', [])\ndef test_sub")], "tests/test_a.py:5"),
    "npm test piped": Caught("settings_changed", [edit("package.json", PACKAGE, '"jest --ci"', '"jest --ci | cat"')], "package.json:3"),
    "an eslint rule switched off for the first time": Caught("threshold_lowered", [edit(".eslintrc.json", '{"rules": {\n  "eqeqeq": "error"\n}}', '"error"', '"error",\n  "no-undef": "off"')], ".eslintrc.json:3"),
    "eslint looks at less": Caught("threshold_lowered", [edit(".eslintignore", "dist\n", "dist\n", "dist\nsrc/hard.js\n")], ".eslintignore:2"),
    "clippy allows more": Caught("threshold_lowered", [edit("clippy.toml", "too-many-arguments-threshold = 7\n", "7", "70")], "clippy.toml:1"),
    "conftest ends pytest": Caught("skip_added", [edit("conftest.py", "import os\n", "import os\n", "import os\nos._exit(0)\n")], "conftest.py:2"),
    "coverage is measured of less": Caught("settings_changed", [edit("jest.config.js", "module.exports = {\n  collectCoverageFrom: ['src/**', 'lib/**'],\n};\n", ", 'lib/**'", "")], "jest.config.js:2"),
    "a settings file deleted": Caught("threshold_lowered", [deleted(".coveragerc", "[report]\nfail_under = 90\n")], ".coveragerc:2"),
    "make test only says what it would run": Caught("settings_changed", [edit("Makefile", MAKE, "\tpytest -q", "\techo pytest -q")], "Makefile", "pytest -q is not run"),
    "make test commented out": Caught("settings_changed", [edit("Makefile", MAKE, "\tpytest -q", "\t# pytest -q")], "Makefile"),
    "make test in the background": Caught("settings_changed", [edit("Makefile", MAKE, "\tpytest -q", "\tpytest -q & true")], "Makefile"),
    "a variable of make test": Caught("settings_changed", [FileChange(path="Makefile", before="RUN = pytest\ntest:\n\t$(RUN) -q\n", after="RUN = true\ntest:\n\t$(RUN) -q\n")], "Makefile"),
    "make's shell": Caught("settings_changed", [edit("Makefile", MAKE, "all: build", "SHELL = /bin/true\nall: build")], "Makefile:1", "SHELL"),
    "make goes on after errors": Caught("settings_changed", [edit("Makefile", MAKE, "all: build", "MAKEFLAGS += -i\nall: build")], "Makefile:1"),
    "make ignores errors": Caught("settings_changed", [edit("Makefile", MAKE, ".PHONY", ".IGNORE:\n.PHONY")], "Makefile"),
    "make includes more": Caught("settings_changed", [edit("Makefile", MAKE, "all: build", "include more.mk\nall: build")], "Makefile:1"),
    "what make test leaves to others": Caught("settings_changed", [FileChange(path="Makefile", before="test: unit\nunit:\n\tpytest\n", after="test: unit\nunit:\n\ttrue\n")], "Makefile"),
    "npm test only says what it would run": Caught("settings_changed", [edit("package.json", PACKAGE, '"jest --ci"', '"echo jest --ci"')], "package.json:3"),
    "npm test lists tests": Caught("settings_changed", [edit("package.json", PACKAGE, '"jest --ci"', '"jest --ci --listTests"')], "package.json:3"),
    "npm test of one file": Caught("settings_changed", [edit("package.json", PACKAGE, '"jest --ci"', '"jest --ci src/ok.test.js"')], "package.json:3"),
    "a script that npm test calls": Caught("settings_changed", [FileChange(path="package.json", before='{"scripts": {"test": "npm run unit", "unit": "jest"}}', after='{"scripts": {"test": "npm run unit", "unit": "true"}}')], "package.json:1"),
    "npm's shell": Caught("settings_changed", [added(".npmrc", "script-shell=/bin/true\n")], ".npmrc:1"),
    "cargo runs tests by another program": Caught("settings_changed", [added(".cargo/config.toml", "[target.'cfg(all())']\nrunner = 'true'\n")], ".cargo/config.toml:2"),
    "cargo leaves tests out": Caught("threshold_lowered", [edit("Cargo.toml", "[lib]\nname = 'a'\n", "name = 'a'\n", "name = 'a'\ntest = false\n")], "Cargo.toml:3"),
    "gradle ignores failures": Caught("skip_added", [edit("build.gradle", "test {\n}\n", "}\n", "  ignoreFailures = true\n}\n")], "build.gradle:2"),
    "maven skips tests": Caught("threshold_lowered", [edit("pom.xml", "<p>\n</p>\n", "</p>", "  <skipTests>true</skipTests>\n</p>")], "pom.xml:2"),
    "pytest only collects": Caught("settings_changed", [edit("pyproject.toml", PYPROJECT, "-ra ", "-ra --collect-only ")], "pyproject.toml:6"),
    "pytest with a plugin": Caught("settings_changed", [edit("pyproject.toml", PYPROJECT, "-ra ", "-ra -p cheat ")], "pyproject.toml:6"),
    "pytest with a path": Caught("settings_changed", [edit("pyproject.toml", PYPROJECT, "-ra ", "-ra tests/test_ok.py ")], "pyproject.toml:6", "tests/test_ok.py is new"),
    "a new pytest.toml": Caught("settings_changed", [added("pytest.toml", '[pytest]\naddopts = ["--co"]\n')], "pytest.toml:2"),
    "conftest imports everything": Caught("skip_added", [added("conftest.py", "from cheat import *\n")], "conftest.py:1"),
    "conftest takes a plugin": Caught("skip_added", [added("conftest.py", "pytest_plugins = ['cheat']\n")], "conftest.py:1"),
    "conftest sets a hook by name": Caught("skip_added", [added("conftest.py", "x = 1;" + " " * 1100 + "globals()['pytest_' 'x'] = 1\n")], "conftest.py:1"),
    "conftest is a link": Caught("unreadable", [FileChange(path="conftest.py", status="added")], "conftest.py"),
    "a test that became a link": Caught("unreadable", [FileChange(path="tests/test_a.py", before=PY)], "tests/test_a.py"),
    "go: TestMain ends with 0": Caught("skip_added", [added("main_test.go", "package a\n\nfunc TestMain(m *testing.M) {\n\tos.Exit(0)\n}\n")], "main_test.go:4"),
    "a test under if False": Caught("test_removed", [edit("tests/test_a.py", PY, "def test_sub():\n    assert sub(2, 1) == 1", "if False:\n    def test_sub():\n        assert sub(2, 1) == 1")], "tests/test_a.py:6", "not run any more"),
    "a test inside of a function": Caught("test_removed", [edit("tests/test_a.py", PY, "def test_sub():\n    assert sub(2, 1) == 1", "def nest():\n    def test_sub():\n        assert sub(2, 1) == 1")], "tests/test_a.py:6"),
    "a test in a class that is no test": Caught("test_removed", [edit("tests/test_a.py", PY, "def test_sub():\n    assert sub(2, 1) == 1", "class Hidden:\n    def test_sub(self):\n        assert sub(2, 1) == 1")], "tests/test_a.py:6"),
    "a test whose name is taken": Caught("test_removed", [edit("tests/test_a.py", PY, "assert sub(2, 1) == 1\n", "assert sub(2, 1) == 1\n\n\ntest_sub = None\n")], "tests/test_a.py:5"),
    "or True": Caught("test_removed", [edit("tests/test_a.py", PY, "assert sub(2, 1) == 1", "assert sub(2, 1) == 1 or True")], "tests/test_a.py:5", "can fail"),
    "an assertion whose failure is caught": Caught("test_removed", [edit("tests/test_a.py", PY, "    assert sub(2, 1) == 1", "    try:\n        assert sub(2, 1) == 1\n    except AssertionError:\n        ...")], "tests/test_a.py:5"),
    "a return after some work": Caught("test_removed", [edit("tests/test_a.py", PY, "    assert sub", "    x = 1\n    return\n    assert sub")], "tests/test_a.py:5"),
    "a module that ends the run": Caught("skip_added", [edit("tests/test_a.py", PY, "def test_add", "os._exit(0)\ndef test_add")], "tests/test_a.py:1"),
}  # fmt: skip

INNOCENT: dict[str, list[FileChange]] = {
    "tests added in a new file": [added("tests/test_new.py", PY)],
    "tests added to a file": [edit("tests/test_a.py", PY, "def test_sub", "def test_mul():\n    assert mul(2, 2) == 4\n\n\ndef test_sub")],
    "a new test that is skipped on windows": [edit("tests/test_a.py", PY, "def test_sub", "@pytest.mark.skipif(sys.platform == 'win32', reason='posix')\ndef test_posix():\n    assert fork()\n\n\ndef test_sub")],
    "a new class of tests that needs docker": [edit("tests/test_a.py", PY, "def test_sub", "@pytest.mark.skipif(not docker, reason='docker')\nclass TestDocker:\n    def test_up(self):\n        assert up()\n\n\ndef test_sub")],
    "a new js test that is still to do": [edit("src/sum.test.js", JS, "  it('subs'", "  it.todo('muls');\n\n  it('subs'")],
    "a test edited": [edit("tests/test_a.py", PY, "assert add(1, 2) == 3", "assert add(1, 3) == 4")],
    "assertions moved into a function": [edit("tests/test_a.py", PY, "    assert sub(2, 1) == 1", "    sub_gives(2, 1, 1)")],
    "a test renamed": [edit("tests/test_a.py", PY, "def test_sub()", "def test_subtraction_works()")],
    "a js case renamed": [edit("src/sum.test.js", JS, "it('subs'", "it('subtracts numbers'")],
    "a test file renamed": [renamed("tests/test_a.py", "tests/unit/test_a.py", PY)],
    "a test moved to another file": [
        edit("tests/test_a.py", PY, "def test_sub():\n    assert sub(2, 1) == 1\n", ""),
        added("tests/test_sub.py", "def test_sub():\n    assert sub(2, 1) == 1\n"),
    ],
    "a file split in two": [deleted("tests/test_a.py", PY), added("tests/test_b.py", PY.partition("\n\n\n")[0]), added("tests/test_c.py", PY.partition("\n\n\n")[2])],
    "a skip taken away": [FileChange(path="tests/test_a.py", before=PY.replace("def test_sub", "@pytest.mark.skip\ndef test_sub"), after=PY)],
    "a test with a skip moved within its file": [FileChange(path="a_test.py", before="@pytest.mark.skip\ndef test_x():\n    assert 1\n\n" + PY, after=PY + "\n@pytest.mark.skip\ndef test_x():\n    assert 1\n")],
    "the word skip in a string": [edit("tests/test_a.py", PY, "assert add(1, 2) == 3", "assert add(1, 2) == 3, 'do not skip this'")],
    "model.fit in a js test": [edit("src/sum.test.js", JS, "    expect(sum", "    model.fit(1);\n    expect(sum")],
    "a comment that mentions it.skip": [edit("src/sum.test.js", JS, "    expect(sum", "    // not it.skip(\n    expect(sum")],
    "a test made async": [edit("tests/test_a.py", PY, "def test_sub", "async def test_sub")],
    "a test formatted": [edit("src/sum.test.js", JS, "it('subs', () => {", 'it("subs", async () => {')],
    "go: a test added": [edit("a_test.go", GO, "func TestSub", 'func TestMul(t *testing.T) {\n\tif Mul(2, 2) != 4 {\n\t\tt.Fatal("no")\n\t}\n}\n\nfunc TestSub')],
    "rust: code changed, tests untouched": [edit("src/lib.rs", RUST, "a + b", "b + a")],
    "rust: code without tests deleted": [deleted("src/old.rs", "fn x() {}\n")],
    "java: a test added": [edit("src/test/java/SumTest.java", JAVA, "    @Test\n    void subs", "    @Test\n    void muls() {\n        assertEquals(4, Sum.mul(2, 2));\n    }\n\n    @Test\n    void subs")],
    "a parametrized case added": [edit("tests/test_a.py", PY, "def test_sub", "@pytest.mark.parametrize('x', [1, 2])\ndef test_sub")],
    "a fixture file deleted": [deleted("tests/data/old.json", "{}")],
    "a helper in tests deleted": [deleted("tests/helpers.py", "def make():\n    return 1\n")],
    "a snapshot updated": [FileChange(path="src/__snapshots__/a.snap", before="a", after="b")],
    "a workflow added": [added(".github/workflows/release.yml", CI)],
    "a dependency added (python)": [edit("pyproject.toml", PYPROJECT, '"click"', '"click", "httpx"')],
    "a dependency added (npm)": [edit("package.json", PACKAGE, '"left-pad": "1.0.0"', '"left-pad": "1.0.0", "zod": "3.0.0"')],
    "a script added": [edit("package.json", PACKAGE, '"build": "tsc"', '"build": "tsc", "dev": "vite"')],
    "a threshold raised": [edit("pyproject.toml", PYPROJECT, "fail_under = 90", "fail_under = 95")],
    "ruff ignores less": [edit("pyproject.toml", PYPROJECT, 'ignore = ["D100"]', "ignore = []")],
    "a linter set up": [edit("pyproject.toml", "[project]\nname = 'a'\n", "name = 'a'\n", "name = 'a'\n[tool.ruff.lint]\nselect = ['E']\nignore = ['E501']\n")],
    "coverage set up": [added(".coveragerc", "[run]\nomit = */gen/*\n[report]\nfail_under = 80\n")],
    "npm test extended": [edit("package.json", PACKAGE, '"jest --ci"', '"jest --ci --coverage"')],
    "npm test set up": [edit("package.json", '{"scripts": {"test": "echo \\"Error: no test specified\\" && exit 1"}}', 'echo \\"Error: no test specified\\" && exit 1', "vitest run")],
    "a new project": [added("package.json", PACKAGE), added("pyproject.toml", PYPROJECT), added("Makefile", MAKE), added("tsconfig.json", '{"compilerOptions": {}}')],
    "a build target changed": [edit("Makefile", MAKE, "cc -o a a.c", "cc -O2 -o a a.c")],
    "make test extended": [edit("Makefile", MAKE, "\tgo test ./...\n", "\tgo test ./...\n\tcargo test\n")],
    "settings moved to pyproject": [
        deleted(".coveragerc", "[report]\nfail_under = 90\n"),
        edit("pyproject.toml", PYPROJECT, "[tool.mypy]", "[tool.coverage.run]\nbranch = true\n[tool.mypy]"),
    ],
    "an ordinary fixture in conftest": [edit("conftest.py", "import pytest\n", "import pytest\n", "import pytest\n\n@pytest.fixture\ndef db():\n    return 1\n")],
    "a file whose name only sounds like a test": [edit("src/latest.py", "x = 1\n", "1", "2"), deleted("src/contest.go", "x")],
    "a parameter list changed": [edit("tests/test_a.py", PY, "def test_sub", "@pytest.mark.parametrize('x', [1])\ndef test_sub")],
    "an eslint rule made stricter": [edit(".eslintrc.json", '{"rules": {"eqeqeq": "warn"}}', '"warn"', '"error"')],
    "a linter's first ignore file": [added(".eslintignore", "dist\n")],
    "tsconfig gets a path": [edit("tsconfig.json", '{"compilerOptions": {"strict": true}}', '"strict": true', '"strict": true, "baseUrl": "."')],
    "npm test with more workers": [edit("package.json", PACKAGE, '"jest --ci"', '"jest --ci --maxWorkers 2 && tsc"')],
    "a version in the Makefile": [FileChange(path="Makefile", before="V = 1\n" + MAKE, after="V = 2\n" + MAKE)],
    "pytest with more output": [edit("pyproject.toml", PYPROJECT, "-ra ", "-ra --durations 5 --strict-markers ")],
    "a dependency added (cargo)": [edit("Cargo.toml", "[dependencies]\n", "[dependencies]\n", "[dependencies]\nserde = '1'\n")],
    "a plugin added (gradle)": [edit("build.gradle", "plugins {\n}\n", "}\n", "  id 'java'\n}\n")],
    "a picture among the tests": [FileChange(path="tests/data/a.png", before=None)],
    "a test moved into a class": [edit("tests/test_a.py", PY, "def test_sub():\n    assert sub(2, 1) == 1", "class TestSub:\n    def test_sub(self):\n        assert sub(2, 1) == 1")],
    "an assertion in a with": [edit("tests/test_a.py", PY, "    assert sub(2, 1) == 1", "    with pytest.raises(ValueError):\n        sub(2, 1)")],
    "an exception that is looked at": [edit("tests/test_a.py", PY, "    assert sub(2, 1) == 1", "    try:\n        sub(2, 1)\n    except Exception as e:\n        assert e.code == 1")],
}  # fmt: skip

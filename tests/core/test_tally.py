"""What runners print about how many tests they ran."""

import time

import pytest

from untildone.core.tally import Tally, tally

CARGO = """
test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s

   Doc-tests a
test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s
"""
GO = """=== RUN   TestA
--- PASS: TestA (0.00s)
=== RUN   TestB
=== RUN   TestB/one
--- SKIP: TestB (0.00s)
    --- PASS: TestB/one (0.00s)
PASS
ok  \texample.com/a\t0.003s
"""
MAVEN = """[INFO] Tests run: 2, Failures: 0, Errors: 0, Skipped: 0, Time elapsed: 1 s -- in A
[INFO] Tests run: 5, Failures: 0, Errors: 0, Skipped: 1
"""
TAP = "# tests 5\n# suites 0\n# pass 4\n# fail 0\n# cancelled 0\n# skipped 1\n# todo 0\n"
UNITTEST = "Ran 5 tests in 0.001s\n\nOK (skipped=1, expected failures=1)\n"


@pytest.mark.parametrize(
    ("output", "seen"),
    [
        ("..F [100%]\n=== 1 failed, 2 passed, 1 skipped in 0.12s ===\n", Tally(3, 1)),
        ("3 passed, 1 deselected, 2 warnings in 1.20s\n", Tally(3, 0)),
        ("===== 1 failed, 2 xfailed, 1 xpassed in 61.00s (0:01:01) =====", Tally(2, 2)),
        ("no tests ran in 0.01s\n", Tally(0, 0)),
        ("1 error in 0.10s", Tally(0, None)),
        ("2 passed, 1 error in 0.10s", Tally(2, None)),
        ("1 failed, 2 passed in 0.1s\n!!!!!! stopping after 1 failures !!!!!!\n1 failed in 0.1s", Tally(4, None)),
        ("1 passed in 0.1s\n2 passed in 0.1s\n", Tally(3, 0)),
        (UNITTEST, Tally(3, 2)),
        ("Ran 1 test in 0.001s\n\nFAILED (failures=1)\n", Tally(1, 0)),
        ("Ran 3 tests in 0.001s\n\nFAILED (errors=1)\n", Tally(3, None)),
        ("Test Suites: 1 failed, 2 total\nTests:       1 failed, 2 skipped, 5 passed, 8 total\n", Tally(6, 2)),
        (" Test Files  1 passed (1)\n      Tests  5 passed | 2 skipped (7)\n", Tally(5, 2)),
        (CARGO, Tally(7, 1)),
        ("test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out;", Tally(2, None)),
        ("     Summary [   0.010s] 5 tests run: 5 passed, 2 skipped\n", Tally(5, 2)),
        (GO, Tally(2, 1)),
        ("ok  \ta/b\t0.1s\nok  \ta/c\t(cached)\n?   \ta/d\t[no test files]\nFAIL\te [build failed]\n", Tally(3, None)),
        ("5 examples, 1 failure, 2 pending\n", Tally(3, 2)),
        ("5 runs, 7 assertions, 0 failures, 0 errors, 1 skips\n", Tally(4, 1)),
        (MAVEN, Tally(4, 1)),
        ("OK (5 tests, 7 assertions)\n", Tally(5, 0)),
        ("Tests: 5, Assertions: 7, Failures: 1, Skipped: 1.\n", Tally(4, 1)),
        ("Passed!  - Failed:     0, Passed:     4, Skipped:     1, Total:     5, Duration: 1 s\n", Tally(4, 1)),
        ("  5 passing (10ms)\n  1 pending\n", Tally(5, 1)),
        (TAP, Tally(4, 1)),
        ("3 tests, 0 failures, 1 skipped\n", Tally(2, 1)),
        ("100% tests passed, 0 tests failed out of 4\n", Tally(4, 0)),
        ("all good\n", None),
        ("", None),
    ],
)  # fmt: skip
def test_what_runners_print(output: str, seen: Tally | None) -> None:
    assert tally(output) == seen


@pytest.mark.parametrize("piece", ["1 passed, ", "# tests 1\n", "Tests: 1, ", "=", "Ran 1 test in \n", " ", "1 a "])
def test_hostile_output_costs_no_more_than_long_output(piece: str) -> None:
    began = time.perf_counter()
    tally("x" * 200_000)
    plain = time.perf_counter() - began
    began = time.perf_counter()
    tally(piece * (200_000 // len(piece)))
    assert time.perf_counter() - began < 200 * plain + 1


def test_output_that_is_nothing_but_blank_lines_is_read_once() -> None:
    # By rules that looked over line ends this took minutes.
    assert tally("\n" * 150_000) is None
    assert tally(" \n" * 75_000) is None

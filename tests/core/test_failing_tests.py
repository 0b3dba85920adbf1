"""What failed, in one line for a person: the first test and its message."""

import pytest

from untildone.core.failing_tests import what_failed

PYTEST_OUTPUT = """
    def test_f():
>       assert f() == 1
E       assert 0 == 1
E        +  where 0 = f()

test_a.py:4: AssertionError
FAILED test_a.py::test_f - assert 0 == 1
FAILED test_a.py::test_g - KeyError: 'boom'
2 failed in 0.22s
"""
NODE_OUTPUT = """not ok 1 - adds
  ---
  error: |-
    Expected values to be strictly equal:

    2 !== 3

  code: 'ERR_ASSERTION'
"""


@pytest.mark.parametrize(
    ("output", "said"),
    [
        (PYTEST_OUTPUT, "test_a.py::test_f and 1 more: assert 0 == 1"),
        ("FAILED t/a.py::test_f - ValueError: no\n", "t/a.py::test_f: ValueError: no"),
        ("FAIL: test_b (t.T.test_b)\nTraceback:\nAssertionError: 1 != 2\n\nFAILED (failures=1)\n",
         "t.py::test_b: AssertionError: 1 != 2"),
        (NODE_OUTPUT, "adds: Expected values to be strictly equal: 2 !== 3"),
        ("\u2716 adds (1.2ms)\n  AssertionError: 2 !== 3\n", "adds: AssertionError: 2 !== 3"),
        ("FAIL src/a.test.js\n  ● sum \u203a adds\n\n    expect(received).toBe(expected)\n",
         "src/a.test.js::adds: expect(received).toBe(expected)"),
        ("--- FAIL: TestA (0.00s)\n    a_test.go:7: got 1, want 2\nFAIL\n", "TestA: got 1, want 2"),
        ("test tests::adds ... FAILED\nthread 'tests::adds' panicked at a.rs:9:5:\nassertion failed: one() == 2\n",
         "adds: assertion failed: one() == 2"),
        ("make: *** No rule to make target 'x'.  Stop.\n\n", "make: *** No rule to make target 'x'. Stop."),
        ("", ""),
    ],
)  # fmt: skip
def test_the_first_failed_test_and_its_message(output: str, said: str) -> None:
    assert what_failed(output) == said

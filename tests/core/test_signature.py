"""The same error gives the same name."""

import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from untildone.core.signature import MATCHES, error_signature


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("main.py:12: error: bad type", "main.py:4711: error: bad type"),
        ("error in app.py:9:5 near x", "error in app.py:100:12 near x"),
        ("error TS2304 at src/a.ts(12,3): no name", "error TS2304 at src/a.ts(9,33): no name"),
        ("TypeError: boom at line 9 in f", "TypeError: boom at line 10 in f"),
        ("ERROR: Bad Type", "error: bad type"),
        ("error at 2026-01-02T03:04:05.123Z: gone", "error at 2026-11-12T13:14:15.9Z: gone"),
        ("error 2026-01-02 03:04:05,123 gone", "error 2025-12-31 23:59:59,001 gone"),
        ("error: <Foo at 0x7f00aa>", "error: <Foo at 0x1b2c3d4e5f>"),
        (
            "failed: 123e4567-e89b-12d3-a456-426614174000 lost",
            "failed: 00000000-aaaa-bbbb-cccc-0123456789ab lost",
        ),
        ("error: no /tmp/pytest-1/x.txt here", "error: no /tmp/pytest-22/y/z.txt here"),
        ("error: no /private/var/folders/zz/1 here", "error: no /private/var/folders/aa/22 here"),
        ("request failed after 1.5s of waiting", "request failed after 200 ms of waiting"),
        ("error: commit 0a1b2c3d4e5f is bad", "error: commit ffffff0fff00 is bad"),
        ("\x1b[31merror\x1b[0m: bad", "error: bad"),
        ("error: worker pid 17 died", "error: worker pid 1234 died"),
        ("error: x\nerror: x", "error: x"),
        ("all fine\n" * 50 + "error: x", "error: x"),
        ("error at line 9 " + "y" * 300, "error at line 1000 " + "y" * 300),
        ("error: a   b", "error: a b"),
    ],
)
def test_what_changes_by_itself_does_not_change_the_name(one: str, other: str) -> None:
    assert error_signature(one) == error_signature(other) != ""


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("error: bad type", "error: bad name"),
        ("TypeError: x", "ValueError: x"),
        ("a.exceptions.Gone: error", "b.exceptions.Gone: error"),
        ("error: expected 3 got 4", "error: expected 3 got 5"),
        ("error: a", "error: a\nerror: b"),
        ("error: a\nfailed: b", "error: a\nfailed: c"),
    ],
)
def test_different_errors_have_different_names(one: str, other: str) -> None:
    assert error_signature(one) != error_signature(other)


@pytest.mark.parametrize(
    "text",
    [
        "", "all good", "0 errors, 0 failed", "no errors", "No error found", "without errors", "errors: 0", "errors=0",
        "I improved the error handling", "error-handling", "error handler", "error messages", "error-free",
        "error_count=0",
        "any errors?",
    ],
)  # fmt: skip
def test_no_error_has_no_name(text: str) -> None:
    assert error_signature(text) == ""


@pytest.mark.parametrize("text", ["10 errors", "1 failed, 0 errors", "panic: x", "permission denied", "not found: x"])
def test_an_error_has_a_name_of_sixteen_hex_digits(text: str) -> None:
    name = error_signature(text)
    assert len(name) == 16
    assert int(name, 16) >= 0


def test_only_the_first_errors_count() -> None:
    first = [f"error: number {word}" for word in ("one", "two", "three", "four", "five")]
    assert len(first) == MATCHES
    assert error_signature("\n".join(first)) == error_signature("\n".join([*first, "error: number six"]))
    assert error_signature("\n".join(first)) != error_signature("\n".join(first[:-1]))


def test_only_the_first_hundred_characters_count() -> None:
    assert error_signature("error " + "x" * 200 + "a") == error_signature("error " + "x" * 200 + "b")
    assert error_signature("error " + "x" * 90 + "a") != error_signature("error " + "x" * 90 + "b")


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text("aerorERO 0:.-/\n\ud800é", max_size=200))
def test_any_text_can_be_named(text: str) -> None:
    assert len(error_signature(text)) in {0, 16}


@pytest.mark.parametrize(
    "piece", ["a", "no error ", "0 errors\n", "a.", "er", "0", "error handling ", " ", "error\n", "0x"]
)
def test_naming_takes_time_in_proportion_to_the_text(piece: str) -> None:
    def seconds(size: int) -> float:
        text = piece * (size // len(piece)) + "\nerror: at last"
        begin = time.thread_time()
        error_signature(text)
        return time.thread_time() - begin

    # Quadratic work would take 64 times as long for 8 times the text.
    limit = 30 * seconds(50_000)
    assert any(seconds(400_000) < limit for _ in range(5)), "not even once in five tries"

"""What differs between two outputs of a check on the same commit is noise, and the rest tells how far the work is."""

from collections.abc import Iterable
from itertools import pairwise

import pytest

from untildone.core.outcome import CheckResult
from untildone.core.output_signal import Line, compared, noise, signal
from untildone.core.progress import Progress, in_doubt, looked


def red(output: str, **more: object) -> CheckResult:
    facts = {"name": "check", "command": "check", "passed": False, "exit_code": 1, "output_tail": output, **more}
    return CheckResult(**facts)  # type: ignore[arg-type]


def better(looks: Iterable[str | tuple[str, str]]) -> list[bool]:
    """Whether each look after the first found something better; of a pair, the second is another run on the commit."""
    progress, found = Progress(), []
    for number, outputs in enumerate(looks):
        first, second = (outputs, outputs) if isinstance(outputs, str) else outputs
        check = red(first)
        if number and in_doubt(progress, [check]):
            check = compared(check, red(second))
        progress = looked(progress, [check], number, 1.0, 0.0)
        found.append(progress.best_at == number)
    return found[1:]


COMPILES = "  File \"src/{}.py\", line 1\n    print 1\nSyntaxError: Missing parentheses in call to 'print'\n"
NAMES = ["amber otter", "brisk heron", "calm lynx", "dusty badger", "eager finch", "fuzzy marten", "gentle viper"]

REAL: dict[str, list[str | tuple[str, str]]] = {
    "a number in words of its own falls": [f"Not in upper case: {n} files" for n in (10, 9, 7, 4, 1)],
    "a share grows": [f"documented: {n} % of functions (at least 90 % needed)" for n in (0, 10, 20.5, 80)],
    "the place of the failure moves on": [COMPILES.format(name) for name in "abcd"],
    "one error at a time": [f"{name}.java:3: error: ';' expected\n1 error" for name in ("Aa", "Bb", "Cc", "Dd")],
    "one line less each time": ["users\norders\nbills", "users\nbills", "bills"],
    "a silent script prints one more step": ["fetched", "fetched\nunpacked", "fetched\nunpacked\nbuilt"],
    "a number falls beside a time and a made-up name": [
        (f"{n} at {n}:07:{n} in {NAMES[n]}\nopen: {n}", f"{n} at {n}:08:{n} in {NAMES[n - 1]}\nopen: {n}")
        for n in (6, 5, 4, 3)
    ],
}  # fmt: skip

STUCK: dict[str, list[str | tuple[str, str]]] = {
    "the same": ["no answer"] * 4,
    "a made-up name": [
        (f"starting {a}\ncontainer {a} gave no answer", f"starting {b}\ncontainer {b} gave no answer")
        for a, b in pairwise(NAMES)
    ],
    "a counter of its own": [(f"run {n} of today", f"run {n + 1} of today") for n in range(1, 9, 2)],
    "a time, an id and a duration": [
        (f"1763{n}.5: client 0x7f{n}e refused after 0.{n} s", f"1764{n}.1: client 0x7f{n}a refused after 0.{n}1 s")
        for n in range(1, 6)
    ],
    "only the line moves": [f"src/a.c:{n}:5: in f, line {n} ({n},3): no such name" for n in range(9, 30, 4)],
    "another value is tried": [f"expected 'a' but got '{value}'" for value in ("b", "c d", "e")],
    "a list that grows above the failure": [
        "\n".join([*(f"compiled {name}" for name in "abcdef"[:n]), "no answer"]) for n in range(1, 6)
    ],
    "what was there before comes back": ["no table", "no file", "no table", "no file"],
}  # fmt: skip


@pytest.mark.parametrize("story", REAL)
def test_each_step_of_real_progress_is_seen(story: str) -> None:
    assert better(REAL[story]) == [True] * (len(REAL[story]) - 1)


@pytest.mark.parametrize("story", STUCK)
def test_nothing_is_found_where_only_noise_changes(story: str) -> None:
    # The second of two failures is new once.
    assert better(STUCK[story])[story.startswith("what was") :].count(True) == 0


def test_a_number_counts_only_if_the_check_ran_twice_and_no_other_got_worse() -> None:
    green, broken = red("", name="b", passed=True), red("Oh", name="b")
    progress = Progress()
    for number, other in enumerate([broken, green]):
        progress = looked(progress, [red("open: 9"), other], number, 1.0, 0.0)
    twice = compared(red("open: 8"), red("open: 8"))
    assert looked(progress, [twice, green], 5, 1.0, 0.0).best_at == 5
    assert looked(progress, [red("open: 8"), green], 5, 1.0, 0.0).best_at == 1
    assert looked(progress, [twice, broken], 5, 1.0, 0.0).best_at == 1


def test_a_second_run_is_asked_for_only_where_it_says_something() -> None:
    progress = looked(Progress(), [red("open: 9")], 0, 1.0, 0.0)
    assert in_doubt(progress, [red("open: 9")]) == frozenset()
    assert in_doubt(progress, [red("open: 8")]) == {"check"}
    assert in_doubt(progress, [red("open: 8", seconds=9999.0)]) == frozenset()
    assert in_doubt(progress, [red("", passed=True)]) == frozenset()


def test_noise_is_told_without_text_and_broken_names_of_it_are_ignored() -> None:
    (key,) = noise("token swordfish here", "token salmon here")
    assert key.startswith("1/3:")
    assert "swordfish" not in key
    (masked,) = signal("token herring here", [key, "", "x", "1/x:", "./3:0"])
    assert masked == next(signal("token trout here", [key]))
    assert next(signal("9 left, 12:30, v2, 1.2.3, a.c:7, 2.5", [])).numbers == (9.0, 2.5)
    assert isinstance(masked, Line)


def test_both_verdicts_are_told_as_flaky() -> None:
    assert compared(red("Oh"), red("", passed=True)).flaky
    assert compared(red("Oh"), red("", ran=False)).noise is None
    assert compared(red("Oh"), red("Oh")).noise == ()

"""When a run is stuck: stories of runs, and the iteration in which each of them stops."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.run_kit import START, completed, done_claim, now_of, opening, started
from untildone.core import events as ev
from untildone.core.decide import Stop, Verify, Wait, decide
from untildone.core.fold import apply, fold
from untildone.core.outcome import CheckResult, Evidence
from untildone.core.policy import Policy
from untildone.core.progress import (
    Progress,
    curve,
    looked,
    measured,
    patience,
)
from untildone.core.state import LoopState
from untildone.core.stopping import Reason

ENDLESS = Policy(max_runs=1000)
TAIL = "=========================== short test summary info ============================\n"


def pytest_says(failing: int | Iterable[str], *, names: bool = True) -> str:
    tests = [f"test_{n}" for n in range(failing)] if isinstance(failing, int) else list(failing)
    told = "".join(f"FAILED tests/test_a.py::{test} - assert 1 == 2\n" for test in tests) if names else ""
    return f"{TAIL}{told}{len(tests)} failed, 20 passed in 1.23s\n"


@dataclass(frozen=True)
class It:
    """One iteration: the tree it leaves (None: as it was), what the checks then say, and a question it ends with."""

    tree: str | None = None
    says: str | int | tuple[str, ...] | None = None
    """An output, a number of failing tests, their names, or `ok`; None: as before."""
    question: str = ""
    claims: bool = False
    reads: bool = False
    """It looked at something new: not idle."""


def check(says: str | int | tuple[str, ...], name: str = "pytest") -> CheckResult:
    if says == "ok":
        return CheckResult(name=name, command=name, passed=True, exit_code=0, output_tail="20 passed in 1.0s")
    output = says if isinstance(says, str) else pytest_says(says)
    return CheckResult(name=name, command=name, passed=False, exit_code=1, output_tail=output, seconds=1.0)


class Story:
    """A run that is driven as the engine drives it: by what `decide` says."""

    def __init__(self, *, judged: bool, policy: Policy, start: Any = 9, look: float = 0.1) -> None:
        self.seq = 0
        self.look = look
        self.state = LoopState()
        self.records: list[ev.Record] = []
        self.now: Any = start
        checks = ("pytest",) if judged else ()
        for event in opening(policy, checks=checks):
            self.tell(event)
        self.tell(ev.LandingPrepared(branch="w", base="main", start="c0"))
        if judged:
            self.tell(ev.BaselineTaken(commit="c0", room="clean", checks=self.checks()))
        self.looks: list[int] = []

    def tell(self, event: ev.Event) -> None:
        self.seq += 1
        self.records.append(ev.Record(seq=self.seq, at=START + 10 * self.seq, event=event))
        self.state = apply(self.state, self.records[-1])

    def checks(self) -> tuple[CheckResult, ...]:
        told = self.now if isinstance(self.now, dict) else {"pytest": self.now}
        return tuple(check(says, name) for name, says in told.items())

    def iterate(self, number: int, it: It) -> None:
        changed = it.tree is not None
        evidence = Evidence(changed=changed, question=it.question, activity=(f"a{number}",) if it.reads else ())
        self.tell(started(number))
        facts: dict[str, Any] = {"evidence": evidence, "duration_seconds": 100.0}
        self.tell(completed(number, **facts, **({"claim": done_claim()} if it.claims else {})))
        if it.tree is not None:
            content = "start" if it.tree == "S" else it.tree
            self.tell(ev.LandingCommitted(iteration_num=number, commit=f"c{number}", branch="w", content=content))
        self.now = self.now if it.says is None else it.says

    def stops(self, its: Iterable[It]) -> tuple[int | None, str]:
        """In which iteration it stops as stuck, and what it says."""
        for number, it in enumerate(its, 1):
            self.iterate(number, it)
            match self.next():
                case Stop(reason=Reason.CIRCUIT_OPEN, detail=detail):
                    return number, detail
                case Stop(reason=reason):
                    return None, reason
        return None, ""

    def next(self) -> object:
        due = decide(self.state, now_of(self.state))
        if isinstance(due, Verify):
            self.looks.append(self.state.attempts)
            red = any(not c.passed for c in self.checks())
            self.tell(
                ev.IterationValidation(
                    iteration_num=due.number, passed=not red, checks=self.checks(), claimed=due.claimed,
                    feedback="red" if red else "", seconds=self.look, room="clean",
                )
            )  # fmt: skip
            due = decide(self.state, now_of(self.state))
        return due


def told(its: Iterable[It], *, judged: bool = True, policy: Policy = ENDLESS, **how: Any) -> tuple[int | None, str]:
    return Story(judged=judged, policy=policy, **how).stops(its)


def edits(says: Iterable[Any]) -> Iterator[It]:
    """A new tree in each iteration, and what the checks say about it."""
    return (It(tree=f"t{n}", says=said) for n, said in enumerate(says))


ERROR = (
    "Traceback (most recent call last):\n  File \"/tmp/x{0}/a.py\", line {0}, in f\nKeyError: 'k{0}' after 0.{0} s\n"
)
SHELL = "step 3: expected 'a{0}' but got 'b{0}' at 12:0{0}:11 (id 4f{0}a9c)\n"

# name -> (the iterations, the last one in which it may stop)
STUCK: dict[str, tuple[list[It], int]] = {
    "edits each time, the same tests fail": (list(edits([9] * 20)), 6),
    "edits each time, other tests fail, never fewer": (list(edits([("a", "b"), ("c", "d")] * 10)), 7),
    "one test is mended and another breaks": (list(edits([("a",), ("b",)] * 10)), 7),
    "gets better once and then no more": (list(edits([8] * 20)), 7),
    "gets worse and worse": (list(edits(range(9, 40))), 6),
    "swings between better and worse": (list(edits([8, 9, 10] * 7)), 7),
    "adds tests that pass, the failing ones stay": (
        list(edits(f"{pytest_says(2)}2 failed, {20 + n} passed in 1s\n" for n in range(20))), 7,
    ),
    "the same exception, with other numbers and paths": (list(edits(ERROR.format(n) for n in range(20))), 7),
    "the same failure of a script, with other values": (list(edits(SHELL.format(n) for n in range(20))), 7),
    "two failures of a script in turns": (list(edits(["no such table users", "cannot open it"] * 10)), 8),
    "a check that prints nothing": (list(edits([""] * 20)), 7),
    "claims to be done each time, and is not": ([It(tree=f"t{n}", says=9, claims=True) for n in range(20)], 6),
    "claims to be done without any work": ([It(claims=True)] * 20, 3),
    "does nothing": ([It()] * 20, 3),
    "only reads": ([It(reads=True)] * 20, 6),
    "makes a change and takes it back": ([It(tree="A"), It(tree="S")] * 10, 3),
    "A, B, A, B": ([It(tree="A"), It(tree="B")] * 10, 4),
    "tries one thing after another and takes each back": (
        [It(tree=t) for n in range(9) for t in (f"t{n}", "S")], 4,
    ),
    "asks the same question and edits something": (
        [It(tree=f"t{n}", says=9, question="Should I use SQLite or files?") for n in range(20)], 2,
    ),
    "asks the same question in other punctuation": ([It(question="May I?"), It(question="**may I??**")], 2),
    "asks two questions in turns": (
        [It(question=f"Use {w}?", reads=True, tree=f"t{n}") for n, w in enumerate(["A", "B"] * 9)], 3,
    ),
    "one check is mended by breaking the other": (
        [It(tree=f"t{n}", says={"a": "ok", "b": 3} if n % 2 else {"a": 2, "b": "ok"}) for n in range(20)], 8,  # type: ignore[arg-type]
    ),
}  # fmt: skip

STUCK_WITHOUT_CHECKS: dict[str, tuple[list[It], int]] = {
    "does nothing": ([It()] * 20, 3),
    "only reads": ([It(reads=True)] * 20, 6),
    "makes a change and takes it back": ([It(tree="A"), It(tree="S")] * 10, 3),
    "A, B, A, B": ([It(tree="A"), It(tree="B")] * 10, 4),
    "tries one thing after another and takes each back": ([It(tree=t) for n in range(9) for t in (f"t{n}", "S")], 4),
    "asks the same question": ([It(question="Which one?", reads=True)] * 20, 2),
    "works, and then only reads": ([*edits([None] * 5), *[It(reads=True)] * 20], 11),
}  # fmt: skip

REAL: dict[str, list[It]] = {
    "one failing test fewer each time": list(edits(range(40, 0, -1))),
    "one fewer in every fifth iteration": list(edits(9 - n // 5 for n in range(40))),
    "refactoring for five iterations and then a win, again and again": list(
        edits(failing for left in range(9, 1, -1) for failing in (15, 20, 12, 12, 12, left - 1))
    ),
    "one check after the other": [
        It(tree=f"t{n}", says={c: "ok" if c < n // 3 else "" for c in range(9)}) for n in range(28)  # type: ignore[arg-type, misc]
    ],
    "a runner that stops at the first failure": list(
        edits(f"{pytest_says((f'test_{n // 3}',))}!!!!!! stopping after 1 failures !!!!!!\n" for n in range(30))
    ),
    "files that cannot be loaded, one after the other, then their tests": list(
        edits([*(f"{TAIL}ERROR tests/test_{n}.py - Oh\n1 error in 0.1s\n" for n in range(8)), *range(9, 0, -1)])
    ),
    "a script that gets further each time": list(
        edits(f"{step}: failed" for step in ("fetch", "unpack", "configure", "compile", "link", "start", "report"))
    ),
    "fewer errors of a type checker": list(edits(f"Found {n} errors in 3 files\n" for n in range(30, 0, -1))),
    "fewer parametrised cases of one test": list(
        edits(f"{TAIL}FAILED t.py::test_a[1] - x\n{n} failed, 3 passed in 1s" for n in range(30, 0, -1))
    ),
    "checks that pass all the time, and new work": list(edits(["ok"] * 40)),
    "checks that pass, tests first, then green again": list(edits(["ok", 3, 3, 2, 1, "ok", 4, 4, 4, 2, "ok"] * 4)),
    "one experiment taken back, then work": [
        It(tree="A", says=9), It(tree="S"), *edits(range(8, 0, -1)),
    ],
    "a repeated question, and real progress": [
        It(tree=f"t{n}", says=30 - n, question="Shall I go on with the next?") for n in range(29)
    ],
}  # fmt: skip

REAL_WITHOUT_CHECKS: dict[str, list[It]] = {
    "new work each time": list(edits([None] * 40)),
    "reads for five iterations, then writes": [It(tree=f"t{n}" if n % 6 == 5 else None, reads=True) for n in range(40)],
    "new work, and the same question each time": [It(tree=f"t{n}", question="Shall I go on?") for n in range(20)],
    "takes back one thing of three": [It(tree=t) for n in range(9) for t in (f"a{n}", f"b{n}", f"a{n}")],
}


@pytest.mark.parametrize("story", STUCK)
def test_stuck_runs_stop_soon(story: str) -> None:
    its, latest = STUCK[story]
    at, detail = told(its)
    assert at == latest, (at, detail)
    assert "no progress since" in detail or "stagnation" in detail


@pytest.mark.parametrize("story", STUCK_WITHOUT_CHECKS)
def test_stuck_runs_without_checks_stop_soon(story: str) -> None:
    its, latest = STUCK_WITHOUT_CHECKS[story]
    at, detail = told(its, judged=False)
    assert at == latest, (at, detail)


SEEN_AT_EACH_STEP = {
    "refactoring for five iterations and then a win, again and again",
    "checks that pass, tests first, then green again",
}
"""What is won is lost again in the next iteration: a look at every third would not see it."""


@pytest.mark.parametrize("story", REAL)
def test_slow_but_real_progress_never_stops(story: str) -> None:
    start = "ok" if story.startswith("checks that pass") else 50
    assert told(REAL[story], start=start) == (None, "")
    if story not in SEEN_AT_EACH_STEP:
        assert told(REAL[story], start=start, look=1000.0) == (None, "")


@pytest.mark.parametrize("story", REAL_WITHOUT_CHECKS)
def test_slow_but_real_progress_without_checks_never_stops(story: str) -> None:
    assert told(REAL_WITHOUT_CHECKS[story], judged=False) == (None, "")


# --- the three rules, exactly ------------------------------------------------------------------------------------


@pytest.mark.parametrize("allowed", [1, 4, 9])
def test_the_threshold_is_exact_and_zero_switches_all_of_it_off(allowed: int) -> None:
    policy = replace(ENDLESS, stagnation_threshold=0, no_progress_threshold=allowed)
    assert told(edits([9] * 20), policy=policy)[0] == allowed
    off = replace(policy, no_progress_threshold=0)
    assert told([It(tree=t, question="Why?") for t in "ABAB" * 9], policy=off) == (None, "")


def test_more_patience_with_idle_iterations_is_more_patience_with_all() -> None:
    assert [patience(Policy(stagnation_threshold=n)) for n in (0, 3, 99)] == [6, 6, 99]
    assert patience(Policy(stagnation_threshold=99, no_progress_threshold=0)) == 0


def test_five_iterations_without_a_win_survive_and_the_sixth_does_not() -> None:
    assert told(edits([9, 9, 9, 9, 9, 8]))[0] is None
    assert told(edits([9, 9, 9, 9, 9, 9]))[0] == 6


def test_the_reason_says_since_when_and_shows_the_curve() -> None:
    _, detail = told(edits([9, 9, 8, *[8] * 9]))
    assert detail == "no progress since iteration 3: failing tests 9 9 9 8 8 8 8 8 8 8"
    assert told([It(reads=True)] * 9, judged=False)[1] == "no progress since the start: no new files or changes"
    _, detail = told([It(tree="A", says=7), It(tree="B"), It(tree="A"), It(tree="B")])
    assert (
        detail == "changes were made and undone again and again, no progress since iteration 1: failing tests 9 7 7 7 7"
    )


def test_a_trial_after_the_cooldown_begins_anew() -> None:
    policy = replace(ENDLESS, breaker_auto_reset=True, breaker_cooldown=60.0)
    story = Story(judged=True, policy=policy)
    for number, it in enumerate(edits([9] * 6), 1):
        story.iterate(number, it)
        due = story.next()
    assert isinstance(due, Wait)
    assert (due.cause, due.until) == ("circuit_open", story.state.progress.at + 60)
    story.seq += 100
    story.iterate(7, It(tree="t7"))
    story.next()
    assert (story.state.circuit.state, story.state.progress.stale) == ("closed", 1)
    story.tell(ev.ResetRequested(by="u"))
    assert story.state.progress.stale == 0


def test_published_profiles_keep_their_rules() -> None:
    from untildone.core.settings import PROFILES

    for name in ("clawker", "ralph"):
        values = {k: v for k, v in PROFILES[name].items() if k in Policy.__dataclass_fields__}
        policy = replace(Policy(**values), max_calls_per_hour=None, max_iterations=99)  # type: ignore[arg-type]
        story = Story(judged=True, policy=policy)
        assert story.stops(edits([9] * 20)) == (None, "")
        assert story.looks == []


# --- when the witness looks ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("look", "looks"),
    [(0.1, [1, 2, 3, 4, 5, 6, 7]), (10.0, [1, 2, 3, 4, 5, 6, 7]), (10.1, [1, 4, 7]), (999, [1, 4, 7])],
)
def test_a_cheap_look_follows_each_iteration_and_a_dear_one_every_third(look: float, looks: list[int]) -> None:
    story = Story(judged=True, policy=ENDLESS, look=look)
    story.stops(edits(range(8, 1, -1)))
    assert story.looks == looks  # the baseline took one second of a hundred


def test_nothing_is_looked_at_twice() -> None:
    story = Story(judged=True, policy=ENDLESS)
    story.stops([It(reads=True), It(tree="A"), It(reads=True), It(tree="B")])
    assert story.looks == [2, 4]


def test_what_seems_stuck_is_looked_at_before_it_stops() -> None:
    story = Story(judged=True, policy=replace(ENDLESS, no_progress_threshold=5, stagnation_threshold=0), look=999)
    assert story.stops(edits([9, 9, 9, 9, 9, 9, 9])) == (5, "no progress since the start: failing tests 9 9 9 9")
    assert story.looks == [1, 4, 5]
    late = Story(judged=True, policy=replace(ENDLESS, no_progress_threshold=5, stagnation_threshold=0), look=999)
    assert late.stops(edits([9, 9, 9, 9, 8])) == (None, "")


def test_a_look_without_a_claim_neither_proves_nor_refuses() -> None:
    story = Story(judged=True, policy=ENDLESS)
    story.iterate(1, It(tree="A", says="ok"))
    story.next()
    state = story.state
    assert (state.verified, state.verified_commit, state.streak, state.checks_said) == (False, None, 0, "passed")
    assert not isinstance(decide(state, now_of(state)), Stop)
    story.iterate(2, It(tree="B", says=3))
    story.next()
    assert (story.state.feedback, story.state.breaker.idle_claim) == ("red", False)
    story.iterate(3, It(tree="C", says="ok", claims=True))
    assert decide(story.state, now_of(story.state)) == Verify(3)


def test_no_limit_is_delayed_by_a_look() -> None:
    story = Story(judged=True, policy=Policy(max_runs=1))
    assert story.stops(edits([9])) == (None, Reason.MAX_RUNS)
    assert story.looks == []


# --- scores ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("output", "failing"),
    [
        (pytest_says(3), 3),
        (pytest_says(3, names=False), 3),
        ("FAILED (failures=2, errors=1)", 3),
        ("Test Suites: 1 failed, 1 total\nTests:       4 failed, 5 passed, 9 total\nTime: 2 s", 4),
        ("\u2139 tests 8\n\u2139 pass 5\n\u2139 fail 3\n\u2139 duration_ms 12", 3),
        ("# pass 5\n# fail 3\n", 3),
        ("  5 passing (3ms)\n  2 failing\n\n  1) adds:\n     AssertionError: 3 == 4", 2),
        ("--- FAIL: TestA (0.00s)\n--- FAIL: TestB (0.00s)\nFAIL\n", 2),
        ("test result: FAILED. 2 passed; 3 failed; 0 ignored;", 3),
        ("Found 12 errors in 3 files (checked 8 source files)", 12),
        ("\u2716 7 problems (7 errors, 0 warnings)", 14),
        ("2 of 20 files left", 2),
        ("make: *** [Makefile:3: test] Error 1", None),
        ("Error: 3 is not 9", None),
        ("AssertionError: expected 4 got 5", None),
        ("thread panicked\n  left: 3\n right: 4", None),
        ("", None),
    ],
)
def test_failures_are_counted_where_the_output_counts_them(output: str, failing: int | None) -> None:
    score = measured([check(output)])
    assert score is not None
    assert score.point.failing == failing


def test_of_a_hidden_check_no_number_is_told() -> None:
    score = measured([replace(check(3), hidden=True)])
    assert score is not None
    assert (score.point.failing, score.failures) == (None, (("pytest", 3),))


def test_the_curve_is_one_line() -> None:
    def line(*says: Any) -> str:
        progress = Progress()
        for number, now in enumerate(says):
            checks = [check(s, str(n)) for n, s in enumerate(now if isinstance(now, list) else [now])]
            progress = looked(progress, checks, number, None, 0.0)
        return curve(progress)

    assert line() == ""
    assert line(9, 9, 7, 4, "ok") == "failing tests 9 > 7 > 4 > 0"
    assert line(9, "SyntaxError", 7) == "failing tests 9 > ? > 7"
    assert line(["", ""], ["ok", ""], ["ok", ""], ["ok", "ok"]) == "checks passed 0 > 1 > 2 of 2"
    assert line(*(f"{n} errors" for n in range(30, 0, -1))) == "problems ... " + " > ".join(map(str, range(12, 0, -1)))


# --- whatever comes ------------------------------------------------------------------------------------------

ITS = st.builds(
    It,
    tree=st.sampled_from([None, "S", "A", "B", "C"]),
    question=st.sampled_from(["", "", "Why?", "How?"]),
    claims=st.booleans(),
    reads=st.just(value=True),
)


@settings(deadline=None, max_examples=60)
@given(st.lists(ITS, min_size=1, max_size=25), st.sampled_from([0.1, 999.0]))
def test_a_score_that_gets_better_each_time_never_stops(its: list[It], look: float) -> None:
    better = [replace(it, tree=it.tree or f"t{n}", says=99 - n) for n, it in enumerate(its)]
    assert told(better, start=100, look=look) == (None, "")


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(ITS, st.sampled_from([None, "ok", 1, 2, 3, "boom", "bang"])), max_size=40))
def test_it_is_bounded_and_folds_in_steps_as_at_once(its: list[tuple[It, Any]]) -> None:
    story = Story(judged=True, policy=ENDLESS)
    story.stops([replace(it, says=says) for it, says in its])
    assert fold(story.records) == story.state


def test_a_long_run_remembers_no_more_than_a_short_one() -> None:
    story = Story(judged=True, policy=ENDLESS)
    story.stops(edits(f"step {'abcdefghij'[n % 10] * (n // 10 + 1)} failed" for n in range(600)))
    kept = story.state.progress
    assert max(len(kept.trees), len(kept.heard.wholes), len(kept.asked)) <= 256
    assert len(kept.curve) <= 20


def test_looks_of_older_logs_count_and_their_changes_are_taken_for_new() -> None:
    events: list[ev.Event] = []
    for number in range(1, 30):
        events += [started(number), completed(number)]
    state = LoopState()
    for seq, event in enumerate([*opening(ENDLESS), *events], 1):
        state = apply(state, ev.Record(seq=seq, at=START + seq, event=event))
        assert state.circuit == state.breaker

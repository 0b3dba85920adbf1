"""Runs and iterations in words: one word for one state, colour never alone."""

from dataclasses import replace

import pytest

from untildone.core.history import IterationRow
from untildone.core.state import LoopState
from untildone.core.views import run_view
from untildone.server.archive.port import Projection, RunEntry
from untildone.server.folding import Seen, seen
from untildone.server.pages.shaping import badge_of, fleet_row, headline, step_of, totals

NOW = 1_000_000.0


def entry(status: str = "running", *, heard: float = NOW, **known: object) -> RunEntry:
    projection = Projection(status=status, phase=status, name="it", **known)  # type: ignore[arg-type]
    return RunEntry(
        run_id="r", sandbox_id="box", origin="worker", created_at=1.0, heard_at=heard, last_seq=5, control_seq=5,
        projection=projection,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("run", "word"),
    [
        (entry("running"), "running"),
        (entry("running", heard=NOW - 600), "interrupted"),
        (entry("suspended", heard=NOW - 600), "suspended"),
        (entry("completed"), "completed"),
        (entry("completed", success=True), "done"),
        (entry("completed", success=True, verified=True), "verified"),
        (replace(entry("new"), origin="published"), "published"),
        (replace(entry("running", heard=NOW - 600), origin="published"), "interrupted"),
        (entry("strange"), "strange"),
    ],
)
def test_a_state_has_a_word_and_an_icon(run: RunEntry, word: str) -> None:
    shown = badge_of(run, seen(run, NOW).status)
    assert (shown.word, bool(shown.icon)) == (word, True)


def test_a_row_never_says_zero_for_what_nobody_knows() -> None:
    assert fleet_row(entry(unknown_costs=1), NOW).spend == "unknown"
    assert fleet_row(entry(cost_usd=0.5, estimated_usd=0.1), NOW).spend == "$0.50 + about $0.10 (estimate)"


def test_progress_stays_within_bounds() -> None:
    assert [fleet_row(entry(progress=share), NOW).progress for share in (-1.0, 0.5, 7.0, None)] == [0, 50, 100, None]


def test_a_run_that_is_silent_counts_as_stopped() -> None:
    counted = totals({"running": 1, "waiting": 1, "paused": 1, "interrupted": 1, "suspended": 3, "completed": 4}, 1.5)
    assert (counted.running, counted.waiting, counted.stopped, counted.spent_lately) == (1, 2, 8, "$1.50")


def test_one_sentence_for_whatever_a_run_does() -> None:
    view = run_view(LoopState(), NOW)
    assert headline(view, Seen(status="waiting", phase="waiting", why="Because.", alive=True)) == "Because."
    assert headline(view, Seen(status="new", phase="not started", why="", alive=False)) == "Not started."
    at_work = replace(view, iteration=4, tries=2)
    running = Seen(status="running", phase="running", why="", alive=True)
    assert headline(at_work, running) == "Running: iteration 4, try 2."


def test_an_iteration_tells_tries_faults_and_cost() -> None:
    row = IterationRow(number=2, tries=3, outcome="crash", faults=("overloaded", "crash"), cost_usd=0.2, seconds=61.0)
    step = step_of(row, alive=True)
    assert (step.badge.word, step.badge.tone) == ("crash", "bad")
    assert step.facts == ("1m1s", "$0.20", "3 tries", "met overloaded, crash")
    assert step.error == "the agent's process died"


def test_an_iteration_that_nobody_drives_any_more_is_cut_off() -> None:
    assert step_of(IterationRow(number=1), alive=True).badge.word == "running"
    cut = step_of(IterationRow(number=1), alive=False).badge
    assert (cut.word, cut.tone) == ("cut off", "bad")
    assert step_of(IterationRow(number=1, outcome="ok"), alive=False).badge.word == "ended"


@pytest.mark.parametrize("outcome", ["stopped", "paused", "steered"])
def test_what_people_asked_for_is_no_trouble(outcome: str) -> None:
    step = step_of(IterationRow(number=1, outcome=outcome, faults=(outcome,), error="a human did it"), alive=True)
    assert step.badge.tone != "bad"
    assert (step.error, any("met" in fact for fact in step.facts)) == ("", False)


def test_a_loop_inside_a_session_is_told_apart() -> None:
    assert fleet_row(entry(in_session=True), NOW).said == "inside a Claude Code session"
    assert fleet_row(entry(), NOW).said == ""
    why = "It waits for a session: type `/untildone:loop --adopt` in one."
    assert fleet_row(entry("waiting", in_session=True, why=why), NOW).said == why


def test_a_command_is_not_cut_in_the_middle() -> None:
    why = f"{'The money is spent, and more. ' * 10}Go on with `untildone resume it --max-cost 10`."
    assert fleet_row(entry("suspended", why=why), NOW).said == why

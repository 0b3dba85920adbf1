"""Looks without a claim on real git, and what is a return to an earlier tree."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bell import bell
from engine.rig import Rig, claim, idle, writes
from untildone.agents.scripted import Act
from untildone.core import events as ev
from untildone.core.outcome import Order, Outcome
from untildone.core.policy import Landing, Policy

pytestmark = pytest.mark.anyio
ENDLESS = Policy(max_runs=30)
CHECK = 'n=$(cat left.txt); echo "$n failed, 3 passed in 1s"; test "$n" = 0'


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    made = Rig(tmp_path)
    made.git("config", "user.name", "me")
    (made.repo / "left.txt").write_text("9")
    made.git("add", "-A")
    made.git("commit", "-qm", "nine")
    return made


@pytest.fixture
def hour(rig: Rig) -> Iterator[str]:
    """A command that takes an hour: an iteration beside it costs nothing, however long this machine needs for it."""
    with bell(lambda _: str(rig.clock.skip(3600))) as passing:
        yield f"{passing.ring()} >/dev/null"


def slowly(rig: Rig, act: Act) -> Act:
    """An iteration beside which a check costs nothing."""

    def slow(order: Order) -> Outcome:
        assert callable(act)
        rig.clock.skip(3600)
        return act(order)

    return slow


def leaves(rig: Rig, left: int) -> Callable[[Order], Outcome]:
    def act(order: Order) -> Outcome:
        (rig.repo / "left.txt").write_text(str(left))
        (rig.repo / "work.txt").write_text(str(order.iteration_num))
        return idle(f"worked {order.iteration_num}")

    return act


def looks(rig: Rig) -> list[tuple[int, bool, bool]]:
    return [(look.iteration_num, look.claimed, look.passed) for look in rig.seen(ev.IterationValidation)]


async def test_cheap_checks_are_looked_at_after_each_iteration_and_the_curve_is_told(rig: Rig) -> None:
    steps = [slowly(rig, leaves(rig, n)) for n in (8, 8, 3)]
    last = slowly(rig, writes(rig.repo / "left.txt", "0", claim()))
    state, agent = await rig.run([*steps, last], ENDLESS, checks=(CHECK,))
    assert looks(rig) == [(1, False, False), (2, False, False), (3, False, False), (4, True, True)]
    assert (state.stop_reason, state.verified) == ("validation_passed", True)
    assert "8 failed, 3 passed" in agent.orders[1].prompt
    assert [look.commit for look in rig.seen(ev.IterationValidation)][-1] == rig.git("rev-parse", "HEAD").strip()


async def test_dear_checks_are_looked_at_after_every_third_iteration(rig: Rig, hour: str) -> None:
    steps = [leaves(rig, n) for n in (8, 7, 6, 5, 4, 3, 2)]
    await rig.run(steps, Policy(max_runs=7), checks=(f"{hour}; {CHECK}",))
    assert looks(rig) == [(3, False, False), (6, False, False)]


async def test_edits_that_bring_nothing_stop_the_run(rig: Rig, hour: str) -> None:
    state, _ = await rig.run((leaves(rig, 9) for _ in itertools.count()), ENDLESS, checks=(f"{hour}; {CHECK}",))
    assert (state.stop_reason, state.attempts) == ("circuit_open", 6)
    assert state.stop_detail == "no progress since the start: failing tests 9 9 9"


async def test_green_without_a_claim_is_told_to_the_agent_and_is_not_done(rig: Rig) -> None:
    steps = [slowly(rig, leaves(rig, 0)), slowly(rig, leaves(rig, 0)), claim()]
    state, agent = await rig.run(steps, ENDLESS, checks=(CHECK,))
    assert looks(rig) == [(1, False, True), (2, False, True), (3, True, True)]
    assert (state.stop_reason, state.attempts) == ("validation_passed", 3)
    assert "All checks pass on your last work" in agent.orders[1].prompt


@pytest.mark.parametrize("land", ["commit", "none"])
async def test_a_tree_that_comes_back_twice_stops_the_run_whoever_committed(rig: Rig, land: str) -> None:
    """The commits and the times of the files differ each time, and so do the notes."""
    a, notes = rig.repo / "a.txt", rig.repo / "SHARED_TASK_NOTES.md"

    def turn(text: str) -> Act:
        def act(order: Order) -> Outcome:
            notes.write_text(f"turn {order.iteration_num}")
            a.write_text(text)
            if land == "commit" and order.iteration_num % 2:
                rig.git("commit", "-qam", f"turn {order.iteration_num}")
            return idle(f"turn {order.iteration_num}")

        return act

    turns = itertools.cycle([turn("b\n"), turn("c\n")])
    landing = Landing(land="none") if land == "none" else Landing()
    state, _ = await rig.run(turns, ENDLESS, landing=landing)
    assert (state.stop_reason, state.attempts) == ("circuit_open", 4)
    assert state.stop_detail.startswith("changes were made and undone again and again, no progress since iteration 2")


async def test_the_same_question_twice_stops_the_run(rig: Rig) -> None:
    asking = idle("I looked around.\n\nShould I use SQLite or files?")
    state, agent = await rig.run(itertools.repeat(asking), ENDLESS)
    assert (state.stop_reason, len(agent.orders)) == ("circuit_open", 2)
    assert "the same question was asked twice (Should I use SQLite or files?)" in state.stop_detail


async def test_a_new_failure_is_run_again_and_what_then_differs_is_no_progress(rig: Rig, hour: str) -> None:
    noisy = f'{hour}; echo "container $(od -An -N8 -tx1 /dev/urandom | tr -d "[:space:]0-9") says nothing"; exit 1'
    state, _ = await rig.run((leaves(rig, 9) for _ in itertools.count()), ENDLESS, checks=(noisy,))
    assert (state.stop_reason, state.attempts) == ("circuit_open", 6)
    looks = [look.checks[0] for look in rig.seen(ev.IterationValidation)]
    assert looks[0].noise
    assert all(look.noise is None for look in looks[1:])


async def test_a_number_in_words_of_its_own_is_progress(rig: Rig, hour: str) -> None:
    steps = [leaves(rig, n) for n in (9, 9, 8, 8, 8, 7, 7, 7, 6)]
    check = f'{hour}; echo "Not in upper case: $(cat left.txt) files"; exit 1'
    state, _ = await rig.run(steps, Policy(max_runs=9), checks=(check,))
    assert (state.stop_reason, state.progress.best_at) == ("max_runs_reached", 6)
    assert [look.checks[0].noise for look in rig.seen(ev.IterationValidation)] == [(), ()]


async def test_without_checks_a_log_that_only_grows_is_no_progress(rig: Rig) -> None:
    def act(order: Order) -> Outcome:
        with (rig.repo / "a.log").open("a") as log:
            log.write(f"2026-11-19 17:{order.iteration_num:02}:00 nothing to tell\n")
        return idle(f"worked {order.iteration_num}")

    state, _ = await rig.run(itertools.repeat(act), ENDLESS)
    assert (state.stop_reason, state.attempts) == ("circuit_open", 7)

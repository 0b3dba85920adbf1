"""Done means proven: what the loop saw on the commit itself, and what it does when it saw something else."""

import asyncio
import itertools
import os
import shutil
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bell import bell
from engine.pull_kit import BRANCH, GREEN, RUNNING, pull_rig
from engine.rig import Rig, claim, counting, idle, writes
from patience import PATIENCE, soon
from processes import commands_of_all
from untildone.agents.scripted import Act
from untildone.core import events as ev
from untildone.core.contract import CheckSpec, Contract, commands
from untildone.core.outcome import Order, Outcome
from untildone.core.policy import Landing, Policy
from untildone.core.stopping import exit_code
from untildone.engine.narrate import narrating
from untildone.rehearsal.github import TOKEN
from untildone.rehearsal.github_checks import ScriptedCheck

pytestmark = pytest.mark.anyio


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def contract(*checks: str, **more: Any) -> Contract:
    return Contract(checks=commands(*checks), **{"guard": "off", **more})


def lying(path: Path, *, claims_from: int) -> Act:
    """Changes something in every iteration, and claims to be done from one of them on."""

    def act(order: Order) -> Outcome:
        path.write_text(f"{order.iteration_num}\n")
        return claim() if order.iteration_num >= claims_from else idle("worked")

    return act


async def no_trace_of_rooms(rig: Rig) -> None:
    assert not (rig.repo / ".git" / "worktrees").exists()
    rooms = rig.tmp / "state" / "rooms"
    await soon(lambda: not rooms.exists() or not any(rooms.iterdir()), "the end of the rooms")


# --- claims ----------------------------------------------------------------------------------------------


async def test_a_lying_agent_is_done_when_the_check_says_so(rig: Rig) -> None:
    number = rig.repo / "n.txt"
    check = "echo at $(cat n.txt); test $(cat n.txt) -ge 4"
    state, _ = await rig.run(
        itertools.repeat(lying(number, claims_from=2)), Policy(max_runs=20), contract=contract(check)
    )
    assert (state.stop_reason, state.verified, state.attempts) == ("validation_passed", True, 4)
    verdicts = rig.seen(ev.IterationValidation)
    assert [(verdict.iteration_num, verdict.passed) for verdict in verdicts] == [(2, False), (3, False), (4, True)]
    proof = verdicts[-1]
    assert proof.commit == rig.git("rev-parse", "HEAD").strip() == state.verified_commit
    assert (proof.room, proof.checks[0].room) == ("clean", "clean")
    log = Path(proof.checks[0].log)
    assert log.is_relative_to(rig.tmp / "state" / "logs" / rig.run_id)
    assert log.name.startswith(proof.commit[:12])
    assert log.read_text() == f"$ {check}\nat 4\n[exit 0, {proof.checks[0].seconds:.1f} s]\n"
    await no_trace_of_rooms(rig)


@pytest.mark.soak
async def test_a_check_that_nobody_can_satisfy_ends_by_the_limit_and_is_not_verified(rig: Rig) -> None:
    state, _ = await rig.run(
        itertools.repeat(lying(rig.repo / "n.txt", claims_from=1)), Policy(max_runs=2), contract=contract("false")
    )
    assert (state.stop_reason, state.verified, state.verified_commit) == ("max_runs_reached", False, None)
    assert [verdict.passed for verdict in rig.seen(ev.IterationValidation)] == [False] * 2


async def test_what_only_an_untracked_file_makes_pass_does_not_pass(rig: Rig) -> None:
    (rig.repo / ".gitignore").write_text("ignored\n")
    rig.git("add", ".")
    rig.git("commit", "-qm", "ignore")

    def cheat(order: Order) -> Outcome:
        (rig.repo / ("ignored" if order.iteration_num < 2 else "kept")).write_text("x\n")
        return claim()

    state, agent = await rig.run(itertools.repeat(cheat), contract=contract("test -f ignored || test -f kept"))
    assert (state.stop_reason, state.attempts) == ("validation_passed", 2)
    assert "only what is committed is there" in agent.orders[1].prompt


async def test_in_the_tree_it_would_have_passed_and_the_record_says_that_it_is_weaker(rig: Rig) -> None:
    rig.git("config", "core.excludesFile", str(rig.tmp / "excludes"))
    (rig.tmp / "excludes").write_text("ignored\n")
    steps = [writes(rig.repo / "ignored", "x\n", claim())]
    state, _ = await rig.run(steps, contract=contract("test -f ignored", room="tree"))
    assert (state.stop_reason, state.attempts) == ("validation_passed", 1)
    (verdict,) = rig.seen(ev.IterationValidation)
    assert (verdict.room, verdict.checks[0].room) == ("tree", "tree")


async def test_without_commits_the_tree_as_it_is_gets_examined_and_stays_uncommitted(rig: Rig) -> None:
    steps = [claim(), writes(rig.repo / "b.txt", "b\n", claim())]
    state, _ = await rig.run(steps, contract=contract("test -f b.txt"), landing=Landing(land="none"))
    assert (state.stop_reason, state.attempts) == ("validation_passed", 2)
    assert rig.git("log", "--format=%s").splitlines() == ["first"]
    assert rig.git("status", "--porcelain") == "?? b.txt\n"


async def test_a_plain_folder_is_examined_too(rig: Rig) -> None:
    plain = rig.tmp / "plain"
    plain.mkdir()
    steps = [claim(), writes(plain / "b.txt", "b\n", claim())]
    check = "test -f b.txt && ! git rev-parse 2>/dev/null"
    state, _ = await rig.run(steps, cwd=str(plain), contract=contract(check))
    assert (state.stop_reason, state.attempts) == ("validation_passed", 2)


# --- the beginning ---------------------------------------------------------------------------------------


async def test_green_in_the_tree_and_red_in_a_fresh_checkout_is_refused_at_once(rig: Rig) -> None:
    (rig.repo / ".git" / "info" / "exclude").write_text("installed\n")
    (rig.repo / "installed").touch()
    check = "test -f installed || { echo installed: not found; false; }"
    state, agent = await rig.run([claim()], contract=contract(check, "true", "false"))
    assert (state.stop_reason, state.attempts, agent.orders) == ("clean_room_refused", 0, [])
    assert exit_code("clean_room_refused") == 2
    assert state.stop_detail.startswith(f"`{check}` passes in {rig.repo} but fails in a fresh checkout")
    assert "--setup" in state.stop_detail
    assert "installed: not found" in state.stop_detail
    await no_trace_of_rooms(rig)


async def test_a_setup_makes_the_checks_possible_and_when_the_agent_breaks_it_that_is_what_it_hears(rig: Rig) -> None:
    (rig.repo / ".git" / "info" / "exclude").write_text("installed\n")
    (rig.repo / "installed").touch()
    steps = [
        writes(rig.repo / "broken", "", claim()),
        lambda _: ((rig.repo / "broken").unlink(), claim())[1],
    ]
    setup = "test ! -f broken || { echo it is broken; exit 4; }; touch installed"
    state, agent = await rig.run(steps, contract=contract("test -f installed", setup=setup))
    assert (state.stop_reason, state.attempts) == ("validation_passed", 2)
    assert "it is broken" in agent.orders[1].prompt
    assert "Check that could not be run: test -f installed" in agent.orders[1].prompt


async def test_blame_knows_what_was_red_before(rig: Rig) -> None:
    def act(order: Order) -> Outcome:
        if order.iteration_num == 1:
            (rig.repo / "a.txt").unlink()
        else:
            (rig.repo / "a.txt").write_text("a\n")
            (rig.repo / "b.txt").write_text("b\n")
        return claim()

    state, agent = await rig.run(itertools.repeat(act), contract=contract("test -f a.txt", "test -f b.txt"))
    assert state.stop_reason == "validation_passed"
    assert [check.passed for check in rig.seen(ev.BaselineTaken)[0].checks] == [True, False]
    assert [check.was_green for check in rig.seen(ev.IterationValidation)[0].checks] == [True, False]
    assert agent.orders[1].prompt.count("It passed before this run began.") == 1


# --- what must not leak ----------------------------------------------------------------------------------


async def test_of_a_hidden_check_only_the_verdict_reaches_the_agent(rig: Rig) -> None:
    secret = "grep -q s3cr3t b.txt || { echo wants the s3cr3t; exit 3; }"
    wanted = Contract(checks=commands(secret, hidden=True), guard="off")
    steps = [claim(), writes(rig.repo / "b.txt", "s3cr3t\n", claim())]
    state, agent = await rig.run(steps, contract=wanted)
    assert state.stop_reason == "validation_passed"
    told = "".join(order.prompt + order.rules for order in agent.orders)
    assert "s3cr3t" not in told
    assert "Check failed: hidden check 1" in agent.orders[1].prompt
    verdict = rig.seen(ev.IterationValidation)[0]
    assert verdict.errors == ("hidden check 1: failed",)
    assert "s3cr3t" in Path(verdict.checks[0].log).read_text()


async def test_a_hidden_check_that_is_refused_at_the_start_gives_nothing_away(rig: Rig) -> None:
    (rig.repo / ".git" / "info" / "exclude").write_text("s3cr3t\n")
    (rig.repo / "s3cr3t").touch()
    wanted = Contract(checks=commands("cat s3cr3t 2>&1", hidden=True), guard="off")
    state, _ = await rig.run([claim()], contract=wanted)
    assert state.stop_reason == "clean_room_refused"
    assert state.stop_detail.startswith("`hidden check 1` passes in")
    assert "s3cr3t" not in state.stop_detail.replace(str(rig.repo), "")


# --- flaky -----------------------------------------------------------------------------------------------


@contextmanager
def verdicts_of(pattern: Iterable[bool]) -> Iterator[tuple[str, list[str]]]:
    """A check that gives these verdicts, one after the other and whatever the commit is, and passes after that.

    Besides, a list with an entry for each time it was run.
    """
    verdicts = iter(pattern)
    with bell(lambda _: "0" if next(verdicts, True) else "1") as asked:
        yield f"exit $({asked.ring()})", asked.rung


@pytest.mark.soak
async def test_a_flaky_check_is_believed_only_after_three_passes_in_a_row(rig: Rig) -> None:
    # The baseline passes; after the claim: red, green, and three times green in a room of its own.
    with verdicts_of([True, False, True]) as (check, times):
        state, _ = await rig.run([claim()], contract=contract(check))
        assert (state.stop_reason, state.flaky, len(times)) == ("validation_passed", (check,), 6)
        (verdict,) = rig.seen(ev.IterationValidation)
        assert [(seen.passed, seen.flaky) for seen in verdict.checks] == [(True, True)]


async def test_a_flaky_check_that_fails_again_is_not_believed_and_stays_suspect(rig: Rig) -> None:
    # Red, green, then green and red: no. After the next claim it is green at once, and must be so three times more.
    with verdicts_of([True, False, True, True, False]) as (check, times):
        state, agent = await rig.run([claim(), claim()], contract=contract(check))
        assert (state.stop_reason, state.attempts, len(times)) == ("validation_passed", 2, 9)
        assert [verdict.passed for verdict in rig.seen(ev.IterationValidation)] == [False, True]
        assert "both verdicts on the same commit" in agent.orders[1].prompt


async def test_red_twice_and_then_green_on_the_same_commit_is_not_believed_at_once(rig: Rig) -> None:
    # The baseline passes; the first claim is red twice. Nothing is changed, and the same commit passes, three times.
    with verdicts_of([True, False, False, True, True, True, False]) as (check, times):
        state, _ = await rig.run([claim(), claim()], Policy(max_runs=2), contract=contract(check))
        assert (state.verified, state.flaky, len(times)) == (False, (check,), 7)


async def test_what_passes_only_because_the_first_try_left_something_is_not_believed(rig: Rig) -> None:
    check = "test ! -f b.txt || test -f made || { touch made; false; }"
    steps = [writes(rig.repo / "b.txt", "", claim())]
    state, _ = await rig.run(steps, Policy(max_runs=1), contract=contract(check))
    assert (state.stop_reason, state.verified) == ("max_runs_reached", False)


# --- new tests on old code -------------------------------------------------------------------------------

TESTING = f"for test in tests/test_*.py; do {sys.executable} -S $test || exit 1; done"


def has_test(rig: Rig) -> None:
    (rig.repo / "tests").mkdir()
    (rig.repo / "tests" / "test_old.py").write_text("def test_old():\n    assert True\n")
    (rig.repo / "code.txt").write_text("old\n")
    rig.git("add", ".")
    rig.git("commit", "-qm", "with a test")


def test_file(wanted: str) -> str:
    return f"def test_new():\n    assert open('code.txt').read() == {wanted!r}\n\n\ntest_new()\n"


test_file.__test__ = False  # type: ignore[attr-defined]


async def test_new_tests_must_fail_on_the_code_before_the_change(rig: Rig) -> None:
    has_test(rig)
    new = rig.repo / "tests" / "test_new.py"

    def act(order: Order) -> Outcome:
        if order.iteration_num >= 2:
            new.write_text("def test_new():\n    assert 1\n" if order.iteration_num == 2 else test_file("new\n"))
        if order.iteration_num >= 3:
            (rig.repo / "code.txt").write_text("new\n")
        return claim()

    state, agent = await rig.run(itertools.repeat(act), contract=contract(TESTING, fail_to_pass=True))
    assert (state.stop_reason, state.attempts, state.verified) == ("validation_passed", 3, True)
    assert "no test was added or changed" in agent.orders[1].prompt
    assert "passes on the code the run began with, too" in agent.orders[2].prompt
    assert "tests/test_new.py" in agent.orders[2].prompt


# --- conditions ------------------------------------------------------------------------------------------


async def test_conditions_are_part_of_the_contract(rig: Rig) -> None:
    tasks = rig.repo / "TASKS.md"
    tasks.write_text("- [ ] one\n")
    rig.git("add", ".")
    rig.git("commit", "-qm", "tasks")
    bare = rig.tmp / "bare.git"
    rig.git("init", "-q", "--bare", str(bare))
    rig.git("remote", "add", "origin", str(bare))
    wanted = Contract(
        checks=tuple(CheckSpec(name=kind, kind=kind) for kind in ("tasks-ticked", "tree-clean", "pushed")),  # type: ignore[arg-type]
        guard="off",
    )

    def push(_: Order) -> Outcome:
        rig.git("push", "-q", "origin", "work")
        return claim()

    steps = [writes(rig.repo / "b.txt", "b\n", claim()), writes(tasks, "- [x] one\n", claim()), push]
    state, agent = await rig.run(steps, Policy(max_runs=3), contract=wanted, task_file="TASKS.md")
    assert (state.stop_reason, state.attempts) == ("validation_passed", 3)
    failed = [[check.name for check in v.checks if not check.passed] for v in rig.seen(ev.IterationValidation)]
    assert failed == [["pushed"], []]
    assert "origin has no branch work" in agent.orders[2].prompt


async def test_conditions_that_do_not_hold(rig: Rig) -> None:
    rig.git("checkout", "-q", "--detach")
    kinds = ("tasks-ticked", "tree-clean", "pushed")
    wanted = Contract(checks=tuple(CheckSpec(name=kind, kind=kind) for kind in kinds), guard="off")  # type: ignore[arg-type]
    steps = [writes(rig.repo / "b.txt", "b\n", claim())]
    landing = Landing(land="none")
    state, _ = await rig.run(steps, Policy(max_runs=1), contract=wanted, landing=landing)
    assert (state.stop_reason, state.verified) == ("max_runs_reached", False)
    (verdict,) = rig.seen(ev.IterationValidation)
    assert [check.output_tail.partition(":")[0] for check in verdict.checks] == [
        "not all tasks are ticked",
        "uncommitted",
        f"no branch is checked out in {rig.repo}",
    ]


def pull_contract() -> Contract:
    return Contract(checks=tuple(CheckSpec(name=kind, kind=kind) for kind in ("pr-open", "ci-green")), guard="off")  # type: ignore[arg-type]


async def test_ci_is_waited_for_and_believed_about_this_commit_only(tmp_path: Path) -> None:
    def ci(_: str, look: int) -> list[ScriptedCheck]:
        return [RUNNING] if look < 3 else [GREEN]

    with pull_rig(tmp_path, ci) as rig:
        landing = rig.landing(land="commit")

        def opens(_: Order) -> Outcome:
            (rig.repo / "b.txt").write_text("b\n")
            rig.git("add", ".")
            rig.git("commit", "-qm", "by the agent")
            rig.git("push", "-q", "origin", "HEAD")
            body = {"head": f"acme:{BRANCH}", "base": "main", "title": "t", "body": ""}
            rig.github.answer("POST", f"/repos/{rig.github.repo}/pulls", {}, f"Bearer {TOKEN}", body)
            return claim()

        state, agent = await rig.run([claim(), opens], contract=pull_contract(), landing=landing)
    assert (state.stop_reason, state.attempts) == ("validation_passed", 2)
    assert f"there is no open pull request of {BRANCH}" in agent.orders[1].prompt


# --- stops and trouble -----------------------------------------------------------------------------------


async def test_a_stop_calls_the_checks_off_at_once_and_leaves_nothing(rig: Rig) -> None:
    with bell() as begun:
        check = f"test ! -f b.txt || {{ {begun.ring()}; sleep 600.{os.getpid()}; }}"
        running = asyncio.create_task(rig.run([writes(rig.repo / "b.txt", "", claim())], contract=contract(check)))
        await soon(lambda: begun.rung, "the check")
        await rig.say(ev.StopRequested(by="test"))
        state, _ = await asyncio.wait_for(running, PATIENCE)
    assert (state.stop_reason, state.claim_due, rig.seen(ev.IterationValidation)) == ("stop_requested", True, [])
    assert not any(f"sleep 600.{os.getpid()}" in command for command in commands_of_all())
    await no_trace_of_rooms(rig)


async def test_a_slow_step_is_told_to_who_watches(rig: Rig) -> None:
    told = threading.Event()
    with bell(lambda _: str(told.wait(PATIENCE))) as slow:
        running = asyncio.create_task(rig.run([claim()], contract=contract(slow.ring())))
        said = f"running check {slow.ring()} in a fresh checkout"
        await soon(lambda: said in {event.said for event in rig.seen(ev.WitnessAtWork)}, "a word about it")
        told.set()
        state, _ = await running
    assert state.verified


async def test_a_quick_one_is_not() -> None:
    told: list[str] = []

    class Listener:
        async def tell(self, event: ev.WitnessAtWork) -> None:
            told.append(event.said)

    with narrating(Listener(), noticeable=3600.0) as quickly:
        quickly("quick")
    with narrating(Listener(), noticeable=0.0) as slowly:
        slowly("slow")
        await soon(lambda: told, "a word about it")
    assert told == ["slow"]


async def test_a_room_that_cannot_be_made_is_not_held_against_the_claim(rig: Rig) -> None:
    rooms = rig.tmp / "state" / "rooms"

    def act(_: Order) -> Outcome:
        shutil.rmtree(rooms, ignore_errors=True)
        rooms.touch()  # a file where a folder must be
        return claim()

    state, _ = await rig.run([act], contract=contract("true"))
    assert (state.stop_reason, state.claim_due, rig.seen(ev.IterationValidation)) == ("surroundings_failed", True, [])
    assert "fresh checkout" in state.stop_detail
    rooms.unlink()
    state, _ = await rig.resume([])
    assert (state.stop_reason, state.attempts) == ("validation_passed", 1)


async def test_a_dead_drivers_room_is_gone_after_the_next_start(rig: Rig) -> None:
    left = rig.tmp / "state" / "rooms" / rig.run_id / "dead" / f"untildone-{rig.run_id}-dead"
    left.mkdir(parents=True)
    await rig.run([counting(rig.repo / "n.txt")], Policy(max_runs=1))
    await no_trace_of_rooms(rig)


async def test_checks_do_not_know_that_a_loop_runs_them(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("UNTILDONE_RUN", "CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("GIT_INDEX_FILE", os.devnull)
    # That it is a check of this run it does know: what it runs may steer nothing.
    check = "! env | grep -E '^(UNTILDONE_RUN|CLAUDECODE|CLAUDE_CODE_ENTRYPOINT|GIT_INDEX_FILE)'"
    state, _ = await rig.run([claim()], contract=contract(check))
    assert state.stop_reason == "validation_passed"

"""Before any work: what is red already, what could never prove anything, and how many tests there are to be run."""

import asyncio
import itertools
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from bell import bell
from engine.rig import Rig, claim, idle, writes
from patience import run_out, soon
from untildone.agents.scripted import Act
from untildone.core import events as ev
from untildone.core.contract import CheckSpec, Contract, commands
from untildone.core.outcome import Order, Outcome
from untildone.core.policy import Policy
from untildone.core.standing import standing
from untildone.git.tree_copy import MOST_BYTES

pytestmark = pytest.mark.anyio

PYTEST = f"{sys.executable} -B -m pytest -q -p no:cacheprovider tests"
RUNNER = f"{sys.executable} -S -B run.py"
"""Says the same as pytest, and starts ten times as fast."""
RUN_PY = """
import glob, runpy, sys
failed = passed = 0
for path in sys.argv[1:] or sorted(glob.glob("tests/test_*.py")):
    for name, test in runpy.run_path(path).items():
        if name.startswith("test_"):
            try:
                test()
                passed += 1
            except AssertionError:
                failed += 1
                print(f"FAILED {path}::{name} - AssertionError")
print(f"{failed} failed, {passed} passed in 0.01s" if failed else f"{passed} passed in 0.01s")
sys.exit(failed > 0)
"""
TEST_F = "import app\n\n\ndef test_f():\n    assert app.f() == 1\n"


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def contract(*checks: str, **more: Any) -> Contract:
    return Contract(checks=commands(*checks), **{"guard": "off", **more})


def has_red_test(rig: Rig, **files: str) -> None:
    (rig.repo / "tests").mkdir()
    (rig.repo / "app.py").write_text("def f():\n    return 0\n")
    (rig.repo / "tests" / "test_f.py").write_text(TEST_F)
    (rig.repo / "run.py").write_text(RUN_PY)
    for name, text in files.items():
        (rig.repo / name).write_text(text)
    rig.git("add", ".")
    rig.git("commit", "-qm", "base")


def does(rig: Rig, **files: str) -> Act:
    def act(_: Order) -> Outcome:
        for name, text in files.items():
            (rig.repo / name.replace("__", "/").replace("_py", ".py")).write_text(text)
        return claim()

    return act


# --- what the checks do to the tree: nothing -----------------------------------------------------------------


async def test_what_a_check_leaves_behind_is_never_in_the_tree(rig: Rig) -> None:
    (rig.repo / ".git" / "info" / "exclude").write_text("node_modules\n")
    (rig.repo / "node_modules").mkdir()
    (rig.repo / "node_modules" / "x").touch()
    check = "echo junk > report.xml; echo touched >> a.txt; rm -rf node_modules; "
    with bell() as rung:

        def work(order: Order) -> Outcome:
            assert rung.rung == ["red", "green", "red"], "red is run once more, in a copy of the tree"
            return writes(rig.repo / "b.txt", "b\n", claim())(order)

        red, green = (f"{check} {rung.ring(name)};" for name in ("red", "green"))
        state, _ = await rig.run([work], contract=contract(f"{red} test -f b.txt", f"{green} true"))
    assert state.stop_reason == "validation_passed"
    assert rig.git("show", "--format=", "--name-only", "HEAD").split() == ["b.txt"]
    assert (rig.repo / "a.txt").read_text() == "a\n"
    assert (rig.repo / "node_modules" / "x").exists()


async def test_the_copy_has_what_git_ignores_and_a_repository_of_its_own(rig: Rig) -> None:
    (rig.repo / ".git" / "info" / "exclude").write_text("installed\n")
    (rig.repo / "installed").touch()
    check = "test -f installed && git rev-parse -q --verify HEAD && touch here && git add -A ."
    state, agent = await rig.run([claim()], contract=contract(check))
    assert (state.stop_reason, agent.orders) == ("clean_room_refused", [])
    assert "passes in" in state.stop_detail
    assert rig.git("status", "--porcelain") == ""


async def test_a_tree_that_is_too_large_to_copy_is_not_compared(rig: Rig) -> None:
    (rig.repo / ".git" / "info" / "exclude").write_text("data\n")
    (rig.repo / "data").touch()
    os.truncate(rig.repo / "data", MOST_BYTES + 1)  # it holds nothing, and takes no room
    state, _ = await rig.run([idle()], Policy(max_runs=1), contract=contract("test -f data"))
    told = [
        warning.message for warning in rig.seen(ev.ContinuousWarning) if "would pass in your tree" in warning.message
    ]
    assert len(told) == 1
    assert "was not looked at" in told[0]
    assert "--setup" in told[0]
    assert state.stop_reason == "max_runs_reached"


# --- what could never prove anything -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (contract("false", setup="echo no lock; exit 4"), "the setup fails in a fresh checkout (exit 4: no lock)"),
        (contract("true", share=("node_modules",)), "node_modules is to be shared with fresh checkouts, and is not in"),
        (contract("nosuchprogram --x"), "`nosuchprogram` is not found"),
        (
            Contract(checks=(CheckSpec(name="web", command="true", folder="nosuch"),)),
            "`web` cannot be run: there is no folder nosuch",
        ),
    ],
)
async def test_it_is_refused_before_any_money(rig: Rig, wanted: Contract, said: str) -> None:
    state, agent = await rig.run([claim()], contract=wanted)
    assert (state.stop_reason, state.attempts, agent.orders) == ("clean_room_refused", 0, [])
    assert said in state.stop_detail


async def test_before_the_first_commit_there_is_nothing_to_refuse(rig: Rig) -> None:
    empty = rig.tmp / "empty"
    empty.mkdir()
    rig.git("init", "-q", "-b", "work", str(empty))
    steps = [writes(empty / "b.txt", "b\n", claim())]
    state, _ = await rig.run(steps, cwd=str(empty), contract=contract("test -f b.txt"))
    assert (state.stop_reason, state.attempts) == ("validation_passed", 1)


@pytest.mark.soak
async def test_a_check_that_wavers_at_the_start_is_flaky_and_not_refused(rig: Rig) -> None:
    # Red, green in the room: no reason to ask for a setup.
    verdicts = iter("1")
    with bell(lambda _: next(verdicts, "0")) as asked:
        check = f"exit $({asked.ring()})"
        state, _ = await rig.run([claim()], contract=contract(check))
    assert (state.stop_reason, state.flaky) == ("validation_passed", (check,))
    assert [result.flaky for result in rig.seen(ev.BaselineTaken)[0].checks] == [True]
    # In the room, in a copy of the tree, in the room again; after the claim once, and three times because it wavered.
    assert len(asked.rung) == 7


async def test_a_check_that_does_not_end_in_time_is_run_once(rig: Rig) -> None:
    with bell() as rung:
        wanted = contract(f"{rung.ring()}; sleep 600", timeout=5000)
        running = asyncio.create_task(rig.run([idle()], Policy(max_runs=1), contract=wanted))
        await soon(lambda: rung.rung, "the check")
        await run_out(5000)
        state, _ = await running
    assert (state.stop_reason, len(rung.rung)) == ("max_runs_reached", 1)


async def test_what_is_run_before_any_work_is_said_once_and_can_be_left_out(rig: Rig) -> None:
    steps = [writes(rig.repo / "b.txt", "b\n", claim())]
    with bell() as rung:
        state, _ = await rig.run(steps, contract=contract(f"{rung.ring()}; test -f b.txt", baseline=False))
    assert (state.stop_reason, len(rung.rung), state.baseline) == ("validation_passed", 1, None)
    (verdict,) = rig.seen(ev.IterationValidation)
    assert [one.was_green for one in verdict.checks] == [None]
    assert "not known" in dict(standing(state))["failing before"]
    other = Rig(rig.tmp / "other")
    await other.run([claim()], Policy(max_runs=1), contract=contract("test -f a.txt"))
    assert sum("before any work" in told.said for told in other.seen(ev.WitnessAtWork)) == 1


# --- how many tests were run ---------------------------------------------------------------------------------


async def test_tests_that_are_not_run_any_more_are_in_the_way(rig: Rig) -> None:
    has_red_test(rig)
    # Nothing of the tests is touched: the product ends the run before they are come to.
    cheat = does(rig, app_py="import os\n\nprint('all good')\nos._exit(0)\n")
    state, agent = await rig.run(
        [cheat, does(rig, app_py="def f():\n    return 1\n")], Policy(max_runs=2), contract=contract(RUNNER, guard="on")
    )
    first, second = rig.seen(ev.IterationValidation)
    assert first.disputed[0] == f"{RUNNER}: it no longer says how many tests it ran: 1 at the start"
    assert "app.py:4: this code behaves differently in a test: os._exit(0)" in first.disputed
    assert "no longer says how many tests it ran: 1 at the start" in agent.orders[1].prompt
    assert (second.passed, state.stop_reason) == (True, "validation_passed")


async def test_a_makefile_that_make_prefers_is_in_the_way(rig: Rig) -> None:
    # A program of the PATH: the interpreter of these tests may lie in a folder that a check does not see.
    has_red_test(rig, Makefile="test:\n\tpython3 -S -B run.py\n")
    cheat = does(rig, GNUmakefile="test:\n\ttrue\n")
    state, _ = await rig.run([cheat], Policy(max_runs=1), contract=contract("make test", guard="on"))
    (verdict,) = rig.seen(ev.IterationValidation)
    assert (state.verified, verdict.passed) == (False, False)
    assert verdict.judges == ("GNUmakefile",)
    assert verdict.disputed == ("tests/test_f.py::test_f fails",)


# --- new tests on old code that was red anyway ---------------------------------------------------------------


@pytest.mark.parametrize("check", [RUNNER, pytest.param(PYTEST, marks=pytest.mark.soak)], ids=["runner", "pytest"])
async def test_on_a_red_base_a_test_that_always_passes_proves_nothing(rig: Rig, check: str) -> None:
    has_red_test(rig)
    mended, always = "def f():\n    return 1\n", "def test_always():\n    assert True\n"
    new = "import app\n\n\ndef test_g():\n    assert app.f() + 1 == 2\n"
    steps = [
        does(rig, app_py=mended, tests__test_new_py=always),
        does(rig, tests__test_new_py=new),
    ]
    state, agent = await rig.run(steps, contract=contract(check, fail_to_pass=True))
    assert (state.stop_reason, state.attempts) == ("validation_passed", 2)
    assert "no new test of tests/test_new.py is among those that fail" in agent.orders[1].prompt
    verdicts = [verdict.checks[-1] for verdict in rig.seen(ev.IterationValidation)]
    assert [(check.name, check.passed) for check in verdicts] == [("fail-to-pass", False), ("fail-to-pass", True)]


@pytest.mark.soak
async def test_what_cannot_be_told_apart_is_not_believed_unless_a_command_tells(rig: Rig) -> None:
    has_red_test(rig)
    check = f"{RUNNER} > /dev/null"
    files = {"app_py": "def f():\n    return 1\n", "tests__test_new_py": TEST_F.replace("test_f", "test_g")}
    wanted = contract(check, fail_to_pass=True)
    state, _ = await rig.run([does(rig, **files)], Policy(max_runs=1), contract=wanted)
    (verdict,) = rig.seen(ev.IterationValidation)
    assert not state.verified
    assert "cannot be told" in verdict.checks[-1].output_tail


@pytest.mark.parametrize(("wanted", "proven"), [("== 1", True), pytest.param(">= 0", False, marks=pytest.mark.soak)])
async def test_a_command_of_its_own_tells(rig: Rig, wanted: str, proven: bool) -> None:
    has_red_test(rig)
    files = {"app_py": "def f():\n    return 1\n", "tests__test_new_py": TEST_F.replace("== 1", wanted)}
    check = f"{RUNNER} tests/test_new.py"
    own = contract(f"{RUNNER} > /dev/null", fail_to_pass=True, fail_to_pass_check=check)
    state, _ = await rig.run(itertools.repeat(does(rig, **files)), Policy(max_runs=1), contract=own)
    assert state.verified is proven

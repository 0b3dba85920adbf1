"""Work that passes only with tests the run changed: questioned once, then settled by a reviewer or a human."""

from pathlib import Path
from typing import Any

import pytest

from engine.rig import Rig, Steps, claim, idle
from untildone import wiring
from untildone.agents.scripted import ScriptedAgent
from untildone.core import events as ev
from untildone.core.contract import Contract, commands
from untildone.core.outcome import Order, Outcome
from untildone.core.policy import Policy, Review
from untildone.core.state import LoopState

pytestmark = pytest.mark.anyio

CHECK = "sh tests/run.sh"
SCRIPT = 'grep -q good app || { echo "FAILED tests/app_test.sh::test_app - no"; exit 1; }\n'
APPROVE = idle("The goal asks for it.\n\nREVIEW: APPROVE", session_id="r")
REFUSE = idle("The test was weakened.\n\nREVIEW: CHANGES", session_id="r")
DISPUTED = ("tests/app_test.sh::test_app fails",)


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    made = Rig(tmp_path)
    (made.repo / "tests").mkdir()
    (made.repo / "tests" / "run.sh").write_text(SCRIPT)
    (made.repo / "app").write_text("bad\n")
    made.git("add", ".")
    made.git("commit", "-qm", "a program that does not work yet")
    return made


def does(rig: Rig, **files: str) -> Any:
    def act(_: Order) -> Outcome:
        for name, text in files.items():
            place = rig.repo / {"script": "tests/run.sh", "app": "app", "new": "tests/more_test.sh"}[name]
            place.write_text(text)
        return claim(session_id="w")

    return act


async def run(rig: Rig, steps: Steps, reviews: Steps = (), **changes: Any) -> tuple[LoopState, ScriptedAgent]:
    worker = ScriptedAgent(steps)
    state = await wiring.start_run(
        rig.spec(goal="make app work", contract=Contract(checks=commands(CHECK)), review=Review(**changes)),
        Policy(max_runs=4),
        rig.around(worker, ScriptedAgent(reviews)),
        run_id=rig.run_id,
    )
    return state, worker


async def test_the_checks_of_the_base_judge_the_new_code_as_well(rig: Rig) -> None:
    state, worker = await run(rig, [does(rig, script="true\n"), does(rig, script=SCRIPT, app="good\n")])
    refused, passed = rig.seen(ev.IterationValidation)
    assert [check.passed for check in refused.checks] == [True], "with the script as the agent left it"
    assert [check.passed for check in refused.base_checks] == [False]
    assert (refused.passed, refused.judges, refused.disputed) == (False, ("tests/run.sh",), DISPUTED)
    assert "- tests/app_test.sh::test_app fails" in worker.orders[1].prompt
    assert (passed.passed, passed.judges, passed.base_checks) == (True, (), ())
    assert (state.stop_reason, state.verified, state.disputed) == ("validation_passed", True, ())
    assert rig.git("status", "--porcelain") == ""


async def test_whatever_was_edited_is_fine_where_the_base_agrees(rig: Rig) -> None:
    state, _ = await run(rig, [does(rig, script=f"# better\n{SCRIPT}echo more\n", app="good\n", new="true\n")])
    (passed,) = rig.seen(ev.IterationValidation)
    assert (passed.passed, passed.judges) == (True, ("tests/more_test.sh", "tests/run.sh"))
    assert [check.passed for check in passed.base_checks] == [True]
    assert state.stop_reason == "validation_passed"


@pytest.mark.parametrize(
    ("by_agent", "by_human", "disputed"),
    [
        pytest.param({}, "true\n", False, id="the human's change is the base's"),
        pytest.param({"script": "true\n"}, "", True, id="the agent's stays the agent's", marks=pytest.mark.soak),
        pytest.param(
            {"app": "worse\n"}, "# mine\ntrue\n", False, id="beside work of the agent's", marks=pytest.mark.soak
        ),
    ],
)
async def test_what_a_human_changes_between_a_stop_and_a_resume_is_not_held_against_the_agent(
    rig: Rig, by_agent: dict[str, str], by_human: str, disputed: bool
) -> None:
    first = ScriptedAgent([does(rig, new="true\n", **by_agent)])
    spec = rig.spec(contract=Contract(checks=commands(f"{CHECK} && test -f done")))
    await wiring.start_run(spec, Policy(max_runs=1), rig.around(first), run_id=rig.run_id)
    (rig.repo / "notes").write_text("mine\n")
    if by_human:
        (rig.repo / "tests" / "run.sh").write_text(by_human)
    rig.git("add", ".")
    rig.git("commit", "-qm", "by hand")
    rig.records.clear()

    def ends(_: Order) -> Outcome:
        (rig.repo / "done").touch()
        return claim(session_id="w")

    asked = [ev.LimitsChanged(by="cli", changes={"max_runs": 2})]
    state = await wiring.resume_run(
        rig.run_id, rig.around(ScriptedAgent([ends]), ScriptedAgent([REFUSE])), asked=asked
    )  # fmt: skip
    assert bool(state.disputed) is disputed
    assert state.verified is not disputed


async def test_new_tests_alone_cost_nothing(rig: Rig) -> None:
    await run(rig, [does(rig, app="good\n", new="true\n")])
    (passed,) = rig.seen(ev.IterationValidation)
    assert (passed.passed, passed.judges, passed.base_checks) == (True, (), ())


LENIENT = "grep -q good app.py || test -f settings.cfg"


@pytest.mark.parametrize(
    ("files", "said", "looks"),
    [
        pytest.param({"app.py": "good\n", "more.py": "", "README.md": "It works.\n"}, "", 0, marks=pytest.mark.soak),
        ({"app.py": "good\n", "notes.json": "{}"}, "", 1),
        ({"app.py": "bad again\n", "settings.cfg": "", "notes.json": "{}"}, "notes.json, settings.cfg", 1),
        pytest.param({"settings.cfg": ""}, "settings.cfg", 0, marks=pytest.mark.soak),
    ],
)
async def test_what_passes_without_the_code_as_well_is_disputed(
    rig: Rig, files: dict[str, str], said: str, looks: int
) -> None:
    (rig.repo / "app.py").write_text("bad\n")
    rig.git("add", ".")
    rig.git("commit", "-qm", "another program")

    def act(_: Order) -> Outcome:
        for name, text in files.items():
            (rig.repo / name).write_text(text)
        return claim()

    contract = Contract(checks=commands(LENIENT))
    spec = rig.spec(contract=contract, review=Review(disputes=False))
    await wiring.start_run(spec, Policy(max_runs=1), rig.around(ScriptedAgent([act])), run_id=rig.run_id)
    (seen,) = rig.seen(ev.IterationValidation)
    told = f"{LENIENT} passes as well without the changes to the code: {said} made it pass"
    assert (seen.passed, seen.disputed) == (not said, (told,) if said else ())
    lost = [
        line.split()[2] for line in rig.git("fsck", "--unreachable", "--no-reflogs").splitlines() if "commit" in line
    ]
    put_together = rig.git("log", "--no-walk", "--format=%s", *lost) if lost else ""
    assert put_together.count("with the files that judge it") == looks


async def test_the_same_dispute_again_stops_the_run_and_a_human_accepts_it_without_another_iteration(rig: Rig) -> None:
    state, _ = await run(rig, [does(rig, script="true\n"), claim()], disputes=False)
    assert (state.stop_reason, state.stop_detail, state.attempts) == ("disputed", DISPUTED[0], 2)
    await rig.say(ev.DisputeAccepted(by="human", disputed=state.disputed))
    state, agent = await rig.resume([claim()])
    assert (state.stop_reason, state.verified, state.accepted_by) == ("changes_accepted", False, "human")
    assert agent.orders == []


async def test_a_reviewer_settles_it_and_the_work_is_done_but_not_verified(rig: Rig) -> None:
    state, _ = await run(rig, [does(rig, script="true\n"), claim()], [APPROVE])
    assert (state.stop_reason, state.verified, state.accepted_by) == ("changes_accepted", False, "a reviewer")
    assert state.accepted == DISPUTED


async def test_a_reviewer_who_says_no_ends_the_run_and_a_waiver_lets_it_pass(rig: Rig) -> None:
    state, _ = await run(rig, [does(rig, script="true\n"), claim()], [REFUSE])
    assert (state.stop_reason, state.dispute_refused) == ("disputed", True)
    await rig.say(ev.WaiverGiven(by="human", patterns=("tests/run.sh",)))
    state, agent = await rig.resume([claim()])
    assert (state.stop_reason, agent.orders) == ("validation_passed", [])


async def test_one_that_becomes_smaller_goes_back_to_the_agent(rig: Rig) -> None:
    two = SCRIPT.replace("exit 1", 'echo "FAILED tests/app_test.sh::test_b - no"; exit 1')
    (rig.repo / "tests" / "run.sh").write_text(two)
    (rig.repo / "tests" / "b.txt").write_text("")
    rig.git("add", ".")
    rig.git("commit", "-qm", "two tests")
    state, _ = await run(rig, [does(rig, script="true\n"), does(rig, script=two, app="good\n")], disputes=False)
    assert state.stop_reason == "validation_passed"


async def test_code_that_asks_whether_it_is_tested_and_a_changed_ci_are_questioned(rig: Rig) -> None:
    ci = rig.repo / ".github" / "workflows" / "ci.yml"
    ci.parent.mkdir(parents=True)
    ci.write_text("run: make test\n")
    rig.git("add", ".")
    rig.git("commit", "-qm", "ci")

    def act(_: Order) -> Outcome:
        (rig.repo / "app").write_text("good\n")
        ci.write_text("run: true\n")
        (rig.repo / "app.py").write_text("import os\n\nif 'PYTEST_CURRENT_TEST' in os.environ:\n    print(42)\n")
        return claim()

    state, _ = await run(rig, [act, claim()], disputes=False)
    assert state.stop_reason == "disputed"
    assert [said.partition(": ")[0] for said in state.disputed] == ["app.py:3", ".github/workflows/ci.yml"]


async def test_what_the_setup_runs_and_a_makefile_includes_judges(rig: Rig) -> None:
    (rig.repo / "config.mk").write_text("FLAGS = -strict\n")
    (rig.repo / "Makefile").write_text("include config.mk\n-include local.mk\ntest:\n\tgrep -e $(FLAGS) app\n")
    (rig.repo / "prepare.sh").write_text("touch ready\n")
    rig.git("add", ".")
    rig.git("commit", "-qm", "more that judges")

    def act(_: Order) -> Outcome:
        for name in ("config.mk", "local.mk", "prepare.sh"):
            (rig.repo / name).write_text("# nothing\n")
        return claim()

    contract = Contract(checks=commands("make test || true"), setup="sh prepare.sh", baseline=False)
    spec = rig.spec(contract=contract)
    await wiring.start_run(spec, Policy(max_runs=1), rig.around(ScriptedAgent([act])), run_id=rig.run_id)
    (seen,) = rig.seen(ev.IterationValidation)
    assert seen.judges == ("config.mk", "local.mk", "prepare.sh")


async def test_strict_lets_any_change_block(rig: Rig) -> None:
    state = await wiring.start_run(
        rig.spec(contract=Contract(checks=commands(CHECK), guard="strict")),
        Policy(max_runs=1),
        rig.around(ScriptedAgent([does(rig, app="good\n", new="true\n")])),
        run_id=rig.run_id,
    )
    assert state.stop_reason == "max_runs_reached"
    assert [(found.path, found.blocking) for found in state.findings] == [("tests/more_test.sh", True)]

"""Agents that make checks prove less, or commit keys, in whole runs: caught, told, and never done by it."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from engine.rig import Rig, claim, idle, writes
from untildone.core import events as ev
from untildone.core.contract import Contract, commands
from untildone.core.outcome import Order, Outcome
from untildone.core.policy import Policy
from untildone.core.stopping import Reason
from untildone.core.trace import IterationFilesChanged

pytestmark = pytest.mark.anyio

KEY = "gh" + "p_" + "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0eF3hJ6"
TESTS = "def test_a():\n    assert 1 == 1\n\n\ndef test_b():\n    assert broken() == 2\n"


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    made = Rig(tmp_path)
    (made.repo / "tests").mkdir()
    (made.repo / "tests" / "test_a.py").write_text(TESTS)
    made.git("add", ".")
    made.git("commit", "-qm", "tests")
    return made


def acts(act: Callable[[], Any]) -> Callable[[Order], Outcome]:
    def done(_: Order) -> Outcome:
        act()
        return claim()

    return done


@pytest.fixture(params=["clean", pytest.param("tree", marks=pytest.mark.soak)])
def guarded(request: pytest.FixtureRequest) -> Callable[..., Contract]:
    """A contract whose check always passes: only the guard can say no, wherever it looks."""
    return partial(Contract, checks=commands("true"), room=request.param)


async def test_deleted_tests_are_no_way_to_done(rig, guarded):
    file = rig.repo / "tests" / "test_a.py"
    steps = [acts(file.unlink), acts(lambda: file.write_text(TESTS + "\n"))]
    state, agent = await rig.run(steps, Policy(max_iterations=2), contract=guarded())
    refused, passed = rig.seen(ev.IterationValidation)
    assert [finding.kind for finding in refused.findings if finding.blocking] == ["test_deleted"]
    assert "tests/test_a.py: a test file is gone" in refused.feedback
    assert (refused.passed, passed.passed) == (False, True)
    assert state.stop_reason == Reason.VALIDATION_PASSED
    assert "a test file is gone" in agent.orders[1].prompt


async def test_a_skip_is_named_with_its_line_and_a_waiver_lets_it_pass(rig, guarded):
    skipped = TESTS.replace("def test_b", "@pytest.mark.skip\ndef test_b")
    steps = [writes(rig.repo / "tests" / "test_a.py", skipped, claim())]
    state, _ = await rig.run(steps, Policy(max_iterations=1), contract=guarded())
    (refused,) = rig.seen(ev.IterationValidation)
    assert [finding.place for finding in refused.findings if finding.blocking] == ["tests/test_a.py:5"]
    assert state.stop_reason == Reason.MAX_ITERATIONS
    await rig.say(ev.WaiverGiven(by="human", patterns=("tests/test_a.py",)))
    state, agent = await rig.resume([claim()])
    assert state.stop_reason == Reason.VALIDATION_PASSED
    assert agent.orders == [], "no iteration is paid for to look again"
    assert [(finding.kind, finding.blocking) for finding in state.findings] == [("skip_added", False)]


@pytest.mark.soak
async def test_adding_tests_is_not_hindered(rig, guarded):
    more = TESTS + "\n\ndef test_c():\n    assert 3 == 3\n"
    steps = [writes(rig.repo / "tests" / "test_a.py", more, claim())]
    state, _ = await rig.run(steps, contract=guarded())
    assert state.stop_reason == Reason.VALIDATION_PASSED
    assert [(finding.kind, finding.blocking) for finding in state.findings] == [("test_edited", False)]


async def test_a_key_is_not_committed_and_not_done(rig, guarded):
    app = rig.repo / "app.py"
    steps = [writes(app, f'TOKEN = "{KEY}"\n', claim()), writes(app, "import os\n", claim())]
    state, agent = await rig.run(steps, Policy(max_iterations=2), contract=guarded())
    refused, passed = rig.seen(ev.IterationValidation)
    assert (refused.passed, passed.passed) == (False, True)
    assert "app.py:1 (GitHub token" in agent.orders[1].prompt
    assert state.stop_reason == Reason.VALIDATION_PASSED
    told = [str(record.event) for record in rig.records if not isinstance(record.event, IterationFilesChanged)]
    assert not any(KEY in text for text in told)
    assert KEY not in rig.git("log", "-p")


async def test_a_key_that_the_agent_committed_itself_is_found(rig, guarded):
    def commits() -> None:
        (rig.repo / "app.py").write_text(f'TOKEN = "{KEY}"\n')
        rig.git("add", ".")
        rig.git("commit", "-qm", "mine")
        (rig.repo / "app.py").write_text("import os\n")
        rig.git("commit", "-qam", "taken out again")

    state, _ = await rig.run([acts(commits)], Policy(max_iterations=1), contract=guarded(guard="off"))
    (refused,) = rig.seen(ev.IterationValidation)
    assert [(finding.kind, finding.place) for finding in refused.findings] == [("secret", "app.py:1")]
    assert state.stop_reason == Reason.MAX_ITERATIONS


async def test_what_an_iteration_changed_is_told(rig):
    steps = [writes(rig.repo / "b.txt", "one\ntwo\n"), writes(rig.repo / "b.txt", "one\n2\n"), idle()]
    await rig.run(steps, Policy(max_iterations=3))
    first, second = rig.seen(IterationFilesChanged)
    assert [(file.file_path, file.change_type) for file in first.files] == [("b.txt", "created")]
    assert (first.lines_added, second.lines_added, second.lines_removed) == (2, 1, 1)
    assert "-two\n+2\n" in second.diff_preview

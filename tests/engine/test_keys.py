"""Keys in commits, and what is told of the files that changed, in whole runs."""

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


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def acts(act: Callable[[], Any]) -> Callable[[Order], Outcome]:
    def done(_: Order) -> Outcome:
        act()
        return claim()

    return done


@pytest.fixture
def guarded() -> Callable[..., Contract]:
    """A contract whose check always passes: only what is in the commits can say no."""
    return partial(Contract, checks=commands("true"))


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

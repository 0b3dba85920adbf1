"""A secret that an agent wrote and a check printed is in no event, no prompt and no message of a commit."""

from pathlib import Path

import pytest

from engine.rig import Rig, claim, idle
from untildone import wiring
from untildone.agents.scripted import ScriptedAgent, Step
from untildone.core import events as ev
from untildone.core.claims import Report
from untildone.core.contract import Contract, commands
from untildone.core.outcome import Order, Outcome
from untildone.core.policy import Policy, Review
from untildone.core.trace import AgentToolResult, IterationFilesChanged

pytestmark = pytest.mark.anyio

KEY = "gh" + "p_" + "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0eF3hJ6"
SAID = "[secret: GitHub token]"


async def test_it_is_in_no_event_no_prompt_and_no_message(tmp_path: Path) -> None:
    rig = Rig(tmp_path)

    def commits_it(_: Order) -> Outcome:
        (rig.repo / "app.txt").write_text(f"TOKEN {KEY}\n")
        rig.git("add", ".")
        rig.git("commit", "-qm", "mine")
        return claim(f"I used {KEY}")

    def takes_it_out(_: Order) -> Outcome:
        (rig.repo / "app.txt").write_text("TOKEN from the environment\n")
        return idle("done", report=Report(status="COMPLETE", exit_signal=True, summary=f"Take {KEY} out"))

    seen = AgentToolResult(iteration_num=1, tool_use_id="t", text=f"cat app.txt\nTOKEN {KEY}")
    worker = ScriptedAgent([Step(outcome=commits_it, events=(seen,)), takes_it_out, claim()])
    reviewer = ScriptedAgent([idle(f"app.txt:1 had {KEY}\n\nREVIEW: CHANGES"), idle("REVIEW: APPROVE")])
    checks = commands("cat app.txt; ! grep -q gh[p]_ app.txt")
    spec = rig.spec(contract=Contract(checks=checks, waive=("app.txt",)), review=Review(when="landing"))
    state = await wiring.start_run(spec, Policy(max_runs=5), rig.around(worker, reviewer), run_id=rig.run_id)
    assert state.stop_reason == "validation_passed"

    (refused, *_) = rig.seen(ev.IterationValidation)
    assert SAID in refused.checks[0].output_tail
    assert SAID in worker.orders[1].prompt, "what the check said, with the kind in place of the secret"
    assert f"> app.txt:1 had {SAID}" in worker.orders[2].prompt
    assert [f"+TOKEN {SAID}" in event.full_diff for event in rig.seen(IterationFilesChanged)] == [True, False]
    assert rig.git("log", "-1", "--format=%s").strip() == f"Take {SAID} out"
    told = [str(record) for record in rig.records] + [order.prompt for order in (*worker.orders, *reviewer.orders)]
    assert not [text for text in told if KEY in text]
    stored = [file for file in (tmp_path / "state").rglob("*.db*") if KEY.encode() in file.read_bytes()]
    assert stored == []
    assert any((tmp_path / "state").rglob("*.db*"))

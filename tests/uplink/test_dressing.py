"""The union of the published table and the program behind it is on the wire, field by field, as a real run wrote it."""

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.rig import Rig
from untildone import wiring
from untildone.core import events as ev
from untildone.core import trace as tr
from untildone.core.contract import CheckSpec, Contract
from untildone.core.diffs import FULL_CHARS, PREVIEW_CHARS, PREVIEW_LINES
from untildone.core.events import Event, Record
from untildone.core.outcome import CheckResult, Order, Outcome
from untildone.core.policy import AgentOptions, Policy, RunSpec
from untildone.core.wire import Wire, record
from untildone.uplink.dressing import EVENT_CAP, HIDDEN, Dressing
from untildone.uplink.masking import Masking
from uplink.uplink_kit import ActingAgent

IDS = {"task_id": "t-1", "agent_id": "a-1", "sandbox_id": "box", "ticket_id": "k-1", "spec_id": "s-1"}
STATE = {
    "iteration_num", "successful_iterations", "error_count", "extra_iterations", "total_cost_usd",
    "completion_signal_count", "elapsed_seconds", "last_session_id",
}  # fmt: skip
PUBLISHED: dict[str, tuple[str, set[str]]] = {
    "continuous.started": ("worker", {"config", "limits", "goal", "completion_signal", "completion_threshold"}),
    "iteration.started": ("worker", {"iteration_num", "prompt_preview", "state", *STATE}),
    "iteration.completed": (
        "worker", {"iteration_num", "cost_usd", "session_id", "transcript_b64", "output_preview", "state", *STATE}
    ),
    "iteration.failed": ("worker", {"iteration_num", "error", "error_type", "retry_allowed"}),
    "iteration.completion_signal": ("worker", {"iteration_num", "signal_count", "threshold"}),
    "continuous.limit_reached": ("worker", {"limit_type", "limit_value", "current_value"}),
    "continuous.suspended": ("worker", {"state", "stop_reason", "total_iterations", "total_cost", *STATE}),
    "continuous.completed": ("worker", {"state", "stop_reason", "total_iterations", "total_cost", *STATE}),
    "agent.started": ("agent", {"iteration_num"}),
}  # fmt: skip
"""Type of event: its source, and all that a reader of either may look for."""


def dressed(event: Event, dressing: Dressing | None = None) -> dict[str, Any]:
    wire = (dressing or Dressing(Masking(), IDS))(Record(seq=1, at=1.0, event=event))
    payload: dict[str, Any] = json.loads(bytes(wire.event_data))
    return payload


async def recorded(tmp_path: Path) -> list[Wire]:
    """Runs as they were written: one that fails, claims and ends at a limit, and one that is done."""
    rig = Rig(tmp_path)
    signal = "CONTINUOUS_CLAUDE_PROJECT_COMPLETE"

    async def working(order: Order) -> Outcome:
        (rig.repo / f"{order.iteration_num}.txt").write_text("work\n")
        return Outcome(final_text="some work " + "x" * 3000, cost_usd=0.25, session_id=f"s-{order.iteration_num}")

    async def broken(_: Order) -> Outcome:
        raise_from = Outcome(final_text="", cost_usd=0.1, session_id="s-2")
        return replace(raise_from, interrupted=True)

    async def done(_: Order) -> Outcome:
        return Outcome(final_text=f"all done\n{signal}", cost_usd=0.5, session_id="s-3")

    for run_id, acts, policy in (
        ("limited", (working, broken, working), Policy(max_runs=2, loop_delay=0.0)),
        ("claimed", (done, done), Policy(max_runs=9, completion_threshold=1)),
    ):
        rig.run_id = run_id
        around = rig.around(ActingAgent(*acts))  # type: ignore[arg-type]
        await wiring.start_run(rig.spec(goal="make it " + "work " * 300), policy, around, run_id=run_id)
    dress = Dressing(Masking(), IDS)
    return [dress(one) for run in ("limited", "claimed") for one in await rig.log.read(run, trace=True)]


@pytest.mark.anyio
async def test_a_recorded_run_carries_what_either_source_names(tmp_path: Path) -> None:
    wires = await recorded(tmp_path)
    _names_are_there(wires)
    _previews_are_cut(wires)
    # The server decodes our events by their own names: more of them change nothing.
    assert [wire.event_type for wire in wires if type(record(wire).event) is ev.Unknown] == []


def _names_are_there(recorded: list[Wire]) -> None:
    seen: dict[str, list[Wire]] = {}
    for wire in recorded:
        seen.setdefault(wire.event_type, []).append(wire)
    assert set(PUBLISHED) - set(seen) == set()
    for kind, (source, fields) in PUBLISHED.items():
        for wire in seen[kind]:
            payload = json.loads(bytes(wire.event_data))
            assert fields - set(payload) == set(), kind
            assert IDS.items() <= payload.items(), kind
            assert wire.source == source
            if "state" in fields:
                assert set(payload["state"]) >= STATE, kind
                assert all(payload[name] == payload["state"][name] for name in STATE), kind


def _previews_are_cut(recorded: list[Wire]) -> None:
    payloads = {kind: [] for kind in PUBLISHED}  # type: dict[str, list[dict[str, Any]]]
    for wire in recorded:
        payloads.get(wire.event_type, []).append(json.loads(bytes(wire.event_data)))
    assert {len(one["prompt_preview"]) for one in payloads["iteration.started"]} == {500}
    assert max(len(one["output_preview"]) for one in payloads["iteration.completed"]) == 1000
    assert {one["transcript_b64"] for one in payloads["iteration.completed"]} == {None}
    assert {"max_runs", "max_cost_usd", "max_duration_seconds"} <= set(payloads["continuous.started"][0]["limits"])
    assert payloads["iteration.completed"][0]["last_session_id"] == payloads["iteration.completed"][0]["session_id"]
    suspended = payloads["continuous.suspended"][0]
    assert suspended["total_cost"] == suspended["total_cost_usd"]
    assert suspended["total_iterations"] == suspended["successful_iterations"] + suspended["extra_iterations"]


def test_caps_of_results_and_diffs_are_the_published_ones() -> None:
    assert tr.TOOL_RESULT_CAP == 5000
    assert (PREVIEW_LINES, PREVIEW_CHARS, FULL_CHARS) == (100, 5000, 50_000)
    edited = dressed(tr.AgentFileEdited(iteration_num=1, tool_use_id="t", tool="Edit", file_path="a.py"))
    assert {
        "file_path", "change_type", "lines_added", "lines_removed", "diff_preview", "full_diff", "full_diff_available",
        "full_diff_size",
    } <= set(edited)  # fmt: skip
    assert "full_length" in dressed(tr.AgentToolResult(iteration_num=1, tool_use_id="t"))


def test_what_an_event_says_itself_is_not_overwritten() -> None:
    dressing = Dressing(Masking(), {"run_id": "mine", "message": "x"})
    assert dressed(ev.ContinuousWarning(message="y"), dressing) == {"message": "y", "run_id": "mine"}


def test_a_transcript_goes_along_only_when_it_is_wanted_and_without_secrets() -> None:
    completed = ev.IterationCompleted(iteration_num=1, cost_usd=0.1, session_id="s-1")
    masking = Masking({"h1dden-value": "KEY"})
    asked: list[str] = []

    def transcript(session: str) -> bytes:
        asked.append(session)
        return b'{"text": "it is h1dden-value"}\n'

    assert dressed(completed, Dressing(masking))["transcript_b64"] is None
    told = dressed(completed, Dressing(masking, transcript=transcript))["transcript_b64"]
    assert base64.b64decode(told) == b'{"text":"it is [secret: KEY]"}\n'
    assert asked == ["s-1"]
    assert dressed(completed, Dressing(masking, transcript=lambda _: None))["transcript_b64"] is None
    assert dressed(completed, Dressing(masking, transcript=lambda _: b"x" * (3 << 20)))["transcript_b64"] is None


def test_hidden_checks_and_addresses_of_notices_stay_here() -> None:
    check = CheckSpec(name="inner", command="pytest -q secret_tests", hidden=True)
    spec = RunSpec(
        goal="g",
        cwd="/",
        name="n",
        notify=("https://hook.test/t0ken-in-path",),
        contract=Contract(checks=(check,)),
        options=AgentOptions(
            mcp_config=('{"mcpServers": {"s": {"env": {"PLAIN": "an-mcp-pass"}}}}', "servers.json"),
            extra_args=(
                "--settings",
                ' {"env": {"X": "an-args-pass"}}',
                '--settings={"apiKeyHelper": "a-joined-pass"}',
                "--x=1",
            ),
        ),
    )
    begun = ev.ContinuousStarted(
        run_id="r", goal="g", limits={}, completion_signal="D", completion_threshold=None, policy=Policy(), spec=spec
    )
    told = json.dumps(dressed(begun))
    assert "secret_tests" not in told
    assert "t0ken-in-path" not in told
    assert HIDDEN in told
    assert "-pass" not in told
    assert "servers.json" in told
    assert "--x=1" in told
    result = CheckResult(
        name="inner", command="pytest -q secret_tests", passed=False, exit_code=1, hidden=True, output_tail="E secret"
    )
    told = json.dumps(dressed(ev.BaselineTaken(commit=None, room="tree", checks=(result,))))
    assert "secret" not in told


def test_an_event_larger_than_a_server_takes_is_cut_and_still_that_event() -> None:
    wire = Dressing(Masking())(Record(seq=1, at=1.0, event=ev.MessageReceived(by="me", content="x" * (EVENT_CAP + 1))))
    assert len(bytes(wire.event_data)) < EVENT_CAP
    event = record(wire).event
    assert isinstance(event, ev.MessageReceived)
    assert event.content.endswith("x…")

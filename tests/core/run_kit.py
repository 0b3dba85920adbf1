"""A run told in a few words: builds records for tests of the fold and the decisions."""

from collections.abc import Iterable
from typing import Any

from untildone.core import events as ev
from untildone.core.beginning import beginning
from untildone.core.claims import Claim, Report
from untildone.core.contract import Contract, commands
from untildone.core.events import Event, Record
from untildone.core.fold import fold
from untildone.core.outcome import Evidence
from untildone.core.policy import Landing, Policy, RunSpec
from untildone.core.state import LoopState

START = 1_000_000.0


def spec(**changes: Any) -> RunSpec:
    return RunSpec(**{"goal": "make it work", "cwd": "/w", "name": "it", **with_contract(changes)})


def with_contract(changes: dict[str, Any]) -> dict[str, Any]:
    """`checks=("make",)` and `commit=False` in short for what they mean; nothing is guarded unless a test says so."""
    short = dict(changes)
    checks, commit = short.pop("checks", ()), short.pop("commit", True)
    told: dict[str, Any] = {"contract": Contract(checks=commands(*checks), guard="off")}
    if not commit:
        told["landing"] = Landing(land="none")
    return told | short


def opening(policy: Policy | None = None, **spec_changes: Any) -> list[Event]:
    return [
        beginning("run1", spec(**spec_changes), policy or Policy(max_runs=10)),
        ev.ContinuousResumed(pid=1, host="h", version="0", lease=1),
    ]


def started(number: int, **changes: Any) -> ev.IterationStarted:
    return ev.IterationStarted(iteration_num=number, **changes)


def completed(number: int, **changes: Any) -> ev.IterationCompleted:
    return ev.IterationCompleted(
        **{"iteration_num": number, "cost_usd": 0.1, "evidence": Evidence(changed=True), **changes}
    )


def failed(number: int, fault: str, **changes: Any) -> ev.IterationFailed:
    return ev.IterationFailed(
        **{
            "iteration_num": number,
            "error": "it broke",
            "error_type": fault,
            "retry_allowed": True,
            "cost_usd": 0.1,
            **changes,
        }
    )


def done_claim(form: str = "block") -> Claim:
    if form == "signal":
        return Claim(form="signal", signal=True)
    return Claim(form=form, report=Report(status="COMPLETE", exit_signal=True))  # type: ignore[arg-type]


def asked(number: int, **changes: Any) -> list[Event]:
    """The last question, and an answer: by default that nothing is left."""
    return [
        started(number, question=True),
        completed(number, **{"claim": done_claim(), "evidence": Evidence()} | changes),
    ]


def records(events: Iterable[Event], *, every: float = 1.0) -> list[Record]:
    return [Record(seq=n, at=START + n * every, event=event) for n, event in enumerate(events, 1)]


def after(*events: Event, policy: Policy | None = None, every: float = 1.0, **spec_changes: Any) -> LoopState:
    """The state after these events, from the beginning of a run on."""
    return fold(records([*opening(policy, **spec_changes), *events], every=every))


def now_of(state: LoopState) -> float:
    return START + state.last_seq

"""An event as it leaves for the server: whose it is, under every name that readers know, and without secrets.

The published table of events and the program that went with it differ in a few names: both are on the wire.
"""

import base64
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from untildone.core.codec import event_type
from untildone.core.event import Event, Record
from untildone.core.events import (
    BaselineTaken,
    ContinuousCompleted,
    ContinuousStarted,
    ContinuousSuspended,
    IterationCompleted,
    IterationValidation,
    SettingsChanged,
)
from untildone.core.outcome import CheckResult
from untildone.core.redaction import HIDDEN, veiled_options
from untildone.core.wire import Wire, wire
from untildone.uplink.masking import Masking

EVENT_CAP = 4 << 20
"""Bytes of one payload: a server takes no more than a few at a time."""
TEXT_CAP = 64 << 10
"""Characters that are left of each text of a payload that is larger."""
TRANSCRIPT_CAP = 2 << 20
"""Bytes of a transcript that travels inside an event; larger ones travel as a parcel alone."""
COUNTERS = (
    "iteration_num", "successful_iterations", "error_count", "extra_iterations", "total_cost_usd",
    "completion_signal_count", "elapsed_seconds", "last_session_id",
)  # fmt: skip
"""What a reader of the published events finds under `state`, and beside it."""

Transcript = Callable[[str], bytes | None]
"""The transcript of a session, if it is to be had."""


class Dressing:
    """Makes records ready to travel."""

    def __init__(
        self, masking: Masking, ids: Mapping[str, str] | None = None, transcript: Transcript | None = None
    ) -> None:
        """`ids` are added to every payload; with `transcript`, that of an iteration goes with its last event."""
        self._masking = masking
        self._ids = dict(ids or {})
        self._transcript = transcript

    def __call__(self, record: Record) -> Wire:
        """The record as it travels."""
        plain = wire(replace(record, event=veiled(record.event)))
        data = bytes(plain.event_data)
        extra = self._ids | aliases(record)
        session = record.event.session_id if isinstance(record.event, IterationCompleted) else None
        if session is not None and self._transcript is not None:
            extra["transcript_b64"] = self._packed_transcript(session)
        dressed = _bounded(self._masking.payload(_with(data, extra)))
        return msgspec.structs.replace(plain, event_data=msgspec.Raw(dressed))

    def _packed_transcript(self, session: str) -> str | None:
        content = self._transcript(session) if self._transcript is not None else None
        if content is None or len(content) > TRANSCRIPT_CAP:
            return None
        return base64.b64encode(self._masking.lines(content)).decode()


def veiled(event: Event) -> Event:
    """The event without what stays here: where notices go to, what a hidden check looks at, keys of servers."""
    if isinstance(event, ContinuousStarted | SettingsChanged):
        spec = event.spec
        checks = tuple(replace(one, command=HIDDEN) if one.hidden else one for one in spec.contract.checks)
        notify = tuple(f"{address.partition('://')[0]:.20}://{HIDDEN}" for address in spec.notify)
        contract, options = replace(spec.contract, checks=checks), veiled_options(spec.options)
        return replace(event, spec=replace(spec, notify=notify, contract=contract, options=options))
    if isinstance(event, BaselineTaken | IterationValidation):
        return replace(event, checks=tuple(map(_veiled_result, event.checks)))
    return event


def _veiled_result(result: CheckResult) -> CheckResult:
    return replace(result, command=HIDDEN, output_tail="", log="") if result.hidden else result


def aliases(record: Record) -> dict[str, Any]:
    """What older readers look for under another name."""
    event = record.event
    if isinstance(event, ContinuousStarted):
        policy, spec = event.policy, event.spec
        return {
            "config": {
                "max_runs": policy.max_runs,
                "max_cost_usd": policy.max_cost_usd,
                "max_duration_seconds": policy.max_duration,
                "completion_signal": policy.completion_signal,
                "completion_threshold": policy.completion_threshold,
                "notes_file": spec.notes_file,
                "enable_commits": spec.commit,
                "git_branch_prefix": spec.branch_prefix,
                "merge_strategy": spec.landing.strategy,
                "model": spec.options.model,
            }
        }
    if event_type(event) not in {"iteration.started", "iteration.completed", *_ENDS}:
        return {}
    state = {name: getattr(event, name) for name in COUNTERS if hasattr(event, name)}
    found: dict[str, Any] = {"state": state}
    if isinstance(event, ContinuousCompleted | ContinuousSuspended):
        total = event.successful_iterations + event.extra_iterations
        found |= {"total_iterations": total, "total_cost": event.total_cost_usd, "iteration_num": total}
        state["iteration_num"] = total
    return found


_ENDS = ("continuous.completed", "continuous.suspended")


def _with(data: bytes, extra: Mapping[str, Any]) -> bytes:
    """An object with more in it. What it has itself stays as it is, but for a transcript that it lacks."""
    if not extra:
        return data
    if not data.startswith(b"{"):
        return data
    have = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    if "transcript_b64" in extra:
        have.pop("transcript_b64", None)
    new = {name: value for name, value in extra.items() if name not in have}
    return msgspec.json.encode({**have, **new})


def _bounded(data: bytes) -> bytes:
    if len(data) <= EVENT_CAP:
        return data
    return msgspec.json.encode(_cut(msgspec.json.decode(data)))


def _cut(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= TEXT_CAP else value[:TEXT_CAP] + "…"
    if isinstance(value, list):
        return [_cut(item) for item in value[:1000]]
    if isinstance(value, dict):
        return {key: _cut(item) for key, item in value.items()}
    return value

"""No secret in the record: what agents, checks and forges said is told without the keys and tokens in it."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from untildone.core import events as ev
from untildone.core.policy import AgentOptions

HIDDEN = "(hidden)"
"""What is shown and sent instead of what stays on this machine."""

# What the user or a human wrote is not among them: a run must find its own commands and words again.
_TOLD_BY_OTHERS = (
    ev.BaselineTaken, ev.HookFailed, ev.IterationCompleted, ev.IterationFailed, ev.IterationValidation,
    ev.LandingCommitted, ev.LandingFailed, ev.LandingGaveUp, ev.LandingHeld, ev.LandingRejected, ev.LandingReverted,
)  # fmt: skip


def redacted(event: ev.Event) -> ev.Event:
    """The event as it may be kept and shown; the very same one if nothing has to go."""
    if event.KIND == "control" and not isinstance(event, _TOLD_BY_OTHERS):
        return event
    told: ev.Event = _clean(event)
    return told


def is_written_out(argument: str) -> bool:
    """Whether an argument for Claude Code is JSON instead of the name of a file: it may hold keys."""
    return argument.lstrip().startswith("{")


def veiled_options(options: AgentOptions) -> AgentOptions:
    """The options as they may be shown: without settings that are written out."""
    servers = tuple(HIDDEN if is_written_out(one) else one for one in options.mcp_config)
    return replace(options, mcp_config=servers, extra_args=tuple(map(_veiled_argument, options.extra_args)))


def _veiled_argument(argument: str) -> str:
    flag, is_joined, value = argument.partition("=")
    if is_written_out(argument):
        return HIDDEN
    return f"{flag}={HIDDEN}" if is_joined and flag.startswith("-") and is_written_out(value) else argument


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        from untildone.core.secrets import redact

        return redact(value)
    if isinstance(value, tuple | list):
        return type(value)(_clean(item) for item in value)
    if isinstance(value, Mapping):
        return {key: _clean(item) for key, item in value.items()}
    if not is_dataclass(value) or isinstance(value, type):
        return value
    before = {field.name: getattr(value, field.name) for field in fields(value)}
    changed = {name: new for name, old in before.items() if (new := _clean(old)) != old}
    return replace(value, **changed) if changed else value

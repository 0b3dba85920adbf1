"""What is printed never holds the address of a notification channel in full: it is a password to that channel.

Nor what a hidden check looks at, and the keys in settings that are written out: an agent can read what is printed.
"""

from dataclasses import replace
from typing import Any

from untildone.core.events import BaselineTaken, ContinuousStarted, Event, IterationValidation, SettingsChanged
from untildone.core.outcome import CheckResult
from untildone.core.policy import AgentOptions, RunSpec
from untildone.core.redaction import HIDDEN, veiled_options
from untildone.core.settings import Setting
from untildone.notify.webhook import masked


def masked_value(setting: Setting, value: Any) -> Any:
    """The value of a setting as it may be shown."""
    if setting.name == "hidden_checks":
        return tuple(HIDDEN for _ in value)
    if setting.name in {"mcp_config", "extra_args"}:
        return getattr(veiled_options(AgentOptions(**{setting.field: value})), setting.field)
    return tuple(map(masked, value)) if setting.name == "notify" else value


def masked_spec(spec: RunSpec) -> RunSpec:
    """A run as it may be shown."""
    checks = tuple(replace(check, command=HIDDEN) if check.hidden else check for check in spec.contract.checks)
    contract, options = replace(spec.contract, checks=checks), veiled_options(spec.options)
    return replace(spec, notify=tuple(map(masked, spec.notify)), contract=contract, options=options)


def masked_event(event: Event) -> Event:
    """An event as it may be shown. The store keeps the whole address: the run needs it."""
    if isinstance(event, ContinuousStarted | SettingsChanged):
        return replace(event, spec=masked_spec(event.spec))
    if isinstance(event, BaselineTaken | IterationValidation):
        return replace(event, checks=tuple(map(_masked_result, event.checks)))
    return event


def _masked_result(result: CheckResult) -> CheckResult:
    return replace(result, command=HIDDEN, output_tail="", log="") if result.hidden else result

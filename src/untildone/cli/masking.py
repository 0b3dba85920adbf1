"""What is printed never holds the address of a notification channel in full: it is a password to that channel."""

from dataclasses import replace
from typing import Any

from untildone.core.events import ContinuousStarted, Event, SettingsChanged
from untildone.core.policy import RunSpec
from untildone.core.settings import Setting
from untildone.notify.webhook import masked


def masked_value(setting: Setting, value: Any) -> Any:
    """The value of a setting as it may be shown."""
    return tuple(map(masked, value)) if setting.name == "notify" else value


def masked_spec(spec: RunSpec) -> RunSpec:
    """A run as it may be shown."""
    return replace(spec, notify=tuple(map(masked, spec.notify)))


def masked_event(event: Event) -> Event:
    """An event as it may be shown. The store keeps the whole address: the run needs it."""
    if isinstance(event, ContinuousStarted | SettingsChanged):
        return replace(event, spec=masked_spec(event.spec))
    return event

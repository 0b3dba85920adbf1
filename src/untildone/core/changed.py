"""What a human changed about a run that goes on: by name, and by value where that tells no secret."""

from dataclasses import fields, is_dataclass
from typing import Any

from untildone.core import events as ev
from untildone.core.policy import Landing, Policy, Review, RunSpec
from untildone.core.printable import one_line

_VALUE = 60
_SHOWN = (Policy, Landing, Review)
"""Of these the values are told too. Others hold commands, which may be hidden or name a secret."""


def settings_changed(by: str, before: tuple[RunSpec, Policy], spec: RunSpec, policy: Policy) -> ev.SettingsChanged:
    """The event for going on with this instead."""
    changes = (*_differences(before[1], policy), *_differences(before[0], spec))
    return ev.SettingsChanged(by=by, policy=policy, spec=spec, changes=changes)


def _differences(old: Any, new: Any) -> tuple[str, ...]:
    found: list[str] = []
    for field in fields(old):
        was, now = getattr(old, field.name), getattr(new, field.name)
        if was == now:
            continue
        if is_dataclass(was) and type(was) is type(now):
            found += _differences(was, now)
        elif isinstance(old, _SHOWN) and isinstance(now, str | int | float | None):
            shown = "none" if now is None else f"{now:.10g}" if isinstance(now, float) else str(now)
            found.append(f"{field.name} = {one_line(shown, _VALUE)}")
        else:
            found.append(field.name)
    return tuple(found)

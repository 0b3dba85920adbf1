"""One setting: what a person can set, every way to set it, and how it is shown. The tables are in `settings`."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal

from untildone.core import units
from untildone.core.contract import CheckSpec, Contract
from untildone.core.dataclass import dataclass
from untildone.core.durations import format_duration
from untildone.core.policy import AgentOptions, Landing, Policy, Review, RunSpec, Tending

Home = Literal["policy", "options", "tending", "contract", "landing", "review", "spec", "cli"]
Group = Literal["limits", "done", "breaker", "faults", "agent", "git", "landing", "review", "commands", "output"]
Parser = Callable[[object], Any]
Bound = Callable[[Any, Any], bool]

HOMES: Mapping[str, type] = MappingProxyType(
    {
        "policy": Policy,
        "options": AgentOptions,
        "tending": Tending,
        "contract": Contract,
        "landing": Landing,
        "review": Review,
        "spec": RunSpec,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One thing a person can set, and every way to set it."""

    name: str
    """Its key in a settings file; upper-cased after UNTILDONE_ it is its environment variable."""
    home: Home
    field: str
    """Field of the dataclass it ends up in, or its own name."""
    group: Group
    parse: Parser
    kind: str
    """What is typed: the placeholder in the help."""
    default: object
    flags: tuple[str, ...] = ()
    off_flags: tuple[str, ...] = ()
    """Flags that switch it off; only for switches."""
    older_env: tuple[str, ...] = ()
    """Names of environment variables people know from elsewhere."""
    choices: tuple[str, ...] = ()
    alone: str = ""
    """What its flag means when no value follows; empty: a value must follow."""
    repeatable: bool = False
    adds: bool = False
    """What several places say holds together, instead of the first place alone."""
    untrusted: Bound | None = None
    """What a project file may set before the user trusts it: a value that this allows, given the value without the
    file. None: nothing. Only what makes a run smaller, or shows it in another way, is open."""
    in_files: bool = True
    help: str = ""
    """Only where no field says it, or where what is typed is not what the field holds."""

    @property
    def env(self) -> tuple[str, ...]:
        """Environment variables; the first that is set wins."""
        return (f"UNTILDONE_{self.name.upper()}", *self.older_env)


def tightens(value: float | None, without: float | None) -> bool:
    """Whether a limit is no higher than another; None is no limit at all."""
    return without is None or (value is not None and value <= without)


def shows_only(_value: object, _without: object) -> bool:
    """For a setting that changes only what is shown."""
    return True


def as_typed(setting: Setting, value: Any) -> str:
    """A value the way a person would type it; empty for nothing."""
    match value, setting.kind:
        case None | "" | (), _:
            return ""
        case bool(), _:
            return "on" if value else "off"
        case tuple(), _:
            return ", ".join(item.name if isinstance(item, CheckSpec) else str(item) for item in value)
        case float(), "DURATION":
            return format_duration(value)
        case int(), "SIZE":
            return units.size_text(value)
        case _:
            return f"{100 * value:.4g}%" if isinstance(value, float) and setting.kind == "PERCENT" else str(value)


def choice(*allowed: str) -> Parser:
    """A parser that takes one of these words."""

    def parse(raw: object) -> str:
        if raw not in allowed:
            raise ValueError(f"must be one of {', '.join(allowed)}, not {raw!r}")
        return str(raw)

    return parse


def setting(
    home: Home,
    group: Group,
    name: str,
    parse: Parser,
    kind: str,
    *flags: str,
    **more: Any,  # the rest of Setting's fields
) -> Setting:
    """A setting with the default its field has."""
    field = more.pop("field", name)
    default = more.pop("default", None)
    if home != "cli" and default is None:
        default = getattr(HOMES[home](goal="", cwd="", name="") if home == "spec" else HOMES[home](), field)
    return Setting(
        name=name,
        home=home,
        field=field,
        group=group,
        parse=parse,
        kind=kind,
        default=default,
        flags=flags,
        **more,
    )


def switch(home: Home, group: Group, name: str, on: tuple[str, ...], off: tuple[str, ...], **more: Any) -> Setting:
    """A setting that is on or off."""
    return setting(home, group, name, units.switch, "", *on, off_flags=off, **more)


def pick(home: Home, group: Group, name: str, flag: str, choices: tuple[str, ...], **more: Any) -> Setting:
    """A setting that is one of a few words."""
    return setting(home, group, name, choice(*choices), "|".join(choices), flag, choices=choices, **more)

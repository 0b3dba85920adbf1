"""From the table of settings to options of commands, grouped by theme in the help."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click

from untildone import config
from untildone.cli.documentation import meaning
from untildone.cli.streams import say
from untildone.core.settings import GROUPS, SETTINGS, Group, Setting, as_typed
from untildone.errors import UsageError

F = TypeVar("F", bound=Callable[..., Any])

RUN_GROUPS: tuple[Group, ...] = tuple(GROUPS)
CHANGEABLE = tuple(s for s in SETTINGS if s.group == "limits" and s.name != "unbounded")
"""What can be changed while a run goes on."""

RUN_MEANS = "RUN is a name or an id, as `untildone ls` shows them. Without it: the newest run of the folder."


class SettingOption(click.Option):
    """An option that knows its theme."""

    def __init__(self, *decls: Any, group: Group | None = None, **rest: Any) -> None:
        self.group = group
        super().__init__(*decls, **rest)


class ThemedCommand(click.Command):
    """A command whose help shows its options by theme."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Own options first, then the settings."""
        themes: dict[str, list[tuple[str, str]]] = {title: [] for title in ("Options", *GROUPS.values())}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            group = getattr(param, "group", None)
            if record is not None and isinstance(param, click.Option):
                themes[GROUPS[group] if group else "Options"].append(record)
        for title, records in themes.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 -- click's
        """Examples, as they are typed."""
        if self.epilog:
            formatter.write_paragraph()
            formatter.write(self.epilog)


def setting_options(settings: Iterable[Setting]) -> Callable[[F], F]:
    """Give a command one option for each setting that has a flag."""

    def decorate(command: F) -> F:
        for setting in reversed([s for s in settings if s.flags]):
            command = _option(setting)(command)
        return command

    return decorate


def place_options(command: F) -> F:
    """Give a command `--store` and `--cwd`."""
    kept = "Folder that holds the runs. [~/.local/state/untildone]"
    command = click.option("--store", metavar="DIR", help=kept)(command)
    return click.option("--cwd", metavar="DIR", help="For this folder instead of the current one.")(command)


def run_argument(command: F) -> F:
    """Give a command the run it is about: a name or an id, else the newest run of the folder."""
    command.__doc__ = f"{command.__doc__}\n\n{RUN_MEANS}"
    return click.argument("run", metavar="[RUN]", required=False)(command)


def settled(given: dict[str, Any], folder: Path, forwarded: tuple[str, ...] = ()) -> config.Resolved:
    """All settings for a command in a folder; says once what was read in a way that may surprise."""
    flags = given | {"extra_args": forwarded or None}
    resolved = config.resolve(
        flags, env=os.environ, project_file=config.project_file(folder), user_file=config.user_file(os.environ)
    )
    for notice in resolved.notices:
        say(notice)
    return resolved


def folder_of(cwd: str | None) -> Path:
    """The folder a command is about, as an absolute real path."""
    try:
        folder = config.expanded(cwd) if cwd else Path.cwd()
    except FileNotFoundError as gone:
        raise UsageError("the current folder does not exist any more: change to another one") from gone
    if not os.path.isdir(folder):  # noqa: PTH112 - pathlib raises for a name longer than any disk takes
        raise UsageError(f"{folder} is not a folder: give an existing one with --cwd")
    return folder.resolve()


def store_of(store: str | None) -> Path:
    """The folder that holds the runs."""
    return config.expanded(store).absolute() if store else config.state_dir(os.environ)


def _option(setting: Setting) -> Callable[[F], F]:
    about = meaning(setting) + (" Repeatable." if setting.repeatable else "")
    default = "" if setting.default is False else as_typed(setting, setting.default)
    return click.option(
        setting.name,
        *_declarations(setting),
        cls=SettingOption,
        group=setting.group,
        help=f"{about} [{default}]" if default else about,
        metavar=setting.kind or None,
        default=None,
        multiple=setting.repeatable,
        **({"type": click.Choice(setting.choices)} if setting.choices else {}),
        **({"is_flag": True, "type": bool} if not setting.kind else {}),
        **({"is_flag": False, "flag_value": setting.alone} if setting.alone else {}),
    )


def _declarations(setting: Setting) -> list[str]:
    if not setting.off_flags:
        return list(setting.flags)
    first, *others = setting.flags
    return [f"{first}/{setting.off_flags[0]}", *others]

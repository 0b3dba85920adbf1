"""From the table of settings to options of commands, grouped by theme in the help."""

import os
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import click

from untildone import config
from untildone.cli.documentation import meaning
from untildone.cli.streams import say
from untildone.core.printable import one_line
from untildone.core.settings import GROUPS, SETTINGS, Group, Setting, as_typed
from untildone.errors import UsageError

F = TypeVar("F", bound=Callable[..., Any])

RUN_GROUPS: tuple[Group, ...] = tuple(GROUPS)
CHANGEABLE = tuple(s for s in SETTINGS if s.group == "limits" and s.name != "unbounded")
"""What can be changed while a run goes on."""

RUN_MEANS = (
    "RUN is a name or an id, as `untildone ls` shows them. Without it: the run of this folder, also if it is in a "
    "worktree of this repository; a running one before the newest."
)


class SettingOption(click.Option):
    """An option that knows its theme, and the setting behind it if its value may be left out."""

    def __init__(self, *decls: Any, group: Group | None = None, alone: Setting | None = None, **rest: Any) -> None:
        self.group = group
        self.alone = alone
        super().__init__(*decls, **rest)


class OptionalValues:
    """Options whose value may be left out, in the words of one command."""

    def __init__(self, params: Iterable[click.Parameter]) -> None:
        options = [param for param in params if isinstance(param, SettingOption) and param.alone is not None]
        self._by_flag = {flag: option.alone for option in options for flag in option.opts}
        self._taken: list[str] = []
        self._freed: list[str] = []

    def sorted_out(self, args: Sequence[str]) -> list[str]:
        """The same words, with `--option=VALUE` where the word after `--option` is not for it."""
        words = list(args)
        ends = words.index("--") if "--" in words else len(words)
        for at, (flag, word) in enumerate(pairwise(words[:ends])):
            setting = self._by_flag.get(flag)
            if setting is None or word.startswith("-"):
                continue
            if _fits(setting, word):
                self._taken.append(f"{flag} took {word!r} for its {setting.kind}: put it before {flag}")
            else:
                self._freed.append(f"{flag} takes {setting.kind}, not {word!r}")
                words[at] = f"{flag}={setting.alone}"
        return words

    def explained(self, trouble: click.UsageError) -> Exception:
        """What to say where a word is missing that such an option took, or one too many that it did not take."""
        lacks = isinstance(trouble, click.MissingParameter)
        reason = next(iter(self._taken if lacks else self._freed), None)
        is_about_words = lacks or type(trouble) is click.UsageError
        return UsageError(reason) if reason and is_about_words else trouble


def _fits(setting: Setting, word: str) -> bool:
    try:
        setting.parse(word)
    except ValueError:
        return False
    return True


class ThemedCommand(click.Command):
    """A command whose help shows its options by theme, and whose goal no option swallows."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Give an option whose value may be left out the next word only if it can be that value."""
        _refuse_single_dashes(self, args)
        words = OptionalValues(self.params)
        sorted_out = words.sorted_out(args)
        try:
            return super().parse_args(ctx, list(sorted_out))
        except click.UsageError as trouble:
            reason = words.explained(trouble)
            if reason is trouble and type(trouble) is click.UsageError:
                reason = _unquoted(self, ctx, sorted_out) or trouble
            raise reason from trouble

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


def _refuse_single_dashes(command: click.Command, args: Sequence[str]) -> None:
    """`-max-cost 5` would be read as `-m ax-cost`, and `-prompt x` as the goal `rompt`."""
    known = {flag for param in command.params for flag in (*param.opts, *param.secondary_opts) if flag.startswith("--")}
    for word in args:
        long = f"-{word.partition('=')[0]}"
        if long in known:
            raise UsageError(f"{word}: a long option begins with two dashes: write -{word}")


def _unquoted(command: click.Command, ctx: click.Context, args: Sequence[str]) -> UsageError | None:
    """What to type instead where a goal of several words stands without quotes; None where that is not the problem."""
    if not any(param.name == "goal" for param in command.params):
        return None
    # Each word is replaced by its place, so that the parser says which words are the goal.
    places = [word if word.startswith("-") else f"={at}" for at, word in enumerate(args)]
    found, left, _ = command.make_parser(ctx).parse_args(places)
    goal = [word.removeprefix("=") for word in (found.get("goal"), *left) if isinstance(word, str)]
    if len(goal) < 2 or not all(word.isdigit() for word in goal):  # noqa: PLR2004 - one word needs no quotes
        return None
    taken = {int(word) for word in goal}
    text = " ".join(args[at] for at in sorted(taken))
    rest = [word for at, word in enumerate(args) if at not in taken]
    return UsageError(f"put the goal in quotes: {shlex.join(['untildone', 'run', text, *rest])}")


def setting_options(settings: Iterable[Setting]) -> Callable[[F], F]:
    """Give a command one option for each setting that has a flag."""

    def decorate(command: F) -> F:
        for setting in reversed([s for s in settings if s.flags]):
            command = _option(setting)(command)
        return command

    return decorate


def place_options(command: F) -> F:
    """Give a command `--store` and `--cwd`. It is about runs that are there: a store that is not would hide a slip."""
    return _places(command, _existing_store)


def new_place_options(command: F) -> F:
    """The same for a command that may be the first to write there."""
    return _places(command, None)


def _existing_store(_: click.Context, __: click.Parameter, given: str | None) -> str | None:
    if given and not os.path.isdir(config.expanded(given)):  # noqa: PTH112 - pathlib raises for a name that is too long
        usual = config.state_dir(os.environ)
        raise UsageError(
            f"--store {one_line(given, 200)} does not exist: give the folder of the runs, or leave it out for {usual}"
        )
    return given


def _places(command: F, check: Callable[[click.Context, click.Parameter, str | None], str | None] | None) -> F:
    kept = "Folder that holds the runs. [~/.local/state/untildone]"
    command = click.option("--store", metavar="DIR", help=kept, callback=check)(command)
    return click.option("--cwd", metavar="DIR", help="For this folder instead of the current one.")(command)


def run_argument(command: F) -> F:
    """Give a command the run it is about: a name or an id, else the run of the folder."""
    command.__doc__ = f"{command.__doc__}\n\n{RUN_MEANS}"
    return click.argument("run", metavar="[RUN]", required=False)(command)


def settled(
    given: dict[str, Any],
    folder: Path,
    forwarded: tuple[str, ...] = (),
    usual: Mapping[str, object] | None = None,
) -> config.Resolved:
    """All settings for a command in a folder; says once what was read in a way that may surprise.

    `usual`: the defaults of this command, where they are not those of the table.
    """
    flags = given | {"extra_args": forwarded or None}
    resolved = config.resolve(
        flags,
        env=os.environ,
        project_file=config.project_file(folder),
        user_file=config.user_file(os.environ),
        usual=usual,
    )
    for notice in resolved.notices:
        say(notice)
    return resolved


def folder_of(cwd: str | None) -> Path:
    """The folder a command is about, as an absolute real path."""
    try:
        folder = config.expanded(cwd) if cwd else Path.cwd()
    except FileNotFoundError as gone:
        raise UsageError("the current folder no longer exists: change to another one") from gone
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
        alone=setting if setting.alone else None,
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

"""`plugin`: the loop inside Claude Code, by its settings files; and whether it would work here."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import wraps
from pathlib import Path
from typing import Any

import click

from untildone import __version__
from untildone.cli.guarding import human_only
from untildone.cli.options import folder_of
from untildone.config import state_dir
from untildone.core.dataclass import dataclass
from untildone.core.hook_settings import cap_of, is_raised, our_commands, plugin_of, read_settings
from untildone.errors import ConfigError, UsageError
from untildone.hook import installing

_OLDEST = (3, 11)
_PATIENCE = 10.0
_PLACES = ("user", "project", "local")
_ASK = "import sys; print(*sys.version_info[:2])"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One settings file, and what of ours is in it."""

    name: str
    path: str
    installed: bool = False
    current: bool = False
    """The hooks in it are the ones of this version, at this place."""
    cap: str | None = None
    hooks_off: bool = False
    plugin: bool | None = None
    """Whether it switches the plugin on or off."""
    trouble: str = ""


@click.group()
def plugin() -> None:
    """The loop inside Claude Code, by its settings files.

    Instead of this, Claude Code can install it as a plugin: `claude plugin marketplace add` with the repository of
    untildone, then `claude plugin install untildone@untildone`. One of the two is enough.
    """


def _place_options(command: Callable[..., Any]) -> Callable[..., Any]:
    command = click.option("--cwd", metavar="DIR", help="For this folder instead of the current one.")(command)
    for name, about in (
        ("local", "In .claude/settings.local.json of this folder: yours alone."),
        ("project", "In .claude/settings.json of this folder, which others may share."),
        ("user", "In your own settings, for all folders. [default]"),
    ):
        command = click.option(f"--{name}", f"in_{name}", is_flag=True, help=about)(command)

    @wraps(command)
    def placed(cwd: str | None, **given: bool) -> Any:
        wanted = [name for name in _PLACES if given[f"in_{name}"]]
        if len(wanted) > 1:
            raise UsageError(f"--{wanted[0]} and --{wanted[1]} are two places: give one of them")
        return command(place=wanted[0] if wanted else "user", cwd=cwd)

    return placed


@plugin.command()
@_place_options
@human_only
def install(place: str, cwd: str | None) -> None:
    """Put hooks and commands into the settings, beside what is there, and raise the cap of stops in a row.

    Where Claude Code has untildone as a plugin, only the cap: the plugin brings the rest, and cannot raise that.
    """
    path = settings_path(place, cwd)
    if _as_plugin() and _is_switched_on(place, cwd):
        changed = installing.install(path, state_dir(os.environ), only_cap=True)
        click.echo(f"the cap of stops in a row {'is raised now' if changed else 'was raised already'} in {path}")
        click.echo("Nothing else was needed: Claude Code has untildone as a plugin")
        return
    changed = installing.install(path, state_dir(os.environ))
    click.echo(f"{'installed in' if changed else 'is installed already, as it should be, in'} {path}")
    if changed:
        click.echo("It works in sessions that begin from now on: /untildone:loop GOAL")


@plugin.command()
@_place_options
@human_only
def uninstall(place: str, cwd: str | None) -> None:
    """Take out what `install` put in; the rest of the settings stays as it is."""
    path = settings_path(place, cwd)
    found = installing.uninstall(path, state_dir(os.environ))
    click.echo(f"{'removed from' if found else 'there is nothing of untildone in'} {path}")


@plugin.command()
@click.option("--cwd", metavar="DIR", help="For this folder instead of the current one.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def status(cwd: str | None, *, as_json: bool) -> int:
    """Say where it is installed, and whether it would work in this folder."""
    places = [look(name, settings_path(name, cwd)) for name in _PLACES]
    as_plugin, python = _as_plugin(), python_found()
    works = not list(_obstacles(places, as_plugin, python))
    if as_json:
        said = {
            "version": __version__,
            "works": works,
            "settings": [asdict(place) for place in places],
            "plugin": as_plugin,
            "python3": python,
            "obstacles": list(_obstacles(places, as_plugin, python)),
        }
        click.echo(json.dumps(said, ensure_ascii=False))
        return 0 if works else 1
    for line in _lines(places, as_plugin, python):
        click.echo(line)
    return 0 if works else 1


def settings_path(place: str, cwd: str | None) -> Path:
    """The settings file of a place."""
    if place == "user":
        return _claude_folder() / "settings.json"
    return folder_of(cwd) / ".claude" / ("settings.json" if place == "project" else "settings.local.json")


def look(name: str, path: Path) -> Place:
    """What of ours is in a settings file."""
    try:
        text = installing.read_text_of(path)
        settings = read_settings(text or "", str(path))
    except ConfigError as trouble:
        return Place(name=name, path=str(path), trouble=str(trouble))
    ours = our_commands(settings)
    wanted = {hook.event: [hook.command] for hook in installing.hooks_here()}
    return Place(
        name=name,
        path=str(path),
        installed=bool(ours),
        current=ours == wanted,
        cap=cap_of(settings),
        hooks_off=settings.get("disableAllHooks") is True,
        plugin=plugin_of(settings),
    )


def python_found() -> str:
    """The version of the `python3` that hooks would run; empty where there is none."""
    program = shutil.which("python3")
    if program is None:
        return ""
    try:
        done = subprocess.run(  # noqa: TID251, S603 asks one program for its version
            [program, "-I", "-S", "-c", _ASK], capture_output=True, text=True, timeout=_PATIENCE, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return ".".join(done.stdout.split())


def _as_plugin() -> str:
    """The version Claude Code has installed as a plugin; empty where it has none."""
    try:
        known = json.loads((_claude_folder() / "plugins" / "installed_plugins.json").read_text("utf-8"))["plugins"]
        found = [value for name, value in known.items() if name.partition("@")[0] == "untildone"]
        first = found[0][0] if isinstance(found[0], list) else found[0]
        return str(first["version"])
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError):
        return ""


def _is_switched_on(place: str, cwd: str | None) -> bool:
    """Whether the settings up to this place switch the plugin on."""
    places = [look(name, settings_path(name, cwd)) for name in _PLACES[: _PLACES.index(place) + 1]]
    return next((found.plugin for found in reversed(places) if found.plugin is not None), False)


def _obstacles(places: list[Place], as_plugin: str, python: str) -> Iterator[str]:
    """Why it would not work here."""
    if not as_plugin and not any(place.installed for place in places):
        yield "not installed: `untildone plugin install` does it"
    for place in places:
        if place.installed and not place.current:
            yield f"{place.path} holds the hooks of another version or place: install it again"
        if place.hooks_off:
            yield f"all hooks are off: `disableAllHooks` in {place.path}"
        if place.trouble:
            yield place.trouble
    if not python:
        yield "python3 is missing: hooks need it"
    elif tuple(map(int, python.split("."))) < _OLDEST:
        yield f"python3 is {python} and has to be 3.11 or newer"


def _lines(places: list[Place], as_plugin: str, python: str) -> Iterator[str]:
    yield f"untildone {__version__}"
    for place in places:
        if place.installed:
            yield f"installed in {place.path}"
    if as_plugin:
        yield f"installed as a plugin of Claude Code, version {as_plugin}"
    if as_plugin and any(place.installed for place in places):
        yield "installed in both ways, which does no harm: `untildone plugin install` leaves only the cap in settings"
    if python:
        yield f"python3 {python}"
    cap = next((place.cap for place in reversed(places) if place.cap is not None), None)
    if is_raised(cap):
        yield "the cap of stops in a row is raised"
    else:
        yield f"the cap of stops in a row is {cap or 8}: so many without a tool call end a loop"
    obstacles = list(_obstacles(places, as_plugin, python))
    yield from obstacles
    if not obstacles:
        yield "works in new sessions of this folder"


def _claude_folder() -> Path:
    given = os.environ.get("CLAUDE_CONFIG_DIR")
    if given:
        return Path(given).absolute()
    try:
        return Path(os.environ.get("HOME") or Path.home()) / ".claude"
    except RuntimeError as homeless:
        raise UsageError("there is no home folder: set HOME or CLAUDE_CONFIG_DIR") from homeless

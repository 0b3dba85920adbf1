"""`doctor`, `login`, `config`, `completion`: before the first run."""

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from untildone import config as settings_of
from untildone.cli.guarding import operator_only
from untildone.cli.options import folder_of, store_of
from untildone.cli.streams import hanging, put, say, screen_width
from untildone.cli.tables import aligned
from untildone.core.printable import one_line
from untildone.core.proposal import CI, FOLDERS, READ, Repository, settings_text
from untildone.core.settings import GROUPS, PROFILE_NAMES, SETTINGS, Setting, as_typed
from untildone.errors import ConfigError, UsageError
from untildone.git.plain_file import content
from untildone.git.repository import project_root

_VALUE_WIDTH = 40
_MOST_READ = 256 * 1024
"""Bytes of a file of the repository that are looked at."""
_MOST_WORKFLOWS = 20


@click.group(invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--profile", type=click.Choice(PROFILE_NAMES), help="As if this profile had been given.")
@click.option("--cwd", metavar="DIR", help="For this folder instead of the current one.")
@click.pass_context
def config(ctx: click.Context, *, as_json: bool, profile: str | None, cwd: str | None) -> None:
    """Every setting, its value, and where that comes from."""
    ctx.obj = cwd
    if ctx.invoked_subcommand is not None:
        return
    resolved = settings_of.resolve(
        {"profile": profile},
        env=os.environ,
        project_file=settings_of.project_file(folder_of(cwd)),
        user_file=settings_of.user_file(os.environ),
    )
    for notice in resolved.notices:
        say(notice)
    if as_json:
        table = {s.name: {"value": _value(s, resolved), "origin": resolved.origin(s.name)} for s in SETTINGS}
        click.echo(json.dumps(table, ensure_ascii=False, default=asdict))
        return
    for group, title in GROUPS.items():
        click.echo(f"\n{title}")
        rows = [
            (f"  {s.name}", _shown(s, _value(s, resolved)), resolved.origin(s.name))
            for s in SETTINGS
            if s.group == group
        ]
        click.echo(aligned(rows))


@config.command()
@click.pass_obj
@operator_only
def trust(cwd: str | None) -> None:
    """Allow the project file, as it is now, to set commands and rights."""
    folder = folder_of(cwd)
    file = settings_of.project_file(folder)
    if file is None:
        raise UsageError(f"there is no {settings_of.PROJECT_FILE} in {folder} or its repository: nothing to trust")
    settings_of.trust(file, settings_of.state_dir(os.environ))
    click.echo(f"{file} is trusted until it changes")


@config.command()
@click.option("--yes", is_flag=True, help="Write it without asking.")
@click.option("--force", is_flag=True, help="Replace a settings file that is there.")
@click.pass_obj
@operator_only
def init(cwd: str | None, *, yes: bool, force: bool) -> None:
    """Propose a settings file for this repository: checks, setup, limits. It runs nothing, and asks before it writes.

    Without a terminal and without --yes it prints the file and writes nothing.
    """
    root = project_root(folder_of(cwd))
    text = settings_text(_looked_at(root))
    asks = sys.stdin.isatty() and sys.stdout.isatty()
    if not yes and not asks:
        put(text.removesuffix("\n"))
        return
    there = settings_of.project_file(root)
    if there is not None and not force:
        raise UsageError(f"{there} is there already: edit it, or replace it with --force")
    put(text)
    file = root / settings_of.PROJECT_FILE
    if not yes and not click.confirm(f"Write this to {file}, and trust it?"):
        click.echo("nothing was written")
        return
    _write(file, text)
    settings_of.trust(file, settings_of.state_dir(os.environ))
    put(f"{file} is written, and trusted until it changes. Commit it before a run: uncommitted files stop it.")


def _looked_at(root: Path) -> Repository:
    """What lies at the top of a repository. Only plain files are read, and only so much of them."""
    files = {name: text for name in READ if (text := _text(root / name)) is not None}
    workflows = sorted((root / ".github" / "workflows").glob("*.y*ml"))[:_MOST_WORKFLOWS]
    ci = "\n".join(text for path in (*(root / name for name in CI), *workflows) if (text := _text(path)))
    folders = frozenset(name for name in FOLDERS if (root / name).is_dir() and not (root / name).is_symlink())
    installed = (path for name in folders for path in (root / name).glob("lib/python3*/site-packages/__editable__*"))
    return Repository(files=files, folders=folders, ci=ci, editable=next(installed, None) is not None)


def _text(path: Path) -> str | None:
    """The beginning of a plain file; None where there is none."""
    try:
        return content(path, _MOST_READ).decode("utf-8", "replace")
    except OSError:
        return None


def _write(file: Path, text: str) -> None:
    """Put the whole file in its place, or nothing."""
    made = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with made.open("x", encoding="utf-8") as new:
            new.write(text)
        made.replace(file)
    except OSError as refused:
        made.unlink(missing_ok=True)
        raise ConfigError(f"{file} cannot be written: {refused.strerror}") from refused


def _value(setting: Setting, resolved: settings_of.Resolved) -> Any:
    # Only here: loading the channels would make every other command of this file slower.
    from untildone.cli.masking import masked_value

    return masked_value(setting, resolved.value(setting.name))


def _shown(setting: Setting, value: Any) -> str:
    return one_line(as_typed(setting, value), _VALUE_WIDTH) or "-"


@click.command()
@click.option("--claude", metavar="PROGRAM", help="The claude program to look at.")
@click.option("--cwd", metavar="DIR", help="For this folder instead of the current one.")
@click.option("--store", metavar="DIR", help="Folder that holds the runs.")
@click.option("--until", metavar="HH:MM", help="Will the login live until then? As far as Claude Code tells.")
@click.option("--online", is_flag=True, help="Ask Claude one tiny thing (a fraction of a cent); message the channels.")
@click.option("--notify", metavar="URL", multiple=True, help="This channel instead of those in the settings.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def doctor(cwd: str | None, store: str | None, *, as_json: bool, **asked: Any) -> int:
    """Check before a night that everything a run needs is here."""
    from untildone.cli.checkup import Questions, check_up
    from untildone.core.checkup import is_fit

    findings = check_up(Questions(folder=folder_of(cwd), store=store_of(store), **asked))
    if as_json:
        click.echo(json.dumps([asdict(finding) for finding in findings], ensure_ascii=False))
    else:
        for finding in findings:
            width = screen_width()
            click.echo(hanging(f"{finding.status:<8} {finding.name:<12} ", one_line(finding.detail), width))
            if finding.remedy:
                click.echo(hanging(" " * 22, one_line(finding.remedy), width))
    return 0 if is_fit(findings) else 1


@click.command()
@click.option("--claude", metavar="PROGRAM", help="The claude program. [the one on PATH, else the bundled one]")
@click.option("--config-dir", metavar="DIR", help="Claude Code's own folder, if it is not the usual one.")
@click.option("--console", is_flag=True, help="An account that pays by use instead of a subscription.")
@operator_only
def login(claude: str | None, config_dir: str | None, *, console: bool) -> int:
    """Log Claude Code in, in this terminal. The login stays with Claude Code: nothing here reads it."""
    from untildone.agents.argv import find_claude
    from untildone.agents.login import log_in
    from untildone.cli.driving import foreground

    given = {"claude": claude, "config_dir": config_dir}
    found = settings_of.resolve(given, env=os.environ, user_file=settings_of.user_file(os.environ))
    program, place = find_claude(found.value("claude")), found.value("config_dir")
    env = dict(os.environ) | ({"CLAUDE_CONFIG_DIR": str(settings_of.expanded(place).absolute())} if place else {})
    return 0 if foreground(log_in(program, env, console=console)) else 1


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script for a shell: eval "$(untildone completion bash)"."""
    from click.shell_completion import get_completion_class

    from untildone.cli.app import cli

    make = get_completion_class(shell)
    if make is None:
        raise UsageError(f"there is no completion for {shell}")
    # The script is filled in here because click's own way asks the shell for its version first.
    complete = make(cli, {}, "untildone", "_UNTILDONE_COMPLETE")
    click.echo(complete.source_template % complete.source_vars())

"""`doctor`, `config`, `completion`: before the first run."""

import json
import os
from dataclasses import asdict
from typing import Any

import click

from untildone import config as settings_of
from untildone.cli.guarding import operator_only
from untildone.cli.options import folder_of, store_of
from untildone.cli.streams import hanging, say, screen_width
from untildone.cli.tables import aligned
from untildone.core.printable import one_line
from untildone.core.settings import GROUPS, PROFILE_NAMES, SETTINGS, Setting, as_typed
from untildone.errors import UsageError

_VALUE_WIDTH = 40


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

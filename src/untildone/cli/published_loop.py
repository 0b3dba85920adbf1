"""`loop iterate` and `loop tasks`: `run` and `tasks` under the names, and with the bound, that clawker gave them."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import click

from untildone.cli.options import ThemedCommand
from untildone.cli.running import begin, begin_tasks, only_goal, run_options
from untildone.core.settings import SETTINGS

USUAL: Mapping[str, object] = MappingProxyType({"max_iterations": 50})
"""What bounds them if nothing else is said: the other two commands ask for a limit."""
# There, `--agent` picks a run, and these two take none: a new run gets its name by itself, or with `--name`.
_SETTINGS = tuple(setting for setting in SETTINGS if setting.name != "agent")
ITERATE_EXAMPLES = """\
Examples:
  untildone loop iterate --prompt "Make the tests pass" --check "pytest -q"
  untildone loop iterate --prompt-file goal.md --max-loops 20 --worktree fix-tests
"""
TASKS_EXAMPLES = """\
Examples:
  untildone loop tasks --tasks TODO.md
  untildone loop tasks --tasks TODO.md --max-loops 30 --task-prompt "Do the first open task of: %s"
"""


@click.command(cls=ThemedCommand, epilog=ITERATE_EXAMPLES)
@click.option("-p", "--prompt", metavar="TEXT", help="The goal.")
@click.option("--prompt-file", metavar="FILE", help="A file with the goal; - reads standard input.")
@run_options(_SETTINGS)
def iterate(forwarded: tuple[str, ...], prompt: str | None, prompt_file: str | None, **rest: Any) -> int:
    """Pursue a goal outside of a session: `untildone run`, with at most 50 iterations unless told otherwise."""
    goal = only_goal([] if prompt is None else [prompt], prompt_file, "-p/--prompt")
    return begin(forwarded, rest, goal=goal, usual=USUAL)


@click.command(cls=ThemedCommand, epilog=TASKS_EXAMPLES)
@click.option("--tasks", "file", metavar="FILE", required=True, help="A Markdown list of checkboxes.")
@click.option("--task-prompt-file", metavar="FILE", help="A file with the task prompt; the first %s becomes the tasks.")
@run_options(_SETTINGS)
def tasks(forwarded: tuple[str, ...], file: str, **rest: Any) -> int:
    """Work through a file of checkboxes outside of a session: `untildone tasks`, with the same 50 iterations."""
    return begin_tasks(forwarded, rest, file, USUAL)

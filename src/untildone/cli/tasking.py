"""`task`: the tasks of a project. What is typed is read by the part that also works without this package."""

import os
import time

import click


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False, "help_option_names": []}
)
@click.argument("words", metavar="COMMAND [ARGS]...", nargs=-1, type=click.UNPROCESSED)
def task(words: tuple[str, ...]) -> int:
    """The tasks of a project: add, plan, start, done, fail, ls."""
    from untildone.core.printable import printable
    from untildone.hook.task_command import run_task

    try:
        said = run_task(words or ("--help",), os.environ, time.time())  # noqa: TID251 -- the edge: one moment, written down
        click.echo(printable(said, lines=True))
    except SystemExit as shown:  # the help was printed
        return int(shown.code or 0)
    return 0

"""`ask`: a question for the human, from an agent in a loop that does not wait for the answer."""

import os
import time
from pathlib import Path

import click

from untildone.config import state_dir
from untildone.hook.asking import ask as ask_human
from untildone.hook.asking import open_questions
from untildone.hook.task_command import project_above


@click.command()
@click.argument("question", nargs=-1)
def ask(question: tuple[str, ...]) -> None:
    """Note a QUESTION of the loop in this folder for the human, and go on; without one, show what was asked."""
    home, project = str(state_dir(os.environ)), project_above(os.environ.get("CLAUDE_PROJECT_DIR") or str(Path.cwd()))
    if not question:
        click.echo(open_questions(home, project))
        return
    now = time.time()  # noqa: TID251 the edge: one moment, written down
    click.echo(ask_human(home, project, " ".join(question), now, by="agent"))

"""argv in, exit code out: the list of commands, and the one place where errors become lines."""

import errno
import gc
import importlib
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from untildone import __version__
from untildone.cli import streams
from untildone.errors import UntildoneError, UsageError

COMMANDS = {
    "Work": {
        "run": ("running", "Pursue a goal until it is reached or a limit is."),
        "tasks": ("running", "Work through a Markdown file of checkboxes."),
        "task": ("tasking", "The tasks of a project, for people and agents: add, start, done, fail, ls."),
        "resume": ("steering", "Continue a run that stopped, or end a pause."),
        "attach": ("attaching", "Watch a run that works in the background."),
        "ask": ("asking", "Leave a question for the human, and go on: for agents in a loop."),
        "rehearse": ("rehearsing", "Watch a whole run on a scripted model: no key, no cost."),
    },
    "Inside Claude Code": {
        "loop": ("looping", "Loops in interactive sessions: begin, look, end; clawker's commands."),
    },
    "Look": {
        "status": ("looking", "The state of a run: what it does, what it cost, what comes next."),
        "log": ("looking", "What happened, line by line."),
        "ls": ("looking", "All runs."),
        "brief": ("looking", "The report of a run, as Markdown."),
        "replay": ("looking", "What other limits would have done."),
    },
    "Steer": {
        "stop": ("steering", "Stop a run; it can be resumed."),
        "pause": ("steering", "Pause a run."),
        "message": ("steering", "Tell the agent something."),
        "skip-wait": ("steering", "Do not wait for a limit any longer: try now."),
        "limits": ("steering", "Show or change the limits of a run, also while it works."),
        "reset": ("steering", "Close the breaker; clear streaks or the session."),
        "accept": ("delivering", "Accept the tests that a run changed, where they are disputed."),
        "waive": ("delivering", "Let guarded files of a run change."),
    },
    "Deliver": {
        "land": ("delivering", "Bring finished work to its base; try a failed landing again."),
        "rewind": ("delivering", "Put the tree back to where it was after an iteration."),
        "fork": ("delivering", "Start a new run from an earlier iteration, in a worktree."),
        "worktrees": ("worktrees", "List the worktrees of runs; remove those that may go."),
    },
    "Serve": {
        "serve": ("serving", "See and steer every run in a browser; take the events of workers elsewhere."),
        "token": ("tokens", "Who may speak to the server: make, list, rotate and revoke tokens."),
        "worker": ("working", "Work in a sandbox, configured by the environment, and report to a server."),
    },
    "Set up": {
        "doctor": ("setup", "Check that everything needed is here."),
        "autostart": ("autostart", "Resume interrupted runs after a reboot."),
        "plugin": ("plugging", "The loop inside Claude Code: install it, see whether it works."),
        "image": ("image", "The image that agents in containers work in: build it."),
        "login": ("setup", "Log Claude Code in, in this terminal."),
        "config": ("setup", "Every setting, and where its value comes from."),
        "notify": ("notifying", "Try whether messages about runs arrive."),
        "completion": ("setup", "Completion for bash, zsh or fish."),
    },
}

HIDDEN = {"detached": ("detaching", "Drive the run that comes in on standard input.")}
"""What the program says to itself."""

EXAMPLES = """\
Examples:
  untildone rehearse
  untildone run "Make the tests pass" --check "pytest -q" -m 10 --max-cost 5
  untildone run --prompt-file goal.md --max-duration 2h -- --verbose
  untildone tasks TODO.md --deadline 07:30
  untildone status

`untildone COMMAND --help` says more about each of them.
"""

INTERRUPTED = 128 + signal.SIGINT
_UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
_FORWARDING = (["run"], ["tasks"], ["loop", "iterate"], ["loop", "tasks"])


class Commands(click.Group):
    """The commands, each loaded only when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 -- click's signature
        """All names, in the order of the help."""
        return [name for part in COMMANDS.values() for name in part]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 -- click's signature
        """Import the command's file."""
        for part in (*COMMANDS.values(), HIDDEN):
            if cmd_name in part:
                module = importlib.import_module(f"untildone.cli.{part[cmd_name][0]}")
                _collect_garbage_again()
                command: click.Command = getattr(module, cmd_name.replace("-", "_"))
                return command
        return None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Name the nearest command when there is none of that name."""
        if args and args[0] not in (*self.list_commands(ctx), *HIDDEN) and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], self.list_commands(ctx), n=1)
            hint = f"did you mean `untildone {near[0]}`?" if near else "`untildone --help` lists them"
            raise UsageError(f"no command {args[0]!r}: {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 -- click's
        """Grouped by what people want to do."""
        for title, part in COMMANDS.items():
            with formatter.section(title):
                formatter.write_dl([(name, about) for name, (_, about) in part.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 -- click's
        """Examples, as they are typed."""
        formatter.write_paragraph()
        formatter.write(EXAMPLES)


def _collect_garbage_again() -> None:
    """The start is over: from here on garbage is made, which is no part of what was imported."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


@click.group(
    cls=Commands,
    no_args_is_help=False,
    invoke_without_command=True,
    context_settings={"max_content_width": 100, "help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="untildone", message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Runs Claude Code until the work is really done, and can prove it."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def entry(argv: Sequence[str]) -> int:
    """Run a command; whatever happens, the answer is an exit code and at most one line of error."""
    streams.provide()
    code = _answer(argv)
    streams.settle()
    return code


def _answer(argv: Sequence[str]) -> int:
    arguments, forwarded = split_forwarded(argv)
    try:
        code = cli.main(arguments, prog_name="untildone", standalone_mode=False, obj=forwarded)
    except UntildoneError as trouble:
        return _fail(str(trouble), trouble.exit_code)
    except click.ClickException as trouble:
        return _fail(_usage_line(trouble), UsageError.exit_code)
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except Exception as bug:  # noqa: BLE001 -- the outermost boundary: a line for the person, the rest into a file
        if isinstance(bug, OSError) and bug.errno in _UNWRITABLE:
            return _fail(f"the output cannot be written: {bug.strerror}", 1)
        return _fail(_crash_line(bug), 1)
    return code if isinstance(code, int) else 0


def _usage_line(trouble: click.ClickException) -> str:
    """What was typed wrong, and for an unknown option the one that was probably meant."""
    if not isinstance(trouble, click.NoSuchOption):
        return trouble.format_message()
    from untildone.core.near_names import nearest

    written, near = trouble.option_name, trouble.possibilities or ()
    meant = nearest(written, near) or next(iter(near), None)
    command = trouble.ctx.command_path if trouble.ctx else "untildone"
    return f"no option {written}: " + (f"did you mean {meant}?" if meant else f"`{command} --help` lists them")


def split_forwarded(argv: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """What is meant for us, and what everything after `--` forwards to the agent."""
    words = list(argv)
    if "--" in words and (words[:1] in _FORWARDING or words[:2] in _FORWARDING):
        at = words.index("--")
        return words[:at], tuple(words[at + 1 :])
    return words, ()


def _fail(line: str, code: int) -> int:
    streams.say(line)
    return code


def _crash_line(bug: Exception) -> str:
    import traceback

    from untildone.config import state_dir
    from untildone.store.leftovers import clear_crash_logs

    folder = state_dir(os.environ)
    where: Any = Path(folder) / f"crash-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        clear_crash_logs(folder)
        where.write_text("".join(traceback.format_exception(bug)), encoding="utf-8", errors="backslashreplace")
    except OSError as unwritable:
        where = f"nowhere, {unwritable.strerror}"
    return f"this is a bug in untildone: {type(bug).__name__}: {bug} (details: {where})"

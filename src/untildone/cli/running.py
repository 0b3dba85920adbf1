"""`run` and `tasks`: a goal, limits, and go."""

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from untildone import config, wiring
from untildone.cli.chaining import drive_chain, newest_of_chain, next_job
from untildone.cli.driving import Job, Output, foreground, opened
from untildone.cli.guarding import operator_only
from untildone.cli.options import ThemedCommand, folder_of, setting_options, settled, store_of
from untildone.cli.own_tree import in_own_tree
from untildone.cli.preview import preview_text
from untildone.cli.streams import say
from untildone.cli.worktrees import list_and_leave
from untildone.core.chain import has_next
from untildone.core.changed import settings_changed
from untildone.core.coherence import remarks
from untildone.core.dataclass import dataclass
from untildone.core.durations import format_duration
from untildone.core.elsewhere import refuse_elsewhere
from untildone.core.events import Event, ResetRequested, ResumeRequested
from untildone.core.figures import count
from untildone.core.limits import limit_of
from untildone.core.policy import Policy, RunSpec
from untildone.core.printable import one_line
from untildone.core.restarted import undone_orders
from untildone.core.settings import SETTINGS, Setting
from untildone.core.state import LoopState
from untildone.engine.journal import load_state
from untildone.errors import UsageError
from untildone.ports import EventLog, RunRow
from untildone.witness.reading import read_text_file

RUN_EXAMPLES = """\
Examples:
  untildone run "Make the tests pass" --check "pytest -q" -m 10 --max-cost 5
  untildone run -p "Port the parser to Rust" --max-duration 8h --deadline 07:30
  untildone run --prompt-file goal.md -m 20 --cwd ../shop -- --effort high
  untildone run --prompt-file api.md --then docs.md --deadline 07:30 --detach

Everything after -- goes to claude as it is.
Durations: 90s, 45m, 1h30m. As a limit, 0 means none.
"""
TASKS_EXAMPLES = """\
Examples:
  untildone tasks TODO.md --max-cost 10
  untildone tasks TODO.md -m 30 --task-prompt "Do the first open task of: %s"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What was typed beside settings."""

    goal: str
    task_file: str | None = None
    name: str | None = None
    new: bool = False
    reset_circuit: bool = False
    dry_run: bool = False
    detach: bool = False
    cwd: str | None = None


def run_options(settings: Iterable[Setting] = SETTINGS) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command that starts a run these settings, and what every such command has."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in (
            operator_only,
            click.pass_obj,
            setting_options(settings),
            click.option("--format", "shape", metavar="TEXT", help="Print the result like '{name}: {exit_reason}'."),
            click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object, nothing else."),
            click.option("--detach", is_flag=True, help="Work in the background, whatever becomes of this terminal."),
            click.option("--dry-run", is_flag=True, help="Show what would be asked and run; start nothing."),
            click.option("--reset-circuit", is_flag=True, help="Close the breaker of the run that is resumed."),
            click.option("--new", is_flag=True, help="Start anew instead of resuming a run of the same name."),
            click.option(
                "--list-worktrees",
                is_flag=True,
                is_eager=True,
                expose_value=False,
                callback=list_and_leave,
                help="The same as `untildone worktrees ls`.",
            ),
            click.option("--name", help="A stable name for the run. Default: from folder and goal."),
            click.option("--cwd", metavar="DIR", help="Work in this folder instead of the current one."),
        ):
            command = option(command)
        return command

    return decorate


@click.command(cls=ThemedCommand, epilog=RUN_EXAMPLES)
@click.argument("goal", required=False)
@click.option("-p", "--prompt", help="The goal, as an option.")
@click.option("--prompt-file", metavar="FILE", help="A file with the goal; - reads standard input.")
@run_options()
def run(forwarded: tuple[str, ...], goal: str | None, prompt: str | None, prompt_file: str | None, **rest: Any) -> int:
    """Pursue GOAL until it is reached or a limit is."""
    given = [text for text in (goal, prompt) if text is not None]
    if not given and prompt_file is None and rest["worktree"] not in {None, ":"}:
        raise UsageError(f"a goal is missing, or --worktree took it ({rest['worktree']!r}): put the goal before it")
    return begin(forwarded, rest, goal=only_goal(given, prompt_file, '`untildone run "GOAL"`, -p/--prompt'))


@click.command(cls=ThemedCommand, epilog=TASKS_EXAMPLES)
@click.argument("file", metavar="FILE")
@click.option("--task-prompt-file", metavar="FILE", help="A file with the task prompt; the first %s becomes the tasks.")
@run_options()
def tasks(forwarded: tuple[str, ...], file: str, **rest: Any) -> int:
    """Work through FILE, a Markdown list of checkboxes, until all that count are ticked."""
    return begin_tasks(forwarded, rest, file)


def only_goal(given: Sequence[str], prompt_file: str | None, ways: str) -> str:
    """The one goal that was typed or lies in a file; UsageError for none, more than one, or an empty one."""
    goals = [*given, *([read_text_file(prompt_file, "--prompt-file")] if prompt_file is not None else [])]
    if len(goals) != 1:
        problem = "there is more than one goal" if goals else "a goal is missing"
        raise UsageError(f"{problem}: give exactly one of {ways} or --prompt-file")
    if not goals[0].strip():
        raise UsageError("the goal is empty: say what should be reached")
    return goals[0].strip()


def begin_tasks(
    forwarded: tuple[str, ...], rest: dict[str, Any], file: str, usual: Mapping[str, object] | None = None
) -> int:
    """Begin or resume a run that works through a file of checkboxes."""
    task_prompt_file = rest.pop("task_prompt_file")
    folder = folder_of(rest["cwd"])
    path = Path(os.path.realpath(folder / file))  # pathlib raises for a link that leads to itself
    if task_prompt_file is not None:
        if rest["task_prompt"] is not None:
            raise UsageError("--task-prompt and --task-prompt-file exclude each other: give one of them")
        rest["task_prompt"] = read_text_file(task_prompt_file, "--task-prompt-file")
    read_text_file(str(path), "the task file", again=True)
    if not path.is_relative_to(folder):
        raise UsageError(f"{path} is outside of {folder}, where the agent works: move it there, or give --cwd")
    shown = str(path.relative_to(folder))
    return begin(forwarded, rest, goal=f"Complete the tasks in {shown}.", task_file=shown, usual=usual)


def _warn_of_missing(spec: RunSpec) -> None:
    """What a fresh checkout is to borrow may still be made, by a human or the agent; until then no check can run."""
    for folder in spec.contract.share:
        if not (Path(spec.cwd) / folder).exists():
            say(f"--share {folder}: there is no {folder} in {spec.cwd} yet, and no check can run before there is")


def begin(
    forwarded: tuple[str, ...],
    rest: dict[str, Any],
    *,
    goal: str,
    task_file: str | None = None,
    usual: Mapping[str, object] | None = None,
) -> int:
    """Begin or resume a run. `usual`: what this command's settings are where neither flags nor files give them."""
    output_given = {"json": rest.pop("as_json"), "format": rest.pop("shape")}
    own = {key: rest.pop(key) for key in ("name", "new", "reset_circuit", "dry_run", "detach", "cwd")}
    wish = Wish(goal=goal, task_file=task_file, **own)
    folder = folder_of(wish.cwd)
    resolved = settled(rest, folder, forwarded, usual)
    output = Output(verbose=resolved.value("verbose"), quiet=resolved.value("quiet"), **output_given)
    policy = config.policy(resolved, now=wiring.system_clock().now())
    name = wish.name or config.run_name(folder, goal)
    spec = config.run_spec(resolved, goal=goal, cwd=folder, name=name, task_file=task_file)
    spec = wiring.with_goals(spec)
    for remark in remarks(spec):
        say(remark)
    own_tree = resolved.value("worktree")
    if own_tree is None:
        _warn_of_missing(spec)
    if wish.dry_run:
        from untildone.cli.masking import masked_spec

        plan = {"spec": asdict(masked_spec(spec)), "policy": asdict(policy)}
        click.echo(json.dumps(plan) if output.json else preview_text(spec, policy, own_tree))
        return 0
    store = store_of(resolved.value("store"))
    if own_tree is not None:
        parent = resolved.value("worktree_base_dir")
        spec = foreground(in_own_tree(spec, own_tree, store, parent=parent, new=wish.new))
        _warn_of_missing(spec)
    if wish.detach:
        from untildone.cli.detaching import hand_over

        return hand_over(foreground(_planned(spec, policy, wish, store)), store, output)
    return foreground(_run(spec, policy, wish, store, output))


async def _run(spec: RunSpec, policy: Policy, wish: Wish, store: Path, output: Output) -> int:
    async with opened(store) as log:
        return await drive_chain(log, await job_for(log, spec, policy, wish), store, output)


async def _planned(spec: RunSpec, policy: Policy, wish: Wish, store: Path) -> Job:
    async with opened(store) as log:
        return await job_for(log, spec, policy, wish)


async def job_for(log: EventLog, spec: RunSpec, policy: Policy, wish: Wish) -> Job:
    """A new run, or the unfinished one of this name as this command wants it; of a chain, the goal it has come to."""
    now = wiring.system_clock().now()
    old = None if wish.new else await resumable(log, spec, now)
    if old is None and not wish.new and (later := await _open_goal(log, spec, now)):
        return later
    if old is None or not _wants_to_resume(old):
        return Job(run_id=wiring.new_run_id(), begin=(spec, policy))
    after = count(old.attempts, "iteration")
    greeting = f"resuming {old.spec.name} after {after} (--new starts afresh)"
    if undone := undone_orders(old, await log.read(old.run_id), policy):
        greeting += f"; what you typed holds from now on, and undoes what was ordered: {'; '.join(undone)}"
    return Job(run_id=old.run_id, before=tuple(_asked(old, spec, policy, wish)), greeting=greeting)


async def resumable(log: EventLog, spec: RunSpec, now: float) -> LoopState | None:
    """The unfinished run of this name that should be continued; says what becomes of one that should not."""
    newest = await _newest(log, spec)
    if newest is None or newest.status == "completed":
        return None
    return await _continued(log, newest, now)


async def _newest(log: EventLog, spec: RunSpec) -> RunRow | None:
    rows = [row for row in await log.runs() if row.name == spec.name and row.folder == spec.cwd]
    return max(rows, key=lambda row: row.created_at, default=None)


async def _continued(log: EventLog, newest: RunRow, now: float) -> LoopState | None:
    """The state of this run, if it is to be continued."""
    state = await load_state(log, newest.run_id)
    if not state.run_id or state.phase == "completed":
        return None
    refuse_elsewhere(state)
    if _is_too_old(newest, state, now):
        return None
    if state.phase == "suspended" and limit_of(state.stop_reason or "") is not None:
        say(f"starting anew; `untildone resume {newest.run_id}` with a higher limit continues the last run")
        return None
    return state


def _is_too_old(newest: RunRow, state: LoopState, now: float) -> bool:
    if newest.alive or now - newest.updated_at <= state.policy.session_expiry:
        return False
    age = format_duration(now - newest.updated_at)
    say(f"the last run of this name is {age} old: starting anew (`untildone resume {newest.run_id}` continues it)")
    return True


async def _open_goal(log: EventLog, spec: RunSpec, now: float) -> Job | None:
    """The goal that a chain has come to which the same command began; it keeps its limits, which are what is left."""
    begun = await _newest(log, spec)
    first = await load_state(log, begun.run_id) if begun is not None and spec.then else None
    if first is None or not has_next(first):
        return None
    if (first.spec.goal, first.spec.then_goals) != (spec.goal, spec.then_goals):
        return None
    state = await newest_of_chain(log, first)
    (row,) = [row for row in await log.runs() if row.run_id == state.run_id]
    number = len(spec.then) - len(state.spec.then) + 1
    if has_next(state):
        too_old = _is_too_old(row, state, now)
        return None if too_old else replace(next_job(state), greeting=_goes_on_with(number + 1, spec))
    old = await _continued(log, row, now)
    if old is None or not _wants_to_resume(old):
        return None
    asked = (ResumeRequested(by="cli"),) if old.paused else ()
    return Job(run_id=old.run_id, before=asked, greeting=_goes_on_with(number, spec))


def _goes_on_with(number: int, spec: RunSpec) -> str:
    return f"continuing with goal {number} of {len(spec.then) + 1} (--new starts afresh)"


def _wants_to_resume(old: LoopState) -> bool:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return True
    done = count(old.attempts, "iteration")
    click.echo(f"There is an unfinished run of this goal: {old.spec.name}, {done}, {_why(old)}.")
    choices = click.Choice(["resume", "new", "quit"])
    answer = click.prompt("Resume it, start a new one, or quit?", type=choices, default="resume")
    if answer == "quit":
        raise click.Abort
    return bool(answer == "resume")


def _why(old: LoopState) -> str:
    return one_line(f"stopped: {old.stop_reason}" if old.stop_reason else "interrupted", 80)


def _asked(old: LoopState, spec: RunSpec, policy: Policy, wish: Wish) -> list[Event]:
    """What this command asks of the run that is resumed: it goes on as this command says."""
    same = (old.spec, old.policy) == (spec, policy)
    asked: list[Event] = [ResumeRequested(by="cli")] if old.paused else []
    asked += [] if same else [settings_changed("cli", (old.spec, old.policy), spec, policy)]
    return [*asked, ResetRequested(by="cli")] if wish.reset_circuit else asked

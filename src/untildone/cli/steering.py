"""`stop`, `pause`, `resume`, `message`, `limits`, `reset`: what humans ask of a run. Each is an event in its log."""

import asyncio
import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from untildone import config, wiring
from untildone.cli.driving import Job, Output, drive, exit_code_of, opened
from untildone.cli.options import (
    CHANGEABLE,
    ThemedCommand,
    folder_of,
    place_options,
    run_argument,
    setting_options,
    store_of,
)
from untildone.core.durations import format_duration
from untildone.core.events import (
    Event,
    LimitsChanged,
    MessageReceived,
    PauseRequested,
    ResetRequested,
    ResumeRequested,
    SettingsChanged,
    StopRequested,
)
from untildone.core.figures import clock, dollars
from untildone.core.settings import SETTINGS
from untildone.core.views import run_view
from untildone.engine.journal import load_state
from untildone.errors import NotTheOperator, UsageError
from untildone.ports import EventLog, RunRow

BY = "cli"


def operator_only(command: Callable[..., Any]) -> Callable[..., Any]:
    """Refuse inside an agent's process tree: the agent does not steer its own run."""

    @wraps(command)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        if os.environ.get(config.OPERATOR_MARK):
            raise NotTheOperator("an agent may not steer a run: ask the human, or report that you are blocked")
        return command(*args, **kwargs)

    return guarded


@click.command()
@run_argument
@click.option("--after-iteration", is_flag=True, help="Let the running iteration end first.")
@place_options
@operator_only
def stop(run: str | None, store: str | None, cwd: str | None, *, after_iteration: bool) -> None:
    """Stop a run. It can be resumed."""
    row = _ask(run, store, cwd, StopRequested(by=BY, after_iteration=after_iteration), living=True)
    when = "after its running iteration" if after_iteration else "now"
    click.echo(f"{row.name} stops {when}; go on with `untildone resume {row.name}`")


@click.command()
@run_argument
@place_options
@operator_only
def pause(run: str | None, store: str | None, cwd: str | None) -> None:
    """Pause a run until it is resumed."""
    row = _ask(run, store, cwd, PauseRequested(by=BY), living=True)
    click.echo(f"{row.name} pauses; go on with `untildone resume {row.name}`")


@click.command()
@click.argument("words", metavar="[RUN] TEXT", nargs=-1, required=True)
@click.option("--urgent", is_flag=True, help="Interrupt the running iteration instead of waiting for the next prompt.")
@place_options
@operator_only
def message(words: tuple[str, ...], store: str | None, cwd: str | None, *, urgent: bool) -> None:
    """Tell the agent something: in its next prompt, or at once."""
    if len(words) > 2:  # noqa: PLR2004 -- a run and a text
        raise UsageError('put the text in quotes: untildone message RUN "TEXT"')
    *run, text = words
    if not text.strip():
        raise UsageError("the message is empty")
    row = _ask(run[0] if run else None, store, cwd, MessageReceived(by=BY, content=text, urgent=urgent))
    click.echo(f"{row.name} {'is told at once' if urgent and row.alive else 'reads it in its next prompt'}")


@click.command(cls=ThemedCommand)
@run_argument
@click.option("--circuit", is_flag=True, help="Close the breaker (what happens without any option).")
@click.option("--session", is_flag=True, help="Forget the session: the next iteration starts afresh.")
@click.option("--history", is_flag=True, help="Clear streaks and fault counters.")
@click.option("--all", "everything", is_flag=True, help="All of these.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing.")
@place_options
@operator_only
def reset(run: str | None, store: str | None, cwd: str | None, *, quiet: bool, everything: bool, **what: bool) -> None:
    """Close the breaker of a run, or clear more."""
    circuit = what["circuit"] or everything or not (what["session"] or what["history"])
    session, history = what["session"] or everything, what["history"] or everything
    row = _ask(run, store, cwd, ResetRequested(by=BY, circuit=circuit, session=session, history=history))
    named = (("breaker", circuit), ("session", session), ("streaks and fault counters", history))
    cleared = [name for name, on in named if on]
    if not quiet:
        click.echo(f"{row.name}: cleared {', '.join(cleared)}")


@click.command(cls=ThemedCommand)
@run_argument
@setting_options(CHANGEABLE)
@place_options
@operator_only
def limits(run: str | None, store: str | None, cwd: str | None, **given: Any) -> None:
    """Show the limits of a run, or change them, also while it works."""
    changes = limit_changes(given)
    if changes:
        row = _ask(run, store, cwd, LimitsChanged(by=BY, changes=changes))
        said = ", ".join(f"{name} = {shown_limit(name, value)}" for name, value in changes.items())
        click.echo(f"{row.name}: {said}")
    else:
        asyncio.run(_show_limits(run, store_of(store), folder_of(cwd)))


@click.command(cls=ThemedCommand)
@run_argument
@setting_options(setting for setting in SETTINGS if setting.name != "profile")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object, nothing else.")
@click.option("--format", "shape", metavar="TEXT", help="Print the result like '{name}: {exit_reason}'.")
@click.option("--cwd", metavar="DIR", help="The folder whose newest run is meant.")
@operator_only
def resume(run: str | None, cwd: str | None, as_json: bool, shape: str | None, **given: Any) -> int:
    """Continue a run that stopped, with other settings if given, or end a pause."""
    store = given.pop("store")
    output = Output(verbose=bool(given.pop("verbose")), quiet=bool(given.pop("quiet")), json=as_json, format=shape)
    typed = {name: raw for name, raw in given.items() if raw is not None and raw != ()}
    return asyncio.run(_resume(run, store_of(store), folder_of(cwd), typed, output))


async def _resume(run: str | None, store: Path, folder: Path, typed: dict[str, Any], output: Output) -> int:
    async with opened(store) as log:
        row = await wiring.find_run(log, run, folder)
        state = await load_state(log, row.run_id)
        if row.alive:
            await log.append(row.run_id, [*_new_limits(row, typed), ResumeRequested(by=BY)])
            click.echo(f"{row.name} goes on" if state.paused else f"{row.name} is at work already")
            return 0
        if state.phase == "completed":
            raise UsageError(f"{row.name} is done: start a new run with `untildone run --new`")
        asked: list[Event] = [ResumeRequested(by=BY)] if state.paused else []
        if typed:
            spec, policy = config.changed(typed, state.spec, state.policy, now=wiring.system_clock().now())
            asked.append(SettingsChanged(by=BY, policy=policy, spec=spec))
        return exit_code_of(await drive(log, Job(run_id=row.run_id, before=tuple(asked)), store, output))


def _new_limits(row: RunRow, typed: dict[str, Any]) -> list[Event]:
    """While a run works only its limits can change."""
    other = sorted(typed.keys() - {setting.name for setting in CHANGEABLE})
    if other:
        raise UsageError(f"{row.name} is at work: stop it first to change {', '.join(other)}")
    return [LimitsChanged(by=BY, changes=limit_changes(typed))] if typed else []


def limit_changes(given: dict[str, Any]) -> dict[str, float | int | None]:
    """The limits that were typed, by policy field, parsed."""
    typed = {name: raw for name, raw in given.items() if raw is not None}
    resolved = config.resolve(typed, env={"HOME": os.environ.get("HOME", "/")})
    changes = {name: resolved.value(name) for name in typed}
    if changes.get("deadline") is not None:
        changes["deadline"] = config.deadline_at(str(changes["deadline"]), wiring.system_clock().now())
    return changes


def shown_limit(name: str, value: float | None) -> str:
    """A limit as a person writes it."""
    if value is None:
        return "no limit"
    if name == "max_cost_usd":
        return dollars(value)
    if name == "max_duration":
        return format_duration(value)
    return clock(value) if name == "deadline" else f"{value:g}"


async def _show_limits(run: str | None, store: Path, folder: Path) -> None:
    async with opened(store) as log:
        row = await wiring.find_run(log, run, folder)
        view = run_view(await load_state(log, row.run_id), wiring.system_clock().now(), alive=row.alive)
    for gauge in view.gauges:
        click.echo(f"{gauge.field:<16} {gauge.text}")
    if not view.gauges:
        click.echo("no limits are set (--unbounded)")


def _ask(run: str | None, store: str | None, cwd: str | None, event: Event, *, living: bool = False) -> RunRow:
    async def ask() -> RunRow:
        async with opened(store_of(store)) as log:
            return await _append(log, await wiring.find_run(log, run, folder_of(cwd)), event, living=living)

    return asyncio.run(ask())


async def _append(log: EventLog, row: RunRow, event: Event, *, living: bool) -> RunRow:
    if living and not row.alive:
        raise UsageError(f"{row.name} is not running: `untildone status {row.name}` says where it stands")
    await log.append(row.run_id, [event])
    return row

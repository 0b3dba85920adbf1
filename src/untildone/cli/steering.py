"""`stop`, `pause`, `resume`, `message`, `skip-wait`, `limits`, `reset`: what humans ask. Each is an event."""

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from untildone import config, loops, wiring
from untildone.cli.chaining import drive_chain, newest_of_chain, next_job
from untildone.cli.choosing import find_run
from untildone.cli.driving import Job, Output, foreground, opened
from untildone.cli.guarding import operator_only
from untildone.cli.options import (
    CHANGEABLE,
    ThemedCommand,
    folder_of,
    place_options,
    run_argument,
    setting_options,
    store_of,
)
from untildone.core.chain import has_next, knows_goals
from untildone.core.changed import settings_changed
from untildone.core.durations import format_duration
from untildone.core.elsewhere import refuse_elsewhere
from untildone.core.events import (
    Event,
    LimitsChanged,
    MessageReceived,
    PauseRequested,
    ResetRequested,
    ResumeRequested,
    SkipWaitRequested,
    StopRequested,
)
from untildone.core.figures import clock, dollars
from untildone.core.limits import has_finite_limit
from untildone.core.policy import Policy, RunSpec
from untildone.core.settings import SETTINGS
from untildone.core.state import LoopState
from untildone.core.views import run_view
from untildone.engine.journal import load_state
from untildone.errors import UsageError
from untildone.ports import EventLog, RunRow

BY = "cli"

Wish = Event | Callable[[RunRow, LoopState], Event]


@click.command()
@run_argument
@click.option("--after-iteration", is_flag=True, help="Let the running iteration end first.")
@place_options
@operator_only
def stop(run: str | None, store: str | None, cwd: str | None, *, after_iteration: bool) -> None:
    """Stop a run. It can be resumed."""
    row = _ask(run, store, cwd, StopRequested(by=BY, after_iteration=after_iteration), living=True)
    when = "after its running iteration" if after_iteration else "now"
    click.echo(f"{row.name} stops {when}; resume it with `untildone resume {row.name}`")


@click.command()
@run_argument
@place_options
@operator_only
def pause(run: str | None, store: str | None, cwd: str | None) -> None:
    """Pause a run when its running iteration ends, until it is resumed."""
    row = _ask(run, store, cwd, PauseRequested(by=BY), living=True)
    click.echo(f"{row.name} pauses after its running iteration (`untildone stop {row.name}` ends that one, too)")
    click.echo(f"resume it with `untildone resume {row.name}`")


@click.command("skip-wait")
@run_argument
@place_options
@operator_only
def skip_wait(run: str | None, store: str | None, cwd: str | None) -> None:
    """Do not wait for a limit or an outage any longer: try now."""
    row = _ask(run, store, cwd, SkipWaitRequested(by=BY), living=True)
    click.echo(f"{row.name} tries now; if the limit still holds, it waits again")


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
    _, told = reset_run(run, store, cwd, everything=everything, **what)
    if not quiet:
        click.echo(told)


def reset_run(
    run: str | None,
    store: str | None,
    cwd: str | None,
    *,
    circuit: bool = False,
    session: bool = False,
    history: bool = False,
    everything: bool = False,
) -> tuple[dict[str, Any], str]:
    """Ask a run to clear these, its breaker if none is named; returns what was cleared, for programs and for people."""
    wanted = {"circuit": circuit, "session": session, "history": history}
    cleared = {name: on or everything for name, on in wanted.items()}
    cleared["circuit"] |= not any(cleared.values())
    row = _ask(run, store, cwd, ResetRequested(by=BY, **cleared))
    named = {"circuit": "breaker", "session": "session", "history": "streaks and fault counters"}
    said = ", ".join(words for name, words in named.items() if cleared[name])
    return {"run": row.run_id, "name": row.name, **cleared}, f"{row.name}: cleared {said}"


@click.command(cls=ThemedCommand)
@run_argument
@setting_options(CHANGEABLE)
@place_options
@operator_only
def limits(run: str | None, store: str | None, cwd: str | None, **given: Any) -> None:
    """Show the limits of a run, or change them, also while it works."""
    changes = limit_changes(given)
    if changes:
        row = _ask(run, store, cwd, lambda row, state: _limits_changed(row, state, changes))
        said = ", ".join(f"{name} = {shown_limit(name, value)}" for name, value in changes.items())
        click.echo(f"{row.name}: {said}")
    else:
        asyncio.run(_show_limits(run, store_of(store), folder_of(cwd)))


@click.command(cls=ThemedCommand)
@run_argument
@setting_options(s for s in SETTINGS if s.name not in {"profile", "worktree", "worktree_base_dir"})
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object, nothing else.")
@click.option("--format", "shape", metavar="TEXT", help="Print the result like '{name}: {exit_reason}'.")
@click.option(
    "--cwd", metavar="DIR", help="Without RUN, the folder whose newest run is meant; with it, where to go on."
)
@click.option("--interrupted", is_flag=True, help="Every run, of any folder, that a crash or a reboot ended.")
@click.option("--detach", is_flag=True, help="Work in the background, whatever becomes of this terminal.")
@click.option("--from-server", is_flag=True, help="Bring RUN here from another machine: --cwd is a clone, or empty.")
@click.option("--take", is_flag=True, help="With --from-server, also from a machine that is running it.")
@click.option("--trust", is_flag=True, help="With --from-server, let the commands that RUN brings along run here.")
@operator_only
def resume(
    run: str | None, cwd: str | None, *, as_json: bool, shape: str | None, interrupted: bool, detach: bool, **given: Any
) -> int:
    """Continue a run that stopped, with other settings if given, or end a pause. Of a chain, start the next goal."""
    store = given.pop("store")
    output = Output(verbose=bool(given.pop("verbose")), quiet=bool(given.pop("quiet")), json=as_json, format=shape)
    typed = {name: raw for name, raw in given.items() if raw is not None and raw != ()}
    place = store_of(store)
    far, how = typed.pop("from_server"), {name: typed.pop(name) for name in ("take", "trust")}
    if any(how.values()) and not far:
        raise UsageError("--take and --trust belong to --from-server")
    if far:
        if interrupted:
            raise UsageError("--interrupted is about the runs of this machine: give it without --from-server")
        from untildone.cli.from_server import bring

        run, cwd, typed = foreground(bring(run, place, cwd, typed, **how)), None, {}
    if interrupted:
        if run or cwd or typed or output.for_programs:
            raise UsageError("--interrupted resumes every run as it is: give it without RUN, settings or --json")
        from untildone.cli.interrupted import resume_interrupted

        return resume_interrupted(place, output, detach=detach)
    if detach:
        from untildone.cli.detaching import hand_over

        job = foreground(_planned(run, place, cwd, typed))
        return hand_over(job, place, output) if job else 0
    return foreground(_resume(run, place, cwd, typed, output))


async def _resume(run: str | None, store: Path, cwd: str | None, typed: dict[str, Any], output: Output) -> int:
    async with opened(store) as log:
        job = await _job(log, run, cwd, typed)
        return await drive_chain(log, job, store, output) if job else 0


async def _planned(run: str | None, store: Path, cwd: str | None, typed: dict[str, Any]) -> Job | None:
    async with opened(store) as log:
        return await _job(log, run, cwd, typed)


async def _job(log: EventLog, run: str | None, cwd: str | None, typed: dict[str, Any]) -> Job | None:
    """What there is to drive; nothing, if somebody drives it already and only has to be asked."""
    row = await find_run(log, run, folder_of(cwd), acting=True)
    state = await newest_of_chain(log, await load_state(log, row.run_id))
    wiring.refuse_in_session(state)
    if state.run_id not in {"", row.run_id}:
        row = await find_run(log, state.run_id, folder_of(cwd))
    if row.alive:
        await log.append(row.run_id, [*_new_limits(row, state, typed), ResumeRequested(by=BY)])
        click.echo(f"{row.name} goes on" if state.paused else f"{row.name} is already running")
        return None
    refuse_elsewhere(state)
    if has_next(state):
        return _next_goal(state, typed)
    if state.phase == "completed":
        raise UsageError(f"{row.name} is done: start a new run with `untildone run --new`")
    asked = _asked(row, state, typed, folder_of(cwd) if run and cwd else None)
    return Job(run_id=row.run_id, before=tuple(asked))


def _next_goal(state: LoopState, typed: dict[str, Any]) -> Job:
    """The goal that follows one that is done, with what was typed put in its place."""
    job = next_job(state)
    if not typed or job.begin is None:
        return job
    spec, policy = config.changed(typed, *job.begin, now=wiring.system_clock().now())
    return replace(job, begin=(_with_goals(spec, typed), policy))


def _asked(row: RunRow, state: LoopState, typed: dict[str, Any], moved_to: Path | None) -> list[Event]:
    """What the human asks of a run that is taken up again."""
    asked: list[Event] = [ResumeRequested(by=BY)] if state.paused else []
    spec, policy = state.spec, state.policy
    if typed:
        spec, policy = config.changed(typed, spec, policy, now=wiring.system_clock().now())
    if moved_to is not None and str(moved_to) != spec.cwd:
        spec = replace(spec, cwd=str(moved_to))
        # Claude keeps its sessions by folder: the last one cannot be found from another.
        asked.append(ResetRequested(by=BY, circuit=False, session=True))
    elif not Path(spec.cwd).is_dir():
        raise UsageError(f"{spec.cwd} is gone: if it was moved, say `untildone resume {row.run_id} --cwd FOLDER`")
    spec = _with_goals(spec, typed)
    _keep_a_limit(row, policy, "or give --unbounded")
    if (spec, policy) != (state.spec, state.policy):
        asked.append(settings_changed(BY, (state.spec, state.policy), spec, policy))
    return asked


def _with_goals(spec: RunSpec, typed: dict[str, Any]) -> RunSpec:
    """The goals that follow are those of the beginning, unless a human names others now."""
    return spec if knows_goals(spec) and "then" not in typed else wiring.with_goals(spec)


def _keep_a_limit(row: RunRow, policy: Policy, otherwise: str) -> None:
    """A run that could go on for ever is only ever asked for by name."""
    if not policy.unbounded and not has_finite_limit(policy):
        raise UsageError(f"{row.name} would have no limit left: keep or set at least one, {otherwise}")


def _new_limits(row: RunRow, state: LoopState, typed: dict[str, Any]) -> list[Event]:
    """While a run works only its limits can change."""
    other = sorted(typed.keys() - {setting.name for setting in CHANGEABLE})
    if other:
        raise UsageError(f"{row.name} is running: stop it first to change {', '.join(other)}")
    return [_limits_changed(row, state, limit_changes(typed))] if typed else []


def _limits_changed(row: RunRow, state: LoopState, changes: dict[str, Any]) -> LimitsChanged:
    stop_first = f"or stop it and say `untildone resume {row.name} --unbounded`"
    _keep_a_limit(row, replace(state.policy, **changes), stop_first)
    return LimitsChanged(by=BY, changes=changes)


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
        row = await find_run(log, run, folder)
        view = run_view(await load_state(log, row.run_id), wiring.system_clock().now(), alive=row.alive)
    for gauge in view.gauges:
        click.echo(f"{gauge.field:<16} {gauge.text}")
    if not view.gauges:
        click.echo("no limits are set (--unbounded)")


def _ask(run: str | None, store: str | None, cwd: str | None, wish: Wish, *, living: bool = False) -> RunRow:
    async def ask() -> RunRow:
        async with opened(store_of(store)) as log:
            await loops.fold_notes(log, store_of(store), os.environ)
            row = await find_run(log, run, folder_of(cwd), acting=True)
            state = await load_state(log, row.run_id)
            wiring.refuse_in_session(state)
            if living and not row.alive:
                raise UsageError(f"{row.name} is not running: `untildone status {row.name}` says why")
            # Between two goals of a chain somebody still listens: a stop keeps the next one from starting.
            if state.phase == "completed" and not (row.alive and has_next(state) and isinstance(wish, StopRequested)):
                raise UsageError(f"{row.name} is done, nothing of this would reach it: start a new run")
            await log.append(row.run_id, [wish if isinstance(wish, Event) else wish(row, state)])
            return row

    return asyncio.run(ask())

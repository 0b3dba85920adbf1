"""`loop`: loops inside an interactive Claude Code, for people outside of it, and the older names of `run`."""

import asyncio
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from untildone import loops, wiring
from untildone.cli import published_loop
from untildone.cli.choosing import find_run
from untildone.cli.driving import opened
from untildone.cli.finding import NONE_HERE, at_work_here, at_work_named, fold, loop_of, writing
from untildone.cli.guarding import human_only, refuse_inside_session
from untildone.cli.looking import Place, look
from untildone.cli.loop_views import Standing, history_table, past_text, replayed, standing_json, standing_text
from untildone.cli.options import folder_of, new_place_options, place_options, store_of
from untildone.cli.steering import reset_run
from untildone.cli.streams import say, screen_width
from untildone.cli.tables import aligned, status_text
from untildone.core import loop_file
from untildone.core.durations import parse_duration
from untildone.core.printable import one_line, printable
from untildone.core.state import LoopState
from untildone.core.views import RunView, run_view, status_json
from untildone.engine.journal import load_state
from untildone.errors import RunNotFound, UsageError
from untildone.hook import register, starting
from untildone.hook import templates as known
from untildone.hook.loop_reading import read_loop
from untildone.hook.places import AUTONOMOUS, CONTINUATION, LOOP
from untildone.hook.resetting import reset as reset_loop
from untildone.hook.work import KNOWN, goal_from_todos
from untildone.notify.opening import open_notifiers
from untildone.notify.webhook import SCHEMES, scheme_of
from untildone.ports import EventLog, RunRow
from untildone.witness.reading import read_text_file

_LISTED = 20
_EXAMPLES = """\
Examples:
  untildone loop start "Make the tests pass" --check "pytest -q" --max 20
  untildone loop start --template coverage "Begin with the parser" --max 30
  untildone loop status
  untildone loop history --replay LOOP
"""


class _Loops(click.Group):
    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 -- click's
        """Examples, as they are typed."""
        formatter.write_paragraph()
        formatter.write(_EXAMPLES)


@click.group(cls=_Loops)
def loop() -> None:
    """Loops inside an interactive Claude Code: begin one, look at it, end it.

    In a session, `/untildone:loop GOAL` does it all at once; the plugin or `untildone plugin install` brings that.
    `iterate` and `tasks` run outside of a session, as `untildone run` and `untildone tasks` do.
    """


def _now() -> float:
    return wiring.system_clock().now()


def _home(store: str | None) -> str:
    return str(store_of(store).absolute())


# --- begin -------------------------------------------------------------------------------------------------------


@loop.command()
@click.argument("goal", nargs=-1)
@click.option(
    "--max",
    "--max-iterations",
    "turns",
    type=click.IntRange(1, starting.MOST_TURNS),
    metavar="N",
    help="Turns at most. [10]",
)
@click.option(
    "--promise", "promises", multiple=True, metavar="TEXT", help="What the agent says when it is done. Repeatable."
)
@click.option("--check", "checks", multiple=True, metavar="CMD", help="Must pass before that is believed. Repeatable.")
@click.option("--deadline", metavar="TIME", help="End at 07:30, or at a date with time.")
@click.option("--max-duration", metavar="DURATION", help="End after this long, like 90m or 2h.")
@click.option("--turn-time", metavar="DURATION", help="Tell the agent to take smaller steps after a longer turn.")
@click.option("--template", metavar="NAME", help="A goal that is known: see `untildone loop templates`.")
@click.option("--from-todos", is_flag=True, help="Make the goal of everything that is pending in this folder.")
@click.option(
    "--tasks", "tasks", multiple=True, metavar="FILE", help="Boxes that must be ticked before it is done. Repeatable."
)
@click.option(
    "--next", "following", multiple=True, metavar="GOAL", help="A goal for when this one is done. Repeatable."
)
@click.option("--next-file", "following_files", multiple=True, metavar="FILE", help="The same from a file. Repeatable.")
@click.option("--notify", "addresses", multiple=True, metavar="URL", help="A webhook to tell at its end. Repeatable.")
@click.option(
    "--milestone",
    "milestones",
    multiple=True,
    type=click.IntRange(min=1),
    metavar="N",
    help="Tell it after turn N too. Repeatable.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@new_place_options
@human_only
def start(goal: tuple[str, ...], store: str | None, cwd: str | None, *, as_json: bool, **given: Any) -> None:
    """Set up a loop in this folder. It waits until a session takes it up with `/untildone:loop --adopt`."""
    home, project = _home(store), str(folder_of(cwd))
    now = _now()
    begun: dict[str, Any] = {
        "deadline": _deadline(given["deadline"], now),
        "total_seconds": _seconds(given["max_duration"], "--max-duration"),
        "iteration_seconds": _seconds(given["turn_time"], "--turn-time"),
        "next_goals": _following(given),
        "notify": _webhooks(given["addresses"]),
        "milestones": sorted(set(given["milestones"])),
    }
    begun |= _wanted(" ".join(goal).strip(), home, project, given)
    with writing():
        entry = starting.start(home, project, now=now, **begun)
    if as_json:
        click.echo(json.dumps({"loop": entry["loop"], "project": project, "file": entry["file"]}))
        return
    click.echo(f"loop {entry['loop']} waits in {one_line(project)}: type `/untildone:loop --adopt` in a session there")


def _wanted(words: str, home: str, project: str, given: dict[str, Any]) -> dict[str, Any]:
    """The goal and what belongs to it, from what was typed, a template, or what is pending."""
    wanted = {"goal": words, "promises": given["promises"], "checks": given["checks"], "tasks": given["tasks"]}
    turns = given["turns"]
    if given["template"] is not None and given["from_todos"]:
        raise UsageError("--template and --from-todos both bring a goal: give one of them")
    if given["template"] is not None:
        found = known.template(given["template"], os.environ)
        wanted["goal"] = "\n\n".join(filter(None, (found.goal, words)))
        wanted["promises"] = given["promises"] or found.promises
        wanted["checks"] = given["checks"] or found.checks
        turns = turns or found.max_iterations
    elif given["from_todos"]:
        pending = goal_from_todos(home, project, "")
        if not pending:
            raise UsageError("nothing is pending in this folder: say a goal, or add a task with `untildone task add`")
        wanted["goal"] = "\n\n".join(filter(None, (words, pending)))
        wanted["tasks"] = (*given["tasks"], *KNOWN)
    return wanted | {"max_iterations": turns or starting.TURNS}


def _following(given: dict[str, Any]) -> list[str]:
    """The goals that follow: those that were typed, then those in files."""
    if any(not goal.strip() for goal in given["following"]):
        raise UsageError("--next needs a goal: say what is to be reached after this one")
    read = [read_text_file(name, "the goal file of --next-file") for name in given["following_files"]]
    return [*given["following"], *read]


def _deadline(text: str | None, now: float) -> float | None:
    if text is None:
        return None
    try:
        moment = loop_file.deadline_after(text, now)
    except ValueError as wrong:
        raise UsageError(f"--deadline {text[:40]!r} is no moment: write 07:30 or 2030-01-31T07:30") from wrong
    if moment <= now:
        raise UsageError(f"--deadline {text[:40]!r} is over already")
    return moment


def _seconds(text: str | None, option: str) -> float:
    try:
        return 0.0 if text is None else parse_duration(text, bare="minutes")
    except ValueError as wrong:
        raise UsageError(f"{option} {wrong}") from wrong


def _webhooks(addresses: Sequence[str]) -> list[str]:
    """Only webhooks: a hook of Claude Code has nothing but Python's own library to tell them with."""
    if any(scheme_of(address) not in SCHEMES for address in addresses):
        raise UsageError("a loop in Claude Code can only tell webhooks: give --notify an http:// or https:// address")
    open_notifiers(addresses)  # which refuses an address that cannot work
    return list(addresses)


@loop.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@new_place_options
@human_only
def adopt(store: str | None, cwd: str | None, *, as_json: bool) -> None:
    """Trust the state file that lies in this folder, its checks too, as it is now. Read it first."""
    home, project = _home(store), str(folder_of(cwd))
    with writing():
        entry, remark = starting.adopt(home, project, now=_now(), take_checks=True)
    if as_json:
        told = {"loop": entry["loop"], "file": entry["file"], "session": entry["session"], "checks": entry["checks"]}
        click.echo(json.dumps(told | {"remark": remark}))
        return
    has = f"session {entry['session']} has it" if entry["session"] else "type `/untildone:loop --adopt` in a session"
    click.echo(one_line(f"loop {entry['loop']} is yours: {has}"))
    for check in entry["checks"]:
        click.echo(one_line(f"it runs: {check}"))
    if remark:
        click.echo(one_line(remark))


# --- look --------------------------------------------------------------------------------------------------------


@loop.command()
@click.option("--agent", "run", metavar="NAME", help="The run or loop of this name or id, wherever it works.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@place_options
def status(run: str | None, store: str | None, cwd: str | None, *, as_json: bool) -> None:
    """The loop or run of this folder, and the loops of others."""

    async def work(log: EventLog, place: Place) -> str:
        found = await _view(log, place, run)
        if run is None:
            return _of_folder(place, found, as_json=as_json)
        if as_json:
            return json.dumps(status_json(*found) if found else {"exists": False}, ensure_ascii=False)
        return status_text(found[0], screen_width()) if found else f"no run called {run!r}: `untildone ls` shows all"

    click.echo(look(store, cwd, work))


async def _view(log: EventLog, place: Place, run: str | None) -> tuple[RunView, LoopState] | None:
    in_sessions = {*place.alive, *loops.past_loops(place.store)} if run is None else ()
    try:
        return await place.view(log, run, in_sessions)
    except RunNotFound:
        return None


def _of_folder(place: Place, found: tuple[RunView, LoopState] | None, *, as_json: bool) -> str:
    """Both kinds: the newest run that works outside of a session, and the loop inside one."""
    entries = register.entries(str(place.store.absolute()))
    ours = _one_of(entries, place.folder)
    here = _standing(ours) if ours else None
    others = [_standing(entry) for entry in entries if entry is not ours]
    lying = "" if here else next((name for name in (LOOP, CONTINUATION, AUTONOMOUS) if _lies(place.folder, name)), "")
    if as_json:
        told = standing_json(here, others, lying)
        return json.dumps(told | {"run": status_json(*found) if found else None}, ensure_ascii=False)
    parts = [status_text(found[0], screen_width())] if found else []
    if here or others or lying or not found:
        parts.append(standing_text(here, others, lying, _now(), screen_width()))
    return "\n\n".join(parts)


def _one_of(entries: Sequence[Any], folder: Path) -> Any:
    """The loop to show in full; where several are below the folder, each of them gets its line."""
    try:
        return loop_of(entries, folder)
    except UsageError:
        return None


def _standing(entry: Any) -> Standing:
    return Standing(entry=entry, file=read_loop(entry))


def _lies(project: Path, name: str) -> bool:
    return os.path.lexists(os.path.join(project, name))  # noqa: PTH118 -- as the hooks ask


@loop.command()
@click.argument("wanted", metavar="[LOOP]", required=False)
@click.option("--replay", is_flag=True, help="Go through it turn by turn.")
@click.option(
    "-n", "--last", type=click.IntRange(min=1), default=_LISTED, metavar="N", help=f"List only the last N. [{_LISTED}]"
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@place_options
def history(wanted: str | None, store: str | None, cwd: str | None, *, replay: bool, last: int, as_json: bool) -> None:
    """Loops that are over; with LOOP, a name or an id, what became of it and its goal."""
    place = store_of(store)
    if wanted is None and replay:
        raise UsageError("--replay needs the loop: `untildone loop history` lists them")
    work = (
        _past(place, wanted, folder_of(cwd), replay=replay, as_json=as_json)
        if wanted
        else _list(place, last, as_json=as_json)
    )
    click.echo(asyncio.run(work))


async def _list(store: Path, last: int, *, as_json: bool) -> str:
    async with opened(store) as log:
        await loops.fold_notes(log, store, os.environ)
        over = loops.past_loops(store)
        rows = [row for row in await log.runs() if row.run_id in over][:last]
        found = [(row, await load_state(log, row.run_id)) for row in rows]
    if as_json:
        return json.dumps([_past_json(row, state) for row, state in found], ensure_ascii=False)
    return history_table(found, _now(), screen_width())


async def _past(store: Path, wanted: str, folder: Path, *, replay: bool, as_json: bool) -> str:
    async with opened(store) as log:
        await loops.fold_notes(log, store, os.environ)
        row = await find_run(log, wanted, folder)
        state = await load_state(log, row.run_id)
        if not state.spec.in_session:
            raise UsageError(f"{row.name} is no loop inside Claude Code: `untildone brief {row.name}` tells about it")
        return await _told(log, store, row, state, replay=replay, as_json=as_json)


async def _told(log: EventLog, store: Path, row: RunRow, state: LoopState, *, replay: bool, as_json: bool) -> str:
    if as_json:
        return json.dumps(_past_json(row, state) | {"file": loops.past_file(store, row.run_id)}, ensure_ascii=False)
    if replay:
        return replayed(await log.read(row.run_id, trace=True), screen_width())
    view = loops.shown(
        run_view(state, _now(), alive=row.run_id in loops.living(store)), loops.living(store).get(row.run_id)
    )
    return past_text(view, await log.read(row.run_id), loops.past_file(store, row.run_id), screen_width())


def _past_json(row: RunRow, state: LoopState) -> dict[str, Any]:
    return status_json(run_view(state, row.updated_at, alive=False), state)


@loop.command("templates")
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_templates(name: str | None, *, as_json: bool) -> None:
    """Goals that are known: those that come along, and your own in the configuration folder."""
    if name is not None:
        found = known.template(name, os.environ)
        text = f"# {found.path}\n{found.text}".rstrip()
        click.echo(json.dumps(_template_json(found)) if as_json else printable(text, lines=True))
        return
    all_of_them = _all_templates()
    if as_json:
        click.echo(json.dumps([_template_json(each) for each in all_of_them]))
        return
    rows = [("NAME", "TURNS", "", "WHAT IT IS FOR")]
    rows += [(t.name, str(t.max_iterations), "yours" if t.own else "", one_line(t.about)) for t in all_of_them]
    click.echo(aligned(rows, screen_width()))
    click.echo(f"your own go into {one_line(known.own_folder(os.environ))}, as NAME.md")


def _all_templates() -> list[known.Template]:
    """Those that can be read; of the others it is said what is wrong with them."""
    found = []
    for name in known.names(os.environ):
        try:
            found.append(known.template(name, os.environ))
        except UsageError as wrong:
            say(one_line(str(wrong)))
    return found


def _template_json(found: known.Template) -> dict[str, Any]:
    names = ("name", "about", "goal", "max_iterations", "own", "path")
    lists = {"promises": list(found.promises), "checks": list(found.checks)}
    return {name: getattr(found, name) for name in names} | lists


# --- end ---------------------------------------------------------------------------------------------------------


@loop.command()
@click.argument("wanted", metavar="[LOOP]", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@place_options
@human_only
def stop(wanted: str | None, store: str | None, cwd: str | None, *, as_json: bool) -> None:
    """End the loop of this folder, or LOOP (a name or id), whichever session has it. The history keeps its goal."""
    place, folder = store_of(store), folder_of(cwd)
    found = asyncio.run(at_work_named(place, wanted, folder)) if wanted else at_work_here(place, folder)
    refuse_inside_session(found["session"])
    with writing():
        entry = starting.cancel(_home(store), found["project"], now=_now(), detail="by cli", loop=found["loop"])
    if entry is None:
        raise UsageError("that loop has ended by itself at this moment: `untildone loop history` says how")
    asyncio.run(fold(place))
    if as_json:
        click.echo(json.dumps({"loop": entry["loop"], "stop_reason": "stop_requested"}))
        return
    where = "" if found["project"] == str(folder) else f" in {one_line(found['project'])}"
    kept = f"`untildone loop history {entry['loop']}` keeps it"
    click.echo(f"loop {entry['loop']}{where} is over, recorded as not done; {kept}")


@loop.command()
@click.option("--agent", "wanted", metavar="NAME", help="The run or loop of this name or id, wherever it works.")
@click.option("--turns", is_flag=True, help="Of a loop in a session: count the turns anew too.")
@click.option("--all", "everything", is_flag=True, help="The turns too; of a run, the session and all streaks.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@place_options
@human_only
def reset(wanted: str | None, store: str | None, cwd: str | None, **how: bool) -> None:
    """Let the loop of this folder count its failures anew; close the breaker of its run if no loop is there."""
    place, folder = store_of(store), folder_of(cwd)
    ours = loop_of(register.entries(_home(store)), folder) if wanted is None else _living(place, wanted)
    if ours is None:
        try:
            told = reset_run(wanted, store, cwd, everything=how["everything"])
        except RunNotFound as nothing:
            raise nothing if wanted else UsageError(NONE_HERE) from None
    else:
        refuse_inside_session(ours["session"])
        told = _reset_loop(_home(store), ours["project"], turns=how["turns"] or how["everything"])
    if how["as_json"]:
        click.echo(json.dumps(told[0]))
    elif not how["quiet"]:
        click.echo(told[1])


def _living(place: Path, wanted: str) -> Any:
    """The loop inside a session that is called so; None for a run, or for what is over."""

    async def find() -> Any:
        async with opened(place) as log:
            await loops.fold_notes(log, place, os.environ)
            alive = loops.living(place)
            return alive.get((await find_run(log, wanted, place)).run_id)

    return asyncio.run(find())


def _reset_loop(home: str, project: str, *, turns: bool) -> tuple[dict[str, Any], str]:
    with writing():
        entry = reset_loop(home, project, now=_now(), turns=turns)
    if entry is None:
        raise UsageError(NONE_HERE)
    said = f"loop {entry['loop']}: failures{' and turns' if turns else ''} are counted anew"
    return {"loop": entry["loop"], "failures": 0, "turns": turns}, said


loop.add_command(published_loop.iterate)
loop.add_command(published_loop.tasks)

"""`status`, `log`, `ls`, `brief`, `replay`: what happened and where things stand. Nothing here changes a run."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Collection, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from untildone import loops, wiring
from untildone.cli.chaining import stands_before_next
from untildone.cli.choosing import find_run
from untildone.cli.driving import opened
from untildone.cli.options import folder_of, place_options, run_argument, store_of
from untildone.cli.streams import hanging, screen_width
from untildone.cli.tables import iterations_table, runs_table, status_text
from untildone.config import expanded
from untildone.core.chain import not_started
from untildone.core.codec import to_wire
from untildone.core.dataclass import dataclass
from untildone.core.events import ContinuousCompleted, ContinuousSuspended, IterationValidation, Record
from untildone.core.figures import count
from untildone.core.history import iteration_rows
from untildone.core.state import LoopState
from untildone.core.stopping import BY_WORD, DONE
from untildone.core.views import RunView, run_view, status_json
from untildone.engine.journal import load_state
from untildone.errors import RunNotFound, UsageError
from untildone.ports import EventLog, RunRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where one looks, and which loops inside Claude Code are at work by now."""

    folder: Path
    store: Path
    alive: Mapping[str, Any]

    async def find(self, log: EventLog, run: str | None, but: Collection[str] = ()) -> RunRow:
        """A run by name or id, or the newest of the folder that is none of those."""
        return loops.with_life(await find_run(log, run, self.folder, but=but), self.alive)

    async def view(self, log: EventLog, run: str | None, but: Collection[str] = ()) -> tuple[RunView, LoopState]:
        """What `status` shows of it."""
        row = await self.find(log, run, but)
        state = await load_state(log, row.run_id)
        view = loops.shown(run_view(state, wiring.system_clock().now(), alive=row.alive), self.alive.get(row.run_id))
        if await stands_before_next(log, state, alive=row.alive):
            view = replace(view, advice=not_started(state))
        return view, state


FOLD_PAUSE = 0.3
"""Seconds between two looks at what hooks wrote down, while somebody follows."""


def look(store: str | None, cwd: str | None, work: Any) -> Any:
    """Do work on the log, with all of it that hooks wrote down, for a command about a folder."""

    async def answer() -> Any:
        place = store_of(store)
        async with opened(place) as log:
            await loops.fold_notes(log, place, os.environ)
            return await work(log, Place(folder=folder_of(cwd), store=place, alive=loops.living(place)))

    done: Coroutine[Any, Any, Any] = answer()
    return asyncio.run(done)


@click.command()
@run_argument
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@place_options
def status(run: str | None, store: str | None, cwd: str | None, *, as_json: bool) -> None:
    """The state of a run: the named one, or the newest of this folder."""

    async def work(log: EventLog, place: Place) -> str:
        try:
            view, state = await place.view(log, run)
        except RunNotFound as nothing:
            if run is not None:
                raise
            return json.dumps({"exists": False}) if as_json else str(nothing)
        return (
            json.dumps(status_json(view, state), ensure_ascii=False) if as_json else status_text(view, screen_width())
        )

    click.echo(look(store, cwd, work))


@click.command()
@run_argument
@click.option("-f", "--follow", is_flag=True, help="Go on as events arrive, until the run stops.")
@click.option("-v", "--verbose", is_flag=True, help="Also what the agent wrote and did.")
@click.option("-n", "--last", type=click.IntRange(min=1), metavar="N", help="Only the last N events.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, with every field.")
@place_options
def log(run: str | None, store: str | None, cwd: str | None, *, follow: bool, verbose: bool, **rest: Any) -> None:
    """What happened in a run, line by line."""

    async def work(log: EventLog, place: Place) -> None:
        row = await place.find(log, run)
        records = await log.read(row.run_id, trace=verbose)
        seen = records[-1].seq if records else 0
        if verbose and seen > len(records) and not rest["as_json"]:
            click.echo(
                f"({count(seen - len(records), 'older detail')} trimmed: a run keeps as much as --trace-keep says)"
            )
        for record in records[-rest["last"] :] if rest["last"] else records:
            _print_record(record, row, as_json=rest["as_json"])
        if follow and row.alive:
            async with _noting(log, row, place):
                await _follow(log, row, seen, verbose=verbose, as_json=rest["as_json"])

    look(store, cwd, work)


@asynccontextmanager
async def _noting(log: EventLog, row: RunRow, place: Place) -> AsyncIterator[None]:
    """While inside, what the hooks of a loop write down goes into the log as it comes."""
    if row.run_id not in place.alive:
        yield
        return
    folding = asyncio.create_task(_fold_for_ever(log, place.store))
    try:
        yield
    finally:
        folding.cancel()
        await asyncio.gather(folding, return_exceptions=True)


async def _fold_for_ever(log: EventLog, store: Path) -> None:
    while True:
        await loops.fold_notes(log, store, os.environ)
        await asyncio.sleep(FOLD_PAUSE)


async def _follow(log: EventLog, row: RunRow, seen: int, *, verbose: bool, as_json: bool) -> None:
    async for record in log.follow(row.run_id, after=seen, trace=verbose):
        _print_record(record, row, as_json=as_json)
        if isinstance(record.event, ContinuousSuspended | ContinuousCompleted):
            return


def _print_record(record: Record, row: RunRow, *, as_json: bool) -> None:
    if as_json:
        from untildone.cli.masking import masked_event

        shown = replace(record, event=masked_event(record.event))
        click.echo(json.dumps(to_wire(shown, row.run_id), ensure_ascii=False, default=str))
        return
    from untildone.core.lines import event_line

    line = event_line(record)
    if line is not None:
        moment = f"{datetime.fromtimestamp(record.at).astimezone():%m-%d %H:%M:%S}  "
        click.echo(hanging(moment, line, screen_width()))


async def _told(log: EventLog, row: RunRow, place: Place) -> RunRow:
    """A run as its events tell it: the list knows only of drivers that come and go, and not of one that died."""
    row = loops.with_life(row, place.alive)
    if row.run_id in place.alive or row.status != "running":
        return loops.listed(row, place.alive)
    state = await load_state(log, row.run_id)
    if row.alive:
        return replace(row, status=run_view(state, wiring.system_clock().now(), alive=True).status)
    return replace(row, status=state.phase) if state.phase in {"suspended", "completed"} else row


async def _ended(log: EventLog, row: RunRow) -> RunRow:
    """A run that is done says in the list, too, whether a check proved it."""
    if row.status != "completed":
        return row
    state = await load_state(log, row.run_id)
    if state.stop_reason not in DONE:
        return row
    return replace(row, status="done, verified" if state.verified else BY_WORD)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
@place_options
def ls(store: str | None, cwd: str | None, *, as_json: bool) -> None:
    """All runs, newest first."""

    async def work(log: EventLog, place: Place) -> str:
        rows = [await _told(log, row, place) for row in await log.runs()]
        rows.sort(key=lambda row: row.updated_at, reverse=True)
        if as_json:
            return json.dumps([{name: getattr(row, name) for name in RunRow.__slots__} for row in rows])
        ended = [await _ended(log, row) for row in rows]
        return runs_table(ended, wiring.system_clock().now(), screen_width(), in_session=place.alive)

    click.echo(look(store, cwd, work))


def _evidence(records: Sequence[Record]) -> list[dict[str, Any]]:
    """What each check said when the loop last looked, and where all of it is."""
    from untildone.cli.masking import masked_event

    looks = (record.event for record in reversed(records) if isinstance(record.event, IterationValidation))
    last = next((event for look in looks if isinstance(event := masked_event(look), IterationValidation)), None)
    return [] if last is None else [asdict(check) for check in last.checks]


@click.command()
@run_argument
@click.option("-o", "--output", metavar="FILE", help="Write it to a file instead.")
@click.option("--json", "as_json", is_flag=True, help="The same facts as one JSON object: status and iterations.")
@place_options
def brief(run: str | None, store: str | None, cwd: str | None, *, output: str | None, as_json: bool) -> None:
    """The report of a run: what was done, the evidence, what was not, and what it cost."""

    async def work(log: EventLog, place: Place) -> str:
        from untildone.briefing.markdown import render

        row = await place.find(log, run)
        records = await log.read(row.run_id)
        state, now = await load_state(log, row.run_id), wiring.system_clock().now()
        if not as_json:
            return render(state, records, now, alive=row.alive)
        facts = status_json(run_view(state, now, alive=row.alive), state)
        facts |= {"iterations": [asdict(row) for row in iteration_rows(records)], "evidence": _evidence(records)}
        return json.dumps(facts, ensure_ascii=False)

    text = look(store, cwd, work)
    if output is None:
        click.echo(text)
        return
    try:
        expanded(output).write_text(text, encoding="utf-8")
    except OSError as refused:
        raise UsageError(f"{output} cannot be written: {refused.strerror}") from refused


@click.command()
@run_argument
@click.option("--set", "changes", multiple=True, metavar="NAME=VALUE", help="A limit or threshold to try. Repeatable.")
@place_options
def replay(run: str | None, store: str | None, cwd: str | None, *, changes: tuple[str, ...]) -> None:
    """Go through a run again: its iterations, and what another policy would have done."""
    from untildone.core.replay import parse_changes, what_if

    tried = parse_changes(changes)

    async def work(log: EventLog, place: Place) -> str:
        row = await place.find(log, run)
        records = await log.read(row.run_id)
        table = iterations_table(records, screen_width())
        if not tried:
            return table
        told = what_if(records, tried).text.split("\n")
        return "\n".join([table, "", *(hanging("", line, screen_width()) for line in told)])

    click.echo(look(store, cwd, work))

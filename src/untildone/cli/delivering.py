"""`waive`, `land`, `rewind`, `fork`: what a human decides about proof and arrival."""

import asyncio
import json
import os
import pwd
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Any

import click

from untildone import config, trees, wiring
from untildone.cli.chaining import drive_chain
from untildone.cli.choosing import find_run
from untildone.cli.driving import Job, Output, foreground, opened
from untildone.cli.guarding import operator_only
from untildone.cli.options import ThemedCommand, folder_of, place_options, setting_options, store_of
from untildone.cli.streams import say
from untildone.core.changed import settings_changed
from untildone.core.dataclass import dataclass
from untildone.core.decide import Land, Verify, decide
from untildone.core.delivery import has_arrived
from untildone.core.events import (
    ContinuousResumed,
    DisputeAccepted,
    Event,
    Record,
    Rewound,
    SettingsChanged,
    WaiverGiven,
)
from untildone.core.figures import count, short_commit
from untildone.core.findings import Finding, matches
from untildone.core.fold import fold
from untildone.core.limits import has_finite_limit
from untildone.core.policy import Policy, RunSpec
from untildone.core.printable import one_line
from untildone.core.settings import SETTINGS
from untildone.core.state import LoopState
from untildone.core.views import run_view
from untildone.engine.journal import load_state
from untildone.errors import UsageError
from untildone.git.branch import slug
from untildone.ports import EventLog, RunRow

BY = "cli"
_ALSO = {"store", "verbose", "quiet", "dirty"}
_LANDING = tuple(s for s in SETTINGS if s.group in {"landing", "limits"} or s.name in _ALSO)
_CHANGEABLE = tuple(s for s in SETTINGS if s.name not in {"profile", "worktree", "cleanup_worktree"})

_shape = (
    click.option("--format", "shape", metavar="TEXT", help="Print the result like '{name}: {exit_reason}'."),
    click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object, nothing else."),
    click.option("--detach", is_flag=True, help="Work in the background, whatever becomes of this terminal."),
)


def _shaped(command: Any) -> Any:
    for option in _shape:
        command = option(command)
    return command


# --- waive ---------------------------------------------------------------------------------------


@click.command()
@click.argument("run")
@click.argument("patterns", metavar="PATTERN...", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@place_options
@operator_only
def waive(run: str, patterns: tuple[str, ...], store: str | None, cwd: str | None, *, as_json: bool) -> None:
    """Let guarded files of a run change: PATTERN is a path, a folder or a glob.

    For a change that blocks completion and is right all the same: a removed test, a CI file you asked for.
    `untildone status RUN` names it. No file is changed and nothing else is let pass; `untildone log RUN` keeps it.

    \b
      untildone waive importer tests/test_old.py ".github/workflows/*"

    A running run knows at once; resume one that stopped with `untildone resume RUN`.
    """  # noqa: D301 -- click wants the character itself
    if not all(pattern.strip() for pattern in patterns):
        raise UsageError("an empty pattern means no file: name a path, a folder or a glob")
    row, state, looks_again = asyncio.run(_waive(run, store_of(store), folder_of(cwd), patterns))
    passes = [finding for finding in state.findings if finding.blocking and matches(finding.path, patterns)]
    stays = [finding for finding in state.findings if finding.blocking and finding not in passes]
    if as_json:
        told = {"run_id": row.run_id, "name": row.name, "waived": list(patterns)}
        click.echo(
            json.dumps(told | {"lets_pass": [_as_json(f) for f in passes], "blocks": [_as_json(f) for f in stays]})
        )
        return
    for finding in passes:
        click.echo(f"lets pass  {_told(finding)}")
    for finding in stays:
        click.echo(f"blocks     {_told(finding)}")
    nothing = "" if passes else "; nothing that was found last is meant by that"
    click.echo(f"{row.name}: {', '.join(patterns)} may change{nothing}")
    if not row.alive:
        click.echo(
            f"resume it with `untildone resume {row.name}`" + (", which checks again first" if looks_again else "")
        )


async def _waive(run: str, store: Path, folder: Path, patterns: Sequence[str]) -> tuple[RunRow, LoopState, bool]:
    """The run, its state before, and whether its claim is looked at again."""
    async with opened(store) as log:
        row = await find_run(log, run, folder)
        state = await load_state(log, row.run_id)
        wiring.refuse_in_session(state)
        if state.phase == "completed":
            raise UsageError(f"{row.name} is done, nothing of this would reach it: start a new run with --waive")
        await log.append(row.run_id, [WaiverGiven(by=BY, patterns=tuple(patterns), user=_account())])
        return row, state, (await load_state(log, row.run_id)).claim_due


def _account() -> str:
    """By number where it has no name; the environment is not asked, which anybody can set."""
    with suppress(KeyError):
        return pwd.getpwuid(os.getuid()).pw_name
    return f"uid {os.getuid()}"


# --- accept --------------------------------------------------------------------------------------


@click.command()
@click.argument("run")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@place_options
@operator_only
def accept(run: str, store: str | None, cwd: str | None, *, as_json: bool) -> None:
    """Accept the tests and settings that a run changed, although the old ones do not hold on the new code.

    `untildone status RUN` and `untildone brief RUN` list what is disputed. The work then counts as done with the
    change, without another iteration, and every report says that it was accepted and not verified.

    \b
      untildone accept importer
      untildone resume importer
    """  # noqa: D301 -- click wants the character itself
    row, disputed = asyncio.run(_accept(run, store_of(store), folder_of(cwd)))
    if as_json:
        click.echo(json.dumps({"run_id": row.run_id, "name": row.name, "accepted": disputed}))
        return
    for said in disputed:
        click.echo(f"accepted   {one_line(said, 200)}")
    if not row.alive:
        click.echo(f"resume it with `untildone resume {row.name}`, which checks again without another iteration")


async def _accept(run: str, store: Path, folder: Path) -> tuple[RunRow, list[str]]:
    """The run, and what was in dispute."""
    async with opened(store) as log:
        row = await find_run(log, run, folder)
        state = await load_state(log, row.run_id)
        wiring.refuse_in_session(state)
        if not state.disputed:
            raise UsageError(f"nothing of {row.name} is disputed: `untildone status {row.name}` shows its state")
        await log.append(row.run_id, [DisputeAccepted(by=BY, disputed=state.disputed)])
        return row, list(state.disputed)


def _told(finding: Finding) -> str:
    return one_line(f"{finding.place}: {finding.kind.replace('_', ' ')} {finding.text}")


def _as_json(finding: Finding) -> dict[str, Any]:
    return {"kind": finding.kind, "path": finding.path, "line": finding.line}


# --- land ----------------------------------------------------------------------------------------


@click.command(cls=ThemedCommand)
@click.argument("run", metavar="[RUN]", required=False)
@setting_options(_LANDING)
@_shaped
@click.option("--cwd", metavar="DIR", help="Without RUN, the folder whose run is meant.")
@operator_only
def land(run: str | None, cwd: str | None, *, as_json: bool, shape: str | None, detach: bool, **given: Any) -> int:
    """Bring what a run has finished to its base: after a failed landing, or in another way than it was agreed.

    Only what the checks let pass lands. The base only ever moves forward, nothing is pushed by force, and a landing
    that fails again leaves branch and commits as they are, and the pull request unless --close-failed-pr is given.

    \b
      untildone land importer                              try again
      untildone land importer --land merge --base develop  in another way

    `untildone status RUN` says what blocks it. Without RUN: the run of this folder.
    """  # noqa: D301 -- click wants the character itself
    store = store_of(given.pop("store"))
    output = Output(verbose=bool(given.pop("verbose")), quiet=bool(given.pop("quiet")), json=as_json, format=shape)
    typed = {name: raw for name, raw in given.items() if raw is not None and raw != ()}
    if detach:
        from untildone.cli.detaching import hand_over

        return hand_over(foreground(_planned_landing(run, store, cwd, typed)), store, output)
    return foreground(_land(run, store, cwd, typed, output))


async def _land(run: str | None, store: Path, cwd: str | None, typed: dict[str, Any], output: Output) -> int:
    async with opened(store) as log:
        return await drive_chain(log, await _landing_job(log, run, cwd, typed), store, output)


async def _planned_landing(run: str | None, store: Path, cwd: str | None, typed: dict[str, Any]) -> Job:
    async with opened(store) as log:
        return await _landing_job(log, run, cwd, typed)


async def _landing_job(log: EventLog, run: str | None, cwd: str | None, typed: dict[str, Any]) -> Job:
    row = await find_run(log, run, folder_of(cwd), acting=True)
    state = await load_state(log, row.run_id)
    wiring.refuse_in_session(state)
    if row.alive:
        raise UsageError(f"{row.name} is running and lands by itself: `untildone status {row.name}` says how far it is")
    now = wiring.system_clock().now()
    asked: list[SettingsChanged] = []
    if typed:
        spec, policy = config.changed(typed, state.spec, state.policy, now=now)
        asked = [settings_changed(BY, (state.spec, state.policy), spec, policy)]
    if (place := trees.lasting_folder(state.spec, state.arrival.branch)) not in {None, Path(state.spec.cwd)}:
        # Its worktree is gone; its branch is in the repository all the same.
        last = asked[-1] if asked else SettingsChanged(by=BY, policy=state.policy, spec=state.spec)
        asked = [replace(last, spec=replace(last.spec, cwd=str(place)))]
    refuse_if_nothing_to_land(row.name, state, asked, now)
    return Job(run_id=row.run_id, before=tuple(asked), greeting=f"landing {row.name}")


def refuse_if_nothing_to_land(name: str, state: LoopState, asked: Sequence[Event], now: float) -> None:
    """UsageError unless the first thing a new driver would do is to land, or to look at what is to land."""
    driver = ContinuousResumed(pid=0, host="", version="", lease=0)
    records = (Record(seq=state.last_seq + n, at=now, event=e) for n, e in enumerate((*asked, driver), 1))
    taken_up = fold(records, state)
    how = taken_up.spec.landing.land
    if how not in {"merge", "pr"}:
        raise UsageError(f"{name} lands nothing (--land {how}): say `untildone land {name} --land merge`, or --land pr")
    if taken_up.last_commit is None:
        raise UsageError(f"{name} has committed nothing: there is nothing to land")
    if has_arrived(taken_up):
        where = taken_up.arrival.base or "its base"
        raise UsageError(f"all that {name} committed is in {where} already: there is nothing to land")
    if not isinstance(decide(taken_up, now), Land | Verify):
        raise UsageError(f"{name} is not done, so there is nothing to land yet: `untildone resume {name}` goes on")


# --- rewind --------------------------------------------------------------------------------------


@click.command()
@click.argument("run")
@click.argument("number", metavar="N", type=click.IntRange(min=0))
@click.option("--dry-run", is_flag=True, help="Say what would change; change nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@place_options
@operator_only
def rewind(run: str, number: int, store: str | None, cwd: str | None, *, dry_run: bool, as_json: bool) -> None:
    """Put the tree back to where it was after iteration N; 0 is before the first. What is there is saved first.

    Files, index and branch are as they were then, untracked files included. Nothing is lost: you are told under which
    name the present state is kept. Ignored files are left alone, and a running run must be stopped first.

    \b
      untildone rewind importer 3 --dry-run   what would change
      untildone rewind importer 3

    `untildone replay RUN` lists the iterations; `untildone resume RUN` goes on from there.
    """  # noqa: D301 -- click wants the character itself
    asyncio.run(_rewind(run, number, store_of(store), folder_of(cwd), dry_run=dry_run, as_json=as_json))


async def _rewind(run: str, number: int, store: Path, folder: Path, *, dry_run: bool, as_json: bool) -> None:
    async with opened(store) as log:
        row, state = await _known_iteration(log, run, folder, number)
        if row.alive:
            raise UsageError(f"{row.name} is running: `untildone stop {row.name}` first")
        spec, branch = state.spec, state.arrival.branch
        if not Path(spec.cwd).is_dir():
            way = f"`untildone fork {row.name} --from {number}` takes what it was after iteration {number} to a new one"
            raise UsageError(f"{spec.cwd} is gone, so there is no tree to put back: {way}")
        repository, target = await trees.snapshot_after(spec, row.run_id, number, store)
        prefix = spec.branch_prefix if spec.branch_per == "iteration" else None
        if dry_run:
            lines = await trees.changes_of_rewind(repository, row.run_id, target, branch=branch, prefix=prefix)
            if as_json:
                click.echo(json.dumps({"run_id": row.run_id, "to": number, "commit": target.commit, "changes": lines}))
            else:
                click.echo("\n".join(lines) or "nothing would change")
            return
        # The lease keeps drivers away while the tree moves under them.
        lease = await log.acquire(row.run_id, name=row.name, folder=row.folder)
        try:
            went = await trees.go_back(repository, row.run_id, target, branch=branch, prefix=prefix)
            event = Rewound(by=BY, iteration_num=number, commit=went.commit, saved=went.saved, head=target.head)
            await log.append(row.run_id, [event], lease=lease)
        finally:
            await log.release(lease, status=row.status)
        view = run_view(await load_state(log, row.run_id), wiring.system_clock().now(), alive=False)
    if as_json:
        click.echo(json.dumps({"run_id": row.run_id, "to": number, "commit": went.commit, "saved": went.saved}))
        return
    for line in went.lines:
        say(line)
    git = trees.git_words(repository)
    back = f"{git} read-tree -m -u HEAD {went.saved}"
    click.echo(f"{row.name} is back after iteration {number} ({short_commit(went.commit)})")
    click.echo(
        f"what was there is kept as {went.saved} (`{git} diff {went.saved}` compares; `{back}` brings files back)"
    )
    if state.phase != "completed":
        click.echo(view.advice)


async def _known_iteration(log: EventLog, run: str, folder: Path, number: int) -> tuple[RunRow, LoopState]:
    row = await find_run(log, run, folder)
    state = await load_state(log, row.run_id)
    wiring.refuse_in_session(state)
    if number > state.attempts:
        had = count(state.attempts, "iteration")
        raise UsageError(f"{row.name} has had {had}: name one of them, or 0 for the tree it began with")
    return row, state


# --- fork ----------------------------------------------------------------------------------------


@click.command(cls=ThemedCommand)
@click.argument("run")
@click.argument("goal", nargs=-1)
@click.option("--from", "number", metavar="N", type=click.IntRange(min=0), required=True, help="After this iteration.")
@click.option("--no-start", is_flag=True, help="Only make the worktree; start nothing in it.")
@setting_options(_CHANGEABLE)
@_shaped
@click.option("--cwd", metavar="DIR", help="For this folder instead of the current one.")
@operator_only
def fork(run: str, goal: tuple[str, ...], number: int, *, no_start: bool, **given: Any) -> int:
    """Start a new run in a new worktree, from where RUN was after iteration N, with its goal or another.

    RUN itself, its folder and its branch are left as they are; it may even be running. Checks and limits are those of
    RUN unless you give others.

    \b
      untildone fork importer --from 3 "Try it with a state machine instead"

    `untildone replay RUN` lists the iterations; `untildone worktrees ls` shows the new tree afterwards.
    """  # noqa: D301 -- click wants the character itself
    cwd, detach = given.pop("cwd"), given.pop("detach")
    store = store_of(given.pop("store"))
    output = Output(
        verbose=bool(given.pop("verbose")), quiet=bool(given.pop("quiet")), json=given.pop("as_json"),
        format=given.pop("shape"),
    )  # fmt: skip
    parent = given.pop("worktree_base_dir")
    typed = {name: raw for name, raw in given.items() if raw is not None and raw != ()}
    changes = Changes(goal=" ".join(goal), typed=typed, parent=parent)
    spec, policy, said = foreground(_fork(run, number, store, folder_of(cwd), changes))
    if no_start:
        start = f"untildone run {quote(one_line(spec.goal))} --cwd {quote(spec.cwd)} --name {quote(spec.name)} -m N"
        told = f"{said}\nnothing works there yet: start it with `{start}` and the checks it is to pass"
        click.echo(json.dumps({"folder": spec.cwd, "name": spec.name}) if output.json else told)
        return 0
    job = Job(run_id=wiring.new_run_id(), begin=(spec, policy), greeting=said)
    if detach:
        from untildone.cli.detaching import hand_over

        return hand_over(job, store, output)
    return foreground(_start(job, store, output))


async def _start(job: Job, store: Path, output: Output) -> int:
    async with opened(store) as log:
        return await drive_chain(log, job, store, output)


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What is to be different in the new run."""

    goal: str
    typed: dict[str, Any]
    parent: str | None
    """The folder for its worktree."""


async def _fork(run: str, number: int, store: Path, folder: Path, changes: Changes) -> tuple[RunSpec, Policy, str]:
    async with opened(store) as log:
        row, state = await _known_iteration(log, run, folder, number)
        names = {other.name for other in await log.runs()}
    place = trees.lasting_folder(state.spec, state.arrival.branch)
    if place is None:
        raise UsageError(f"{state.spec.cwd} is gone, and no repository is known that has its branch")
    goal = changes.goal or state.spec.goal
    spec, policy = replace(state.spec, goal=goal, cwd=str(place), then=()), state.policy
    if changes.typed:
        spec, policy = config.changed(changes.typed, spec, policy, now=wiring.system_clock().now())
    if not policy.unbounded and not has_finite_limit(policy):
        raise UsageError("nothing would limit the new run: set at least one limit, or give --unbounded")
    name = _free(f"{row.name}-from-{number}", names)
    repository, target = await trees.snapshot_after(spec, row.run_id, number, store)
    base = state.arrival.base
    made = await trees.make_fork(repository, target, spec, name=name, parent=changes.parent, base=base)
    where = f" on branch {made.branch}" if made.branch else ""
    own = str(made.top) if made.branch else None
    if made.branch:  # a fork that was not started yet has the plain name
        name += made.branch.removeprefix(spec.branch_prefix + slug(name))
    said = f"{name} is in {made.folder}{where}, from where {row.name} was after iteration {number}"
    keep = spec.keep_dirty or target.head != target.commit  # what the iteration left uncommitted is the fork's own
    return replace(spec, name=name, cwd=str(made.folder), repository=own, keep_dirty=keep), policy, said


def _free(wanted: str, taken: set[str]) -> str:
    names = (wanted if number == 1 else f"{wanted}-{number}" for number in range(1, len(taken) + 2))
    return next(name for name in names if name not in taken)

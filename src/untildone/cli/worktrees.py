"""`worktrees ls` and `worktrees reclaim`: the trees that were made for runs, and which of them may go."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from untildone import trees
from untildone.cli.driving import opened
from untildone.cli.guarding import operator_only
from untildone.cli.options import folder_of, place_options, store_of
from untildone.cli.streams import say
from untildone.cli.tables import aligned
from untildone.core.figures import count, size
from untildone.core.policy import AgentOptions
from untildone.core.printable import one_line
from untildone.errors import UsageError
from untildone.git.repository import Repository
from untildone.git.worktree_fate import Fate
from untildone.git.worktrees import reclaimable, remove

T = TypeVar("T")
_BRANCH = 60


@click.group()
def worktrees() -> None:
    """The worktrees of this repository: which there are, and which may go.

    No worktree is removed by looking, and branches are never deleted.

    \b
      untildone worktrees ls
      untildone worktrees reclaim

    `untildone run "GOAL" --worktree` makes one.
    """  # noqa: D301 -- click wants the character itself


@worktrees.command()
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
@place_options
def ls(store: str | None, cwd: str | None, *, as_json: bool) -> None:
    """List all trees, with branch, run and state.

    Whether one may go is the last column; `untildone worktrees reclaim` removes those. No worktree is changed here.

    \b
      untildone worktrees ls --json
    """  # noqa: D301 -- click wants the character itself
    click.echo(listing(store, cwd, as_json=as_json))


@worktrees.command()
@click.option("--yes", is_flag=True, help="Remove them without asking.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list of what was, or would be, removed.")
@place_options
@operator_only
def reclaim(store: str | None, cwd: str | None, *, yes: bool, as_json: bool) -> None:
    """Remove worktrees that hold nothing of their own.

    Says first which, and why the others stay; then it asks. Never removed: a tree that a run works in, that has
    uncommitted files, whose commits are not all in its base, or that untildone did not make. Branches are kept.

    \b
      untildone worktrees reclaim         look, and be asked
      untildone worktrees reclaim --yes

    `untildone worktrees ls` shows what is left.
    """  # noqa: D301 -- click wants the character itself

    async def look(repository: Repository, live: Sequence[str]) -> list[Fate]:
        fates = await reclaimable(repository, live=live)
        return [fate for fate in fates if not fate.tree.main]

    async def sweep(repository: Repository, live: Sequence[str]) -> list[Fate]:
        return [await remove(repository, fate.tree.path, live=live) for fate in fates if fate.reclaimable]

    fates = _with_repository(store, cwd, look)
    if not as_json:
        click.echo(_fates_text(fates))
    goes = [fate for fate in fates if fate.reclaimable]
    asked = yes or (bool(goes) and not as_json and sys.stdin.isatty() and click.confirm("Remove them?"))
    gone = _with_repository(store, cwd, sweep) if goes and asked else []
    if as_json:
        done = {fate.tree.path for fate in gone if fate.reclaimable}
        click.echo(json.dumps([_fate_json(fate) | {"removed": fate.tree.path in done} for fate in fates]))
    elif goes:
        removed = sum(fate.reclaimable for fate in gone)
        click.echo(f"removed {count(removed, 'worktree')}" if asked else "nothing was removed: --yes does it")


def listing(store: str | None, cwd: str | None, *, as_json: bool) -> str:
    """All trees of a repository, one a line."""

    async def look(repository: Repository, live: Sequence[str]) -> list[Fate]:
        return await reclaimable(repository, live=live)

    fates = _with_repository(store, cwd, look)
    if as_json:
        return json.dumps([_fate_json(fate) for fate in fates])
    return aligned([("FOLDER", "BRANCH", "RUN", "SIZE", "STATE"), *map(_row, fates)])


def list_and_leave(ctx: click.Context, _: click.Parameter, value: Any) -> None:
    """`--list-worktrees`, as people know it from elsewhere."""
    if value and not ctx.resilient_parsing:
        click.echo(listing(None, None, as_json=False))
        ctx.exit()


def _with_repository(
    store: str | None, cwd: str | None, work: Callable[[Repository, Sequence[str]], Awaitable[T]]
) -> T:
    place, folder = store_of(store), folder_of(cwd)

    async def ask() -> T:
        repository = await trees.repository_of(folder, place, AgentOptions())  # who worked there is not known
        if repository.private and len(await reclaimable(repository)) == 1:
            raise UsageError(f"{folder} is in no git repository: only those have worktrees")
        async with opened(place) as log:
            if left := await trees.sweep_rooms(log, place):
                say(f"removed {count(left, 'fresh checkout')} that killed runs left behind")
            live = [row.folder for row in await log.runs() if row.alive]
        return await work(repository, live)

    return asyncio.run(ask())


def _row(fate: Fate) -> tuple[str, ...]:
    tree = fate.tree
    state = "its own tree" if tree.main else f"may go: {fate.why}" if fate.reclaimable else fate.why
    return (
        one_line(str(tree.path)),
        one_line(tree.branch or ("(no git)" if tree.plain else "(detached)"), _BRANCH),
        tree.run_id or "-",
        size(tree.size) if tree.size else "-",
        one_line(state),
    )


def _fates_text(fates: Sequence[Fate]) -> str:
    if not fates:
        return "there is no worktree besides the repository's own tree"
    return "\n".join(
        f"{'remove' if fate.reclaimable else 'keep  '}  {one_line(str(fate.tree.path))}: {one_line(fate.why)}"
        for fate in fates
    )


def _fate_json(fate: Fate) -> dict[str, Any]:
    tree = fate.tree
    return {
        "path": str(Path(tree.path)), "branch": tree.branch, "base": tree.base, "run_id": tree.run_id or None,
        "main": tree.main, "ours": tree.ours, "live": tree.live, "dirty": tree.dirty, "unmerged": tree.unmerged,
        "size": tree.size, "reclaimable": fate.reclaimable, "why": fate.why,
    }  # fmt: skip

"""Where checks run if the agent works in a sandbox: walls like the agent's, with the commit in place of its tree.

A check runs what the agent wrote. So it has a view, an environment and a way out like the agent, but no way to the
model, and a home and temporary files that are thrown away.
"""

import asyncio
import os
import secrets
import shutil
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from untildone.errors import CommitUnfit, WorkspaceError
from untildone.ports import Process
from untildone.ports.delivery import Bind, Checkout, Start
from untildone.sandbox.agents_view import mask_sockets
from untildone.sandbox.boxed import BoxedSpawner
from untildone.sandbox.clean_room import is_free, lent_by_path
from untildone.sandbox.view import TEMPORARY, Mount, View, held

Rule = Callable[[Mapping[str, str], View], Mapping[str, str]]
"""What of an environment is seen by what has a view."""
_TOGETHER = ("/bin/sh", "-c", 'exec 2>&1; exec /bin/sh -c "$1"', "sh")
"""Before a command: all that it prints is one output, in its order."""


class CheckRoom:
    """ports.Enclosure."""

    def __init__(
        self,
        spawner: BoxedSpawner,
        seen: View,
        *,
        env: Mapping[str, str],
        rule: Rule,
        tree: Callable[[], Iterable[Mount]],
    ) -> None:
        """`seen`: what is seen beside the commit, found out before anything has run inside.

        `env` is the user's, `rule` says what of one is for checks, and `tree` is what they see in the tree itself.
        """
        self.spawner = spawner
        self._seen = seen
        self._env = env
        self._rule = rule
        self._tree = tree

    def borrowed(self, checkout: Checkout) -> tuple[Bind, ...]:
        """ports.Enclosure."""
        return tuple(bind for bind in lent_by_path(self._env, checkout) if not self._leads_to(bind, checkout))

    def enter(
        self,
        checkout: Checkout,
        *,
        lent: Sequence[Bind] = (),
        programs: Sequence[str] = (),  # noqa: ARG002 - as they were at the start
    ) -> Callable[[str], Start]:
        """ports.Enclosure. The programs are those that were there when the run began."""
        for bind in lent:
            if elsewhere := self._leads_to(bind, checkout):
                raise CommitUnfit(f"{bind.place} leads to {elsewhere}, which an agent in a sandbox must not decide")
        trees = [Path(os.path.realpath(tree)) for tree in checkout.trees]
        free = [tree for tree in trees if is_free(tree, trees, Path(checkout.top))]
        binds = [Bind(source=checkout.top, place=str(tree), writable=True) for tree in free] + [*lent, *checkout.git]
        seen = self._moved(Path(checkout.around), map(_mount, binds), without=trees)
        return lambda folder: partial(self._start, seen, folder)

    @asynccontextmanager
    async def in_tree(self) -> AsyncIterator[Callable[[str], Start]]:
        """The tree itself, as the agent sees it."""
        around = Path(self._seen.around, secrets.token_hex(4))
        try:
            seen = self._moved(around, self._tree())
            yield lambda folder: partial(self._start, seen, folder)
        finally:
            await asyncio.to_thread(shutil.rmtree, around, ignore_errors=True)

    def _leads_to(self, bind: Bind, checkout: Checkout) -> str:
        """Where it leads if that is beside what agent and checks see anyway; "" if it is not."""
        real = Path(os.path.realpath(bind.source))
        visible = [*map(os.path.realpath, checkout.trees), *(one.source for one in self._seen.mounts if one.source)]
        return "" if any(real.is_relative_to(place) for place in visible) else str(real)

    def _moved(self, around: Path, more: Iterable[Mount], without: Sequence[Path] = ()) -> View:
        """The view with a home and temporary files in another folder; the tools in these trees are not for checks."""
        mounts = {}
        for mount in self._seen.mounts:
            if mount.source and Path(mount.source).is_relative_to(self._seen.around):
                source = around / Path(mount.source).relative_to(self._seen.around)
                mounts[mount.place] = replace(mount, source=str(source))
            elif not any(Path(mount.place).is_relative_to(tree) for tree in without):
                mounts[mount.place] = mount
        try:
            (around / "home").mkdir(mode=0o700, parents=True, exist_ok=True)
            for name in TEMPORARY.values():
                (around / name).mkdir(exist_ok=True)
                (around / name).chmod(0o1777)
        except OSError as trouble:
            raise WorkspaceError(f"cannot make fresh folders in {around}: {trouble.strerror or trouble}") from trouble
        mounts |= {mount.place: mount for mount in more}
        return mask_sockets(replace(self._seen, mounts=held(mounts.values()), around=str(around)))

    async def _start(self, seen: View, folder: str, command: str, env: Mapping[str, str]) -> Process:
        given = self._rule(env, seen)
        return await self.spawner.spawn((*_TOGETHER, command), cwd=folder, env=given, stdin="null", seen=seen)


def _mount(bind: Bind) -> Mount:
    return Mount(place=bind.place, kind="write" if bind.writable else "read", source=bind.source)

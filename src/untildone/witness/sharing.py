"""Folders that a fresh checkout borrows from the tree: read-only where the system can do that, else by a link."""

import os
import shlex
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from untildone.core.dataclass import dataclass
from untildone.errors import CommitUnfit, WorkspaceError
from untildone.witness.command import run_command
from untildone.witness.leading_back import leads_back

_PROBE_TIMEOUT = 10.0


@dataclass(frozen=True, slots=True)
class Shared:
    """How commands are run so that they see what is borrowed."""

    wrap: Callable[[str], str]
    notes: tuple[str, ...] = ()


NOTHING = Shared(lambda command: command)


async def can_bind() -> bool:
    """Whether bubblewrap is here and may do its work: containers and hardened systems forbid it."""
    if shutil.which("bwrap") is None:
        return False
    tried = await run_command("bwrap --dev-bind / / --ro-bind /usr /usr true", cwd="/", timeout=_PROBE_TIMEOUT)
    return tried.exit_code == 0


def share(folders: Sequence[str], *, tree: Path, room: Path, bind: bool) -> Shared:
    """Let a checkout see these folders of the tree. CommitUnfit when one is not there, or part of the commit."""
    if not folders:
        return NOTHING
    pairs = [_pair(folder, tree, room) for folder in folders]
    for source, _ in pairs:
        if back := leads_back(source, tree.resolve(), bound=bind):
            raise CommitUnfit(
                f"{source.name}/{back} leads back to {tree}: checks would see the tree there instead of the commit; "
                "do not share it, prepare the checkout with --setup"
            )
    try:
        for source, place in pairs:
            place.parent.mkdir(parents=True, exist_ok=True)
            if not bind:
                place.symlink_to(source)
            elif source.is_dir():
                place.mkdir()
            else:
                place.touch()
    except OSError as trouble:
        raise WorkspaceError(f"cannot share with {room}: {trouble.strerror or trouble}") from trouble
    if not bind:
        return Shared(NOTHING.wrap, (f"shared with the tree, writable: {', '.join(folders)}",))
    options = [word for source, place in pairs for word in ("--ro-bind", str(source), str(place))]
    return Shared(lambda command: _bound(options, command), (f"shared with the tree, read-only: {', '.join(folders)}",))


def _bound(options: Sequence[str], command: str) -> str:
    argv = ("bwrap", "--die-with-parent", "--dev-bind", "/", "/", *options, "--", "/bin/sh", "-c", command)
    return f"exec {shlex.join(argv)}"


def _pair(folder: str, tree: Path, room: Path) -> tuple[Path, Path]:
    """Where it is in the tree, and where it belongs in the room: inside, though links in a commit may lead anywhere."""
    name = os.path.normpath(folder)
    if Path(name).is_absolute() or name == "." or ".." in Path(name).parts:
        raise CommitUnfit(f"--share {folder} must name a folder below {tree}")
    source, place = tree / name, room / name
    if not source.exists():
        raise CommitUnfit(f"{folder} is to be shared with fresh checkouts, and is not in {tree}: make it there first")
    if os.path.lexists(place):
        raise CommitUnfit(f"{folder} is part of the commit: only what git ignores can be shared with fresh checkouts")
    if not place.parent.resolve().is_relative_to(room.resolve()):
        raise CommitUnfit(f"{folder} cannot be shared: a folder above it is a link that leads out of the checkout")
    return source.resolve(), place

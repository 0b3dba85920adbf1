"""What an agent in a sandbox sees: the public part of the system, the folder it works in, and a home of its own."""

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from untildone.core.dataclass import dataclass
from untildone.errors import NoSandbox, WorkspaceError
from untildone.sandbox.toolchains import BINS, MIXED, Surroundings, interpreters, toolchains
from untildone.sandbox.view import TEMPORARY, Mount, View

_PUBLIC = ("bin", "etc", "lib", "lib32", "lib64", "libx32", "nix", "opt", "sbin", "snap", "usr")
"""Folders at the root that are everybody's."""
_NOTHING = "/dev/null"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarters:
    """Where an agent lives, and what it is lent."""

    around: Path
    """A folder of this agent's own, outside of all it is lent: its home and its temporary files lie there."""
    home: Path
    """The user's, at whose path the agent finds its own."""
    writable: tuple[Path, ...]
    fixed: tuple[Path, ...] = ()
    """In those, what is only read; what is not there stays away."""
    lent: tuple[tuple[Path, Path, bool], ...] = ()
    """Source, place, and whether it may be written."""
    own: tuple[Path, ...] = ()
    """untildone's own folders, which no agent sees."""
    programs: tuple[str, ...] = ()
    of_image: bool = False
    """The system and its tools are those of an image: nothing of this machine's is lent but the programs."""


def view(quarters: Quarters, env: Mapping[str, str], *, root: bool, as_user: bool) -> View:
    """The view, and the folders it needs. NoSandbox for a folder that would lend out a whole home."""
    home = Path(os.path.realpath(quarters.home))
    for folder in quarters.writable:
        if home.is_relative_to(folder):
            raise NoSandbox(f"{folder} holds your home, and an agent in a sandbox works in a folder below it")
    hidden = tuple(place for name in _names("/") if name not in _PUBLIC and (place := Path("/", name)).is_dir())
    around = Surroundings(home=home, hidden=hidden, trees=quarters.writable, own=quarters.own)
    system = () if quarters.of_image else _system()
    mounts = {mount.place: mount for mount in (*system, *_own_folders(quarters.around, home))}
    for tool in _tools(quarters, env, around):
        mounts[tool.place] = tool
    for folder in quarters.writable:
        mounts[str(folder)] = Mount(place=str(folder), kind="write", source=str(folder))
    for folder in quarters.own:
        if any(folder.is_relative_to(seen) for seen in quarters.writable):
            mounts[str(folder)] = Mount(place=str(folder), kind="empty")
    for fixed in quarters.fixed:
        kept = Mount(place=str(fixed), kind="read", source=str(fixed))
        mounts[str(fixed)] = kept if fixed.exists() else Mount(place=str(fixed), kind="empty")
    for source, seen_at, may_write in quarters.lent:
        mounts[str(seen_at)] = Mount(place=str(seen_at), kind="write" if may_write else "read", source=str(source))
    named = {str(seen_at) for _, seen_at, _ in quarters.lent}
    mounts |= {
        place: Mount(place=place, kind="read", source=_NOTHING) for place in _sockets(mounts) if place not in named
    }
    return View(mounts=tuple(mounts.values()), whole_system=False, network=False, root=root, as_user=as_user)


def _tools(quarters: Quarters, env: Mapping[str, str], around: Surroundings) -> list[Mount]:
    if quarters.of_image:
        sources = {program: os.path.realpath(program) for program in quarters.programs}
    else:
        programs = (*quarters.programs, *interpreters(quarters.writable))
        found = toolchains(_naming_folders(env), programs, around)
        # The rest of those is the agent's own: what it downloads can be written, and no login lies there.
        mixed = [place / name for place in found if place.name in MIXED for name in BINS]
        lent = [*(place for place in found if place.name not in MIXED), *filter(Path.exists, mixed)]
        sources = {str(place): str(place) for place in lent}
    return [Mount(place=place, kind="read", source=source) for place, source in sources.items()]


def _naming_folders(env: Mapping[str, str]) -> dict[str, str]:
    """A variable that names a file may name a secret; tools are in folders."""
    places = {name: [word for word in value.split(os.pathsep) if word.startswith("/")] for name, value in env.items()}
    folders = {name for name, found in places.items() if found and all(map(os.path.isdir, found))}
    return {name: value for name, value in env.items() if name in folders or name == "PATH"}


def _system() -> Iterator[Mount]:
    for name in _PUBLIC:
        place = Path("/", name)
        if place.is_symlink():
            yield Mount(place=str(place), kind="link", source=str(place.readlink()))
        elif place.is_dir():
            yield Mount(place=str(place), kind="read", source=str(place))
    # Root reads what only root may read.
    for secret in _secrets(Path("/etc")):
        if secret.is_dir():
            yield Mount(place=str(secret), kind="empty")
        else:
            yield Mount(place=str(secret), kind="read", source=_NOTHING)


def _sockets(seen: Mapping[str, Mount]) -> list[str]:
    """Sockets of programs outside in what is seen: to connect to one is possible even where nothing can be written."""
    with suppress(OSError):
        lines = Path("/proc/net/unix").read_text("utf-8", "replace").splitlines()[1:]
        bound = dict.fromkeys(words[7] for line in lines if len(words := line.split(" ", 7)) > 7)  # noqa: PLR2004
        return [place for path in bound for place in _seen_at(path.strip(), seen) if stat.S_ISSOCK(_mode(path.strip()))]
    return []


def _seen_at(path: str, seen: Mapping[str, Mount]) -> list[str]:
    """Where something of this machine is seen."""
    sources = ((one.source, place) for place, one in seen.items() if one.kind in {"read", "write"})
    return [place + path[len(source) :] for source, place in sources if path == source or path.startswith(f"{source}/")]


def _mode(path: str) -> int:
    try:
        return os.lstat(path).st_mode
    except OSError:
        return 0


def _secrets(folder: Path) -> Iterator[Path]:
    """Files and folders that not everybody may read."""
    for name in _names(folder):
        place = folder / name
        with suppress(OSError):
            mode = place.lstat().st_mode
            if stat.S_ISLNK(mode):
                continue
            wanted = stat.S_IROTH | stat.S_IXOTH if stat.S_ISDIR(mode) else stat.S_IROTH
            if mode & wanted != wanted:
                yield place
            elif stat.S_ISDIR(mode):
                yield from _secrets(place)


def _own_folders(around: Path, home: Path) -> list[Mount]:
    """Folders on the disk, so that a second process of the same agent finds what the first one left."""
    made = {str(home): around / "home", **{place: around / name for place, name in TEMPORARY.items()}}
    try:
        for source in made.values():
            source.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as trouble:
        raise WorkspaceError(f"cannot make folders in {around}: {trouble.strerror or trouble}") from trouble
    return [Mount(place=place, kind="write", source=str(source)) for place, source in made.items()]


def _names(folder: str | Path) -> Sequence[str]:
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208 - names are what is wanted
    except OSError:
        return ()

"""What an agent in a sandbox sees: the public part of the system, the folder it works in, and a home of its own."""

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from untildone.core.dataclass import dataclass
from untildone.errors import AgentError, NoSandbox, WorkspaceError
from untildone.sandbox.toolchains import BINS, MIXED, Surroundings, steps_to, toolchains
from untildone.sandbox.view import TEMPORARY, Mount, View, held, make_places

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
    trees: tuple[Path, ...] = ()
    """Folders that an agent may have written to, and that are not written to from here."""
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
    """The view, and the folders it needs. To be asked before anything has run inside: it looks at what is there.

    NoSandbox for a folder that would lend out a whole home, and for what something inside could lead elsewhere.
    """
    home = Path(os.path.realpath(quarters.home))
    for folder in quarters.writable:
        if home.is_relative_to(folder):
            raise NoSandbox(f"{folder} holds your home, and an agent in a sandbox works in a folder below it")
    hidden = tuple(place for name in _names("/") if name not in _PUBLIC and (place := Path("/", name)).is_dir())
    around = Surroundings(home=home, hidden=hidden, trees=(*quarters.writable, *quarters.trees), own=quarters.own)
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
    masks = [one for one in _masks(mounts) if mounts.get(one.place) is None]
    seen = View(
        mounts=held((*mounts.values(), *masks)), whole_system=False, network=False, root=root, as_user=as_user,
        around=str(quarters.around),
    )  # fmt: skip
    try:
        make_places(seen)
    except AgentError as trouble:
        raise NoSandbox(str(trouble)) from trouble
    _refuse_steered(seen.mounts)
    return seen


def mask_sockets(seen: View) -> View:
    """The same without sockets that programs outside have bound since, in what is only read.

    In what may be written the way to one could lead elsewhere by now.
    """
    mounts = {mount.place: mount for mount in seen.mounts}
    new = [one for one in _masks(mounts) if one.place not in mounts and _around(one.place, mounts).kind == "read"]
    return replace(seen, mounts=(*seen.mounts, *new)) if new else seen


def _refuse_steered(mounts: Sequence[Mount]) -> None:
    """Nothing is lent whose way there something inside could change, while it is lent or before the next start."""
    by_place = {mount.place: mount for mount in mounts}
    written = [(Path(os.path.realpath(mount.source)), mount.place) for mount in mounts if mount.kind == "write"]
    for mount in mounts:
        if mount.kind not in {"read", "write"} or mount.source == _NOTHING:
            continue
        for step in steps_to(Path(mount.source)):
            for top, place in written:
                if step != top and step.is_relative_to(top) and not _is_held(step, top, place, by_place):
                    raise NoSandbox(
                        f"{mount.source} would be lent to the agent, which can replace {step} and so be lent anything: "
                        "put it elsewhere"
                    )


def _is_held(step: Path, top: Path, place: str, by_place: Mapping[str, Mount]) -> bool:
    """Whether nothing inside can change what is at a step, which lies below a folder that is seen at a place."""
    outside, inside = top, Path(place)
    for part in step.relative_to(top).parts:
        outside, inside = outside / part, inside / part
        mount = by_place.get(str(inside))
        if mount is None:
            return False
        if mount.kind != "write" or os.path.realpath(mount.source) != str(outside):
            return not outside.is_symlink()  # what is below cannot be reached or written through this place
    return True


def _tools(quarters: Quarters, env: Mapping[str, str], around: Surroundings) -> list[Mount]:
    if quarters.of_image:
        apart = [one for one in quarters.programs if not around.is_led_by_a_tree(Path(one))]
        sources = {program: os.path.realpath(program) for program in apart}
    else:
        found = toolchains(_naming_folders(env), quarters.programs, around)
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


def _masks(seen: Mapping[str, Mount]) -> list[Mount]:
    """In the place of sockets of programs outside: to connect to one is possible even where nothing can be written."""
    places: list[str] = []
    with suppress(OSError):
        lines = Path("/proc/net/unix").read_text("utf-8", "replace").splitlines()[1:]
        bound = dict.fromkeys(words[7].strip() for line in lines if len(words := line.split(" ", 7)) > 7)  # noqa: PLR2004
        places = [place for path in bound for place in _seen_at(path, seen) if stat.S_ISSOCK(_mode(path))]
    return [Mount(place=place, kind="read", source=_NOTHING) for place in places]


def _seen_at(path: str, seen: Mapping[str, Mount]) -> list[str]:
    """Where something of this machine is seen, and nothing on top of it; a way with links is none."""
    if os.path.realpath(os.path.dirname(path)) != os.path.dirname(path):  # noqa: PTH120 - text
        return []
    sources = ((one.source, place) for place, one in seen.items() if one.kind in {"read", "write"})
    found = [(place, place + path[len(source) :]) for source, place in sources if path.startswith(f"{source}/")]
    return [at for place, at in found if _around(at, seen).place == place]


def _around(place: str, seen: Mapping[str, Mount]) -> Mount:
    """The mount that a place lies in."""
    around = (seen[str(folder)] for folder in Path(place).parents if str(folder) in seen)
    return next(around, Mount(place="/", kind="empty"))


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

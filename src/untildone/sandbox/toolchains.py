"""Which folders a command needs besides the system's own: those that the user's PATH and environment lead to."""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from untildone.core.dataclass import dataclass

BINS = frozenset({"bin", ".bin", "sbin", "shims", "Scripts"})
"""What folders of programs are called: what lies beside one belongs to the same toolchain."""

_LIBRARIES = ("lib", "lib64")
_BESIDE = {".cargo": ".rustup"}
"""A toolchain whose programs are in another one: rustup keeps links in cargo's folder that only look like programs."""
MIXED = frozenset({".cargo", ".bun", ".deno", "go"})
"""Folders in which a tool keeps what it downloads, and logins, beside programs."""
_PRIVATE = (".ssh", ".aws", ".config", ".gnupg", ".kube", ".docker", ".netrc")
_AGENTS = ".claude"
OUTPUT = ("CARGO_TARGET_DIR", "CARGO_BUILD_TARGET_DIR")
"""Variables that name where a tool writes what it builds: that is no part of the tool."""
_NOT_ABOUT_TOOLS = ("HOME", "PWD", "OLDPWD", "TMPDIR", "TMP", "TEMP", *OUTPUT)
_NOT_ABOUT_TOOLS_PREFIXES = ("XDG_", "UNTILDONE_", "CLAUDE")
_STEPS = 10
_MOST_LINKS = 40
"""As the kernel follows on one way."""
_MOST = 400
"""Folders that are lent; a PATH that leads to more is a mistake."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What of the machine a command does not see, and what it must never see."""

    home: Path
    hidden: tuple[Path, ...]
    """Folders that are replaced by fresh ones."""
    trees: tuple[Path, ...]
    """Working trees of the repository: the checkout takes their place."""
    own: tuple[Path, ...]
    """untildone's own folders."""

    def hides(self, path: Path) -> bool:
        """Whether a path would not be there."""
        return any(path.is_relative_to(folder) for folder in self.hidden)

    def is_led_by_a_tree(self, path: Path) -> bool:
        """Whether something in a working tree decides where it leads: a commit or an agent may have put it there."""
        return any(step.is_relative_to(tree) for step in steps_to(path) for tree in self.trees)

    def is_private(self, path: Path) -> bool:
        """Whether it holds logins, settings or our own state."""
        first = path.relative_to(self.home).parts[:1] if path.is_relative_to(self.home) else ()
        if first and (first[0] in _PRIVATE or first[0].startswith(_AGENTS)):
            return True
        return any(path.is_relative_to(folder) for folder in self.own)

    def is_too_much(self, path: Path) -> bool:
        """Whether more than a toolchain lies in it: a home, a working tree, data of other programs."""
        whole = (self.home, self.home / ".local" / "share", *self.hidden, *self.trees, *self.own)
        return any(folder.is_relative_to(path) for folder in whole)


def toolchains(env: Mapping[str, str], programs: Iterable[str], around: Surroundings) -> list[Path]:
    """The hidden folders and files outside of the trees that PATH, the environment and these programs lead to."""
    found: dict[Path, None] = {}
    waiting = [place for folder in _on_path(env) for place in _toolchain(folder, around)]
    waiting += [place for place in _named(env) if not around.is_too_much(place)]
    waiting += [place for program in programs for place in _of_program(Path(program), around)]
    while waiting and len(found) < _MOST:
        place = waiting.pop()
        if place in found or around.is_led_by_a_tree(place):
            continue
        real = Path(os.path.realpath(place))
        if real != place:
            waiting.append(real)
        # One that may not even be looked at is nobody's tool here: pathlib would raise.
        if not around.hides(place) or not os.path.exists(real):  # noqa: PTH110
            continue
        if any(around.is_private(one) or around.is_too_much(one) for one in (place, real)):
            continue
        found[place] = None
        for target in linked_from(real):
            waiting += _of_program(target, around)
    return [place for place in found if not any(place.is_relative_to(other) for other in found if other != place)]


def interpreters(trees: Collection[Path]) -> list[str]:
    """The Pythons of virtual environments in these trees, such as uv's, which no PATH leads to.

    What a tree names may be anything: only what is a Python, with its own library beside it and outside of the trees,
    is returned, or an environment outside that a link in a tree leads to.
    """
    found: dict[str, None] = {}
    for place in (place for tree in trees for place in (*_folders(tree), *_folders_below(tree))):
        environment = Path(os.path.realpath(place))
        program = Path(os.path.realpath(environment / "bin" / "python"))
        if not _is_file(environment / "pyvenv.cfg") or any(program.is_relative_to(tree) for tree in trees):
            continue
        if any(program.parent.parent.glob("lib/python3*/os.py")):
            found[str(program)] = None
            if environment != place and not any(environment.is_relative_to(tree) for tree in trees):
                found[str(environment / "bin" / "python")] = None
    return list(found)


def steps_to(path: Path) -> Iterator[Path]:
    """Each place that is looked at on the way to what a path leads to, the last one included."""
    place, waiting, links = Path("/"), list(path.parts[1:]), 0
    while waiting and links < _MOST_LINKS:
        name = waiting.pop(0)
        place = place.parent if name == ".." else place / name
        yield place
        if os.path.islink(place):  # noqa: PTH114 - one that may not be looked at would raise
            target = os.readlink(place)  # noqa: PTH115 - text
            waiting = [*(part for part in Path(target).parts if part != "/"), *waiting]
            place, links = Path("/") if target.startswith("/") else place.parent, links + 1


def _folders_below(tree: Path) -> Iterator[Path]:
    for place in _folders(tree):
        if not place.name.startswith(".") and place.name != "node_modules" and not place.is_symlink():
            yield from _folders(place)


def _folders(place: Path) -> list[Path]:
    with suppress(OSError), os.scandir(place) as entries:
        return [Path(entry.path) for entry in entries if _is_folder(entry)]
    return []


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False


def lent_from_trees(env: Mapping[str, str], trees: Collection[Path]) -> list[Path]:
    """Folders in working trees that the user's own PATH or active environment leads to, such as `TREE/.venv`."""
    named = [*_on_path(env), *([Path(env["VIRTUAL_ENV"])] if env.get("VIRTUAL_ENV") else [])]
    whole = [folder.parent if folder.name in BINS and folder.parent not in trees else folder for folder in named]
    inside = [folder for folder in whole if any(folder.is_relative_to(tree) and folder != tree for tree in trees)]
    return [folder for folder in dict.fromkeys(inside) if folder.is_dir()]


def _on_path(env: Mapping[str, str]) -> list[Path]:
    return [Path(os.path.normpath(entry)) for entry in env.get("PATH", "").split(os.pathsep) if entry.startswith("/")]


def _named(env: Mapping[str, str]) -> Iterator[Path]:
    """The folders and files that variables name."""
    for name, value in env.items():
        if name == "PATH" or name in _NOT_ABOUT_TOOLS or name.startswith(_NOT_ABOUT_TOOLS_PREFIXES):
            continue
        for word in value.split(os.pathsep):
            if word.startswith("/") and (os.path.isdir(word) or os.path.isfile(word)):  # noqa: PTH112, PTH113
                yield Path(os.path.normpath(word))


def _toolchain(folder: Path, around: Surroundings) -> list[Path]:
    """All that belongs to a folder of programs: what lies beside it, or where too much does, the libraries."""
    if folder.name not in BINS or around.is_too_much(folder):
        return [] if around.is_too_much(folder) else [folder]
    whole = folder.parent
    if around.is_too_much(whole):
        return [folder, *(whole / name for name in _LIBRARIES if whole != around.home)]
    return [whole, *([whole.with_name(_BESIDE[whole.name])] if whole.name in _BESIDE else [])]


def _of_program(program: Path, around: Surroundings) -> list[Path]:
    """The toolchain of a program: what lies in its folder, unless that is too much."""
    if program.parent.name in BINS:
        return _toolchain(program.parent, around)
    return [program if around.is_too_much(program.parent) else program.parent]


def linked_from(place: Path) -> Iterator[Path]:
    """Where the links among the programs of a toolchain lead, each step of the way."""
    for folder in (place, *(place / name for name in BINS)):
        if folder.name not in BINS:
            continue
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                link = Path(entry.path)
                for _ in range(_STEPS):
                    if not link.is_symlink():
                        break
                    link = Path(os.path.normpath(link.parent / link.readlink()))
                    yield link
                yield Path(os.path.realpath(link))

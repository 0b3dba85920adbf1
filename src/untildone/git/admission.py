"""The gate between the repository of an agent in a sandbox and the user's: what the trees hold that are to come out.

A few objects can make a tree of a million paths, and a tree can hold another repository, whose settings git obeys.
So each tree is looked at once, however often it occurs, before any git walks its paths.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from untildone.core.dataclass import dataclass
from untildone.core.printable import one_line
from untildone.errors import WorkspaceError
from untildone.git.run import refuse_killed
from untildone.git.status import readable

if TYPE_CHECKING:
    from untildone.git.repository import Repository

MOST_PATHS = 300_000
"""Of a tree, more than the user's repository has."""
MOST_COMMITS = 100_000
_MOST_BYTES = 256 << 20
_DEEPEST = 500
_MOST_LINKS = 10_000
_AT_MOST = ("/bin/sh", "-c", f'ulimit -f {_MOST_BYTES >> 9}; exec "$@"', "sh")
_REPOSITORY, _TREE = b"160000", b"40000"


class Refused(WorkspaceError):
    """What the agent committed does not leave the sandbox: it can put that right."""


@dataclass(frozen=True, slots=True)
class _Facts:
    """What is below a tree."""

    paths: int
    depth: int
    links: tuple[bytes, ...]
    """Repositories inside the repository."""


class Gate:
    """What is known of trees stays known, so that later only what is new is looked at."""

    def __init__(self) -> None:
        self._facts: dict[bytes, _Facts] = {}
        self._most: int | None = None

    async def refuse_unfit(self, real: "Repository", tip: str, *, before: str | None, known: Iterable[Path]) -> None:
        """Refused if a commit that is new, or this one (or a tree), may not come out.

        `before` is what was checked out until now; `known` are places of repositories that are held fast.
        """
        listed = await real.git("rev-list", f"--max-count={MOST_COMMITS + 1}", tip, "--not", "--all", "--")
        commits = list(dict.fromkeys((tip, *listed.text.split())))
        if len(commits) > MOST_COMMITS:
            raise Refused(f"more than {MOST_COMMITS} commits at once do not leave the sandbox")
        found = await self._look(real, [f"{one}^{{tree}}" for one in (*commits, *([before] if before else []))])
        had = found.get(f"{before}^{{tree}}", _Facts(0, 0, ()))
        if self._most is None:
            self._most = had.paths + MOST_PATHS
        for commit in commits:
            facts = found[f"{commit}^{{tree}}"]
            if facts.paths > self._most or facts.depth > _DEEPEST:
                raise Refused(
                    f"there is a commit with {_many(facts)}, which does not leave the sandbox:{_undo(before)} "
                    "take out what does not belong in it"
                )
            tops = {bytes(place.relative_to(real.top)) for place in known if place.is_relative_to(real.top)}
            if new := sorted({*facts.links} - {*had.links} - tops):
                names = " ".join(one_line(readable(path), 80) for path in new[:3])
                raise Refused(
                    f"there is a commit with a repository inside the repository ({names}), which does not leave the "
                    f"sandbox:{_undo(before)} `git rm -r -q -f --cached {names}` take it out again"
                )

    async def _look(self, real: "Repository", names: list[str]) -> dict[str, _Facts]:
        """The facts about each of these trees, by the name it was asked for."""
        roots: dict[str, bytes] = {}
        entries: dict[bytes, list[tuple[bytes, bytes, bytes]]] = {}
        asked, left, depth = [name.encode() for name in names], _MOST_BYTES, 0
        while asked:
            told = await real.git(
                "cat-file", "--batch", stdin=b"".join(one + b"\n" for one in asked), within=_AT_MOST, most=left,
                check=False,
            )  # fmt: skip
            refuse_killed(told, "cat-file")
            left -= len(told.out)
            trees = list(_trees(told.out))
            if told.code or left <= 0 or len(trees) != len(asked) or depth > _DEEPEST:
                raise Refused("there is a commit with too many files, or too deep folders, to leave the sandbox")
            if not depth:
                roots = dict(zip(names, (name for name, _ in trees), strict=True))
            entries |= {name: list(_entries(raw, len(name) // 2)) for name, raw in trees if name not in self._facts}
            below = {oid for name, _ in trees for kind, _, oid in entries.get(name, ()) if kind == _TREE}
            asked, depth = [oid for oid in below if oid not in entries and oid not in self._facts], depth + 1
        self._reckon(entries)
        return {name: self._facts[oid] for name, oid in roots.items()}

    def _reckon(self, entries: Mapping[bytes, list[tuple[bytes, bytes, bytes]]]) -> None:
        """From the leaves up, without recursion: folders may be deep."""
        waiting = [*entries]
        while waiting:
            name = waiting[-1]
            missing = [oid for kind, _, oid in entries[name] if kind == _TREE and oid not in self._facts]
            if missing and name not in self._facts:
                waiting += missing
                continue
            waiting.pop()
            if name not in self._facts:
                self._facts[name] = self._sum(entries[name])

    def _sum(self, entries: list[tuple[bytes, bytes, bytes]]) -> _Facts:
        paths, depth = 0, 0
        links: list[bytes] = []
        for kind, name, oid in entries:
            if kind != _TREE:
                paths += 1
                links += [name] if kind == _REPOSITORY else []
                continue
            below = self._facts[oid]
            paths, depth = paths + below.paths, max(depth, below.depth)
            if len(links) < _MOST_LINKS:
                links += [name + b"/" + link for link in below.links]
        # Where there are so many, the paths are too many as well.
        return _Facts(paths + (MOST_PATHS << 8 if len(links) > _MOST_LINKS else 0), depth + 1, tuple(links))


def new_links(raw: bytes) -> Iterator[bytes]:
    """Paths that are repositories of their own now, and were not before: from what `--raw -z` printed."""
    words = iter(raw.split(b"\0"))
    for word in words:
        facts = word.lstrip(b"\n").split(b" ")
        if facts[0].startswith(b":"):
            path = next(words, b"")
            if facts[1] == _REPOSITORY and facts[0] != b":" + _REPOSITORY:
                yield path


def _trees(out: bytes) -> Iterator[tuple[bytes, bytes]]:
    """What `cat-file --batch` printed."""
    place = 0
    while place < len(out):
        end = out.find(b"\n", place)
        facts = out[place:end].split(b" ")
        if end < 0 or len(facts) != 3 or facts[1] != b"tree":  # noqa: PLR2004 - name, kind, size
            return
        start, size = end + 1, int(facts[2])
        if start + size > len(out):
            return
        yield facts[0], out[start : start + size]
        place = start + size + 1


def _entries(raw: bytes, length: int) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Mode, name, object of each entry of a tree."""
    place = 0
    while place < len(raw):
        blank = raw.index(b" ", place)
        end = raw.index(b"\0", blank)
        yield raw[place:blank], raw[blank + 1 : end], raw[end + 1 : end + 1 + length].hex().encode()
        place = end + 1 + length


def _many(facts: _Facts) -> str:
    return f"folders {facts.depth} deep" if facts.depth > _DEEPEST else f"{facts.paths} files"


def _undo(before: str | None) -> str:
    return f" `git reset --soft {before[:10]}` and" if before else ""

"""Runs that land on the same base stand in line. Whoever has the turn lands all that wait, and asks them to look.

The line is a folder in the repository's git folder. Each run that waits has a file there and holds a lock on it, so
that everybody sees when it is gone; the turn is a lock as well. Both end with their holder, however it ends. All
other files are letters: what is to be looked at, what was seen, what came of it. Each is about one commit by its
hash, so that a letter a dead run left behind is at worst of no interest.
"""

import fcntl
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import quote

from untildone.core.dataclass import dataclass
from untildone.git.merging import Strategy, Work
from untildone.git.run import disk_trouble

T = TypeVar("T")

Cause = Literal["landed", "conflict", "checks", "base"]

_HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_STRATEGIES: tuple[Strategy, ...] = ("squash", "merge", "rebase")
_CAUSES: tuple[Cause, ...] = ("landed", "conflict", "checks", "base")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came of a run's wish to land."""

    commit: str
    cause: Cause
    detail: str = ""


class Queue:
    """The line of those who wait to land on one base."""

    def __init__(self, git_folder: Path, base: str) -> None:
        self._folder = git_folder / "untildone" / "queue" / quote(base, safe="")

    @contextmanager
    def standing(self, work: Work) -> Iterator["Place"]:
        """Stand in line as long as the block lasts."""
        name = quote(work.run_id, safe="")
        with disk_trouble(f"cannot stand in line in {self._folder}"):
            self._folder.mkdir(parents=True, exist_ok=True)
            for old in (*self._folder.glob(f"{name}.*.draft"), *self._folder.glob(f"{name}.[as]*")):
                old.unlink(missing_ok=True)
            lock = self._enter(name, work)
        try:
            yield Place(self._folder, work)
        finally:
            with suppress(OSError):
                _remove_own(self._folder / f"{name}.work", lock)
            os.close(lock)

    def _enter(self, name: str, work: Work) -> int:
        """The entry is locked before anybody can see it: nobody ever takes it for that of a dead run."""
        draft = self._folder / f"{name}.{os.getpid()}.draft"
        file = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        fcntl.flock(file, fcntl.LOCK_EX)
        os.write(file, json.dumps(asdict(work)).encode())
        draft.replace(self._folder / f"{name}.work")
        return file


class Place:
    """A run's place in the line, with what it sees from there."""

    def __init__(self, folder: Path, work: Work) -> None:
        self._folder = folder
        self._work = work
        self._turn: int | None = None

    def take_turn(self) -> bool:
        """Be the one who lands, if nobody is."""
        with disk_trouble(f"cannot take turns in {self._folder}"):
            file = os.open(self._folder / "turn", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return False
        self._turn = file
        return True

    def end_turn(self) -> None:
        """Let the next one."""
        (self._folder / "asked").unlink(missing_ok=True)
        if self._turn is not None:
            os.close(self._turn)
            self._turn = None

    def answer(self) -> Answer | None:
        """What somebody else who had the turn did with this run's work."""
        found = self._read(f"{self._name(self._work.run_id)}.answer", _answer)
        return found if found and found.commit == self._work.commit else None

    def asked(self) -> str | None:
        """The commit that this run is to look at and has not yet."""
        letter = self._read("asked", _question)
        if letter is None or self._work.run_id not in letter[1]:
            return None
        commit = letter[0]
        return commit if self.said(self._work.run_id, commit) is None else None

    def say(self, commit: str, wrong: str) -> None:
        """Tell what this run saw."""
        self._write(f"{self._name(self._work.run_id)}.said", {"commit": commit, "wrong": wrong})

    def others(self) -> list[Work]:
        """Who else waits, longest first; what the dead left behind is removed."""
        return [work for _, work in self._entries()]

    def ahead(self) -> list[Work]:
        """Who came before this run; all others, where one of them got the turn first."""
        entries = self._entries()
        try:
            since = (self._folder / f"{self._name(self._work.run_id)}.work").stat().st_mtime_ns
        except OSError:
            since = 0
        return [work for came, work in entries if came < since] or [work for _, work in entries]

    def _entries(self) -> list[tuple[int, Work]]:
        entries = []
        for path in self._folder.glob("*.work"):
            work = self._read(path.name, _work)
            if work is not None and work.run_id == self._work.run_id:
                continue
            if work is None or not _is_held(path):
                path.unlink(missing_ok=True)
                continue
            with suppress(FileNotFoundError):
                entries.append((path.stat().st_mtime_ns, work.run_id, work))
        return [(came, work) for came, _, work in sorted(entries, key=lambda entry: entry[:2])]

    def waits(self, work: Work) -> bool:
        """Whether this run is there and wants the same still."""
        if work == self._work:
            return True
        name = f"{self._name(work.run_id)}.work"
        return _is_held(self._folder / name) and self._read(name, _work) == work

    def ask(self, commit: str, runs: Sequence[str]) -> None:
        """Have these runs look at a commit."""
        self._write("asked", {"commit": commit, "runs": list(runs)})

    def said(self, run_id: str, commit: str) -> str | None:
        """What a run saw on this commit ("": all is well); None: it has not said yet."""
        letter = self._read(f"{self._name(run_id)}.said", _said)
        return letter[1] if letter is not None and letter[0] == commit else None

    def give(self, run_id: str, answer: Answer) -> None:
        """Tell a run what came of its wish."""
        self._write(f"{self._name(run_id)}.answer", asdict(answer))

    def _name(self, run_id: str) -> str:
        return quote(run_id, safe="")

    def _write(self, name: str, letter: dict[str, Any]) -> None:
        with disk_trouble(f"cannot write to {self._folder}"):
            draft = self._folder / f"{name}.{os.getpid()}.draft"
            draft.write_text(json.dumps(letter))
            draft.replace(self._folder / name)

    def _read(self, name: str, make: Callable[[dict[str, Any]], T]) -> T | None:
        """A letter that is not there, or that nobody of us wrote, says nothing."""
        try:
            return make(json.loads((self._folder / name).read_text()))
        except (OSError, ValueError, TypeError, KeyError):
            return None


def _work(letter: dict[str, Any]) -> Work:
    strategy = _STRATEGIES[_STRATEGIES.index(letter["strategy"])]
    return Work(
        run_id=str(letter["run_id"]),
        commit=_commit(letter),
        message=str(letter["message"]),
        strategy=strategy,
        name=str(letter.get("name", "")),
    )


def _question(letter: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
    """A commit, and who is to look at it."""
    return _commit(letter), tuple(run for run in _list(letter["runs"]) if isinstance(run, str))


def _answer(letter: dict[str, Any]) -> Answer:
    cause = _CAUSES[_CAUSES.index(letter["cause"])]
    return Answer(commit=_commit(letter), cause=cause, detail=str(letter["detail"]))


def _said(letter: dict[str, Any]) -> tuple[str, str]:
    """A commit, and what a run saw there."""
    return _commit(letter), str(letter["wrong"])


def _commit(letter: dict[str, Any]) -> str:
    """A hash and nothing else: it becomes a word of git's command line."""
    commit = letter["commit"]
    if not isinstance(commit, str) or not _HASH.fullmatch(commit):
        raise ValueError(commit)
    return commit


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError
    return value


def _is_held(path: Path) -> bool:
    """Whether somebody living holds the lock on this file."""
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: two who look do not take each other for the owner
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


def _remove_own(path: Path, lock: int) -> None:
    """A newer driver of the same run may stand there by now."""
    if path.stat().st_ino == os.fstat(lock).st_ino:
        path.unlink(missing_ok=True)

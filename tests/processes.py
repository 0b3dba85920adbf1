"""Processes by their numbers, as /proc knows them."""

from collections.abc import Iterator
from pathlib import Path

from patience import soon


def state_of(pid: int) -> str:
    """The letter of its state; empty once it is gone. It may end while its file is read."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def is_alive(pid: int) -> bool:
    """Whether it still runs. A dead one stays as a zombie until its parent asks."""
    return state_of(pid) not in {"", "Z"}


def living_of(run_id: str) -> list[int]:
    """Living processes that carry the mark of this run."""
    marked = (pid for pid, environ in _all("environ") if f"UNTILDONE_RUN={run_id}".encode() in environ.split(b"\0"))
    return [pid for pid in marked if is_alive(pid)]


def commands_of_all() -> list[str]:
    """The command lines of all processes, as one would type them."""
    return [command.replace(b"\0", b" ").decode(errors="replace") for _, command in _all("cmdline")]


def _all(name: str) -> Iterator[tuple[int, bytes]]:
    """A file of each process. Some end while they are looked at."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            yield int(entry.name), (entry / name).read_bytes()
        except OSError:
            continue


async def until_dead(pid: int) -> None:
    """Wait for its end."""
    await soon(lambda: not is_alive(pid), f"the end of process {pid}")

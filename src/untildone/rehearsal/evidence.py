"""What a rehearsed run left behind, as facts: its events, the model's books, git, and the processes still alive."""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

from untildone.core import events as ev
from untildone.core.dataclass import dataclass
from untildone.core.events import Event, Record
from untildone.core.trace import AgentReply
from untildone.rehearsal.ledger import LedgerLine

MARKER = "UNTILDONE_RUN"
E = TypeVar("E", bound=Event)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Everything an act is judged by."""

    records: tuple[Record, ...] = ()
    """All events of the run, trace too."""
    ledger: tuple[LedgerLine, ...] = ()
    """What the scripted model says it served."""
    left_running: int | None = 0
    """Processes of the run that outlived it; None: this system cannot tell."""
    in_head: bool | None = True
    """The work is in the last commit; None: commits are switched off, or the repository is gone with its disk."""
    ignored: bool = False
    """The repository's rules let git take up no new file at all."""
    trouble: str = ""
    """What the stage itself could not do."""

    def all(self, kind: type[E]) -> list[E]:
        """The events of a kind, in order."""
        return [record.event for record in self.records if isinstance(record.event, kind)]

    def at(self, event: Event) -> float:
        """When an event was recorded."""
        return next(record.at for record in self.records if record.event is event)

    @property
    def faults(self) -> list[str]:
        """The named causes of all failed tries, in order."""
        return [failed.error_type for failed in self.all(ev.IterationFailed)]


def wrong_books(seen: Seen) -> list[str]:
    """Every reply that was served in full must be booked once: each that is not, or more than once."""
    booked = [reply.message_id for reply in seen.all(AgentReply)]
    served = {line.message_id for line in seen.ledger if line.complete and line.kind == "main"}
    lost = len(served - set(booked))
    doubled = len(booked) - len(set(booked))
    return [
        *([f"{lost} of {len(served)} served replies are not in the books"] if lost else []),
        *([f"{doubled} replies are in the books twice"] if doubled else []),
    ]


def told(seen: Seen) -> str:
    """What the loop did, in one line made of its own events."""
    steps = [step for record in seen.records if (step := _step(record))]
    return ", ".join(steps) or "nothing was recorded"


def _step(record: Record) -> str:  # noqa: PLR0911 a table from events to words
    match record.event:
        case ev.IterationStarted(retry=retry, resume_session=session) if retry:
            return f"try {retry + 1} in {'the same session' if session else 'a fresh context'}"
        case ev.IterationStarted(iteration_num=number):
            return f"iteration {number}"
        case ev.IterationFailed(error_type=fault):
            return f"fault {fault}"
        case ev.ContinuousWaiting(cause=cause, until=until):
            return f"waits for {cause}" + (f" {max(0.0, until - record.at):.1f} s" if until is not None else "")
        case ev.ResourcesSeen(disk_low=low):
            return "disk low" if low else "disk has room again"
        case ev.IterationValidation(passed=passed):
            return "checks passed" if passed else "checks failed"
        case ev.LandingSnapshot():
            return "half-done work saved"
        case ev.ContinuousRecovered(orphans_ended=orphans):
            return f"recovered ({orphans} orphans ended)" if orphans else "recovered"
        case ev.ContinuousSuspended(stop_reason=reason) | ev.ContinuousCompleted(stop_reason=reason):
            return f"stopped: {reason}"
        case _:
            return ""


def read_ledger(paths: Iterable[Path]) -> tuple[LedgerLine, ...]:
    """The scripted model's books, from the files it wrote."""
    texts = [path.read_text(encoding="utf-8") for path in paths if path.exists()]
    return tuple(LedgerLine(**json.loads(line)) for text in texts for line in text.splitlines())


def processes_of(run_id: str) -> list[int] | None:
    """Living processes that carry the mark of a run; None where the system does not show it."""
    return processes_with(f"{MARKER}={run_id}")


def processes_with(variable: str) -> list[int] | None:
    """Living processes that were started with this NAME=VALUE; None where the system does not show it."""
    if not Path("/proc/self/environ").exists():
        return None
    wanted = os.fsencode(variable)
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and _carries(entry, wanted)]


def _carries(entry: Path, wanted: bytes) -> bool:
    try:
        state = (entry / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
        return state != "Z" and wanted in (entry / "environ").read_bytes().split(b"\0")
    except OSError:
        return False  # it ended while we looked, or is somebody else's


def children_of(pid: int) -> list[int]:
    """The direct children of a process."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()]
    except OSError:
        return []

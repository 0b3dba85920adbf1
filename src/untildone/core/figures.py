"""How money, moments, counts and causes are written for people."""

import re
from datetime import UTC, datetime, tzinfo
from shlex import quote

from untildone.core.dataclass import dataclass
from untildone.core.faults import FAULTS
from untildone.core.stopping import Reason

SHORT_COMMIT = 8
_SOON = 60.0
_SMALL_USD = 0.1
_BYTES = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_LARGE = 10

IN_LINE = "landing_queue"
"""The cause of a wait for other runs that land on the same base first."""
START_AT = "start_at"
"""The cause of a wait for the moment a run was asked to begin at."""
FORGE = "forge"
"""The cause of a wait for a forge that is busy or away."""
BRANCH_SWITCHED = "branch_switched"
"""The cause of a wait for the run's branch, while the folder is on another one."""
GIT_LOCKED = "git_locked"
"""The cause of a wait for a lock file of git's."""
_CAUSES = {
    "usage_limit": "the usage limit",
    "rate_limit": "the rate limit",
    "overloaded": "the overloaded API",
    "server_error": "the API after a server error",
    "network": "the network",
    "circuit_open": "the breaker's cooldown",
    "calls_per_hour": "the calls-per-hour limit",
    "loop_delay": "the pause between iterations",
    "paused": "a human to resume it",
    START_AT: "its start",
    "quota_kept": "more quota than the share that is kept for you",
    "disk_low": "free disk space",
    "ci": "CI and reviews",
    FORGE: "the forge",
    IN_LINE: "its turn to land",
    BRANCH_SWITCHED: "its branch to be checked out again",
    GIT_LOCKED: "a lock file of git to go",
}


def dollars(amount: float) -> str:
    """`$5.00`, `$0.42`; small amounts keep the digits that matter: `$0.0031`."""
    digits = 4 if 0 < amount < _SMALL_USD and round(amount, 2) != round(amount, 4) else 2
    return f"${amount:,.{digits}f}"


def size(number: int) -> str:
    """`512 MiB`, `1.2 GiB`: bytes as people say them."""
    unit = next((unit for unit in ("TiB", "GiB", "MiB") if number >= _BYTES[unit]), "KiB")
    amount = number / _BYTES[unit]
    return f"{amount:,.0f} {unit}" if amount >= _LARGE or unit == "KiB" else f"{amount:.1f} {unit}"


def count(number: int, one: str, many: str | None = None) -> str:
    """`1 file`, `3 files`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def clock(at: float, now: float | None = None, zone: tzinfo | None = None) -> str:
    """`07:12`, with the date unless it is the day of `now`. `zone` None: the zone of this machine.

    A moment less than a minute after `now` is told to the second: `07:12:08`.
    """
    moment = _moment(at, zone)
    if now is not None and moment.date() == _moment(now, zone).date():
        return f"{moment:%H:%M:%S}" if 0 < at - now < _SOON else f"{moment:%H:%M}"
    return f"{moment:%Y-%m-%d %H:%M}"


def _moment(at: float, zone: tzinfo | None) -> datetime:
    try:
        return datetime.fromtimestamp(at, UTC).astimezone(zone)
    except (OverflowError, ValueError, OSError):
        # A moment no calendar holds can only come from a damaged or hostile event.
        return datetime.fromtimestamp(0, UTC).astimezone(zone)


@dataclass(frozen=True, slots=True)
class Timed:
    """A line with a moment in it: whoever shows it tells the moment in the reader's own zone."""

    before: str
    at: float
    after: str = ""

    def told(self, now: float, zone: tzinfo | None = None) -> str:
        """The line, as a clock of that zone has the moment."""
        return f"{self.before}{clock(self.at, now, zone)}{self.after}"


def cause_text(cause: str) -> str:
    """What a wait waits for, in a person's words."""
    if cause in _CAUSES:
        return _CAUSES[cause]
    fault = FAULTS.get(cause)
    # A cause this version does not know: only its letters, whatever else may stand there.
    return f"a new try ({fault.meaning})" if fault else re.sub(r"[\W_]+", " ", cause)[:60].strip()


def stop_detail(reason: str, detail: str) -> str:
    """What is told beside the reason of a stop; nothing where the reason says it already."""
    said = {(Reason.SHUTDOWN_SIGNAL, "by signal"), (Reason.STOP_REQUESTED, "by cli")}
    return "" if (reason, detail) in said else detail


def short_commit(commit: str) -> str:
    """The beginning of a commit id that people quote."""
    return commit[:SHORT_COMMIT]


def git_command(history: str, folder: str) -> str:
    """How a person calls git for a folder; `history`: where that of a folder without git is kept."""
    return f"git --git-dir={quote(history)} --work-tree={quote(folder)}" if history else "git"

"""What `doctor` makes of the facts it gathered: one row each, and `unknown` rather than a guess. Pure."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, cast

from untildone.core.dataclass import dataclass
from untildone.core.faults import BILLING, NETWORK, Remedy, classify
from untildone.core.figures import clock, count, dollars, size
from untildone.core.outcome import FaultEvidence
from untildone.core.policy import NOT_LINUX
from untildone.core.printable import one_line

Status = Literal["ok", "warning", "missing", "unknown"]

_PLENTY = 4
"""Times the reserve: less than that may not last for a night."""
_MILLISECONDS = 1e11
"""Epoch numbers above this are not seconds (they would be in the year 5138)."""
_EARLIEST, _LATEST = 1e9, 1e10
"""Epoch seconds from 2001 to 2286: no login ends outside of that, so whatever says so is nonsense."""
_SAID = 200
LOG_IN = "log in with `untildone login`, or set ANTHROPIC_API_KEY"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at."""

    name: str
    status: Status
    detail: str
    remedy: str = ""
    """What to do about it, in one line."""


def is_fit(findings: Sequence[Finding]) -> bool:
    """Whether nothing is missing. A warning or an unknown stops nobody."""
    return all(finding.status != "missing" for finding in findings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """What `claude auth status` says of the login, without the login itself."""

    known: bool
    """It answered in a form we understand."""
    logged_in: bool = False
    method: str = ""
    expires_at: float | None = None


def read_login(answer: str) -> Login:
    """The facts in the answer of `claude auth status --json`."""
    try:
        facts = json.loads(answer)
    except (ValueError, RecursionError):
        return Login(known=False)
    if not isinstance(facts, Mapping) or not isinstance(facts.get("loggedIn"), bool):
        return Login(known=False)
    if not facts["loggedIn"] and facts.get("apiProvider", "firstParty") != "firstParty":
        return Login(known=False)  # another company's cloud has logins of its own
    source = facts.get("apiKeySource")
    return Login(
        known=True,
        logged_in=facts["loggedIn"],
        method=str(source or facts.get("authMethod", "")),
        expires_at=_moment(facts.get("loginExpiresAt")),
    )


def _moment(written: Any) -> float | None:
    """An epoch second from what a program writes: seconds, milliseconds or an ISO date; None: no moment at all."""
    try:
        if isinstance(written, str):
            moment = datetime.fromisoformat(written)
            seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        elif isinstance(written, int | float) and not isinstance(written, bool):
            seconds = float(written) / 1000 if written > _MILLISECONDS else float(written)
        else:
            return None
    except (ValueError, OverflowError):
        return None
    return seconds if _EARLIEST <= seconds <= _LATEST else None  # not a number is not between them either


def reply_row(answer: str, code: int | None, method: str = "") -> Finding:
    """What came of one tiny request: the answer of `claude -p --output-format json`, and its exit code.

    `method`: how Claude Code was logged in, as it calls it.
    """
    try:
        result = json.loads(answer)
        failed, text = bool(result["is_error"]), one_line(str(result.get("result", "")), _SAID)
        price = dollars(float(result.get("total_cost_usd") or 0))
    except (ValueError, TypeError, KeyError, RecursionError):
        said = one_line(answer, _SAID) or f"exit {code}"
        return Finding(name="login", status="missing", detail=f"no answer: {said}", remedy=LOG_IN)
    if not failed:
        return Finding(name="login", status="ok", detail=f"it answers ({price})")
    status, word = result.get("api_error_status"), result.get("api_error")
    fault = classify(
        FaultEvidence(
            is_error=True,
            terminal_reason=str(result.get("terminal_reason", "")),
            api_error_status=status if isinstance(status, int) else None,
            api_error=word if isinstance(word, str) else None,
            text=text,
        )
    )
    if fault is NETWORK:
        fix = "check the network, and whether a proxy or a firewall is in the way"
        return Finding(name="login", status="missing", detail=f"the API is unreachable: {text}", remedy=fix)
    if fault.remedy in {Remedy.WAIT, Remedy.BACK_OFF}:
        fix = "ask again later: a run would wait for it"
        return Finding(name="login", status="warning", detail=f"it cannot answer now: {text}", remedy=fix)
    remedy = "add credit to the account" if fault is BILLING else refused_login(method)
    return Finding(name="login", status="missing", detail=f"it was refused: {text}", remedy=remedy)


def refused_login(method: str | None) -> str:
    """What to do about a login that was refused, by what Claude Code calls it."""
    match method:
        case "ANTHROPIC_API_KEY":
            return "put a valid key into ANTHROPIC_API_KEY, or unset it and log in with `untildone login`"
        case "apiKeyHelper":
            return "mend the `apiKeyHelper` in Claude Code's settings: the key it gives was refused"
        case _:
            return LOG_IN


def temp_row(folder: str) -> Finding:
    """For a TMPDIR that nothing can be written to: most programs look nowhere else."""
    detail = f"TMPDIR is {one_line(folder, _SAID)}, where nothing can be written"
    return Finding(name="temp", status="missing", detail=detail, remedy="make that folder, or unset TMPDIR")


def login_row(login: Login) -> Finding:
    """Is there a login? Whether it answers was not asked."""
    if login.known and not login.logged_in:
        return Finding(name="login", status="missing", detail="Claude Code is not logged in", remedy=LOG_IN)
    there = f"there is one ({login.method})" if login.known else "Claude Code does not tell"
    return Finding(
        name="login",
        status="unknown",
        detail=f"{there}; whether it answers was not asked",
        remedy="ask with --online: one tiny request, which may cost a fraction of a cent",
    )


def login_life_row(login: Login, until: float, now: float) -> Finding:
    """Will the login live until then?"""
    hour = clock(until, now)
    if login.expires_at is None:
        return Finding(
            name="login lives",
            status="unknown",
            detail=f"Claude Code does not say whether the login lasts until {hour}",
        )
    ends = clock(login.expires_at, now)
    if login.expires_at < until:
        return Finding(
            name="login lives", status="missing", detail=f"it ends at {ends}, before {hour}", remedy="log in anew"
        )
    return Finding(name="login lives", status="ok", detail=f"until {ends}, longer than {hour}")


def disk_row(free: Mapping[str, int], reserve: int) -> Finding:
    """Is there enough room where a run writes?"""
    where, least = min(free.items(), key=lambda place: place[1])
    detail = f"{size(least)} free at {where}, {size(reserve)} are kept free"
    if least < reserve:
        return Finding(name="disk", status="missing", detail=detail, remedy="make room: a run would pause at once")
    if least < _PLENTY * reserve:
        return Finding(name="disk", status="warning", detail=detail, remedy="make room, or it may pause in the night")
    return Finding(name="disk", status="ok", detail=detail)


def clock_row(zone: str, *, synchronized: bool | None) -> Finding:
    """Can the clock be trusted? Resets of usage limits and deadlines are moments of it."""
    if synchronized is None:
        return Finding(name="clock", status="unknown", detail=f"{zone}; whether it is synchronized cannot be told here")
    if synchronized:
        return Finding(name="clock", status="ok", detail=f"{zone}, synchronized")
    return Finding(
        name="clock",
        status="warning",
        detail=f"{zone}, not synchronized",
        remedy="turn on time synchronization (`timedatectl set-ntp true`): waits and deadlines follow the clock",
    )


def rights_row(rights: str) -> Finding:
    """What the agent may do without asking. Without a sandbox this guards against accidents only."""
    return Finding(name="rights", status="ok", detail=rights)


def sandbox_row(wanted: str, *, trouble: str, missing: Sequence[str]) -> Finding:
    """Where would the agent work? `trouble`: why not in bubblewrap here; `missing`: what Claude's own lacks."""
    fix, status = "", "ok"
    match wanted:
        case "auto" if trouble:
            detail, status = f"none: {trouble}", "ok" if trouble.startswith(NOT_LINUX) else "warning"
            fix = "" if status == "ok" else "--sandbox host says that this is what you want"
        case "bwrap" if trouble:
            detail, status, fix = trouble, "missing", "or use --sandbox claude, or --sandbox host"
        case "auto" | "bwrap":
            detail = "the agent works in one (bubblewrap)"
        case "docker" | "podman":
            detail = f"the agent works in a container ({wanted})"
        case "claude" if missing:
            detail, status = f"{' and '.join(missing)} not on PATH", "missing"
            fix = "install them: `sudo apt-get install bubblewrap socat`"
        case "claude":
            detail = "the agent's commands run in one (Claude Code's own)"
        case _:
            detail = f"not used; {trouble or '--sandbox bwrap would work here'}"
    return Finding(name="sandbox", status=cast("Status", status), detail=detail, remedy=fix)


def containers_row(wanted: Sequence[str], image: str, found: Mapping[str, str | bool]) -> Finding:
    """Could the agent work in a container? `found`: why an engine cannot run one, else whether it has the image."""
    name, works = "containers", [kind for kind in wanted or found if not isinstance(found[kind], str)]
    has = [kind for kind in works if found[kind]]
    if has:
        used = "the agent works in one" if wanted else "not used; they work"
        return Finding(name=name, status="ok", detail=f"{used} ({has[0]}, image {image})")
    if works:
        fix = "`untildone image build` makes one, --image names another"
        status: Status = "warning" if wanted else "ok"
        return Finding(name=name, status=status, detail=f"{works[0]} works, and has no image {image}", remedy=fix)
    said = "; ".join(str(found[kind]) for kind in wanted or found)
    if wanted:
        return Finding(name=name, status="missing", detail=said, remedy="do so, or use --sandbox bwrap")
    return Finding(name=name, status="ok", detail=f"not used; {said}")


def folder_row(folder: str, *, busy: str, dirty: int | None, keep_dirty: bool) -> Finding:
    """Can a run start in this folder? `busy`: the run that works there; `dirty` None: it is no git repository."""
    if busy:
        return Finding(
            name="folder",
            status="missing",
            detail=f"{folder}: {busy} is running here",
            remedy="wait for it, or stop it with `untildone stop`",
        )
    if dirty is None:
        return Finding(
            name="folder",
            status="warning",
            detail=f"{folder} is not under git: nothing is committed, and half-done work is not saved",
            remedy="`git init` it",
        )
    if dirty and not keep_dirty:
        return Finding(
            name="folder",
            status="warning",
            detail=f"{folder}: {count(dirty, 'uncommitted file')}, so a run will refuse to start",
            remedy="commit them, or give --dirty keep",
        )
    return Finding(
        name="folder", status="ok", detail=f"{folder}, {count(dirty, 'uncommitted file') if dirty else 'clean'}"
    )

"""A control group for each program of a run (Linux, cgroup v2): what escaped its guard is found by membership.

Used where we may make groups below our own: as root, or where systemd delegated them. Elsewhere there is none, and
the guard and the environment marker have to do. It is a net for accidents and no wall: a program with the rights to
make groups can move itself out of one.
"""

import contextlib
import os
import re
import signal
import time
import uuid
from collections.abc import Collection
from pathlib import Path

PREFIX = "untildone-"
MOUNTS = Path("/proc/self/mountinfo")
OURS = Path("/proc/self/cgroup")
PATIENCE = 1.0
"""Seconds until killed processes have to be gone."""
_SAFE_ID = re.compile(r"[\w-]{1,100}")
_UNIFIED = "0::"


def make_group(run_id: str) -> Path | None:
    """Make a group for one program of this run; None where that is not ours to do."""
    home = _home()
    if home is None or not _SAFE_ID.fullmatch(run_id):
        return None
    group = home / f"{PREFIX}{run_id}.{uuid.uuid4().hex[:8]}"
    try:
        group.mkdir()
    except OSError:
        return None
    return group


def groups_of(run_id: str) -> list[Path]:
    """The groups of this run, wherever the loop that made them was."""
    if not _SAFE_ID.fullmatch(run_id):
        return []
    wanted = f"{PREFIX}{run_id}."
    return [group for root in _mounts() for group in _below(root) if group.name.startswith(wanted)]


def members(group: Path) -> set[int]:
    """The processes in it and in groups below it, made by whoever; none when it is gone."""
    found: set[int] = set()
    for folder in (group, *_below(group)):
        with contextlib.suppress(OSError):
            found |= {int(pid) for pid in (folder / "cgroup.procs").read_text().split()}
    return found


def clear(group: Path, *, spared: Collection[int] = ()) -> set[int]:
    """Kill all that is in it but `spared`, and remove it; returns who was killed. Harmless when it is gone."""
    killed: set[int] = set()
    give_up = time.monotonic() + PATIENCE
    while left := members(group) - set(spared):
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        killed |= left
        if time.monotonic() > give_up:
            break
        time.sleep(0.002)  # one that forks is met again
    for folder in (*reversed(_below(group)), group):
        with contextlib.suppress(OSError):
            folder.rmdir()
    return killed


def _below(group: Path) -> list[Path]:
    """All groups below one, outer ones first. Groups come and go meanwhile: `os.walk` passes over those that went."""
    return [Path(at, name) for at, names, _ in os.walk(group) for name in names]


def _home() -> Path | None:
    """Our own group, if we may make others in it."""
    with contextlib.suppress(OSError):
        ours = [line[len(_UNIFIED) :] for line in OURS.read_text().splitlines() if line.startswith(_UNIFIED)]
        for root in _mounts() if ours else ():
            home = root / ours[0].lstrip("/")
            if os.access(home, os.W_OK) and os.access(home / "cgroup.procs", os.W_OK):
                return home
    return None


def _mounts() -> list[Path]:
    """Where the tree of groups can be seen."""
    with contextlib.suppress(OSError):
        lines = [line.split(" ") for line in MOUNTS.read_text().splitlines()]
        # Fields: ids, root, mount point, options, "-", type; only a mount of the whole tree fits our own path.
        found = [Path(line[4]) for line in lines if line[line.index("-") + 1] == "cgroup2" and line[3] == "/"]
        return found[:1]
    return []

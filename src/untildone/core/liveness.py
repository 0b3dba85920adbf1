"""Is the agent alive? Folded from samples of what it shows: lines, CPU time, bytes, new processes. Pure."""

from dataclasses import replace

from untildone.core.dataclass import dataclass
from untildone.core.policy import Policy

CPU_NOISE = 0.05
"""CPU seconds per second that are no sign of life: a Claude Code that only waits burns about 0.02."""
CPU_BURST = 0.4
"""CPU seconds above that which are one; an idle runtime that tidies its memory takes 0.12 at once."""
IO_NOISE = 500.0
"""Bytes per second that are no sign of life: a waiting Claude Code moves up to 400 (clock, keep-alive)."""
IO_BURST = 8192.0
"""Bytes above that which are one."""

_SAMPLES = 20
SHORTEST_PERIOD = 0.2
LONGEST_PERIOD = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulse:
    """Signs of life of a running iteration. They only grow; None: the system cannot tell."""

    heard: int = 0
    """Lines of output, partial ones of a reply included; lines that come by the clock alone are not counted."""
    cpu_seconds: float | None = None
    """CPU time of the whole process tree."""
    io_bytes: int | None = None
    """Bytes read and written by the tree: files, pipes, TCP connections."""
    processes: int | None = None
    """Different processes seen in the tree so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Liveness:
    """What the samples so far say."""

    period: float
    """Seconds between two samples. A longer gap (a suspended machine, a jump of the clock) counts as one period."""
    seen_at: float
    pulse: Pulse | None = None
    silent: float = 0.0
    """Seconds without a sign of life, as far as somebody looked."""
    cpu: float = 0.0
    """CPU seconds in a bucket that leaks as fast as noise fills it."""
    io: float = 0.0


def sampling_period(idle_timeout: float) -> float:
    """Seconds between two samples."""
    return min(LONGEST_PERIOD, max(SHORTEST_PERIOD, idle_timeout / _SAMPLES))


def observe(liveness: Liveness, pulse: Pulse | None, now: float) -> Liveness:
    """Fold one sample. Without a pulse nothing is expected of the agent: nothing counts as silence."""
    elapsed = max(0.0, now - liveness.seen_at)
    if pulse is None or liveness.pulse is None or _is_another(liveness.pulse, pulse):
        return Liveness(period=liveness.period, seen_at=now, pulse=pulse)
    before = liveness.pulse
    cpu = max(0.0, liveness.cpu + _grown(before.cpu_seconds, pulse.cpu_seconds) - CPU_NOISE * elapsed)
    io = max(0.0, liveness.io + _grown(before.io_bytes, pulse.io_bytes) - IO_NOISE * elapsed)
    if pulse.heard > before.heard or _grown(before.processes, pulse.processes) or cpu > CPU_BURST or io > IO_BURST:
        return Liveness(period=liveness.period, seen_at=now, pulse=pulse)
    silent = liveness.silent + min(elapsed, liveness.period)
    return replace(liveness, seen_at=now, pulse=pulse, silent=silent, cpu=cpu, io=io)


def is_hung(liveness: Liveness, policy: Policy) -> bool:
    """Was there no sign of life for too long?"""
    return policy.idle_timeout is not None and liveness.silent >= policy.idle_timeout


def _grown(before: float | None, after: float | None) -> float:
    return 0.0 if before is None or after is None else after - before


def _is_another(before: Pulse, after: Pulse) -> bool:
    """What only grows went down, or began to be known: this is another process tree, and it just started."""
    pairs = (
        (before.heard, after.heard),
        (before.cpu_seconds, after.cpu_seconds),
        (before.io_bytes, after.io_bytes),
        (before.processes, after.processes),
    )
    return any(new is not None and (old is None or new < old) for old, new in pairs)

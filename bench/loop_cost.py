"""What the loop itself adds to an iteration: CPU, the gap before the next prompt, and processes."""

import resource
from collections import Counter
from itertools import pairwise
from statistics import mean, median
from typing import Any

from result import Figure, Result
from stage import Stage, bare_loop, open_stage, our_loop

CPU_GATE = 30.0
SETTLED = 5
"""Iterations left out at the start: imports and first uses are no cost of an iteration."""
CLAUDE = "python"
"""Claude Code is started behind our guard, a Python program."""


def measure(*, quick: bool) -> Result:
    """Run our loop and read its notes; a few bare iterations tell what CPU Claude Code itself takes."""
    iterations, runs = (15, 1) if quick else (25, 3)
    with open_stage() as stage:
        bare_cpu = _bare_cpu(stage, 3)
        notes = [our_loop(stage, iterations) for _ in range(runs)]
    cpu = median(_cpu(note) for note in notes)
    helpers = [Counter(note["spawned"]) for note in notes]
    return Result(
        title="What the loop itself adds to an iteration",
        figures=(
            Figure(
                name="our CPU",
                value=cpu * 1000,
                unit="ms",
                at_most=CPU_GATE,
                note=f"user and system, all threads, mean of iterations {SETTLED + 1} to {iterations}",
            ),
            Figure(name="our CPU against that of one bare `claude -p`", value=cpu / bare_cpu),
            Figure(
                name="gap: the agent's answer to the next call of it",
                value=median(_gaps(notes, "answered", "called")) * 1000,
                unit="ms",
                note="look at the tree, book, decide, make the prompt; all of it durable",
            ),
            Figure(
                name="gap: the agent's answer to the next prompt",
                value=median(_gaps(notes, "answered", "prompted")) * 1000,
                unit="ms",
                note="the fresh context (/clear) included",
            ),
            Figure(
                name="git calls per iteration",
                value=max((counts["git"] - _git_at_start(notes)) / iterations for counts in helpers),
                unit="",
                at_most=4,
                note=f"and {_git_at_start(notes)} for the whole run",
            ),
            Figure(
                name="other processes, besides one Claude Code",
                value=max(sum(counts.values()) - counts["git"] - counts["systemd-inhibit"] - 1 for counts in helpers),
                unit="",
                at_most=0,
                note="for the whole run",
            ),
        ),
    )


def _cpu(note: dict[str, Any]) -> float:
    spent: list[float] = note["cpu"][SETTLED - 1 :]
    return mean(after - before for before, after in pairwise(spent))


def _bare_cpu(stage: Stage, iterations: int) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    bare_loop(stage, iterations)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / iterations


def _gaps(notes: list[dict[str, Any]], start: str, end: str) -> list[float]:
    """Seconds from a moment of one iteration to a moment of the next."""
    return [
        later - earlier
        for note in notes
        for earlier, later in zip(note[start][SETTLED:], note[end][SETTLED + 1 :], strict=False)
    ]


def _git_at_start(notes: list[dict[str, Any]]) -> int:
    """Calls before Claude Code was started: they prepare the folder."""
    spawned: list[str] = notes[0]["spawned"]
    claude = next(place for place, name in enumerate(spawned) if name.startswith(CLAUDE))
    return claude - 1  # the last one looks at the tree before the first iteration

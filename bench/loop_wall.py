"""Wall time per iteration: our loop against a bare `while` loop of `claude -p`, on the same scripted model."""

import time
from dataclasses import dataclass
from statistics import median

from result import Figure, Result, ratio
from stage import Stage, bare_loop, open_stage, our_loop

GATE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Both loops, one right after the other. Seconds."""

    bare: float
    """One bare iteration: each of them starts Claude Code anew."""
    whole: float
    """One of our iterations, the start and the end of the run shared out among them."""
    warm: float
    """One of our iterations after the first."""
    start: float
    """From nothing to the end of the first iteration."""


def measure(*, quick: bool) -> Result:
    """Run both loops alternately."""
    iterations, rounds = (10, 1) if quick else (20, 3)
    with open_stage() as stage:
        found = [_round(stage, iterations, ours_first=bool(number % 2)) for number in range(rounds)]
    bare = [one.bare for one in found]
    return Result(
        title=f"Wall time of {iterations} trivial iterations on the real Claude Code, against `while` + `claude -p`",
        figures=(
            Figure(
                name="per iteration, start and end of the run included",
                value=ratio([one.whole for one in found], bare),
                at_most=GATE,
                note=_milliseconds([one.whole for one in found], bare),
            ),
            Figure(
                name="per iteration after the first",
                value=ratio([one.warm for one in found], bare),
                at_most=GATE,
                note=_milliseconds([one.warm for one in found], bare),
            ),
            Figure(
                name="from nothing to the end of the first iteration",
                value=ratio([one.start for one in found], bare),
                note=_milliseconds([one.start for one in found], bare),
            ),
        ),
    )


def _round(stage: Stage, iterations: int, *, ours_first: bool) -> Round:
    if ours_first:
        ours = _ours(stage, iterations)
        return Round(bare=_bare(stage, iterations), **ours)
    bare = _bare(stage, iterations)
    return Round(bare=bare, **_ours(stage, iterations))


def _bare(stage: Stage, iterations: int) -> float:
    began = time.monotonic()
    bare_loop(stage, iterations)
    return (time.monotonic() - began) / iterations


def _ours(stage: Stage, iterations: int) -> dict[str, float]:
    began = time.monotonic()
    ended: list[float] = our_loop(stage, iterations)["ended"]
    whole = time.monotonic() - began
    return {
        "whole": whole / iterations,
        "warm": (ended[-1] - ended[0]) / (iterations - 1),
        "start": ended[0] - began,
    }


def _milliseconds(ours: list[float], bare: list[float]) -> str:
    return f"{median(ours) * 1000:.0f} ms against {median(bare) * 1000:.0f} ms"

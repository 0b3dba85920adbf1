"""Saving the tree after every iteration: the last hundred of a long run against the first hundred of a new one."""

import asyncio
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from result import Curve, Figure, Result, ratio
from untildone.core.policy import Landing, RunSpec
from untildone.git.workspace import GitWorkspace, open_workspace

GATE = 1.5
FILES = 100
RUN = "bench"


@dataclass(slots=True)
class Repo:
    """A repository with a run in it."""

    folder: Path
    workspace: GitWorkspace
    iteration: int = 0

    async def iterate(self) -> float:
        """Change a tracked and an untracked file, and settle; the seconds the settling took."""
        self.iteration += 1
        before = await self.workspace.observe()
        for name in (f"file-{self.iteration % FILES}", "scratch"):
            (self.folder / name).write_text(f"{name} after iteration {self.iteration}\n")
        began = time.perf_counter()
        settled = await self.workspace.settle(before, iteration_num=self.iteration, message="a step")
        took = time.perf_counter() - began
        assert settled.snapshot == f"refs/untildone/{RUN}/{self.iteration}", settled
        return took


def measure(*, quick: bool) -> Result:
    """Let one run grow old, then let it take turns with a new one, iteration by iteration."""
    age, rounds = (150, 30) if quick else (900, 100)
    figures, lines = [], {}
    for how, landing in (("committed", Landing()), ("not committed", Landing(land="none"))):
        with tempfile.TemporaryDirectory(prefix="untildone-bench-") as name:
            grown, old, new = asyncio.run(_take_turns(Path(name), landing, age, rounds))
        figures.append(
            Figure(
                name=f"work is {how}: iterations {age + 1} to {age + rounds} against 1 to {rounds}",
                value=ratio(old, new),
                at_most=GATE,
                note=f"{median(old) * 1000:.1f} ms against {median(new) * 1000:.1f} ms to settle one",
            )
        )
        lines[f"work is {how}"] = _smoothed([*grown, *old])
    return Result(
        title=f"Saving the tree after each of {age + rounds:,} iterations",
        figures=tuple(figures),
        curves=(
            Curve(
                name="snapshots",
                title="Saving the tree after an iteration, by its number",
                x_label="iteration",
                y_label="seconds",
                lines=lines,
            ),
        ),
    )


async def _take_turns(
    place: Path, landing: Landing, age: int, rounds: int
) -> tuple[list[float], list[float], list[float]]:
    aged, fresh = await _begin(place / "aged", landing), await _begin(place / "fresh", landing)
    grown = [await aged.iterate() for _ in range(age)]
    await fresh.iterate()  # the first one looks for the user's name
    pairs = [(await aged.iterate(), await fresh.iterate()) for _ in range(rounds)]
    return grown, [old for old, _ in pairs], [new for _, new in pairs]


async def _begin(folder: Path, landing: Landing) -> Repo:
    folder.mkdir()
    for number in range(FILES):
        (folder / f"file-{number}").write_text("as it was\n")
    identity = (["config", "user.name", "Ada"], ["config", "user.email", "ada@example.org"])
    for arguments in (["init", "-q", "-b", "work"], *identity, ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run(["git", *arguments], cwd=folder, check=True, timeout=60)
    spec = RunSpec(goal="g", cwd=str(folder), name="n", landing=landing)
    workspace = await open_workspace(spec, run_id=RUN, private=folder.parent / "private")
    await workspace.prepare()
    return Repo(folder=folder, workspace=workspace)


def _smoothed(seconds: list[float]) -> list[tuple[float, float]]:
    """Medians of ten neighbours at each power of ten and a few places in between."""
    places = [place for place in (10, 20, 50, 100, 200, 500, 1000) if place <= len(seconds)]
    return [(place, median(seconds[place - 10 : place])) for place in places]

"""A fresh checkout of a large repository: made and left, against what `git worktree add` takes for the same.

And once more with a command in it that sees nothing else, at the path of the tree.
"""

import asyncio
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from result import Figure, Result, ratio
from stage import commit_all
from stopwatch import seconds_of
from untildone.core.policy import RunSpec
from untildone.git.rooms import CommitRooms
from untildone.git.workspace import open_workspace
from untildone.sandbox.bubblewrap import can_enclose
from untildone.sandbox.clean_room import CleanRoom

GATE = 3.0
ENCLOSED_GATE = 1.3
FILES = 50_000
QUICK_FILES = 3_000
_IN_FOLDER = 50


def measure(*, quick: bool) -> Result:
    """Take turns: plain git adds a worktree, then a room is opened and left."""
    files, rounds = (QUICK_FILES, 3) if quick else (FILES, 3)
    with tempfile.TemporaryDirectory(prefix="untildone-bench-", ignore_cleanup_errors=True) as name:
        place = Path(name)
        repo = _repository(place / "repo", files)
        bare, ours, whole, enclosed = asyncio.run(_take_turns(place, repo, rounds))
    return Result(
        title=f"A clean room for {files:,} files",
        figures=(
            Figure(
                name="opened and left, against `git worktree add`",
                value=ratio(ours, bare),
                at_most=GATE,
                note=f"{min(ours):.2f} s against {min(bare):.2f} s at best",
            ),
            Figure(
                name="the same with an enclosed command in it, against the room alone",
                value=ratio(enclosed, ours),
                at_most=ENCLOSED_GATE,
                note=f"{min(enclosed):.2f} s against {min(ours):.2f} s at best",
            ),
            Figure(
                name="until the last file is gone, which nobody waits for",
                value=ratio(whole, bare),
                note=f"{min(whole):.2f} s at best",
            ),
        ),
    )


async def _take_turns(place: Path, repo: Path, rounds: int) -> tuple[list[float], ...]:
    spec = RunSpec(goal="g", cwd=str(repo), name="n")
    rooms = (await open_workspace(spec, run_id="bench", private=place / "private")).rooms(place / "rooms")
    enclosure = CleanRoom(can_enclose(), env=os.environ, own=(place / "rooms",))
    bare, ours, whole, enclosed = [], [], [], []
    for number in range(rounds):
        bare.append(_plain(repo, place / f"plain-{number}"))
        left, gone = await _room(rooms, place / "rooms")
        ours.append(left)
        whole.append(gone)
        enclosed.append((await _room(rooms, place / "rooms", enclosure, repo))[0])
    return bare, ours, whole, enclosed


def _plain(repo: Path, place: Path) -> float:
    took = seconds_of(["git", "-C", str(repo), "worktree", "add", "-q", "--detach", str(place)])
    shutil.rmtree(place)
    subprocess.run(["git", "worktree", "prune", "--expire=now"], cwd=repo, check=True, timeout=300)
    return took


async def _room(
    rooms: CommitRooms, root: Path, enclosure: CleanRoom | None = None, repo: Path = Path()
) -> tuple[float, float]:
    began = time.perf_counter()
    async with rooms.open("HEAD") as checkout:
        if enclosure is not None:
            subprocess.run([*enclosure.enter(checkout)(str(repo)), "test", "-e", "part-0"], check=True, timeout=60)
    left = time.perf_counter() - began
    while any(root.iterdir()):
        await asyncio.sleep(0.02)
    return left, time.perf_counter() - began


def _repository(folder: Path, files: int) -> Path:
    for number in range(files):
        place = folder / f"part-{number // (_IN_FOLDER * 20)}" / f"module-{number // _IN_FOLDER}"
        if number % _IN_FOLDER == 0:
            place.mkdir(parents=True)
        (place / f"file-{number}.txt").write_text(f"line of file {number}\n" * 20)
    commit_all(folder)
    return folder

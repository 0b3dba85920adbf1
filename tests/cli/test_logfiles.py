"""A detached run's own output is bounded, and none of it is lost at the change."""

import subprocess
import sys
from pathlib import Path

from cli.background_kit import Background, eventually
from cli.cli_kit import FIRST, SUSPENDED, Runs, Say
from untildone.cli.logfiles import LOG_CAP

TALKS = """
import asyncio, os, sys
from pathlib import Path
from untildone.cli.logfiles import bounded

async def main():
    async with bounded(Path(sys.argv[1]), cap=1000, every=0.01):
        for n in range(200):
            print(f"line {n:04}", flush=True)
            print(f"trouble {n:04}", file=sys.stderr, flush=True)
            await asyncio.sleep(0.002)

asyncio.run(main())
"""


def talk(log: Path, program: str = TALKS) -> None:
    with log.open("ab") as out:
        subprocess.run(
            [sys.executable, "-c", program, str(log)], stdout=out, stderr=out, check=True, timeout=240
        )  # fmt: skip


def test_a_full_file_makes_way_for_a_new_one(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    talk(log)
    older = tmp_path / "run.log.1"
    lines = (older.read_text() + log.read_text()).splitlines()
    assert lines[-2:] == ["line 0199", "trouble 0199"]
    count = len(lines) // 2
    expected = [line for n in range(200 - count, 200) for line in (f"line {n:04}", f"trouble {n:04}")]
    assert lines[-2 * count :] == expected, "no line is lost where the files meet"
    assert count < 200
    assert older.stat().st_size > 1000
    assert log.stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.log", "run.log.1"]


def test_a_file_that_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    log, other = tmp_path / "run.log", tmp_path / "other.log"
    other.write_text("x" * 5000)
    with log.open("ab") as out:
        out.write(b"y" * 5000)
        out.flush()
        program = (
            "import sys; from pathlib import Path; from untildone.cli.logfiles import change_over\n"
            "change_over(Path(sys.argv[1]), 1000)"
        )
        subprocess.run([sys.executable, "-c", program, str(other)], stdout=out, check=True)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["other.log", "run.log"]
        subprocess.run([sys.executable, "-c", program, str(log)], stdout=out, check=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other.log", "run.log", "run.log.1"]


def test_a_run_that_is_taken_up_again_begins_a_new_file(say: Say, runs: Runs, background: Background) -> None:
    background.let_go()
    run_id = runs.begin(background.project, *FIRST, SUSPENDED)
    log = background.store / "runs" / f"{run_id}.log"
    log.parent.mkdir()
    with log.open("wb") as full:
        full.truncate(LOG_CAP + 1)
    said = say("resume", run_id, *background.flags[2:], "--agent", "claude_cli", "--detach")
    assert said.code == 0, said.err
    eventually(lambda: runs.state(run_id).phase == "completed", "the end")
    assert log.with_name(f"{log.name}.1").stat().st_size == LOG_CAP + 1
    assert 0 < log.stat().st_size < LOG_CAP

"""Runs `./dev test` ten times, in the ways people and machines start it: python3 tests/ten_runs.py [FOLDER [NUMBER...]]

Half of the runs have two busy loops beside them. Each run prints a line when it ends; what it said is kept in FOLDER.
Numbers choose runs. The exit code is 0 only if every run was green at its first try.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parent.parent
TEST = "./dev test -q"
RUNS = (
    (False, "alone", TEST),
    (False, "nohup, in the background", f"nohup {TEST} & wait $!"),
    (False, "setsid", f"setsid --wait {TEST}"),
    (False, "standard input closed", f"{TEST} <&-"),
    (False, "LANG=C", f"env -u LC_ALL LANG=C {TEST}"),
    (True, "HOME unset", f"env -u HOME {TEST}"),
    (True, "a path with a space", TEST),
    (True, "alone", TEST),
    (True, "setsid, standard input closed", f"setsid --wait {TEST} <&-"),
    (True, "nohup, LANG=C", f"LANG=C nohup {TEST} & wait $!"),
)
BUSY = "while :; do :; done"


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    loops = [subprocess.Popen(["sh", "-c", BUSY]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


@contextmanager
def checkout(way: str) -> Iterator[Path]:
    """The tree as it is committed, or a clone of it at a path with a space."""
    if "space" not in way:
        yield ROOT
        return
    with tempfile.TemporaryDirectory(prefix="with a space ") as folder:
        clone = Path(folder) / "un til done"
        subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
        subprocess.run(["./dev", "shell", "--version"], cwd=clone, check=True, stdout=subprocess.DEVNULL)
        yield clone


def run(number: int, logs: Path) -> bool:
    is_busy, way, command = RUNS[number - 1]
    log = logs / f"run-{number}.log"
    with checkout(way) as folder, busy_loops(2 if is_busy else 0), log.open("wb") as output:
        began = time.monotonic()
        code = subprocess.run(["sh", "-c", command], cwd=folder, stdout=output, stderr=output, check=False).returncode
        seconds = time.monotonic() - began
    last = log.read_text(errors="replace").strip().rpartition("\n")[2].strip("= ")
    beside = "two busy loops" if is_busy else "nothing"
    print(f"{number:2}  exit {code}  {seconds:5.0f} s  {way}; beside it {beside}: {last}", flush=True)
    return code == 0


def main(folder: str = "", *numbers: str) -> int:
    logs = Path(folder or tempfile.mkdtemp(prefix="untildone-ten-runs-"))
    logs.mkdir(parents=True, exist_ok=True)
    chosen = [int(number) for number in numbers] or range(1, len(RUNS) + 1)
    print(f"on {os.cpu_count()} cores; what the runs say goes to {logs}", flush=True)
    green = [run(number, logs) for number in chosen]
    return 0 if all(green) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

"""Kill anything at a random moment, again and again, on the real Claude Code; check everything after each kill.

    python tests/crash/torture.py --kills 500 --seed 7 --append FILE [--uid 65534] [--sandbox bwrap]

Appends one line of JSON for each kill and one with the sums. Exits with 1 if anything was wrong. `--uid`: the product,
Claude Code and git run as that user (needs root, and a Python that this user may execute).
"""

import argparse
import asyncio
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parent.parent)

from crash.crash_kit import check_books, tries
from e2e.kit import PATIENCE, Stage, price, staged, working
from processes import is_alive, living_of
from untildone import wiring
from untildone.core import events as ev
from untildone.core.fold import fold
from untildone.core.state import LoopState
from untildone.rehearsal.scenario import Reply, Scenario, ToolCall
from untildone.sandbox import guard

MOST_REPLIES = 6
"""The kill comes at the latest in the third iteration of a driver."""
LATEST = 0.2
"""Seconds after the chosen reply: enough for it to be read, booked, and acted upon, or for any part of that."""
ORPHANS_GONE = 5.0
"""Seconds after the end of a driver in which everything it started is gone."""
KILLS_A_STAGE = 25
"""After so many a new repository and a new run: checking takes longer with each."""
STOPPED_FOR = (0.3, 3.0)
APPENDS = ToolCall(name="Bash", input={"command": "echo {n} >> work.txt"})
ROUND = (
    Reply(text="Working.", tools=(APPENDS,), input_tokens=3000, output_tokens=200),
    Reply(text="Again.", tools=(APPENDS,), input_tokens=4000, output_tokens=50, chunk_delay=0.01),
    Reply(text=working("Round {i}.", tasks=1), input_tokens=5000, output_tokens=300, chunk_delay=0.01),
)
ENDLESS = Scenario(name="endless", iterations=(ROUND,))
# Faults that the kills of this script are the cause of; anything else is wrong.
EXPECTED = frozenset({"driver_died", "crash", "stopped", "no_result", "network", "surroundings", "loop_stopped"})
GIT_PATIENCE = 5.0
SANDBOX = "UNTILDONE_SANDBOX"


@dataclass
class Blow:
    """One kill, and what came of it."""

    number: int
    victim: str
    uid: int
    found: bool = True
    """False: there was no such process in time, and the driver was killed instead."""
    exit_code: int | None = None
    orphans_gone: float = 0.0
    served: int = 0
    unseen: int = 0
    """Replies whose end was not seen: booked as an estimate, or as an unknown cost."""
    held: bool = False
    """What was owed could be committed only by the driver after the next one."""
    wrong: str = ""


@dataclass
class Sums:
    """All of one call."""

    kills: int = 0
    wrong: int = 0
    served: int = 0
    unseen: int = 0
    iterations: int = 0
    whole: int = 0
    slowest_orphan: float = 0.0
    victims: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)

    def line(self) -> str:
        return json.dumps({"sums": vars(self)})


def command(most: int) -> tuple[str, ...]:
    return (
        "run", "keep at it", "-m", str(most), "--name", "tortured", "--allowed-tools", "Bash", "--loop-delay", "0.1s",
        "--json",
    )  # fmt: skip


# --- whom to kill --------------------------------------------------------------------------------------------


def below(pid: int) -> list[int]:
    return [child for child in guard.descendants(pid) if is_alive(child)]


def words_of(pid: int) -> list[bytes]:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return []


def program_of(pid: int) -> bytes:
    return next(iter(words_of(pid)), b"")


def guards_of(driver: int) -> list[int]:
    return [pid for pid in below(driver) if os.fsencode(guard.__file__) in words_of(pid)]


def claudes_of(driver: int) -> list[int]:
    return [pid for pid in below(driver) if program_of(pid).endswith(b"/claude")]


def gits_of(driver: int) -> list[int]:
    return [pid for pid in below(driver) if Path(os.fsdecode(program_of(pid))).name == "git"]


VICTIMS: dict[str, Callable[[int], list[int]]] = {
    "driver": lambda pid: [pid],
    "claude": claudes_of,
    "guard": guards_of,
    "git": gits_of,
    "tree": lambda pid: [pid, *below(pid)],
    "stop": lambda pid: [pid],
}
LIKELY = ("driver", "driver", "driver", "claude", "guard", "git", "tree", "tree", "stop")


def strike(blow: Blow, driver: "subprocess.Popen[str]", chance: random.Random) -> None:
    """Kill the victim, or the driver if there is none."""
    give_up = time.monotonic() + GIT_PATIENCE
    while not (found := VICTIMS[blow.victim](driver.pid)) and time.monotonic() < give_up and driver.poll() is None:
        time.sleep(0.001)
    blow.found = bool(found)
    if blow.victim == "stop":
        driver.send_signal(signal.SIGSTOP)
        time.sleep(chance.uniform(*STOPPED_FOR))
        driver.send_signal(signal.SIGCONT)
        return
    chosen = found if blow.victim == "tree" else [chance.choice(found)] if found else [driver.pid]
    for pid in chosen:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


# --- one life ------------------------------------------------------------------------------------------------


def live_a_while(stage: Stage, chance: random.Random, blow: Blow) -> None:
    """Start the product and strike at a random moment around a random reply, or before any."""
    served = len(stage.model.ledger.lines)
    driver = stage.popen(*command(100_000), **as_user(blow.uid))
    try:
        if more := chance.randrange(MOST_REPLIES + 1):
            wait_for_replies(stage, driver, served + more)
            time.sleep(chance.uniform(0, LATEST))
        else:
            time.sleep(chance.uniform(0, 10 * LATEST))
        assert driver.poll() is None, driver.communicate()
        strike(blow, driver, chance)
        if driver.poll() is None and blow.victim in {"claude", "guard", "git", "stop"} and blow.found:
            go_on_and_stop(stage, driver)
        said = driver.communicate(timeout=PATIENCE)
    finally:
        driver.kill()
        driver.wait()
    blow.exit_code = driver.returncode
    assert driver.returncode in {-signal.SIGKILL, 0, 1, 130}, said
    assert "bug in untildone" not in said[1], said


def go_on_and_stop(stage: Stage, driver: "subprocess.Popen[str]") -> None:
    """The driver survived: it must go on by itself, or end in order; then it is asked to stop."""
    wait_for_replies(stage, driver, len(stage.model.ledger.lines) + 2)
    driver.send_signal(signal.SIGTERM)


def wait_for_replies(stage: Stage, driver: "subprocess.Popen[str]", wanted: int) -> None:
    give_up = time.monotonic() + PATIENCE
    while driver.poll() is None and len(stage.model.ledger.lines) < wanted:
        assert time.monotonic() < give_up, "the driver lives and does nothing"
        time.sleep(0.02)


def as_user(uid: int) -> dict[str, object]:
    return {} if uid == os.getuid() else {"user": uid, "group": uid, "extra_groups": []}


def wait_for_orphans(run_id: str) -> float:
    """Seconds until nothing of the run lives any more."""
    began = time.monotonic()
    while left := living_of(run_id):
        assert time.monotonic() - began < PATIENCE, f"orphans: {[words_of(pid) for pid in left]}"
        time.sleep(0.05)
    return time.monotonic() - began


# --- what must be true afterwards ----------------------------------------------------------------------------


def story_of(stage: Stage) -> tuple[str, list[ev.Record]]:
    """Read from a copy, so that files keep their owner."""

    async def read(store: Path) -> tuple[str, list[ev.Record]]:
        log = wiring.open_log(store, wiring.system_clock())
        try:
            told = {row.run_id: await log.read(row.run_id) for row in await log.runs()}
            ((run_id, records),) = [(run_id, records) for run_id, records in told.items() if records] or [("", [])]
            return run_id, records
        finally:
            await log.close()

    store = stage.tmp / "state"
    if not store.exists():
        return "", []
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(store, f"{folder}/state", ignore=shutil.ignore_patterns("boxes"))
        return asyncio.run(read(Path(folder, "state")))


def begins_of(stage: Stage) -> int:
    """How many drivers have taken up the run. Looks on while one writes."""
    place = f"file:{stage.tmp}/state/untildone.db?mode=ro"
    with suppress(sqlite3.OperationalError), closing(sqlite3.connect(place, uri=True)) as store:
        ((count,),) = store.execute("SELECT count(*) FROM events WHERE type = 'continuous.resumed'")
        return int(count)
    return 0


def check(stage: Stage, blow: Blow) -> tuple[list[ev.Event], LoopState]:
    """After the next driver has put things in order, and its end."""
    run_id, events, state = put_in_order(stage, blow)
    if "is in the way (git, process" in state.commit_trouble:  # a git of the dead driver's works for another moment
        blow.held = True
        run_id, events, state = put_in_order(stage, blow)
    blow.served, blow.unseen = check_money(stage, events, state)
    check_iterations(stage, events, state)
    assert wait_for_orphans(run_id) < ORPHANS_GONE, "orphans of an orderly end"
    return events, state


def put_in_order(stage: Stage, blow: Blow) -> tuple[str, list[ev.Event], LoopState]:
    """Start the next driver, and stop it as soon as it is there."""
    before = begins_of(stage)
    driver = stage.popen(*command(100_000), **as_user(blow.uid))
    try:
        give_up = time.monotonic() + PATIENCE
        while driver.poll() is None and begins_of(stage) == before:
            assert time.monotonic() < give_up, "the next driver does not begin"
            time.sleep(0.02)
        driver.send_signal(signal.SIGTERM)
        said = driver.communicate(timeout=PATIENCE)
    finally:
        driver.kill()
        driver.wait()
    assert json.loads(said[0])["exit_reason"] == "shutdown_signal", said
    run_id, records = story_of(stage)
    return run_id, [record.event for record in records], fold(records)


def check_money(stage: Stage, events: list[ev.Event], state: LoopState) -> tuple[int, int]:
    """The model's own ledger is what the books say: nothing lost, nothing doubled."""
    served = {line.message_id: price(line) for line in stage.model.ledger.served() if line.kind == "main"}
    return len(served), check_books(served, events, state)


def check_iterations(stage: Stage, events: list[ev.Event], state: LoopState) -> None:
    """Each closed once; each that was paid for and whole is one commit; no tool call was made twice."""
    closed = tries(events)
    began = [(opening.iteration_num, opening.retry) for opening, _ in closed]
    assert len(set(began)) == len(began), "an iteration was begun twice"
    assert [opening.iteration_num for opening, _ in closed] == [ending.iteration_num for _, ending in closed]
    faults = {ending.error_type for _, ending in closed if isinstance(ending, ev.IterationFailed)}
    assert faults <= EXPECTED, faults
    commits = stage.git("-c", "safe.directory=*", "log", "--reverse", "--format=%H %s", "HEAD").splitlines()[1:]
    landed = [event.commit for event in events if isinstance(event, ev.LandingCommitted)]
    assert landed == [line.split(" ", 1)[0] for line in commits], "commits and record differ"
    assert len({line.split(" ", 1)[1] for line in commits}) == len(commits), "the same work was committed twice"
    failed = [event.reason for event in events if isinstance(event, ev.LandingFailed)]
    assert state.successes - len(failed) <= len(commits) <= state.successes, f"not committed: {failed}"
    # What a killed git could not commit is in the commit of the next iteration, or of the next driver.
    is_whole = not closed or isinstance(closed[-1][1], ev.IterationCompleted)
    left = stage.git("-c", "safe.directory=*", "status", "--porcelain") if is_whole else ""
    told = [f"{type(event).__name__} {getattr(event, 'iteration_num', '')}" for event in events[-12:]]
    trouble = f"{state.commit_trouble}; left: {left}; {told}"
    assert (state.commit_trouble, left) == ("", ""), f"an iteration was paid for and not committed: {trouble}"
    written = (stage.repo / "work.txt").read_text().split() if (stage.repo / "work.txt").exists() else []
    assert len(set(written)) == len(written), "a tool call was made twice"


# --- all of it -----------------------------------------------------------------------------------------------


@contextmanager
def stage_of(uid: int, folder: Path) -> Iterator[Stage]:
    with staged(folder, ENDLESS) as stage:
        stage.env |= {name: os.environ[name] for name in ("PYTHONPATH", SANDBOX) if name in os.environ}
        (stage.tmp / "home").mkdir(exist_ok=True)
        if uid != os.getuid():
            for path in (folder, *folder.rglob("*")):
                os.chown(path, uid, uid, follow_symlinks=False)
        yield stage


def torture(kills: int, seed: int, folder: Path, *, uid: int, append: Callable[[str], None], first: int = 1) -> Sums:
    """As many kills as asked for. What is wrong is written down, and the next stage goes on."""
    chance, sums = random.Random(seed), Sums()
    number = first
    while sums.kills < kills:
        with stage_of(uid, folder / f"stage-{number}") as stage:
            events, state, last = list[ev.Event](), LoopState(), Blow(number=0, victim="", uid=uid)
            for _ in range(min(KILLS_A_STAGE, kills - sums.kills)):
                blow = Blow(number=number, victim=chance.choice(LIKELY), uid=uid)
                try:
                    live_a_while(stage, chance, blow)
                    run_id, _ = story_of(stage)
                    blow.orphans_gone = round(wait_for_orphans(run_id), 2) if run_id else 0.0
                    events, state = check(stage, blow)
                except (AssertionError, ValueError, subprocess.TimeoutExpired, TimeoutError) as wrong:
                    blow.wrong = f"{type(wrong).__name__}: {wrong}"[:2000]
                number += 1
                add(sums, blow)
                append(json.dumps(asdict(blow)))
                last = blow if not blow.wrong else last
                if blow.wrong:
                    break
            add_stage(sums, events, state, last)
    return sums


def add(sums: Sums, blow: Blow) -> None:
    sums.kills += 1
    sums.wrong += bool(blow.wrong)
    sums.victims[blow.victim if blow.found else f"driver, no {blow.victim} found"] += 1
    sums.slowest_orphan = max(sums.slowest_orphan, blow.orphans_gone)


def add_stage(sums: Sums, events: list[ev.Event], state: LoopState, last: Blow) -> None:
    """Up to its last good kill."""
    closed = [ending for _, ending in tries(events)]
    sums.iterations += len(closed)
    sums.whole += state.successes
    sums.faults.update(ending.error_type for ending in closed if isinstance(ending, ev.IterationFailed))
    sums.served, sums.unseen = sums.served + last.served, sums.unseen + last.unseen


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--append", type=Path, required=True, metavar="FILE")
    parser.add_argument("--uid", type=int, default=os.getuid())
    parser.add_argument("--sandbox", metavar="KIND", help="where the agent works, as in `untildone run`")
    given = parser.parse_args()
    if given.uid != os.getuid() and subprocess.run([sys.executable, "-c", ""], user=given.uid, check=False).returncode:
        parser.error(f"user {given.uid} may not execute {sys.executable}: start this with another Python")

    if given.sandbox:
        os.environ[SANDBOX] = given.sandbox

    def append(line: str) -> None:
        with given.append.open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    folder = Path(tempfile.mkdtemp(prefix="torture-"))
    folder.chmod(0o755)
    try:
        sums = torture(given.kills, given.seed, folder, uid=given.uid, append=append)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    append(sums.line())
    print(sums.line())
    return int(sums.wrong > 0)


if __name__ == "__main__":
    sys.exit(main())

"""What hooks wrote down reaches the log exactly once, whoever looks, and whenever they die."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from patience import PATIENCE
from untildone import loops, wiring
from untildone.core.events import IterationCompleted, NotesFolded, Record
from untildone.core.trace import AgentToolUse
from untildone.core.views import run_view
from untildone.engine.journal import load_state
from untildone.hook import register, spool, starting
from untildone.hook.sealing import KEY_FILE
from untildone.ports import EventLog
from untildone.store.leftovers import HISTORY

pytestmark = pytest.mark.anyio

KIT = Path(__file__).parent / "loops_kit.py"
LOOP = "abc123"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    folder = tmp_path / "state"
    folder.mkdir()
    return folder


@pytest.fixture
async def log(store: Path) -> AsyncIterator[EventLog]:
    opened = wiring.open_log(store, wiring.system_clock())
    yield opened
    await opened.close()


def tell(store: Path, what: str, at: float, **facts: Any) -> None:
    spool.tell(str(store), LOOP, what, at, **facts)


def begin(store: Path, project: Path, *, alive: bool = True, **more: Any) -> None:
    tell(
        store, "started", 100.0, session="s1", goal="a goal", project=str(project), mode="promise", max_iterations=9,
        promises=["DONE"], checks=more.get("checks", []), transcript=more.get("transcript", ""),
    )  # fmt: skip
    if alive:
        register.write(str(store), {"loop": LOOP, "project": str(project), "session": "s1"})


async def folded(log: EventLog, store: Path, **env: str) -> int:
    return await loops.fold_notes(log, store, {"HOME": str(store), **env})


async def turns(log: EventLog) -> list[int]:
    return [
        record.event.iteration_num for record in await log.read(LOOP) if isinstance(record.event, IterationCompleted)
    ]


def wire(records: list[Record]) -> list[tuple[float, str]]:
    """What is in a log, but for how it was cut into commits."""
    return [(record.at, repr(record.event)) for record in records if not isinstance(record.event, NotesFolded)]


async def test_new_lines_are_folded_once_however_often_one_looks(log: EventLog, store: Path, tmp_path: Path) -> None:
    begin(store, tmp_path)
    tell(store, "turn", 110.0, session="s1", text="one")
    assert await folded(log, store) == 2
    assert await folded(log, store) == 0
    tell(store, "turn", 120.0, session="s1", text="two")
    assert await folded(log, store) == 1
    assert await turns(log) == [1, 2]
    (row,) = await log.runs()
    assert (row.run_id, row.status, row.folder) == (LOOP, "running", str(tmp_path))
    assert row.updated_at == 120.0


async def test_a_line_that_is_not_written_to_its_end_waits(log: EventLog, store: Path, tmp_path: Path) -> None:
    begin(store, tmp_path)
    path = Path(spool.spool_path(str(store), LOOP))
    before = path.read_text()
    tell(store, "turn", 110.0, text="one")
    whole = path.read_text().removeprefix(before).rstrip("\n")
    path.write_text(before + whole[:20])
    assert await folded(log, store) == 1
    assert await folded(log, store) == 0
    with path.open("a") as file:
        file.write(whole[20:] + "\n")
    assert await folded(log, store) == 1
    assert await turns(log) == [1]


async def test_damaged_and_hostile_lines_are_passed_over_and_counted(
    log: EventLog, store: Path, tmp_path: Path
) -> None:
    begin(store, tmp_path)
    with Path(spool.spool_path(str(store), LOOP)).open("ab") as file:
        file.write(b"{not json}\n\xff\xfe\n[1, 2]\n\n" + b"x" * (3 * loops.LONGEST_LINE) + b"\n" + b"[" * 9000 + b"\n")
    tell(store, "turn", 110.0, text="\x1b[2Jone")
    await folded(log, store)
    state = await load_state(log, LOOP)
    assert await turns(log) == [1]
    assert (state.notes_foreign, state.notes_skipped) == (6, 0)
    assert run_view(state, 200.0).meddling == ("6 notes were not written by the hook and not believed",)


async def test_verdicts_wait_for_the_end_of_their_turn(log: EventLog, store: Path, tmp_path: Path) -> None:
    begin(store, tmp_path)
    tell(store, "check", 110.0, command="make test", passed=False, output="no")
    assert await folded(log, store) == 1
    tell(store, "failed", 110.0, point="check: make test", failures=1)
    assert await folded(log, store) == 0
    tell(store, "turn", 110.5, text="one")
    assert await folded(log, store) == 3
    state = await load_state(log, LOOP)
    assert "make test" in state.feedback
    assert state.breaker.no_progress == 1


async def test_an_end_is_believed_when_the_register_knows_it_too(log: EventLog, store: Path, tmp_path: Path) -> None:
    begin(store, tmp_path)
    tell(store, "released", 110.0, reason="completion_signal", done=True)
    await folded(log, store)
    assert (await load_state(log, LOOP)).phase == "running"
    tell(store, "turn", 120.0, text="one")
    tell(store, "released", 130.0, reason="blocked", done=False)
    register.remove(str(store), str(tmp_path))
    await folded(log, store)
    state = await load_state(log, LOOP)
    assert (state.phase, state.stop_reason) == ("suspended", "blocked")


# --- what somebody else wrote ------------------------------------------------------------------------------------


def released_as_checked(store: Path, at: float = 120.0) -> None:
    tell(store, "check", at, command="make test", passed=True, output="ok")
    tell(store, "released", at, session="s1", reason="validation_passed", iteration=2, done=True)


def rewritten(store: Path, change: Callable[[list[str]], list[str]]) -> None:
    """Do to the notes what a shell can."""
    path = Path(spool.spool_path(str(store), LOOP))
    path.write_text("".join(change(path.read_text().splitlines(keepends=True))))


async def test_an_end_with_its_checks_is_believed(log: EventLog, store: Path, tmp_path: Path) -> None:
    begin(store, tmp_path, alive=False, checks=["make test"])
    released_as_checked(store)
    await folded(log, store)
    state = await load_state(log, LOOP)
    assert (state.phase, state.verified, run_view(state, 200.0).meddling) == ("completed", True, ())


async def test_an_end_that_was_forged_is_no_end(log: EventLog, store: Path, tmp_path: Path) -> None:
    begin(store, tmp_path)
    forged = [
        {"at": 120.0, "what": "check", "command": "make test", "passed": True, "seconds": 1.0, "output": "ok"},
        {"at": 120.0, "what": "released", "reason": "validation_passed", "iteration": 2, "done": True},
    ]
    rewritten(store, lambda lines: [*lines, *(json.dumps(line) + "\n" for line in forged)])
    register.remove(str(store), str(tmp_path))
    await folded(log, store)
    state = await load_state(log, LOOP)
    view = run_view(state, 200.0, alive=False)
    assert (state.phase, view.status, view.success, view.verified) == ("running", "interrupted", False, False)
    assert "its end was not recorded" in view.phase
    assert view.meddling == ("2 notes were not written by the hook and not believed",)


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: [*lines[:-2], lines[-2].replace('"passed": false', '"passed": true'), lines[-1]],
        lambda lines: [*lines[:-2], lines[-1]],
        lambda lines: [*lines[:1], *lines[2:]],
    ],
    ids=["a verdict changed", "a verdict removed", "a turn removed"],
)
async def test_notes_that_were_changed_or_removed_are_noticed(
    log: EventLog, store: Path, tmp_path: Path, change: Callable[[list[str]], list[str]]
) -> None:
    begin(store, tmp_path, alive=False, checks=["make test"])
    tell(store, "turn", 110.0, session="s1", text="one")
    tell(store, "check", 120.0, command="make test", passed=False, output="no")
    tell(store, "released", 120.0, session="s1", reason="validation_passed", iteration=2, done=True)
    rewritten(store, change)
    await folded(log, store)
    state = await load_state(log, LOOP)
    assert (state.phase, state.verified, run_view(state, 200.0).success) == ("suspended", False, False)
    assert "notes of the hook were taken away or changed" in run_view(state, 200.0).meddling


async def test_a_check_of_another_time_proves_nothing(log: EventLog, store: Path, tmp_path: Path) -> None:
    begin(store, tmp_path, alive=False, checks=["make test"])
    tell(store, "check", 120.0, command="make test", passed=True, output="ok")
    tell(store, "turn", 121.0, text="the file was edited meanwhile")
    tell(store, "released", 130.0, session="s1", reason="validation_passed", done=True)
    rewritten(store, lambda lines: [lines[0], lines[1], lines[3]])
    await folded(log, store)
    state = await load_state(log, LOOP)
    assert (state.phase, state.verified) == ("suspended", False)


async def test_the_notes_of_another_loop_are_not_those_of_this_one(log: EventLog, store: Path, tmp_path: Path) -> None:
    begin(store, tmp_path, alive=False)
    spool.tell(str(store), "other1", "released", 120.0, reason="completion_signal", done=True)
    other = Path(spool.spool_path(str(store), "other1"))
    rewritten(store, lambda lines: [*lines, other.read_text()])
    other.unlink()
    await folded(log, store)
    assert (await load_state(log, LOOP)).phase == "running"


async def test_a_hook_that_was_killed_while_it_let_go_freezes_nothing(
    log: EventLog, store: Path, tmp_path: Path
) -> None:
    begin(store, tmp_path)
    tell(store, "released", 110.0, reason="completion_signal", done=True)
    tell(store, "turn", 120.0, session="s1", text="later")
    await folded(log, store)
    assert await turns(log) == [1]
    assert (await load_state(log, LOOP)).phase == "running"


async def test_an_end_of_this_moment_waits_for_the_register(log: EventLog, store: Path, tmp_path: Path) -> None:
    begin(store, tmp_path)
    tell(store, "released", wiring.system_clock().now(), reason="completion_signal", done=True)
    await folded(log, store)
    register.remove(str(store), str(tmp_path))
    await folded(log, store)
    assert (await load_state(log, LOOP)).phase == "completed"


async def test_what_is_over_is_moved_away_and_costs_nothing(log: EventLog, store: Path, tmp_path: Path) -> None:
    begin(store, tmp_path, alive=False)
    tell(store, "released", 110.0, reason="stop_requested", done=False)
    await folded(log, store)
    assert not list((store / "spool").iterdir())
    assert (store / HISTORY / f"{LOOP}.jsonl").is_file()
    # Whatever comes late is nobody's any more.
    tell(store, "tool", 120.0, tool="Bash", ok=True)
    await folded(log, store)
    assert not list((store / "spool").iterdir())
    assert (await load_state(log, LOOP)).phase == "suspended"


async def test_with_nothing_new_the_log_is_not_even_asked(log: EventLog, store: Path, tmp_path: Path) -> None:
    begin(store, tmp_path)
    await folded(log, store)

    class Untouchable:
        def __getattr__(self, name: str) -> Any:
            raise AssertionError(f"the log was asked to {name}")

    assert await loops.fold_notes(Untouchable(), store, {}) == 0  # type: ignore[arg-type]


async def test_files_that_are_none_are_left_alone(log: EventLog, store: Path, tmp_path: Path) -> None:
    folder = store / "spool"
    folder.mkdir()
    secret = tmp_path / "secret"
    secret.write_text('{"at": 1, "what": "started", "goal": "g", "project": "/p"}\n')
    (folder / "link.jsonl").symlink_to(secret)
    (folder / "folder.jsonl").mkdir()
    os.mkfifo(folder / "pipe.jsonl")
    (folder / "..bad.jsonl").write_text("{}\n")
    assert await folded(log, store) == 0
    assert await log.runs() == []


async def test_verdicts_without_end_do_not_stand_in_the_way(log: EventLog, store: Path, tmp_path: Path) -> None:
    begin(store, tmp_path)
    tell(store, "turn", 110.0, text="one")
    await folded(log, store)
    for _ in range(loops.AT_ONCE // 60_000 + 1):
        tell(store, "check", 120.0, command="x", passed=True, output="y" * 60_000)
    assert await folded(log, store) > 0
    tell(store, "turn", 130.0, text="two")
    assert await folded(log, store) > 0
    assert await turns(log) == [1, 2]
    assert (await load_state(log, LOOP)).notes_skipped > 0


async def test_old_notes_go_and_goals_stay(log: EventLog, store: Path, tmp_path: Path) -> None:
    history = store / HISTORY
    history.mkdir()
    for name in ("old.jsonl", "old.md"):
        (history / name).write_text("x")
        os.utime(history / name, (1.0, 1.0))
    begin(store, tmp_path, alive=False)
    tell(store, "released", 110.0, reason="stop_requested", done=False)
    await folded(log, store)
    assert sorted(path.name for path in history.iterdir()) == [f"{LOOP}.jsonl", "old.md"]


async def test_notes_that_begin_no_loop_go_away(log: EventLog, store: Path) -> None:
    tell(store, "turn", 110.0, text="one")
    await folded(log, store)
    assert await log.runs() == []
    assert not list((store / "spool").iterdir())


async def test_a_shorter_file_than_was_folded_is_not_believed_and_what_comes_after_it_is(
    log: EventLog, store: Path, tmp_path: Path
) -> None:
    begin(store, tmp_path)
    tell(store, "turn", 110.0, text="one")
    await folded(log, store)
    path = Path(spool.spool_path(str(store), LOOP))
    copy = path.read_bytes().splitlines(keepends=True)[-1]
    path.write_bytes(b'{"at": 1, "what": "turn"}\n' + copy)
    await folded(log, store)
    assert await turns(log) == [1]
    tell(store, "turn", 120.0, text="two")
    await folded(log, store)
    assert await turns(log) == [1, 2]
    assert (await load_state(log, LOOP)).notes_foreign == 2


async def test_edits_of_a_turn_count_over_several_looks(log: EventLog, store: Path, tmp_path: Path) -> None:
    begin(store, tmp_path)
    tell(store, "tool", 101.0, tool="Edit", ok=True, edit=True, detail="a.py")
    await folded(log, store)
    tell(store, "tool", 102.0, tool="Write", ok=True, edit=True, detail="b.py")
    tell(store, "turn", 110.0, text="one")
    await folded(log, store)
    records = await log.read(LOOP, trace=True)
    assert [record.at for record in records if isinstance(record.event, AgentToolUse)] == [101.0, 102.0]
    (ended,) = [record.event for record in records if isinstance(record.event, IterationCompleted)]
    assert ended.evidence.files_changed == 2


# --- exactly once ------------------------------------------------------------------------------------------------


def run_kit(store: Path, *where: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(KIT), str(store), *where], capture_output=True, text=True, timeout=240, check=False
    )


def several_turns(store: Path, project: Path) -> None:
    begin(store, project)
    for number in range(1, 6):
        tell(store, "tool", 100.0 + 10 * number, tool="Edit", ok=True, edit=True, detail=f"{number}.py")
        tell(store, "turn", 105.0 + 10 * number, session="s1", text=f"turn {number}")


@pytest.mark.parametrize("where", ["before", "after"])
async def test_a_death_around_the_append_loses_and_doubles_nothing(
    log: EventLog, store: Path, tmp_path: Path, where: str
) -> None:
    several_turns(store, tmp_path)
    died = run_kit(store, where)
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert await turns(log) == ([1, 2, 3, 4, 5] if where == "after" else [])
    await folded(log, store)
    assert await turns(log) == [1, 2, 3, 4, 5]
    assert await folded(log, store) == 0


async def test_many_who_look_at_once_fold_everything_once(log: EventLog, store: Path, tmp_path: Path) -> None:
    several_turns(store, tmp_path)
    looking = [
        await asyncio.create_subprocess_exec(sys.executable, str(KIT), str(store), stdout=-1, stderr=-1)
        for _ in range(4)
    ]
    said = [await asyncio.wait_for(process.communicate(), PATIENCE) for process in looking]
    assert [process.returncode for process in looking] == [0] * 4, said
    assert sum(int(out) for out, _ in said) == 11
    assert await turns(log) == [1, 2, 3, 4, 5]


async def test_how_it_was_cut_into_looks_makes_no_difference(log: EventLog, store: Path, tmp_path: Path) -> None:
    several_turns(store, tmp_path)
    lines = Path(spool.spool_path(str(store), LOOP)).read_text().splitlines(keepends=True)
    await folded(log, store)
    one_by_one = tmp_path / "other"
    (one_by_one / "spool").mkdir(parents=True)
    (one_by_one / KEY_FILE).write_bytes((store / KEY_FILE).read_bytes())
    register.write(str(one_by_one), {"loop": LOOP, "project": str(tmp_path), "session": "s1"})
    other = wiring.open_log(one_by_one, wiring.system_clock())
    for line in lines:
        with Path(spool.spool_path(str(one_by_one), LOOP)).open("a") as file:
            file.write(line)
        await folded(other, one_by_one)
    controls = [wire(await each.read(LOOP)) for each in (log, other)]
    await other.close()
    assert controls[0] == controls[1]


# --- what it cost --------------------------------------------------------------------------------------------------


def reply(at: str, message: str, tokens: int, model: str = "claude-sonnet-4-5") -> str:
    usage = {"input_tokens": tokens, "output_tokens": 0}
    said = {"id": message, "model": model, "usage": usage, "stop_reason": "end_turn", "content": []}
    return json.dumps({"type": "assistant", "timestamp": at, "message": said}) + "\n"


def at(second: int) -> str:
    return f"1970-01-01T00:{second // 60:02}:{second % 60:02}.000Z"


async def test_turns_cost_what_the_transcript_says(log: EventLog, store: Path, tmp_path: Path) -> None:
    transcript = tmp_path / "claude" / "projects" / "-p" / "s1.jsonl"
    transcript.parent.mkdir(parents=True)
    transcript.write_text(
        reply(at(90), "before", 1_000_000) + reply(at(105), "m1", 1_000_000) + reply(at(106), "m1", 1_000_000)
        + reply(at(115), "m2", 2_000_000)
    )  # fmt: skip
    begin(store, tmp_path, transcript=str(transcript))
    tell(store, "turn", 110.0, session="s1")
    await folded(log, store)
    tell(store, "turn", 120.0, session="s1")
    tell(store, "turn", 130.0, session="s1")
    await folded(log, store)
    ended = [record.event for record in await log.read(LOOP) if isinstance(record.event, IterationCompleted)]
    assert [event.cost_usd for event in ended] == [3.0, 6.0, None]
    assert (await load_state(log, LOOP)).spend.cost_usd == 9.0


async def test_what_nobody_knows_stays_unknown(log: EventLog, store: Path, tmp_path: Path) -> None:
    begin(store, tmp_path, transcript="/nowhere/s1.jsonl")
    tell(store, "turn", 110.0, session="s1")
    await folded(log, store)
    state = await load_state(log, LOOP)
    assert (state.spend.cost_usd, state.spend.unknown_costs) == (0.0, 1)


async def test_a_loop_started_by_a_command_is_a_run(log: EventLog, store: Path, tmp_path: Path) -> None:
    entry = starting.start(str(store), str(tmp_path), goal="a goal", now=100.0, session="s1")
    await folded(log, store)
    assert loops.living(store) == {entry["loop"]: entry}
    (row,) = await log.runs()
    assert loops.with_life(row, loops.living(store)).alive

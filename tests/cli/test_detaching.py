import json
import os
import pty
import select
import signal
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest

from cli.background_kit import Background, cut_chain
from cli.cli_kit import DONE, FIRST, SUSPENDED, Runs, Say
from patience import PATIENCE, eventually
from untildone.core.chain import next_run_id
from untildone.core.events import ContinuousResumed, PauseRequested, StopRequested
from untildone.core.policy import AgentOptions, Policy


def started(say: Say, background: Background, *more: str) -> tuple[str, int]:
    """A run in the background: its id and its pid."""
    said = say("run", "a goal", *background.flags, *more, "--detach", "--json")
    assert said.code == 0, said.err
    told = json.loads(said.out)
    background.working()
    return told["run_id"], told["pid"]


def over(runs: Runs, run_id: str) -> None:
    eventually(lambda: not any(row.alive for row in runs.list() if row.run_id == run_id), "the end of the run")


def watch(background: Background, *args: str) -> "subprocess.Popen[str]":
    """Somebody who watches the run, and does so by now."""
    child = background.popen("attach", *args)
    assert child.stderr is not None
    assert "attached to" in child.stderr.readline()
    return child


# --- in the background -------------------------------------------------------------------------------


def test_a_run_that_begins_later_waits_in_the_background_and_is_stopped(
    say: Say, runs: Runs, background: Background
) -> None:
    said = say("run", "a goal", *background.flags, "--at", "2090-01-31T01:00", "--detach", "--json")
    assert said.code == 0, said.err
    run_id = json.loads(said.out)["run_id"]

    def status() -> dict[str, object]:
        found: dict[str, object] = json.loads(say("status", run_id, "--json").out)
        return found

    eventually(lambda: status()["status"] == "waiting", "the wait")
    assert "waiting for its start until 2090-01-31 01:00" in say("status", run_id).out
    assert status()["waiting_until"] == datetime.fromisoformat("2090-01-31T01:00").timestamp()
    assert say("stop", run_id).code == 0
    over(runs, run_id)
    assert (status()["exit_reason"], status()["attempts"]) == ("stop_requested", 0)


def test_ctrl_c_ends_the_wait_for_the_start(background: Background) -> None:
    child = background.popen("run", "a goal", *background.flags, "--at", "2090-01-31T01:00")
    assert child.stdout is not None
    assert any("waiting for its start until 2090-01-31 01:00 (" in line for line in child.stdout)
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=240)
    assert (child.returncode, background.calls.exists()) == (130, False)


def test_the_command_is_over_once_the_run_is_in_the_log(
    say: Say, runs: Runs, background: Background, store: Path
) -> None:
    said = say("run", "a goal", *background.flags, "--detach")
    assert said.code == 0
    (row,) = runs.list()
    assert f"untildone attach {row.run_id}" in said.out
    resumed = [record.event for record in runs.read(row.run_id) if isinstance(record.event, ContinuousResumed)]
    (pid,) = [event.pid for event in resumed]
    assert f"pid {pid}" in said.out
    assert row.alive
    assert os.getsid(pid) == pid, "a session of its own, without our terminal"
    streams = [str(Path(f"/proc/{pid}/fd/{number}").readlink()) for number in range(3)]
    log = store / "runs" / f"{row.run_id}.log"
    assert streams == [os.devnull, str(log), str(log)]
    os.kill(pid, signal.SIGHUP)  # means nothing to it
    background.let_go()
    over(runs, row.run_id)
    assert runs.state(row.run_id).phase == "completed"
    # Its last words come after the last event.
    eventually(lambda: "1 iteration ·" in log.read_text(), "the summary")


def test_what_the_run_refuses_is_said_here(say: Say, background: Background, project: Path, store: Path) -> None:
    for command in (("init", "-q", "."), ("add", "."), ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm1")):
        (project / "mine.txt").write_text("1")
        subprocess.run(["git", *command], cwd=project, check=True)
    (project / "mine.txt").write_text("not committed")
    said = say("run", "a goal", *background.flags, "--detach")
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert "mine.txt" in said.err
    assert list((store / "runs").iterdir()) == [], "a log that says nothing more is not kept"


def test_a_folder_that_is_called_like_us_is_not_us(
    say: Say, runs: Runs, background: Background, project: Path, tmp_path: Path
) -> None:
    (project / "untildone").mkdir()
    (project / "untildone" / "__init__.py").write_text("")
    (project / "untildone" / "__main__.py").write_text(f"open({str(tmp_path / 'owned')!r}, 'w')")
    background.let_go()
    run_id = say("run", "a goal", *background.flags, "--detach", "--quiet").out.strip()
    over(runs, run_id)
    assert runs.state(run_id).phase == "completed"
    assert not (tmp_path / "owned").exists()


def test_a_result_that_nobody_waits_for_cannot_be_shaped(say: Say, background: Background) -> None:
    said = say("run", "a goal", *background.flags, "--detach", "--format", "{name}")
    assert said.code == 2
    assert "--detach" in said.err


def test_the_command_the_program_gives_itself_is_not_for_people(say: Say, background: Background) -> None:
    assert "detached" not in say("--help").out.replace("--detach", "")
    child = background.popen("detached")
    _, err = child.communicate(timeout=240)
    assert (child.returncode, err.count("\n")) == (2, 1)
    assert "--detach" in err


# --- watching it ---------------------------------------------------------------------------------------


def test_leaving_does_not_stop_it(say: Say, runs: Runs, background: Background) -> None:
    run_id, _ = started(say, background)
    child = watch(background)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=240)
    assert child.returncode == 0, err
    assert "goes on" in err
    assert any(row.alive for row in runs.list())
    leave_the_live_screen(run_id)
    refused = say("run", "another goal", *background.flags, "--detach")
    assert (refused.code, run_id in refused.err) == (2, True), "the folder is in use"
    background.let_go()
    over(runs, run_id)
    assert runs.state(run_id).phase == "completed"


def leave_the_live_screen(run_id: str) -> None:
    """It says what Ctrl+C does here."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ |= {"TERM": "xterm", "PYTHONUTF8": "1", "COLUMNS": "100", "LINES": "40"}
        os.execv(sys.executable, [sys.executable, "-m", "untildone", "attach", run_id])
    shown = b""  # a read may end within a character
    while "Ctrl+C leaves it working ·".encode() not in shown:
        assert select.select([terminal], [], [], PATIENCE)[0], shown
        shown += os.read(terminal, 4096)
    os.write(terminal, b"\x03")
    while b"goes on without you" not in shown:
        assert select.select([terminal], [], [], PATIENCE)[0], shown
        shown += os.read(terminal, 4096)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    os.close(terminal)
    assert b"stops and keeps" not in shown


def test_a_driver_that_died_is_told_and_its_run_taken_up_again(say: Say, runs: Runs, background: Background) -> None:
    run_id, pid = started(say, background)
    child = watch(background, run_id)
    os.kill(pid, signal.SIGKILL)
    _, err = child.communicate(timeout=240)
    assert child.returncode == 1
    assert "untildone resume" in err
    over(runs, run_id)
    background.let_go()
    said = say("resume", "--interrupted", "--detach")
    assert said.code == 0, said.err
    assert f"untildone attach {run_id}" in said.out
    over(runs, run_id)
    assert runs.state(run_id).phase == "completed"
    assert "no interrupted runs" in say("resume", "--interrupted").out


def test_attach_to_a_run_that_stopped_says_how(say: Say, runs: Runs, project: Path) -> None:
    runs.begin(project, *FIRST, SUSPENDED)
    said = say("attach", "night")
    assert said.code == 130
    assert "1 iteration" in said.out
    assert say("attach", "nobody").code == 2


def test_attach_follows_a_chain(say: Say, runs: Runs, background: Background, project: Path) -> None:
    (project / "second.md").write_text("The second goal\n")
    run_id, _ = started(say, background, "--then", "second.md")
    child = watch(background, run_id)
    background.let_go()
    out, err = child.communicate(timeout=240)
    assert child.returncode == 0, err
    assert out.count("1 iteration ·") == 2
    assert "iteration 1" in out
    over(runs, next_run_id(run_id))


# --- after a crash ---------------------------------------------------------------------------------------


def test_a_shutdown_in_order_is_an_interruption_a_stop_is_none(say: Say, runs: Runs, background: Background) -> None:
    run_id, pid = started(say, background)
    os.kill(pid, signal.SIGTERM)
    over(runs, run_id)
    assert runs.state(run_id).stop_reason == "shutdown_signal"
    assert say("resume", "--interrupted", "--detach").code == 0
    background.working(times=2)
    assert say("stop", run_id).code == 0
    over(runs, run_id)
    assert runs.state(run_id).stop_reason == "stop_requested"
    assert "no interrupted runs" in say("resume", "--interrupted").out


@pytest.mark.parametrize(
    ("events", "status"),
    [
        ((SUSPENDED,), "suspended"),
        ((DONE,), "completed"),
        ((PauseRequested(by="cli"),), "running"),
        ((StopRequested(by="cli"),), "running"),
    ],
    ids=["stopped", "done", "paused", "told to stop"],
)
def test_what_a_human_wanted_is_no_interruption(
    say: Say, runs: Runs, project: Path, events: tuple[StopRequested, ...], status: str
) -> None:
    runs.begin(project, *FIRST, *events, status=status)
    assert "no interrupted runs" in say("resume", "--interrupted").out


def test_what_was_cut_off_and_is_left_is_said(say: Say, runs: Runs, project: Path) -> None:
    runs.begin(project, *FIRST, status="running", policy=Policy(max_runs=5, deadline=1.0))
    runs.begin(project, *FIRST, PauseRequested(by="cli"), status="running", name="b", run_id="bbb")
    runs.begin(project, *FIRST, status="running", name="c", run_id="ccc")
    runs.begin(project, DONE, status="completed", name="c", run_id="ddd")
    said = say("resume", "--interrupted")
    assert (said.code, said.out) == (0, "no interrupted runs to resume\n")
    for told in (
        "night (abc123def456) is not resumed: its deadline, 1970-01-01",
        "b (bbb) is not resumed: it is paused; `untildone resume bbb`",
        "c (ccc) is not resumed: a newer run of the same name took its place",
    ):
        assert told in said.err
    assert said.err.count("\n") == 3


def test_a_run_that_waited_for_days_is_taken_up_and_one_that_cannot_be_is_no_reason_to_leave_it(
    say: Say, runs: Runs, tmp_path: Path, project: Path, background: Background
) -> None:
    """A weekly limit, and then a reboot: how long a session may rest has nothing to do with it."""
    gone = tmp_path / "gone"
    gone.mkdir()
    runs.begin(gone, run_id="aaaaaaaaaaaa", name="lost", status="running")
    gone.rmdir()
    background.let_go()
    claude = AgentOptions(agent="claude_cli", claude=background.flags[3])
    run_id = runs.begin(
        project, *FIRST, status="running", policy=Policy(max_runs=5, session_expiry=-1.0), options=claude
    )
    said = say("resume", "--interrupted")
    assert said.code == 2, "the first that could not be taken up"
    assert str(gone) in said.err
    assert runs.state(run_id).phase == "completed"


def test_interrupted_runs_are_taken_up_as_they_are(say: Say, project: Path) -> None:
    for more in (("night",), ("-m", "3"), ("--json",)):
        said = say("resume", "--interrupted", *more)
        assert (said.code, said.err.count("\n")) == (2, 1)


def test_a_chain_whose_next_goal_never_started_is_an_interruption(say: Say, runs: Runs, background: Background) -> None:
    background.let_go()
    second = next_run_id(cut_chain(runs, background, "Second", "Third"))
    assert say("resume", "--interrupted").code == 0
    assert [runs.state(run_id).phase for run_id in (second, next_run_id(second))] == ["completed"] * 2

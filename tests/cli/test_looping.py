"""Loops inside Claude Code, for people outside of it; the hooks are called as Claude Code calls them."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli.cli_kit import FIRST, SUSPENDED, Runs, Say
from notify.ear import listening
from patience import PATIENCE, eventually
from untildone.core import loop_file
from untildone.hook import register, templates

LAUNCHER = Path(register.__file__).parent / "run.sh"
Hook = Callable[..., dict[str, Any]]


@pytest.fixture
def hook(store: Path, project: Path) -> Hook:
    """Calls a hook through the real launcher; a hook that fails says so in its log."""

    def call(event: str, session: str = "s1", **fields: Any) -> dict[str, Any]:
        given = {"session_id": session, "cwd": str(project), "hook_event_name": event, "transcript_path": "", **fields}
        names = ("PATH", "HOME", "CLAUDE_PID")
        env = {name: os.environ[name] for name in names if name in os.environ} | {"UNTILDONE_HOME": str(store)}
        done = subprocess.run(
            ["sh", str(LAUNCHER), event],
            input=json.dumps(given).encode(),
            env=env | {"CLAUDE_PROJECT_DIR": str(project)},
            capture_output=True,
            timeout=240,
            check=False,
        )
        log = store / "hook.log"
        assert (done.returncode, done.stderr, log.exists() and log.read_text()) == (0, b"", False)
        return json.loads(done.stdout) if done.stdout else {}

    return call


def adopted(hook: Hook, session: str = "s1") -> None:
    said = hook(
        "UserPromptExpansion", session, command_name="untildone:loop", command_args="--adopt", command_source="plugin"
    )
    assert "GOAL" in said["hookSpecificOutput"]["additionalContext"]


def stop(hook: Hook, message: str, session: str = "s1", **more: Any) -> dict[str, Any]:
    return hook("Stop", session, last_assistant_message=message, stop_hook_active=False, background_tasks=[], **more)


def entry_of(store: Path, project: Path) -> Any:
    return register.find(str(store), str(project))


def started(say: Say, *more: str) -> str:
    said = say("loop", "start", "Make it work", "--json", *more)
    assert said.code == 0, said.err
    loop: str = json.loads(said.out)["loop"]
    return loop


# --- begin ---------------------------------------------------------------------------------------------------------


def test_a_loop_waits_for_a_session_that_takes_it_up(say: Say, store: Path, project: Path) -> None:
    said = say("loop", "start", "Make", "it", "work", "--max", "3", "--promise", "DONE", "--check", "true")
    assert said.code == 0
    assert "/untildone:loop --adopt" in said.out
    file = loop_file.parse((project / ".untildone/loop.md").read_text())
    assert file is not None
    assert (file.body.strip(), file.max_iterations, file.promises, file.checks) == (
        "Make it work",
        3,
        ("DONE",),
        ("true",),
    )
    assert entry_of(store, project)["session"] == ""
    assert "waits for a session" in say("status").out
    assert json.loads(say("status", "--json").out)["status"] == "waiting"
    listed = say("ls").out
    assert "waits for a session" in listed
    assert "running" not in listed
    assert [row["status"] for row in json.loads(say("ls", "--json").out)] == ["waiting"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["start"], "needs a goal"),
        (["start", "x", "--max", "0"], "--max"),
        (["start", "x", "--deadline", "noon"], "no moment"),
        (["start", "x", "--deadline", "2001-01-01T00:00"], "over already"),
        (["start", "x", "--max-duration", "soon"], "--max-duration"),
        (["start", "x", "--turn-time", "0s"], "--turn-time"),
        (["start", "--template", "nonsense"], "there is no template"),
        (["start", "--template", "../x"], "there is no template"),
        (["start", "--template", "tests", "--from-todos"], "give one of them"),
        (["start", "--from-todos"], "nothing is pending"),
        (["start", "x", "--next-file", "gone.md"], "gone.md cannot be read"),
        (["start", "x", "--next", " "], "--next needs a goal"),
        (["start", "x", "--tasks", "gone.md"], "'gone.md' is no file"),
        (["stop", "nobody"], "no run called"),
        (["start", "x", "--notify", "tgram://a/b"], "only tell webhooks"),
        (["start", "x", "--notify", "http://"], "http"),
        (["start", "x", "--promise", "a\nb"], "one line"),
        (["stop"], "no loop is running"),
        (["reset"], "no loop is running"),
        (["adopt"], "no loop waits"),
        (["history", "--replay"], "needs the loop"),
        (["history", "nobody"], "no run called"),
        (["templates", "nonsense"], "there is no template"),
        (["dance"], "No such command"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(
    say: Say, project: Path, store: Path, words: list[str], complaint: str
) -> None:
    said = say("loop", *words)
    assert said.code == 2, said
    assert complaint in said.err
    assert said.err.count("\n") == 1
    assert not (project / ".untildone").exists()
    assert entry_of(store, project) is None


def test_nobodys_goal_is_written_over(say: Say, project: Path) -> None:
    started(say)
    said = say("loop", "start", "another")
    assert (said.code, "a loop is at work" in said.err) == (2, True)
    assert "Make it work" in (project / ".untildone/loop.md").read_text()


def test_a_template_brings_goal_promise_and_turns(say: Say, project: Path) -> None:
    assert say("loop", "start", "--template", "tests", "Begin with the parser").code == 0
    file = loop_file.parse((project / ".untildone/loop.md").read_text())
    assert file is not None
    assert file.body.rstrip().endswith("Begin with the parser")
    assert (file.promises, file.max_iterations) == (("ALL TESTS PASS",), 20)


def test_what_was_typed_comes_before_the_template(say: Say, project: Path) -> None:
    assert say("loop", "start", "--template", "tests", "--max", "4", "--promise", "P").code == 0
    file = loop_file.parse((project / ".untildone/loop.md").read_text())
    assert file is not None
    assert (file.promises, file.max_iterations) == (("P",), 4)


def test_a_loop_of_everything_that_is_pending(say: Say, project: Path) -> None:
    todos = [{"content": "write the parser", "status": "pending"}, {"content": "old", "status": "completed"}]
    (project / ".claude").mkdir()
    (project / ".claude/todo_state.json").write_text(json.dumps({"todos": todos}))
    assert say("loop", "start", "--from-todos").code == 0
    text = (project / ".untildone/loop.md").read_text()
    assert "- [ ] write the parser" in text
    assert "old" not in text


def test_goals_that_follow_are_typed_or_read_at_once(say: Say, store: Path, project: Path) -> None:
    (project / "third.md").write_text("The third goal\n")
    more = ("--milestone", "5", "--milestone", "2", "--max-duration", "2h", "--turn-time", "5")
    started(say, "--next-file", "third.md", "--next", "The second goal", *more)
    entry = entry_of(store, project)
    assert ["The second goal" in entry["next"][0], "The third goal" in entry["next"][1]] == [True, True]
    assert (entry["milestones"], entry["total_seconds"], entry["iteration_seconds"]) == ([2, 5], 7200.0, 300.0)
    assert json.loads(say("status", "--json").out)["limits"]["max_duration"]["limit"] == 7200.0


def test_where_nothing_can_be_written_one_line_says_so(say: Say, store: Path, project: Path) -> None:
    store.mkdir()
    (store / "loops").write_text("in the way")
    said = say("loop", "start", "x")
    assert (said.code, said.err.count("\n")) == (1, 1)
    assert "cannot be written" in said.err
    assert "bug" not in said.err


# --- the whole story -----------------------------------------------------------------------------------------------


def test_a_loop_is_a_run_like_any_other(say: Say, hook: Hook, store: Path, project: Path) -> None:
    loop = started(say, "--max", "5", "--promise", "ALL DONE", "--check", "test -e done")
    adopted(hook)
    assert "hookSpecificOutput" in stop(hook, "half")
    assert "running in session s1" in say("status").out
    assert json.loads(say("ls", "--json").out)[0]["alive"] is True
    assert "hookSpecificOutput" in stop(hook, "ok\nALL DONE")
    (project / "done").touch()
    assert "hookSpecificOutput" not in stop(hook, "ok\nALL DONE")

    told = json.loads(say("status", "--json").out)
    assert (told["run_id"], told["exit_reason"], told["verified"], told["attempts"]) == (
        loop,
        "validation_passed",
        True,
        3,
    )
    log = say("log", "-v").out
    assert log.index("checks failed") < log.index("checks passed") < log.index("done and verified")
    assert "Done and verified" in say("brief").out
    assert [row["status"] for row in json.loads(say("ls", "--json").out)] == ["completed"]


def test_following_a_loop_shows_what_comes(say: Say, hook: Hook, store: Path, project: Path) -> None:
    started(say, "--max", "2")
    adopted(hook)
    argv = [sys.executable, "-m", "untildone", "log", "-f"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as following:
        try:
            assert following.stdout is not None
            lines = iter(following.stdout.readline, "")
            assert any("iteration 1 started" in line for line in lines)
            hook("PostToolUse", tool_name="Edit", tool_input={"file_path": "a.py"}, tool_response={}, tool_use_id="t")
            stop(hook, "half")
            assert any("iteration 1 ended" in line and "1 file changed" in line for line in lines)
            stop(hook, "end")
            assert any("max_iterations_reached" in line for line in lines)
            assert following.wait(PATIENCE) == 0
        finally:
            following.kill()


def test_a_goal_that_follows_is_a_run_of_its_own(say: Say, hook: Hook, project: Path) -> None:
    first = started(say, "--promise", "DONE", "--next", "The second goal")
    adopted(hook)
    assert "The second goal" in stop(hook, "DONE")["hookSpecificOutput"]["additionalContext"]
    rows = {row["run_id"]: (row["status"], row["alive"]) for row in json.loads(say("ls", "--json").out)}
    assert rows.pop(first) == ("completed", False)
    assert list(rows.values()) == [("running", True)]
    assert json.loads(say("status", "--json").out)["goal"] == "The second goal"
    assert "hookSpecificOutput" not in stop(hook, "DONE")
    assert {row["status"] for row in json.loads(say("ls", "--json").out)} == {"completed"}


def test_another_session_changes_nothing(say: Say, hook: Hook) -> None:
    started(say)
    adopted(hook)
    assert stop(hook, "half", session="s2") == {}
    assert json.loads(say("status", "--json").out)["attempts"] == 1


def test_finished_loops_can_be_looked_at_again(say: Say, hook: Hook) -> None:
    assert "no loop is over yet" in say("loop", "history").out
    loop = started(say, "--max", "2")
    adopted(hook)
    stop(hook, "first \x1b[31mwords\nsecond line")
    stop(hook, "last words")
    listed = say("loop", "history").out
    assert loop in listed
    assert "max_iterations_reached" in listed
    one = say("loop", "history", loop).out
    assert "Make it work" in one
    assert "max_iterations: 2" in one
    replay = say("loop", "history", "--replay", loop).out
    order = ["turn 1", "first words", "second line", "turn 2", "last words", "max_iterations_reached"]
    assert sorted(order, key=replay.index) == order
    assert "\x1b" not in replay
    found = json.loads(say("loop", "history", loop, "--json").out)
    assert (found["run_id"], found["attempts"], "Make it work" in found["file"]) == (loop, 2, True)
    assert [each["run_id"] for each in json.loads(say("loop", "history", "--json").out)] == [loop]


def test_the_history_is_for_loops_only(say: Say, runs: Runs, project: Path) -> None:
    runs.begin(project, *FIRST, SUSPENDED)
    said = say("loop", "history", "night")
    assert (said.code, "no loop inside Claude Code" in said.err) == (2, True)


def test_stop_lets_the_session_go_and_keeps_the_goal(say: Say, hook: Hook, store: Path, project: Path) -> None:
    loop = started(say)
    adopted(hook)
    said = say("loop", "stop")
    assert (said.code, loop in said.out) == (0, True)
    assert stop(hook, "anything") == {}
    assert not (project / ".untildone/loop.md").exists()
    assert "Make it work" in (store / "history" / f"{loop}.md").read_text()
    told = json.loads(say("status", "--json").out)
    assert (told["exit_reason"], told["status"]) == ("stop_requested", "suspended")
    assert "resume" not in told["advice"]


def test_a_loop_is_ended_by_its_id_or_name_from_anywhere(say: Say, tmp_path: Path, store: Path) -> None:
    ended = []
    for number, pick in enumerate((lambda row: row["run_id"], lambda row: row["run_id"][:6], lambda row: row["name"])):
        other = tmp_path / f"other {number}"
        other.mkdir()
        loop = json.loads(say("loop", "start", f"goal {number}", "--cwd", str(other), "--json").out)["loop"]
        row = next(row for row in json.loads(say("ls", "--json").out) if row["run_id"] == loop)
        said = say("loop", "stop", pick(row))
        assert (said.code, str(other) in said.out) == (0, True), said
        assert entry_of(store, other) is None
        ended.append(loop)
    again = say("loop", "stop", ended[0])
    assert (again.code, "is over already" in again.err) == (2, True)


def test_a_run_is_not_ended_as_a_loop(say: Say, runs: Runs, project: Path) -> None:
    runs.begin(project, *FIRST, SUSPENDED)
    said = say("loop", "stop", "night")
    assert (said.code, "no loop inside Claude Code" in said.err) == (2, True)


def test_a_loop_that_nobody_looked_at_yet_is_known_to_stop(say: Say) -> None:
    loop = started(say)
    said = say("stop", loop)
    assert (said.code, f"untildone loop stop {loop}" in said.err) == (2, True)


def test_a_loop_without_its_file_is_over_for_whoever_looks(say: Say, hook: Hook, project: Path) -> None:
    loop = started(say)
    adopted(hook)
    stop(hook, "half")
    (project / ".untildone/loop.md").unlink()
    assert stop(hook, "more") == {}
    assert [row["status"] for row in json.loads(say("ls", "--json").out)] == ["suspended"]
    told = say("status").out
    assert "its state file was removed" in told
    assert "a human asked" not in told
    assert "a human asked" not in say("brief").out
    assert loop in say("loop", "history").out


def test_a_loop_whose_folder_is_gone_is_over(say: Say, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    assert say("loop", "start", "x", "--cwd", str(other)).code == 0
    shutil.rmtree(other)
    assert json.loads(say("loop", "status", "--json").out)["elsewhere"] == []
    assert "its project folder is gone" in say("log", json.loads(say("ls", "--json").out)[0]["run_id"]).out


def test_a_session_that_is_not_open_is_told(say: Say, hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as claude:
        loop = started(say)
        monkeypatch.setenv("CLAUDE_PID", str(claude.pid))
        adopted(hook)
        assert "running in session s1" in say("status").out
        assert json.loads(say("loop", "status", "--json").out)["loop"]["session_open"] is True
        claude.kill()
    shown = say("loop", "status").out
    assert "not open: `claude --resume s1`" in shown
    assert "/untildone:loop --adopt" in shown
    assert json.loads(say("loop", "status", "--json").out)["loop"]["session_open"] is False
    told = say("status").out
    assert "its session s1 is not open" in told
    assert "/untildone:loop --adopt" in told
    assert "interrupted" in say("ls").out
    assert say("loop", "stop", loop).code == 0


def test_a_passed_check_closes_the_breaker(say: Say, hook: Hook, project: Path) -> None:
    started(say, "--check", "test -e done", "--promise", "DONE")
    adopted(hook)
    stop(hook, "DONE")
    assert "not stuck (1 of 5)" in say("status").out
    (project / "done").touch()
    stop(hook, "DONE")
    assert "not stuck (0 of 5)" in say("status").out


def test_what_is_claimed_in_the_very_last_turn_is_recorded(say: Say, hook: Hook) -> None:
    started(say, "--check", "false", "--promise", "DONE", "--max", "1")
    adopted(hook)
    stop(hook, "DONE")
    told = json.loads(say("brief", "--json").out)
    assert told["exit_reason"] == "max_iterations_reached"
    assert [row["claim"] for row in told["iterations"]] == ["done (signal)"]


# --- where one stands ------------------------------------------------------------------------------------------------


def repository(folder: Path) -> None:
    (folder / ".git").mkdir()


def test_a_loop_is_found_from_below_and_from_the_root_of_its_repository(
    say: Say, project: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository(project)
    inner, deep = project / "inner", project / "inner" / "deep"
    deep.mkdir(parents=True)
    loop = json.loads(say("loop", "start", "x", "--cwd", str(inner), "--json").out)["loop"]
    for place in (project, inner, deep):
        monkeypatch.chdir(place)
        assert json.loads(say("loop", "status", "--json").out)["loop"]["loop"] == loop
    assert str(inner) in say("loop", "status").out
    assert say("loop", "reset").code == 0
    said = say("loop", "stop")
    assert (said.code, str(inner) in said.out) == (0, True)
    assert entry_of(store, inner) is None


def test_a_loop_of_another_repository_is_not_the_one_of_this_folder(
    say: Say, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = project / "inner"
    inner.mkdir()
    repository(inner)
    started(say)
    monkeypatch.chdir(inner)
    assert json.loads(say("loop", "status", "--json").out)["loop"] is None
    assert say("loop", "stop").code == 2
    assert say("loop", "start", "y").code == 0
    monkeypatch.chdir(project)
    assert say("loop", "stop").code == 0
    repository(project)
    assert say("loop", "stop").code == 2


def test_of_several_loops_below_one_has_to_be_named(say: Say, project: Path) -> None:
    repository(project)
    loops = []
    for name in ("a", "b"):
        (project / name).mkdir()
        loops.append(json.loads(say("loop", "start", "x", "--cwd", str(project / name), "--json").out)["loop"])
    said = say("loop", "stop")
    assert (said.code, [loop in said.err for loop in loops]) == (2, [True, True])
    told = json.loads(say("loop", "status", "--json").out)
    assert (told["loop"], len(told["elsewhere"])) == (None, 2)
    assert say("loop", "stop", loops[0]).code == 0
    assert say("loop", "stop").code == 0


def test_reset_counts_anew(say: Say, hook: Hook, store: Path, project: Path) -> None:
    started(say, "--check", "false", "--promise", "DONE")
    adopted(hook)
    stop(hook, "DONE")
    stop(hook, "DONE")
    assert "2 of 5 in a row at check: false" in say("loop", "status").out
    assert say("loop", "reset").code == 0
    assert entry_of(store, project)["failures"] == 0
    assert json.loads(say("loop", "status", "--json").out)["loop"]["iteration"] == 3
    assert say("loop", "reset", "--turns").code == 0
    assert json.loads(say("loop", "status", "--json").out)["loop"]["iteration"] == 1
    assert "not stuck (0 of 5)" in say("status").out


def test_status_shows_this_loop_in_full_and_others_in_short(
    say: Say, tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "no loop is running" in say("loop", "status").out
    nothing = {"loop": None, "file_here": None, "elsewhere": [], "run": None}
    assert json.loads(say("loop", "status", "--json").out) == nothing
    here = started(say, "--deadline", "2099-01-01T00:00", "--check", "make \x1b]0;x\x07test")
    other = tmp_path / "other"
    other.mkdir()
    assert say("loop", "start", "Other", "--cwd", str(other)).code == 0
    text = say("loop", "status").out
    for piece in (here, "1 of 10", "Make it work", "2099-01-01", "make test", "elsewhere", str(other)):
        assert piece in text
    assert "\x1b" not in text
    told = json.loads(say("loop", "status", "--json").out)
    assert (told["loop"]["loop"], told["loop"]["goal"]) == (here, "Make it work")
    assert [each["project"] for each in told["elsewhere"]] == [str(other)]


def test_a_file_that_came_from_elsewhere_is_pointed_out_and_adopted_with_its_checks(
    say: Say, hook: Hook, store: Path, project: Path
) -> None:
    (project / ".untildone").mkdir()
    text = loop_file.new_file("Foreign goal", checks=("touch ran",), promises=("DONE",))
    (project / ".untildone/loop.md").write_text(text)
    assert stop(hook, "DONE") == {}
    assert "was not started on this machine" in say("loop", "status").out
    assert not (project / "ran").exists()
    said = say("loop", "adopt")
    assert (said.code, "it runs: touch ran" in said.out) == (0, True)
    adopted(hook)
    stop(hook, "DONE")
    assert (project / "ran").exists()


def test_checks_that_were_changed_in_the_file_are_shown_as_not_run(say: Say, project: Path) -> None:
    started(say, "--check", "true")
    path = project / ".untildone/loop.md"
    path.write_text(loop_file.changed(path.read_text(), checks=("rm -rf x",)))
    assert "not run until `untildone loop adopt`" in say("loop", "status").out


# --- who may -------------------------------------------------------------------------------------------------------

STEERING = [["start", "x"], ["adopt"], ["stop"], ["reset"]]


@pytest.mark.parametrize("mark", ["CLAUDECODE", "UNTILDONE_RUN"])
@pytest.mark.parametrize("words", STEERING, ids=lambda words: words[0])
def test_no_agent_begins_or_ends_a_loop(
    say: Say, store: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], mark: str
) -> None:
    loop = started(say)
    monkeypatch.setenv(mark, "1")
    said = say("loop", *words)
    assert said.code == 5
    assert entry_of(store, Path.cwd())["loop"] == loop
    assert say("loop", "status").code == 0
    assert say("loop", "history").code == 0


def test_the_agent_of_the_session_is_known_by_its_ancestors(say: Say, hook: Hook, store: Path, project: Path) -> None:
    started(say)
    adopted(hook, "the-session")
    shell = (
        f'env -i PATH="$PATH" HOME="$HOME" UNTILDONE_HOME=\'{store}\' {sys.executable} -m untildone loop stop; exit $?'
    )
    env = os.environ | {"CLAUDE_CODE_SESSION_ID": "the-session"}
    refused = subprocess.run(["sh", "-c", shell], env=env, capture_output=True, text=True, timeout=240, check=False)
    assert refused.returncode == 5, refused.stderr
    assert entry_of(store, project) is not None
    other = os.environ | {"CLAUDE_CODE_SESSION_ID": "another"}
    assert subprocess.run(["sh", "-c", shell], env=other, capture_output=True, timeout=240, check=False).returncode == 0


OUTER = (
    ["resume"], ["stop"], ["pause"], ["skip-wait"], ["reset"], ["limits", "--max-runs", "3"], ["land"], ["attach"],
    ["message", "LOOP", "hello"], ["waive", "LOOP", "x"], ["rewind", "LOOP", "1"], ["fork", "LOOP", "--from", "1"],
)  # fmt: skip
"""Commands for runs outside of a session."""


def test_what_cannot_reach_a_loop_says_so(say: Say, hook: Hook) -> None:
    loop = started(say)
    adopted(hook)
    stop(hook, "half")
    say("ls")
    said = {words[0]: say(*(loop if word == "LOOP" else word for word in words)) for words in OUTER}
    assert [word for word, told in said.items() if told.code != 2 or told.err.count("\n") != 1] == []
    assert [word for word, told in said.items() if "is a loop inside a Claude Code session" not in told.err] == []


def test_a_reboot_takes_up_no_loop(say: Say, hook: Hook) -> None:
    started(say)
    adopted(hook)
    stop(hook, "half")
    say("ls")
    said = say("resume", "--interrupted")
    assert (said.code, said.out) == (0, "no interrupted runs to resume\n")


def test_a_run_of_the_same_goal_is_another_run(say: Say, project: Path) -> None:
    started(say)
    name = json.loads(say("status", "--json").out)["name"]
    plan = say("run", "Make it work", "-m", "1", "--dry-run", "--json")
    assert plan.code == 0
    assert name not in plan.out


# --- being told ----------------------------------------------------------------------------------------------------


def heard(ear: Any, number: int) -> list[dict[str, Any]]:
    """What a webhook was told, once it was told so often: the process that tells it is nobody's child."""
    eventually(lambda: len(ear.heard) >= number, f"note {number}")
    return list(ear.heard)


def test_milestones_and_the_end_reach_a_webhook(say: Say, hook: Hook, store: Path, project: Path) -> None:
    with listening() as ear:
        loop = started(say, "--max", "3", "--milestone", "1", "--notify", ear.url)
        adopted(hook)
        stop(hook, "half")
        (milestone,) = heard(ear, 1)
        stop(hook, "more")
        stop(hook, "end")
        _, end = heard(ear, 2)
    assert (milestone["untildone"], milestone["kind"], milestone["run_id"]) == (1, "milestone", loop)
    assert (end["kind"], end["facts"]["reason"], end["facts"]["iteration"]) == ("stopped", "max_iterations_reached", 3)
    assert end["facts"]["folder"] == str(project)
    assert ear.paths == ["/hook/s3cret?token=t0ken"] * 2


# --- templates -------------------------------------------------------------------------------------------------------


def test_the_templates_that_come_along() -> None:
    assert templates.names({"HOME": "/nowhere"}) == ["bug", "coverage", "docs", "lint", "refactor", "tests", "types"]


def test_templates_are_listed_and_shown(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    own = Path(templates.own_folder(os.environ))
    own.mkdir(parents=True)
    (own / "mine.md").write_text("---\n# My own\nmax_iterations: 7\nchecks: [make x]\n---\nDo \x1b[2Jit\n")
    listed = say("loop", "templates").out
    for piece in ("tests", "Make every test pass", "mine", "yours", "My own", str(own)):
        assert piece in listed
    shown = say("loop", "templates", "mine").out
    assert "Do it" in shown
    assert "\x1b" not in shown
    told = {each["name"]: each for each in json.loads(say("loop", "templates", "--json").out)}
    assert (told["mine"]["checks"], told["mine"]["max_iterations"], told["mine"]["own"]) == (["make x"], 7, True)
    assert json.loads(say("loop", "templates", "tests", "--json").out)["own"] is False


def test_help_of_every_command_says_what_it_does(say: Say) -> None:
    for words in (
        ["loop"],
        *(["loop", name] for name in ("start", "adopt", "status", "stop", "reset", "history", "templates")),
    ):
        said = say(*words, "--help")
        assert said.code == 0
        assert "Usage:" in said.out
    assert "loop" in say("--help").out

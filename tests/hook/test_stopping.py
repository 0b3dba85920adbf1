"""The Stop loop: it goes on exactly as often as it should, for exactly one session, and lets go for one reason."""

import fcntl
import json
import time
from pathlib import Path
from typing import Any

import pytest

from hook.stop_kit import OTHER, SESSION, STOP, Stage, git, goes_on, next_text
from untildone.core import loop_file
from untildone.core.loop_words import CONTINUATION_BLOCK
from untildone.core.repeats import MOST_FAILURES
from untildone.hook import register, starting
from untildone.hook.answered import is_answered
from untildone.hook.answering import Call
from untildone.hook.limiting import time_is_up

CONTINUATION = """\
---
iteration_count: 1
max_iterations: 3
completion_promise: "All tests passing"
active: true
---

Goal: Fix failing tests"""
BLOCKED = "I cannot.\n---LOOP_STATUS---\nSTATUS: BLOCKED\nRECOMMENDATION: a key, please\n---END_LOOP_STATUS---"
COMPLETE = "Done.\n---LOOP_STATUS---\nSTATUS: COMPLETE\nEXIT_SIGNAL: true\nTESTS_STATUS: PASSING\n---END_LOOP_STATUS---"


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def released(stage: Stage) -> dict[str, Any]:
    """The end of the one loop there was: recorded, kept, and nothing left of it in the project."""
    assert stage.entry is None
    assert not stage.file.exists()
    (end,) = stage.told("released")
    return end


# --- how often -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("turns", [1, 2, 10])
def test_n_means_n_turns(stage: Stage, turns: int) -> None:
    stage.start(max_iterations=turns)
    answers = [stage.stop() for _ in range(turns)]
    assert [goes_on(answer) for answer in answers] == [True] * (turns - 1) + [False]
    assert answers[-1]["systemMessage"].startswith("untildone: no turns are left, not done (after ")
    end = released(stage)
    assert (end["reason"], end["iteration"], end["done"]) == ("max_iterations_reached", turns, False)
    assert [line["iteration"] for line in stage.told("turn")] == list(range(1, turns))


def test_through_the_real_launcher(stage: Stage) -> None:
    stage.start("Make it work: “all” of it 🎉", max_iterations=2, promises=("DONE",))
    event = {**STOP, "cwd": str(stage.project)}
    first = stage.launched("Stop", event)
    assert goes_on(first)
    assert "turn 2 of 2" in next_text(first)
    assert "Make it work: “all” of it 🎉" in next_text(first)
    assert "`DONE`" in next_text(first)
    assert first["systemMessage"] == "untildone: turn 2 of 2"
    second = stage.launched("Stop", {**event, "stop_hook_active": True})
    assert set(second) == {"systemMessage"}
    assert stage.launched("Stop", event) == {}
    assert stage.log == ""


def test_the_goal_is_kept_byte_for_byte(stage: Stage) -> None:
    goal = "Fix:\r\n\t- [ ] “x”\n---\n\nend  "
    stage.start(goal, max_iterations=3)
    before = loop_file.parse(stage.file.read_bytes().decode())
    stage.stop()
    stage.stop()
    after = loop_file.parse(stage.file.read_bytes().decode())
    assert before is not None
    assert after is not None
    assert (after.body, after.iteration) == (before.body, 3)
    stage.stop()
    (kept,) = (stage.home / "history").glob("*.md")
    assert kept.read_bytes().decode().endswith(goal + "\n")


# --- live edits ------------------------------------------------------------------------------------------------


def test_edits_are_honoured_while_it_runs(stage: Stage) -> None:
    stage.start("Old goal", max_iterations=2)
    stage.edit(max_iterations=5, promises=("SHIPPED",))
    stage.file.write_text(stage.file.read_text().replace("Old goal", "New goal"))
    answer = stage.stop()
    assert "New goal" in next_text(answer)
    assert "`SHIPPED`" in next_text(answer)
    stage.edit(iteration=5)
    assert not goes_on(stage.stop())


def test_switched_off_it_lets_go(stage: Stage) -> None:
    stage.start()
    stage.edit(active=False)
    assert stage.stop() == {"systemMessage": "untildone: stopped as asked, not done (after 1 turn)"}
    assert released(stage)["reason"] == "stop_requested"


def test_a_removed_file_is_a_stop(stage: Stage) -> None:
    stage.start()
    stage.file.unlink()
    assert "its state file was removed" in stage.stop()["systemMessage"]
    assert released(stage)["detail"] == "its state file was removed"


def test_a_file_that_cannot_be_read_holds_the_loop_and_loses_nothing(stage: Stage) -> None:
    stage.start("The goal", max_iterations=4)
    whole = stage.file.read_text()
    stage.file.write_text(whole.replace("max_iterations: 4", "max_iterations: many"))
    answer = stage.stop()
    assert not goes_on(answer)
    assert "mend it" in answer["systemMessage"]
    assert stage.entry is not None
    assert "The goal" in stage.file.read_text()
    stage.file.write_text(whole)
    assert goes_on(stage.stop())


# --- whose session ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("session", [OTHER, "", None, 7])
def test_another_session_is_never_captured(stage: Stage, session: Any) -> None:
    stage.start(max_iterations=5)
    assert stage.stop(session_id=session) == {}
    assert stage.turn == 1


@pytest.mark.parametrize("session", [SESSION, "", None])
def test_a_loop_that_waits_for_a_session_holds_none(stage: Stage, session: Any) -> None:
    stage.start(session="")
    assert stage.stop(session_id=session) == {}
    assert stage.turn == 1


def test_a_file_that_nobody_started_here_does_nothing(stage: Stage) -> None:
    stage.put(".untildone/loop.md", loop_file.new_file("Evil", session=SESSION, checks=("touch pwned",)))
    assert stage.stop() == {}
    assert stage.stop("EXIT_SIGNAL: true") == {}
    assert not (stage.project / "pwned").exists()
    assert stage.entry is None


def test_the_stop_of_a_subagent_is_none_of_the_loop(stage: Stage) -> None:
    stage.start()
    assert stage.stop(agent_id="a49c71476bb803962", hook_event_name="SubagentStop") == {}


def test_inside_a_run_of_the_outer_loop_it_stays_silent(stage: Stage) -> None:
    stage.start(session=OTHER)
    stage.env["UNTILDONE_RUN"] = "abc"
    assert stage.launched("Stop", {**STOP, "cwd": str(stage.project)}) == {}
    assert stage.turn == 1


AGENT = {"id": "a66852564e9e334c8", "type": "subagent", "status": "running", "agent_type": "general-purpose"}
SHELL = {"id": "bedue41qb", "type": "shell", "status": "running", "command": "npm run dev"}


def test_other_agents_at_work_are_waited_for_and_not_counted(stage: Stage) -> None:
    stage.start(max_iterations=2)
    running = [AGENT, SHELL, {**AGENT, "status": "completed"}]
    answer = stage.stop("EXIT_SIGNAL: true", background_tasks=running)
    assert answer == {"systemMessage": "untildone: waiting for 1 task in the background, then it goes on"}
    assert stage.turn == 1
    assert goes_on(stage.stop(background_tasks=running[2:]))


def test_nobody_waits_beyond_the_deadline_or_when_it_is_called_off(stage: Stage) -> None:
    now = time.time()
    stage.start(deadline=now + 100)
    stage.stop(background_tasks=[AGENT], now=now + 101)
    assert released(stage)["reason"] == "deadline_reached"
    stage.start()
    stage.edit(active=False)
    assert "stopped as asked" in stage.stop(background_tasks=[AGENT])["systemMessage"]


def test_a_command_in_the_background_stops_nothing(stage: Stage) -> None:
    """A server never ends: whoever waited for it would wait all night."""
    stage.start(max_iterations=5)
    answer = stage.stop(background_tasks=[SHELL, SHELL])
    assert goes_on(answer)
    assert "there is still 2 shell commands" in next_text(answer)
    assert "in the background" not in next_text(stage.stop())
    assert "done" in stage.stop("EXIT_SIGNAL: true", background_tasks=[SHELL])["systemMessage"]


def test_a_lock_that_somebody_keeps_is_not_waited_for_long(stage: Stage) -> None:
    stage.start()
    (lock,) = (stage.home / "loops").glob("*.lock")
    with lock.open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        answer = stage.stop()
    assert not goes_on(answer)
    assert "keeps the loop of this folder locked" in answer["systemMessage"]
    assert goes_on(stage.stop())


def test_a_hook_that_is_installed_twice_counts_once(stage: Stage) -> None:
    stage.start(max_iterations=5)
    call = stage.call()
    began = time.monotonic()
    assert goes_on(stage.stop(now=call.now))
    entry = stage.entry
    assert is_answered(entry, call, "", began)
    assert not is_answered(entry, stage.call(), "", time.monotonic())
    after_restart = stage.call(now=call.now + 10_000)
    assert not is_answered(entry, after_restart, "", began)
    assert stage.turn == 2


def test_a_second_hook_does_not_end_the_goal_that_follows(stage: Stage) -> None:
    stage.start("First", promises=("DONE",), next_goals=("Second",))
    answers = []
    for root in ({"CLAUDE_PLUGIN_ROOT": "/plugin"}, {}):
        stage.env = {**stage.env, **root}
        if not root:
            del stage.env["CLAUDE_PLUGIN_ROOT"]
        answers.append(stage.launched("Stop", {**STOP, "cwd": str(stage.project), "last_assistant_message": "DONE"}))
    assert [goes_on(answer) for answer in answers] == [True, False]
    assert [line["done"] for line in stage.told("released")] == [True]
    assert "Second" in stage.file.read_text()


def test_a_second_hook_that_comes_late_is_still_the_second(stage: Stage) -> None:
    stage.start(max_iterations=9)
    plugin, settings = {**stage.env, "CLAUDE_PLUGIN_ROOT": "/plugin"}, dict(stage.env)
    went_on = []
    for env, message in (
        (plugin, "A"),
        (settings, "A"),
        (settings, "A"),
        (plugin, "A"),
        (settings, "B"),
        (plugin, "B"),
    ):
        stage.env = env
        went_on.append(goes_on(stage.stop(message)))
    assert went_on == [True, False, False, True, True, False]
    assert stage.turn == 4


# --- claims ----------------------------------------------------------------------------------------------------


FENCED = f"```\n{COMPLETE.removeprefix('Done.')}\n```"
HEADED = "LOOP_STATUS:\n  STATUS: COMPLETE\n  EXIT_SIGNAL: true"


@pytest.mark.parametrize(
    ("promises", "message"),
    [
        (("NEVER SAID", "DONE"), "All is well.\n\nDONE"),
        (("DONE",), "<promise>DONE</promise>"),
        (("DONE",), "**DONE**\n\n---\n🎉"),
        (("DONE",), f"DONE\n\n{COMPLETE.removeprefix('Done.')}"),
        (("DONE",), f"DONE\n\n{FENCED}"),
        (("DONE",), f"DONE\n\n{HEADED}\n"),
        ((), COMPLETE),
        ((), f"All of it.\n{FENCED}"),
        ((), "EXIT_SIGNAL: true"),
        ((), "EXIT_SIGNAL: true\n[AUTO] Iteration 8 | Sprint 2/2 | Task: - | Status: COMPLETE"),
    ],
)
def test_a_claim_ends_it_at_once(stage: Stage, promises: tuple[str, ...], message: str) -> None:
    stage.start(promises=promises)
    assert stage.stop(message) == {"systemMessage": "untildone: done by the agent's word: no checks ran (after 1 turn)"}
    end = released(stage)
    assert (end["reason"], end["done"], end["text"]) == ("completion_signal", True, message)


@pytest.mark.parametrize(
    "message",
    [
        "I will not say DONE yet.", "I will not output:\n\nDONE", "> DONE", "```\nDONE\n```", "done", "Not DONE",
        "The exit line `EXIT_SIGNAL: true` comes later", "EXIT_SIGNAL: false",
        "DONE\n---LOOP_STATUS---\nSTATUS: IN_PROGRESS\nEXIT_SIGNAL: false\n---END_LOOP_STATUS---",
        "DONE\n\nActually, wait, no: two tests still fail.", "The phrase is\n\nDONE\n\nbut I am not there yet",
        "DONE\n\nI have not said DONE", f"DONE\n\nNo.\n{COMPLETE}", "DONE\n```\nan example\n```",
        "EXIT_SIGNAL: true", COMPLETE, HEADED,
    ],
)  # fmt: skip
def test_no_claim_no_end(stage: Stage, message: str) -> None:
    stage.start(promises=("DONE",))
    assert goes_on(stage.stop(message))


@pytest.mark.parametrize("promise", ["done: 'really' \"yes\" 🎉", "✅ All tests passing", "a|b"])
def test_promises_with_all_kinds_of_characters(stage: Stage, promise: str) -> None:
    stage.start(promises=(promise,))
    assert goes_on(stage.stop("not yet"))
    assert not goes_on(stage.stop(f"Here it is.\n\n{promise}"))


def test_what_the_loop_says_quoted_back_is_no_claim(stage: Stage) -> None:
    stage.start("Goal", promises=("DONE",), max_iterations=5)
    reason = next_text(stage.stop())
    assert goes_on(stage.stop(reason))
    stage.edit(promises=())
    assert goes_on(stage.stop(next_text(stage.stop())))


@pytest.mark.parametrize("message", [BLOCKED, BLOCKED.replace("RECOMMENDATION", "EXIT_SIGNAL: true\nRECOMMENDATION")])
def test_blocked_lets_go_as_not_done_whatever_the_exit_signal(stage: Stage, message: str) -> None:
    stage.start()
    assert "needs you, not done" in stage.stop(message)["systemMessage"]
    end = released(stage)
    assert (end["reason"], end["done"]) == ("blocked", False)


def test_a_status_that_names_what_is_left_is_no_claim(stage: Stage) -> None:
    stage.start()
    assert goes_on(stage.stop(COMPLETE.replace("PASSING", "FAILING")))
    assert goes_on(stage.stop(COMPLETE.replace("TESTS_STATUS: PASSING", "REMAINING: the docs")))
    assert not goes_on(stage.stop(COMPLETE))


def test_what_is_said_beside_a_status_is_asked_about_once_and_left_to_checks(stage: Stage) -> None:
    stage.start()
    doubted = f"Chapter 3 is only a stub.\n{COMPLETE}"
    answer = stage.stop(doubted)
    assert goes_on(answer)
    assert "> Chapter 3 is only a stub." in next_text(answer)
    assert goes_on(stage.stop(doubted))
    assert not goes_on(stage.stop(doubted.replace("TESTS_STATUS: PASSING", "REMAINING: none")))
    stage.start(checks=("true",))
    assert not goes_on(stage.stop(doubted))


def test_open_work_outweighs_a_claim(stage: Stage) -> None:
    stage.put("TODO.md", "- [x] one\n- [ ] two\n")
    stage.start(tasks=("TODO.md",), promises=("DONE",))
    answer = stage.stop("DONE")
    assert goes_on(answer)
    assert "You said that everything is done, but there is open work (1)" in next_text(answer)
    assert "two" in next_text(answer)
    assert stage.told("turn")[0]["open_work"] == 1
    stage.put("TODO.md", "- [x] one\n- [x] two\n")
    assert not goes_on(stage.stop("DONE"))


def test_an_exit_signal_needs_every_list_to_be_empty(stage: Stage) -> None:
    stage.put(".claude/todo_state.json", json.dumps({"todos": [{"content": "paint it", "status": "pending"}]}))
    stage.start()
    assert "paint it" in next_text(stage.stop("EXIT_SIGNAL: true"))
    stage.edit(promises=("DONE",))
    assert not goes_on(stage.stop("DONE")), "the promise alone is what this loop was started with"


# --- checks ----------------------------------------------------------------------------------------------------


def test_a_claim_is_believed_when_the_checks_pass(stage: Stage) -> None:
    stage.start(promises=("DONE",), checks=("test -e ready && echo fine", "pwd"))
    answer = stage.stop("DONE")
    assert goes_on(answer)
    assert "`test -e ready && echo fine`" in next_text(answer)
    (stage.project / "ready").touch()
    assert stage.stop("DONE") == {"systemMessage": "untildone: done, every check passed (after 2 turns)"}
    assert [(line["command"], line["passed"]) for line in stage.told("check")] == [
        ("test -e ready && echo fine", False),
        ("test -e ready && echo fine", True),
        ("pwd", True),
    ]
    assert stage.told("check")[-1]["output"].strip() == str(stage.project)
    assert released(stage)["reason"] == "validation_passed"


def test_without_a_claim_nothing_is_run(stage: Stage) -> None:
    stage.start(checks=("touch ran",))
    stage.stop()
    assert not (stage.project / "ran").exists()


def test_checks_that_take_too_long_have_not_passed(stage: Stage) -> None:
    stage.start(checks=("sleep 60",), check_seconds=0.2)
    answer = stage.stop("EXIT_SIGNAL: true")
    assert goes_on(answer)
    assert "not finished within its time" in next_text(answer)


def test_checks_that_somebody_wrote_into_the_file_are_not_run(stage: Stage) -> None:
    stage.start(checks=("touch first",))
    stage.edit(checks=("touch second",))
    answer = stage.stop("EXIT_SIGNAL: true")
    assert not goes_on(answer)
    assert "`untildone loop adopt`" in answer["systemMessage"]
    assert sorted(path.name for path in stage.project.iterdir()) == [".untildone"]
    assert stage.entry is not None
    assert goes_on(stage.stop())


def test_checks_that_came_with_the_repository_are_no_dead_end(stage: Stage) -> None:
    text = loop_file.new_file("Goal", promises=("DONE",), checks=("touch ran",))
    stage.put(".untildone/loop.md", text)
    stage.under_git()
    git(stage.project, "add", "-f", ".untildone/loop.md")
    for take_checks in (True, False):
        where = {"session": SESSION, "now": time.time(), "take_checks": take_checks}
        _, remark = starting.adopt(str(stage.home), str(stage.project), **where)
        assert "are not run" in remark
    answer = stage.stop("DONE")
    assert "done by the agent's word: no checks ran" in answer["systemMessage"]
    assert "came with the repository and were not run" in answer["systemMessage"]
    assert not (stage.project / "ran").exists()
    assert released(stage)["reason"] == "completion_signal"


def test_failing_at_the_same_point_opens_the_breaker(stage: Stage) -> None:
    stage.start(checks=("false",), max_iterations=50)
    answers = [stage.stop("EXIT_SIGNAL: true") for _ in range(MOST_FAILURES)]
    assert [goes_on(answer) for answer in answers] == [True] * (MOST_FAILURES - 1) + [False]
    end = released(stage)
    assert (end["reason"], end["detail"], end["done"]) == ("circuit_open", "check: false", False)
    assert [line["failures"] for line in stage.told("failed")] == [1, 2, 3, 4, 5]


def test_another_point_or_a_success_begins_anew(stage: Stage) -> None:
    stage.start(checks=("test -e a", "test -e b"), max_iterations=50)
    stage.stop("EXIT_SIGNAL: true")
    (stage.project / "a").touch()
    stage.stop("EXIT_SIGNAL: true")
    assert (stage.entry["failures"], stage.entry["failure_point"]) == (1, "check: test -e b")


def test_a_loop_that_is_called_off_during_its_checks_stays_off(stage: Stage) -> None:
    stage.start(checks=(f"sed -i 's/active: true/active: false/' '{stage.file}'",))
    assert "stopped as asked" in stage.stop("EXIT_SIGNAL: true")["systemMessage"]


# --- time ------------------------------------------------------------------------------------------------------


def test_the_deadline_lets_go(stage: Stage) -> None:
    now = time.time()
    stage.start(deadline=now + 100)
    assert goes_on(stage.stop())
    assert "the deadline has passed, not done" in stage.stop(now=now + 101)["systemMessage"]
    assert released(stage)["reason"] == "deadline_reached"


def test_reaching_the_goal_at_the_deadline_is_done(stage: Stage) -> None:
    stage.start(deadline=time.time() - 1, max_iterations=1)
    assert stage.stop("EXIT_SIGNAL: true")["systemMessage"].startswith("untildone: done")


def test_a_time_of_day_becomes_a_moment(stage: Stage) -> None:
    stage.start()
    clock = time.strftime("%H:%M", time.localtime(time.time() + 3600))
    stage.edit(deadline=clock)
    assert goes_on(stage.stop())
    found = loop_file.parse(stage.file.read_text())
    assert found is not None
    assert found.deadline is not None
    assert 3500 - 60 < found.deadline - time.time() <= 3600


def test_all_the_time_it_was_given(stage: Stage) -> None:
    stage.start(total_seconds=50.0)
    assert goes_on(stage.stop())
    stage.stop(now=time.time() + 51)
    assert released(stage)["reason"] == "max_duration_reached"


def test_the_time_of_one_turn_ends_the_turn_and_not_the_loop(stage: Stage) -> None:
    entry = stage.start(iteration_seconds=10.0)
    file = loop_file.parse(stage.file.read_text())
    assert file is not None
    assert time_is_up(entry, file, entry["created"] + 9) is None
    assert time_is_up(entry, file, entry["created"] + 10) == "the time of this turn is up"
    answer = stage.stop(now=time.time() + 11)
    assert goes_on(answer)
    assert "took longer than it may" in next_text(answer)


# --- the limit of Claude Code ----------------------------------------------------------------------------------


def refusals(stage: Stage, count: int) -> list[dict[str, Any]]:
    return [stage.stop(stop_hook_active=number > 0) for number in range(count)]


def test_the_user_is_told_before_claude_code_lets_go(stage: Stage) -> None:
    stage.start(max_iterations=50)
    answers = refusals(stage, 9)
    asked = ["Use a tool now" in next_text(answer) for answer in answers]
    told = ["`untildone plugin install`" in answer["systemMessage"] for answer in answers]
    assert asked == [False] * 6 + [True, True, False]
    assert told == [False] * 6 + [True] * 3
    assert [goes_on(answer) for answer in answers] == [True] * 8 + [False]
    assert stage.entry is not None
    assert goes_on(stage.stop(stop_hook_active=False)), "the user said something"
    assert stage.turn == 11


def test_a_tool_call_begins_the_count_anew(stage: Stage) -> None:
    stage.start(max_iterations=50)
    refusals(stage, 7)
    stage.tool()
    assert "Use a tool now" not in next_text(stage.stop(stop_hook_active=True))
    assert stage.entry["blocks"] == 1


@pytest.mark.parametrize(("cap", "warned"), [("0", False), ("100", False), ("5", True), ("nonsense", True)])
def test_a_raised_limit_is_seen(stage: Stage, cap: str, warned: bool) -> None:
    stage.start(max_iterations=50)
    stage.env["CLAUDE_CODE_STOP_HOOK_BLOCK_CAP"] = cap
    assert any("Use a tool now" in next_text(answer) for answer in refusals(stage, 12)) == warned


# --- older layouts ---------------------------------------------------------------------------------------------


def test_the_older_layout_is_taken_up_by_the_first_session_that_stops(stage: Stage) -> None:
    path = stage.put(".stravinsky/continuation-loop.md", CONTINUATION)
    stage.under_git()
    first = stage.stop()
    assert next_text(first).startswith(CONTINUATION_BLOCK)
    assert "Goal: Fix failing tests" in next_text(first)
    assert "this session has taken up .stravinsky/continuation-loop.md" in first["systemMessage"]
    assert path.read_text() == CONTINUATION.replace("iteration_count: 1", "iteration_count: 2")
    assert stage.stop(session_id=OTHER) == {}
    assert goes_on(stage.stop())
    assert not goes_on(stage.stop()), "three turns"
    assert not path.exists()
    assert stage.history() == [CONTINUATION.replace("iteration_count: 1", "iteration_count: 3")]


def test_the_older_layout_matches_as_it_always_did(stage: Stage) -> None:
    stage.put(".stravinsky/continuation-loop.md", CONTINUATION.replace("max_iterations: 3", "max_iterations: 9"))
    stage.under_git()
    assert goes_on(stage.stop("tests passing"))
    assert "done" in stage.stop("I see: all TESTS passing now")["systemMessage"]


@pytest.mark.parametrize("text", ["", "no settings", CONTINUATION.replace("active: true", "active: false")])
def test_an_older_file_that_is_off_or_none_is_left_alone(stage: Stage, text: str) -> None:
    path = stage.put(".stravinsky/continuation-loop.md", text)
    stage.under_git()
    assert stage.stop() == {}
    assert (path.read_text(), stage.entry) == (text, None)


def test_what_came_with_the_repository_does_nothing(stage: Stage) -> None:
    evil = CONTINUATION.replace("active: true", 'active: true\nchecks: ["touch pwned"]')
    stage.put(".stravinsky/continuation-loop.md", evil)
    stage.under_git()
    assert goes_on(stage.stop()), "git does not know it: the user put it there"
    register.remove(str(stage.home), str(stage.project))
    git(stage.project, "add", ".stravinsky")
    assert stage.stop() == {}
    assert stage.stop("All tests passing") == {}
    assert not (stage.project / "pwned").exists()


def test_checks_are_never_taken_from_an_older_file(stage: Stage) -> None:
    evil = CONTINUATION.replace("active: true", 'active: true\nchecks: ["touch pwned"]')
    stage.put(".stravinsky/continuation-loop.md", evil)
    stage.under_git()
    stage.stop()
    assert "done by the agent's word: no checks ran" in stage.stop("All tests passing")["systemMessage"]
    assert not (stage.project / "pwned").exists()


def test_the_mark_of_autonomous_mode(stage: Stage) -> None:
    mark = stage.put(".multi-agent/autonomous-mode", "")
    breaker = stage.put(
        ".multi-agent/circuit-breaker.json", '{"consecutive_failures": 0, "total_iterations": 97, "x": 1}'
    )
    stage.under_git()
    answer = stage.stop()
    assert goes_on(answer)
    assert "[AUTO] Iteration 99 | Sprint X/Y" in next_text(answer)
    assert json.loads(breaker.read_text()) == {"consecutive_failures": 0, "total_iterations": 98, "x": 1}
    session = json.loads((mark.parent / "session.json").read_text())
    assert (session["current_iteration"], session["max_iterations"], session["consecutive_failures"]) == (99, 100, 0)
    assert goes_on(stage.stop())
    assert "no turns are left" in stage.stop()["systemMessage"]
    assert not mark.exists()


def test_five_failures_in_the_older_file_let_go(stage: Stage) -> None:
    stage.put(".multi-agent/autonomous-mode", "")
    stage.put(".multi-agent/circuit-breaker.json", '{"consecutive_failures": 5, "total_iterations": 9}')
    stage.under_git()
    stage.stop()
    assert stage.told("released")[0]["reason"] == "circuit_open"


def test_the_mark_needs_both_a_signal_and_no_open_work(stage: Stage) -> None:
    stage.put(".multi-agent/autonomous-mode", "")
    stage.put(".claude/todo_state.json", json.dumps({"todos": [{"content": "paint it", "status": "in_progress"}]}))
    stage.under_git()
    assert "paint it" in next_text(stage.stop())
    assert "You said that everything is done" in next_text(stage.stop("EXIT_SIGNAL: true"))
    (stage.project / ".claude/todo_state.json").unlink()
    assert "done" in stage.stop("EXIT_SIGNAL: true")["systemMessage"]


# --- what follows, and what fails --------------------------------------------------------------------------------


def test_the_next_goal_follows_in_the_same_session(stage: Stage) -> None:
    first = stage.start("First", promises=("DONE",), next_goals=("Second", "Third"), max_iterations=3)
    stage.stop()
    answer = stage.stop("DONE")
    assert goes_on(answer)
    assert "turn 1 of 3" in answer["systemMessage"]
    assert "Second" in next_text(answer)
    assert stage.entry["loop"] != first["loop"]
    assert [line["what"] for line in stage.told() if line["what"] in {"started", "released"}] == [
        "started", "released", "started",
    ]  # fmt: skip
    assert stage.turn == 1
    assert goes_on(stage.stop("DONE"))
    assert "done" in stage.stop("DONE")["systemMessage"]
    assert sorted(text.rpartition("---\n")[2].strip() for text in stage.history()) == ["First", "Second", "Third"]


def test_nothing_follows_a_loop_that_is_not_done(stage: Stage) -> None:
    stage.start("First", next_goals=("Second",), max_iterations=1)
    assert not goes_on(stage.stop())
    assert stage.entry is None


def test_milestones_are_recorded(stage: Stage) -> None:
    stage.start(milestones=(2,), max_iterations=5)
    for _ in range(3):
        stage.stop()
    assert [line["iteration"] for line in stage.told("milestone")] == [2]


def test_a_failed_turn_is_recorded_and_never_gone_on_with(stage: Stage) -> None:
    stage.start()
    event = {**STOP, "cwd": str(stage.project), "hook_event_name": "StopFailure", "error": "billing_error"}
    assert stage.launched("StopFailure", event) == {}
    assert [line["point"] for line in stage.told("failed")] == ["Claude Code: billing_error"]
    assert stage.fail(session_id=OTHER) == {}
    assert (len(stage.told("failed")), stage.turn) == (1, 1)


# --- real captures ---------------------------------------------------------------------------------------------


def captures() -> list[dict[str, Any]]:
    path = Path(__file__).parent.parent / "fixtures" / "hooks" / "stdin-samples.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_stops_as_the_real_claude_code_sent_them(stage: Stage) -> None:
    stops = [event for event in captures() if event["hook_event_name"] == "Stop"]
    assert [event["stop_hook_active"] for event in stops] == [False, True]
    stage.start(max_iterations=3, promises=("Done.",), session=stops[0]["session_id"])
    first, second = (stage.launched("Stop", event) for event in stops)
    assert goes_on(first), "a promise inside a sentence is not said"
    assert goes_on(second)
    assert stage.turn == 3


def test_no_other_real_event_is_held_or_fails(stage: Stage) -> None:
    stage.start(max_iterations=3)
    first_of_each = {event["hook_event_name"]: event for event in reversed(captures())}
    for kind, event in first_of_each.items():
        if kind not in {"Stop", "SessionStart", "UserPromptSubmit"}:
            answer = Call(event, stage.env, time.time())
            assert answer.project == str(stage.project)
            assert not goes_on(stage.launched(kind, event))
    assert stage.turn == 1

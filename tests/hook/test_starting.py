import json
import stat
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from hook.stop_kit import OTHER, SESSION, Stage, git, goes_on
from untildone.core import loop_file
from untildone.errors import UsageError
from untildone.hook import starting
from untildone.hook.work import KNOWN


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def adopt(stage: Stage, session: str = "", **more: Any) -> Any:
    return starting.adopt(str(stage.home), str(stage.project), now=9.0, session=session, **more)


def cancel(stage: Stage) -> Any:
    return starting.cancel(str(stage.home), str(stage.project), now=9.0, detail="enough")


def test_a_loop_has_a_file_an_entry_and_a_first_line(stage: Stage) -> None:
    entry = stage.start(
        "Fix it: é ✅\n\n  all of it",
        max_iterations=7,
        promises=["ALL DONE", "FINE"],
        checks=["true"],
        deadline=4_000_000_000.0,
        total_seconds=60.0,
        next_goals=["document it"],
        now=5.0,
    )
    file = loop_file.parse(stage.file.read_text())
    assert file is not None
    assert (file.iteration, file.max_iterations, file.promises, file.checks) == (1, 7, ("ALL DONE", "FINE"), ("true",))
    assert (file.session, file.deadline, file.next, file.active) == (SESSION, 4_000_000_000.0, ("document it",), True)
    assert file.body == "\nFix it: é ✅\n\n  all of it\n"
    assert stage.entry == entry
    assert (entry["session"], entry["checks"], entry["total_seconds"], entry["created"]) == (
        SESSION,
        ["true"],
        60.0,
        5.0,
    )
    following = loop_file.parse(entry["next"][0])
    assert following is not None
    assert (following.body.strip(), following.max_iterations, following.checks) == ("document it", 7, ("true",))
    (told,) = stage.told()
    assert (told["what"], told["goal"], told["max_iterations"]) == ("started", "Fix it: é ✅\n\n  all of it", 7)


def test_a_plain_loop_has_a_short_file(stage: Stage) -> None:
    stage.start("go")
    settings = stage.file.read_text().split("---")[1].split()
    assert [word for word in settings if word.endswith(":")] == [
        "iteration_count:", "max_iterations:", "completion_promise:", "active:", "session_id:",
    ]  # fmt: skip


def test_git_leaves_the_state_alone(stage: Stage) -> None:
    git(stage.project, "init", "-q")
    stage.start()
    git(stage.project, "add", "-A")
    assert (
        not (stage.project / ".git" / "index").exists() or b"loop.md" not in (stage.project / ".git/index").read_bytes()
    )


def test_what_only_the_user_may_read_only_the_user_can_read(stage: Stage) -> None:
    stage.start()
    for path in stage.home.rglob("*.json*"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"goal": " \n"}, "needs a goal"),
        ({"goal": "x" * 200_001}, "longer than"),
        ({"max_iterations": 0}, "turns"),
        ({"max_iterations": 10_001}, "turns"),
        ({"promises": [" "]}, "one line"),
        ({"checks": ["a\nb"]}, "one line"),
        ({"notify": ["mailto:me@example.org"]}, "only http"),
    ],
)
def test_what_cannot_be_a_loop_is_refused_and_leaves_nothing(stage: Stage, given: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        stage.start(**given)
    assert (stage.entry, list(stage.project.iterdir())) == (None, [])


def test_a_second_loop_is_refused_and_the_first_goes_on(stage: Stage) -> None:
    stage.start("first")
    with pytest.raises(UsageError, match="at work in this folder"):
        stage.start("second")
    assert "first" in stage.file.read_text()
    assert goes_on(stage.stop())


def test_nobodys_goal_is_written_over(stage: Stage) -> None:
    stage.put(".untildone/loop.md", "---\n---\nsomebody's goal\n")
    with pytest.raises(UsageError, match="--adopt"):
        stage.start()
    assert stage.file.read_text() == "---\n---\nsomebody's goal\n"


def test_a_loop_whose_file_was_removed_is_over(stage: Stage) -> None:
    first = stage.start("first")
    stage.file.unlink()
    second = stage.start("second")
    assert first["loop"] != second["loop"]
    (released,) = stage.told("released")
    assert (released["reason"], released["done"], released["detail"]) == (
        "loop_lost",
        False,
        "its state file was removed",
    )


@pytest.mark.parametrize("kind", ["link", "file"])
def test_a_folder_that_leads_elsewhere_is_refused(stage: Stage, tmp_path: Path, kind: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    folder = stage.project / ".untildone"
    if kind == "link":
        folder.symlink_to(elsewhere)
    else:
        folder.write_text("")
    with pytest.raises(UsageError, match="no folder of this project"):
        stage.start()
    assert (list(elsewhere.iterdir()), stage.entry) == ([], None)


def test_of_many_that_start_at_once_one_wins(stage: Stage) -> None:
    refused: list[UsageError] = []

    def begin(number: int) -> None:
        try:
            stage.start(f"goal {number}")
        except UsageError as trouble:
            refused.append(trouble)

    threads = [threading.Thread(target=begin, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(refused), len(stage.told("started"))) == (7, 1)
    assert stage.told("started")[0]["goal"] in stage.file.read_text()


def test_a_loop_without_a_session_waits_to_be_taken_up(stage: Stage) -> None:
    stage.start(session="")
    assert stage.stop() == {}
    entry, remark = adopt(stage, SESSION, transcript="/t")
    assert (entry["session"], entry["transcript"], remark) == (SESSION, "/t", "")
    assert f'session_id: "{SESSION}"' in stage.file.read_text()
    assert [line["what"] for line in stage.told()] == ["started", "adopted"]
    assert goes_on(stage.stop())


def test_a_loop_can_be_taken_over_by_another_session(stage: Stage) -> None:
    stage.start()
    adopt(stage, OTHER)
    assert stage.stop() == {}
    assert goes_on(stage.stop(session_id=OTHER))


def test_a_foreign_file_is_adopted_without_its_checks(stage: Stage) -> None:
    stage.put(".untildone/loop.md", '---\nmax_iterations: 3\nchecks: ["touch gotcha"]\n---\ngo\n')
    entry, remark = adopt(stage, SESSION)
    assert (entry["checks"], "not run" in remark) == ([], True)
    stage.stop("EXIT_SIGNAL: true")
    assert not (stage.project / "gotcha").exists()


def test_checks_are_taken_over_when_that_is_asked_for(stage: Stage) -> None:
    stage.put(".untildone/loop.md", '---\nmax_iterations: 3\nchecks: ["true"]\n---\ngo\n')
    entry, remark = adopt(stage, take_checks=True)
    assert (entry["checks"], entry["session"], remark) == (["true"], "", "")


def test_checks_that_came_with_a_repository_are_never_taken_over(stage: Stage) -> None:
    git(stage.project, "init", "-q")
    stage.put(".untildone/loop.md", '---\nmax_iterations: 3\nchecks: ["touch gotcha"]\n---\ngo\n')
    git(stage.project, "add", "-f", ".untildone/loop.md")
    entry, remark = adopt(stage, SESSION, take_checks=True)
    assert (entry["checks"], "not run" in remark) == ([], True)


def test_adopting_again_takes_over_what_was_edited(stage: Stage) -> None:
    stage.start(checks=["true"])
    stage.edit(checks=("true", "test -e done"))
    entry, _ = adopt(stage, take_checks=True)
    assert (entry["checks"], entry["session"]) == (["true", "test -e done"], SESSION)


@pytest.mark.parametrize("name", [".stravinsky/continuation-loop.md", ".multi-agent/autonomous-mode"])
def test_older_layouts_can_be_adopted(stage: Stage, name: str) -> None:
    text = "---\niteration_count: 1\nmax_iterations: 5\ncompletion_promise: x\nactive: true\n---\ngo\n"
    path = stage.put(name, text)
    entry, _ = adopt(stage, SESSION)
    assert (entry["file"], entry["mode"]) == (name, "autonomous" if "multi" in name else "promise")
    assert path.read_text() == text
    assert [line["what"] for line in stage.told()] == ["started", "adopted"]


@pytest.mark.parametrize("text", [None, "no settings", "---\nmax_iterations: many\n---\n"])
def test_where_no_loop_is_none_is_adopted(stage: Stage, text: str | None) -> None:
    if text is not None:
        stage.put(".untildone/loop.md", text)
    with pytest.raises(UsageError):
        adopt(stage, SESSION)
    assert (stage.entry, stage.told()) == (None, [])


def test_a_loop_that_is_called_off_keeps_its_goal(stage: Stage) -> None:
    stage.start("the goal of all goals")
    before = stage.file.read_text()
    entry = cancel(stage)
    assert entry["session"] == SESSION
    assert (stage.entry, stage.file.exists(), stage.history()) == (None, False, [before])
    (told,) = stage.told("released")
    assert (told["reason"], told["done"], told["iteration"], told["detail"]) == ("stop_requested", False, 1, "enough")
    assert stage.stop() == {}
    assert cancel(stage) is None


def test_the_older_layout_sees_an_autonomous_loop(stage: Stage) -> None:
    (stage.project / ".multi-agent").mkdir()
    stage.start(mode="autonomous")
    mark = stage.project / ".multi-agent" / "autonomous-mode"
    counts = json.loads((stage.project / ".multi-agent" / "circuit-breaker.json").read_text())
    assert (mark.exists(), counts["consecutive_failures"], counts["total_iterations"]) == (True, 0, 0)
    cancel(stage)
    assert not mark.exists()


def test_nothing_of_the_older_layout_is_made_where_it_is_not_at_home(stage: Stage) -> None:
    stage.start(mode="autonomous")
    assert [path.name for path in stage.project.iterdir()] == [".untildone"]


def test_the_time_of_a_loop_begins_with_the_session_that_takes_it_up(stage: Stage) -> None:
    stage.start(session="", total_seconds=60.0, now=time.time() - 3600)
    starting.adopt(str(stage.home), str(stage.project), now=time.time(), session=SESSION)
    assert goes_on(stage.stop("half"))
    stage.change_entry(created=time.time() - 61)
    starting.adopt(str(stage.home), str(stage.project), now=time.time(), session=OTHER)
    assert "its time is used up" in stage.stop("half", session_id=OTHER)["systemMessage"]


def test_a_list_of_tasks_that_is_not_there_is_refused(stage: Stage) -> None:
    with pytest.raises(UsageError, match=r"'TODO\.md' is no file"):
        stage.start(tasks=["TODO.md"])
    assert (stage.entry, stage.file.exists()) == (None, False)
    stage.put("TODO.md", "- [ ] x\n")
    stage.start(tasks=["TODO.md", *KNOWN])
    assert stage.entry["tasks"][0] == "TODO.md"


def test_a_lost_loop_of_another_layout_lets_nobody_write_over_ours(stage: Stage) -> None:
    older = stage.put(".stravinsky/continuation-loop.md", "---\nmax_iterations: 3\n---\n\nOlder goal\n")
    adopt(stage)
    older.unlink()
    stage.put(".untildone/loop.md", loop_file.new_file("Somebody's goal"))
    with pytest.raises(UsageError, match="lies here already"):
        stage.start("mine")
    assert "Somebody's goal" in stage.file.read_text()

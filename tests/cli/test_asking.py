import time
from pathlib import Path

from cli.cli_kit import Say
from untildone.hook import starting


def begin(store: Path, project: Path) -> None:
    starting.start(str(store), str(project.resolve()), goal="go", session="s", now=time.time())


def test_a_question_is_noted_from_anywhere_in_the_project(say: Say, store: Path, project: Path) -> None:
    begin(store, project)
    assert "asked nothing" in say("ask").out
    said = say("ask", "Which", "database?")
    assert (said.code, "Noted for the human: Which database?" in said.out) == (0, True)
    assert "- Which database?" in say("ask").out


def test_without_a_loop_there_is_nobody_to_note_it_for(say: Say) -> None:
    said = say("ask", "Which database?")
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert "no loop" in say("ask").out


def test_what_was_asked_is_safe_to_look_at(say: Say, store: Path, project: Path) -> None:
    begin(store, project)
    say("ask", "\x1b[31mred\x1b[0m " + "x" * 5000)
    said = say("ask")
    assert "\x1b" not in said.out
    assert len(said.out) < 400

"""Progress as plain lines."""

import io
import os

import pytest

from core.night_kit import HOSTILE, night
from core.run_kit import START
from untildone.cli.plain import PlainLines
from untildone.core import events as ev
from untildone.core import trace as tr
from untildone.core.events import Record


def shown(records: list[Record], *, verbose: bool = False, colour: bool = False) -> str:
    stream = io.StringIO()
    with PlainLines(stream, verbose=verbose, colour=colour) as lines:
        for record in records:
            lines.on_record(record)
    return stream.getvalue()


def said(text: str, *, subagent: bool = False) -> Record:
    return Record(seq=1, at=START, event=tr.AgentMessage(iteration_num=1, text=text, subagent=subagent))


def test_a_ci_log_tells_iterations_checks_and_commits_but_not_every_tool() -> None:
    text = shown(night())
    for part in (
        "iteration 1 started",
        "iteration 1 ended",
        "committed 3f9ac21e",
        "checks failed",
        "done and verified",
    ):
        assert part in text
    assert "pytest -q tests" not in text
    assert "tokenizer" not in text


def test_verbose_streams_tools_their_errors_and_the_agents_words() -> None:
    text = shown(night(), verbose=True)
    for part in ("  $ Bash pytest -q tests", "✗ AssertionError: one", "  I look at the tokenizer."):
        assert part in text


def test_every_line_has_its_time_and_is_written_at_once() -> None:
    stream = io.StringIO()
    lines = PlainLines(stream)
    for count, record in enumerate(night()[:1], 1):
        lines.on_record(record)
        assert stream.getvalue().count("\n") == count
    assert stream.getvalue()[8] == " "
    assert stream.getvalue()[2] == stream.getvalue()[5] == ":"


def test_the_agents_text_keeps_its_lines_and_loses_its_tricks() -> None:
    text = shown([said(f"one\n\n{HOSTILE}")], verbose=True)
    assert text.count("\n") == 3
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_colours_only_when_asked_for() -> None:
    assert "\x1b" not in shown(night(), verbose=True)
    assert "\x1b[32m" in shown(night(), colour=True)


def test_a_stream_that_cannot_say_it_gets_a_question_mark() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    PlainLines(stream, verbose=True).on_record(said("ü ✔"))
    assert b"? ?" in raw.getvalue()


def test_a_closed_stream_does_not_end_the_run() -> None:
    stream = io.StringIO()
    lines = PlainLines(stream)
    stream.close()
    for record in night():
        lines.on_record(record)


def test_a_reader_that_went_away_does_not_end_the_run() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    stream = os.fdopen(writer, "w")
    lines = PlainLines(stream)
    for record in night():
        lines.on_record(record)
    with pytest.raises(BrokenPipeError):
        stream.close()


def test_a_warning_is_always_shown() -> None:
    assert "note: notes cut" in shown([Record(seq=1, at=START, event=ev.ContinuousWarning(message="notes cut"))])


def test_a_retry_inside_the_iteration_is_shown_and_other_system_lines_are_not() -> None:
    for subtype, expected in (("api_retry", True), ("informational", False)):
        event = tr.AgentSystem(iteration_num=1, subtype=subtype, data={"error": "rate_limit"})
        assert bool(shown([Record(seq=1, at=START, event=event)])) is expected

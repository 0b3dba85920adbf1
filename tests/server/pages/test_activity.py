"""Events as lines: the words of the plain log, and what that leaves out."""

import msgspec
import pytest

from core.run_kit import failed
from untildone.core import events as ev
from untildone.core import trace as tr
from untildone.core.codec import encode, event_kind, event_type, event_version
from untildone.server.archive.port import StoredEvent
from untildone.server.pages.activity import line_of, lines_of, whole_text


def stored(event: ev.Event, seq: int = 7) -> StoredEvent:
    return StoredEvent(
        seq=seq, at=1000.0, kind=event_kind(event), type=event_type(event), source=event.SOURCE,
        version=event_version(event), data=encode(event).decode(),
    )  # fmt: skip


def raw(name: str, data: str) -> StoredEvent:
    return StoredEvent(seq=1, at=1.0, kind="trace", type=name, source="agent", version=1, data=data)


@pytest.mark.parametrize(
    ("event", "tone", "text", "more"),
    [
        (tr.AgentMessage(iteration_num=1, text="hello"), "said", "“hello”", False),
        (tr.AgentMessage(iteration_num=1, text="x" * 500), "said", None, True),
        (tr.AgentToolUse(iteration_num=1, tool="Bash", tool_use_id="t", detail="make"), "tool", "$ Bash make", False),
        (tr.AgentToolResult(iteration_num=1, tool_use_id="t", text="fine\n===="), "faint", "  ↳ fine", True),
        (tr.AgentToolResult(iteration_num=1, tool_use_id="t", is_error=True, text="no"), "bad", "  ✗ no", True),
        (tr.AgentToolResult(iteration_num=1, tool_use_id="t"), "faint", "  ↳ no output", True),
        (ev.StopRequested(by="ada"), "human", "ada asked the run to stop", False),
        (ev.IterationStarted(iteration_num=3), "mark", "iteration 3 started", False),
        (ev.IterationValidation(iteration_num=3, passed=False, errors=("broken",)), "bad", None, True),
        (ev.ContinuousCompleted(stop_reason="validation_passed", verified=True), "good", None, False),
    ],
)
def test_each_kind_has_its_words_and_its_tone(event: ev.Event, tone: str, text: str | None, more: bool) -> None:
    line = line_of(stored(event))
    assert line is not None
    assert (line.tone, line.more, line.seq) == (tone, more, 7)
    assert text is None or line.text == text


UNTIL = 1_760_000_000.0


@pytest.mark.parametrize(
    ("event", "before", "after"),
    [
        (ev.ContinuousWaiting(cause="rate_limit", until=UNTIL, detail="x"), "waiting for the rate limit until ", ": x"),
        (failed(1, "crash", retry_at=UNTIL), ", next try at ", ""),
        (ev.LimitsChanged(by="ada", changes={"deadline": UNTIL, "max_runs": 3}), "max_runs = 3, deadline = ", ""),
        (ev.ContinuousLimitReached(limit_type="deadline", limit_value=UNTIL, current_value=UNTIL + 1), "(", ")"),
        (
            tr.AgentSystem(iteration_num=1, subtype="rate_limit_event", data={"status": "rejected", "resetsAt": UNTIL}),
            ", resets at ",
            "",
        ),
    ],
)
def test_a_moment_is_told_as_data_not_in_words(event: ev.Event, before: str, after: str) -> None:
    line = line_of(stored(event))
    assert line is not None
    assert line.moment == UNTIL
    assert line.text.endswith(before)
    assert line.after.endswith(after)


def test_what_people_asked_for_is_not_told_in_red() -> None:
    tones = [line.tone for line in lines_of([stored(failed(1, "stopped")), stored(failed(1, "crash"))])]
    assert tones == ["note", "bad"]


def test_noise_has_no_line() -> None:
    assert lines_of([stored(tr.AgentThinking(iteration_num=1, chars=9))]) == []


@pytest.mark.parametrize("data", ['{"text": "hi"}', "not json", "[" * 100_000, '{"a": "\\u202e\\u001b[2J"}'])
def test_what_nobody_knows_is_shown_as_it_came(data: str) -> None:
    line = line_of(raw("some.program", data))
    assert line is not None
    assert line.text.startswith("some.program")
    assert len(line.text) <= 200
    assert "\x1b" not in line.text


def test_all_of_an_event_is_its_text_its_diff_or_its_payload() -> None:
    edited = tr.AgentFileEdited(iteration_num=1, tool_use_id="t", tool="Edit", file_path="a", diff_preview="+x")
    assert whole_text(stored(tr.AgentMessage(iteration_num=1, text="all of it"))) == ("all of it", False)
    assert whole_text(stored(edited)) == ("+x", True)
    text, is_diff = whole_text(stored(ev.PauseRequested(by="ada")))
    assert (msgspec.json.decode(text)["by"], is_diff) == ("ada", False)
    assert whole_text(raw("odd", "not json")) == ("not json", False)

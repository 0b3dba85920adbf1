"""What tool calls did to files, from a real capture, from what tools were told, and from anything at all."""

import json
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from untildone.agents.conversation import Conversation
from untildone.agents.file_changes import file_edited
from untildone.agents.stream import StreamParser
from untildone.core.diffs import FULL_CHARS, PREVIEW_CHARS, PREVIEW_LINES
from untildone.core.trace import AgentFileEdited

CAPTURE = Path(__file__).parent.parent / "fixtures" / "claude-stream" / "file-edits.jsonl"


def edits_of(data: bytes, chunk: int = 1 << 16) -> list[AgentFileEdited]:
    parser, conversation = StreamParser(), Conversation(3)
    lines = [line for at in range(0, len(data), chunk) for line in parser.feed(data[at : at + chunk])]
    told = [event for line in [*lines, *parser.finish()] for event in conversation.feed(line)]
    return [event for event in told if isinstance(event, AgentFileEdited)]


def edited(tool: str, result: Any = None, answer: str = "", **given: Any) -> AgentFileEdited | None:
    return file_edited(tool, given, iteration_num=1, tool_use_id="t", result=result, answer=answer)


def test_a_real_conversation():
    created, changed, rewritten, notebook = edits_of(CAPTURE.read_bytes())
    assert (created.file_path, created.change_type, created.lines_added, created.lines_removed) == (
        "new.txt", "created", 2, 0,
    )  # fmt: skip
    assert created.full_diff == "--- /dev/null\n+++ b/new.txt\n@@ -0,0 +1,2 @@\n+hello\n+world"
    assert (changed.file_path, changed.change_type, changed.lines_added, changed.lines_removed) == (
        "a.txt", "modified", 2, 1,
    )  # fmt: skip
    assert changed.full_diff == "--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,4 @@\n one\n-two\n+2\n+2b\n three"
    assert (changed.full_diff_available, changed.full_diff_size) == (True, len(changed.full_diff))
    assert changed.diff_preview == changed.full_diff
    assert (rewritten.change_type, rewritten.lines_added, rewritten.lines_removed) == ("modified", 2, 2)
    assert (notebook.tool, notebook.lines_added, notebook.lines_removed) == ("NotebookEdit", 1, 1)
    assert all(event.iteration_num == 3 for event in (created, changed, rewritten, notebook))


def test_however_the_bytes_arrive_every_edit_is_told():
    whole = edits_of(CAPTURE.read_bytes())
    for chunk in (1, 97, 1000, 4096):
        told = edits_of(CAPTURE.read_bytes(), chunk)
        assert [(event.file_path, event.change_type) for event in told] == [
            (event.file_path, event.change_type) for event in whole
        ]


def test_a_patch_in_a_large_line_is_read():
    lines = [json.loads(line) for line in CAPTURE.read_text().splitlines()]
    for line in lines:
        result = line.get("tool_use_result")
        if isinstance(result, dict) and result.get("oldString"):
            result["originalFile"] = "x" * 100_000
    data = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines).encode()
    assert edits_of(data)[1].full_diff == edits_of(CAPTURE.read_bytes())[1].full_diff


def test_without_a_patch_the_tools_input_speaks():
    told = edited("Edit", file_path="a", old_string="one\ntwo\nthree", new_string="one\n2\nthree")
    assert told is not None
    assert (told.lines_added, told.lines_removed) == (1, 1)
    assert told.full_diff == "--- a/a\n+++ b/a\n@@ -1,1 +1,1 @@\n-two\n+2"
    many = edited("MultiEdit", file_path="a", edits=[{"old_string": "a", "new_string": "b"}, {"new_string": "c"}, 7])
    assert many is not None
    assert (many.lines_added, many.lines_removed) == (2, 1)
    new = edited("Write", file_path="a", content="x\ny\n", answer="File created successfully at: a")
    assert new is not None
    assert (new.change_type, new.lines_added) == ("created", 2)
    old = edited("Write", file_path="a", content="x\n", answer="The file a has been updated")
    assert old is not None
    assert old.change_type == "modified"


def test_the_same_content_again_is_no_change():
    given_, answer = {"file_path": "a", "content": "x\ny\nz\n"}, "The file a has been updated"
    same = {"type": "update", "structuredPatch": [], "originalFile": "x\ny\nz\n"}
    assert edited("Write", same, answer, **given_) is None
    new = edited("Write", {"type": "create", "structuredPatch": []}, "File created", **given_)
    assert new is not None
    assert (new.change_type, new.lines_added) == ("created", 3)


def test_no_file_no_event():
    assert edited("Write", content="x") is None
    assert edited("Write", file_path=7, content="x") is None


def test_a_large_change_is_told_in_part():
    told = edited("Write", file_path="a", content="line\n" * 200_000)
    assert told is not None
    assert told.lines_added == 200_000
    assert (told.full_diff, told.full_diff_available) == (None, False)
    assert told.full_diff_size > FULL_CHARS
    assert len(told.diff_preview) <= PREVIEW_CHARS
    assert len(told.diff_preview.split("\n")) <= PREVIEW_LINES


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(
        ["type", "structuredPatch", "lines", "oldStart", "newStart", "old_source", "edits", "content", "old_string"]
    ), inner, max_size=5),
    max_leaves=20,
)  # fmt: skip


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(["Write", "Edit", "MultiEdit", "NotebookEdit"]), ANYTHING, ANYTHING, st.text(max_size=20))
def test_anything_is_taken(tool, given_, result, answer):
    given_ = {**given_, "file_path": "a"} if isinstance(given_, dict) else {"file_path": "a", "content": given_}
    told = edited(tool, result, answer, **given_)
    if told is None:
        assert result["structuredPatch"] == []
        return
    assert len(told.diff_preview) <= PREVIEW_CHARS

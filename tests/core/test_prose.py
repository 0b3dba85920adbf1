"""What a message says to people, and the title of a commit made of it."""

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.night_kit import HOSTILE
from core.run_kit import after, completed, started
from untildone.core import events as ev
from untildone.core.claims import Claim, Report
from untildone.core.closing import SUBJECT_WIDTH, commit_message
from untildone.core.printable import columns, one_line
from untildone.core.prose import headline, prose_lines
from untildone.git.commit import clean_message

BLOCK = "---LOOP_STATUS---\nSTATUS: COMPLETE\nEXIT_SIGNAL: true\n---END_LOOP_STATUS---"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("First.\n\nThen.", ["First.", "Then."]),
        (f"Done.\n{BLOCK}", ["Done."]),
        ("Done.\n---LOOP_STATUS---\nSTATUS: COMPLETE", ["Done."]),
        ("SUMMARY: x\nEXIT_SIGNAL: true\n---END_LOOP_STATUS---\nDone.", ["Done."]),
        ("Done.\nRALPH_STATUS:\n  STATUS: DONE\n  EXIT_SIGNAL: true\n\nBye.", ["Done.", "Bye."]),
        (f"```\n{BLOCK}\n```\nDone.", ["Done."]),
        ('{"a": 1}\n{\n  "a": [1, 2],\n  "b": {}\n}\n[["x"]]\nDone.', ["Done."]),
        ("```python\nx = 1\n```\nDone.\n```\nnever closed", ["Done."]),
        ("<promise>DONE</promise>\n<done/>\n---\n|--|--|\nDone.", ["Done."]),
        ("## What I did\n- **Added** a `parser`\n1. Tests", ["What I did", "Added a `parser`", "Tests"]),
        ("See [this](http://x) and <b>.\nTODO: nothing", ["See [this](http://x) and <b>.", "TODO: nothing"]),
        ("", []),
    ],
)
def test_prose_is_what_is_left_of_a_message(text: str, lines: list[str]) -> None:
    assert prose_lines(text) == lines


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Add the parser", "Add the parser"),
        ("Done. I fixed the parser, so dates work. All tests pass.", "I fixed the parser, so dates work"),
        ("All done!", "All done!"),
        ("Here is what I did:\n\n- Added `x` to **y**.", "Added `x` to y"),
        ("Both ways (e.g. C to F) work; one is missing.", "Both ways (e.g. C to F) work; one is missing"),
        (f"{BLOCK}\nParse dates with a zone.", "Parse dates with a zone"),
        ("word " * 30, ("word " * 14).strip() + "…"),
        ("x" * 100, "x" * 71 + "…"),
        ('{"a": 1}', ""),
        ("", ""),
    ],
)
def test_a_title_is_the_first_sentence_that_says_something(text: str, title: str) -> None:
    assert headline(text, SUBJECT_WIDTH) == title


@settings(max_examples=40, deadline=None)
@given(st.text())
def test_any_text_gives_one_safe_line_that_fits(text: str) -> None:
    title = headline(text + HOSTILE, SUBJECT_WIDTH)
    assert columns(title) <= SUBJECT_WIDTH
    assert one_line(title) == title


def ended(number: int, summary: str = "", said: str = "", **more: str) -> ev.IterationCompleted:
    claim = Claim(report=Report(summary=summary, **more)) if summary else Claim()
    return completed(number, claim=claim, output_preview=said)


KEY = "ghp_" + "1r4Zt8Kq0Vw9Xy2Bc6De3Fg7Hj5Lm1Np4Qs8"


@pytest.mark.parametrize(
    ("closed", "message"),
    [
        (ended(3, "Add the parser."), "Add the parser"),
        (ended(3, "Add it. It was missing."), "Add it\n\nAdd it. It was missing."),
        (ended(3, said="I wrote the tests.\n\nMore later."), "I wrote the tests"),
        (ended(3, said='{"status": 1}'), "it: iteration 3"),
        (ended(3), "it: iteration 3"),
        (ended(3, "Work on the parser"), "Work on the parser (iteration 3)"),
        (ended(3, commit_message="not asked for", summary="Add it there"), "Add it there"),
    ],
)
def test_a_commit_says_what_was_done_and_no_two_in_a_row_the_same(closed: ev.IterationCompleted, message: str) -> None:
    before = ev.LandingCommitted(
        iteration_num=2, commit="c" * 40, branch="main", files_changed=1, message="Work on the parser"
    )
    state = after(started(2), completed(2), before, started(3))
    assert commit_message(state, closed) == message


def test_a_commit_names_no_secret_and_makes_no_trailer() -> None:
    """The agent's words are no signature of the user's, whatever they look like."""
    summary = (
        f"Use {KEY} for it.\n\nMore words.\n\nSigned-off-by: Ada <ada@example.org>\nCo-authored-by: M <m@x>\nFixes: #1"
    )
    message = clean_message(commit_message(after(started(1)), ended(1, summary)), otherwise="x")
    assert KEY not in message
    assert message.startswith("Use ")
    parsed = subprocess.run(
        ["git", "interpret-trailers", "--parse"], input=message, capture_output=True, text=True, check=True, timeout=240
    )
    assert parsed.stdout == ""
    assert "  Signed-off-by: Ada" in message

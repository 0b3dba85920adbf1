"""What counts as a claim of being done, and what only looks like one."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from untildone.core import claims
from untildone.core.claims import (
    Claim,
    Form,
    Report,
    read_claim,
    says_blocked,
    says_done,
    status_instructions,
    streak_needed,
    without_status,
)
from untildone.core.policy import Policy

# How fast a loaded machine draws examples is not what these tests are about.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

SIGNAL = "CONTINUOUS_CLAUDE_PROJECT_COMPLETE"
BLOCK = """\
---LOOP_STATUS---
STATUS: COMPLETE
TASKS_COMPLETED_THIS_LOOP: 2
FILES_MODIFIED: 3
TESTS_STATUS: PASSING
WORK_TYPE: TESTING
EXIT_SIGNAL: true
SUMMARY: add the parser
RECOMMENDATION: nothing more
---END_LOOP_STATUS---"""


def read(text: str, report: Report | None = None, prompt: str = "", match: str = "line") -> Claim:
    return read_claim(text, report, signal=SIGNAL, match=match, prompt=prompt)


def done(claim: Claim) -> bool:
    return says_done(claim, Policy())


def block(*lines: str) -> str:
    return "\n".join(("---LOOP_STATUS---", *lines, "---END_LOOP_STATUS---"))


# --- the block -----------------------------------------------------------------------------------


def test_a_block_is_read_in_full() -> None:
    claim = read(f"I did the work.\n\n{BLOCK}\n")
    assert claim.form == "block"
    assert claim.report == Report(
        status="COMPLETE",
        exit_signal=True,
        tasks_completed=2,
        files_modified=3,
        tests_status="PASSING",
        work_type="TESTING",
        summary="add the parser",
        recommendation="nothing more",
    )


@pytest.mark.parametrize(
    "text",
    [
        BLOCK.replace("\n", "\r\n"),
        BLOCK.replace("\n", "\r"),
        f"```\n{BLOCK}\n```",
        f"```text\n{BLOCK}\n```\nBye.",
        BLOCK.replace("LOOP_STATUS", "RALPH_STATUS"),
        BLOCK.replace("STATUS: COMPLETE", "**STATUS:** COMPLETE"),
        BLOCK.replace("STATUS: COMPLETE", "STATUS: complete   # this and all others"),
        BLOCK.replace("EXIT_SIGNAL: true", "EXIT_SIGNAL: TRUE"),
        BLOCK.replace("EXIT_SIGNAL: true", "EXIT_SIGNAL: `true` (all verified)"),
        "\n".join("    " + line for line in BLOCK.split("\n")),
    ],
)
def test_harmless_variations_of_a_block_are_accepted(text: str) -> None:
    claim = read(text)
    assert claim.form == "block"
    assert claim.report is not None
    assert (claim.report.status, claim.report.exit_signal, claim.report.files_modified) == ("COMPLETE", True, 3)


@pytest.mark.parametrize(
    "text",
    [
        'RALPH_STATUS:\n  EXIT_SIGNAL: true\n  reason: "all done"\n',
        "All good.\r\n\r\nRALPH_STATUS:\r\n\tSTATUS: COMPLETE\r\n",
        "LOOP_STATUS:\nSTATUS: COMPLETE\nEXIT_SIGNAL: true\n\nBye.",
        "All good.\n\n  RALPH_STATUS:\n    STATUS: COMPLETE\n    EXIT_SIGNAL: true\n",
        "\tRALPH_STATUS:\n\tSTATUS: COMPLETE\n\tEXIT_SIGNAL: true\n\nBye.",
        "1. Done:\n   RALPH_STATUS:\n     EXIT_SIGNAL: true\n   STATUS: COMPLETE\n",
    ],
)
def test_the_yaml_style_is_accepted(text: str) -> None:
    claim = read(text)
    assert claim.form == "block"
    assert done(claim)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "---LOOP_STATUS---\nSTATUS: COMPLETE\nEXIT_SIGNAL: true",
        "STATUS: COMPLETE\nEXIT_SIGNAL: true\n---END_LOOP_STATUS---",
        "I set EXIT_SIGNAL: true in RALPH_STATUS: as asked.",
        "\n".join(f"> {line}" for line in BLOCK.split("\n")),
        block(),
        block("NOTHING: known"),
        block("STATUS: <IN_PROGRESS|COMPLETE|BLOCKED>", "EXIT_SIGNAL: true"),
        block("STATUS: IN_PROGRESS|COMPLETE|BLOCKED", "EXIT_SIGNAL: true"),
        block("STATUS: COMPLETE", "EXIT_SIGNAL: true | false"),
        block("STATUS: COMPLETE", "EXIT_SIGNAL: true or false"),
        block("STATUS: COMPLETE", "EXIT_SIGNAL: false/true"),
        block("STATUS: COMPLETE", "EXIT_SIGNAL: true", "RECOMMENDATION: <one line>"),
        block("STATUS: COMPLETE", "TASKS_COMPLETED_THIS_LOOP: <number>"),
        status_instructions(SIGNAL),
        "\n".join(status_instructions(SIGNAL).split("\n")[4:15]),
    ],
)
def test_what_is_no_complete_block(text: str) -> None:
    assert read(text).form == "none"


def test_the_instructions_are_no_claim_even_when_quoted_line_by_line() -> None:
    assert BLOCK.partition("\n")[0] in status_instructions(SIGNAL)
    assert all(read(line).form == "none" for line in status_instructions(SIGNAL).split("\n"))


def test_the_last_complete_block_wins() -> None:
    first = block("STATUS: COMPLETE", "EXIT_SIGNAL: true")
    second = block("STATUS: IN_PROGRESS", "EXIT_SIGNAL: false")
    assert not done(read(f"{first}\n{second}"))
    assert done(read(f"{second}\n{first}"))
    assert done(read(f"{first}\n---LOOP_STATUS---\nSTATUS: BLOCKED\n"))
    assert done(read(f"{first}\n{status_instructions(SIGNAL)}"))


def test_a_begin_inside_an_unfinished_block_starts_afresh() -> None:
    claim = read("---LOOP_STATUS---\nSTATUS: COMPLETE\nI stopped.\n" + block("EXIT_SIGNAL: false"))
    assert claim.report == Report(status="IN_PROGRESS", exit_signal=False)


def test_tests_status_is_not_status() -> None:
    claim = read(block("TESTS_STATUS: PASSING", "STATUS: COMPLETE"))
    assert claim.report is not None
    assert (claim.report.status, claim.report.tests_status) == ("COMPLETE", "PASSING")
    assert done(claim)
    alone = read(block("TESTS_STATUS: PASSING"))
    assert alone.report is not None
    assert alone.report.status == "IN_PROGRESS"


@pytest.mark.parametrize("value", ["many", "-3", "3 files", "9" * 5000, "1.5", ""])
def test_bad_integers_are_zero(value: str) -> None:
    claim = read(block("STATUS: COMPLETE", f"FILES_MODIFIED: {value}", f"TASKS_COMPLETED_THIS_LOOP: {value}"))
    assert claim.report == Report(status="COMPLETE")


@pytest.mark.parametrize("value", ["false", "no", "maybe", "", "not true", "false (will be true later)", "truely"])
def test_an_exit_signal_that_is_not_true_means_go_on(value: str) -> None:
    claim = read(block("STATUS: COMPLETE", f"EXIT_SIGNAL: {value}"))
    assert claim.report is not None
    assert claim.report.exit_signal is False
    assert not done(claim)


@pytest.mark.parametrize("value", ["NOT COMPLETE", "INCOMPLETE", "COMPLETED?", "", "DONE"])
def test_an_unknown_status_is_in_progress(value: str) -> None:
    claim = read(block(f"STATUS: {value}"))
    assert claim.report == Report()
    assert not done(claim)


def test_prose_in_a_block_keeps_its_signs() -> None:
    claim = read(block("STATUS: IN_PROGRESS", "RECOMMENDATION: use Vec<T> | see #12: next"))
    assert claim.report is not None
    assert claim.report.recommendation == "use Vec<T> | see #12: next"


def test_a_concrete_block_echoed_with_the_prompt_does_not_count_but_the_same_block_alone_does() -> None:
    prompt = f"Work on the parser.\nWhen all is done, end like this:\n```\n{BLOCK}\n```\nGood luck with it!"
    assert read(prompt, prompt=prompt).form == "none"
    assert read(f"You asked:\nWhen all is done, end like this:\n{BLOCK}", prompt=prompt).form == "none"
    assert done(read(f"The parser works and is tested.\n\n{BLOCK}", prompt=prompt))
    assert done(read(BLOCK, prompt=prompt))


# --- which form wins, and what it means ----------------------------------------------------------


def test_the_strongest_form_decides() -> None:
    going_on = Report(status="IN_PROGRESS", exit_signal=False)
    claim = read(f"{BLOCK}\n{SIGNAL}", going_on)
    assert (claim.form, claim.report, claim.signal) == ("report", going_on, True)
    assert not done(claim)
    claim = read(f"{block('STATUS: IN_PROGRESS', 'EXIT_SIGNAL: false')}\n\n{SIGNAL}")
    assert (claim.form, claim.signal) == ("block", True)
    assert not done(claim)


@pytest.mark.parametrize(
    ("form", "report", "expected"),
    [
        ("report", Report(status="COMPLETE", exit_signal=False), False),
        ("block", Report(status="COMPLETE"), True),
        ("block", Report(status="IN_PROGRESS"), False),
        ("report", Report(status="IN_PROGRESS", exit_signal=True), True),
        ("report", Report(status="BLOCKED", exit_signal=True), False),
        ("signal", None, True),
        ("tasks", None, True),
        ("tasks", Report(exit_signal=False), True),
        ("none", None, False),
    ],
)
def test_plain_completion(form: Form, report: Report | None, expected: bool) -> None:
    assert done(Claim(form=form, report=report)) is expected


@pytest.mark.parametrize(
    ("claim", "expected"),
    [
        (Claim(form="report", report=Report(exit_signal=True), indicators=2), True),
        (Claim(form="report", report=Report(exit_signal=True), indicators=1), False),
        (Claim(form="block", report=Report(status="COMPLETE"), indicators=5), False),
        (Claim(form="block", report=Report(status="COMPLETE", exit_signal=False), signal=True, indicators=5), False),
        (Claim(form="signal", signal=True, indicators=2), True),
        (Claim(form="signal", signal=True, indicators=1), False),
        (Claim(form="tasks", signal=True, indicators=2), True),
        (Claim(form="tasks", report=Report(exit_signal=True), indicators=2), True),
        (Claim(form="tasks", indicators=2), False),
        (Claim(indicators=9), False),
    ],
)
def test_strict_completion(claim: Claim, expected: bool) -> None:
    assert says_done(claim, Policy(strict_completion=True)) is expected


def test_blocked_is_said_by_the_status_whatever_the_exit_signal() -> None:
    assert says_blocked(Claim(form="report", report=Report(status="BLOCKED", exit_signal=False)))
    assert says_blocked(Claim(form="report", report=Report(status="BLOCKED", exit_signal=True)))
    assert not says_blocked(Claim(form="report", report=Report(status="COMPLETE")))
    assert not says_blocked(Claim(form="signal", signal=True))


@pytest.mark.parametrize(
    ("form", "threshold", "expected"),
    [
        ("signal", None, 3), ("report", None, 2), ("block", None, 2), ("tasks", None, 1),
        ("signal", 1, 1), ("report", 4, 4), ("block", 5, 5), ("tasks", 5, 1), ("signal", 0, 1),
    ],
)  # fmt: skip
def test_weaker_forms_need_longer_streaks(form: Form, threshold: int | None, expected: int) -> None:
    assert streak_needed(form, threshold) == expected


# --- advisory ------------------------------------------------------------------------------------


def test_there_are_ten_distinct_indicator_phrases_and_each_counts_once() -> None:
    assert len(set(claims.INDICATOR_PHRASES)) == 10
    for phrase in claims.INDICATOR_PHRASES:
        assert read(f"Well, {phrase.upper()}. Again: {phrase}!").indicators == 1
    assert read(". ".join(claims.INDICATOR_PHRASES)).indicators == 10


@pytest.mark.parametrize("text", ["unfinished work", "I have not finished", "it isn't finished", "going on"])
def test_no_indicator(text: str) -> None:
    assert read(text).indicators == 0


def test_indicators_alone_are_no_claim() -> None:
    claim = read(". ".join(claims.INDICATOR_PHRASES))
    assert claim.form == "none"
    assert not done(claim)


@pytest.mark.parametrize(
    "text",
    [
        "I see two ways.\n\nShould I use A or B?",
        "Would you like me to continue? (y/n)",
        "Which option do you prefer?\n",
        "Let me know if you want this changed.",
        "Please confirm before I delete the table.",
    ],
)
def test_a_message_that_ends_by_asking(text: str) -> None:
    assert read(text).question


@pytest.mark.parametrize(
    "text",
    [
        "Should I use A? I decided to use A and did.",
        "Why did it fail? The path was wrong.\nFixed now.",
        "Would you like tea?\n\nNo: I went on with the parser.",
        "> Should I go on?",
        "",
        f"Should I go on?\n{SIGNAL}",
        f"{block('STATUS: IN_PROGRESS')}\nShould I go on?",
    ],
)
def test_a_message_that_does_not_end_by_asking_or_has_a_status(text: str) -> None:
    assert not read(text).question


# --- hostile text --------------------------------------------------------------------------------

pieces = st.sampled_from(
    [
        *BLOCK.split("\n"),
        SIGNAL,
        "```",
        "~~~",
        "> ",
        "RALPH_STATUS:",
        "  STATUS: COMPLETE",
        "<promise>",
        "\r",
        "",
        "not",
    ]
)


@unhurried
@given(st.lists(pieces | st.text("aZ0_ \t\r\n`~*>:é", max_size=20), max_size=30), st.lists(pieces, max_size=10))
def test_reading_never_fails_and_never_invents(parts: list[str], prompt: list[str]) -> None:
    text = "\n".join(parts)
    claim = read(text, prompt="\n".join(prompt))
    assert (claim.form == "block") == (claim.report is not None)
    assert not claim.signal or SIGNAL in text
    assert claim.form != "none" or not done(claim)


@pytest.mark.parametrize(
    "piece",
    [
        " RALPH_STATUS:\n", "RALPH_STATUS:\n STATUS: COMPLETE\n", "---LOOP_STATUS---\n", f"{BLOCK}\n",
        "`", "*_`~ ", "\n",
        "STATUS: " + "A" * 1000 + "\n", f"{SIGNAL}\nx\n", f"<promise>{SIGNAL} ", "<a>", "should i ", "~~~\n```\n",
        "„", "«", "?", "a", "1/", "_.",
    ],
)  # fmt: skip
def test_reading_takes_time_in_proportion_to_the_text(piece: str) -> None:
    def seconds(size: int) -> float:
        text = f"---LOOP_STATUS---\n{piece * (size // len(piece))}\n---END_LOOP_STATUS---\n{SIGNAL}x"
        begin = time.thread_time()
        read(text, prompt=text)
        return time.thread_time() - begin

    # Quadratic work would take 64 times as long for 8 times the text.
    limit = 30 * seconds(25_000)
    assert any(seconds(200_000) < limit for _ in range(5)), "not even once in five tries"


def test_the_shared_files_run_under_a_bare_python_from_another_folder() -> None:
    package = Path(claims.__file__).parent.parent
    program = (
        f"import sys; sys.path.insert(0, {str(package)!r})\n"
        "from core import breaker, claims, durations, policy, signature, tasks, window\n"
        "assert not {'untildone', 'asyncio', 'typing_extensions', 'msgspec'} & set(sys.modules)\n"
        "breaker.observe(breaker.Breaker(), breaker.Observation(), policy.Policy(), 0.0)\n"
        "print(claims.read_claim('X', None, signal='X').form)"
    )
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-B", "-c", program], capture_output=True, text=True, timeout=240, check=False
    )
    assert (ran.stdout.strip(), ran.stderr) == ("signal", "")


def test_people_read_the_message_without_its_block() -> None:
    text = "Fixed it.\n\n---LOOP_STATUS---\nSTATUS: COMPLETE\n---END_LOOP_STATUS---\nBye."
    assert without_status(text) == "Fixed it.\n\nBye."
    assert without_status("---LOOP_STATUS---\nSTATUS: COMPLETE") == "---LOOP_STATUS---\nSTATUS: COMPLETE"
    assert without_status("") == ""


def test_a_commit_message_in_a_block_goes_on_to_the_next_field_or_the_end() -> None:
    last = read(block("STATUS: IN_PROGRESS", "COMMIT_MESSAGE: Add b", "", "Because: it was missing.", "- and a list"))
    assert last.report is not None
    assert last.report.commit_message == "Add b\n\nBecause: it was missing.\n- and a list"
    between = read(block("COMMIT_MESSAGE:", "Add b", "", "Why.", "EXIT_SIGNAL: true"))
    assert between.report == Report(commit_message="Add b\n\nWhy.", exit_signal=True)


def test_the_instructions_with_a_commit_message_are_no_claim_either() -> None:
    told = status_instructions(SIGNAL, commit_message=True)
    assert "COMMIT_MESSAGE" in told
    assert read(told).form == "none"
    assert all(read(line).form == "none" for line in told.split("\n"))

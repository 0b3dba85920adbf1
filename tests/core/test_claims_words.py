"""Words that are no "done", and words that are: whole final messages, as agents write them."""

import pytest

from untildone.core.claims import (
    Claim,
    Report,
    claims_done,
    objection,
    read_claim,
    report_from,
    says_blocked,
    says_done,
    unsettled,
)
from untildone.core.policy import Policy

SIGNAL = "CONTINUOUS_CLAUDE_PROJECT_COMPLETE"
DONE = Report(status="COMPLETE", exit_signal=True, tests_status="PASSING")


def block(**fields: str) -> str:
    given = {"STATUS": "COMPLETE", "TESTS_STATUS": "PASSING", "EXIT_SIGNAL": "true", **fields}
    lines = [f"{name}: {value}" for name, value in given.items()]
    return "\n".join(("---LOOP_STATUS---", *lines, "---END_LOOP_STATUS---"))


def read(text: str, report: Report | None = None) -> Claim:
    return read_claim(text, report, signal=SIGNAL)


def counts(text: str, report: Report | None = None, policy: Policy | None = None) -> bool:
    policy = policy or Policy()
    claim = read_claim(text, report, signal=SIGNAL, match=policy.completion_match)
    return says_done(claim, policy)


REPORTS_THAT_SAY_OTHERWISE = [
    Report(status="BLOCKED", exit_signal=True),
    Report(status="COMPLETE", exit_signal=True, tests_status="FAILING"),
    Report(status="COMPLETE", tests_status="FAILING"),
    Report(status="COMPLETE", exit_signal=True, remaining=("the migration of the old rows",)),
    Report(status="COMPLETE", exit_signal=True, questions=("Which of the two formats?",)),
]

REPORTS_TO_ASK_ABOUT = [
    Report(status="COMPLETE", exit_signal=True, recommendation="Next steps: add the tests for the parser"),
    Report(status="COMPLETE", exit_signal=True, recommendation="TODO: error handling"),
    Report(status="COMPLETE", exit_signal=True, recommendation="Remaining: the CLI"),
    Report(status="COMPLETE", exit_signal=True, recommendation="The next iteration should wire up the login."),
    Report(status="COMPLETE", exit_signal=True, recommendation="Should I use SQLite or PostgreSQL?"),
    Report(status="COMPLETE", exit_signal=True, summary="Add the parser; the printer is still to be done"),
    Report(status="COMPLETE", exit_signal=True, summary="Everything works except the export"),
    Report(status="IN_PROGRESS", exit_signal=True),
]


@pytest.mark.parametrize("report", REPORTS_THAT_SAY_OTHERWISE)
def test_a_report_that_says_otherwise_is_no_claim_whatever_its_exit_signal(report: Report) -> None:
    claim = read_claim("Done.", report, signal=SIGNAL)
    assert claims_done(claim)
    assert objection(claim)
    assert not says_done(claim, Policy())


@pytest.mark.parametrize(
    "fields",
    [
        {"STATUS": "BLOCKED"},
        {"TESTS_STATUS": "FAILING"},
        {"REMAINING": "two endpoints"},
        {"REMAINING": "1) the docs 2) the tests"},
        {"QUESTIONS": "May I drop the table?"},
    ],
)
def test_a_block_that_says_otherwise_is_no_claim(fields: dict[str, str]) -> None:
    assert not counts(block(**fields))
    assert not counts(f"All done!\n\n{block(**fields)}\n\n{SIGNAL}")


PROSE_THAT_SAYS_OTHERWISE = [
    "Two of the five endpoints work. The next iteration should add the others.",
    "Everything is done except the migration.",
    "All tests pass apart from test_export.",
    "The parser is finished.\n\nRemaining:\n- the printer\n- the docs",
    "## Next steps\n\n1. Add the error handling",
    "**Still to do:** the printer",
    "**TODO**: the printer",
    "Open questions: which port?",
    "Not done: the printer.",
    "What's left: the printer",
    "- [x] parser\n- [ ] printer",
    "2 tests still fail.",
    "The build is broken on Windows.",
    "One step remains: the release notes.",
    "3 tasks left.",
    "The printer isn\u2019t implemented.",
    "The login has not been tested.",
    "There is more to do in the exporter.",
    "I'll finish the docs tomorrow.",
    "I will add the docs in the next iteration.",
    "I could not fix the flaky test.",
    "It is almost done.",
    "The work is 90% complete.",
    "The exporter still needs a test.",
    "I left a TODO in the exporter.",
    "Not yet, but soon.",
    "Which of the two databases should I use?",
    "The table is dropped by this. Please confirm.",
]


@pytest.mark.parametrize("prose", PROSE_THAT_SAYS_OTHERWISE)
def test_what_the_prose_says_beside_a_claim_is_asked_about_wherever_it_appears(prose: str) -> None:
    says = [
        (f"{prose}\n\n{SIGNAL}", None),
        (f"{prose}\n\n{block()}", None),
        (prose, DONE),
        (f"{SIGNAL}\n\n{prose}", None),
    ]
    for text, report in says:
        assert counts(text, report), "it is a claim all the same"
        assert read(text, report).doubts


@pytest.mark.parametrize("report", REPORTS_TO_ASK_ABOUT)
def test_the_prose_of_a_report_and_a_status_against_its_exit_signal_are_asked_about(report: Report) -> None:
    assert counts("Done.", report)
    assert read("Done.", report).doubts


@pytest.mark.parametrize(
    "sentence",
    [
        "| Export | ❌ |", "- [ ] printer", "2/3 chapters", "2 von 3 Kapiteln sind da.", "Phase 1 of 4 is complete.",
        "Es fehlt noch Kapitel 3.", "Il manque le chapitre 3.", "Falta el capítulo 3.", "どちらにしますか\uff1f",
    ],
)  # fmt: skip
def test_signs_in_any_language_are_quoted_as_they_were_written(sentence: str) -> None:
    assert read(f"The rest is there. I am happy.\n\n{sentence}\n\n{block()}").doubts == (sentence,)


@pytest.mark.parametrize(
    "text",
    [
        "All five endpoints work.", "Left to do: nothing.", "- Open: 0", "Es ist nichts mehr offen.",
        "> 2 tests still fail",
        "```\n- [ ] open\n```", 'It prints `TODO` and "2 are left".', "See todo.md and is_open.", "3/3 chapters",
        "Let me know if you want anything changed.",
    ],
)  # fmt: skip
def test_what_is_shown_and_what_says_nothing_is_not_asked_about(text: str) -> None:
    assert read(f"{text}\n\n{block()}").doubts == ()


@pytest.mark.parametrize("size", [1, 20])
def test_few_and_short_sentences_are_quoted(size: int) -> None:
    doubts = read("\n".join(f"{number + 1} is missing {'x' * 999}" for number in range(size)) + f"\n{block()}").doubts
    assert 1 <= len(doubts) <= 5
    assert all(len(doubt) <= 300 for doubt in doubts)


DOUBTED = "Chapter 3 is only a stub."
CONFIRMS = block(REMAINING="none")


@pytest.mark.parametrize(
    ("answer", "settles"),
    [
        (f"It is finished; the stub was chapter 3 of the old plan.\n\n{CONFIRMS}", True),
        (f"{DOUBTED}\n\n{CONFIRMS}", False),
        (block(), False),
        (block(REMAINING=""), False),
        (block(REMAINING="chapter 3"), False),
        (block(REMAINING="none", STATUS="IN_PROGRESS"), False),
        (block(REMAINING="none", STATUS="BLOCKED"), False),
        (block(REMAINING="none", TESTS_STATUS="FAILING"), False),
        (block(REMAINING="none", QUESTIONS="Is a stub enough?"), False),
        (f"Nothing is left.\n\n{SIGNAL}", False),
    ],
)
def test_an_answer_about_quoted_sentences_must_say_outright_that_nothing_remains(answer: str, settles: bool) -> None:
    claim = read(f"{DOUBTED}\n\n{block()}")
    assert (unsettled(read(answer), claim.doubts) == "") is settles


def test_without_a_quotation_a_plain_answer_settles_it_unless_it_names_something_itself() -> None:
    assert not unsettled(read(f"Nothing is left.\n\n{block()}"), ())
    assert not unsettled(read(f"Nothing is left.\n\n{SIGNAL}"), ())
    assert unsettled(read(f"Chapter 3 is not written.\n\n{block()}"), ())


@pytest.mark.parametrize(
    ("remaining", "says_it"),
    [([], True), (["none"], True), ("nothing", True), ("", False), (None, False), (["x"], False)],
)
def test_a_list_that_is_left_out_is_not_an_empty_list(remaining: object, says_it: bool) -> None:
    assert report_from({"status": "COMPLETE", "remaining": remaining}).nothing_left is says_it
    assert not report_from({"status": "COMPLETE"}).nothing_left


HONEST = [
    "All five endpoints work and are tested.",
    "Nothing is left to do.",
    "No remaining work. All 14 tests pass.",
    "Remaining: none",
    "**Remaining work:** nothing.",
    "Next steps: none.",
    "## Next steps\n\nYou may want to review and merge the branch.",
    "Next: review and merge.",
    "The last remaining test passes now, too.",
    "I fixed the failing test; the suite is green.",
    "The 3 tests that were failing before pass now.",
    "The new test fails without the fix and passes with it.",
    "The old parser was not working because it dropped the last byte; it is kept now.",
    "The file did not exist yet, so I created it.",
    "0 tests fail.",
    "No test is failing.",
    "I built the todo app: items can be added, ticked and removed.",
    "- [x] parser\n- [x] printer",
    "The label is left aligned, as asked.",
    "I left the public API as it is.",
    "If a test fails, the hook prints its name.",
    "Everything you asked for is in place. Let me know if you want anything changed.",
    "Why did it fail? The path was wrong. It is right now.",
    "> 2 tests still fail\n\nThat was the bug report; it is fixed.",
    "```\nTODO: nothing of this is said\n2 tests still fail\n```\nIt printed that before the fix. Now it is green.",
    "Questions were not necessary; I noted two assumptions.",
    "The function handles every input except None, which raises TypeError as the goal demands.",
]


@pytest.mark.parametrize("prose", HONEST)
def test_an_honest_claim_counts_in_every_form(prose: str) -> None:
    assert counts(f"{prose}\n\n{SIGNAL}")
    assert counts(f"{prose}\n\n{block()}")
    assert counts(prose, DONE)


@pytest.mark.parametrize(
    "report",
    [
        {"remaining": [], "questions": []},
        {"remaining": ["none"], "questions": ["None."]},
        {"remaining": "nothing left to do", "recommendation": "Nothing more."},
        {"remaining": ["n/a"], "recommendation": "Review and merge."},
        {"recommendation": "Consider a cache if the table grows.", "tests_status": "NOT_RUN"},
        {"recommendation": "Complete."},
        {"summary": "Finish the job"},
        {"summary": "Implement the parser and fix the remaining test"},
        {"assumptions": ["Results stay floats"]},
    ],
)
def test_an_honest_report_counts(report: dict[str, object]) -> None:
    assert counts("Done.", report_from({"status": "COMPLETE", "exit_signal": True, **report}))


DECORATED = [
    f"{SIGNAL}.", f"{SIGNAL}!", f"**{SIGNAL}**", f"**{SIGNAL}.**", f"- {SIGNAL}", f"* {SIGNAL}", f"1. {SIGNAL}",
    f"# {SIGNAL}", f"### **{SIGNAL}**", f"✅ {SIGNAL}", f"🎉 **{SIGNAL}** 🎉", f"`{SIGNAL}`", f"_{SIGNAL}_",
    f"<promise>{SIGNAL}</promise>", f"=> {SIGNAL}".replace("=>", "→"), f"    {SIGNAL}",
]  # fmt: skip


@pytest.mark.parametrize("said", DECORATED)
def test_a_phrase_on_its_own_line_counts_with_whatever_sets_it_off(said: str) -> None:
    assert counts(f"All five endpoints work and are tested.\n\n{said}")
    assert counts(f"{said}\n\nAll five endpoints work and are tested.")


@pytest.mark.parametrize("match", ["published", "substring", "substring_any_case"])
def test_older_systems_take_the_agent_at_its_word_but_not_when_it_is_blocked(match: str) -> None:
    policy = Policy(completion_match=match)  # type: ignore[arg-type]
    for report in REPORTS_THAT_SAY_OTHERWISE:
        assert counts("Done.", report, policy) is (report.status != "BLOCKED")
    for prose in PROSE_THAT_SAYS_OTHERWISE:
        assert counts(f"{prose}\n\n{SIGNAL}", policy=policy)
    assert says_blocked(read_claim("", Report(status="BLOCKED", exit_signal=True), signal=SIGNAL, match=match))

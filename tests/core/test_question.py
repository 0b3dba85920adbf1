"""The last question and what else stands between a claim and done: messages, and blocks without any attempt."""

from dataclasses import replace

import pytest

from core.run_kit import START, after, asked, completed, done_claim, failed, started
from untildone.core import events as ev
from untildone.core.claims import Claim, Report
from untildone.core.decide import Iterate, Stop, decide
from untildone.core.outcome import Evidence
from untildone.core.prompt import Papers, build_prompt
from untildone.core.stopping import Reason


def test_a_question_is_no_iteration_and_its_answer_decides() -> None:
    claim = Claim(form="report", report=Report(exit_signal=True, status="COMPLETE"))
    left = Claim(form="report", report=Report(exit_signal=False, remaining=("the docs",), questions=("May I?",)))
    twice = [started(1), completed(1, claim=claim), started(2), completed(2, claim=claim)]
    yes = after(*twice, *asked(2, claim=claim))
    assert (yes.answered, yes.streak, yes.attempts, yes.successes) == (True, 2, 2, 2)
    no = after(*twice, *asked(2, claim=left))
    assert (no.answered, no.streak, no.uncounted, no.questions) == (False, 0, "the docs", ("May I?",))
    silent = after(*twice, *asked(2, claim=Claim(), output_preview="Hm."))
    assert (silent.answered, silent.uncounted) == (False, "Hm.")


STUB = "Chapter 3 is only a stub."
DOUBTED = Claim(form="block", report=Report(exit_signal=True, status="COMPLETE"), doubts=(STUB,))
TWICE = [started(1), completed(1, claim=DOUBTED), started(2), completed(2, claim=DOUBTED)]


def test_what_the_prose_says_beside_a_claim_is_quoted_in_the_question_and_a_plain_yes_does_not_settle_it() -> None:
    state = after(*TWICE)
    order = decide(state, START + 99)
    assert isinstance(order, Iterate)
    assert order.question
    assert f"> {STUB}" in build_prompt(state, order, Papers(), START).text
    plain = replace(DOUBTED, doubts=())
    for answer in (DOUBTED, plain):
        no = after(*TWICE, *asked(2, claim=answer))
        assert (no.answered, no.streak) == (False, 0)
        assert STUB in no.uncounted
    assert DOUBTED.report is not None
    outright = replace(plain, report=replace(DOUBTED.report, nothing_left=True))
    yes = after(*TWICE, *asked(2, claim=outright))
    assert (yes.answered, yes.streak) == (True, 2)


def test_with_checks_the_prose_beside_a_claim_is_left_to_them() -> None:
    state = after(*TWICE[:2], checks=("make",))
    assert (state.claim_due, state.uncounted) == (True, "")


def test_a_task_list_with_every_box_ticked_is_doubted_like_any_claim() -> None:
    ticked = ev.TasksRead(iteration_num=1, open_blocking=0, open_optional=0, ticked=3, all_done=True)
    said = completed(1, claim=Claim(doubts=(STUB,)))
    state = after(started(1), ticked, said)
    assert (state.streak, state.doubts) == (1, (STUB,))


@pytest.mark.parametrize("fault", ["overloaded", "paused", "crash", "limit_reached", "session_lost", "driver_died"])
def test_a_question_that_breaks_off_is_asked_anew_and_never_becomes_work(fault: str) -> None:
    claimed = {"claim": done_claim(), "session_id": "s"}
    twice = [started(1), completed(1, **claimed), started(2), completed(2, **claimed)]
    state = after(*twice, started(2, question=True, resume_session="s"), failed(2, fault, session_id="s"))
    again = decide(replace(state, wait=None), START + 99)
    assert again == Iterate(2, 0, None if fault == "session_lost" else "s", question=True)


def test_a_message_that_no_prompt_has_carried_prevents_done() -> None:
    passed = ev.IterationValidation(iteration_num=1, passed=True)
    said = ev.MessageReceived(by="u", content="and the docs")
    proven = [started(1), completed(1, claim=done_claim()), said, passed]
    state = after(*proven, checks=("make",))
    assert decide(state, START + 99) == Iterate(2)
    heard = after(*proven, started(2, messages_shown=1), completed(2, claim=done_claim()), passed, checks=("make",))
    assert decide(heard, START + 99) == Stop(Reason.VALIDATION_PASSED)


def test_a_block_without_any_attempt_gets_one_more_try() -> None:
    blocked = Claim(form="report", report=Report(status="BLOCKED", recommendation="no key", exit_signal=True))
    idle = completed(1, claim=blocked, evidence=Evidence())
    assert decide(after(started(1), idle), START + 99) == Iterate(2)
    tried = replace(idle, evidence=Evidence(activity=("x",)))
    assert decide(after(started(1), tried), START + 99) == Stop(Reason.BLOCKED, "no key")
    again = replace(idle, iteration_num=2)
    assert decide(after(started(1), idle, started(2), again), START + 99) == Stop(Reason.BLOCKED, "no key")

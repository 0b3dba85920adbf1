"""The last question and what else stands between a claim and done: messages, and blocks without any attempt."""

from dataclasses import replace

import pytest

from core.run_kit import START, after, asked, completed, done_claim, failed, started
from untildone.core import events as ev
from untildone.core.claims import Claim, Report
from untildone.core.decide import Iterate, Stop, decide
from untildone.core.outcome import Evidence
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

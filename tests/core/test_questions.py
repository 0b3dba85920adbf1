"""What the agent asked stays open until somebody answers it, and is bounded whatever the agent does."""

from core.run_kit import after, completed, started
from untildone.core import events as ev
from untildone.core.claims import Claim, Report
from untildone.core.questions import MOST, answered, open_questions, quoted


def asking(number: int, *questions: str, **report: str) -> ev.IterationCompleted:
    return completed(number, claim=Claim(report=Report(questions=questions, **report)))  # type: ignore[arg-type]


def said(question: str) -> ev.MessageReceived:
    return ev.MessageReceived(by="ada", content=answered(question, "Yes."))


def test_a_question_outlives_the_iterations_that_ask_nothing() -> None:
    state = after(started(1), asking(1, "May I?", "Which one?"), started(2), asking(2), started(3), completed(3))
    assert open_questions(state) == ("May I?", "Which one?")


def test_the_newest_stands_first_and_only_the_last_few_are_kept() -> None:
    told = [event for n in range(1, 30) for event in (started(n), asking(n, f"{n}?", "always?"))]
    state = after(*told)
    assert open_questions(state)[:3] == ("29?", "always?", "28?")
    assert len(state.questions) == MOST


def test_an_answer_closes_its_question_and_no_other() -> None:
    state = after(started(1), asking(1, "May I\nreally?", "Which one?"), said("May I\nreally?"))
    assert open_questions(state) == ("Which one?",)


def test_other_messages_close_nothing() -> None:
    other = ev.MessageReceived(by="ada", content="Which one? The second.")
    assert open_questions(after(started(1), asking(1, "Which one?"), other)) == ("Which one?",)


def test_an_answer_that_no_prompt_has_carried_yet_holds_for_the_same_question_asked_again() -> None:
    state = after(started(1), asking(1, "May I?"), started(2), said("May I?"), asking(2, "May I?"))
    assert open_questions(state) == ()
    again = after(
        started(1), asking(1, "May I?"), said("May I?"), started(2, messages_shown=1), asking(2, "May I?")
    )  # fmt: skip
    assert open_questions(again) == ("May I?",), "it has read the answer and asks again"


def test_what_keeps_the_agent_from_going_on_is_a_question_until_it_is_answered() -> None:
    blocked = asking(1, status="BLOCKED", recommendation="I need a database.")
    assert open_questions(after(started(1), blocked)) == ("I need a database.",)
    assert open_questions(after(started(1), blocked, said("I need a database."))) == ()


def test_an_answer_on_its_way_counts() -> None:
    state = after(started(1), asking(1, "May I?"))
    assert open_questions(state, [answered("May I?", "No.")]) == ()


def test_questions_of_a_session_are_kept_too() -> None:
    state = after(started(1), ev.QuestionAsked(iteration_num=1, question="Which one?", by="agent"), completed(1))
    assert open_questions(state) == ("Which one?",)


def test_what_a_message_quotes() -> None:
    assert quoted(answered("A\nB", "C")) == "A B"
    assert quoted(">A\n\n> B") == "A"
    assert quoted("A\n> B") == ""
    assert quoted("") == ""

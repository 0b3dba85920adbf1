"""What the agent wants to know, until somebody answers: an answer is a message that quotes the question."""

from collections.abc import Iterable
from dataclasses import replace

from untildone.core.printable import one_line
from untildone.core.state import LoopState

MOST = 10
"""Open questions that are kept: the newest."""
_WIDTH = 500
_QUOTE = ">"


def shown_question(question: str) -> str:
    """A question as it is kept, shown and quoted."""
    return one_line(question, _WIDTH)


def answered(question: str, content: str) -> str:
    """An answer as the agent reads it, hours after it asked."""
    quoted = "\n".join(f"{_QUOTE} {line}" for line in question.splitlines())
    return f"{quoted}\n\n{content}"


def quoted(message: str) -> str:
    """The question that a message quotes before anything else, as it is kept; nothing if it quotes none."""
    lines = []
    for line in message.splitlines():
        if not line.startswith(_QUOTE):
            break
        lines.append(line.removeprefix(_QUOTE))
    return shown_question("\n".join(lines))


def with_asked(state: LoopState, asked: Iterable[str]) -> LoopState:
    """More questions, before those that are open. An answer that no prompt has carried yet holds for them."""
    given = {quoted(message.content) for message in state.messages}
    new = [question for question in map(shown_question, asked) if question and question not in given]
    if not new:
        return state
    return replace(state, questions=tuple(dict.fromkeys((*new, *state.questions)))[:MOST])


def with_answer(state: LoopState, message: str) -> LoopState:
    """The question that this message answers is open no more."""
    question = quoted(message)
    if not question or question not in state.questions:
        return state
    return replace(state, questions=tuple(one for one in state.questions if one != question))


def open_questions(state: LoopState, on_their_way: Iterable[str] = ()) -> tuple[str, ...]:
    """What nobody has answered, the newest first; `on_their_way`: messages that the run has not taken yet."""
    said = (*(message.content for message in state.messages), *on_their_way)
    given = {quoted(content) for content in said}
    words = (shown_question(state.blocked or ""), *state.questions)
    return tuple(dict.fromkeys(word for word in words if word and word not in given))[:MOST]

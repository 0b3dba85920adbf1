"""Questions for the human: kept for later, so that nobody has to wait for an answer at night."""

from untildone.core.printable import one_line
from untildone.errors import UsageError
from untildone.hook import register, spool

_LONGEST = 2000
_MOST = 200
_SHOWN = 200


def ask(home: str, project: str, question: str, now: float, *, by: str) -> str:
    """Note a question of a loop; what the one who asks should do next. UsageError where there is no loop."""
    entry = register.find(home, project)
    if entry is None:
        raise UsageError("no loop is running in this folder: just ask, a person is here")
    text = " ".join(question.split())[:_LONGEST]
    if not text:
        raise UsageError("a question needs words")
    asked = questions(home, entry["loop"])
    if text not in asked:
        if len(asked) >= _MOST:
            raise UsageError(f"{_MOST} questions are noted already: decide, and go on")
        spool.tell(home, entry["loop"], "asked", now, question=text, by=by)
    return f"Noted for the human: {text}\nDo not wait for the answer: decide yourself, note the assumption, and go on."


def questions(home: str, loop: str) -> list[str]:
    """What a loop has asked so far."""
    found: list[str] = []
    read, offset = -1, 0
    while offset > read and len(found) < _MOST:
        read = offset
        lines, offset = spool.since(home, loop, read, cap=1 << 20)
        found += [str(line.get("question", "")) for line in lines if line.get("what") == "asked"]
    return found


def open_questions(home: str, project: str) -> str:
    """The same for people, safe to look at."""
    entry = register.find(home, project)
    if entry is None:
        return "no loop is running in this folder"
    asked = questions(home, entry["loop"])
    if not asked:
        return "the loop has asked nothing"
    return "\n  ".join(["the loop asks:", *(f"- {one_line(text, _SHOWN)}" for text in asked)])

"""What the agent says about being done. A claim is a reason to look, never proof.

Stdlib only: the Stop hook runs this file under `python3 -I -S`.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Literal

from .dataclass import dataclass
from .markdown import WRAPPING, fenced, split_lines
from .signals import echoes, says_signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .policy import Policy

Form = Literal["report", "block", "signal", "tasks", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A status the agent gave, through the report tool, structured output or a LOOP_STATUS block."""

    status: str = "IN_PROGRESS"
    """IN_PROGRESS, COMPLETE or BLOCKED."""
    exit_signal: bool | None = None
    """The explicit word on whether everything is done; None when it was not given."""
    tasks_completed: int = 0
    files_modified: int = 0
    tests_status: str = "NOT_RUN"
    """PASSING, FAILING or NOT_RUN."""
    work_type: str = "IMPLEMENTATION"
    """IMPLEMENTATION, TESTING, DOCUMENTATION or REFACTORING."""
    recommendation: str = ""
    summary: str = ""
    """One line on what was done, fit for a commit message."""
    commit_message: str = ""
    """A whole commit message, where one was asked for: a summary line, a blank line, a body."""
    assumptions: tuple[str, ...] = ()
    """Decisions taken because nobody was there to ask."""
    questions: tuple[str, ...] = ()
    """What a human should answer in the morning."""
    remaining: tuple[str, ...] = ()
    """What is left of the whole goal."""
    nothing_left: bool = False
    """What remains was given, and it is nothing: more than leaving it out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Everything the final message says about being done, before any policy is applied to it."""

    form: Form = "none"
    """The strongest form found; it alone decides."""
    report: Report | None = None
    signal: bool = False
    indicators: int = 0
    """Advisory phrases such as "all tasks complete": never a reason to stop by themselves."""
    question: bool = False
    """The message ends by asking the human something instead of going on."""
    doubts: tuple[str, ...] = ()
    """Sentences of the same message that may name something left. They do not decide: the agent is asked about them."""


def read_claim(final_text: str, report: Report | None, *, signal: str, match: str = "line", prompt: str = "") -> Claim:
    """What the final message claims. The strongest form wins: report, then status block, then signal."""
    lines = split_lines(final_text)
    echoed = echoes(lines, prompt)
    status = report or _last_block(lines, echoed)
    said = says_signal(final_text, lines, echoed, signal, match)
    denies = status is not None and status.exit_signal is False
    form: Form = "none"
    if status is not None:
        form = "block" if report is None else "report"
    elif said:
        form = "signal"
    return Claim(
        form=form,
        report=status,
        signal=said,
        indicators=len({phrase.lower() for phrase in _INDICATORS.findall(final_text)}),
        question=form == "none" and _asks(lines),
        doubts=_doubts(lines, echoed, signal, status) if judges(match) and not denies else (),
    )


def judges(match: str) -> bool:
    """Whether a claim is compared with the rest of its message. The older systems take the agent at its word."""
    return match == "line"


def objection(claim: Claim, *, match: str = "line") -> str:
    """Why a claim does not count: what the fields of its own report say against it. Empty: nothing does."""
    report = claim.report
    if report is None:
        return ""
    if report.status == "BLOCKED":
        return "the report says BLOCKED"
    if not judges(match):
        return ""
    if report.tests_status == "FAILING":
        return "the report says that tests fail"
    left = [("names what is left", report.remaining), ("asks", report.questions)]
    return next((f"the report {says}: {items[0]}" for says, items in left if items), "")


def unsettled(answer: Claim, doubts: tuple[str, ...]) -> str:
    """Why the answer to the last question does not settle it; empty: it does.

    Sentences in doubt are settled only by a report that says outright that nothing remains, in a message that does not
    repeat them.
    """
    if against := objection(answer):
        return against
    again = next((doubt for doubt in doubts if doubt in answer.doubts), "")
    if again:
        return f"asked about it, it said again: {again}"
    in_doubt, report = (*doubts, *answer.doubts), answer.report
    said = report is not None and (report.status, report.exit_signal, report.nothing_left)
    if in_doubt and said != ("COMPLETE", True, True):
        return f"asked about it, it did not report that nothing remains: {in_doubt[0]}"
    return ""


def claims_done(claim: Claim, *, strict: bool = False, indicator_threshold: int = 0) -> bool:
    """Whether a message claims that everything is done; an explicit exit signal beats the status."""
    explicit = claim.report.exit_signal if claim.report is not None else None
    if claim.form in {"report", "block"}:
        complete = claim.report is not None and claim.report.status == "COMPLETE"
        done, signalled = complete if explicit is None else explicit, explicit is True
    else:
        done, signalled = claim.form != "none", claim.signal or explicit is True
    return done and (not strict or (signalled and claim.indicators >= indicator_threshold))


def says_done(claim: Claim, policy: "Policy") -> bool:
    """Whether a claim counts: it is made, and no field of the same report says otherwise."""
    made = claims_done(claim, strict=policy.strict_completion, indicator_threshold=policy.indicator_threshold)
    return made and not objection(claim, match=policy.completion_match)


def says_blocked(claim: Claim) -> bool:
    """Whether the agent says that it cannot go on."""
    return claim.report is not None and claim.report.status == "BLOCKED"


def streak_needed(claim_form: Form, threshold: int | None) -> int:
    """How many claims in a row are believed without a check: the weaker the form, the more."""
    if claim_form == "tasks":
        return 1
    if threshold is not None:
        return max(1, threshold)
    return 3 if claim_form == "signal" else 2


# --- the report ----------------------------------------------------------------------------------------------

STATUSES = ("IN_PROGRESS", "COMPLETE", "BLOCKED")
TESTS_STATUSES = ("PASSING", "FAILING", "NOT_RUN")
WORK_TYPES = ("IMPLEMENTATION", "TESTING", "DOCUMENTATION", "REFACTORING")

TEXT_CAP = 2000
MESSAGE_CAP = 4000
LIST_CAP = 20
COUNT_CAP = 1_000_000_000
_LINES = {"type": "array", "items": {"type": "string"}, "maxItems": LIST_CAP}

REPORT_SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {
        "status": {
            "type": "string",
            "enum": list(STATUSES),
            "description": "BLOCKED only if nobody but a human can help",
        },
        "exit_signal": {
            "type": "boolean",
            "description": "true only if the ENTIRE goal is reached and you have verified it yourself",
        },
        "tasks_completed": {"type": "integer", "minimum": 0, "description": "tasks finished in this iteration"},
        "files_modified": {"type": "integer", "minimum": 0, "description": "files changed in this iteration"},
        "tests_status": {"type": "string", "enum": list(TESTS_STATUSES), "description": "how the tests stand now"},
        "work_type": {"type": "string", "enum": list(WORK_TYPES), "description": "what this iteration mostly was"},
        "recommendation": {"type": "string", "description": "what to do next, or what blocks you"},
        "summary": {"type": "string", "description": "one line on what was done, fit for a commit message"},
        "commit_message": {
            "type": "string",
            "description": "only if your instructions ask for one: the whole commit message for this iteration's work",
        },
        "assumptions": {**_LINES, "description": "decisions you took because nobody was there to ask"},
        "questions": {**_LINES, "description": "what a human should answer later; with one open, nothing is done"},
        "remaining": {**_LINES, "description": "what is left of the ENTIRE goal, an item each; empty: nothing at all"},
    },
    "required": ["status", "exit_signal"],
    "additionalProperties": False,
}
"""JSON schema of the report tool's input."""


def report_from(data: Mapping[str, object]) -> Report:
    """Read a report as the agent gave it: what has the wrong type or an unknown value becomes the default."""
    return Report(
        status=_one_of(STATUSES, data.get("status"), "IN_PROGRESS"),
        exit_signal=_flag(data.get("exit_signal")),
        tasks_completed=_count(data.get("tasks_completed")),
        files_modified=_count(data.get("files_modified")),
        tests_status=_one_of(TESTS_STATUSES, data.get("tests_status"), "NOT_RUN"),
        work_type=_one_of(WORK_TYPES, data.get("work_type"), "IMPLEMENTATION"),
        recommendation=_text(data.get("recommendation")),
        summary=" ".join(_text(data.get("summary")).split()),
        commit_message=_message(data.get("commit_message")),
        assumptions=_texts(data.get("assumptions")),
        questions=_items(data.get("questions")),
        remaining=_items(data.get("remaining")),
        nothing_left=_is_given(data.get("remaining")) and not _items(data.get("remaining")),
    )


def _one_of(allowed: tuple[str, ...], value: object, default: str) -> str:
    word = value.strip().upper() if isinstance(value, str) else ""
    return word if word in allowed else default


def _flag(value: object) -> bool | None:
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value.strip().lower())
    return value if isinstance(value, bool) else None


def _count(value: object) -> int:
    if isinstance(value, str):
        digits = value.strip()
        value = int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= len(str(COUNT_CAP)) else 0
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        return 0
    return min(int(value), COUNT_CAP)


def _text(value: object, cap: int = TEXT_CAP) -> str:
    if not isinstance(value, str):
        return ""
    # Control characters would act on terminals; half a surrogate pair cannot be stored.
    kept = "".join(c for c in value[: 2 * cap] if c in "\n\t" or (c >= " " and not "\x7f" <= c <= "\x9f"))
    return kept.encode("utf-8", "replace").decode().strip()[:cap]


# What tools sign their messages with. The author of a commit is the one in whose name it is made.
_SIGNATURE = re.compile(
    r"\W*(?:generated|created|written|made) (?:with|by|using)\b.*(?:\bclaude\b|\banthropic\b|\bAI\b|\buntildone\b).*"
    r"|\W*co-authored-by:.*(?:\bclaude\b|\banthropic\b).*"
    r"|\W*claude-session:.*",
    re.IGNORECASE,
)


def _message(value: object) -> str:
    """A commit message: a summary line, a blank line, a body, and no signature of a tool."""
    lines = [line.rstrip() for line in _text(value, MESSAGE_CAP).split("\n") if not _SIGNATURE.fullmatch(line)]
    summary, _, body = "\n".join(lines).strip().partition("\n")
    return f"{summary}\n\n{body.strip()}" if body.strip() else summary


def _texts(value: object) -> tuple[str, ...]:
    items = value if isinstance(value, list | tuple) else (value,)
    return tuple(text for text in map(_text, items[:LIST_CAP]) if text)


def _items(value: object) -> tuple[str, ...]:
    """A list whose items say something: an agent writes "none" where it should have written nothing."""
    return tuple(text for text in _texts(value) if not _NOTHING.fullmatch(text))


def _is_given(value: object) -> bool:
    return isinstance(value, list | tuple) or bool(_text(value))


_NOTHING = re.compile(
    r"\W*(?:none|nothing|nil|n/?a|no|zero|0|empty)?"
    r"(?:\s+(?:is|more|else|further|open|known|left|remain(?:s|ing)?|to|do|needed|work|tasks?|items?|steps?))*\W*",
    re.IGNORECASE,
)


# --- the block -----------------------------------------------------------------------------------------------

_FIELDS = {
    "STATUS": "status",
    "TASKS_COMPLETED_THIS_LOOP": "tasks_completed",
    "FILES_MODIFIED": "files_modified",
    "TESTS_STATUS": "tests_status",
    "WORK_TYPE": "work_type",
    "EXIT_SIGNAL": "exit_signal",
    "RECOMMENDATION": "recommendation",
    "SUMMARY": "summary",
    "REMAINING": "remaining",
    "QUESTIONS": "questions",
    "COMMIT_MESSAGE": "commit_message",
}
_WORDS = {
    "STATUS": STATUSES, "TESTS_STATUS": TESTS_STATUSES, "WORK_TYPE": WORK_TYPES, "EXIT_SIGNAL": ("TRUE", "FALSE")
}  # fmt: skip
_PROSE = frozenset({"SUMMARY", "RECOMMENDATION", "REMAINING", "QUESTIONS", "COMMIT_MESSAGE"})
_LONG = "COMMIT_MESSAGE"
"""The one field whose value may go on over the next lines, up to another field or the end of the block."""
_WORD_CAP = 100
"""No chosen word or number is longer; what is read of a hostile value stays short."""
_CHOICE = re.compile(r"([A-Z_]+)\s*(?:[|/]|\bOR\b)\s*(?=([A-Z_]+))")
_BEGINS = frozenset({"---LOOP_STATUS---", "---RALPH_STATUS---"})
_ENDS = frozenset({"---END_LOOP_STATUS---", "---END_RALPH_STATUS---"})
_HEADERS = frozenset({"LOOP_STATUS:", "RALPH_STATUS:"})


def _last_block(lines: list[str], echoed: list[bool]) -> Report | None:
    """The last complete block that is neither an example nor part of an echoed prompt."""
    found: Report | None = None
    begun: int | None = None
    for number, line in enumerate(lines):
        word = line.strip(WRAPPING)
        if word in _BEGINS:
            begun = number
        elif word in _ENDS and begun is not None:
            found = _block(lines, begun, number, echoed) or found
            begun = None
        elif word in _HEADERS and begun is None:
            found = _block(lines, number, _yaml_end(lines, number), echoed) or found
    return found


def without_status(text: str) -> str:
    """What a message says to people: the text without its status blocks."""
    kept: list[str] = []
    begun: int | None = None
    for line in split_lines(text):
        word = line.strip(WRAPPING)
        if word in _BEGINS:
            begun = len(kept)
        kept.append(line)
        if word in _ENDS and begun is not None:
            del kept[begun:]
            begun = None
    return "\n".join(kept).strip()


def block_above(lines: list[str], last: int) -> int | None:
    """Where the status block begins that ends with this line; None where none does."""
    if lines[last].strip(WRAPPING) in _ENDS:
        return next((number for number in range(last - 1, -1, -1) if lines[number].strip(WRAPPING) in _BEGINS), None)
    above = next((number for number in range(last, -1, -1) if lines[number].strip(WRAPPING) in _HEADERS), None)
    return above if above is not None and _yaml_end(lines, above) > last else None


def _yaml_end(lines: list[str], header: int) -> int:
    """The line after the fields below a header such as `RALPH_STATUS:`: indented deeper, or of a known name."""
    end, depth = header + 1, _indentation(lines[header])
    while end < len(lines) and (_indentation(lines[end]) > depth or lines[end].partition(":")[0].strip() in _FIELDS):
        end += 1
    return end


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip(" \t"))


def _block(lines: list[str], begin: int, end: int, echoed: list[bool]) -> Report | None:
    # Identical to one in the prompt may still be meant; together with the prompt's line above, it is an echo.
    above = next((number for number in range(begin - 1, -1, -1) if lines[number].strip("` \t")), None)
    if above is not None and echoed[above] and echoed[begin]:
        return None
    values: dict[str, object] = {}
    for number in range(begin + 1, end):
        key, value = _field(lines[number])
        if key not in _FIELDS:
            continue
        if key in _PROSE:
            is_example = value.startswith("<") and value.endswith(">")
        else:
            value = value[:_WORD_CAP].partition("#")[0].strip().upper()
            is_example = value.startswith("<") or _offers_choice(value, _WORDS.get(key, ()))
        if is_example:
            return None
        if key == _LONG:
            value = "\n".join((value, *_until_next_field(lines[number + 1 : end])))
        values[_FIELDS[key]] = _first_word(key, value) if key in _WORDS else value
    return report_from(values) if values else None


def _field(line: str) -> tuple[str, str]:
    """Name and value of a field; no name where the line is none."""
    key, colon, value = line[:TEXT_CAP].strip(" \t*`").partition(":")
    return (key.strip(WRAPPING), value.strip(" \t*`\"'")) if colon else ("", "")


def _until_next_field(lines: list[str]) -> Iterator[str]:
    for line in lines:
        if _field(line)[0] in _FIELDS:
            return
        yield line[:TEXT_CAP].removeprefix("  ")  # below a header every line is indented


def _offers_choice(value: str, words: tuple[str, ...]) -> bool:
    """Whether the value is the list it should be chosen from, such as `true | false`."""
    return any({left, right} <= set(words) for left, right in _CHOICE.findall(value))


def _first_word(key: str, value: str) -> str:
    word = re.match(r"[A-Z_]*", value)
    if word is not None and word[0] in _WORDS[key]:
        return word[0]
    # An exit signal that cannot be read as true was still given, and it is not true.
    return "FALSE" if key == "EXIT_SIGNAL" else ""


# --- advisory: phrases and questions -------------------------------------------------------------------------

INDICATOR_PHRASES = (
    "all tasks complete", "project ready", "work is done", "implementation complete", "no more work", "finished",
    "task complete", "all done", "nothing left to do", "completed successfully",
)  # fmt: skip
"""The ones clawker published. With `--strict-completion` the agent is told them."""
_INDICATORS = re.compile(rf"(?<!\bnot )(?<!n't )\b(?:{'|'.join(INDICATOR_PHRASES)})\b", re.IGNORECASE)
_ASKS = re.compile(
    r"\b(?:(?:should|shall|may|can) i|would you (?:like|prefer)|do you want|want me to|(?:can|could) you"
    r"|which (?:one|option|approach|of)|how would you|what would you|is that ok(?:ay)?)\b[^?]*\?\W*(?:\([^()]*\)\W*)?$"
    r"|\blet me know (?:if|which|whether|how|what|when|your)\b"
    r"|\bplease (?:confirm|advise|clarify|choose|decide)\b"
    r"|\b(?:await|awaiting|waiting for) your\b",
    re.IGNORECASE,
)
_LAST_WORDS = 300


def _asks(lines: list[str]) -> bool:
    """Whether the last line asks the human something."""
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return not last.startswith((">", "`")) and _ASKS.search(last[-_LAST_WORDS:]) is not None


# --- what the agent's own words hold against its claim --------------------------------------------------------

_READ, _QUOTED, _QUOTE_CAP = 200, 5, 300
"""Lines of a message that are looked at, the last ones; how many sentences are quoted of them, and how much of each."""
_SENTENCES = re.compile(r"(?<=[.!?;])\s+|(?<=[\u3002\uff01\uff1f])")
_SHOWN = re.compile(
    r"`[^`]{0,300}`|\"[^\"]{0,300}\"|“[^”]{0,300}”|„[^“”]{0,300}[“”]|«[^»]{0,300}»|(?<!\S)\S*\w[._]\w\S*"
)
"""Code, quotations and names of files: what is shown is not said."""
_NOTHING_LEFT = re.compile(r"\b(?:no|none|nothing|0|zero|nichts|keine?|rien|aucune?|nada)\b", re.IGNORECASE)
_K_OF_N = re.compile(r"(?<![\d.,/-])(\d{1,4}) ?(?:/|(?:out )?of|von|sur|de) ?(\d{1,4})(?![\d.,/-]*\d)", re.IGNORECASE)
_SIGN = re.compile(
    r"[❌✗✘✖⏳⌛🚧☐⬜🔴]|\[ \]|[?\uff1f\u061f][\W_]{0,9}$|n't\b|'ll\b|\b\d\d? ?%|\b(?:"
    r"not|cannot|unable|yet|still|left|open|missing|outstanding|pending|unfinished|incomplete|remain(?:s|ing)?"
    r"|except|apart from|other than|almost|nearly|mostly|partly|next|later|tomorrow|until|once you|will|for now"
    r"|in progress|in the works|ran out of|unfortunately|skipped|blocked|broken|red|fails?|(?:is|are) failing"
    r"|to[- ]?dos?|tbd|fixme|stubs?|mock(?:s|ed)?|placeholders?|temporary|workaround|manual(?:ly)?|please|must|needs?"
    r"|needed|nicht|noch|fehl(?:t|en)|offen|pas|reste|manque|falta|todavía|pendientes?)\b",
    re.IGNORECASE,
)
"""A broad sign that a sentence names something left, or asks. It only decides what the agent is asked about."""


def _doubts(lines: list[str], echoed: list[bool], signal: str, report: Report | None) -> tuple[str, ...]:
    """The sentences to ask about: outside of code, quotations, fields and the signal, and in the prose of a report."""
    code = fenced(lines, unclosed=True)
    told = [
        line for number, line in enumerate(lines) if not (code[number] or echoed[number] or _is_formal(line, signal))
    ]
    found = []
    if report is not None:
        told += [*split_lines(report.recommendation), report.summary]
        if report.exit_signal and report.status == "IN_PROGRESS":
            found.append("STATUS: IN_PROGRESS, EXIT_SIGNAL: true")
    sentences = (sentence.strip() for line in told[-_READ:] for sentence in _SENTENCES.split(line[:TEXT_CAP]))
    found += [sentence[:_QUOTE_CAP] for sentence in sentences if _is_sign(sentence)]
    return tuple(dict.fromkeys(found))[:_QUOTED]


def _is_formal(line: str, signal: str) -> bool:
    return line.lstrip().startswith(">") or _field(line)[0] in _FIELDS or (signal != "" and signal in line)


def _is_sign(sentence: str) -> bool:
    said = _SHOWN.sub(" ", sentence.replace("\u2019", "'"))
    counted = any(int(done) < int(whole) for done, whole in _K_OF_N.findall(said))
    return counted or (_SIGN.search(said) is not None and not _NOTHING_LEFT.search(said))


# --- what the agent is told ----------------------------------------------------------------------------------


def status_instructions(signal: str, *, commit_message: bool = False, phrases: int = 0) -> str:
    """How to report, for the system prompt. Quoted back in full, it is no claim. `phrases`: how many it must say."""
    message = f"\nCOMMIT_MESSAGE: {_MESSAGE_EXAMPLE}" if commit_message else ""
    asked = f"\n\n{_MESSAGE_WANTED}" if commit_message else ""
    if phrases:
        asked += f"\n\n{_PHRASES_WANTED.format(count=phrases, phrases=', '.join(INDICATOR_PHRASES))}"
    return f"""\
## How to report
As your last act, call the tool `mcp__untildone__report` (or `StructuredOutput`, whichever you have) exactly once, with
the state of the work as it really is. If you have neither, end your final message with this block instead, with every
value filled in:

---LOOP_STATUS---
STATUS: <{" | ".join(STATUSES)}>
TASKS_COMPLETED_THIS_LOOP: <number>
FILES_MODIFIED: <number>
TESTS_STATUS: <{" | ".join(TESTS_STATUSES)}>
WORK_TYPE: <{" | ".join(WORK_TYPES)}>
EXIT_SIGNAL: <true | false>
SUMMARY: <one line on what you did, fit for a commit message>
REMAINING: <what is left of the entire goal, or none>
RECOMMENDATION: <what to do next, or what blocks you>{message}
---END_LOOP_STATUS---

Set the exit signal to true only if the ENTIRE goal is reached and you have verified it yourself. If anything is
left, if a test fails or a question is open, it is false, even when the task at hand is complete: a report that says
both does not count. BLOCKED means that only a human can help: say with what.
Where you can give neither tool call nor block, this phrase alone on the last line of your final message also means
that the entire goal is reached; never write it for any other purpose: `{signal}`{asked}"""


_MESSAGE_EXAMPLE = "<the whole message; it may go on over the next lines, up to the end of the block>"
_PHRASES_WANTED = """\
The exit signal counts only together with words: when it is true, the final message must also say at least {count} of
these phrases, and at no other time any of them: {phrases}."""
_MESSAGE_WANTED = """\
The loop commits your work with the message you write: give it as `commit_message`. A summary line of at most 72
characters in the imperative, a blank line, and a body that says what was changed and why. Describe the change itself,
not the iteration; no footers, and nothing on what wrote it."""

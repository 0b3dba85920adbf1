"""What the agent said at the end of its turn. What costs time to load is loaded only where it could matter."""

from untildone.core.loop_words import AUTO, EXIT_SIGNAL
from untildone.core.markdown import WRAPPING, split_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from untildone.core.claims import Claim
    from untildone.core.loop_file import LoopFile
    from untildone.hook.answering import Call

    Said = Literal["promise", "signal", ""]

_BLOCKS = ("LOOP_STATUS", "RALPH_STATUS")
"""What stands in every block that gives a status."""
_FENCES = ("```", "~~~")


def last_message(call: "Call") -> str:
    """The agent's last words: as the event tells them, else from the end of the transcript."""
    said = call.event.get("last_assistant_message")
    if isinstance(said, str):
        return said
    from untildone.hook.transcript import last_words

    return last_words(call.text("transcript_path"))


def claim_of(message: str, file: "LoopFile", *, autonomous: bool = False) -> "Said":
    """How a message says that everything is done: by a promise of this loop, by an exit signal or status, or not.

    Where a promise was agreed on, nothing else says it; the controller has its signal. A status in a loop of our own
    layout may not say otherwise in the same message; the older layouts take the agent at its word.
    """
    judged = file.layout == "untildone" and not autonomous
    if file.layout == "stravinsky" and any(promise.lower() in message.lower() for promise in file.promises):
        return "promise"
    takes_signal = autonomous or not file.promises
    signals = (*file.promises, EXIT_SIGNAL) if takes_signal else file.promises
    is_named = any(signal in message for signal in signals)
    if not is_named and not (takes_signal and _may_report(message, "COMPLETE", "TRUE")):
        return ""
    reported = _reported(message, file, judged=judged) if _has_block(message) else None
    if reported is not None:
        if not _is_done(reported, judged=judged):
            return ""  # whatever else it says
        if takes_signal:
            return "signal"
    said = _last_said(message, file, signals)
    return "promise" if said in file.promises else "signal" if said else ""


def doubts_of(message: str, file: "LoopFile") -> "tuple[str, ...]":
    """What a status is doubted for, unless it says outright that nothing remains."""
    reported = _reported(message, file, judged=True) if _has_block(message) else None
    if reported is None:
        return ()
    from untildone.core import claims

    return reported.doubts if claims.unsettled(reported, ()) else ()


def says_blocked(message: str, file: "LoopFile") -> bool:
    """Whether a message says that only a human can help."""
    if not _may_report(message, "BLOCKED"):
        return False
    from untildone.core import claims

    reported = _reported(message, file, judged=False)
    return reported is not None and claims.says_blocked(reported)


# --- the last words --------------------------------------------------------------------------------------------


def _last_said(message: str, file: "LoopFile", signals: "tuple[str, ...]") -> str:
    """Which signal is the last thing that is said. After one that is followed by other words, those count."""
    from untildone.core.signals import echoes, says_signal

    lines = split_lines(message)
    last = _last_words(lines, has_block=_has_block(message))
    if not any(signal in lines[last] for signal in signals):
        return ""
    unheard = [number != last or echoed for number, echoed in enumerate(echoes(lines, file.body))]
    return next((signal for signal in signals if says_signal(message, lines, unheard, signal, "line")), "")


def _last_words(lines: "list[str]", *, has_block: bool) -> int:
    """The number of the last line that says something, before a status block at the end."""
    last = _telling(lines, len(lines))
    while has_block:
        from untildone.core.claims import block_above

        begin = block_above(lines, last)
        if begin is None:
            break
        last = _telling(lines, begin)
    return last


def _telling(lines: "list[str]", end: int) -> int:
    """The number of the last line before `end` with words on it; 0 where there is none."""
    for number in range(end - 1, 0, -1):
        line = lines[number].strip()
        if not line.startswith((*_FENCES, AUTO)) and any(character.isalnum() for character in line):
            return number
    return 0


# --- a status --------------------------------------------------------------------------------------------------


def _has_block(message: str) -> bool:
    return any(name in message for name in _BLOCKS)


def _may_report(message: str, *words: str) -> bool:
    """Whether a status in it could say one of these: reading it for good takes longer than all the rest."""
    if not _has_block(message):
        return False
    fields = (line for line in split_lines(message) if line.strip(WRAPPING).startswith(("STATUS", "EXIT_SIGNAL")))
    return any(word in line.upper() for line in fields for word in words)


def _reported(message: str, file: "LoopFile", *, judged: bool) -> "Claim | None":
    """The status in a message; None where there is none."""
    from untildone.core import claims

    claim = claims.read_claim(message, None, signal="", match=_match(judged=judged), prompt=file.body)
    return claim if claim.report is not None else None


def _is_done(claim: "Claim", *, judged: bool) -> bool:
    from untildone.core import claims

    return claims.claims_done(claim) and not claims.objection(claim, match=_match(judged=judged))


def _match(*, judged: bool) -> str:
    return "line" if judged else "published"

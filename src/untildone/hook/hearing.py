"""What the agent said at the end of its turn. What costs time to load is loaded only where it could matter."""

from untildone.core.loop_words import EXIT_SIGNAL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from untildone.core.loop_file import LoopFile
    from untildone.hook.answering import Call

    Said = Literal["promise", "signal", ""]


def last_message(call: "Call") -> str:
    """The agent's last words: as the event tells them, else from the end of the transcript."""
    said = call.event.get("last_assistant_message")
    if isinstance(said, str):
        return said
    from untildone.hook.transcript import last_words

    return last_words(call.text("transcript_path"))


def claim_of(message: str, file: "LoopFile") -> "Said":
    """How a message says that everything is done: by a promise of this loop, by an exit signal or status, or not."""
    if file.layout == "stravinsky" and any(promise.lower() in message.lower() for promise in file.promises):
        return "promise"
    signals = (*file.promises, EXIT_SIGNAL)
    if "STATUS" in message:
        return _by_status(message, file, signals)
    if not any(signal in message for signal in signals):
        return ""
    # Without a status only signals count, and those take half the time to judge.
    from untildone.core.markdown import split_lines
    from untildone.core.signals import echoes, says_signal

    lines = split_lines(message)
    echoed = echoes(lines, file.body)
    for signal in signals:
        if says_signal(message, lines, echoed, signal, "line"):
            return "promise" if signal in file.promises else "signal"
    return ""


def _by_status(message: str, file: "LoopFile", signals: "tuple[str, ...]") -> "Said":
    from untildone.core import claims

    for signal in signals:
        claim = claims.read_claim(message, None, signal=signal, prompt=file.body)
        if claims.says_done(claim, strict=False, indicator_threshold=0):
            return "promise" if claim.form == "signal" and signal in file.promises else "signal"
    return ""


def says_blocked(message: str, file: "LoopFile") -> bool:
    """Whether a message says that only a human can help."""
    if "STATUS" not in message or "BLOCKED" not in message.upper():
        return False
    from untildone.core import claims

    return claims.says_blocked(claims.read_claim(message, None, signal="", prompt=file.body))

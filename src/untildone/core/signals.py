"""Whether a completion signal is said, or only quoted, denied, promised for later or echoed from the prompt.

Stdlib only: the Stop hook runs this file under `python3 -I -S`.
"""

import re
from itertools import pairwise

from .markdown import WRAPPING, fenced, split_lines

_TAG = re.compile(r"<([A-Za-z][\w-]{0,30})>([^<>]*)</([A-Za-z][\w-]{0,30})>")
_SHOWING_TAGS = frozenset({"code", "pre", "q", "quote", "blockquote", "example", "sample", "s", "del"})
_SHOWING_LINES = frozenset(f"<{tag}>" for tag in _SHOWING_TAGS)
_NEGATES = re.compile(r"\b(?:not|never|cannot|until|unless)\b|n['\u2019]t\b", re.IGNORECASE)
_DEFERS = re.compile(r"\b(?:will|would|should|when|once|if)\b|['\u2019]ll\b", re.IGNORECASE)
_UTTERS = re.compile(
    r"\b(?:output|say|saying|print|printing|emit|write|writing|declare|send|claim|give|include|use|signal|phrase)\b",
    re.IGNORECASE,
)
_ECHO_LENGTH = 12
"""A shorter line, such as a lone bracket, may be equal to one of the prompt by chance."""


def says_signal(text: str, lines: list[str], echoed: list[bool], signal: str, match: str) -> bool:
    """Whether the message says the signal: alone on a line or in a tag, or by an older system's plain matching."""
    signal = signal.strip()
    if not signal:
        return False
    if match == "substring":
        return signal in text
    if match == "substring_any_case":
        return signal.lower() in text.lower()
    if signal not in text:
        return False
    code = fenced(lines, unclosed=True)
    return any(
        not code[number] and not echoed[number] and signal in line and _is_meant(lines, number, signal)
        for number, line in enumerate(lines)
    )


def _is_meant(lines: list[str], number: int, signal: str) -> bool:
    """Whether this line says the signal, rather than something about it."""
    line = lines[number].strip()
    before, _, after = line.partition(signal)
    tag = next((tag for tag in _TAG.finditer(line) if tag[2].strip() == signal and tag[1] == tag[3]), None)
    if tag is not None and tag[1].lower() not in _SHOWING_TAGS:
        before, after = line[: tag.start()], line[tag.end() :]
        if before.rstrip(WRAPPING).endswith((".", "!")) and not _NEGATES.search(before):
            before = ""
    if before.strip(WRAPPING) or after.strip(WRAPPING):
        return False
    return not _belongs_to_a_sentence(lines, number)


def _belongs_to_a_sentence(lines: list[str], number: int) -> bool:
    """Whether the lines around make it a thing spoken about: "I will not output:", or a wrapped sentence."""
    following = lines[number + 1].strip() if number + 1 < len(lines) else ""
    touching = lines[number - 1].strip() if number else ""
    if following[:1].islower() or touching.startswith(">") or touching.lower() in _SHOWING_LINES:
        return True
    above = next((line.strip() for line in reversed(lines[max(0, number - 3) : number]) if line.strip()), "")
    if above.rstrip(WRAPPING).endswith((":", ",")):
        return _puts_off(above)
    unfinished = touching.rstrip(WRAPPING)[-1:].isalnum()
    return unfinished and _puts_off(touching) and _UTTERS.search(touching) is not None


def _puts_off(line: str) -> bool:
    return (_NEGATES.search(line) or _DEFERS.search(line)) is not None


def echoes(lines: list[str], prompt: str) -> list[bool]:
    """For each line whether it stands, together with a neighbour, in the prompt as well."""
    mask = [False] * len(lines)
    if not prompt:
        return mask
    asked = set(pairwise(line for _, line in _telling(split_lines(prompt))))
    for (upper, above), (lower, below) in pairwise(_telling(lines)):
        if (above, below) in asked:
            mask[upper] |= len(below) >= _ECHO_LENGTH
            mask[lower] |= len(above) >= _ECHO_LENGTH
    return mask


def _telling(lines: list[str]) -> list[tuple[int, str]]:
    """The numbered lines with words on them: blank lines and fences come and go when text is quoted."""
    bare = ((number, line.strip()) for number, line in enumerate(lines))
    return [(number, line) for number, line in bare if line and not line.startswith(("```", "~~~"))]

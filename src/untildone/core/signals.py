"""Whether a completion signal is said, or only quoted, denied, promised for later or echoed from the prompt.

Stdlib only: the Stop hook runs this file under `python3 -I -S`. Most messages are judged without `re`, which takes as
long to load as Python takes to start.
"""

from itertools import pairwise

from .markdown import WRAPPING, fenced, split_lines

_TAG = r"<([A-Za-z][\w-]{0,30})>([^<>]*)</([A-Za-z][\w-]{0,30})>"
_SHOWING_TAGS = frozenset({"code", "pre", "q", "quote", "blockquote", "example", "sample", "s", "del"})
_SHOWING_LINES = frozenset(f"<{tag}>" for tag in _SHOWING_TAGS)
_NEGATES = r"\b(?:not|never|cannot|until|unless)\b|n['\u2019]t\b"
_DEFERS = r"\b(?:will|would|should|when|once|if)\b|['\u2019]ll\b"
_UTTERS = (
    r"\b(?:output|say|saying|print|printing|emit|write|writing|declare|send|claim|give|include|use|signal|phrase)\b"
)
_BULLETS = ("-", "*", "+", "•")
_CHANGES_MEANING = "\"'<>()[]{}?=|/\\\u2018\u2019\u201c\u201d\u201e\u00ab\u00bb\u2026❌✗✘🚫⛔☐⬜⏳"
"""What quotes, asks, leaves open or denies instead of setting off."""
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
    before = "" if before.strip(WRAPPING).rstrip(".)").isdigit() else before  # the number of an item in a list
    tag = _tag_around(signal, line)
    if tag is not None:
        before, after = line[: tag[0]], line[tag[1] :]
        if before.rstrip(WRAPPING).endswith((".", "!")) and not _has(_NEGATES, before):
            before = ""
    if not (_decorates(before) and _decorates(after)):
        return False
    if before.strip() in _BULLETS and _is_item(lines, number + 1):
        return False  # one of several things in a list, and not the last
    return not _belongs_to_a_sentence(lines, number)


def _decorates(text: str) -> bool:
    """Whether text beside the signal only sets it off: a bullet, a heading, emphasis, a full stop, an emoji."""
    return not any(char.isalnum() or char in _CHANGES_MEANING for char in text) and not any(
        pair in text for pair in ("~~", "..")
    )


def _is_item(lines: list[str], number: int) -> bool:
    return number < len(lines) and lines[number].lstrip()[:1] in _BULLETS and lines[number].lstrip()[1:2] == " "


def _tag_around(signal: str, line: str) -> tuple[int, int] | None:
    """Where a tag with nothing but the signal in it begins and ends, unless it is one that shows things."""
    if "</" not in line:
        return None
    import re

    tags = (tag for tag in re.finditer(_TAG, line) if tag[2].strip() == signal and tag[1] == tag[3])
    tag = next(tags, None)
    return None if tag is None or tag[1].lower() in _SHOWING_TAGS else tag.span()


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
    return unfinished and _puts_off(touching) and _has(_UTTERS, touching)


def _puts_off(line: str) -> bool:
    return _has(_NEGATES, line) or _has(_DEFERS, line)


def _has(words: str, line: str) -> bool:
    import re

    return re.search(words, line, re.IGNORECASE) is not None


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

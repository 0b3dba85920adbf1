"""Options inside free text, as people type them after a slash command. The text around them stays as it was typed."""

from untildone.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FLAG = "flag"
ONE = "one"
MANY = "many"
"""What an option takes: nothing, one value (the last one counts), or one value each time."""

_QUOTES = "\"'"


class Token:
    """One word, or one quoted text, and where it stood."""

    __slots__ = ("end", "quoted", "start", "text")

    def __init__(self, text: str, start: int, end: int, *, quoted: bool) -> None:
        self.text = text
        self.start = start
        self.end = end
        self.quoted = quoted


class Typed:
    """What was typed: the options by name, and the text without them."""

    __slots__ = ("options", "text")

    def __init__(self, options: "Mapping[str, list[str]]", text: str) -> None:
        self.options = options
        self.text = text

    def has(self, name: str) -> bool:
        """Whether this option was given."""
        return name in self.options

    def last(self, name: str) -> str | None:
        """The value of an option; the last one where it was given several times."""
        return self.options[name][-1] if name in self.options else None

    def all(self, name: str) -> list[str]:
        """Every value of an option, in order."""
        return list(self.options.get(name, ()))


def read_options(typed: str, known: "Mapping[str, str]", aliases: "Mapping[str, str]" = {}) -> Typed:  # noqa: B006 never changed
    """Take the known options out of a text. UsageError for an unknown one, or for one without its value.

    A quote is a quote only around a whole word, so that an apostrophe in a sentence is just that. What stands after
    a lone `--` is text.
    """
    options: dict[str, list[str]] = {}
    kept: list[str] = []
    at = 0
    tokens = _tokens(typed)
    for token in tokens:
        if token.quoted or not token.text.startswith("--"):
            continue
        kept.append(typed[at : token.start])
        at = token.end
        if token.text == "--":
            break
        written, equals, value = token.text[2:].partition("=")
        name = aliases.get(written, written)
        if name not in known:
            raise UsageError(_unknown(written, known))
        if known[name] == FLAG:
            if equals:
                raise UsageError(f"--{written} takes no value")
            options[name] = [""]
            continue
        if not equals:
            following = next(tokens, None)
            if following is None or (following.text.startswith("--") and not following.quoted):
                raise UsageError(f"--{written} needs a value")
            value, at = following.text, following.end
        options.setdefault(name, []).append(value)
    kept.append(typed[at:])
    return Typed(options, _joined(kept))


def _joined(pieces: list[str]) -> str:
    """What is left, as one text; the quotes around all of it are not part of it."""
    text = " ".join(piece.strip() for piece in pieces if piece.strip())
    tokens = list(_tokens(text))
    return tokens[0].text.strip() if len(tokens) == 1 else text


def _tokens(text: str) -> "Iterator[Token]":
    at, end = 0, len(text)
    while at < end:
        if text[at].isspace():
            at += 1
            continue
        start = at
        while at < end and not text[at].isspace():
            if text[at] in _QUOTES and (at == start or _opens_value(text, start, at)):
                closed = _closing(text, at)
                if closed is not None:
                    yield Token(
                        text[start:at] + _unescaped(text[at + 1 : closed]), start, closed + 1, quoted=at == start
                    )
                    at = start = closed + 1
                    break
            at += 1
        else:
            yield Token(text[start:at], start, at, quoted=False)


def _opens_value(text: str, start: int, at: int) -> bool:
    return text.startswith("--", start) and text[at - 1] == "="


def _closing(text: str, at: int) -> int | None:
    """The quote that ends what one begins; it must end a word."""
    quote = text[at]
    found = text.find(quote, at + 1)
    while found != -1:
        escaped = quote == '"' and text[found - 1] == "\\"
        if not escaped and (found + 1 == len(text) or text[found + 1].isspace()):
            return found
        found = text.find(quote, found + 1)
    return None


def _unescaped(text: str) -> str:
    return text.replace('\\"', '"')


def _unknown(written: str, known: "Mapping[str, str]") -> str:
    import difflib

    near = difflib.get_close_matches(written, known, n=1)
    hint = f"did you mean --{near[0]}?" if near else f"there are {', '.join(f'--{name}' for name in known)}"
    return f"there is no option --{written[:40]}: {hint} (text with dashes goes into quotes)"

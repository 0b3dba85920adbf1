"""Whether `find` would come to a place of ours: by where it begins, and by what it looks for."""

import os

from untildone.core.shell_walk import lies_above, lies_in, normal, part_matches

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from untildone.core.shell_line import Simple
    from untildone.core.shell_walk import Walk

_NAMES = ("-name", "-iname")
_WHOLE = ("-path", "-ipath", "-wholename", "-iwholename")
_MOST = 500


def finds(command: "Simple", walk: "Walk", place: str) -> bool:
    """Whether what it does reaches a place, or something in it."""
    words = command.words[1:]
    end = next((at for at, word in enumerate(words) if word[:1] in {"-", "(", "!"}), len(words))
    for start in words[:end] or ["."]:
        for path in walk.paths(start, command.scope):
            if lies_in(path, place) or (lies_above(path, place) and _is_looked_for(words[end:], start, path, place)):
                return True
    return False


def _is_looked_for(words: "list[str]", start: str, path: str, place: str) -> bool:
    if "-empty" in words:
        return False
    names, wholes = _values(words, _NAMES), _values(words, _WHOLE)
    if not names and not wholes:
        return os.path.lexists(place)
    inside = list(_inside(place))
    if any(part_matches(name, os.path.basename(one)) for name in names for one in inside):
        return True
    # As `find` shows them; the first letter is kept from being a dot, which patterns of the shell do not match.
    shown = [f" {start.rstrip('/')}{one[len(path.rstrip('/')) :]}" for one in inside]
    return any(part_matches(f" {whole}", one) for whole in wholes for one in shown)


def _values(words: "list[str]", options: "tuple[str, ...]") -> "list[str]":
    """What is looked for; what is to be left out is not."""
    told = zip(["", *words], words, words[1:], strict=False)
    return [value for before, name, value in told if name in options and before not in {"!", "-not"}]


def _inside(place: str) -> "Iterator[str]":
    yield place
    found = 0
    for folder, folders, files in os.walk(place):
        for name in (*folders, *files):
            yield normal(f"{folder}/{name}")
            found += 1
            if found >= _MOST:
                return

"""Where a line of shell goes: from folder to folder, with what its variables hold and what its patterns match.

Not a shell: where something cannot be known, the word stays as it is. Stdlib only, and nothing of it: the hooks run
this file under `python3 -I -S`.
"""

from .shell_line import Simple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_LONGEST = 10_000
_MOST_WAYS = 64
_SETTERS = frozenset({"export", "declare", "typeset", "local", "readonly"})
_WILD = "*?["


class Walk:
    """One line, followed from its first command to its last."""

    def __init__(self, folder: str, env: "Mapping[str, str]") -> None:
        self._folders: dict[tuple[int, ...], str] = {(): normal(folder)}
        self._env = env
        self._set: dict[str, str] = {}
        self._left: list[str] = []

    def folder(self, scope: tuple[int, ...]) -> str:
        """The folder that commands there run in."""
        while scope not in self._folders:
            scope = scope[:-1]
        return self._folders[scope]

    def step(self, command: Simple) -> Simple:
        """The next command, with the values of its variables in place; where it leads is remembered."""
        for name, value in command.sets:
            self._set[name] = self._expanded(value, command.scope)
        known = Simple()
        known.words = [self._expanded(word, command.scope) for word in command.words]
        known.writes = [self._expanded(word, command.scope) for word in command.writes]
        known.fed, known.piped, known.more = command.fed, command.piped, command.more
        known.at, known.scope = command.at, command.scope
        if known.program in _SETTERS:
            for word in known.words[1:]:
                name, _, value = word.partition("=")
                self._set[name] = value
        self._go(known)
        return known

    def paths(self, word: str, scope: tuple[int, ...]) -> list[str]:
        """A word as absolute paths, patterns left in them."""
        return [normal(one if one.startswith("/") else f"{self.folder(scope)}/{one}") for one in ways(word)]

    def _go(self, command: Simple) -> None:
        here, there = self.folder(command.scope), ""
        operands = command.operands()
        if command.program in {"cd", "pushd"}:
            there = operands[0] if operands else self._value("HOME", command.scope) or here
            there = (self._left[-1] if self._left else here) if there == "-" else there
            self._left.append(here)
        elif command.program == "popd" and self._left:
            there = self._left.pop()
        if there:
            self._folders[command.scope] = self.paths(there, command.scope)[0]

    def _expanded(self, word: str, scope: tuple[int, ...]) -> str:
        if word == "~" or word.startswith("~/"):
            word = (self._value("HOME", scope) or "~") + word[1:]
        done, at = "", 0
        while (sign := word.find("$", at)) >= 0 and len(done) < _LONGEST:
            name, end, otherwise = _variable(word, sign)
            value = self._value(name, scope) or (self._expanded(otherwise, scope) if otherwise else word[sign:end])
            done += word[at:sign] + value
            at = end
        return (done + word[at:])[:_LONGEST]

    def _value(self, name: str, scope: tuple[int, ...]) -> str:
        if name == "PWD":
            return self.folder(scope)
        return self._set.get(name) or self._env.get(name, "")


def _variable(word: str, sign: int) -> tuple[str, int, str]:
    """The name of the variable that begins there, where it ends, and what stands for it if it has no value."""
    braced = word[sign + 1 : sign + 2] == "{"
    begin = end = sign + 1 + braced
    while end < len(word) and (word[end].isalnum() or word[end] == "_"):
        end += 1
    name = word[begin:end]
    if not braced:
        return name, end, ""
    closed = word.find("}", end)
    closed = len(word) if closed < 0 else closed
    return name, closed + 1, word[end:closed].lstrip(":-=+?") if word[end : end + 1] in {":", "-", "="} else ""


def normal(path: str) -> str:
    """An absolute path without `.`, `..` and doubled slashes."""
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            parts = parts[:-1]
        elif part not in {"", "."}:
            parts.append(part)
    return "/" + "/".join(parts)


def ways(word: str) -> list[str]:
    """A word for each alternative of its braces."""
    found, done = [word], list[str]()
    while found and len(done) + len(found) < _MOST_WAYS:
        one = found.pop()
        close = one.find("}")
        start = one.rfind("{", 0, close) if close >= 0 else -1
        if start < 0 or "," not in one[start:close] or one[start - 1 : start] == "$":
            done.append(one)
        else:
            found += [one[:start] + way + one[close + 1 :] for way in one[start + 1 : close].split(",")]
    return done + found


def is_wild(path: str) -> bool:
    """Whether a path is a pattern."""
    return any(sign in path for sign in _WILD)


def lies_in(path: str, place: str) -> bool:
    """Whether a path, or anything its patterns match, is that place or lies in it."""
    parts, wanted = path.split("/"), place.split("/")
    return len(parts) >= len(wanted) and all(map(part_matches, parts, wanted))


def lies_above(path: str, place: str) -> bool:
    """Whether that place lies in it, or in anything its patterns match."""
    parts, wanted = path.rstrip("/").split("/"), place.split("/")
    return len(parts) < len(wanted) and all(map(part_matches, parts, wanted))


def part_matches(pattern: str, name: str) -> bool:
    """Whether a pattern of the shell is a name, in any case: some disks do not tell them apart.

    A set of characters is taken for any one.
    """
    pattern, name = pattern.casefold(), name.casefold()
    if not is_wild(pattern):
        return pattern == name
    if name.startswith(".") and pattern[:1] in _WILD:
        return False
    signs = _signs(pattern)
    at = position = 0
    star, kept = -1, 0
    while position < len(name):
        if at < len(signs) and signs[at] != "*" and signs[at] in {"?", name[position]}:
            at, position = at + 1, position + 1
        elif at < len(signs) and signs[at] == "*":
            star, kept, at = at, position, at + 1
        elif star >= 0:
            at, kept = star + 1, kept + 1
            position = kept
        else:
            return False
    return all(sign == "*" for sign in signs[at:])


def _signs(pattern: str) -> str:
    """The pattern with each set of characters as one `?`."""
    done, at = "", 0
    while (start := pattern.find("[", at)) >= 0:
        end = pattern.find("]", start + 2)
        if end < 0:
            break
        done += pattern[at:start] + "?"
        at = end + 1
    return done + pattern[at:]

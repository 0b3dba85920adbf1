"""Where secrets lie about: the environment of this process, and the `.env` files of the folder."""

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from urllib.parse import unquote, urlsplit

from untildone.core.printable import one_line
from untildone.core.secrets import is_random
from untildone.uplink.masking import SHORTEST

_TELLING = re.compile(
    r"(?i)key|token|secret|passw|passphrase|pwd|credential|auth(?!or)|cookie|dsn|private|_pass$|^pass$"
)
_PLACE = re.compile(
    r"(?i)(?:old)?pwd|init_cwd|x?authority|.*_(?:dir|path|file|sock|socket|host|port|home|domain|email|date|proxy|layout"
    r"|method|backend|registry|realm|region|ttl|askpass)|keyboard.*"
)
"""Names of what lies about in the open: a folder that is taken for a secret makes every path unreadable."""
_PASSWORD = re.compile(
    r"(?i)(?:passw(?:or)?d|passphrase|(?<!old)(?<=.)pwd|(?:^|_)pass|secret|token|api_?key|(?:^|_)pin)$"
)
"""Names of what is secret even if it is a word."""
_COMMON = frozenset({
    "postgres", "postgresql", "mariadb", "mongodb", "rabbitmq", "administrator", "username", "password", "passwd",
    "secret", "changeme", "default", "example", "sample", "testing", "development", "production", "staging",
    "localhost", "unknown", "public", "private", "string", "optional", "required", "disabled", "enabled", "bearer",
})  # fmt: skip
"""Words that are in every text: to hide them would hide nothing and spoil much."""
_PLAIN_WORD = re.compile(r"[A-Za-z]{1,10}")
_SWITCH = re.compile(r"(?i)true|false|yes|no|on|off|none|null|enabled|disabled|\d{1,7}|\d+(?:\.\d+)+")
_PATH = re.compile(r"(?:[A-Za-z]:|[~.]{0,2})(?:[/\\][\w.@+ -]*)+")
_EXAMPLE = re.compile(r"(?i)example|sample|template|dist$|default")
_LINE = re.compile(r"\s*(?:export\s+)?([A-Za-z_][\w.-]*)\s*[=:]\s*(.*)")
_SHORT = 8
"""Below this only a mixture of letters and other characters is taken for a secret."""
_RANDOM_LEAST = 12

MOST_FILES = 100
MOST_BYTES = 4 << 20
"""Of all files together."""
MOST_VALUES = 10_000
MOST_FOLDERS = 200
LOOK_EVERY = 2.0
"""Seconds between two looks at the folder: an agent can write such a file at any time."""


def secrets_of(pairs: Iterable[tuple[str, str]], *, by_look: bool = False) -> dict[str, str]:
    """Names by value of those variables that hold a secret: by their names and, if wanted, by how the value looks.

    An environment is full of ids that look drawn by a machine and are no secrets; an `.env` file is not.
    """
    found: dict[str, str] = {}
    for name, raw in pairs:
        value = raw.strip()
        # Words with blanks between them are somebody's sentence: the goal of a worker stands in its environment, too.
        is_one_word = len(value.split()) == 1 and "://" not in value
        looks_like_one = by_look and len(value) >= _RANDOM_LEAST and is_one_word and is_random(value)
        if (looks_like_one or _is_named_so(name, value)) and not _PLACE.fullmatch(name):
            found.setdefault(value, name)
        if password := _password(value):
            found.setdefault(password, name)
    return found


def _is_named_so(name: str, value: str) -> bool:
    is_telling = _TELLING.search(name) is not None and is_secret(value)
    return is_telling or (_PASSWORD.search(name) is not None and is_password(value))


def is_secret(value: str) -> bool:
    """Whether a value under a telling name is worth hiding: not a switch, a number, a path or a plain word."""
    if len(value) < SHORTEST or _SWITCH.fullmatch(value) or _PLAIN_WORD.fullmatch(value):
        return False
    if len(value) < _SHORT and (value.isalpha() or value.isdigit()):
        return False
    if _PATH.fullmatch(value) and not is_random(value):
        return False
    return "://" not in value or value.startswith("ud_")


def is_password(value: str) -> bool:
    """Whether a value is worth hiding where nothing but a secret can stand, though it be a word or a number."""
    return len(value) >= SHORTEST and value.isalnum() and value.lower() not in _COMMON and not _SWITCH.fullmatch(value)


def _password(value: str) -> str:
    """The password in an address, if there is one."""
    if "://" not in value:
        return ""
    try:
        password = unquote(urlsplit(value).password or "")
    except ValueError:
        return ""
    return password if len(password) >= SHORTEST and not _PLAIN_WORD.fullmatch(password) else ""


def env_pairs(text: str) -> Iterator[tuple[str, str]]:
    """Names and values of an `.env` file; quoted values may go over several lines."""
    lines = iter(text.splitlines())
    for line in lines:
        found = _LINE.match(line)
        if found is None or line.lstrip().startswith("#"):
            continue
        name, value = found[1], found[2].strip()
        mark = value[:1]
        is_quoted = mark != "" and mark in "\"'`"
        yield name, _quoted(value[1:], mark, lines) if is_quoted else value.split(" #", 1)[0].strip()


def _quoted(value: str, mark: str, lines: Iterator[str]) -> str:
    parts = [value]
    while mark not in parts[-1].replace("\\" + mark, ""):
        following = next(lines, None)
        if following is None:
            break
        parts.append(following)
    whole = "\n".join(parts)
    ends = re.search(rf"(?<!\\){re.escape(mark)}", whole)
    whole = whole[: ends.start()] if ends else whole
    return whole.replace("\\" + mark, mark) if mark == '"' else whole


class KnownSecrets:
    """The secrets of an environment and of the `.env` files of a folder, as they are now."""

    def __init__(
        self,
        env: Mapping[str, str],
        folder: str,
        *,
        also: Iterable[str] = (),
        now: Callable[[], float],
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`also`: values that are secret whatever they are called. `tell`: told once when there are too many."""
        self._fixed = secrets_of(env.items()) | {value: "token" for value in also if len(value) >= SHORTEST}
        self._folder = folder
        self._now = now
        self._tell: Callable[[str], None] | None = tell
        self._next_look = 0.0
        self._state: tuple[object, ...] | None = None
        self._all: Mapping[str, str] = self._fixed

    def __call__(self) -> Mapping[str, str]:
        """Names by value; the very same mapping while nothing changed."""
        if self._now() >= self._next_look:
            self._next_look = self._now() + LOOK_EVERY
            places = list(islice(_places(self._folder), MOST_FOLDERS + 1))
            files = list(islice(_env_files(places[:MOST_FOLDERS]), MOST_FILES + 1))
            state = tuple((path, found.st_mtime_ns, found.st_size, found.st_ino) for path, found in files)
            if state != self._state:
                self._state = state
                self._read(files[:MOST_FILES], is_cut=len(places) > MOST_FOLDERS or len(files) > MOST_FILES)
        return self._all

    def _read(self, files: Sequence[tuple[str, os.stat_result]], *, is_cut: bool) -> None:
        texts: list[str] = []
        left = MOST_BYTES
        # The small ones first: a large one must not keep them from being read.
        for path, found in sorted(files, key=lambda file: file[1].st_size):
            texts.append(_read(path, left))
            is_cut = is_cut or found.st_size > left
            left = max(0, left - found.st_size)
        # What was a secret stays one: an agent that has read a file may speak of it after it is gone.
        new = {value: name for value, name in _likeliest(texts) if value not in self._all}
        room = max(0, len(self._fixed) + MOST_VALUES - len(self._all))
        if new and room:
            self._all = {**dict(islice(new.items(), room)), **self._all}
        if (is_cut or len(new) > room) and self._tell is not None:
            tell, self._tell = self._tell, None
            tell(
                f"not every secret of the .env files in {one_line(self._folder, 200)} is looked for in what is sent: "
                f"there are more than {MOST_VALUES:,} values, {MOST_FILES} files, {MOST_FOLDERS} folders or "
                f"{MOST_BYTES >> 20} MB of them"
            )


def _likeliest(texts: Iterable[str]) -> list[tuple[str, str]]:
    """The secrets of files: those first that are named so, and the first ones of each file before others of any."""
    found = [
        (_is_named_so(name, value), at, value, name)
        for text in texts
        for at, (value, name) in enumerate(secrets_of(env_pairs(text), by_look=True).items())
    ]
    found.sort(key=lambda one: (not one[0], one[1]))
    return [(value, name) for _, _, value, name in found]


def _env_files(places: Iterable[str]) -> Iterator[tuple[str, os.stat_result]]:
    for place in places:
        with suppress(OSError), os.scandir(place) as entries:
            for entry in entries:
                if _is_env(entry.name):
                    with suppress(OSError):
                        found = entry.stat()
                        if stat.S_ISREG(found.st_mode):
                            yield entry.path, found


def _is_env(name: str) -> bool:
    is_one = name == ".env" or name.startswith(".env.") or name.endswith(".env")
    return is_one and not _EXAMPLE.search(name)


def _places(folder: str) -> Iterator[str]:
    yield folder
    with suppress(OSError), os.scandir(folder) as entries:
        yield from (e.path for e in entries if not e.name.startswith(".") and e.is_dir(follow_symlinks=False))


def _read(path: str, most: int) -> str:
    """The first part of a file; what is no plain file must not hold us up."""
    with suppress(OSError):
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            if stat.S_ISREG(os.fstat(handle).st_mode):
                return file.read(most).decode("utf-8", "replace")
    return ""

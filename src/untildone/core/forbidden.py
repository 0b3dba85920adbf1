"""Commands that destroy what nobody can bring back: not for an agent that works alone. Rules in one table.

A guard against accidents, not against malice. Stdlib only, and nothing of it: the hooks run this file under
`python3 -I -S`.
"""

from .shell_line import SHELLS, Simple, simple_commands

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Rule = Callable[[Simple, "Places"], str]

_DISKS = ("sd", "hd", "vd", "xvd", "nvme", "mmcblk", "disk", "rdisk", "mapper/", "dm-", "md", "loop")
_DOWNLOADERS = ("curl", "wget", "fetch")
_INTERPRETERS = SHELLS | {"python", "python3", "perl", "ruby", "node", "php", "source", "."}
_DATABASES = ("psql", "mysql", "mariadb", "mongosh", "mongo", "sqlcmd", "clickhouse-client", "cockroach")
_FILTERS = (
    "-name",
    "-iname",
    "-path",
    "-ipath",
    "-wholename",
    "-regex",
    "-iregex",
    "-empty",
    "-newer",
    "-mtime",
    "-size",
)
_BY_WORDS: "Sequence[tuple[str, str]]" = (
    ("shutdown", "it switches the machine off"),
    ("reboot", "it restarts the machine"),
    ("poweroff", "it switches the machine off"),
    ("halt", "it switches the machine off"),
    ("systemctl poweroff", "it switches the machine off"),
    ("systemctl reboot", "it restarts the machine"),
    ("wipefs", "it wipes a disk"),
    ("fdisk /dev/", "it changes a disk's partitions"),
    ("sfdisk", "it changes a disk's partitions"),
    ("parted /dev/", "it changes a disk's partitions"),
    ("crontab -r", "it removes every scheduled job"),
    ("userdel", "it removes a user"),
    ("killall5", "it ends every process"),
    ("kill -9 -1", "it ends every process"),
    ("kill -KILL -1", "it ends every process"),
    ("git stash clear", "it throws stashed work away"),
    ("git stash drop", "it throws stashed work away"),
    ("git reflog expire", "it removes the only way back to lost commits"),
    ("git filter-branch", "it rewrites the whole history"),
    ("git filter-repo", "it rewrites the whole history"),
    ("dropdb", "it drops a database"),
    ("redis-cli flushall", "it empties a database"),
    ("redis-cli flushdb", "it empties a database"),
    ("terraform destroy", "it destroys what is deployed"),
    ("pulumi destroy", "it destroys what is deployed"),
    ("kubectl delete namespace", "it destroys what is deployed"),
    ("kubectl delete ns", "it destroys what is deployed"),
    ("aws s3 rb", "it removes what is stored elsewhere"),
    ("gh repo delete", "it removes a repository"),
    ("docker volume prune", "it removes the data of containers"),
)
"""Commands that are known by their first words."""


class Places:
    """Where a command would run, and what must survive it."""

    __slots__ = ("cwd", "home", "project")

    def __init__(self, project: str, home: str, cwd: str) -> None:
        self.project = project
        self.home = home
        self.cwd = cwd or project

    def path(self, word: str) -> str:
        """A word as an absolute path, without `.` and `..`; a glob at its end stands for everything in the folder."""
        start, slash, rest = word.partition("/")
        known = {"~": self.home, "HOME": self.home, "PWD": self.cwd, "CLAUDE_PROJECT_DIR": self.project}
        if start[:1] in {"~", "$"}:
            word = known.get(start.strip("${}"), start) + slash + rest
        bare = word.removesuffix("*").removesuffix(".") if word.endswith(("/*", "/.*")) or word in {"*", ".*"} else word
        parts: list[str] = []
        for part in (bare if bare.startswith("/") else f"{self.cwd}/{bare}").split("/"):
            if part == "..":
                parts = parts[:-1]
            elif part not in {"", "."}:
                parts.append(part)
        return "/" + "/".join(parts)


def why_forbidden(command: str, places: Places, deny: "Sequence[str]" = (), allow: "Sequence[str]" = ()) -> str:
    """Why an agent may not run this, in words; nothing where it may.

    `deny` and `allow` are the user's own patterns: `*` stands for anything, and what they allow is allowed.
    """
    if _is_bomb(command):
        return "it starts processes without end"
    here = Places(places.project, places.home, places.cwd)
    commands = simple_commands(command)
    fetched = False
    for simple in commands:
        said = " ".join(simple.words)
        if not any(matches(said, pattern) for pattern in allow):
            if any(matches(said, pattern) for pattern in deny):
                return "the user's settings forbid it"
            reason = next(filter(None, (rule(simple, here) for rule in _RULES)), "") or _fetched(simple, fetched)
            if reason:
                return reason
        if simple.program == "cd" and simple.operands():
            here.cwd = here.path(simple.operands()[0])
        fetched = simple.program in _DOWNLOADERS or (fetched and simple.piped)
    return ""


def matches(said: str, pattern: str) -> bool:
    """Whether a command is what a pattern describes: each `*` is any text, the rest is literal."""
    first, *rest = pattern.split("*")
    if not rest:
        return said == pattern
    if not said.startswith(first):
        return False
    at = len(first)
    for part in rest[:-1]:
        found = said.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return said.endswith(rest[-1]) and len(said) - len(rest[-1]) >= at


# --- the rules: each says why, or nothing ------------------------------------------------------------------------


def _removes(command: Simple, places: Places) -> str:
    if command.program == "rm" and command.has("rR", "--recursive"):
        return next(filter(None, (_precious(word, places) for word in command.operands())), "")
    if command.program == "find" and _deletes_found(command):
        words = [word for word in command.words[1:] if word not in {"-H", "-L", "-P"}]
        tests = next((number for number, word in enumerate(words) if word[:1] in "-(!"), len(words))
        return next(filter(None, (_precious(word, places) for word in words[:tests] or ["."])), "")
    return ""


def _deletes_found(command: Simple) -> bool:
    deletes = "-delete" in command.words or ("rm" in command.words and {"-exec", "-execdir"} & set(command.words))
    return bool(deletes) and not any(word in _FILTERS for word in command.words)


def _precious(word: str, places: Places) -> str:
    path = places.path(word)
    if path.count("/") == 1:
        return f"it removes {path}"
    if _is_in(places.home, path):
        return "it removes the home folder"
    if _is_in(places.project, path):
        return "it removes the whole project"
    above, _, name = path.rpartition("/")
    holds = _is_in(places.project, above) or _is_in(above, places.project)
    return "it removes the repository's history" if name == ".git" and holds else ""


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


def _opens_up(command: Simple, places: Places) -> str:
    if command.program not in {"chmod", "chown", "chgrp"} or not command.has("R", "--recursive"):
        return ""
    paths = map(places.path, command.operands()[1:])
    is_wide = any(path.count("/") == 1 or _is_in(places.home, path) for path in paths)
    return "it changes who may use the whole system or home folder" if is_wide else ""


def _overwrites_disk(command: Simple, _: Places) -> str:
    outputs = [*command.writes, *(word[3:] for word in command.words if word.startswith("of="))]
    if command.program in {"shred", "mv", "cp"}:
        outputs += command.operands()
    if any(_is_disk(path) for path in outputs):
        return "it overwrites a disk"
    return "it formats a disk" if command.program.partition(".")[0] == "mkfs" else ""


def _is_disk(path: str) -> bool:
    return path.startswith("/dev/") and path[5:].startswith(_DISKS)


def _pushes_over(command: Simple, _: Places) -> str:
    words = _git(command)
    if words[:1] != ["push"]:
        return ""
    forced = any(word in {"--force", "--mirror", "--delete", "--prune"} for word in words)
    short = any(word[:1] == "-" and word[:2] != "--" and ("f" in word or "d" in word) for word in words)
    refs = [word for word in words[1:] if not word.startswith("-")][1:]
    over = any(ref.startswith(("+", ":")) for ref in refs)
    return "it overwrites or removes what others have on the remote" if forced or short or over else ""


def _discards(command: Simple, _: Places) -> str:
    words = _git(command)
    verb, rest = (words[0], words[1:]) if words else ("", [])
    flags = "".join(word for word in rest if word[:1] == "-" and word[:2] != "--")
    if verb == "clean" and ("f" in flags or "--force" in rest) and "n" not in flags and "--dry-run" not in rest:
        ignored = "x" in flags or "X" in flags
        return (
            "it removes ignored files: settings, secrets, the loop's own state" if ignored else _lost("untracked files")
        )
    if verb == "stash" and ("--all" in rest or "a" in flags):
        return "it takes ignored files away, the loop's own state among them"
    whole = {".", ":/", "*", "./"}
    over = (
        (verb == "reset" and "--hard" in rest)
        or (verb in {"checkout", "restore"} and bool(whole & set(rest)) and "--staged" not in rest)
        or (verb in {"checkout", "switch"} and ("--force" in rest or "--discard-changes" in rest or "f" in flags))
    )
    return _lost("changes") if over else ""


def _lost(what: str) -> str:
    # Whether there are any, only git could say, which runs what the repository's own settings tell it to.
    return f"it throws away {what} that may be committed nowhere"


def _git(command: Simple) -> list[str]:
    """The words after `git` and the options it takes before its verb."""
    if command.program != "git":
        return []
    words = command.words[1:]
    while words and words[0].startswith("-"):
        words = words[2:] if words[0] in {"-C", "-c", "--git-dir", "--work-tree", "--namespace"} else words[1:]
    return words


def _drops(command: Simple, _: Places) -> str:
    if command.program not in _DATABASES and command.program != "sqlite3":
        return ""
    said = " ".join((*command.words, command.fed)).lower()
    hit = any(words in " ".join(said.split()) for words in ("drop database", "drop schema", "dropdatabase("))
    return "it drops a database" if hit else ""


def _by_words(command: Simple, _: Places) -> str:
    said = " ".join((command.program, *command.words[1:]))
    if command.program == "kubectl" and "delete" in command.words and "--all" in command.words:
        return "it destroys what is deployed"
    if command.words[:3] == ["aws", "s3", "rm"] and "--recursive" in command.words:
        return "it removes what is stored elsewhere"
    for known, why in _BY_WORDS:
        if said == known or said.startswith(known if known.endswith("/") else f"{known} "):
            return why
    return ""


def _fetched(command: Simple, fetched: bool) -> str:
    """A program from the network that nobody looked at."""
    runs = command.program.rstrip("0123456789.") in _INTERPRETERS or command.program in _INTERPRETERS
    if runs and command.piped and fetched and not any(word in {"-c", "-m"} for word in command.words):
        return "it runs a program from the network without a look at it"
    inside = any(
        f"{mark}{name} " in word for word in command.words for mark in ("$(", "<(", "`") for name in _DOWNLOADERS
    )
    if inside and (command.program in {"eval", "source", "."} or command.program in SHELLS):
        return "it runs a program from the network without a look at it"
    return ""


def _is_bomb(command: str) -> bool:
    bare = "".join(command.split())
    at = bare.find("(){")
    if at < 1:
        return False
    name = bare[:at].rpartition(";")[2].removeprefix("function")
    return bool(name) and f"{name}|{name}&" in bare[at:]


_RULES: "tuple[Rule, ...]" = (
    _removes,
    _opens_up,
    _overwrites_disk,
    _pushes_over,
    _discards,
    _drops,
    _by_words,
)

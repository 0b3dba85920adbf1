"""What a program does to what it is given, as far as its name tells: look, change, or give the operator's commands."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from untildone.core.shell_line import Simple

_READERS = frozenset(
    {
        *("cat", "head", "tail", "less", "more", "bat", "nl", "tac", "wc", "file", "stat", "ls", "tree", "du", "echo"),
        *("grep", "egrep", "fgrep", "rg", "ag", "diff", "cmp", "comm", "cut", "uniq", "tr", "jq", "yq", "xxd", "od"),
        *("test", "[", "[[", "printf", "readlink", "realpath", "basename", "dirname", "cd", "pushd", "strings"),
        *("md5sum", "sha1sum", "sha256sum", "cksum", "hexdump", "true", "false", "pwd", "untildone", "popd", ":"),
        *("export", "declare", "local", "sleep", "which", "type", "exit", "wait", "read"),
    }
)
_HARMLESS_GIT = frozenset(
    {"status", "diff", "log", "show", "ls-files", "check-ignore", "blame", "grep", "add", "commit"}
)
_PROGRAMS = ("python", "perl", "ruby", "node", "deno", "bun", "php", "lua", "osascript")
"""They run what stands on their command line, or what they are fed."""
_EDITORS = frozenset({"ed", "ex", "vi", "vim", "nvim", "sqlite3"})

_VIEWS = frozenset(
    {
        *("readonly", "header", "noheader", "csv", "json", "line", "list", "column", "table", "box", "markdown"),
        *("tabs", "html", "quote", "ascii", "bail", "batch", "safe"),
    }
)
"""Options of sqlite3 that say how an answer looks."""
_VALUED_VIEWS = frozenset({"-separator", "-nullvalue", "--separator", "--nullvalue"})
_QUERIES = ("select ", "select\n", "select(", "select*", "pragma table_info", ".tables", ".schema", ".headers", ".mode")
_NO_QUERY = ("writefile", "edit(", "edit (", "load_extension", "$", "`")
"""What does more than answer, or hides what it is."""

_SEES = frozenset(
    {
        "task",
        "ask",
        "status",
        "ls",
        "log",
        "brief",
        "replay",
        "doctor",
        "config",
        "completion",
        "--help",
        "-h",
        "--version",
    }
)
_SEES_OF = {"loop": frozenset({"status", "history", "templates"}), "plugin": frozenset({"status"})}
_OPERATES = frozenset({"run", "stop", "resume", "pause", "reset", "message", "limits", "land", "rewind", "fork"})
_LAUNCHERS = frozenset({"untildone", "uv", "uvx", "pipx", "sh", "bash", "claude"})
_BEFORE_NAME = 6
_COMMANDS = tuple(f"/untildone:{name}" for name in ("cancel", "loop", "implement", "sprint"))
_TALKERS = frozenset({"gh", "glab", "curl", "git"})
"""They are given texts about anything, and run none of it."""
_REMOVERS = frozenset({"uninstall", "remove", "disable"})
_APART = str.maketrans(dict.fromkeys("\"'`(),[]{};&|=<>\n\t", " "))


def is_program(name: str) -> bool:
    """Whether what this is given on its command line can be a program."""
    return name.startswith(_PROGRAMS) or name in _EDITORS


def changed_words(command: "Simple") -> "list[str]":
    """The words through which a command may change something: none of a program that only reads."""
    program, words = command.program, _without_exclusions(command.words[1:])
    looks = program in _READERS or (program == "git" and _verb_of_git(words) in _HARMLESS_GIT)
    if looks or (program == "sqlite3" and _only_queries(words, command.fed)):
        return []
    if program in {"sed", "awk", "gawk"}:  # the program text itself can name a file to write
        return words if command.has("i", "--in-place") else command.operands()[:1]
    if program == "sort":
        return words if command.has("o", "--output") else []
    if program == "find":
        return words if _acts(words) else []
    if program in {"cp", "install", "rsync", "scp"} and not command.has(
        "t", "--target-directory", "--remove-source-files"
    ):
        return words[-1:]
    return [*command.words[:1], *words]  # of everything else it is not known


def _only_queries(words: "Sequence[str]", fed: str) -> bool:
    """Whether sqlite3 is given queries, and nothing that could write: tasks may be looked at in any way."""
    operands: list[str] = []
    skip = False
    for word in words:
        if skip or word in _VALUED_VIEWS:
            skip = not skip
        elif not word.startswith("-"):
            operands.append(word)
        elif word.lstrip("-") not in _VIEWS:
            return False
    said = "\n;".join((*operands[1:], fed)).lower()
    statements = [statement.strip() for statement in said.split(";")]
    if not any(statements) or any(word in said for word in _NO_QUERY):
        return False
    return all(not statement or statement.startswith(_QUERIES) for statement in statements)


def _acts(words: "Sequence[str]") -> bool:
    """Whether `find` does something to what it finds, besides having it looked at."""
    if {"-delete", "-fprint", "-fprintf", "-fls"} & set(words):
        return True
    runs = ("-exec", "-execdir", "-ok", "-okdir")
    called = (words[at + 1 : at + 2] for at, word in enumerate(words) if word in runs)
    return any(not (name and name[0].rpartition("/")[2] in _READERS) for name in called)


def _without_exclusions(words: "Sequence[str]") -> "list[str]":
    """What is left out is not touched."""
    kept, skip = [], False
    for word in words:
        if not skip and not word.startswith("--exclude="):
            kept.append(word)
        skip = word == "--exclude"
    return kept


def _verb_of_git(words: "Sequence[str]") -> str:
    at = 0
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in {"-C", "-c", "--git-dir", "--work-tree", "--namespace"} else 1
    return words[at] if at < len(words) else ""


# --- the operator's commands -------------------------------------------------------------------------------------


def steers(command: "Simple", upstream: "Sequence[str]" = ()) -> bool:
    """Whether it gives a command of the operator's: those that only look, and `task` and `ask`, are everybody's."""
    program = command.program
    if program in _TALKERS or (program in _READERS and program != "untildone"):
        return False
    if program == "claude" and command.words[1:2] == ["plugin"]:
        return command.words[2:3] not in (["list"], ["validate"], [])
    if _is_launched(command):
        return True
    heard = upstream if command.more or command.piped else ()
    said = " ".join((*command.words, *heard, command.fed if is_program(program) or program == "claude" else ""))
    return any(name in said for name in _COMMANDS) or any(map(_operates, _calls(said)))


def _is_launched(command: "Simple") -> bool:
    """Whether it calls the program, by its name or as a module, with anything but what everybody may."""
    program = command.program
    if program not in _LAUNCHERS and not program.startswith("python"):
        return False
    names = [_name(word) for word in command.words[:_BEFORE_NAME]]
    if "untildone" not in names:
        return False
    at = names.index("untildone")
    if program in {"sh", "bash"} and at != 1:
        return False
    words = command.words[at + 1 :]
    if command.more and len(words) < 2:  # noqa: PLR2004 a verb, and what it is about: the rest comes from elsewhere
        return True
    verb = words[0] if words else "--help"
    return _operates(words) if verb in _SEES_OF else verb not in _SEES


def _name(word: str) -> str:
    """The program a word names: a file in a folder, or a module."""
    name = word.rpartition("/")[2].removeprefix("-m")
    return "untildone" if name.startswith("untildone.") or word.endswith("untildone/__main__.py") else name


def _calls(said: str) -> "Iterator[list[str]]":
    """The words after each mention of the program, and before it where it is taken away."""
    words = said.translate(_APART).split()
    for at, word in enumerate(words):
        if _name(word) == "untildone":
            yield words[at + 1 : at + 3]
            if _REMOVERS & set(words[max(0, at - 3) : at]):
                yield ["plugin", "uninstall"]


def _operates(words: "Sequence[str]") -> bool:
    verb = words[0] if words else ""
    if verb in _SEES_OF:
        return bool(words[1:2]) and words[1] not in _SEES_OF[verb] | {"--help", "-h"}
    return verb in _OPERATES

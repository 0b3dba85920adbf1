"""A shell command taken apart: the simple commands in it, what each is given and where each writes.

Not a shell: enough of one to see which program is called with which words. Quotes, operators, substitutions,
redirections and here-documents are understood; what variables hold is not known. Stdlib only, and nothing of it: the
hooks run this file under `python3 -I -S`.
"""

LONGEST = 100_000
_DEEPEST = 6
_BLANK = " \t"
_RESERVED = frozenset(
    {"if", "then", "else", "elif", "fi", "do", "done", "while", "until", "for", "in", "case", "esac", "!", "{", "}"}
)
_WRAPPERS = {
    "sudo": ("-u", "-g", "-C", "-p", "-h", "-D", "-R", "-T"),
    "doas": ("-u", "-C"),
    "env": ("-u", "-C", "-S"),
    "command": (),
    "builtin": (),
    "exec": ("-a",),
    "nohup": (),
    "time": ("-f", "-o"),
    "nice": ("-n",),
    "ionice": ("-c", "-n", "-p"),
    "timeout": ("-s", "-k"),
    "stdbuf": ("-i", "-o", "-e"),
    "setsid": (),
    "busybox": (),
    "xargs": ("-n", "-P", "-I", "-d", "-L", "-a", "-s", "-E"),
}
"""Programs that run another one, and those of their options that take a value."""
SHELLS = frozenset({"sh", "bash", "zsh", "dash", "ksh", "ash", "fish"})


class Simple:
    """One program called, after everything around it was taken away."""

    __slots__ = ("at", "fed", "more", "piped", "scope", "sets", "words", "writes")

    def __init__(self) -> None:
        self.words: list[str] = []
        self.writes: list[str] = []
        """Files its output goes to."""
        self.fed = ""
        """The here-document it reads."""
        self.piped = False
        """It reads what the command before it writes."""
        self.more = False
        """What it reads are further words: `xargs` calls it."""
        self.sets: list[tuple[str, str]] = []
        """Variables that are given a value before it."""
        self.at = 0
        """Its place in the text: one that is substituted into another has the place of that."""
        self.scope: tuple[int, ...] = ()
        """The shells below the first one that it runs in: what is changed there ends with them."""

    @property
    def program(self) -> str:
        """The name of the program, without its folder."""
        return self.words[0].rpartition("/")[2] if self.words else ""

    def has(self, letters: str, *longs: str) -> bool:
        """Whether one of these options is given: any of the letters, alone or among others, or a long one."""
        for word in self.words[1:]:
            if word == "--":
                return False
            if word.startswith("--"):
                if word.partition("=")[0] in longs:
                    return True
            elif word[:1] == "-" and any(letter in word for letter in letters):
                return True
        return False

    def operands(self) -> list[str]:
        """The words that are no options."""
        found: list[str] = []
        for number, word in enumerate(self.words[1:], 1):
            if word == "--":
                return found + self.words[number + 1 :]
            if not word.startswith("-") or word == "-":
                found.append(word)
        return found


def simple_commands(text: str, depth: int = 0) -> list[Simple]:
    """Every simple command in a text, also those that another shell, `eval` or a substitution runs."""
    if depth > _DEEPEST:
        whole = Simple()
        whole.words = [text]  # nobody takes it apart any more; what it names can still be seen
        return [whole]
    found: list[Simple] = []
    for command in _Reader(text[:LONGEST], depth).read():
        bare = _unwrapped(command)
        if not bare.words and not bare.writes and not bare.sets:
            continue
        found.append(bare)
        below = () if bare.program == "eval" else (-1 - bare.at,)
        for inner in _inner(bare):
            found.extend(_moved(simple_commands(inner, depth + 1), bare.at, (*bare.scope, *below)))
    return found


def _moved(commands: list[Simple], at: int, scope: tuple[int, ...]) -> list[Simple]:
    """The same commands where they stand in a larger text."""
    for command in commands:
        command.at, command.scope = at, (*scope, *command.scope)
    return commands


def _inner(command: Simple) -> list[str]:
    """Texts that this command runs as a shell would."""
    if command.program == "eval":
        return [" ".join(command.words[1:])]
    if command.program not in SHELLS:
        return []
    for number, word in enumerate(command.words[1:], 1):
        if word[:1] == "-" and word[:2] != "--" and "c" in word:
            return command.words[number + 1 : number + 2]
    return [command.fed] if command.fed else []


def _unwrapped(command: Simple) -> Simple:
    """Without assignments, reserved words and programs that only run another."""
    words = command.words
    at = 0
    bare = Simple()
    while at < len(words):
        word = words[at]
        name = word.rpartition("/")[2]
        if word in _RESERVED or _is_assignment(word):
            if _is_assignment(word):
                bare.sets.append((word.partition("=")[0], word.partition("=")[2]))
            at += 1
        elif name in _WRAPPERS:
            at = _after_options(words, at + 1, _WRAPPERS[name])
            at += name == "timeout"  # its time
            bare.more = bare.more or name == "xargs"
        else:
            break
    bare.words, bare.writes, bare.fed, bare.piped = words[at:], command.writes, command.fed, command.piped
    bare.at, bare.scope = command.at, command.scope
    return bare


def _after_options(words: list[str], at: int, valued: tuple[str, ...]) -> int:
    while at < len(words) and (words[at].startswith("-") or _is_assignment(words[at])):
        if words[at] == "--":
            return at + 1
        at += 2 if words[at] in valued else 1
    return at


def _is_assignment(word: str) -> bool:
    name, equals, _ = word.partition("=")
    return bool(equals) and name.isidentifier()


class _Reader:
    """Reads a command from left to right."""

    def __init__(self, text: str, depth: int) -> None:
        self.text = text
        self.depth = depth
        self.at = 0
        self.done: list[Simple] = []
        self.nested: list[Simple] = []
        self.current = Simple()
        self.word: list[str] | None = None
        self.target = ""
        """What the next word is: `write` for a file to write, `skip` for one to read, `here` for a delimiter."""
        self.waiting: list[tuple[Simple, str]] = []
        self.scope: tuple[int, ...] = ()
        self.shells = 0

    def read(self) -> list[Simple]:
        while self.at < len(self.text):
            self._step(self.text[self.at])
        self._end_command(piped=False)
        return [*self.done, *self.nested]

    def _step(self, char: str) -> None:
        if char in "\\'\"`$":
            self._quoted(char)
        elif char in "<>" or self.text.startswith("&>", self.at):
            self._redirect(char)
        elif char in _BLANK:
            self._end_word()
            self.at += 1
        elif char == "#" and self.word is None:
            end = self.text.find("\n", self.at)
            self.at = len(self.text) if end < 0 else end
        elif char in "\n;&|()":
            self._operator(char)
        else:
            self._put(char)
            self.at += 1

    def _put(self, text: str) -> None:
        if self.word is None:
            self.word = []
        self.word.append(text)

    def _quoted(self, char: str) -> None:
        text, at = self.text, self.at
        if char == "\\":
            if text[at + 1 : at + 2] != "\n":
                self._put(text[at + 1 : at + 2])
            self.at += 2
        elif char == "'":
            end = _found(text, "'", at + 1)
            self._put(text[at + 1 : end])
            self.at = end + 1
        elif char == '"':
            self.at += 1
            self._double()
        else:
            self._substitution(char)

    def _double(self) -> None:
        """To the closing quote; what is substituted inside is looked at as well."""
        self._put("")
        while self.at < len(self.text) and self.text[self.at] != '"':
            char = self.text[self.at]
            if char == "\\":
                self._put(self.text[self.at + 1 : self.at + 2])
                self.at += 2
            elif char in "`$":
                self._substitution(char)
            else:
                self._put(char)
                self.at += 1
        self.at += 1

    def _substitution(self, char: str) -> None:
        text, at = self.text, self.at
        if char == "`":
            end = _found(text, "`", at + 1)
            inner = text[at + 1 : end]
        elif text.startswith("$(", at):
            end = _closing(text, at + 2)
            inner = text[at + 2 : end]
        else:
            self._put(char)
            self.at += 1
            return
        self._put(text[at : end + 1])
        self._nest(inner)
        self.at = end + 1

    def _nest(self, inner: str) -> None:
        self.shells += 1
        commands = simple_commands(inner, self.depth + 1)
        self.nested.extend(_moved(commands, len(self.done), (*self.scope, self.shells)))

    def _redirect(self, char: str) -> None:
        text, at = self.text, self.at
        if text.startswith(("<(", ">("), at):
            end = _closing(text, at + 2)
            self._put(text[at : end + 1])
            self._nest(text[at + 2 : end])
            self.at = end + 1
            return
        if self.word is not None and "".join(self.word).isdigit():
            self.word = None  # the number of a stream
        self._end_word()
        for sign, target in _REDIRECTIONS:
            if text.startswith(sign, at):
                self.at += len(sign)
                self.target = target
                return
        self.at += len(char)

    def _operator(self, char: str) -> None:
        following = self.text[self.at + 1 : self.at + 2]
        if char == "&" and self.at and self.text[self.at - 1] == ">":
            self.at += 1
            return
        is_double = following == char and char in "&|;"
        piped = char == "|" and not is_double
        self._end_command(piped=piped)
        if char == "(":
            self.shells += 1
            self.scope = (*self.scope, self.shells)
        elif char == ")":
            self.scope = self.scope[:-1]
        self.current.scope = self.scope
        self.at += 2 if is_double or (char == "|" and following == "&") else 1
        if char == "\n":
            self._here_documents()

    def _end_word(self) -> None:
        if self.word is None:
            return
        word, self.word = "".join(self.word), None
        target, self.target = self.target, ""
        if target == "here":
            self.waiting.append((self.current, word))
        elif target == "write" or (target == "copy" and not (word.isdigit() or word == "-")):
            self.current.writes.append(word)
        elif not target:
            self.current.words.append(word)

    def _end_command(self, *, piped: bool) -> None:
        self._end_word()
        self.target = ""
        if self.current.words or self.current.writes:
            self.current.at = len(self.done)
            self.done.append(self.current)
        self.current = Simple()
        self.current.piped, self.current.scope = piped, self.scope

    def _here_documents(self) -> None:
        """What follows up to the delimiter is text, not commands."""
        for command, delimiter in self.waiting:
            lines: list[str] = []
            while self.at < len(self.text):
                end = self.text.find("\n", self.at)
                end = len(self.text) if end < 0 else end
                line = self.text[self.at : end]
                self.at = end + 1
                if line.strip() == delimiter:
                    break
                lines.append(line)
            command.fed = "\n".join(lines)
        self.waiting = []


_REDIRECTIONS = (
    ("&>>", "write"),
    ("&>", "write"),
    (">>", "write"),
    (">|", "write"),
    (">&", "copy"),
    ("<<<", "skip"),
    ("<<-", "here"),
    ("<<", "here"),
    ("<>", "write"),
    ("<&", "skip"),
    (">", "write"),
    ("<", "skip"),
)


def _found(text: str, what: str, begin: int) -> int:
    at = text.find(what, begin)
    return len(text) if at < 0 else at


def _closing(text: str, at: int) -> int:
    """Where the parenthesis that was opened closes; quotes are respected."""
    depth = 1
    while at < len(text):
        char = text[at]
        if char == "\\":
            at += 1
        elif char in "'\"":
            at = _found(text, char, at + 1)
        elif char in "()":
            depth += 1 if char == "(" else -1
            if not depth:
                return at
        at += 1
    return len(text)

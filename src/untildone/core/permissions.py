"""What the agent may do without asking, what it may never, and what to say when it was denied something. Pure.

Claude Code judges each call: a rule that allows lets it through, a rule that denies wins. Tried with the real one:
no prefix rule passes a loop, a subshell, `$(...)`, `source` or a heredoc without quotes, because Claude Code cannot
tell what such a command does; `Bash` alone passes them, and rules that deny still find their command inside of
them. So all commands are allowed but those that reach further than the folder. That is a guard against accidents:
a script can do what its author likes. The wall is a sandbox.
"""

import re
import shlex
from collections.abc import Iterable, Sequence

from .dataclass import dataclass
from .printable import one_line

ALLOWED_TOOLS = ("Read", "Glob", "Grep", "Bash", "Edit(./**)", "Edit(//tmp/**)")
"""All commands, and edits in the folder and among the temporary files. DANGERS are the exceptions."""


@dataclass(frozen=True, slots=True)
class Danger:
    """Something the agent is denied by default, in all the ways it is usually written."""

    words: str
    """What people call it."""
    allow: str
    """The rule that takes it off the list."""
    rules: tuple[str, ...]
    """What Claude Code is told to deny."""


def _programs(*names: str) -> tuple[Danger, ...]:
    """Programs, or a program with its first words: all calls of them."""
    return tuple(_forms(name, name, f"{name}:*") for name in names)


def _forms(words: str, name: str, *patterns: str) -> Danger:
    return Danger(words, f"Bash({name}:*)", tuple(f"Bash({pattern})" for pattern in patterns))


def _piped(name: str) -> Danger:
    into_a_shell = (f"{name} * | sh*", f"{name} * | bash*", f"sh -c *{name} *", f"bash -c *{name} *", f"*<({name} *")
    return _forms(f"{name} | sh", name, *into_a_shell)


def _places(*places: str) -> tuple[Danger, ...]:
    """Folders and files that no edit and no command with their path may change."""
    rules = {place: f"Edit({'/' if place.startswith('/') else ''}{place})" for place in places}
    return tuple(Danger(f"changes in {place.removesuffix('/**')}", rule, (rule,)) for place, rule in rules.items())


DANGERS: tuple[tuple[str, tuple[Danger, ...]], ...] = (
    (
        "work that leaves this machine",
        (
            _forms("git push", "git push", "git push:*", "git -* push*"),
            *_programs("gh", "glab", "ssh", "scp", "sftp", "rsync", "npm publish", "pnpm publish", "yarn publish"),
            *_programs("yarn npm publish", "cargo publish", "uv publish", "poetry publish", "twine", "gem push"),
        ),
    ),
    (
        "services elsewhere",
        _programs(
            "aws", "az", "gcloud", "kubectl", "helm", "terraform", "tofu", "pulumi", "ansible", "ansible-playbook",
            "fly", "flyctl", "heroku", "vercel", "netlify", "wrangler", "firebase", "doctl",
        ),
    ),
    (
        "the machine itself",
        (
            *_programs("sudo", "su", "doas", "pkexec", "systemctl", "service", "launchctl", "crontab", "shutdown"),
            *_programs("reboot", "halt", "poweroff", "mount", "umount", "mkfs", "fdisk", "parted", "dd", "chown"),
            *_programs("pkill", "killall", "iptables", "useradd", "userdel", "usermod", "passwd"),
            *_programs("docker", "docker-compose", "podman"),
            *_programs("apt", "apt-get", "dpkg", "yum", "dnf", "pacman", "apk", "zypper", "snap", "brew"),
            _forms("npm install -g", "npm install", "npm install -g:*", "npm i -g:*", "npm install --global:*"),
            *_places("/etc/**", "/usr/**", "/bin/**", "/sbin/**", "/lib/**", "/boot/**"),
            *_places("~/.ssh/**", "~/.aws/**", "~/.gnupg/**", "~/.config/**", "~/.*rc", "~/.*profile", "~/.gitconfig"),
        ),
    ),
    (
        "downloads that run as they come",
        (
            _piped("curl"),
            _piped("wget"),
        ),
    ),
    (
        "what cannot be undone",
        (
            _forms(
                "rm -r with a path that is not relative to the folder", "rm",
                "rm -*r* /*", "rm -*R* /*", "rm -* ../*", "rm -* ..", "rm -* ~*", "rm -* *$HOME*", "rm -* *${HOME*",
            ),
            *_programs("git clean", "git reset --hard", "git filter-branch", "git filter-repo", "git reflog expire"),
            *_programs("git stash drop", "git stash clear", "git update-ref", "git config --global", "dropdb"),
        ),
    ),
)  # fmt: skip
"""What the default does not allow, by what it reaches."""

_ALL = tuple(danger for _, dangers in DANGERS for danger in dangers)
_MOST_SHOWN = 3
_SHOWN = 100
# Programs whose second word says what they do: one rule for all of git would be wider than what was denied.
_WITH_VERBS = frozenset({"git", "npm", "pnpm", "yarn", "cargo", "go", "uv", "pip", "poetry", "python -m"})
_APART = re.compile(r"&&|\|\||[;|&\n(){}`]|\$\(|\b(?:then|do|else|if|while)\b")
_BEFORE = re.compile(r"(?:(?:!|\w+=\S*|env|nohup|time|command|exec|xargs|timeout \S+)\s+)+")


def denied_rules(allowed: Sequence[str], added: Sequence[str], checks: Sequence[str], folder: str) -> tuple[str, ...]:
    """The exceptions of the default list that hold in a folder: not for what the user added, nor for the checks.

    A list that replaces the default has no exceptions.
    """
    if tuple(allowed) != ALLOWED_TOOLS:
        return ()
    left = (danger for danger in _ALL if not any(_is_wider(rule, danger.allow) for rule in added))
    needed = {danger for check in checks if (danger := danger_in(check)) is not None}
    return tuple(rule for danger in left if danger not in needed for rule in danger.rules if not _holds(rule, folder))


def without_effect(allowed: Sequence[str], added: Sequence[str]) -> tuple[str, ...]:
    """Lines about added rules that a wider exception of the default list beats."""
    if tuple(allowed) != ALLOWED_TOOLS:
        return ()
    beaten = (
        (rule, danger)
        for rule in added
        for danger in _ALL
        if _is_wider(danger.allow, rule) and not any(_is_wider(other, danger.allow) for other in added)
    )
    return tuple(
        f"--allow-tool {shlex.quote(rule)} does nothing: all of it is denied; allow {shlex.quote(danger.allow)}"
        for rule, danger in beaten
    )


def danger_in(command: str) -> Danger | None:
    """The exception of the default list that a command falls under."""
    parts = [command, *_commands(command)]
    return next(
        (danger for danger in _ALL if any(_matches(rule, part) for rule in danger.rules for part in parts)), None
    )


def telling_line(command: str) -> str:
    """The line of a command that was denied for which it was denied; all of it where that cannot be told."""
    return next((line for line in command.splitlines() if danger_in(line) is not None), command)


def rule_for(denial: str, allowed: Sequence[str] = ALLOWED_TOOLS) -> str:
    """The rule that would have allowed what was denied, `Tool(detail)`; empty: none would."""
    tool, _, rest = denial.partition("(")
    detail = rest.removesuffix(")").strip()
    match tool:
        case "Bash":
            return _rule_for_command(detail, allowed)
        case "Edit" | "Write" | "MultiEdit" | "NotebookEdit" | "Read":
            return _rule_for_path("Read" if tool == "Read" else "Edit", detail, allowed)
        case "WebFetch":
            host = re.match(r"\w+://([\w.-]+)", detail)
            return f"WebFetch(domain:{host[1]})" if host else tool
        case _:
            return tool


def _rule_for_path(kind: str, path: str, allowed: Sequence[str]) -> str:
    # Inside of the folder everything is allowed but what Claude Code protects whatever rules say.
    if not path.startswith("/"):
        return ""
    danger = _place_in(path) if kind == "Edit" and tuple(allowed) == ALLOWED_TOOLS else None
    folder = path.rpartition("/")[0]
    # Never all of the machine, nor a place that the words hide.
    whole = folder.count("/") > 1 and ".." not in path.split("/")
    return danger.allow if danger else f"{kind}(/{f'{folder}/**' if whole else path})"


def _rule_for_command(command: str, allowed: Sequence[str]) -> str:
    if tuple(allowed) == ALLOWED_TOOLS:
        danger = danger_in(command) or _place_in(command)
        return danger.allow if danger else ""
    part = next((part for part in _commands(command) if not any(_matches(rule, part) for rule in allowed)), "")
    words = part.split()
    if not words or not re.fullmatch(r"[\w./@+-]+", words[0]):
        return "Bash"  # every word of it is allowed: it is the form that no narrower rule passes
    has_verb = words[0] in _WITH_VERBS and len(words) > 1 and re.fullmatch(r"[a-z][\w-]*", words[1])
    return f"Bash({' '.join(words[:2] if has_verb else words[:1])}:*)"


def rules_for(
    denials: Iterable[str], allowed: Sequence[str] = ALLOWED_TOOLS, disallowed: Sequence[str] = ()
) -> tuple[str, ...]:
    """The rules that would have allowed all of this, each once, the first few; none that the user's own list denies."""
    rules = (rule for denial in denials if (rule := rule_for(denial, allowed)) and rule not in disallowed)
    return tuple(dict.fromkeys(rules))[:_MOST_SHOWN]


def resume_command(name: str, rules: Sequence[str]) -> str:
    """What to type to go on with these rules as well."""
    return " ".join(("untildone resume", name, *(f"--allow-tool {shlex.quote(rule)}" for rule in rules)))


def denials_text(denials: Sequence[str]) -> str:
    """What was denied, short enough for one line."""
    shown = [one_line(denial, _SHOWN) for denial in dict.fromkeys(denials)]
    return ", ".join(shown[:_MOST_SHOWN]) + (
        f" and {len(shown) - _MOST_SHOWN} more" if len(shown) > _MOST_SHOWN else ""
    )


def denied_names(denied: Sequence[str]) -> list[str]:
    """Rules that deny, as people call what they are about: `git push`, `gh`, `changes in /etc`."""
    words = {rule: danger.words for danger in _ALL for rule in danger.rules}
    return list(dict.fromkeys(words.get(rule, rule) for rule in denied))


def _commands(line: str) -> list[str]:
    """The single commands of a shell line, roughly: for advice and for the exceptions of checks, not for judging."""
    parts = (
        _BEFORE.sub("", part.strip(), count=1) if _BEFORE.match(part.strip()) else part for part in _APART.split(line)
    )
    return [re.sub(r"^\S*/(?=\S)", "", part.strip()) for part in parts if part.strip()]


def _matches(rule: str, command: str) -> bool:
    """Whether a rule for commands speaks of this one, as Claude Code reads rules."""
    if rule == "Bash":
        return True
    if not rule.startswith("Bash("):
        return False
    inner = rule.removeprefix("Bash(").removesuffix(")")
    words, prefix, _ = inner.partition(":*")
    if prefix:
        return command == words or command.startswith(f"{words} ")
    return re.fullmatch(".*".join(map(re.escape, inner.split("*"))), command, re.DOTALL) is not None


def _place_in(text: str) -> Danger | None:
    """The place on the list that a path, or one in a command, lies in."""
    for danger in _ALL:
        if danger.allow.startswith("Edit("):
            place = danger.allow.removeprefix("Edit(").removesuffix(")").removesuffix("**")
            inside = re.escape(place.lstrip("~/")).replace(r"\*", r"[^/\s]*")
            before = r"(?:^|[\s=>\"'])" if place.startswith("//") else r"(?:~|\w)"
            if re.search(f"{before}/{inside}", text):
                return danger
    return None


def _is_wider(rule: str, other: str) -> bool:
    """Whether a rule speaks of everything that the other one does, as far as rules of one form can be compared."""
    if (
        rule == other
        or (rule == "Bash" and other.startswith("Bash("))
        or (rule == "Edit" and other.startswith("Edit("))
    ):
        return True
    if rule.endswith("/**)") and other.startswith(rule.removesuffix("**)")):
        return True
    words, prefix, _ = rule.partition(":*")
    return bool(prefix) and other.startswith((f"{words} ", f"{words}:"))


def _holds(rule: str, folder: str) -> bool:
    """Whether a rule about a place of the machine would hold the folder itself."""
    place = rule.removeprefix("Edit(").removesuffix("**)")
    if place.startswith("//"):
        return f"{folder}/".startswith(place[1:])
    return place.startswith("~/") and place.endswith("/") and place[1:] in f"{folder}/"

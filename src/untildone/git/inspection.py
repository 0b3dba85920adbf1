"""Looks at a repository without its settings, so that nothing it names is started.

A repository's config, hooks and attributes can name programs in a dozen ways (file monitors, filters, ssh commands,
credential helpers, remote helpers), and git invents more. Instead of a list of them, git is given a config folder of
ours that borrows only the objects and refs. For commands that must work before the user has decided to run anything.
"""

import os
import re
import tempfile
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from untildone.core.dataclass import dataclass
from untildone.git.fence import git_folder
from untildone.git.plain_file import content
from untildone.git.repository import project_root
from untildone.git.room_entries import common_folder
from untildone.git.run import GitResult, disk_trouble, git

PATIENCE = 20.0
"""Seconds: a repository may hold pipes and mountains of files."""

_BORROWED = ("objects", "refs", "packed-refs", "reftable", "shallow", "info")
# Words and nothing else: how files are stored and compared.
_FORMAT = frozenset({"extensions.objectformat", "extensions.refstorage"})
_PLAIN = frozenset(
    {
        "core.autocrlf", "core.eol", "core.filemode", "core.ignorecase", "core.precomposeunicode", "core.symlinks",
        "status.showuntrackedfiles",
    }
)  # fmt: skip
_IDENTITY = frozenset({"user.email", "user.name"})
_WORD = re.compile(r"[a-z0-9]{1,20}")
_REACHING = re.compile(
    r"core\.(sshcommand|gitproxy)|credential\.|http\.|url\.|protocol\.|include(if)?\.|remote\..+\.(?!url$|fetch$)[^.]+$"
)
_NETWORK = {"GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh"}
"""No remote helpers: `ext::` is a command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """A repository as it can be looked at safely."""

    top: Path
    settings: Sequence[tuple[str, str]]
    """Its own settings as text, in the order of the file; what it includes is left out."""
    _env: Mapping[str, str]

    async def git(self, *args: str, env: Mapping[str, str] | None = None, timeout: float = PATIENCE) -> GitResult:
        """Run a command that only looks. WorkspaceError when it takes too long."""
        return await git(args, cwd=self.top, env={**self._env, **(env or {})}, check=False, timeout=timeout)

    @property
    def remotes(self) -> dict[str, str]:
        """The names of the remotes and their addresses."""
        found = ((key.removeprefix("remote.").rpartition("."), value) for key, value in self.settings)
        return {name: value for (name, _, last), value in reversed([*found]) if name and last == "url"}

    @property
    def has_own_ways(self) -> bool:
        """Whether settings that were left out say how a remote is reached."""
        return any(_REACHING.match(key) for key, _ in self.settings)


@asynccontextmanager
async def inspecting(folder: Path) -> AsyncIterator[Inspection | None]:
    """The repository around a folder; None where there is none. WorkspaceError when git refuses it."""
    top = project_root(folder)
    git_dir = git_folder(top)
    if not git_dir:
        yield None
        return
    await _refuse_a_strangers(top, git_dir)
    common = common_folder(Path(git_dir))
    settings = await _settings(top, common)
    with disk_trouble("cannot look at the repository"), tempfile.TemporaryDirectory(prefix="untildone-look-") as ours:
        for name in _BORROWED:
            Path(ours, name).symlink_to(common / name)
        Path(ours, "config").write_text(_format(settings), encoding="utf-8")
        env = _told(settings) | _NETWORK | {"GIT_DIR": git_dir, "GIT_COMMON_DIR": ours, "GIT_WORK_TREE": str(top)}
        yield Inspection(top=top, settings=settings, _env=env)


async def _refuse_a_strangers(top: Path, git_dir: str) -> None:
    """Git refuses to find a repository of another user, and says what to do; told where it is, it does not ask."""
    if any(os.stat(place).st_uid != os.geteuid() for place in (top, git_dir)):  # noqa: PTH116 - two stats
        await git(("rev-parse", "--git-dir"), cwd=top, env={"GIT_CEILING_DIRECTORIES": str(top.parent)})


async def _settings(top: Path, common: Path) -> list[tuple[str, str]]:
    """What the config says, read as text: as a file it could be a pipe, and git would follow what it includes."""
    try:
        text = content(common / "config")
    except OSError:
        return []
    answer = await git(
        ("config", "--file", "-", "--list", "-z"), cwd=top, env={"GIT_DIR": os.devnull}, stdin=text, check=False
    )
    pairs = (entry.partition("\n") for entry in os.fsdecode(answer.out).split("\0") if entry)
    return [(key, value) for key, _, value in pairs]


def _format(settings: Iterable[tuple[str, str]]) -> str:
    """The config of ours: how objects and refs are stored must be in a file."""
    wanted = {key.partition(".")[2]: value for key, value in settings if key in _FORMAT and _WORD.fullmatch(value)}
    lines = ["[core]", f"repositoryformatversion = {int(bool(wanted))}", "bare = false", "[extensions]"]
    return "\n".join([*lines, *(f"{key} = {value}" for key, value in wanted.items())]) + "\n"


def _told(settings: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Settings that are no more than a word or a name, as git takes them from the environment."""
    plain = [(key, value) for key, value in settings if key in _IDENTITY or (key in _PLAIN and _WORD.fullmatch(value))]
    told = os.environ.get("GIT_CONFIG_COUNT", "")
    first = int(told) if re.fullmatch(r"[0-9]{1,4}", told) else 0
    env = {"GIT_CONFIG_COUNT": str(first + len(plain))}
    for number, (key, value) in enumerate(plain, first):
        env |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return env

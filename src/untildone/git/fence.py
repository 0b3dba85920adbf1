"""Whether a tree still belongs to the repository it belonged to at the start.

An agent can put a file or a link in the place of .git, or settings into it, that lead git to another repository of the
user's. So what was found at the start is compared before every command; a difference is a stop, never a detour.
"""

import os
import re
from pathlib import Path

from untildone.core.dataclass import dataclass
from untildone.errors import WorkspaceError
from untildone.git.plain_file import LONGEST, content
from untildone.git.room_entries import common_folder

_LONGEST_MARK = 4096
_ELSEWHERE = re.compile(rb"(?i)\bworktree[ \t]*=[^\n]*")


@dataclass(frozen=True, slots=True)
class Fence:
    """What .git leads to, followed to the end."""

    git_dir: str
    common: str
    """The git folder that all trees of the repository share."""
    elsewhere: tuple[bytes, ...]
    """The settings that let the tree lie somewhere else: submodules have one."""

    def refuse_another(self, top: Path) -> None:
        """WorkspaceError when the tree leads somewhere else by now."""
        found = fence_around(top)
        if found == self:
            return
        if not found.git_dir:
            raise WorkspaceError(f"{top} is not a git repository any more: put {top / '.git'} back, then resume")
        if (found.git_dir, found.common) == (self.git_dir, self.common):
            raise WorkspaceError(
                f"core.worktree in {self.common}/config was changed, so git would work in another folder than {top}: "
                "put it back, then resume"
            )
        raise WorkspaceError(
            f"{top / '.git'} is not what it was when the run began ({self.git_dir}): nothing is done in another "
            "repository; put it back, then resume"
        )


def fence_around(top: Path) -> Fence:
    """What a tree leads to now; empty where it leads nowhere."""
    git_dir = git_folder(top)
    if not git_dir or not os.path.isdir(git_dir):  # noqa: PTH112 - before each command: text is quicker
        return Fence("", "", ())
    common = os.path.realpath(common_folder(Path(git_dir)))
    settings = (_content(f"{common}/config"), _content(f"{git_dir}/config.worktree"))
    return Fence(git_dir, common, tuple(line for text in settings for line in _ELSEWHERE.findall(text)))


def git_folder(top: Path) -> str:
    """The git folder that .git in a tree is, or names; "" for none."""
    mark = f"{top}/.git"
    if os.path.isdir(mark):  # noqa: PTH112 - as above
        return os.path.realpath(mark)
    named = _content(mark, _LONGEST_MARK)
    if not named.startswith(b"gitdir:"):
        return ""
    return os.path.realpath(os.path.join(top, os.fsdecode(named.removeprefix(b"gitdir:").strip())))  # noqa: PTH118 - as above


def _content(path: str, most: int = LONGEST) -> bytes:
    try:
        return content(path, most)
    except OSError:
        return b""

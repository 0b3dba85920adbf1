"""What the guard finds in the changes of a run, as plain values."""

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Literal

from untildone.core.dataclass import dataclass

FindingKind = Literal[
    "test_deleted", "test_removed", "skip_added", "threshold_lowered", "ci_changed", "settings_changed",
    "test_edited", "test_added", "secret", "not_fail_to_pass", "tests_not_run", "check_shadowed", "unreadable",
]  # fmt: skip

_PACKAGES = ("site-packages", "dist-packages", "node_modules", "registry/src", "git/checkouts", "pkg/mod")
_RUNS_OF_STARS = re.compile(r"\*+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One change worth a human's eye."""

    kind: FindingKind
    path: str
    line: int = 0
    """In the new file, or in the old one of what is gone; 0: the whole file."""
    text: str = ""
    """The line itself, or what it was; never a secret."""
    blocking: bool = False
    """While it stands, nothing counts as done."""

    @property
    def place(self) -> str:
        """Where it is, as people and editors write it."""
        return f"{self.path}:{self.line}" if self.line else self.path


@dataclass(frozen=True, slots=True)
class LentChange:
    """Something that checks use from outside the commit, and that is not as it was when the run began."""

    path: str
    was_there: bool = True
    """False: it is new."""

    @property
    def judges(self) -> bool:
        """Whether checks run it as a matter of course: a program that they name, or an installed package."""
        is_package = any(f"{folder}/" in self.path for folder in _PACKAGES)
        is_program = "/" not in self.path
        name = self.path.rpartition("/")[2]
        # Python runs these by itself, wherever they are new.
        is_used = self.was_there or name.endswith(".pth") or name in {"sitecustomize.py", "usercustomize.py"}
        return is_used and (is_program or is_package) and not name.startswith(".")


def waived(path: str, patterns: Iterable[str]) -> bool:
    """Whether a path is among those a human let pass."""
    return matches(path, patterns)


def matches(path: str, patterns: Iterable[str]) -> bool:
    """Whether a path is meant by a glob: `*` crosses folders, `**/` may be none, and a folder means all below it."""
    return any(_is_meant(path, pattern.removeprefix("./")) for pattern in patterns)


def _is_meant(path: str, pattern: str) -> bool:
    if not pattern:
        return False
    if path == pattern or path.startswith(pattern.rstrip("/") + "/"):
        return True
    return fnmatchcase(path, _RUNS_OF_STARS.sub("*", pattern.replace("**/", "*")))


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """A file before and after, as far as it is text of a sane size."""

    path: str
    old_path: str = ""
    """Another name it had before."""
    before: str | None = None
    """None: it was not there, or cannot be shown."""
    after: str | None = None
    status: Literal["added", "modified", "deleted", "renamed"] = "modified"

"""What a command sees of this machine, whichever kind of sandbox shows it."""

from typing import Literal

from untildone.core.dataclass import dataclass

TEMPORARY = {"/tmp": "tmp", "/var/tmp": "var-tmp"}  # noqa: S108 - these are replaced
"""Folders for temporary files, and what their replacements are called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """Something that is seen at a place."""

    place: str
    kind: Literal["empty", "read", "write", "link"]
    source: str = ""
    """What is seen there; for a link, where it leads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What a command sees of this machine."""

    mounts: tuple[Mount, ...] = ()
    whole_system: bool = True
    """Below the mounts lies all of the machine, read-only; otherwise nothing does."""
    env: tuple[tuple[str, str | None], ...] = ()
    """Variables that are set, or with None taken away."""
    network: bool = True
    root: bool = False
    """It is root who runs the command."""
    as_user: bool = False
    """In a namespace of users of its own."""

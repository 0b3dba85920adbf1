"""Keeping the hand-over notes out of commits, through the repository's private exclude file."""

import re
from pathlib import Path

_SPECIAL = re.compile(r"([\\*?\[\] #!])")


def set_excluded(exclude: Path, path: str, *, excluded: bool) -> None:
    """Add or remove the one line that hides `path` (relative to the top) from git; repeating it changes nothing."""
    line = "/" + _SPECIAL.sub(r"\\\1", path)
    text = exclude.read_text("utf-8", "surrogateescape") if exclude.is_file() else ""
    present = line in text.splitlines()
    if present == excluded:
        return
    if excluded:
        text += ("" if not text or text.endswith("\n") else "\n") + line + "\n"
    else:
        text = "".join(kept for kept in text.splitlines(keepends=True) if kept.rstrip("\n") != line)
    exclude.parent.mkdir(exist_ok=True)
    exclude.write_text(text, "utf-8", "surrogateescape")

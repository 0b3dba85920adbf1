"""What a worktree holds that no commit does and git is silent about: ignored data, and edits it is told not to see."""

import filecmp
import os
from collections.abc import Iterator
from pathlib import Path

from untildone.git.proof import as_committed
from untildone.git.repository import Repository
from untildone.git.status import readable

_MADE_AGAIN = frozenset({
    "node_modules", ".venv", "venv", "__pycache__", ".tox", ".nox", ".eggs", "target", "build", "dist", ".next",
    ".nuxt", ".gradle", ".turbo", ".parcel-cache", ".cache", ".coverage", "coverage", "htmlcov", ".DS_Store",
    "Thumbs.db", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", ".idea", ".vs",
})  # fmt: skip
"""Caches, installed packages and what is built: any tool makes them again."""
_MADE_ENDINGS = (".pyc", ".pyo", ".o", ".egg-info", ".tsbuildinfo")
_TAG = "CACHEDIR.TAG"
_OTHERS = ("ls-files", "-z", "--others", "--ignored")


async def only_here(tree: Repository, origin: Path, *, brought: str, spared: str) -> list[str]:
    """The files that would be lost with a tree.

    `origin` is the repository's own tree, `brought` the file there that names what came along: a copy that is still
    the same is no loss. `spared` is a file of ours that may go.
    """
    hidden = await _hidden_edits(tree)
    listed = (await tree.git(*_OTHERS, "--exclude-standard", "--directory")).out.split(b"\0")
    ignored = [os.fsdecode(name) for name in listed if name and not _is_made_again(tree.top, os.fsdecode(name))]
    if ignored and (origin / brought).is_file():
        ignored = [name for name in ignored if not _is_copy(origin / name, tree.top / name)]
    return [*hidden, *(readable(os.fsencode(name)) for name in ignored if name != spared)]


async def _hidden_edits(tree: Repository) -> list[str]:
    """Files that git was told to take for unchanged, and that are not."""
    marked = [line for line in (await tree.git("ls-files", "-v", "-s", "-z")).out.split(b"\0") if line]
    unseen = [line[2:] for line in marked if line[:1] == b"S" or line[:1].islower()]
    if not unseen:
        return []
    top = os.fsencode(tree.top)
    # Left out of a sparse checkout is not edited.
    changed = [path for path in as_committed(top, b"\0".join(unseen)) if os.path.lexists(top + b"/" + path)]
    return [readable(path) for path in changed]


def _is_made_again(top: Path, name: str) -> bool:
    place = name.rstrip("/")
    if not _MADE_AGAIN.isdisjoint(Path(place).parts) or place.endswith(_MADE_ENDINGS):
        return True
    if not name.endswith("/"):
        return False
    if (top / place / _TAG).is_file():
        return True
    return all(_is_made_again(top, str(file.relative_to(top))) for file in _files(top / place))


def _files(folder: Path) -> Iterator[Path]:
    return (Path(at) / name for at, _, names in os.walk(folder) for name in names)


def _is_copy(source: Path, copy: Path) -> bool:
    """Whether a file, or every file of a folder, is the same in both places."""
    try:
        if not copy.is_dir():
            return filecmp.cmp(source, copy, shallow=False)
        return all(filecmp.cmp(source / file.relative_to(copy), file, shallow=False) for file in _files(copy))
    except OSError:
        return False

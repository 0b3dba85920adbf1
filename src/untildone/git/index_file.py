"""Trees written by way of an index of our own: neither the user's tree nor index is touched."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from untildone.git.repository import NO_HOOKS, Repository
from untildone.git.run import disk_trouble


async def with_entries(repository: Repository, commit: str, entries: Sequence[bytes]) -> str:
    """The tree of a commit with these entries, as `update-index --index-info` reads them; returns its hash."""
    with disk_trouble("cannot put a tree together"), tempfile.TemporaryDirectory(prefix="untildone-") as folder:
        env = {"GIT_INDEX_FILE": str(Path(folder) / "index"), "GIT_LITERAL_PATHSPECS": "1"}
        await repository.git(*NO_HOOKS, "read-tree", commit, env=env)
        args = ("update-index", "--add", "--replace", "-z", "--index-info")
        await repository.git(*NO_HOOKS, *args, env=env, stdin=b"".join(entry + b"\0" for entry in entries))
        return (await repository.git(*NO_HOOKS, "write-tree", env=env)).text

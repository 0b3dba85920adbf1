"""A commit put together from two: the code of one, and the files that judge it as they are in the other."""

import os
from collections.abc import Sequence

from untildone.core.base_judges import BaseJudges
from untildone.git.index_file import with_entries
from untildone.git.repository import Repository
from untildone.git.snapshot import commit_tree
from untildone.git.status import readable

_FILE = b"100644"


async def recombined(repository: Repository, commit: str, other: str, judges: BaseJudges) -> str:
    """The hash of a commit that belongs to no branch. Neither the tree nor the index of the user is touched."""
    raw = await _raw_names(repository, (commit, other), judges.files)
    restored = [name for path in judges.restored for name in raw[path]]
    removed = [name for path in judges.removed for name in raw[path]]
    gone = b"0" * len(commit)
    entries = [b"0 %b\t%b" % (gone, name) for name in (*removed, *restored)]
    entries += await _entries(repository, other, restored)
    now = await _entries(repository, commit, [name for path in judges.rewritten for name in raw[path]])
    modes = {entry.partition(b"\t")[2]: entry.partition(b" ")[0] for entry in now}
    for path, text in judges.rewritten.items():
        blob = await repository.git("hash-object", "-w", "--stdin", stdin=text.encode("utf-8", "replace"))
        hashed = blob.text.encode()
        entries += [b"%b %b\t%b" % (modes.get(name, _FILE), hashed, name) for name in raw[path]]
    tree = await with_entries(repository, commit, entries)
    said = f"{commit[:10]} with the files that judge it as they are in {other[:10]}"
    return await commit_tree(repository, tree, parents=[commit], message=said)


async def _raw_names(repository: Repository, commits: Sequence[str], paths: Sequence[str]) -> dict[str, list[bytes]]:
    """The names in these commits that read as these paths: bytes that are not UTF-8 are shown with a backslash."""
    found = {path: [os.fsencode(path)] for path in paths}
    if any("\\" in path for path in paths):
        for commit in commits:
            told = await repository.git("ls-tree", "-r", "-z", "--full-tree", "--name-only", commit)
            for name in told.out.split(b"\0"):
                if name not in found.get(readable(name), [name]):
                    found[readable(name)].append(name)
    return found


async def _entries(repository: Repository, commit: str, names: Sequence[bytes]) -> list[bytes]:
    """Mode, kind, hash and name of these files in a commit, as `ls-tree` and `update-index` write them."""
    found: list[bytes] = []
    for at in range(0, len(names), _AT_ONCE):
        some = [os.fsdecode(name) for name in names[at : at + _AT_ONCE]]
        told = await repository.git(
            "ls-tree", "-r", "-z", "--full-tree", commit, "--", *some, env={"GIT_LITERAL_PATHSPECS": "1"}
        )
        found += [entry for entry in told.out.split(b"\0") if entry]
    return found


_AT_ONCE = 500
"""Names on one command line."""

"""A commit put together from two: the code of one, and the files that judge it as they are in the other."""

import os
from collections.abc import Sequence

from untildone.core.base_judges import BaseJudges
from untildone.git.index_file import with_entries
from untildone.git.repository import Repository
from untildone.git.snapshot import commit_tree

_GONE = b"0" * 40
_FILE = b"100644"


async def recombined(repository: Repository, commit: str, other: str, judges: BaseJudges) -> str:
    """The hash of a commit that belongs to no branch. Neither the tree nor the index of the user is touched."""
    entries = [b"0 %b\t%b" % (_GONE, os.fsencode(path)) for path in (*judges.removed, *judges.restored)]
    entries += await _entries(repository, other, judges.restored)
    now = await _entries(repository, commit, tuple(judges.rewritten))
    modes = {entry.partition(b"\t")[2]: entry.partition(b" ")[0] for entry in now}
    for path, text in judges.rewritten.items():
        blob = await repository.git("hash-object", "-w", "--stdin", stdin=text.encode("utf-8", "replace"))
        name = os.fsencode(path)
        entries.append(b"%b %b\t%b" % (modes.get(name, _FILE), blob.text.encode(), name))
    tree = await with_entries(repository, commit, entries)
    said = f"{commit[:10]} with the files that judge it as they are in {other[:10]}"
    return await commit_tree(repository, tree, parents=[commit], message=said)


async def _entries(repository: Repository, commit: str, paths: Sequence[str]) -> list[bytes]:
    """Mode, kind, hash and name of these files in a commit, as `ls-tree` and `update-index` write them."""
    found: list[bytes] = []
    for at in range(0, len(paths), _AT_ONCE):
        some = paths[at : at + _AT_ONCE]
        told = await repository.git(
            "ls-tree", "-r", "-z", "--full-tree", commit, "--", *some, env={"GIT_LITERAL_PATHSPECS": "1"}
        )
        found += [entry for entry in told.out.split(b"\0") if entry]
    return found


_AT_ONCE = 500
"""Names on one command line."""

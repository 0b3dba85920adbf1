"""The git side of the scripted GitHub: real merges in a real bare repository, without a working tree."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from untildone.core.dataclass import dataclass
from untildone.errors import WorkspaceError
from untildone.git.run import GitResult, git

_SOMEBODY = {
    "GIT_AUTHOR_NAME": "forge",
    "GIT_AUTHOR_EMAIL": "forge@localhost",
    "GIT_COMMITTER_NAME": "forge",
    "GIT_COMMITTER_EMAIL": "forge@localhost",
}


class MergeConflict(Exception):
    """Both sides changed the same lines."""


@dataclass(frozen=True, slots=True)
class Branches:
    """The branches of a bare repository. Every call is a plain one, and blocks."""

    path: Path

    def tip(self, branch: str) -> str | None:
        """The newest commit of a branch, if there is one."""
        answer = self._git("rev-parse", "-q", "--verify", f"refs/heads/{branch}^{{commit}}", check=False)
        return answer.text or None

    def count(self, since: str, until: str) -> int:
        """How many commits `until` has that `since` does not have."""
        return int(self._git("rev-list", "--count", f"{since}..{until}").text)

    def has(self, commit: str, path: str) -> bool:
        """Whether a file is in a commit: what a scripted CI may look at."""
        return self._git("cat-file", "-e", f"{commit}:{path}", check=False).code == 0

    def merges_cleanly(self, base: str, head: str) -> bool:
        """Whether git can bring both together."""
        try:
            self._tree(base, head)
        except MergeConflict:
            return False
        return True

    def update(self, branch: str, base: str) -> str:
        """Merge the base into a branch."""
        ours, theirs = self._both(branch, base)
        merged = self._commit(self._tree(ours, theirs), (ours, theirs), f"Merge branch '{base}' into {branch}\n")
        self._move(branch, merged, ours)
        return merged

    def merge(self, base: str, branch: str, *, how: str, message: str) -> str:
        """Bring a branch to the base; the commit that is the base's newest then."""
        tip, head = self._both(base, branch)
        if how == "rebase":
            merged = self._replay(tip, head)
        else:
            parents = (tip, head) if how == "merge" else (tip,)
            merged = self._commit(self._tree(tip, head), parents, message)
        self._move(base, merged, tip)
        return merged

    def delete(self, branch: str) -> bool:
        """Delete a branch; whether there was one."""
        there = self.tip(branch)
        if there is not None:
            self._git("update-ref", "-d", f"refs/heads/{branch}", there)
        return there is not None

    def _both(self, one: str, other: str) -> tuple[str, str]:
        first, second = self.tip(one), self.tip(other)
        if first is None or second is None:
            raise WorkspaceError(f"there is no {one if first is None else other} in {self.path}")
        return first, second

    def _replay(self, onto: str, head: str) -> str:
        for commit in self._git("rev-list", "--reverse", "--no-merges", f"{onto}..{head}").text.split():
            tree = self._picked(onto, commit)
            onto = self._commit(tree, (onto,), self._git("show", "-s", "--format=%B", commit).text + "\n")
        return onto

    def _picked(self, onto: str, commit: str) -> str:
        """The tree of `onto` with what one commit changed; older gits can be given no merge base but a real one."""
        before = self._commit(f"{commit}^^{{tree}}", (), "before\n")
        ours, theirs = (self._commit(f"{one}^{{tree}}", (before,), "after\n") for one in (onto, commit))
        return self._tree(ours, theirs)

    def _tree(self, base: str, head: str) -> str:
        answer = self._git("merge-tree", "--write-tree", base, head, check=False)
        if answer.code == 1:
            raise MergeConflict
        if answer.code:
            raise WorkspaceError(f"git merge-tree failed in {self.path}: {answer.err}")
        return answer.text.partition("\n")[0]

    def _commit(self, tree: str, parents: tuple[str, ...], message: str) -> str:
        args = [part for parent in parents for part in ("-p", parent)]
        return self._git("commit-tree", tree, *args, stdin=message.encode()).text

    def _move(self, branch: str, new: str, old: str) -> None:
        self._git("update-ref", f"refs/heads/{branch}", new, old)

    def _git(self, *args: str, check: bool = True, stdin: bytes | None = None) -> GitResult:
        asked = git(args, cwd=self.path, git_dir=self.path, env=_SOMEBODY, stdin=stdin, check=check)
        with ThreadPoolExecutor(1) as aside:  # whoever rehearses may call from a coroutine
            return aside.submit(asyncio.run, asked).result()

"""What is to be known about an iteration's work before and after the loop commits it."""

import os
from dataclasses import replace

from untildone.git.history import Made
from untildone.git.repository import Repository
from untildone.git.status import Status, in_one_line, readable
from untildone.ports import Settled


def half_way(repository: Repository, status: Status) -> str:
    """What the agent left half-done that a commit would make worse."""
    if status.unmerged:
        return f"not committed: merge conflicts are unresolved in {in_one_line(map(readable, status.unmerged))}"
    git_dir = repository.agents.git_dir
    if any(os.path.lexists(git_dir / mark) for mark in ("rebase-merge", "rebase-apply")):
        return "not committed: a rebase is in progress; finish it with `git rebase --continue` or `--abort`"
    return ""


def with_agents_own(settled: Settled, made: Made, leftovers: set[str]) -> Settled:
    """Add what the agent committed by itself."""
    if not made.commits:
        return settled
    return replace(
        settled,
        by="agent",
        commit=settled.commit or settled.tree.head,
        message=settled.message or made.subject,
        files_changed=len(made.files | leftovers),
    )

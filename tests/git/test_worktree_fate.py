from pathlib import Path

import pytest

from untildone.git.worktree_fate import Worktree, judge

SPENT = {"path": Path("/w"), "branch": "b", "base": "main", "ours": True}


def test_a_tree_of_ours_with_nothing_of_its_own_may_go():
    fate = judge(Worktree(**SPENT))
    assert (fate.reclaimable, fate.why) == (True, "all of it is in main; the branch is kept")


@pytest.mark.parametrize(
    ("fact", "why"),
    [
        ({"main": True}, "it is the repository's own tree"),
        ({"ours": False}, "it was not made by untildone"),
        ({"live": True}, "a run is at work in it"),
        ({"locked": True}, "it is locked: `git worktree unlock` frees it"),
        ({"under_way": "rebase"}, "a rebase is in progress in it"),
        ({"dirty": 1}, "1 file is not committed"),
        ({"base": None}, "nobody knows where its work is to go: there is no base branch"),
        ({"unmerged": 2}, "2 commits are not in main"),
    ],
)
def test_each_reason_alone_keeps_it(fact, why):
    fate = judge(Worktree(**{**SPENT, **fact}))
    assert not fate.reclaimable
    assert fate.why == why


def test_a_folder_that_is_gone_holds_nothing_but_a_live_run_still_counts():
    assert judge(Worktree(**SPENT, gone=True, dirty=3, unmerged=3)).reclaimable
    assert not judge(Worktree(**SPENT, gone=True, live=True)).reclaimable

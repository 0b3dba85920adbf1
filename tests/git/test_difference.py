"""How two trees differ, as facts to tell."""

from itertools import pairwise

import pytest

from untildone.core.diffs import FULL_CHARS, ChangedFile
from untildone.git.difference import MOST_FILES, MOST_NAMED

pytestmark = pytest.mark.anyio


async def test_counts_kinds_and_the_diff(repo, open_in, git_calls):
    repo.write("gone.txt", "a\nb\n")
    repo.write("kept.txt", "a\nb\nc\n")
    start = repo.commit("start")
    (repo.path / "gone.txt").unlink()
    repo.write("kept.txt", "a\nB\nc\nd\n")
    repo.write("n\tü.txt", "new\n")
    (repo.path / "image").write_bytes(b"\0\1")
    end = repo.commit("end")
    workspace = await open_in(repo)
    git_calls()
    seen = await workspace.difference(start, end)
    assert len(git_calls()) == 1
    assert set(seen.files) == {
        ChangedFile(file_path="gone.txt", change_type="deleted", lines_added=0, lines_removed=2),
        ChangedFile(file_path="kept.txt", lines_added=2, lines_removed=1),
        ChangedFile(file_path="n\tü.txt", change_type="created", lines_added=1, lines_removed=0),
        ChangedFile(file_path="image", change_type="created"),
    }
    assert (seen.files_changed, seen.facts.lines_added, seen.facts.lines_removed) == (4, 3, 3)
    assert seen.facts.full_diff is not None
    assert "-b\n+B\n" in seen.facts.full_diff
    assert seen.facts.diff_preview.startswith("diff --git a/gone.txt b/gone.txt\n")


async def test_nothing_differs(repo, open_in):
    head = repo.git("rev-parse", "HEAD")
    seen = await (await open_in(repo)).difference(head, head)
    assert (seen.files, seen.files_changed, seen.facts.full_diff) == ((), 0, "")


async def test_a_large_change_is_told_in_part(repo, open_in):
    start = repo.git("rev-parse", "HEAD")
    for number in range(MOST_FILES + 5):
        repo.write(f"d/{number}.txt", "some words\n" * 100)
    end = repo.commit("end")
    seen = await (await open_in(repo)).difference(start, end)
    assert (len(seen.files), seen.files_changed) == (MOST_FILES, MOST_FILES + 5)
    assert seen.facts.lines_added == 100 * (MOST_FILES + 5)
    assert (seen.facts.full_diff, seen.facts.full_diff_available) == (None, False)
    assert seen.facts.full_diff_size > FULL_CHARS


@pytest.mark.parametrize("commit", [True, False])
async def test_each_iteration_is_compared_with_the_one_before(repo, open_in, commit):
    workspace = await open_in(repo, commit=commit)
    await workspace.prepare()
    for number in (1, 2):
        before = await workspace.observe()
        repo.write(f"{number}.txt", "x\n")
        settled = await workspace.settle(before, iteration_num=number, message="m")
        seen = await workspace.difference(settled.previous, settled.snapshot_commit)
        assert [file.file_path for file in seen.files] == [f"{number}.txt"]


async def test_a_change_is_named_by_one_process_without_the_notes_and_only_while_it_is_small(repo, open_in, git_calls):
    workspace, commits = await open_in(repo), [repo.git("rev-parse", "HEAD")]
    for number, line in enumerate(["at 12:30:01 nothing\n", "at 12:31:59 nothing\n", "at 12:32:07 a page\n"]):
        repo.write("log.txt", (repo.path / "log.txt").read_text() + line if number else line)
        repo.write("SHARED_TASK_NOTES.md", f"other words {'x' * number}")
        commits.append(repo.commit(line))
    git_calls()
    names = [await workspace.change(one, two) for one, two in pairwise(commits)]
    assert len(git_calls()) == 3
    assert names[0] == names[1] != names[2]
    for name in ("one", "two"):
        repo.write(f"{name}.txt", "a line of a large file\n" * (MOST_NAMED // 40))
    assert await workspace.change(commits[-1], repo.commit("large")) == ""

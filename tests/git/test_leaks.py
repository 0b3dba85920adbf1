"""Secrets on their way into commits: none is committed by the loop, none that the agent committed goes unseen."""

import pytest

from untildone.core.contract import Contract
from untildone.git.leaks import MOST_BYTES, Added, committed_secrets
from untildone.git.repository import open_repository

pytestmark = pytest.mark.anyio

KEY = "gh" + "p_" + "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0eF3hJ6"


async def test_the_loop_does_not_commit_a_key(repo, open_in):
    workspace = await open_in(repo, keep_dirty=True)
    await workspace.prepare()
    head = repo.git("rev-parse", "HEAD")
    before = await workspace.observe()
    repo.write("src/app.py", f'import os\n\nTOKEN = "{KEY}"\n')
    settled = await workspace.settle(before, iteration_num=1, message="Add the token")
    assert settled.commit is None
    assert settled.left == ("src/app.py",)
    assert "src/app.py:3 (GitHub token: ghp_…" in settled.warning
    assert KEY not in settled.warning
    assert repo.git("rev-parse", "HEAD") == head
    assert repo.git("diff", "--cached", "--name-only") == ""
    repo.write("src/app.py", 'import os\n\nTOKEN = os.environ["TOKEN"]\n')
    assert (await workspace.settle(before, iteration_num=2, message="Take it out")).commit is not None


async def test_a_waived_file_may_hold_one(repo, open_in):
    workspace = await open_in(repo, contract=Contract(waive=("src/*",)))
    await workspace.prepare()
    before = await workspace.observe()
    repo.write("src/app.py", f'TOKEN = "{KEY}"\n')
    assert (await workspace.settle(before, iteration_num=1, message="m")).commit is not None


async def test_a_human_may_waive_it_later(repo, open_in):
    workspace = await open_in(repo)
    await workspace.prepare()
    before = await workspace.observe()
    repo.write("src/app.py", f'TOKEN = "{KEY}"\n')
    assert (await workspace.settle(before, iteration_num=1, message="m")).commit is None
    assert (await workspace.settle(before, iteration_num=2, message="m", waived=("src/app.py",))).commit is not None
    start = repo.git("rev-parse", "HEAD~1")
    assert [f.blocking for f in await workspace.leaks(start, "HEAD")] == [True]
    assert [f.blocking for f in await workspace.leaks(start, "HEAD", ("src/app.py",))] == [False]


async def test_a_plain_folder_may_hold_its_users_keys(plain, open_in):
    plain.write(".env", f"TOKEN={KEY}\n")
    workspace = await open_in(plain)
    await workspace.prepare()
    before = await workspace.observe()
    plain.write("a.py", "1\n")
    assert (await workspace.settle(before, iteration_num=1, message="m")).commit is not None


async def test_what_the_agent_committed_is_found_even_if_taken_out_again(repo, private):
    start = repo.git("rev-parse", "HEAD")
    repo.write("tests/data/ü x.txt", f"one\n{KEY}\n")
    repo.commit("oops")
    repo.write("tests/data/ü x.txt", "one\n")
    end = repo.commit("taken out")
    repository = await open_repository(repo.path, private=private)
    (found,) = await committed_secrets(repository, start, end)
    assert (found.kind, found.place, found.blocking) == ("secret", "tests/data/ü x.txt:2", True)
    (let_pass,) = await committed_secrets(repository, start, end, ("tests/data",))
    assert not let_pass.blocking


async def test_what_was_there_before_or_is_on_a_remote_is_not_the_runs(repo, private, tmp_path):
    repo.write("old.txt", f"{KEY}\n")
    start = repo.commit("start")
    repo.write("b.txt", f"{KEY}\n")
    pushed = repo.commit("by somebody else")
    repo.git("init", "-q", "--bare", str(tmp_path / "remote.git"))
    repo.git("remote", "add", "origin", str(tmp_path / "remote.git"))
    repo.git("push", "-q", "origin", "HEAD:refs/heads/main")
    repo.git("fetch", "-q", "origin")
    repo.git("mv", "old.txt", "moved.txt")
    repo.git("rm", "-q", "b.txt")
    end = repo.commit("end")
    repository = await open_repository(repo.path, private=private)
    found = await committed_secrets(repository, start, end)
    assert pushed
    assert [finding.place for finding in found] == ["moved.txt:1"]


def merge_by_hand(repo, *branches):
    """A merge that is about to be committed, with whatever is added to it."""
    repo.git("merge", "-q", "--no-ff", "--no-commit", *branches)


async def test_a_key_that_a_merge_itself_adds_is_found(repo, private):
    start = repo.git("rev-parse", "HEAD")
    repo.write("a.txt", "".join(f"{n}\n" for n in range(20)))
    numbers = repo.commit("numbers")
    for name, number in (("one", 3), ("two", 17)):
        repo.git("checkout", "-q", "-b", name, numbers)
        repo.write("a.txt", "".join(f"{n}{name if n == number else ''}\n" for n in range(20)))
        repo.commit(name)
    repo.git("checkout", "-q", "-b", "three", numbers)
    repo.write("c.txt", "c\n")
    repo.commit("three")
    merge_by_hand(repo, "one", "two")
    merged = (repo.path / "a.txt").read_text()
    assert "3one\n" in merged
    assert "17two\n" in merged
    repo.write("a.txt", merged.replace("10\n", f"10\n{KEY}\n"))
    repo.write("ü new.txt", f"one\n{KEY}")
    end = repo.commit("evil")
    assert len(repo.git("log", "-1", "--format=%P").split()) == 3
    repository = await open_repository(repo.path, private=private)
    found = await committed_secrets(repository, start, end)
    assert [finding.place for finding in found] == ["a.txt:12", "ü new.txt:2"]


async def test_of_a_merge_only_its_own_lines_are_read(repo, private, monkeypatch, tmp_path):
    start = repo.git("rev-parse", "HEAD")
    repo.git("checkout", "-q", "-b", "ours")
    repo.write("work.txt", "work\n")
    repo.commit("work")
    repo.git("checkout", "-q", "-b", "theirs", start)
    repo.write("news.txt", f"{KEY}\n" + "somebody else's\n" * 5000)
    repo.commit("news of the base")
    repo.git("init", "-q", "--bare", str(tmp_path / "remote.git"))
    repo.git("remote", "add", "origin", str(tmp_path / "remote.git"))
    repo.git("push", "-q", "origin", "theirs")
    repo.git("fetch", "-q", "origin")
    repo.git("checkout", "-q", "ours")
    merge_by_hand(repo, "theirs")
    repo.write("work.txt", f"work\n{KEY}\n")
    end = repo.commit("evil")
    monkeypatch.setattr("untildone.git.leaks.MOST_BYTES", 2000)
    found = await committed_secrets(await open_repository(repo.path, private=private), start, end)
    assert [(finding.place, finding.blocking) for finding in found] == [("work.txt:2", True)]


async def test_of_a_binary_the_words_are_read_and_a_large_file_is_told(repo, private):
    start = repo.git("rev-parse", "HEAD")
    (repo.path / "image.png").write_bytes(b"\x89PNG\0" + KEY.encode() + b"\0\xff")
    repo.write("big.txt", f"{KEY}\n" + "x" * (1 << 20))
    end = repo.commit("end")
    found = await committed_secrets(await open_repository(repo.path, private=private), start, end)
    assert [(finding.path, finding.blocking) for finding in found] == [("image.png", True), ("big.txt", False)]
    assert "not looked at" in found[1].text


@pytest.mark.parametrize("place", [".gitattributes", ".git/info/attributes"])
async def test_saying_that_a_file_has_no_lines_hides_nothing(repo, open_in, private, place):
    workspace = await open_in(repo)
    start = (await workspace.prepare()).start
    before = await workspace.observe()
    repo.write(place, "*.txt -diff\n")
    repo.write("a.txt", f"one\n{KEY}\n")
    settled = await workspace.settle(before, iteration_num=1, message="m")
    assert "a.txt:2 (GitHub token" in settled.warning
    end = repo.commit("by the agent")
    found = await committed_secrets(await open_repository(repo.path, private=private), start, end)
    assert [(finding.place, finding.blocking) for finding in found] == [("a.txt:2", True)]


async def test_of_a_file_that_shows_no_lines_what_was_there_before_is_not_new(repo, private):
    repo.write(".gitattributes", "*.txt -diff\n")
    repo.write("a.txt", f"one\n{KEY}\n")
    start = repo.commit("before")
    repo.write("a.txt", f"zero\none\n{KEY}\n")
    end = repo.commit("end")
    assert await committed_secrets(await open_repository(repo.path, private=private), start, end) == []


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
async def test_in_whatever_encoding_a_key_is_one(repo, private, encoding):
    start = repo.git("rev-parse", "HEAD")
    (repo.path / "a.txt").write_bytes(f"one\ntwo {KEY} three\n".encode(encoding))
    end = repo.commit("end")
    found = await committed_secrets(await open_repository(repo.path, private=private), start, end)
    assert [(finding.path, finding.blocking) for finding in found] == [("a.txt", True)]


async def test_a_ref_that_says_a_remote_has_it_is_not_believed(repo, private, tmp_path):
    repo.git("init", "-q", "--bare", str(tmp_path / "remote.git"))
    repo.git("remote", "add", "origin", str(tmp_path / "remote.git"))
    start = repo.git("rev-parse", "HEAD")
    repo.write("a.txt", f"{KEY}\n")
    end = repo.commit("end")
    for remote in ("origin", "nowhere"):
        repo.git("update-ref", f"refs/remotes/{remote}/x", end)
    repository = await open_repository(repo.path, private=private)
    assert [finding.place for finding in await committed_secrets(repository, start, end)] == ["a.txt:1"]
    repo.git("replace", repo.git("rev-parse", f"{end}:a.txt"), repo.git("hash-object", "-w", ".git/HEAD"))
    assert [finding.place for finding in await committed_secrets(repository, start, end)] == ["a.txt:1"]


async def test_messages_and_names_of_files_are_read_too(repo, private):
    start = repo.git("rev-parse", "HEAD")
    repo.write(f"keys/{KEY}", "empty\n")
    end = repo.commit(f"Use it\n\nwith {KEY}")
    named, said = await committed_secrets(await open_repository(repo.path, private=private), start, end)
    assert (named.blocking, said.blocking) == (True, True)
    assert named.text.startswith("name of a file: GitHub token")
    assert said.path == f"message of commit {end[:7]}"
    assert KEY not in repr((named, said))


async def test_the_users_settings_of_diff_do_not_hide_a_key(repo, open_in):
    settings = {
        "diff.external": "true", "diff.noprefix": "true", "color.ui": "always", "diff.mnemonicPrefix": "true",
        "core.quotePath": "false", "diff.submodule": "log", "diff.context": "9", "diff.relative": "true",
    }  # fmt: skip
    for name, value in settings.items():
        repo.git("config", name, value)
    workspace = await open_in(repo)
    await workspace.prepare()
    before = await workspace.observe()
    repo.write('a "b"\n c.py', f"x\n{KEY}\n")
    assert ":2 (GitHub token" in (await workspace.settle(before, iteration_num=1, message="m")).warning


def test_content_cannot_pass_for_a_header():
    diff = b"diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -0,0 +1,3 @@\n+diff --git a/x b/x\n+@@ -1 +1 @@\n+++ b/y\n"
    assert list(Added(diff).lines()) == [("a", 1, "diff --git a/x b/x"), ("a", 2, "@@ -1 +1 @@"), ("a", 3, "++ b/y")]


def test_in_a_merge_a_line_of_one_parent_is_not_new():
    diff = (
        b"diff --cc a b\n@@@ -1,2 -1,2 +1,4 @@@ x\n  both\n+ theirs\n +ours\n--gone\n++new\n"
        b"diff --cc c\n@@@ -1,0 -1,0 +7,2 @@@\n++diff --cc x\n++++ b/y\nBinary files differ\n"
    )
    added = Added(diff)
    assert list(added.lines()) == [("a b", 4, "new"), ("c", 7, "diff --cc x"), ("c", 8, "++ b/y")]
    assert [blob.path for blob in added.unshown] == ["c"]


def test_a_cut_diff_is_read_as_far_as_it_goes():
    diff = b"diff --git a/a b/a\n@@ -1,2 +5,900 @@ def x\n-a\n-b\n+one\n+tw"
    assert list(Added(diff).lines()) == [("a", 5, "one"), ("a", 6, "tw")]


async def test_what_is_beyond_the_cap_is_said(repo, private, monkeypatch):
    start = repo.git("rev-parse", "HEAD")
    repo.write("a.txt", f"{KEY}\n" + "word " * 2000)
    end = repo.commit("end")
    monkeypatch.setattr("untildone.git.leaks.MOST_BYTES", 1000)
    found = await committed_secrets(await open_repository(repo.path, private=private), start, end)
    assert [finding.blocking for finding in found] == [True, False]
    assert MOST_BYTES > 1000

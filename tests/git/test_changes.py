"""How wanted files differ between two commits."""

import os

import pytest

from untildone.git.changes import MOST_BYTES

pytestmark = pytest.mark.anyio


def everything(path: str) -> bool:
    return True


async def test_added_modified_deleted_renamed(repo, open_in):
    repo.write("tests/test_a.py", "def test_a():\n    assert 1\n" * 5)
    repo.write("tests/test_b.py", "old\n")
    repo.write("gone.py", "gone\n")
    start = repo.commit("start")
    repo.git("mv", "tests/test_a.py", "tests/test_moved.py")
    repo.write("tests/test_b.py", "new\n")
    (repo.path / "gone.py").unlink()
    repo.write("new.py", "new\n")
    end = repo.commit("end")
    changes = await (await open_in(repo)).changes(start, end, everything)
    told = {change.path: (change.status, change.old_path, change.before, change.after) for change in changes}
    text = "def test_a():\n    assert 1\n" * 5
    assert told == {
        "gone.py": ("deleted", "", "gone\n", None),
        "new.py": ("added", "", None, "new\n"),
        "tests/test_b.py": ("modified", "", "old\n", "new\n"),
        "tests/test_moved.py": ("renamed", "tests/test_a.py", text, text),
    }


async def test_only_wanted_files_are_read_and_nothing_else_costs_a_call(repo, open_in, git_calls):
    start = repo.commit("start") if repo.write("a.py") else ""
    repo.write("a.py", "changed\n")
    end = repo.commit("end")
    workspace = await open_in(repo)
    git_calls()
    assert await workspace.changes(start, end, lambda path: path.startswith("tests/")) == []
    assert len(git_calls()) == 1
    assert len(await workspace.changes(start, end, everything)) == 1
    assert len(git_calls()) == 3


async def test_a_file_renamed_from_a_wanted_name_is_wanted(repo, open_in):
    repo.write("test_a.py", "def test_a():\n    assert 1\n" * 5)
    start = repo.commit("start")
    repo.git("mv", "test_a.py", "a.txt")
    end = repo.commit("end")
    (change,) = await (await open_in(repo)).changes(start, end, lambda path: path.startswith("test_"))
    assert (change.path, change.old_path, change.status) == ("a.txt", "test_a.py", "renamed")


async def test_odd_names(repo, open_in):
    names = ['with "quotes"', "with\nnewline", "with\ttab", " lead", "ü.py", "-dash", "a => b"]
    start = repo.git("rev-parse", "HEAD")
    for name in names:
        repo.write(name, f"{len(name)}\n")
    (repo.path / os.fsdecode(b"not-\xff-utf8")).write_text("x\n")
    end = repo.commit("end")
    changes = await (await open_in(repo)).changes(start, end, everything)
    assert {change.path: change.after for change in changes} == {
        **{name: f"{len(name)}\n" for name in names},
        "not-\\xff-utf8": "x\n",
    }


async def test_what_cannot_be_shown_is_told_without_text(repo, open_in):
    start = repo.git("rev-parse", "HEAD")
    (repo.path / "binary").write_bytes(b"a\0b")
    repo.write("huge.py", "x" * (MOST_BYTES + 1))
    repo.write("largest.py", "y" * MOST_BYTES)
    (repo.path / "link").symlink_to("huge.py")
    (repo.path / "latin").write_bytes(b"caf\xe9\n")
    repo.write("empty", "")
    repo.git("update-index", "--add", "--cacheinfo", f"160000,{start},module")
    repo.git("add", "-A", "--", "binary", "huge.py", "largest.py", "link", "latin", "empty")
    repo.git("commit", "-q", "-m", "end")
    changes = await (await open_in(repo)).changes(start, repo.git("rev-parse", "HEAD"), everything)
    told = {change.path: change.after for change in changes}
    assert told.pop("largest.py") == "y" * MOST_BYTES
    assert told == {"binary": None, "huge.py": None, "link": None, "latin": "caf\ufffd\n", "module": None, "empty": ""}


async def test_a_change_of_mode_alone(repo, open_in):
    repo.write("run.sh", "x\n")
    start = repo.commit("start")
    (repo.path / "run.sh").chmod(0o755)
    end = repo.commit("end")
    (change,) = await (await open_in(repo)).changes(start, end, everything)
    assert (change.status, change.before, change.after) == ("modified", "x\n", "x\n")


async def test_the_users_settings_of_diff_do_not_matter(repo, open_in):
    for name, value in {"diff.external": "false", "diff.noprefix": "true", "diff.renames": "false"}.items():
        repo.git("config", name, value)
    repo.write("a.py", "line\n" * 20)
    start = repo.commit("start")
    repo.git("mv", "a.py", "b.py")
    end = repo.commit("end")
    (change,) = await (await open_in(repo)).changes(start, end, everything)
    assert change.status == "renamed"

"""A fresh checkout is the commit, whatever was set up in the repository meanwhile."""

import os
import subprocess
import zlib
from pathlib import Path

import pytest

from untildone.errors import CommitUnfit

pytestmark = pytest.mark.anyio


def replace_blob(repo):
    repo.git("replace", repo.git("rev-parse", "HEAD:a.txt"), repo.git("hash-object", "-w", "README.md"))


def replace_commit(repo):
    repo.git("replace", "HEAD", repo.git("commit-tree", "HEAD~1^{tree}", "-m", "x"))


def filter_in(place):
    def go(repo):
        repo.git("config", "filter.x.smudge", "sed s/bad/good/")
        repo.git("config", "filter.x.clean", "cat")
        repo.write(place, "* filter=x\n")

    return go


def attributes_file(repo):
    filter_in(".git/attrs")(repo)
    repo.git("config", "core.attributesFile", str(repo.path / ".git/attrs"))


def filter_of_the_home(repo):
    Path.home().joinpath(".gitconfig").write_text('[filter "y"]\n\tsmudge = sed s/bad/good/\n\tclean = cat\n')


def setting(*pair):
    return lambda repo: repo.git("config", *pair)


TRICKS = {
    "replace-blob": replace_blob, "replace-commit": replace_commit, "info": filter_in(".git/info/attributes"),
    "attributesFile": attributes_file, "home": filter_of_the_home, "autocrlf": setting("core.autocrlf", "true"),
    "eol": setting("core.eol", "crlf"), "symlinks": setting("core.symlinks", "false"),
    "sparse": lambda repo: repo.git("sparse-checkout", "set", "--no-cone", "/*", "!/t/"),
    "assume": lambda repo: repo.git("update-index", "--skip-worktree", "a.txt"),
}  # fmt: skip


def content(folder):
    files = sorted(path for path in Path(folder).rglob("*") if ".git" not in path.parts and not path.is_dir())
    return {
        str(path.relative_to(folder)): str(path.readlink()) if path.is_symlink() else path.read_bytes()
        for path in files
    }


@pytest.mark.parametrize("trick", TRICKS)
async def test_what_is_set_up_in_the_repository_changes_no_checkout(repo, open_in, tmp_path, trick):
    workspace = await open_in(repo)
    repo.write(".gitattributes", "*.auto text=auto\n*.home filter=y\n")
    for name in ("a.txt", "b.auto", "c.home", "t/fails.sh"):
        repo.write(name, "bad\n")
    (repo.path / "link").symlink_to("nowhere")
    commit = repo.commit("work")
    subprocess.run(["git", "clone", "-q", str(repo.path), str(tmp_path / "clone")], check=True, timeout=240)
    truth = content(tmp_path / "clone")
    TRICKS[trick](repo)
    async with workspace.rooms(tmp_path / "rooms").open(commit) as room:
        assert content(room.folder) == truth


async def test_what_the_commit_asks_for_is_done_and_filters_of_the_start_are_kept(repo, open_in, tmp_path):
    repo.git("config", "filter.rot.smudge", "tr a-z n-za-m")
    repo.git("config", "filter.rot.clean", "tr a-z n-za-m")
    repo.git("config", "filter.one-way.smudge", "sed s/plain/dated/")
    repo.write(".gitattributes", "*.bat text eol=crlf\n*.rot filter=rot\n*.way filter=one-way\n*.id ident\n")
    repo.write("a.bat", "one\ntwo\n")
    repo.write("b.rot", "plain\n")
    repo.write("c.way", "plain\n")
    repo.write("d.id", "$Id$\n")
    commit = repo.commit("work")
    async with (await open_in(repo)).rooms(tmp_path / "rooms").open(commit) as room:
        found = content(room.folder)
        assert found["a.bat"] == b"one\r\ntwo\r\n"
        assert found["b.rot"] == b"plain\n"
        assert found["c.way"] == b"dated\n"
        assert found["d.id"].startswith(b"$Id: ")
        assert await room.put_back() == ()
        assert subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=room.folder, text=True).strip() == commit


async def test_an_object_that_was_forged_is_noticed(repo, open_in, tmp_path):
    repo.write("a.txt", "bad\n")
    commit = repo.commit("work")
    oid = repo.git("rev-parse", "HEAD:a.txt")
    place = repo.path / ".git/objects" / oid[:2] / oid[2:]
    place.chmod(0o644)
    place.write_bytes(zlib.compress(b"blob 5\0good\n"))
    with pytest.raises(CommitUnfit, match=r"a\.txt cannot be checked out as the commit has it"):
        async with (await open_in(repo)).rooms(tmp_path / "rooms").open(commit):
            raise AssertionError("opened")


async def test_files_of_the_commit_are_put_back_and_told(repo, open_in, tmp_path):
    repo.write("a.txt", "as committed\n")
    repo.write("gone.txt")
    repo.write("sub/ü\n x.sh").chmod(0o755)
    commit = repo.commit("work")
    async with (await open_in(repo)).rooms(tmp_path / "rooms").open(commit) as room:
        folder = Path(room.folder)
        before = content(folder)
        times = (folder / "a.txt").stat()
        (folder / "a.txt").write_text("as rewritten\n")
        os.utime(folder / "a.txt", ns=(times.st_atime_ns, times.st_mtime_ns))
        (folder / "gone.txt").unlink()
        (folder / "gone.txt").mkdir()
        (folder / "sub" / "ü\n x.sh").chmod(0o644)
        (folder / "made.txt").write_text("not of the commit\n")
        (folder / ".git").write_text("gitdir: /nowhere\n")
        assert sorted(await room.put_back()) == ["a.txt", "gone.txt", "sub/ü\n x.sh"]
        assert content(folder) == {**before, "made.txt": b"not of the commit\n"}
        assert (folder / "sub" / "ü\n x.sh").stat().st_mode & 0o100
        assert await room.put_back() == ()


async def test_what_the_setup_made_is_kept_from_then_on(repo, open_in, tmp_path):
    repo.write("lock.json", "{}\n")
    commit = repo.commit("work")
    async with (await open_in(repo)).rooms(tmp_path / "rooms").open(commit) as room:
        lock = Path(room.folder) / "lock.json"
        lock.write_text('{"made": 1}\n')
        assert await room.keep() == ("lock.json",)
        lock.write_text("spoilt\n")
        assert await room.put_back() == ("lock.json",)
        assert lock.read_text() == '{"made": 1}\n'

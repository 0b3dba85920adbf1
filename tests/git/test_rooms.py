"""Fresh checkouts: exactly the commit, nobody disturbed, and nothing left."""

import asyncio
import shutil
import signal
import sys
from pathlib import Path

import pytest

from git.conftest import Project
from patience import PATIENCE, soon
from untildone.errors import CommitUnfit, WorkspaceError
from untildone.git.discard import GONE
from untildone.git.rooms import CommitRooms, sweep_abandoned

pytestmark = pytest.mark.anyio


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Where the rooms of all runs are."""
    return tmp_path / "state" / "rooms"


@pytest.fixture
def rooms_of(open_in, root):
    async def opened(project: Project, **how) -> CommitRooms:
        return (await open_in(project, **how)).rooms(root)

    return opened


async def nothing_left(project: Project, root: Path) -> None:
    """Removing is done by a process of its own, which takes a moment."""
    assert not (project.path / ".git" / "worktrees").exists()
    assert [place for place in listed(root) if not place.startswith(GONE)] == []
    await soon(lambda: not listed(root))


def listed(root: Path) -> list[str]:
    return [place.name for place in root.iterdir()] if root.exists() else []


def facts(project: Project) -> dict[str, bytes]:
    """Every file of the tree and of git's own folder, but for objects: they are only ever added."""
    return {
        str(path.relative_to(project.path)): path.read_bytes()
        for path in project.path.rglob("*")
        if path.is_file() and "objects" not in path.parts
    }


def names(folder: str) -> list[str]:
    return sorted(path.name for path in Path(folder).iterdir() if path.name != ".git")


async def test_a_room_holds_the_commit_and_nothing_else_and_disturbs_nobody(repo, rooms_of, root):
    repo.write(".gitignore", "build\n")
    first = repo.commit("first")
    repo.write("later")
    repo.commit("second")
    repo.write("README.md", "uncommitted\n")
    repo.git("stash")
    repo.write("README.md", "uncommitted again\n")
    repo.write("build", "ignored\n")
    repo.write("untracked")
    before = facts(repo)
    rooms = await rooms_of(repo)
    async with rooms.open(first) as room:
        assert names(room.folder) == [".gitignore", "README.md"]
        assert (Path(room.folder) / "README.md").read_text() == "hello\n"
        there = Project(Path(room.folder))
        assert there.git("rev-parse", "HEAD") == first
        assert there.git("status", "--porcelain") == ""
        assert room.notes == ()
    assert facts(repo) == before
    await nothing_left(repo, root)


async def test_the_repository_learns_nothing_of_a_room_and_its_hooks_do_not_run(repo, rooms_of):
    repo.hook("post-checkout", "touch called")
    repo.git("tag", "v1")
    before = facts(repo)
    rooms = await rooms_of(repo, run_id="r7")
    async with rooms.open("HEAD") as room:
        there = Project(Path(room.folder))
        assert there.git("describe", "--tags") == "v1"
        there.git("config", "core.fsmonitor", "false")
        there.git("config", "filter.x.smudge", "touch called")
        there.git("tag", "made-in-the-room")
        (Path(room.folder) / "README.md").write_text("changed\n")
        assert await room.put_back() == ("README.md",)
    assert not (repo.path / "called").exists()
    assert facts(repo) == before


async def test_every_tree_of_the_repository_and_links_out_of_the_commit_are_told(repo, rooms_of, tmp_path):
    (repo.path / "inside").symlink_to("README.md")
    (repo.path / "out").symlink_to("../elsewhere")
    (repo.path / "far").symlink_to(str(repo.path / "README.md"))
    commit = repo.commit()
    repo.git("worktree", "add", "-q", "--detach", str(tmp_path / "second"))
    repo.git("worktree", "add", "-q", "--detach", str(tmp_path / "gone"))
    shutil.rmtree(tmp_path / "gone")
    async with (await rooms_of(repo)).open(commit) as room:
        assert room.trees == (str(repo.path), str(tmp_path / "second"))
        assert sorted(room.leads_out) == ["far", "out"]


async def test_two_rooms_at_once_do_not_know_each_other(repo, rooms_of, root):
    second = repo.write("later") and repo.commit()
    rooms = await rooms_of(repo)
    async with rooms.open("HEAD~1") as old, rooms.open(second) as new:
        assert (names(old.folder), names(new.folder)) == (["README.md"], ["README.md", "later"])
    await nothing_left(repo, root)


async def test_an_agent_below_the_top_gets_the_same_folder_of_the_room(repo, rooms_of):
    repo.write("packages/one/file")
    commit = repo.commit()
    rooms = await rooms_of(repo, cwd=repo.path / "packages" / "one")
    async with rooms.open(commit) as room:
        assert names(room.folder) == ["file"]
    async with rooms.open(f"{commit}~1") as room:
        assert names(room.folder) == []


async def test_a_folder_that_became_a_link_to_elsewhere_is_the_commits_own_fault(repo, rooms_of, root, tmp_path):
    repo.write("sub/file")
    repo.commit()
    rooms = await rooms_of(repo, cwd=repo.path / "sub")
    shutil.rmtree(repo.path / "sub")
    (repo.path / "sub").symlink_to(tmp_path)
    commit = repo.commit()
    with pytest.raises(CommitUnfit, match="leads out of the repository"):
        async with rooms.open(commit):
            raise AssertionError("opened")
    await nothing_left(repo, root)


async def test_a_plain_folder_has_rooms_without_any_git_in_them(plain, open_in, root, private):
    plain.write("src/a", "one\n")
    plain.write("node_modules/x")
    workspace = await open_in(plain)
    start = (await workspace.prepare()).start
    async with workspace.rooms(root).open(start) as room:
        assert listed(Path(room.folder)) == ["src"]
    assert list(private.glob("*.git/worktrees")) == []
    await nothing_left(plain, root)


async def test_an_unknown_commit_is_one_line_and_leaves_nothing(repo, rooms_of, root):
    with pytest.raises(WorkspaceError, match="there is no commit 0000"):
        async with (await rooms_of(repo)).open("0" * 40):
            raise AssertionError("opened")
    await nothing_left(repo, root)


# --- submodules ------------------------------------------------------------------------------------------


@pytest.fixture
def with_submodules(repo, tmp_path, monkeypatch):
    """`repo` with submodule `lib/outer`, which has submodule `inner`; where they came from is gone."""
    monkeypatch.setenv("GIT_ALLOW_PROTOCOL", "file")
    for name in ("inner", "outer"):
        origin = Project(tmp_path / f"origin-{name}")
        origin.init()
        origin.write(f"{name}.txt")
        origin.commit()
        if name == "outer":
            origin.git("submodule", "--quiet", "add", str(tmp_path / "origin-inner"), "inner")
            origin.commit("with inner")
    repo.git("submodule", "--quiet", "add", str(tmp_path / "origin-outer"), "lib/outer")
    repo.git("submodule", "--quiet", "update", "--init", "--recursive")
    repo.commit("with outer")
    for name in ("inner", "outer"):
        shutil.rmtree(tmp_path / f"origin-{name}")
    return repo


def module_entries(project: Project) -> list[Path]:
    return list((project.path / ".git" / "modules").rglob("worktrees"))


async def test_initialised_submodules_are_there_without_a_network(with_submodules, rooms_of, root):
    repo = with_submodules
    before = facts(repo)
    async with (await rooms_of(repo)).open("HEAD") as room:
        outer = Path(room.folder) / "lib" / "outer"
        assert names(str(outer)) == [".gitmodules", "inner", "outer.txt"]
        assert names(str(outer / "inner")) == ["inner.txt"]
        assert Project(Path(room.folder)).git("status", "--porcelain") == ""
    assert facts(repo) == before
    assert module_entries(repo) == []
    await nothing_left(repo, root)


async def test_a_submodule_that_is_not_initialised_is_as_empty_as_in_a_clone(with_submodules, rooms_of):
    with_submodules.git("submodule", "--quiet", "deinit", "-f", "lib/outer")
    async with (await rooms_of(with_submodules)).open("HEAD") as room:
        assert listed(Path(room.folder) / "lib" / "outer") == []


async def test_a_repository_that_gitmodules_does_not_name_is_empty_as_in_a_clone(repo, rooms_of):
    own = Project(repo.path / "own")
    own.init()
    own.write("only-here")
    own.commit()
    repo.git("add", "own")
    repo.git("commit", "-qm", "a repository of the agent's")
    async with (await rooms_of(repo)).open("HEAD") as room:
        assert listed(Path(room.folder) / "own") == []
        assert room.notes == ("empty, as in every clone, because .gitmodules names no address for them: own",)


async def test_a_submodule_at_a_commit_that_nobody_has(with_submodules, rooms_of, root):
    repo = with_submodules
    repo.git("update-index", "--cacheinfo", f"160000,{'a' * 40},lib/outer")
    repo.git("commit", "-qm", "nowhere")
    with pytest.raises(CommitUnfit, match="submodule lib/outer is meant to be at aaaaaaaaaa"):
        async with (await rooms_of(repo)).open("HEAD"):
            raise AssertionError("opened")
    await nothing_left(repo, root)


# --- filters ---------------------------------------------------------------------------------------------

OID = "d35c416a85b807e9b5384915d6ebb4a9f7352713efd89857b45a242f473728a9"
POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{OID}\nsize 5\n"


async def test_large_files_are_there_if_they_are_here_and_otherwise_told(repo, rooms_of):
    repo.write("assets/.gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n")
    repo.write("assets/here.bin", POINTER)
    repo.write("assets/away.bin", POINTER.replace(OID[:4], "ffff"))
    (repo.path / "assets" / "link.bin").symlink_to("../../elsewhere")
    (repo.path.parent / "elsewhere").write_text(POINTER)
    commit = repo.commit()
    repo.write(f".git/lfs/objects/{OID[:2]}/{OID[2:4]}/{OID}", "large")
    async with (await rooms_of(repo)).open(commit) as room:
        assets = Path(room.folder) / "assets"
        assert (assets / "here.bin").read_text() == "large"
        assert (assets / "away.bin").read_text().startswith("version https://git-lfs")
        (note,) = room.notes
    assert "only pointers" in note
    assert "assets/away.bin" in note
    assert "here.bin" not in note
    assert (repo.path.parent / "elsewhere").read_text() == POINTER


async def test_nothing_is_downloaded_by_a_filter_that_could(repo, rooms_of, tmp_path):
    repo.write(".gitattributes", "*.bin filter=lfs\n")
    repo.write("a.bin", POINTER)
    commit = repo.commit()
    repo.git("config", "filter.lfs.smudge", f"sh -c 'echo $GIT_LFS_SKIP_SMUDGE > {tmp_path}/asked; cat'")
    async with (await rooms_of(repo)).open(commit):
        assert (tmp_path / "asked").read_text() == "1\n"


async def test_a_required_filter_that_is_not_installed_is_said_clearly(repo, rooms_of, root):
    repo.write(".gitattributes", "*.key filter=vault\n")
    repo.write("a.key")
    commit = repo.commit()
    repo.git("config", "filter.vault.smudge", "no-such-vault smudge")
    repo.git("config", "filter.vault.required", "true")
    with pytest.raises(WorkspaceError, match=r"a\.key cannot be checked out: the program of the filter vault") as told:
        async with (await rooms_of(repo)).open(commit):
            raise AssertionError("opened")
    assert not isinstance(told.value, CommitUnfit)
    async with (await rooms_of(repo)).open(f"{commit}~1"):  # none of its files needs it
        pass
    await nothing_left(repo, root)


# --- ends ------------------------------------------------------------------------------------------------


async def test_a_room_that_is_called_off_leaves_nothing(repo, rooms_of, root):
    rooms, opened = await rooms_of(repo), asyncio.Event()

    async def stay() -> None:
        async with rooms.open("HEAD"):
            opened.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(stay())
    async with asyncio.timeout(PATIENCE):
        await opened.wait()
    task.cancel()
    await asyncio.wait([task])
    await nothing_left(repo, root)


async def test_a_checkout_that_is_called_off_in_the_middle_leaves_nothing(repo, rooms_of, root, tmp_path):
    repo.write(".gitattributes", "*.slow filter=slow\n")
    repo.write("a.slow")
    commit = repo.commit()
    repo.git("config", "filter.slow.smudge", f"sh -c 'touch {tmp_path}/begun; sleep 600'")
    rooms = await rooms_of(repo)

    async def never() -> None:
        async with rooms.open(commit):
            raise AssertionError("opened")

    task = asyncio.create_task(never())
    await soon((tmp_path / "begun").exists)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    await nothing_left(repo, root)


async def test_what_a_check_made_unwritable_goes_too(repo, rooms_of, root):
    async with (await rooms_of(repo)).open("HEAD") as room:
        deep = Path(room.folder) / "cache" / "module"
        deep.mkdir(parents=True)
        (deep / "file").touch()
        deep.chmod(0o500)
    await nothing_left(repo, root)


async def test_a_link_in_a_room_is_removed_and_not_what_it_leads_to(repo, rooms_of, root):
    repo.write("node_modules/x", "precious\n")
    async with (await rooms_of(repo)).open("HEAD") as room:
        (Path(room.folder) / "node_modules").symlink_to(repo.path / "node_modules")
    await nothing_left(repo, root)
    assert (repo.path / "node_modules" / "x").read_text() == "precious\n"


async def test_a_room_whose_git_file_was_forged_leads_nobody_astray(repo, rooms_of, root, tmp_path):
    (tmp_path / "precious").mkdir()
    async with (await rooms_of(repo)).open("HEAD") as room:
        (Path(room.folder) / ".git").write_text(f"gitdir: {tmp_path}/precious\n")
    assert (tmp_path / "precious").exists()
    await nothing_left(repo, root)


async def test_a_sweep_takes_what_this_run_left_and_nothing_of_others(with_submodules, rooms_of, root, tmp_path):
    repo = with_submodules
    repo.git("worktree", "add", "-q", "--detach", str(tmp_path / "users-own"))
    shutil.rmtree(tmp_path / "users-own")  # git keeps its note until somebody prunes
    mine, others = await rooms_of(repo, run_id="r1"), await rooms_of(repo, run_id="r10")
    async with others.open("HEAD") as theirs:
        abandoned = [mine.open("HEAD") for _ in range(2)]
        for room in abandoned:
            await room.__aenter__()
        assert await (await rooms_of(repo, run_id="r1")).sweep() == 2
        assert "r1" not in listed(root)
        assert names(theirs.folder) == [".gitmodules", "README.md", "lib"]
        assert Project(Path(theirs.folder)).git("status", "--porcelain") == ""
        assert await mine.sweep() == 0
        for room in abandoned:
            await room.__aexit__(None, None, None)
    assert repo.git("worktree", "list").count("prunable") == 1
    assert module_entries(repo) == []
    shutil.rmtree(repo.path / ".git" / "worktrees")
    await nothing_left(repo, root)


# --- deaths ----------------------------------------------------------------------------------------------

DRIVER = Path(__file__).parent / "room_driver.py"
MOST = 120
"""Changes to the disk and processes started; more than a room needs."""


@pytest.fixture
async def drive(repo, private, root):
    """Lets a driver die at a step; how it ended."""
    driver = await asyncio.create_subprocess_exec(
        sys.executable, str(DRIVER), str(repo.path), str(private), str(root),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip

    async def die_at(step: int) -> int:
        driver.stdin.write(f"{step}\n".encode())
        async with asyncio.timeout(PATIENCE):
            return int(await driver.stdout.readline())

    yield die_at
    driver.stdin.close()
    await driver.wait()


@pytest.mark.parametrize("stride", [9, pytest.param(1, marks=pytest.mark.soak)])
async def test_nothing_is_left_wherever_a_driver_dies(with_submodules, rooms_of, drive, root, stride):
    """At every step in the soak; otherwise at some of them, from the first to the last."""
    repo = with_submodules
    before, left = facts(repo), 0
    for step in range(1, MOST, stride):
        code = await drive(step)
        assert code in (0, -signal.SIGKILL)
        left += await (await rooms_of(repo)).sweep()
        assert module_entries(repo) == [], step
        await nothing_left(repo, root)
        assert facts(repo) == before, step
        if code == 0:
            assert step > 20
            assert left > 10 // stride
            return
    raise AssertionError("it never came to its end")


async def test_a_driver_that_dies_in_the_middle_of_a_checkout_takes_git_along(repo, rooms_of, drive, root, tmp_path):
    repo.write(".gitattributes", "*.deadly filter=deadly\n")
    for number in range(5):
        repo.write(f"{number}.deadly")
    repo.commit()
    before = facts(repo)
    pids = tmp_path / "pids"
    kill = f"sh -c 'echo $$ $PPID >> {pids}; kill -9 $ROOM_DRIVER; sleep 600'"
    repo.git("config", "filter.deadly.smudge", kill)
    assert await drive(-1) == -signal.SIGKILL
    repo.git("config", "--remove-section", "filter.deadly")
    await soon(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids.read_text().split()))
    await (await rooms_of(repo)).sweep()
    await nothing_left(repo, root)
    assert facts(repo) == before


async def test_what_another_run_was_about_to_remove_is_removed(repo, rooms_of, root):
    (root / f"{GONE}another-run" / "deep").mkdir(parents=True)
    assert await (await rooms_of(repo)).sweep() == 0
    await nothing_left(repo, root)


async def test_rooms_of_dead_runs_go_and_those_of_living_ones_stay(repo, rooms_of, root):
    dead, alive = await rooms_of(repo, run_id="r1"), await rooms_of(repo, run_id="r2")
    left = dead.open("HEAD")
    abandoned = Path((await left.__aenter__()).folder)  # its owner never comes to leave it
    asked = []

    async def living():
        asked.append(abandoned.exists())
        return {"r2"}

    assert await sweep_abandoned(root, living) == 1
    assert asked == [True]
    assert not abandoned.exists()
    async with alive.open("HEAD") as room:
        assert await sweep_abandoned(root, living) == 0
        assert names(room.folder)
    await nothing_left(repo, root)
    assert await sweep_abandoned(root, living) == 0
    assert len(asked) == 2, "nobody is asked where nothing is"
    await left.__aexit__(None, None, None)

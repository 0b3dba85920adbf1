"""A run's tree packed on one machine and laid out on another: real git, real folders, hostile parcels."""

import gzip
import json
import os
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from git.conftest import Project
from untildone.core.codec import encode_value
from untildone.errors import WishRefused, WorkspaceError
from untildone.git import bundle as bundling
from untildone.git.bundle import PackedTree, parcel_ref, prerequisites, unwrapped
from untildone.git.unbundle import Received, lay_out, receive_tree
from untildone.git.workspace import GitWorkspace

pytestmark = pytest.mark.anyio

Opened = Callable[..., Awaitable[GitWorkspace]]


def tree_of(project: Project) -> str:
    """The hash of everything that lies there and is not ignored, whatever is committed."""
    index = project.path / ".git" / "looked-at"
    env = os.environ | {"GIT_INDEX_FILE": str(index)}
    for words in (("read-tree", "--empty"), ("add", "-A")):
        subprocess.run(["git", *words], cwd=project.path, env=env, check=True, capture_output=True, timeout=240)
    done = subprocess.run(
        ["git", "write-tree"], cwd=project.path, env=env, check=True, capture_output=True, timeout=240
    )
    index.unlink()
    return done.stdout.decode().strip()


async def work(workspace: GitWorkspace, project: Project, number: int) -> None:
    """One iteration that leaves a commit."""
    before = await workspace.observe()
    project.write(f"made-{number}.txt", f"{number}\n")
    await workspace.settle(before, iteration_num=number, message=f"Work {number}")


async def packed(workspace: GitWorkspace, known: str = "") -> PackedTree:
    made = await workspace.packed("r1", known)
    assert made is not None
    return made


async def received(parcel: bytes, folder: Path, tmp_path: Path, **more: Any) -> Received:
    return await receive_tree(parcel, run_id="r1", folder=folder, private=tmp_path / "folders-b", **more)


async def arrived(parcel: bytes, folder: Path, tmp_path: Path) -> Project:
    """Another machine's folder after the move."""
    lines = await lay_out(await received(parcel, folder, tmp_path))
    assert "not as on the other machine" not in "\n".join(lines)
    return Project(folder)


def with_remote(repo: Project, tmp_path: Path) -> Path:
    bare = tmp_path / "remote.git"
    repo.git("init", "-q", "--bare", "-b", "main", str(bare))
    repo.git("remote", "add", "origin", str(bare))
    repo.git("push", "-q", "origin", "main", "work")
    repo.git("fetch", "-q", "origin")
    return bare


def rewrapped(parcel: bytes, **changed: Any) -> bytes:
    """The same parcel with another story about itself."""
    facts, bundle = unwrapped(parcel)
    story = json.loads(encode_value(facts)) | changed
    return gzip.compress(json.dumps(story).encode() + b"\n" + bundle)


async def test_half_done_work_branch_and_states_arrive_in_an_empty_folder(
    repo: Project, open_in: Opened, tmp_path: Path
) -> None:
    workspace = await open_in(repo)
    await workspace.prepare()
    await work(workspace, repo, 1)
    await work(workspace, repo, 2)
    repo.write("half/done.txt", "in the middle\n")
    (repo.path / "README.md").unlink()
    repo.write("run.sh", "#!/bin/sh\n").chmod(0o755)
    (repo.path / "link").symlink_to("made-1.txt")
    there = await arrived((await packed(workspace)).content, tmp_path / "b" / "deep", tmp_path)
    assert tree_of(there) == tree_of(repo)
    assert there.git("rev-parse", "HEAD") == repo.git("rev-parse", "HEAD")
    assert there.git("symbolic-ref", "HEAD") == "refs/heads/work"
    assert there.git("status", "--porcelain") == repo.git("status", "--porcelain")
    states = ("for-each-ref", "--format=%(refname) %(objectname)", "refs/untildone/r1")
    assert there.git(*states) == repo.git(*states)
    assert (there.path / "run.sh").stat().st_mode & 0o111
    there.git("fsck", "--strict")


async def test_a_driver_takes_it_up_where_it_stands(repo: Project, open_in: Opened, tmp_path: Path) -> None:
    workspace = await open_in(repo)
    await workspace.prepare()
    await work(workspace, repo, 1)
    repo.write("left.txt", "uncommitted at the stop\n")
    await workspace.leave()
    there = await arrived((await packed(workspace)).content, tmp_path / "b", tmp_path)
    there.git("config", "user.name", "Ben")
    there.git("config", "user.email", "ben@example.org")
    second = await open_in(there)
    lines = (await second.prepare()).lines
    assert lines == ("commits go to branch work",)
    await work(second, there, 2)
    assert there.git("log", "--format=%s", "-3") == "Work 2\nWork 1\nfirst"
    assert there.git("status", "--porcelain") == ""


async def test_with_a_remote_only_what_is_new_travels_and_a_clone_takes_it(
    repo: Project, open_in: Opened, tmp_path: Path
) -> None:
    (repo.path / "large.bin").write_bytes(os.urandom(1 << 20))
    repo.commit("large")
    bare = with_remote(repo, tmp_path)
    workspace = await open_in(repo)
    await workspace.prepare()
    await work(workspace, repo, 1)
    parcel = (await packed(workspace)).content
    assert len(parcel) < 20_000
    assert prerequisites(unwrapped(parcel)[1]) == [repo.git("rev-parse", "HEAD~1")]
    repo.git("clone", "-q", str(bare), str(tmp_path / "clone"))
    there = await arrived(parcel, tmp_path / "clone", tmp_path)
    assert tree_of(there) == tree_of(repo)
    assert there.git("rev-parse", "work") == repo.git("rev-parse", "work")
    assert there.git("rev-parse", "main") == repo.git("rev-parse", "main")


async def test_a_tree_without_anything_new_arrives_too(repo: Project, open_in: Opened, tmp_path: Path) -> None:
    bare = with_remote(repo, tmp_path)
    workspace = await open_in(repo)
    await workspace.prepare()
    parcel = (await packed(workspace)).content
    repo.git("clone", "-q", str(bare), str(tmp_path / "clone"))
    there = await arrived(parcel, tmp_path / "clone", tmp_path)
    assert there.git("rev-parse", "HEAD", "refs/untildone/r1/start").split() == [repo.git("rev-parse", "HEAD")] * 2


async def test_an_old_clone_fetches_what_is_missing(repo: Project, open_in: Opened, tmp_path: Path) -> None:
    bare = with_remote(repo, tmp_path)
    repo.git("clone", "-q", str(bare), str(tmp_path / "clone"))
    repo.write("later.txt")
    repo.commit("later")
    repo.git("push", "-q", "origin", "work")
    workspace = await open_in(repo)
    await workspace.prepare()
    await work(workspace, repo, 1)
    there = await arrived((await packed(workspace)).content, tmp_path / "clone", tmp_path)
    assert tree_of(there) == tree_of(repo)


async def test_commits_that_can_be_had_nowhere_are_named(repo: Project, open_in: Opened, tmp_path: Path) -> None:
    with_remote(repo, tmp_path)
    workspace = await open_in(repo)
    await workspace.prepare()
    await work(workspace, repo, 1)
    parcel = (await packed(workspace)).content
    stranger = Project(tmp_path / "stranger")
    stranger.init()
    stranger.write("other.txt")
    stranger.commit()
    with pytest.raises(WishRefused, match=r"lacks commit [0-9a-f]{10}.*origin did not give it.*remote\.git"):
        await received(parcel, stranger.path, tmp_path)
    with pytest.raises(WishRefused, match=r"git clone .*remote\.git .*first"):
        await received(parcel, tmp_path / "empty", tmp_path)
    assert not (tmp_path / "empty").exists()


async def test_equal_trees_are_packed_once(repo: Project, open_in: Opened) -> None:
    workspace = await open_in(repo)
    await workspace.prepare()
    first = await packed(workspace)
    assert await workspace.packed("r1", first.mark) is None
    repo.write("new.txt")
    assert (await packed(workspace, first.mark)).mark != first.mark


async def test_a_plain_folder_arrives_with_its_private_history(plain: Project, open_in: Opened, tmp_path: Path) -> None:
    plain.write("a.txt", "one\n")
    workspace = await open_in(plain)
    await workspace.prepare()
    await work(workspace, plain, 1)
    plain.write("half.txt", "half\n")
    parcel = (await packed(workspace)).content
    target = tmp_path / "elsewhere"
    got = await received(parcel, target, tmp_path)
    await lay_out(got)
    assert sorted(path.name for path in target.iterdir()) == ["a.txt", "half.txt", "made-1.txt"]
    assert got.repository.git_dir.is_relative_to(tmp_path / "folders-b")
    head = (await got.repository.git("rev-parse", "HEAD", "refs/untildone/r1/1")).text.split()
    assert head[0] == unwrapped(parcel)[0].head == head[1]
    with pytest.raises(WishRefused, match="needs an empty one"):
        await received(parcel, target, tmp_path)


async def test_the_folder_below_the_top_is_found_again(repo: Project, open_in: Opened, tmp_path: Path) -> None:
    repo.write("sub/dir/x.txt")
    repo.commit()
    workspace = await open_in(repo, cwd=repo.path / "sub" / "dir")
    await workspace.prepare()
    got = await received((await packed(workspace)).content, tmp_path / "b", tmp_path)
    assert got.cwd == (tmp_path / "b" / "sub" / "dir").resolve()


async def test_what_is_in_the_way_is_named_and_left_alone(repo: Project, open_in: Opened, tmp_path: Path) -> None:
    workspace = await open_in(repo)
    await workspace.prepare()
    await work(workspace, repo, 1)
    parcel = (await packed(workspace)).content
    full = Project(tmp_path / "full")
    full.write("mine.txt")
    with pytest.raises(WishRefused, match="not empty and no clone"):
        await received(parcel, full.path, tmp_path)
    dirty = Project(tmp_path / "dirty")
    repo.git("clone", "-q", str(repo.path), str(dirty.path))
    dirty.write("mine.txt")
    with pytest.raises(WishRefused, match=r"uncommitted work .*mine\.txt"):
        await received(parcel, dirty.path, tmp_path)
    dirty.git("config", "user.name", "Ben")
    dirty.git("config", "user.email", "ben@example.org")
    dirty.git("switch", "-q", "work")
    dirty.commit("mine")
    with pytest.raises(WishRefused, match=r"branch work .* has commits that the run's does not have"):
        await received(parcel, dirty.path, tmp_path)
    assert (full.path / "mine.txt").exists()
    assert (dirty.path / "mine.txt").exists()


KEYS = (
    ".env", "conf/.env.local", "tls/server.pem", ".envrc", "prod.env", ".git-credentials", "credentials.json",
    "kubeconfig", "terraform.tfvars", "config/secrets.yaml", "id_ed25519_work", "x.pem.bak",
)  # fmt: skip


async def test_notes_and_keys_stay_behind(repo: Project, open_in: Opened) -> None:
    workspace = await open_in(repo)
    await workspace.prepare()
    seen = ("seen.txt", ".env.example", "src/credentials.py", "src/secrets.py", "keys.md")
    for name in ("SHARED_TASK_NOTES.md", *KEYS, *seen):
        repo.write(name, "content\n")
    facts, _ = unwrapped((await packed(workspace)).content)
    names = repo.git("ls-tree", "-r", "--name-only", facts.packed).split("\n")
    assert set(names) == {"README.md", *seen}
    assert set(facts.left_out) == set(KEYS)


async def test_files_in_which_a_secret_stands_stay_behind(repo: Project, open_in: Opened) -> None:
    workspace = await open_in(repo)
    await workspace.prepare()
    repo.write("server.log", "the key is inDotEnv99x\n")
    repo.write("deploy.json", '{"private_key": "-----BEGIN PRIVATE KEY-----\\nMIIE"}\n')
    repo.write("seen.txt", "nothing\n")
    os.mkfifo(repo.path / "pipe")
    made = await workspace.packed("r1", tells=lambda content: b"inDotEnv99x" in content)
    assert made is not None
    facts, _ = unwrapped(made.content)
    assert repo.git("ls-tree", "-r", "--name-only", facts.packed).split("\n") == ["README.md", "seen.txt"]
    assert {"server.log", "deploy.json"} <= set(facts.left_out)


async def test_a_repository_with_another_history_is_refused(repo: Project, open_in: Opened, tmp_path: Path) -> None:
    workspace = await open_in(repo)
    await workspace.prepare()
    await work(workspace, repo, 1)
    parcel = (await packed(workspace)).content
    stranger = Project(tmp_path / "stranger")
    stranger.init()
    stranger.write("other.txt")
    stranger.commit()
    before = stranger.git("for-each-ref"), stranger.git("symbolic-ref", "HEAD")
    with pytest.raises(WishRefused, match="no commit in common"):
        await received(parcel, stranger.path, tmp_path)
    assert (stranger.git("for-each-ref"), stranger.git("symbolic-ref", "HEAD")) == before
    empty = Project(tmp_path / "empty")
    empty.path.mkdir()
    empty.git("init", "-q")
    assert tree_of(await arrived(parcel, empty.path, tmp_path)) == tree_of(repo)


async def test_too_large_says_what_to_do(repo: Project, open_in: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = await open_in(repo)
    await workspace.prepare()
    (repo.path / "large.bin").write_bytes(os.urandom(1 << 20))
    monkeypatch.setattr(bundling, "LARGEST", 1 << 10)
    with pytest.raises(WorkspaceError, match=r"too large to travel.*push the branch to a remote called origin"):
        await workspace.packed("r1")


async def test_neither_hooks_nor_filters_of_a_repository_run(repo: Project, open_in: Opened, tmp_path: Path) -> None:
    repo.write(".gitattributes", "*.txt filter=evil\n")
    repo.commit()
    workspace = await open_in(repo)
    await workspace.prepare()
    await work(workspace, repo, 1)
    parcel = (await packed(workspace)).content
    clone = Project(tmp_path / "clone")
    repo.git("clone", "-q", "-b", "main", str(repo.path), str(clone.path))
    ran = tmp_path / "ran"
    for hook in ("post-checkout", "reference-transaction", "post-merge", "post-index-change", "post-rewrite"):
        clone.hook(hook, f"echo {hook} >> {ran}")
    await arrived(parcel, clone.path, tmp_path)
    assert not ran.exists()


LIES: list[tuple[dict[str, Any], str]] = [
    ({"run_id": "r2"}, "another run"),
    ({"packed": "0" * 40}, "git does not take the tree"),
    ({"refs": {"../../heads/main": "0" * 40}}, "none that this version"),
    ({"refs": {"7": "0" * 40}}, "does not hold what it says"),
    ({"refs": {"7": "--help"}}, "none that this version"),
    ({"head": "1" * 40}, "does not hold what it says"),
    ({"branch": "../evil"}, "no name of a branch"),
    ({"branch": "-d"}, "no name of a branch"),
    ({"branch": "@{-1}"}, "no name of a branch"),
    ({"below": "../.."}, "none that this version"),
    ({"below": "/etc"}, "none that this version"),
    ({"below": "a\nb"}, "none that this version"),
    ({"below": ".git/hooks"}, "none that this version"),
    ({"below": "README.md"}, "is no folder of the run's tree"),
    ({"version": 99}, "none that this version"),
    ({"refs": 5}, "damaged"),
]


async def test_a_parcel_that_lies_is_refused(repo: Project, open_in: Opened, tmp_path: Path) -> None:
    workspace = await open_in(repo)
    await workspace.prepare()
    await work(workspace, repo, 1)
    honest = (await packed(workspace)).content
    for number, (story, complaint) in enumerate(LIES):
        folder = tmp_path / f"b{number}"
        with pytest.raises(WorkspaceError, match=complaint):
            await received(rewrapped(honest, **story), folder, tmp_path)
        assert list(folder.rglob("*.txt")) == [], story


@pytest.mark.parametrize(
    "content", [b"", b"plain", gzip.compress(b"no line", mtime=0), gzip.compress(b"{}\nrest", mtime=0)]
)
def test_what_is_no_parcel_is_refused(content: bytes) -> None:
    with pytest.raises(WorkspaceError):
        unwrapped(content)


async def test_broken_and_booby_trapped_objects_are_refused(repo: Project, open_in: Opened, tmp_path: Path) -> None:
    """A tree with a `.git` in it would become this machine's configuration."""
    workspace = await open_in(repo)
    await workspace.prepare()
    facts, bundle = unwrapped((await packed(workspace)).content)
    garbled = gzip.compress(encode_value(facts) + b"\n" + bundle[:-30] + bytes(30))
    with pytest.raises(WorkspaceError, match="git does not take the tree"):
        await received(garbled, tmp_path / "garbled", tmp_path)
    blob = repo.git("hash-object", "-w", "README.md")
    listed = tmp_path / "listed"
    listed.write_bytes(b"100644 config\0" + bytes.fromhex(blob))
    inner = repo.git("hash-object", "-w", "-t", "tree", str(listed))
    listed.write_bytes(b"40000 .git\0" + bytes.fromhex(inner))
    trap = repo.git("hash-object", "-w", "-t", "tree", "--literally", str(listed))
    commit = repo.git("commit-tree", trap, "-p", "HEAD", "-m", "trap")
    repo.git("update-ref", parcel_ref("r1"), commit)
    repo.git("bundle", "create", "-q", str(tmp_path / "trap"), parcel_ref("r1"))
    parcel = rewrapped((await packed(workspace)).content, packed=commit, refs={})
    story = gzip.decompress(parcel).partition(b"\n")[0]
    parcel = gzip.compress(story + b"\n" + (tmp_path / "trap").read_bytes())
    with pytest.raises(WorkspaceError, match="git does not take the tree"):
        await received(parcel, tmp_path / "trapped", tmp_path)
    assert not (tmp_path / "trapped" / ".git" / "refs" / "untildone").exists()

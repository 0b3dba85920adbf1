"""Files that must not leave a machine stay out of every state that travels: the newest and all before it."""

import gzip
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from git.conftest import Project
from untildone.git.bundle import PackedTree, TreeFacts, unwrapped
from untildone.git.sparing import KEYS
from untildone.git.unbundle import lay_out, receive_tree
from untildone.git.workspace import GitWorkspace

pytestmark = pytest.mark.anyio

Opened = Callable[..., Awaitable[GitWorkspace]]
SECRET = b"inDotEnv99x"


async def packed(workspace: GitWorkspace, known: str = "") -> PackedTree:
    made = await workspace.packed("r1", known, tells=lambda content: SECRET in content)
    assert made is not None
    return made


async def iteration(workspace: GitWorkspace, project: Project, number: int, **files: str) -> None:
    before = await workspace.observe()
    for name, text in files.items():
        project.write(name.replace("__", "/").replace("_", "."), text)
    await workspace.settle(before, iteration_num=number, message=f"Work {number}")


def everything_in(facts: TreeFacts, bundle: bytes, tmp_path: Path, need: Path | None = None) -> bytes:
    """All that can be read out of a bundle: contents of files, names of files, words of commits."""
    place = Project(tmp_path / f"opened-{facts.packed[:6]}")
    place.path.mkdir()
    place.git("init", "-q")
    if need is not None:
        place.git("fetch", "-q", str(need), "+refs/heads/*:refs/needed/*")
    (place.path / "bundle").write_bytes(bundle)
    place.git("bundle", "unbundle", "bundle")
    asked = ("cat-file", "--batch-all-objects", "--batch", "--buffer")
    return subprocess.run(["git", *asked], cwd=place.path, check=True, capture_output=True, timeout=240).stdout


async def test_states_travel_without_what_must_stay(repo: Project, open_in: Opened, tmp_path: Path) -> None:
    workspace = await open_in(repo, commit=False)
    await workspace.prepare()
    await iteration(workspace, repo, 1, _env=f"A_KEY={SECRET.decode()}\n", work_txt="1\n")
    await iteration(workspace, repo, 2, server_log=f"key {SECRET.decode()}\n", work_txt="2\n")
    (repo.path / ".env").unlink()
    (repo.path / "server.log").unlink()
    await iteration(workspace, repo, 3, work_txt="3\n")
    repo.write("README.md", f"by the way: {SECRET.decode()}\n")
    first = await packed(workspace)
    facts, bundle = unwrapped(first.content)
    whole = everything_in(facts, bundle, tmp_path)
    assert SECRET not in whole
    assert b"A_KEY" not in whole
    assert set(facts.left_out) == {".env", "server.log", "README.md"}
    assert repo.git("ls-tree", "-r", "--name-only", facts.refs["1"]).split() == ["README.md", "work.txt"]
    assert repo.git("show", f"{facts.packed}:README.md") == repo.git("show", "HEAD:README.md")
    # Here nothing was touched, and what is equal is not sent again.
    assert repo.git("show", "refs/untildone/r1/1:.env").startswith("A_KEY")
    assert await workspace.packed("r1", first.mark, tells=lambda content: SECRET in content) is None
    assert facts.replaced[repo.git("rev-parse", "refs/untildone/r1/1")] == facts.refs["1"]
    assert facts.refs["3"] == repo.git("rev-parse", "refs/untildone/r1/3")

    there = await receive_tree(first.content, run_id="r1", folder=tmp_path / "b", private=tmp_path / "folders")
    lines = "\n".join(await lay_out(there))
    assert "did not come along" in lines
    assert "server.log" in lines
    assert (tmp_path / "b" / "work.txt").read_text() == "3\n"
    states = await (await open_in(Project(tmp_path / "b"), commit=False)).prepare()
    assert states.start == repo.git("rev-parse", "HEAD")


async def test_names_and_other_writings_of_a_secret_stay_too(repo: Project, open_in: Opened, tmp_path: Path) -> None:
    workspace = await open_in(repo)
    await workspace.prepare()
    said = SECRET.decode()
    for name, content in {
        "wide.log": f"k {said}".encode("utf-16"),
        "big-endian.log": f"k {said}".encode("utf-16-be"),
        "packed.gz": gzip.compress(b"x" * 1000 + SECRET),
        "broken.gz": b"\x1f\x8b but no more",
        f"of-{said}.txt": b"only its name",
        "picture.bin": bytes(range(256)),
    }.items():
        (repo.path / name).write_bytes(content)
    made = await packed(workspace)
    facts, bundle = unwrapped(made.content)
    left_out = {"wide.log", "big-endian.log", "packed.gz", "(a file whose name is a secret)"}
    assert set(facts.left_out) == left_out
    assert said.encode() not in everything_in(facts, bundle, tmp_path)
    assert SECRET not in gzip.decompress(made.content)
    assert {"broken.gz", "picture.bin"} < set(repo.git("ls-tree", "-r", "--name-only", facts.packed).split())


async def test_a_key_that_is_staged_stays_too(repo: Project, open_in: Opened, tmp_path: Path) -> None:
    workspace = await open_in(repo)
    await workspace.prepare()
    repo.write(".env", f"A_KEY={SECRET.decode()}\n")
    repo.git("add", "-f", ".env")
    facts, bundle = unwrapped((await packed(workspace)).content)
    assert SECRET not in everything_in(facts, bundle, tmp_path)
    assert facts.left_out == (".env",)


async def test_a_folder_without_git_sends_a_history_without_keys(
    plain: Project, open_in: Opened, tmp_path: Path
) -> None:
    plain.write(".env", f"A_KEY={SECRET.decode()}\n")
    plain.write("a.txt", "a\n")
    workspace = await open_in(plain)
    await workspace.prepare()
    await iteration(workspace, plain, 1, work_txt="1\n")
    await iteration(workspace, plain, 2, work_txt="2\n", prod_env="B=1\n")
    made = await packed(workspace)
    facts, bundle = unwrapped(made.content)
    whole = everything_in(facts, bundle, tmp_path)
    assert SECRET not in whole
    assert b"prod.env" not in whole
    assert set(facts.left_out) == {".env", "prod.env"}
    there = await receive_tree(made.content, run_id="r1", folder=tmp_path / "b", private=tmp_path / "folders-b")
    await lay_out(there)
    assert sorted(path.name for path in (tmp_path / "b").iterdir()) == ["a.txt", "work.txt"]
    log = (await there.repository.git("log", "--format=%s")).text.split("\n")
    assert log == ["Work 2", "Work 1", "The folder as the run found it"]
    assert there.facts.replaced[(await workspace.observe()).head or ""] == there.facts.head


async def test_what_is_committed_travels_with_the_history(repo: Project, open_in: Opened, tmp_path: Path) -> None:
    repo.write("server.pem", "committed by the user\n")
    repo.commit()
    workspace = await open_in(repo)
    await workspace.prepare()
    repo.write("server.pem", "changed by the agent\n")
    facts, bundle = unwrapped((await packed(workspace)).content)
    whole = everything_in(facts, bundle, tmp_path)
    assert b"committed by the user" in whole
    assert b"changed by the agent" not in whole
    assert facts.left_out == ("server.pem",)


@pytest.mark.parametrize("name", [b".env", b"a/prod.env", b"id_rsa_2", b"x.pem.bak", b".aws/config", b"db/secrets.yml"])
def test_names_of_keys(name: bytes) -> None:
    assert KEYS.fullmatch(name)


@pytest.mark.parametrize("name", [b".env.example", b"src/secrets.py", b"environment", b"keys.md", b"credentials.py"])
def test_names_of_others(name: bytes) -> None:
    assert not KEYS.fullmatch(name)

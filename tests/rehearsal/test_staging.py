"""The stage of a rehearsed night: clones that share everything and touch nothing, names git takes up, a small disk."""

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from patience import PATIENCE
from untildone.rehearsal import staging
from untildone.rehearsal.acts import ACTS, Act
from untildone.rehearsal.props import DRAFT, FILE, Props, blobs_of, disk_bytes, few_of, free_props
from untildone.rehearsal.scenario import Reply, shipped_scenario
from untildone.rehearsal.wire import headers


def git(folder: Path, *args: str) -> str:
    return subprocess.run(
        ["git", *args], cwd=folder, check=True, capture_output=True, text=True, timeout=PATIENCE
    ).stdout


@pytest.mark.anyio
async def test_the_clone_holds_what_is_committed_and_knows_no_way_back(tmp_path: Path) -> None:
    mine = tmp_path / "a b"
    mine.mkdir()
    git(mine, "init", "-q", "-b", "work")
    (mine / "ä.txt").write_text("12345")
    git(mine, "add", ".")
    git(mine, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "first")
    (mine / "uncommitted.txt").write_text("mine")
    base = await staging.make_base(tmp_path, mine)
    assert (base.origin, base.props) == (str(mine), Props())
    assert git(base.path, "diff", "--name-only", "HEAD", base.disk_branch) == "", "small enough to be played in whole"
    assert git(base.path, "count-objects") == "0 objects, 0 kilobytes\n", "nothing is copied"
    copy = tmp_path / "copy"
    await staging.clone(base, copy, {})
    assert sorted(path.name for path in copy.iterdir()) == [".git", "ä.txt"]
    assert git(copy, "branch", "--show-current") == "work\n"
    for place in (base.path, copy):
        assert git(place, "remote") == ""
    assert not await staging.is_in_head(copy, base.props.file)
    assert await staging.is_in_head(copy, "ä.txt")
    assert git(mine, "for-each-ref").count("\n") == 1, "the original is left alone"


@pytest.mark.anyio
@pytest.mark.parametrize("prepare", [lambda _: None, lambda folder: git(folder, "init", "-q")], ids=["none", "empty"])
async def test_without_commits_the_story_is_played_in(tmp_path: Path, prepare: Callable[[Path], object]) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    prepare(mine)
    base = await staging.make_base(tmp_path, mine if (mine / ".git").exists() else None)
    assert base.origin == "a small scratch repository"
    assert "thermo/convert.py" in git(base.path, "ls-tree", "-r", "--name-only", "HEAD")


@pytest.mark.anyio
async def test_what_the_machine_does_not_permit_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = staging.Base(tmp_path, "x")
    stages = staging.Stages(base, tmp_path)
    assert await stages.dressed("here", tmp_path, ["a", "b"]) == ["a", "b"]
    (tmp_path / "unshare").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "unshare").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert await stages.dressed("loopback", tmp_path, ["a"]) is None
    (tmp_path / "unshare").write_text('#!/bin/sh\n[ "$1" = -r ]\n')
    assert (await stages.dressed("small_disk", tmp_path, ["a"]) or [])[:3] == ["unshare", "-r", "-m"]
    monkeypatch.setenv("PATH", "/nowhere")
    assert await stages.dressed("loopback", tmp_path, ["a"]) is None


def repository(tmp_path: Path, files: dict[str, str]) -> Path:
    mine = tmp_path / "mine"
    mine.mkdir()
    git(mine, "init", "-q", "-b", "work")
    for name, text in files.items():
        (mine / name).parent.mkdir(parents=True, exist_ok=True)
        (mine / name).write_text(text)
    git(mine, "add", "--force", ".")
    git(mine, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "first")
    return mine


OTHERS = Props("untildone-night.txt", "untildone-draft.txt")


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("files", "props"),
    [
        ({".gitignore": "*.md\n"}, OTHERS),
        ({"Untildone-Night.md": "mine"}, OTHERS),
        ({"untildone-draft.md/a": "mine"}, OTHERS),
        ({".gitignore": "untildone*\n"}, Props(ignored=True)),
        (
            {
                ".gitignore": "*\n!src/\n!src/*.rs\n!src/*.h\n",
                "src/a.rs": "",
                "src/.gitignore": "*-draft.rs\n",
                "src/b.h": "",
            },
            Props("src/untildone-night.h", "src/untildone-draft.h"),
        ),
        ({".gitignore": "*\n"}, Props(ignored=True)),
    ],
    ids=["ignored", "there", "a folder", "by name", "only what is named", "everything"],
)
async def test_the_scripts_files_have_names_that_git_takes_up(
    tmp_path: Path, files: dict[str, str], props: Props
) -> None:
    base = await staging.make_base(tmp_path, repository(tmp_path, files))
    assert base.props == props
    assert not (tmp_path / "look").exists()


@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.name)
def test_every_script_writes_under_the_chosen_names(act: Act) -> None:
    played = Props("night.txt", "draft.txt").used_in(shipped_scenario(act.scenario))
    written = [call.input["file_path"] for reply in played.replies for call in reply.tools if call.name == "Write"]
    assert written[-1] == "night.txt"
    assert set(written) <= {"night.txt", "draft.txt"}
    assert FILE not in str(played)
    assert DRAFT not in str(played)


@pytest.mark.anyio
async def test_where_everything_is_ignored_the_names_stay_as_they_are() -> None:
    async def everything(names: Sequence[str]) -> set[str]:
        return set(names)

    assert await free_props([], everything) == Props(ignored=True)


@pytest.mark.anyio
async def test_a_large_tree_is_not_played_in_whole_on_the_small_disk(tmp_path: Path) -> None:
    files = {f"d/{number}": "x" for number in range(1200)} | {"big": "x" * 300_000, "z/.gitignore": "*.o\n"}
    base = await staging.make_base(tmp_path, repository(tmp_path, files))
    names = git(base.path, "ls-tree", "-r", "--name-only", base.disk_branch).split()
    assert len(names) == 1000
    assert "z/.gitignore" in names
    assert "big" not in names
    assert base.disk_bytes >= 1000 * 4096, "a file takes a block at least"
    assert base.disk_bytes < 16 * 1024 * 1024
    assert git(base.path, "merge-base", "HEAD", base.disk_branch) == git(base.path, "rev-parse", "HEAD")
    copy = tmp_path / "copy"
    git(tmp_path, "clone", "-q", "--shared", "--branch", base.disk_branch, str(base.path), str(copy))
    assert git(copy, "status", "--porcelain") == ""


def test_a_submodule_is_no_file() -> None:
    listing = b"100644 blob aa 5\ta b\0" + b"160000 commit bb -\tsub\0" + b"120000 blob cc 4097\tlink\0"
    blobs = blobs_of(listing)
    assert [blob.entry for blob in few_of(blobs)] == [b"100644 aa\ta b\0", b"120000 cc\tlink\0"]
    assert disk_bytes(blobs) == (1 + 2 + 2 * 2) * 4096


def test_whatever_lives_in_the_home_of_the_stage_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "GUARDS_PATIENCE", 0.0)
    on_stage = subprocess.Popen(["sleep", "600"], env={"HOME": str(tmp_path)}, start_new_session=True)
    elsewhere = subprocess.Popen(["sleep", "600"], env={"HOME": f"{tmp_path}2"})
    try:
        staging.clear_the_stage(tmp_path)
        assert on_stage.wait(PATIENCE) == -9
        assert elsewhere.poll() is None
    finally:
        elsewhere.kill()
        elsewhere.wait()


def test_headers_can_name_a_moment_to_come() -> None:
    given = Reply(headers=(("reset", "{now+60}"), ("retry-after", "2"), ("odd", "{now}")))
    assert headers(given, 1000.4) == [("reset", "1060"), ("retry-after", "2"), ("odd", "{now}")]

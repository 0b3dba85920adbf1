"""A copy of a tree that nobody can tell from it, and that leaves it alone."""

import asyncio
import os
from pathlib import Path

import pytest

from untildone.errors import WorkspaceError
from untildone.git.tree_copy import TooMuch, lay_over

pytestmark = pytest.mark.anyio


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    tree = tmp_path / "tree"
    (tree / "sub" / "deep").mkdir(parents=True)
    (tree / ".git").mkdir()
    (tree / ".git" / "config").write_text("secret\n")
    (tree / "a.txt").write_text("a\n")
    (tree / "run.sh").write_text("#!/bin/sh\n")
    (tree / "run.sh").chmod(0o755)
    (tree / "sub" / "deep" / "b.txt").write_text("b\n")
    (tree / "link").symlink_to("sub/deep")
    (tree / "nowhere").symlink_to("/not/there")
    os.mkfifo(tree / "pipe")
    os.utime(tree / "a.txt", (1_000_000, 1_000_000))
    return tree


@pytest.fixture
def room(tmp_path: Path) -> Path:
    room = tmp_path / "room"
    (room / "gone").mkdir(parents=True)
    (room / ".git").write_text("gitdir: elsewhere\n")
    (room / "gone" / "x").touch()
    (room / "a.txt").write_text("committed\n")
    (room / "sub").symlink_to("/etc")
    return room


async def test_it_is_the_same_but_for_git(tree: Path, room: Path) -> None:
    await lay_over(tree, room)
    assert (room / ".git").read_text() == "gitdir: elsewhere\n"
    assert sorted(path.name for path in room.iterdir()) == [".git", "a.txt", "link", "nowhere", "run.sh", "sub"]
    assert (room / "a.txt").read_text() == "a\n"
    assert (room / "a.txt").stat().st_mtime == 1_000_000
    assert os.access(room / "run.sh", os.X_OK)
    assert not (room / "sub").is_symlink()
    assert (room / "sub" / "deep" / "b.txt").read_text() == "b\n"
    assert ((room / "link").readlink(), (room / "nowhere").readlink()) == (Path("sub/deep"), Path("/not/there"))
    (room / "a.txt").write_text("changed\n")
    assert (tree / "a.txt").read_text() == "a\n"


async def test_what_is_too_large_is_not_begun(tree: Path, room: Path) -> None:
    with pytest.raises(TooMuch, match="too large to be copied"):
        await lay_over(tree, room, most_files=3)
    with pytest.raises(TooMuch):
        await lay_over(tree, room, most_bytes=5)
    assert (room / "a.txt").read_text() == "committed\n"


async def test_trouble_with_the_disk_is_one_line(tree: Path, room: Path) -> None:
    (tree / "a.txt").unlink()
    (tree / "a.txt").mkdir()
    (room / "run.sh").mkdir()
    await lay_over(tree, room)
    assert (room / "a.txt").is_dir()
    with pytest.raises(WorkspaceError, match="cannot copy"):
        await lay_over(tree / "missing", room)


async def test_called_off_it_ends_before_the_room_goes(tree: Path, room: Path) -> None:
    for number in range(2000):
        (tree / f"f{number}").touch()
    copying = asyncio.create_task(lay_over(tree, room))
    await asyncio.sleep(0)
    copying.cancel()
    with pytest.raises(asyncio.CancelledError):
        await copying
    there = len(list(room.iterdir()))
    await asyncio.sleep(0.05)
    assert len(list(room.iterdir())) == there

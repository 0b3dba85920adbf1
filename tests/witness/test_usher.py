import os

import pytest

from untildone.witness.usher import FolderUsher


@pytest.mark.anyio
async def test_call_hands_the_facts_over(tmp_path):
    assert await FolderUsher(tmp_path).call("cat; exit 4", b'{"n": 1}', timeout=240) == (4, '{"n": 1}')
    assert (await FolderUsher(tmp_path).call("sleep 60", b"", timeout=0.2))[0] is None


def test_reads_up_to_the_cap_and_tells_the_full_size(tmp_path):
    (tmp_path / "notes.md").write_text("größer")
    usher = FolderUsher(tmp_path)
    assert usher.read_text("notes.md", cap=100) == ("größer", 8)
    assert usher.read_text("notes.md", cap=3) == ("gr", 8), "half a character is left out"
    assert usher.read_text("notes.md", cap=4) == ("grö", 8)


def test_binary_content_becomes_text(tmp_path):
    (tmp_path / "bin").write_bytes(b"\xff\x00ok\xc3")
    assert FolderUsher(tmp_path).read_text("bin", cap=100) == ("\ufffd\ufffdok\ufffd", 5)


def test_what_is_no_file_is_none(tmp_path):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    usher = FolderUsher(tmp_path)
    assert [usher.read_text(name, cap=9) for name in ("gone", "folder", "pipe", "loop", "gone/x")] == [None] * 5


def test_nothing_inside_the_folder_can_lead_out_of_it(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("key")
    folder = tmp_path / "project"
    (folder / "sub").mkdir(parents=True)
    (folder / "notes.md").symlink_to(secret)
    (folder / "out").symlink_to(tmp_path)
    usher = FolderUsher(folder)
    escapes = ["notes.md", "../secret", "out/secret", "sub/../../secret", str(folder / "notes.md")]
    assert [usher.read_text(path, cap=9) for path in escapes] == [None] * len(escapes)


def test_links_within_the_folder_and_absolute_paths_of_the_user_work(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "real.md").write_text("in")
    (folder / "link.md").symlink_to("real.md")
    (tmp_path / "plan.md").write_text("out")
    usher = FolderUsher(folder)
    assert usher.read_text("link.md", cap=9) == ("in", 2)
    assert usher.read_text(str(folder / "real.md"), cap=9) == ("in", 2)
    assert usher.read_text(str(tmp_path / "plan.md"), cap=9) == ("out", 3)

"""Which loops were started here."""

from pathlib import Path
from typing import Any

from untildone.hook import register
from untildone.hook.sealing import KEY_FILE


def entry(project: str, loop: str = "abc") -> Any:
    return {"loop": loop, "project": project, "session": "s"}


def test_all_loops_are_found_and_nothing_else(tmp_path: Path) -> None:
    home = str(tmp_path)
    assert register.entries(home) == []
    for number in range(3):
        register.write(home, entry(f"/p{number}", f"l{number}"))
    register.remove(home, "/p1")
    folder = tmp_path / "loops"
    (folder / "junk.json").write_text("{")
    (folder / "list.json").write_text("[1]")
    (folder / "foreign.json").write_text('{"project": "/p9", "loop": "x"}')
    (folder / "copied.json").write_text('{"project": "/p0", "loop": "forged"}')
    found = {each["project"]: each["loop"] for each in register.entries(home)}
    assert found == {"/p0": "l0", "/p2": "l2"}


def test_an_entry_that_was_edited_or_moved_is_none(tmp_path: Path) -> None:
    home = str(tmp_path)
    register.write(home, {**entry("/p"), "checks": ["false"]})
    [path] = (tmp_path / "loops").glob("*.json")
    whole = path.read_text()
    path.write_text(whole.replace('["false"]', "[]"))
    assert register.find(home, "/p") is None
    path.write_text(whole)
    assert (register.find(home, "/p") or {}).get("checks") == ["false"]
    (tmp_path / KEY_FILE).unlink()
    assert register.find(home, "/p") is None

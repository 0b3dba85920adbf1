"""Whether an edit of `pyproject.toml` reaches the part of it that says when work counts as done."""

from untildone.hook.files import read_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_TABLE = "tool.untildone"


def changes_contract(path: str, tool: str, given: "Mapping[str, object]") -> bool:
    """Whether the tables of ours would read otherwise afterwards."""
    before = read_text(path) or ""
    after = _after(before, tool, given)
    return _TABLE in f"{before}{after}" and _tables(before) != _tables(after)


def _after(before: str, tool: str, given: "Mapping[str, object]") -> str:
    if tool == "Write":
        content = given.get("content")
        return content if isinstance(content, str) else ""
    edits = given.get("edits") if tool == "MultiEdit" else [given]
    after = before
    for edit in edits if isinstance(edits, list) else []:
        old, new = (edit.get("old_string"), edit.get("new_string")) if isinstance(edit, dict) else (None, None)
        if isinstance(old, str) and isinstance(new, str) and old:
            after = after.replace(old, new) if edit.get("replace_all") else after.replace(old, new, 1)
    return after


def _tables(text: str) -> list[str]:
    """The lines of `[tool.untildone]` and of every table below it."""
    kept: list[str] = []
    inside = False
    for line in text.splitlines():
        bare = line.strip()
        if bare.startswith("["):
            name = "".join(bare.strip("[] \t").replace('"', "").replace("'", "").split())
            inside = name == _TABLE or name.startswith((f"{_TABLE}.", f"{_TABLE}]"))
        if (inside or _TABLE in bare) and bare and not bare.startswith("#"):
            kept.append(bare)
    return kept

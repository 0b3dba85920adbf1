"""What a tool call did to a file: from Claude's own patch where it gives one, else from what the tool was told."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any, Literal

from untildone.core.diffs import diff_facts, hunk, replaced
from untildone.core.trace import AgentFileEdited

EDITING_TOOLS = frozenset({"Write", "Edit", "MultiEdit", "NotebookEdit"})
_MOST_HUNKS = 10_000
_CREATED = "File created"


def file_edited(
    tool: str, given: Mapping[str, Any], *, iteration_num: int, tool_use_id: str, result: Any = None, answer: str = ""
) -> AgentFileEdited | None:
    """The event of a call that went well; None: it names no file, or changed nothing.

    `result` may be anything, or nothing.
    """
    path = _text(given.get("notebook_path")) or _text(given.get("file_path"))
    kind = _kind(tool, result, answer)
    if not path or (kind == "modified" and _is_unchanged(result)):
        return None
    hunks = list(_patched(result)) or list(_told(tool, given, result))
    lines = [line for _, _, lines in hunks for line in lines]
    head = f"--- {'/dev/null' if kind == 'created' else f'a/{path}'}\n+++ b/{path}"
    diff = "\n".join((head, *(hunk(old, new, lines) for old, new, lines in hunks))) if hunks else ""
    facts = diff_facts(
        diff,
        lines_added=sum(line.startswith("+") for line in lines),
        lines_removed=sum(line.startswith("-") for line in lines),
    )
    return AgentFileEdited(
        iteration_num=iteration_num,
        tool_use_id=tool_use_id,
        tool=tool,
        file_path=path,
        change_type=kind,
        **asdict(facts),
    )


def _kind(tool: str, result: Any, answer: str) -> Literal["created", "modified"]:
    told = result.get("type") if isinstance(result, Mapping) else None
    # A tuple: it may be of a type that no set takes.
    if told in ("create", "update"):
        return "created" if told == "create" else "modified"
    return "created" if tool == "Write" and answer.startswith(_CREATED) else "modified"


def _is_unchanged(result: Any) -> bool:
    """Whether Claude compared the file before and after, and found no difference."""
    return isinstance(result, Mapping) and result.get("structuredPatch") == []


def _patched(result: Any) -> Iterator[tuple[int, int, list[str]]]:
    """The hunks of Claude's own patch, as far as they have the right shape."""
    patch = result.get("structuredPatch") if isinstance(result, Mapping) else None
    for part in patch[:_MOST_HUNKS] if isinstance(patch, list) else ():
        lines = part.get("lines") if isinstance(part, Mapping) else None
        if isinstance(lines, list) and (told := [line for line in lines if isinstance(line, str)]):
            yield _number(part.get("oldStart")), _number(part.get("newStart")), told


def _told(tool: str, given: Mapping[str, Any], result: Any) -> Iterator[tuple[int, int, list[str]]]:
    """What the tool was told to do. Where in the file it did it, nobody said."""
    edits = given.get("edits")
    if tool == "Write":
        pairs = [("", _text(given.get("content")).removesuffix("\n"))]
    elif tool == "NotebookEdit":
        old = result.get("old_source") if isinstance(result, Mapping) else None
        pairs = [(_text(old), _text(given.get("new_source")))]
    elif isinstance(edits, list):
        pairs = [_pair(edit) for edit in edits[:_MOST_HUNKS] if isinstance(edit, Mapping)]
    else:
        pairs = [_pair(given)]
    for old, new in pairs:
        if lines := replaced(old, new):
            yield 0 if tool == "Write" else 1, 1, lines


def _pair(edit: Mapping[str, Any]) -> tuple[str, str]:
    return _text(edit.get("old_string")), _text(edit.get("new_string"))


def _number(value: Any) -> int:
    return value if isinstance(value, int) and 0 <= value < 1 << 53 else 0


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""

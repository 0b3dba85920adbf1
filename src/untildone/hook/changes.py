"""What a loop works for can be edited while it is at work: the log is told, so that it says what the work was about."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from untildone.core.loop_file import LoopFile
    from untildone.hook.register import Entry


def facts(entry: "Entry", file: "LoopFile") -> "dict[str, object]":
    """What a loop works for, as the spool tells it."""
    return {
        "goal": file.body.strip(),
        "promises": list(file.promises),
        "checks": list(entry.get("checks") or ()),
        "max_iterations": file.max_iterations,
        "deadline": file.deadline,
    }


def mark(entry: "Entry", file: "LoopFile") -> str:
    """What tells one such state from another; the deadline is left out, which is rewritten as the loop goes on."""
    from untildone.hook.sealing import digest

    return digest(
        "\0".join((file.body.strip(), *file.promises, "", *entry.get("checks", ()), str(file.max_iterations)))
    )


def tell_changes(home: str, entry: "Entry", file: "LoopFile", now: float) -> None:
    """Write down what was changed since it was last told, and remember it in the entry, which is the caller's."""
    now_is = mark(entry, file)
    before = entry.get("told")
    entry["told"] = now_is
    if before is not None and before != now_is:
        from untildone.hook import spool

        spool.tell(home, entry["loop"], "changed", now, session=entry.get("session", ""), **facts(entry, file))

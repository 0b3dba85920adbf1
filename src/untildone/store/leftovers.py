"""Files beside the store that grow in number: each kind has its bound."""

from pathlib import Path

RUN_LOGS = "runs"
"""The folder with what detached runs printed."""
LAST_WORDS = "last-words"
"""The folder with what the agents of killed runs said last: until the run is taken up."""
WIRE_NOTES = ".wire"
"""How the files in it end that hold what passed the door of an agent in a sandbox."""
HISTORY = "history"
"""The folder with loops of Claude Code that are over: their state files, and the notes that are in the log by now."""
TODOS = "todos"
"""The folder with the todos of sessions, as Claude Code last wrote them."""
ROOMS = "rooms"
"""The folder with the fresh checkouts that checks run in."""
BOXES = "boxes"
"""The folder with what agents in sandboxes have for a home."""
CACHES = "caches"
"""The folder with what tools in containers have fetched, for each tree."""
CRASH_LOGS_KEPT = 20


def clear_leftovers(state_dir: Path, before: float) -> None:
    """Remove what runs printed, said last or noted and nobody wrote to since `before`, as far as it can be removed."""
    kinds = (
        (RUN_LOGS, "*.log*"),
        (LAST_WORDS, "*.jsonl*"),
        (LAST_WORDS, f"*{WIRE_NOTES}"),
        (HISTORY, "*.jsonl"),
        (TODOS, "*.json"),
    )
    for path in (path for folder, pattern in kinds for path in (state_dir / folder).glob(pattern)):
        try:
            if path.stat().st_mtime < before:
                path.unlink()
        except OSError:
            continue  # gone already, or not ours
    clear_crash_logs(state_dir)


def clear_crash_logs(state_dir: Path) -> None:
    """Keep the newest crash logs only."""
    # Their names begin with the moment: sorted they are in order.
    for path in sorted(state_dir.glob("crash-*.log"))[:-CRASH_LOGS_KEPT]:
        try:
            path.unlink()
        except OSError:
            continue

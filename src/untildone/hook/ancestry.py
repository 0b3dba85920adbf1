"""Who started this Claude Code: a person, or the agent of another session, whatever it took out of the environment."""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_NAME = b"CLAUDE_CODE_SESSION_ID="
_GENERATIONS = 200
_CAP = 1 << 20


def is_inside(session: str, env: "Mapping[str, str]") -> bool:
    """Whether a command of that session started the Claude Code that calls us. Where that cannot be told: no."""
    claude = env.get("CLAUDE_PID", "")
    if not session or not (claude.isascii() and claude.isdigit()):
        return False
    wanted = _NAME + os.fsencode(session)
    above = iter(_ancestors(os.getpid()))
    return any(pid == int(claude) for pid in above) and any(wanted in _environment(pid) for pid in above)


def _ancestors(pid: int) -> "Iterator[int]":
    for _ in range(_GENERATIONS):
        pid = _parent(pid)
        if pid <= 1:
            return
        yield pid


def _parent(pid: int) -> int:
    # A name in brackets may hold anything, brackets too: what follows the last one is ours to read.
    fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return int(fields[1]) if len(fields) > 1 and fields[1].isdigit() else 0


def _environment(pid: int) -> list[bytes]:
    return _read(f"/proc/{pid}/environ").split(b"\0")


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(_CAP)
    except OSError:
        return b""

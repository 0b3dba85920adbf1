"""Keeps the machine awake while a run works, where the system offers that; silently does nothing elsewhere."""

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

WAYS: tuple[tuple[str, ...], ...] = (
    ("systemd-inhibit", "--what=sleep:idle", "--who=untildone", "--why=a run is at work", "--mode=block"),
    ("caffeinate", "-i"),
)
"""Programs that keep the machine awake for as long as the command after them lives."""
PATIENCE = 2.0


@contextmanager
def awake(env: Mapping[str, str]) -> Iterator[None]:
    """Keep the machine from going to sleep meanwhile.

    The command it waits for reads from a pipe of ours: when we are gone, by whatever means, so is the pipe.
    """
    holder = _hold(env)
    try:
        yield
    finally:
        if holder is not None:
            _let_go(holder)


def _hold(env: Mapping[str, str]) -> subprocess.Popen[bytes] | None:
    path = env.get("PATH")
    for name, *arguments in WAYS:
        program = shutil.which(name, path=path)
        reader = shutil.which("cat", path=path)
        if program is None or reader is None:
            continue
        with suppress(OSError):
            return subprocess.Popen(  # noqa: S603 -- a program of the system
                [program, *arguments, reader],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=dict(env),
                # No terminal: it must not ask for a password, and Ctrl+C is not meant for it.
                start_new_session=True,
            )
    return None


def _let_go(holder: subprocess.Popen[bytes]) -> None:
    if holder.stdin is not None:
        with suppress(OSError):
            holder.stdin.close()
    try:
        holder.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        holder.kill()
        holder.wait()

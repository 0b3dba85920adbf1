"""Getting rid of a folder without waiting for it: it is renamed at once, and removed by a process of its own."""

import os
from contextlib import suppress
from pathlib import Path

from untildone.git.run import own_path

GONE = "gone-"
"""What the names of folders begin with that nobody needs any more: whoever finds one may remove it."""

# A test suite may leave folders behind that not even their owner may write to. The process lives on when we end, or
# are hung up on: removing 50,000 files can take a minute on a busy disk, and neither a verdict nor a stop waits for it.
_REMOVE = """
trap "" HUP INT
{ rm -rf -- "$0" || { chmod -R u+rwx -- "$0"; rm -rf -- "$0"; }; } </dev/null >/dev/null 2>&1 &
"""


def discard(folder: Path, *, into: Path) -> None:
    """Let a folder vanish now; its content goes to `into`, which must be on the same disk, until it is removed."""
    gone = into / f"{GONE}{folder.parent.name}-{folder.name}"
    try:
        folder.rename(gone)
    except FileNotFoundError:
        return
    except OSError:
        gone = folder  # a mount below it, or a name that is taken: removed in its place
    remove(gone)


def remove(folder: Path) -> None:
    """Begin to remove a folder. Returns at once, and a failure is silent: the next sweep tries again."""
    with suppress(OSError):  # no process to be had: never a reason to lose what was found out in there
        env = {**os.environ, "PATH": own_path()}
        shell = os.posix_spawn("/bin/sh", ["sh", "-c", _REMOVE, str(folder)], env, setpgroup=0)
        os.waitpid(shell, 0)


def remove_all_gone(root: Path) -> None:
    """Remove what somebody who died in the middle of it had renamed already."""
    for left in root.glob(f"{GONE}*"):
        remove(left)

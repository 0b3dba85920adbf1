"""What shuts a program in: the seam between the way out, which is always the door, and the kinds of walls."""

import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Literal, Protocol

from untildone.core.printable import one_line
from untildone.errors import AgentError
from untildone.sandbox import listen_inside
from untildone.sandbox.host import HostProcess
from untildone.sandbox.view import View

Close = Callable[[], None]
MakeDoor = Callable[[Sequence[socket.socket]], Awaitable[Close]]
"""Makes the door of sockets that listen inside, one for each port, and returns what closes it."""
_MOST_PORTS = 200
_PATIENCE = 20.0
_SAID = 300


class Walls(Protocol):
    """A kind of sandbox: bubblewrap, or an engine for containers."""

    def stand(self, make_door: MakeDoor, ports: Sequence[int]) -> AbstractAsyncContextManager[None]:
        """Until the end of the block programs can be shut in; nothing is left of them then, nor of a dead driver's.

        `ports`: those of the door.
        """
        ...

    async def start(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        stdin: Literal["pipe", "null"],
        seen: View | None = None,
    ) -> HostProcess:
        """Start a program inside; there is a door in its network before it does anything.

        `seen`: what it sees, if that is something else than what the agent does.
        """
        ...

    def words(self, cwd: str) -> tuple[str, ...]:
        """What goes before a command so that it works in a folder inside, with the environment it is given."""
        ...


def place_outside(cwd: str, seen: View | None) -> str:
    """Where a program is started that goes to `cwd` inside: what is seen there may not be there outside."""
    return cwd if seen is None else "/"


def listening_in(pid: int, ports: Sequence[int]) -> list[socket.socket]:
    """Sockets that listen in the network of a process. AgentError if this user may not make them there."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        argv = [sys.executable, "-I", "-S", listen_inside.__file__, joined(ports), str(theirs.fileno()), str(pid)]
        done = subprocess.run(  # noqa: S603, TID251 - it lives for milliseconds
            argv, pass_fds=[theirs.fileno()], capture_output=True, text=True, check=False, timeout=_PATIENCE
        )
        if done.returncode:
            raise AgentError(f"no door can be opened in the sandbox: {one_line(done.stderr.strip(), _SAID)}")
        return handed_over(ours)


def joined(ports: Sequence[int]) -> str:
    """As `listen_inside` is told them."""
    return ",".join(map(str, ports))


def handed_over(connection: socket.socket) -> list[socket.socket]:
    """The sockets that `listen_inside` sends."""
    _, handles, *_ = socket.recv_fds(connection, 1, _MOST_PORTS)
    if not handles:
        raise AgentError("no door can be opened in the sandbox")
    return [socket.socket(fileno=handle) for handle in handles]

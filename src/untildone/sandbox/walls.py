"""What shuts a program in: the seam between the way out, which is always the door, and the kinds of walls."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Literal, Protocol

from untildone.sandbox.host import HostProcess

Close = Callable[[], None]
MakeDoor = Callable[[int], Awaitable[Close]]
"""Opens the door in the network of a process, and returns what closes it there."""


class Walls(Protocol):
    """A kind of sandbox: bubblewrap, or an engine for containers."""

    def stand(self, make_door: MakeDoor) -> AbstractAsyncContextManager[None]:
        """Until the end of the block programs can be shut in; nothing is left of them then, nor of a dead driver's."""
        ...

    async def start(
        self, argv: Sequence[str], *, cwd: str, env: Mapping[str, str], stdin: Literal["pipe", "null"]
    ) -> HostProcess:
        """Start a program inside; there is a door in its network before it does anything."""
        ...

    def words(self, cwd: str) -> tuple[str, ...]:
        """What goes before a command so that it works in a folder inside, with the environment it is given."""
        ...

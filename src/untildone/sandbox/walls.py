"""What shuts a program in: the seam between the way out, which is always the door, and the kinds of walls."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Literal, NamedTuple, Protocol

from untildone.sandbox.host import HostProcess


class Held(NamedTuple):
    """A program that is started, and waits inside for its door."""

    process: HostProcess
    find_inside: Callable[[], int | None]
    """The id of a process in its network, as soon as there is one."""
    release: Callable[[], Awaitable[None]]
    """Let the program begin."""


class Walls(Protocol):
    """A kind of sandbox: bubblewrap, or an engine for containers."""

    def stand(self) -> AbstractAsyncContextManager[None]:
        """Until the end of the block programs can be shut in; nothing is left of them then, nor of a dead driver's."""
        ...

    def hold(
        self, argv: Sequence[str], *, cwd: str, env: Mapping[str, str], stdin: Literal["pipe", "null"]
    ) -> AbstractAsyncContextManager[Held]:
        """Start a program up to the moment before it does anything. Ends it if the block fails."""
        ...

    def words(self, cwd: str) -> tuple[str, ...]:
        """What goes before a command so that it works in a folder inside, with the environment it is given."""
        ...

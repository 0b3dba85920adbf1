"""Everything a run is driven with, as one value."""

from collections.abc import Callable, Sequence

from untildone.core.dataclass import dataclass
from untildone.ports import Agent, Clock, Ledger, Machine, Notifier, Spawner, Usher, Workspace
from untildone.ports.delivery import Forge, Lander, Witness


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The adapters of one run, picked by the composition root."""

    agent: Agent
    workspace: Workspace
    witness: Witness
    lander: Lander
    forge: Forge | None
    """None: no pull requests are wanted."""
    reviewer: Agent | None
    """None: nobody reviews."""
    usher: Usher
    spawner: Spawner
    ledger: Ledger
    machine: Machine
    notifiers: Sequence[Notifier]
    clock: Clock
    jitter: Callable[[], float]
    """A number in 0..1: spreads the retries of many runs."""
    tasks_left: Callable[[], str] = lambda: ""
    """Why the tasks of the project are not all done; "" when they are. It may block for a moment."""

    async def close_agents(self) -> None:
        """End whoever works or reviews."""
        await self.agent.close()
        if self.reviewer is not None:
            await self.reviewer.close()

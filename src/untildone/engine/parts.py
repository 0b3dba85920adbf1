"""Everything a run is driven with, as one value."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from untildone.ports import Agent, Check, Clock, Ledger, Machine, Notifier, Spawner, Usher, Workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The adapters of one run, picked by the composition root."""

    agent: Agent
    workspace: Workspace
    checks: Sequence[Check]
    usher: Usher
    spawner: Spawner
    ledger: Ledger
    machine: Machine
    notifiers: Sequence[Notifier]
    clock: Clock
    jitter: Callable[[], float]
    """A number in 0..1: spreads the retries of many runs."""

"""A scripted model that gets a new scenario while Claude Code keeps running: one process serves many stories."""

import uuid

from untildone.rehearsal.ledger import Ledger
from untildone.rehearsal.model import ScriptedModel
from untildone.rehearsal.scenario import Reply, Scenario
from untildone.rehearsal.script import Script


class ChangingModel(ScriptedModel):
    """Says nothing worth a test until `play` is called."""

    def __init__(self) -> None:
        super().__init__(Scenario(name="none"))

    def play(self, *replies: Reply, iterations: tuple[tuple[Reply, ...], ...] = ()) -> None:
        """Serve these replies from now on. Requests, numbers and books begin again."""
        with self._arrival:
            self._scenario = Scenario(name="test", replies=replies, iterations=iterations)
            self._script = Script(self._scenario, uuid.uuid4().hex[:12])
            self._requests.clear()
            self.ledger = Ledger()

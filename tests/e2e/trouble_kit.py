"""A model in trouble for a while: it refuses by the clock, not by the script."""

import math
import time
import uuid
from typing import Any

from untildone.rehearsal.model import ScriptedModel
from untildone.rehearsal.scenario import Reply, Scenario
from untildone.rehearsal.script import Turn, is_main

UNIFIED = "anthropic-ratelimit-unified-"


class RefusingModel(ScriptedModel):
    """Refuses everything for some seconds from the first request on, then follows its scenario."""

    def __init__(self, scenario: Scenario, *, seconds: float, refusal: Reply) -> None:
        super().__init__(scenario)
        self._seconds = seconds
        self._refusal = refusal
        self.began: float | None = None
        """When the first request came, by `time.time`."""
        self.refused = 0
        self.answered: float | None = None
        """When a request was answered again."""

    @property
    def over(self) -> float:
        """When the trouble ends."""
        return (self.began or 0.0) + self._seconds

    def answer_to(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> tuple[Turn, str]:
        """Refuse while the trouble lasts."""
        if not is_main(body):
            return super().answer_to(path, headers, body)
        now = time.time()
        self.began = self.began or now
        if now < self.over:
            self.refused += 1
            return Turn(self.refusal(), self.refused, 1, uuid.uuid4().hex), "none"
        self.answered = self.answered or now
        return super().answer_to(path, headers, body)

    def refusal(self) -> Reply:
        """What is said meanwhile."""
        return self._refusal


class UsedUpModel(RefusingModel):
    """The subscription's 5-hour limit is reached, and resets after some seconds."""

    def refusal(self) -> Reply:
        """The API's own headers; only subscription-style auth heeds them."""
        self._seconds = math.ceil(self.over) - (self.began or 0.0)  # a reset is told in whole seconds
        told = {
            "status": "rejected", "reset": f"{self.over:.0f}", "representative-claim": "five_hour",
            "5h-status": "rejected", "5h-reset": f"{self.over:.0f}", "5h-utilization": "1.0", "7d-status": "allowed",
            "7d-reset": f"{self.over + 86400:.0f}", "7d-utilization": "0.4", "overage-status": "rejected",
            "overage-disabled-reason": "org_level_disabled",
        }  # fmt: skip
        headers = tuple((UNIFIED + name, value) for name, value in told.items())
        return Reply(status=429, message="This request would exceed your account's rate limit.", headers=headers)

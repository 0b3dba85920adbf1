"""Waiting for a forge: for what it works on, and for itself while it is away. People see why, and until when."""

from untildone.core import events as ev
from untildone.core.figures import FORGE
from untildone.core.printable import one_line
from untildone.engine.journal import Journal
from untildone.engine.parts import Parts
from untildone.engine.watch import news
from untildone.errors import ForgeError

LONGEST_BACKOFF = 300.0
RETOLD_AFTER = 60.0
"""Seconds after which a wait whose end has moved is told again."""
_SAID = 200


class Waits:
    """One driver's patience with a forge."""

    def __init__(self, journal: Journal, parts: Parts) -> None:
        self.excused = 0.0
        """Seconds the forge itself, or a human's pause, kept us waiting: they are not held against CI."""
        self._journal = journal
        self._parts = parts
        self._troubles = 0
        self._since: float | None = None
        self._as_told = 0.0
        """Seconds of this trouble that the forge itself asked us to wait: a rate limit is not an outage."""
        self._said = ""
        self._told_at = 0.0
        self._told_until: float | None = None

    def answered(self) -> None:
        """The forge is there again."""
        self._troubles, self._since, self._as_told = 0, None, 0.0

    async def sit_out(self, trouble: ForgeError) -> bool:
        """Wait for a forge that is busy or away; False: a human is needed."""
        if trouble.lasting:
            return False
        clock, landing = self._parts.clock, self._journal.state.spec.landing
        now = clock.monotonic()
        self._since = self._since if self._since is not None else now
        backoff = min(landing.ci_poll * 2**self._troubles, LONGEST_BACKOFF) * (1 + self._parts.jitter() / 4)
        if trouble.retry_at is None:
            last_try = self._since + self._as_told + landing.ci_timeout
            until = clock.now() + min(backoff, last_try - now)
        else:
            # A moment that the forge itself names is worth waiting for.
            last_try = self._since + max(landing.ci_timeout, self._journal.state.policy.outage_budget)
            until = max(trouble.retry_at, clock.now() + 1)
        if now >= last_try or (trouble.retry_at is not None and now + until - clock.now() > last_try):
            return False
        self._troubles += 1
        await self.rest(until, FORGE, one_line(str(trouble), _SAID), announced=until)
        waited = clock.monotonic() - now
        self.excused += waited
        if trouble.retry_at is not None:
            self._as_told += waited
        return True

    async def rest(self, until: float | None, cause: str, said: str, *, announced: float | None = None) -> None:
        """Rest until a moment; a stop or a pause ends it. Said for each cause, and again when its figures are old."""
        clock = self._parts.clock
        now = clock.monotonic()
        ends = None if until is None else now + until - clock.now()
        is_old = announced != self._told_until and now - self._told_at >= RETOLD_AFTER
        if said != self._said or cause == "paused" or is_old:
            self._said, self._told_at, self._told_until = said, now, announced
            await self._journal.record(ev.ContinuousWaiting(cause=cause, until=announced, detail=said))
        paused = self._journal.state.paused
        while self._goes_on(paused=paused) and (ends is None or clock.monotonic() < ends):
            await news(self._journal, clock, None if ends is None else ends - clock.monotonic())
        if cause == "paused":
            self._said = ""
            self.excused += clock.monotonic() - now

    def _goes_on(self, *, paused: bool) -> bool:
        return self._journal.state.stop is None and self._journal.state.paused == paused

"""A pull request's whole life: pushed, opened, watched, mended, merged.

Every step looks first and acts on what it sees, so that a driver that comes after a crash goes on from there: no
second pull request, no second merge.
"""

from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, TypeVar

from untildone.core import events as ev
from untildone.core import pull as pl
from untildone.core.decide import Land
from untildone.core.forge_words import ci_words, comment_words, conflict_words, pull_body, pull_title, with_proof
from untildone.core.printable import one_line
from untildone.core.state import Arrival, LoopState
from untildone.engine.journal import Journal
from untildone.engine.mending import failures_on, landing_message, send_back, strange_remote
from untildone.engine.parts import Parts
from untildone.engine.waits import Waits
from untildone.engine.watch import unless
from untildone.errors import ForgeError, UntildoneError, WorkspaceError
from untildone.ports.delivery import Forge, Relation

T = TypeVar("T")

LOGS = 4
"""Failed checks whose logs are shown to the agent; of more, only the names."""
UPDATES = 8
"""How often the base may move on between a green CI and the merge before a human is asked."""
_SAID = 200


async def land_by_pull(journal: Journal, parts: Parts, work: Land) -> None:
    """Bring the work to the base through a pull request, as far as it goes now."""
    if parts.forge is None:
        await journal.record(ev.LandingGaveUp(reason="there is no forge to open a pull request on"))
        return
    try:
        await _PullLanding(journal, parts, parts.forge, work).go()
    except _CalledOff:
        return


def check_way(state: LoopState) -> None:
    """WorkspaceError at the start of a run whose work could never be opened as a pull request at its end."""
    wanted = state.spec.landing.land == "pr" and state.spec.branch_per == "run"
    if wanted and (wrong := pl.obstacle(state.arrival)):
        raise WorkspaceError(wrong)


class _CalledOff(Exception):
    """A human asked for a stop; the landing is taken up by the next driver."""


class _PullLanding:
    """One driver's way with one commit."""

    def __init__(self, journal: Journal, parts: Parts, forge: Forge, work: Land) -> None:
        self._journal = journal
        self._parts = parts
        self._forge = forge
        self._work = work
        self._began = parts.clock.monotonic()
        self._waits = Waits(journal, parts)
        self._updates = 0
        self._refused_since: float | None = None
        self._said = ""
        self._proof: str | None = None
        """The commit that the pull request calls verified, as far as this driver knows."""
        self._changed_at = self._began

    async def go(self) -> None:
        """Step by step until the work arrived, goes back to the agent, or needs a human."""
        while True:
            if self._state.stop is not None:
                raise _CalledOff
            if self._state.paused:
                await self._waits.rest(None, "paused", "")
                continue
            try:
                if await self._step():
                    return
                self._waits.answered()
            except ForgeError as trouble:
                if not await self._waits.sit_out(trouble):
                    await self._give_up(str(trouble))
                    return
            except WorkspaceError as trouble:
                await self._give_up(str(trouble))
                return

    @property
    def _state(self) -> LoopState:
        return self._journal.state

    @property
    def _arrival(self) -> Arrival:
        return self._journal.state.arrival

    @property
    def _branch(self) -> str:
        """The run's own, whatever is checked out. ForgeError when there can be no pull request for it."""
        if wrong := pl.obstacle(self._arrival):
            raise ForgeError(wrong)
        assert self._arrival.branch is not None
        return self._arrival.branch

    async def _step(self) -> bool:
        """One step; whether it was the last."""
        number = self._arrival.number
        if number is None:
            await self._push()
            await self._find_or_open()
            return False
        view = await self._ask(self._forge.look(number))
        if view.state == "open" and self._arrival.pushed != self._work.commit:
            await self._push()
            return False
        await self._tell(view)
        if view.state == "open":
            await self._name_proof(number)
        if view.base and view.base != self._arrival.base:
            await self._give_up(
                f"{_named(view)} is for {view.base}, the work for {self._arrival.base}: change that, then land again",
                close=False,
            )
            return True
        if view.state == "merged" and (held := await self._held_by(view)) != "holds":
            return await self._merged_without_it(view, held)
        return await self._take(self._next(view), view)

    async def _held_by(self, view: pl.PullView) -> Relation:
        """How what was merged, perhaps by somebody else, stands to the work."""
        if self._arrival.pushed == self._work.commit and view.head in {self._work.commit, self._arrival.head}:
            return "holds"
        asked = self._parts.lander.relation(view.head, self._work.commit, branch=self._branch, number=view.number)
        return await self._ask(asked)

    async def _merged_without_it(self, view: pl.PullView, held: Relation) -> bool:
        if held == "older":
            # Somebody merged what was there before the newest work came: that needs a pull request of its own.
            await self._push()
            await self._find_or_open()
            return False
        unlike = "something else" if held == "other" else "what cannot be had here"
        what = f"{unlike} ({view.head[:10]})"
        await self._give_up(
            f"{_named(view)} was merged with {what} in place of {self._work.commit[:10]}: look at {view.base}",
            close=False,
        )
        return True

    def _next(self, view: pl.PullView) -> pl.Step:
        # A driver that comes hours later gives CI the same patience as one that pushed a moment ago.
        now = self._now()
        since = max(self._arrival.since, now - self._passed_since(self._began)) + self._waits.excused
        return pl.next_step(view, replace(self._arrival, since=since), self._state.spec.landing, now)

    async def _take(self, step: pl.Step, view: pl.PullView) -> bool:
        """Do what the step says; whether it was the last."""
        match step:
            case pl.WaitFor():
                await self._wait(step)
                return False
            case pl.Moved():
                return await self._take_over(step.head)
            case pl.UpdateBranch():
                return await self._update(view)
            case pl.MergeNow():
                return await self._merge(view.number, step.head)
            case pl.Arrived():
                await self._arrived(step.merged, view)
            case pl.ClosedByHuman():
                await self._give_up(
                    f"{_named(view)} was closed by a human: reopen it, then `untildone land`", close=False
                )
            case pl.TimedOut():
                await self._give_up(f"{_named(view)}: {step.why}")
            case pl.MendCi() | pl.MendComments() | pl.Conflict():
                await self._mend(step, view)
        return True

    async def _mend(self, step: pl.MendCi | pl.MendComments | pl.Conflict, view: pl.PullView) -> None:
        match step:
            case pl.MendCi():
                await self._send_back("ci", await self._ci_words(view.number, step))
            case pl.MendComments():
                words = comment_words(view.number, step.comments, changes_requested=step.cause == "changes_requested")
                await self._send_back(step.cause, words, seen=step.seen)
            case pl.Conflict():
                words = conflict_words(view.number, view.base, self._state.spec.landing.remote)
                await self._send_back("conflict", words)

    async def _push(self) -> None:
        if self._arrival.pushed == self._work.commit:
            return
        if wrong := await strange_remote(self._state, self._parts):
            raise WorkspaceError(wrong)
        work, branch = self._work, self._branch
        # Only what the run itself makes there is ever deleted there; a driver that dies after the push must know it.
        if self._arrival.made != branch and await self._ask(self._parts.lander.is_new(branch)):
            await self._journal.record(ev.LandingBegun(commit=work.commit, because=work.because, makes=branch))
        await self._ask(self._parts.lander.push(work.commit, branch))
        await self._record_push()

    async def _record_push(self, head: str = "") -> None:
        branch, remote = self._branch, self._state.spec.landing.remote
        await self._journal.record(ev.LandingPushed(commit=self._work.commit, branch=branch, remote=remote, head=head))
        self._changed_at, self._waits.excused, self._refused_since = self._now(), 0.0, None

    async def _name_proof(self, number: int) -> None:
        """Let the pull request name what was verified last: people who review it go by that."""
        # What the forge put on top was verified when it was taken over.
        proven = self._arrival.head if self._arrival.head != self._arrival.pushed else self._state.verified_commit
        if proven is None or proven == self._proof:
            return
        try:
            await self._ask(self._forge.reword(number, lambda body: with_proof(body, proven)))
        except ForgeError as trouble:
            if not trouble.lasting:
                raise
            told = f"#{number} still names another verified commit than {proven[:10]}: {trouble}"
            await self._journal.tell(ev.ContinuousWarning(message=told))
        self._proof = proven

    async def _find_or_open(self) -> None:
        branch, base = self._branch, self._arrival.base or ""
        found = await self._ask(self._forge.find(branch, base))
        # One that is closed or merged counts only if it was for this very commit: the branch may have had others.
        if found is None or (found.state != "open" and found.head != self._work.commit):
            title, body = pull_title(landing_message(self._state)), pull_body(self._state)
            found = await self._ask(self._forge.open(branch=branch, base=base, title=title, body=body))
            self._proof = self._state.verified_commit
        opened = ev.LandingPullOpened(number=found.number, url=found.url, branch=branch, base=found.base or base)
        await self._journal.record(opened)

    async def _update(self, view: pl.PullView) -> bool:
        self._updates += 1
        if self._updates > UPDATES:
            await self._give_up(f"{_named(view)}: {view.base} moves on faster than CI can follow")
            return True
        head = await self._ask(self._forge.update_branch(view.number))
        if head is not None:
            return await self._take_over(head)
        await self._waits.rest(
            self._now() + self._state.spec.landing.ci_poll, "ci", "the forge to catch up with the base"
        )
        return False

    async def _take_over(self, head: str) -> bool:
        """The forge's branch has more than we brought there: have it here too, and look at it as at our own work."""
        if await self._ask(self._parts.lander.catch_up(head, self._branch)) != head:
            raise ForgeError(f"{self._forge.name} does not show yet what was pushed", lasting=False)
        await self._record_push(head)
        if self._state.spec.contract.room == "tree" and (await self._parts.workspace.observe()).head != head:
            raise WorkspaceError(f"the checks run in the tree, and {self._branch} is not checked out: switch to it")
        wrong = await self._ask(failures_on(head, self._journal, self._parts, room=self._state.spec.contract.room))
        if wrong:
            await self._send_back("checks", f"Together with what is new on {self._arrival.base}:\n\n{wrong}")
        return bool(wrong)

    async def _merge(self, number: int, head: str) -> bool:
        title, _, body = landing_message(self._state).partition("\n")
        strategy = self._state.spec.landing.strategy
        merging = self._forge.merge(number, head=head, strategy=strategy, title=pull_title(title), body=body.strip())
        try:
            view = await self._ask(merging)
        except ForgeError as refused:
            if refused.lasting or refused.retry_at is not None:
                raise
            return await self._merge_later(number, str(refused))
        if view.state != "merged" or view.head != head:
            return False  # the forge takes its time, or somebody was faster: the next look tells
        await self._arrived(view.merged, view)
        return True

    async def _merge_later(self, number: int, why: str) -> bool:
        """Often only a moment is missing: the base has just moved, or a rule waits for something we cannot see."""
        landing = self._state.spec.landing
        if self._refused_since is None:
            self._refused_since = self._parts.clock.monotonic()
        refused_for = self._passed_since(self._refused_since)
        if refused_for >= landing.ci_timeout:
            await self._give_up(why)
            return True
        said = f"#{number} to become mergeable ({one_line(why, _SAID)})"
        await self._waits.rest(self._now() + pl.pause(landing, refused_for), "ci", said)
        return False

    async def _arrived(self, merged: str | None, view: pl.PullView) -> None:
        """It is there. What cannot be tidied up is told, and changes nothing about that."""
        branch = self._branch
        left = [await self._tidied(self._parts.lander.tidy(branch))]
        if merged is not None and not self._work.because:
            left.append(await self._tidied(self._parts.lander.rejoin(merged, branch)))
        if self._state.spec.landing.delete_branch and self._arrival.made == branch:  # others' branches are theirs
            left.append(await self._tidied(self._forge.delete_branch(branch)))
        await self._journal.record(
            ev.LandingMerged(
                commit=self._work.commit,
                base=view.base or self._arrival.base or "",
                merged=merged,
                strategy=self._state.spec.landing.strategy,
                number=view.number,
                cleanup="; ".join(filter(None, left)),
            )
        )

    async def _tidied(self, tidying: Coroutine[Any, Any, str | None]) -> str:
        try:
            return await self._ask(tidying) or ""
        except UntildoneError as trouble:
            return str(trouble)

    async def _ci_words(self, number: int, step: pl.MendCi) -> str:
        shown = [(check, await self._log_of(number, check)) for check in step.checks[:LOGS]]
        return ci_words(number, shown, step.checks[LOGS:])

    async def _log_of(self, number: int, check: pl.PullCheck) -> str:
        try:
            return await self._ask(self._forge.log_of(number, check.id))
        except ForgeError as trouble:
            if trouble.lasting:
                return ""  # the agent can still run the thing itself
            raise

    async def _send_back(self, cause: ev.RejectionCause, words: str, *, seen: str = "") -> None:
        await send_back(self._journal, cause, words, seen=seen)
        if self._arrival.trouble:
            await self._close_failed()

    async def _give_up(self, reason: str, *, close: bool = True) -> None:
        if close:
            reason += await self._close_failed()
        await self._journal.record(ev.LandingGaveUp(reason=reason))

    async def _close_failed(self) -> str:
        """Only where the user wants no trace of what failed: otherwise branch and pull request are kept."""
        number, branch = self._arrival.number, self._arrival.branch
        if not self._state.spec.landing.close_failed or number is None or branch is None:
            return ""
        left = [await self._tidied(self._forge.close(number))]
        if self._arrival.made == branch:
            left.append(await self._tidied(self._forge.delete_branch(branch)))
        return "".join(f"; and {trouble}" for trouble in left if trouble)

    async def _tell(self, view: pl.PullView) -> None:
        said = pl.described(view)
        if said != self._said:
            self._said, self._changed_at = said, self._parts.clock.monotonic()
            await self._journal.tell(ev.LandingWatched(number=view.number, said=said))

    async def _wait(self, step: pl.WaitFor) -> None:
        landing = self._state.spec.landing
        look_at = min(step.until, self._now() + pl.pause(landing, self._passed_since(self._changed_at)))
        await self._waits.rest(look_at, "ci", step.said, announced=step.until)

    async def _ask(self, question: Coroutine[Any, Any, T]) -> T:
        """An answer from the world, unless a human asks for a stop meanwhile."""
        if self._state.stop is not None:
            question.close()
            raise _CalledOff
        answered: list[T] = []

        async def ask() -> None:
            answered.append(await question)

        await unless(self._journal, self._parts.clock, ask(), lambda: self._state.stop is not None)
        if not answered:
            raise _CalledOff
        return answered[0]

    def _now(self) -> float:
        return self._parts.clock.now()

    def _passed_since(self, moment: float) -> float:
        return self._parts.clock.monotonic() - moment


def _named(view: pl.PullView) -> str:
    return f"pull request #{view.number}" + (f" ({view.url})" if view.url else "")

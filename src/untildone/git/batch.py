"""One turn at landing: everybody's work merged one on top of the other, looked at once, halved when it is red."""

import asyncio
from collections.abc import Sequence

from untildone.errors import WorkspaceError
from untildone.git.base import Base, BaseMoved, to_the_end
from untildone.git.landings import Landing, landings_on, write_landing
from untildone.git.merging import Conflict, Work, genuine, merge_onto
from untildone.git.queue import Answer, Cause, Place
from untildone.git.status import in_one_line
from untildone.ports.delivery import Verifier

TRIES = 3
"""How often work is merged and verified anew because somebody moved the base meanwhile."""
LOOK_EVERY = 0.05
"""Seconds; there is no event for a letter or a lock of another process."""

_Stack = list[tuple[Work, Landing]]


class Batch:
    """What the run whose turn it is does for all that wait.

    A merged tree counts as green when every run whose work is in it finds its own checks green there: each knows
    its own contract, and nobody else's.
    """

    def __init__(self, base: Base, place: Place, mine: Work, verify: Verifier) -> None:
        self._base = base
        self._place = place
        self._mine = mine
        self._verify = verify
        self._landed: list[Work] = []
        self._verdicts: dict[str, str] = {}
        self._built: dict[tuple[str, str], Landing | Conflict] = {}
        self.answers: dict[str, Answer] = {}
        """By run. Who is not in it waits for another turn."""

    async def land(self, group: Sequence[Work]) -> None:
        """Bring all of them to the base but those that are to blame for a red tree."""
        for _ in range(TRIES):
            stack = await self._stack(group)
            if not stack:
                return
            wrong = await self._verdict(stack)
            works = [work for work, _ in stack]
            group = [work for work in works if self._place.waits(work)]
            if group != works:
                continue  # somebody left: not without those that are left having looked at what remains
            if wrong:
                await self._find_who(works, wrong)
                return
            try:
                await to_the_end(self._move(stack))
            except BaseMoved:
                continue
            return

    async def land_unseen(self) -> None:
        """Bring only this run's own work there, on a base that never stands still: it is looked at afterwards."""
        for _ in range(2 * TRIES):
            stack = await self._stack([self._mine], verified=False)
            if not stack:
                return
            try:
                await to_the_end(self._move(stack))
            except BaseMoved:
                continue
            return
        detail = f"{self._base.name} moved all the time: land again when it is quieter"
        self._answer(self._mine, "base", detail)

    async def _stack(self, group: Sequence[Work], *, verified: bool = True) -> _Stack:
        """All that can be merged one on top of the other; what needs no merge, or cannot be merged, is answered."""
        tip = await self._base.tip()
        top, stack = tip, _Stack()
        for work in group:
            landings = await genuine(self._base.repository, await landings_on(self._base.repository, work.run_id, tip))
            if any(one.commit == work.commit and not one.reverted for one in landings):
                self._answer(work, "landed")
                continue
            merged = await self._merged(top, work, landings, verified=verified)
            if isinstance(merged, Conflict):
                if not stack:  # with others below it may be theirs: its own turn will tell
                    self._answer(work, "conflict", _conflict_advice(self._base.name, merged))
            elif merged.merged == top:
                await self._answer_nothing_to_add(work, merged)
            else:
                stack.append((work, merged))
                top = merged.merged
        return stack

    async def _answer_nothing_to_add(self, work: Work, landing: Landing) -> None:
        """The base has it already, with whatever else is there: that is looked at all the same, by the run itself."""
        if work != self._mine:
            return  # in its own turn
        top = landing.merged
        if top not in self._verdicts:
            self._verdicts[top] = "" if top == work.commit else await self._verify(top)
        if self._verdicts[top]:
            self._answer(work, "checks", self._verdicts[top])
            return
        await write_landing(self._base.repository, work.run_id, landing)
        self._answer(work, "landed")

    async def _merged(self, top: str, work: Work, landings: Sequence[Landing], *, verified: bool) -> Landing | Conflict:
        """What was merged once is not merged again: the same commits, with the same verdict."""
        key = (top, work.run_id)
        if key not in self._built or not verified:
            self._built[key] = await merge_onto(self._base.repository, top, work, landings, verified=verified)
        return self._built[key]

    async def _verdict(self, stack: _Stack) -> str:
        """What is wrong with the tree on top, in the words of those whose work is in it."""
        top = stack[-1][1].merged
        if top not in self._verdicts:
            there = [*self._landed, *(work for work, _ in stack)]
            others = [work for work in there if work != self._mine]
            if others:
                self._place.ask(top, [work.run_id for work in others])
            seen = [await self._verify(top)] if self._mine in there else []
            seen += [await self._heard(work, top) for work in others]
            self._verdicts[top] = "\n\n".join(filter(None, seen))
        return self._verdicts[top]

    async def _heard(self, work: Work, commit: str) -> str:
        """What another run says; nothing, if it goes away before it has."""
        while (wrong := self._place.said(work.run_id, commit)) is None:
            if not self._place.waits(work):
                return ""
            await asyncio.sleep(LOOK_EVERY)
        return wrong

    async def _find_who(self, works: Sequence[Work], wrong: str) -> None:
        if len(works) == 1:
            self._answer(works[0], "checks", wrong)
            return
        half = len(works) // 2
        await self.land(works[:half])
        await self.land(works[half:])

    async def _move(self, stack: _Stack) -> None:
        """Written down first: whoever comes after our death must know what a moved base means."""
        works = [work for work, _ in stack]
        for work, landing in stack:
            await write_landing(self._base.repository, work.run_id, landing)
        why = f"land {in_one_line(work.run_id for work in works)}"
        try:
            await self._base.forward(stack[0][1].onto, stack[-1][1].merged, why=why)
        except WorkspaceError as trouble:
            for work in works:
                self._answer(work, "base", str(trouble))
            return
        self._landed += works
        for work in works:
            self._answer(work, "landed")

    def _answer(self, work: Work, cause: Cause, detail: str = "") -> None:
        self.answers[work.run_id] = Answer(commit=work.commit, cause=cause, detail=detail)


def _conflict_advice(base: str, conflict: Conflict) -> str:
    return (
        f"The work conflicts with {base} in {in_one_line(conflict.files)}. "
        f"Merge {base} into your branch (`git merge {base}`), resolve the conflicts so that both changes hold, "
        "commit the merge, and claim again."
    )

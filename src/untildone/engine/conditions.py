"""What must hold besides commands, and can be seen without one: ticked tasks, a clean tree, and the forge's view."""

import asyncio
from collections.abc import Awaitable, Callable

from untildone.core.contract import CheckSpec
from untildone.core.outcome import CheckResult
from untildone.core.pull import PullView, pause
from untildone.core.state import LoopState
from untildone.core.verdict import ci_verdict, uncommitted
from untildone.engine.mending import strange_remote
from untildone.engine.parts import Parts
from untildone.errors import ForgeError, WorkspaceError
from untildone.ports import TreeState

PATIENCE = 120.0
"""Seconds trouble with a forge that passes by itself may take."""
_FIRST_PAUSE = 2.0

_Seen = str | None
"""Why it does not hold; "" when it does, None when that cannot be said yet."""


async def look_at(check: CheckSpec, state: LoopState, tree: TreeState, parts: Parts, *, patient: bool) -> CheckResult:
    """Whether a condition holds. With `patient`, what is under way (CI) is waited for."""
    match check.kind:
        case "tasks-ticked":
            left = "no task file was read" if state.tasks_open is None else f"{state.tasks_open} open"
            wrong = "" if state.tasks_all_done else f"not all tasks are ticked: {left}"
        case "tasks-done":
            wrong = await asyncio.to_thread(parts.tasks_left)
        case "tree-clean":
            wrong = uncommitted(tree.dirty)
        case "pushed":
            wrong = await _pushed(state, parts)
        case _:
            wrong = await _on_the_forge(check, state, tree, parts, patient=patient)
    return CheckResult(name=check.name, command="", passed=not wrong, output_tail=wrong, hidden=check.hidden)


async def _pushed(state: LoopState, parts: Parts) -> str:
    try:
        return await strange_remote(state, parts) or await parts.lander.unpushed()
    except WorkspaceError as trouble:
        return str(trouble)


async def _on_the_forge(check: CheckSpec, state: LoopState, tree: TreeState, parts: Parts, *, patient: bool) -> str:
    forge, branch = parts.forge, tree.branch
    if forge is None or branch is None:
        return "there is no forge, or no branch, to ask about"
    landing = state.spec.landing
    began = parts.clock.monotonic()

    async def look() -> _Seen:
        pull: PullView | None = await forge.find(branch)
        if pull is None or pull.state == "closed":
            return f"there is no open pull request of {branch}"
        if check.kind == "pr-open":
            return ""
        waited = parts.clock.monotonic() - began if patient else landing.ci_timeout
        return ci_verdict(await forge.look(pull.number), tree.head or "", landing, waited)

    while (seen := await _through_trouble(look, parts)) is None:
        await parts.clock.sleep(pause(landing, parts.clock.monotonic() - began))
    return seen


async def _through_trouble(look: Callable[[], Awaitable[_Seen]], parts: Parts) -> _Seen:
    """Ask, and ask again if the trouble passes by itself: a claim is not wrong because a network was down."""
    give_up, wait = parts.clock.monotonic() + PATIENCE, _FIRST_PAUSE
    while True:
        try:
            return await look()
        except ForgeError as trouble:
            rest = max(wait, (trouble.retry_at or 0.0) - parts.clock.now())
            if trouble.lasting or parts.clock.monotonic() + rest > give_up:
                return str(trouble)
            await parts.clock.sleep(rest)
            wait *= 2

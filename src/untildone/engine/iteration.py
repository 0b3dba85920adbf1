"""One iteration: intent first, then the agent, then what it left behind."""

import asyncio
import math
from collections.abc import Collection
from dataclasses import replace

from untildone.core import events as ev
from untildone.core.advice import how_to_allow
from untildone.core.claims import says_done, streak_needed
from untildone.core.closing import Change, close_iteration, progress_of
from untildone.core.dataclass import dataclass
from untildone.core.decide import Iterate, endless, interruption, next_look
from untildone.core.events import Event
from untildone.core.faults import FAULTS, HANG, LOOP_STOPPED, SURROUNDINGS, TURNS_EXHAUSTED, Fault, Remedy
from untildone.core.outcome import Order, Outcome
from untildone.core.permissions import denials_text
from untildone.core.prompt import PAPER_CAP, TASKS_CAP, Paper, Papers, Prompt, build_prompt, rules
from untildone.core.state import LoopState
from untildone.core.trace import AgentPriceUnknown, AgentToolResult, AgentToolUse
from untildone.engine.bookkeeping import settle_books
from untildone.engine.effects import call_hook, tasks_event
from untildone.engine.journal import Journal
from untildone.engine.parts import Parts
from untildone.engine.settle import Spans, can_begin, settle_done, snapshot_half_done
from untildone.engine.watch import news, until_hung
from untildone.errors import WorkspaceError
from untildone.ports import Agent, TreeState

Closed = ev.IterationCompleted | ev.IterationFailed

INTERRUPT_GRACE = 10.0
"""Agents bound their own interruption; one that breaks this promise is ended for good after so many seconds."""


async def iterate(journal: Journal, parts: Parts, order: Iterate) -> None:
    """Run one iteration and write down all that came of it."""
    is_work = not order.question
    if order.retry == 0 and is_work:
        await call_hook(journal, parts, "before_iteration", {"iteration_num": order.number})
        if journal.state.fatal is not None:
            return
        if journal.state.arrival.number is None:  # what mends a pull request belongs on its branch
            await parts.workspace.begin_iteration(order.number)
    before = await parts.workspace.observe()
    if not await can_begin(journal, parts, before):
        return
    prompt = build_prompt(journal.state, order, _read_papers(journal.state, parts), parts.clock.now())
    for warning in prompt.warnings:
        await journal.tell(ev.ContinuousWarning(message=warning))
    if not await may_begin(journal):
        return
    await journal.record(intent(journal.state, order, prompt, before, parts.clock.now()))
    state = journal.state
    told = agent_order(state, order, prompt, rules(state.spec, state.policy, sandbox=state.sandbox))
    ended = await run_agent(journal, parts, parts.agent, told)
    if ended.cut is TURNS_EXHAUSTED:
        why = f"iteration {order.number} was ended: {endless(journal.state)}"
        await journal.tell(ev.ContinuousWarning(message=why))
    await _close(journal, parts, before, ended)
    if is_work:
        await call_hook(journal, parts, "after_iteration", {"iteration_num": order.number})


async def may_begin(journal: Journal) -> bool:
    """False if a human asked for a stop or a pause while the iteration was prepared: then it is not begun."""
    await journal.catch_up()
    return journal.state.stop is None and not journal.state.paused


def intent(state: LoopState, order: Iterate, prompt: Prompt, before: TreeState, now: float) -> ev.IterationStarted:
    """What is written down before an agent is touched."""
    return ev.IterationStarted(
        iteration_num=order.number,
        retry=order.retry,
        handoff=order.handoff,
        review=order.review,
        question=order.question,
        model=order.instead,
        prompt_preview=prompt.preview,
        resume_session=order.session,
        tree=state.retry.tree if state.retry and order.retry else before.fingerprint,
        head=before.head,
        branch=before.branch,
        messages_shown=0 if order.review or order.question else state.messages_received,
        **progress_of(state, now),
    )


def agent_order(state: LoopState, order: Iterate, prompt: Prompt, rules_told: str) -> Order:
    """What the agent is asked to do."""
    limit, earlier = state.policy.max_cost_usd, state.spec.earlier
    return Order(
        run_id=state.run_id,
        iteration_num=order.number,
        prompt=prompt.text,
        rules=rules_told,
        resume_session=order.session,
        fork=earlier.fork and order.session is not None and order.session == earlier.session,
        new_rules=earlier.session is not None and order.session is not None,
        budget_usd=None if limit is None else max(0.01, limit - state.spent_usd),
        question=order.question,
        model=order.instead,
    )


def _read_papers(state: LoopState, parts: Parts) -> Papers:
    def paper(path: str | None, cap: int) -> Paper | None:
        found = parts.usher.read_text(path, cap=cap) if path else None
        return Paper(*found) if found is not None else None

    spec = state.spec
    return Papers(
        notes=paper(spec.notes_file, PAPER_CAP),
        knowledge=paper(spec.knowledge_file, PAPER_CAP),
        tasks=paper(spec.task_file, TASKS_CAP),
    )


@dataclass(frozen=True, slots=True)
class Ended:
    """What came back, and why it was cut off if it was."""

    order: Order
    outcome: Outcome
    cut: Fault | None
    tools: Spans = ()
    """When the agent's tools ran."""


async def run_agent(journal: Journal, parts: Parts, agent: Agent, order: Order) -> Ended:
    """Let the agent work; interrupt it the moment a human, a limit or the clock says so, or when it is dead."""
    parts.ledger.forget_passed()
    cut: Fault | None = None
    interrupting: asyncio.Task[None] | None = None
    tools: dict[str, tuple[float, float]] = {}

    def look() -> None:
        nonlocal cut, interrupting
        if cut is None:
            is_dead = dead.done() and dead.exception() is None
            cut = interruption(journal.state, parts.clock.now()) or (HANG if is_dead else None)
            if cut is not None:
                interrupting = asyncio.create_task(_interrupt(agent, discard=cut is HANG))

    async def tell(event: Event) -> None:
        if isinstance(event, AgentPriceUnknown) and event.model in journal.state.unpriced:
            return  # said before
        note_tool(tools, event, parts.clock.now())
        # Looked at inside the telling: a budget is enforced before the agent's next reply can begin.
        await journal.tell(event)
        await journal.heed_clock()
        look()

    dead = asyncio.create_task(until_hung(agent, parts.clock, journal.state.policy))
    working = asyncio.create_task(agent.iterate(order, tell))
    try:
        while not working.done():
            await journal.heed_clock()
            look()
            others = [task for task in (working, dead) if not task.done()]
            await news(journal, parts.clock, _next_look(journal, parts), *others)
            if dead.done():
                dead.result()  # a bug in the watching must not go unnoticed
        return Ended(order, working.result(), cut or _enforced(journal, parts), tuple(tools.values()))
    finally:
        parts.spawner.end_within(None)
        for task in (dead, interrupting, working):
            if task is not None and not task.done():
                task.cancel()
                await asyncio.wait([task])


def _next_look(journal: Journal, parts: Parts) -> float | None:
    """Seconds until a limit of time is reached: it holds as well if we are stopped by then."""
    within = next_look(journal.state, parts.clock.now())
    parts.spawner.end_within(math.inf if within is None else within)
    return within


def _enforced(journal: Journal, parts: Parts) -> Fault | None:
    """Why the agent was ended in our place while we were stopped, if it was."""
    if not parts.spawner.has_enforced():
        return None
    return interruption(journal.state, parts.clock.now()) or LOOP_STOPPED


def note_tool(spans: dict[str, tuple[float, float]], event: Event, now: float) -> None:
    """Keep from when to when each tool ran."""
    if isinstance(event, AgentToolUse):
        spans[event.tool_use_id] = (now, math.inf)
    elif isinstance(event, AgentToolResult) and event.tool_use_id in spans:
        spans[event.tool_use_id] = (spans[event.tool_use_id][0], now)


async def _interrupt(agent: Agent, *, discard: bool) -> None:
    await agent.interrupt(discard=discard)
    await asyncio.sleep(INTERRUPT_GRACE)
    await agent.close()


async def look_around(journal: Journal, parts: Parts, ended: Ended) -> tuple[Ended, TreeState]:
    """What the agent really spent, and the tree as it left it. Where there is no tree any more, that is booked."""
    ended = replace(ended, outcome=await settle_books(journal, parts, ended.outcome))
    try:
        return ended, await parts.workspace.observe()
    except WorkspaceError:
        lost = replace(ended, outcome=replace(ended.outcome, interrupted=True), cut=SURROUNDINGS)
        await journal.record(closing(journal, parts, lost, Change()))
        raise


async def _close(journal: Journal, parts: Parts, before: TreeState, ended: Ended) -> None:
    """Book first, then commit or snapshot: money is the first thing that must not be lost."""
    ended, after = await look_around(journal, parts, ended)
    base = journal.state.open.tree if journal.state.open else before.fingerprint
    change = _change(base, before, after)
    closed = closing(journal, parts, ended, change)
    tasks = tasks_event(journal.state, parts)
    is_work = journal.state.open is not None and not journal.state.open.question
    denied_before = journal.state.last_denials
    await journal.record(*([tasks] if tasks else []), closed)
    if isinstance(closed, ev.IterationCompleted):
        # Uncommitted work of an iteration that was cut off is settled with the next one that ends well.
        left_over = bool(after.dirty) and journal.state.spec.commit
        if is_work:
            await _tell_claim(journal, closed)
            await _tell_denials(journal, set(closed.evidence.denials) - set(denied_before))
        if change.changed or left_over:
            await settle_done(journal, parts, before, closed, tools=ended.tools)
    elif FAULTS[closed.error_type].remedy not in {Remedy.WAIT, Remedy.BACK_OFF} and after.dirty:
        await snapshot_half_done(journal, parts, closed.iteration_num, FAULTS[closed.error_type].meaning)


def closing(journal: Journal, parts: Parts, ended: Ended, change: Change) -> Closed:
    """The event that closes what is open."""
    return close_iteration(
        journal.state,
        ended.outcome,
        change,
        ended.cut,
        prompt=ended.order.prompt,
        now=parts.clock.now(),
        jitter=parts.jitter(),
    )


def _change(base: str, before: TreeState, after: TreeState) -> Change:
    """What the iteration did to the tree since `base`, which earlier tries may have changed already."""
    changed = base != after.fingerprint
    files = len(set(after.dirty) - set(before.dirty)) or 1
    return Change(changed=changed, files_changed=files if changed else 0, tree=after.fingerprint)


async def _tell_claim(journal: Journal, closed: ev.IterationCompleted) -> None:
    state, policy = journal.state, journal.state.policy
    if says_done(closed.claim, policy):
        needed = 1 if state.spec.checks else streak_needed(closed.claim.form, policy.completion_threshold)
        await journal.tell(
            ev.IterationCompletionSignal(
                iteration_num=closed.iteration_num,
                signal_count=state.streak,
                threshold=needed,
                open_tasks=0 if state.streak else state.tasks_open or 0,
            )
        )


async def _tell_denials(journal: Journal, denials: Collection[str]) -> None:
    """At the first denial already, so that a human who is still there can do something about it."""
    if denials:
        said = f"the agent was denied: {denials_text(sorted(denials))}. {how_to_allow(journal.state, sorted(denials))}"
        await journal.tell(ev.ContinuousWarning(message=said))

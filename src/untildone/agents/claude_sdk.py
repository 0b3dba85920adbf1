"""The default agent: one warm Claude Code process, a fresh conversation in it for every iteration."""

import asyncio
import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from untildone.agents.argv import as_prompt, claude_argv, find_claude, settings_json
from untildone.agents.claude_pipe import Wake
from untildone.agents.conversation import Conversation
from untildone.agents.environment import STORE_MARKER
from untildone.agents.hooks_file import load_hooks
from untildone.agents.own_tools import MCP_CONFIG
from untildone.agents.private_files import PrivateFiles
from untildone.agents.report_tool import Reminders
from untildone.agents.stream import Line, Parsed
from untildone.agents.task_tools import TaskCommand
from untildone.agents.warm_process import CONTROL_PATIENCE, START_PATIENCE, WarmClaude
from untildone.agents.warm_watch import MOST_REQUESTS, Watch
from untildone.core.liveness import Pulse
from untildone.core.outcome import Order, Outcome
from untildone.core.policy import COMPLETION_SIGNAL, AgentOptions
from untildone.core.trace import AgentReply, AgentReplyStarted, AgentStarted
from untildone.errors import AgentError
from untildone.ports import Spawner, Tell

RECYCLE_AFTER = 300
"""Iterations after which a process is replaced: it grows from 190 to about 400 MB by then."""
EXIT_PATIENCE = 2.0
STATE_EVENTS = {"CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS": "1"}


class ClaudeSdk:
    """Runs iterations in one warm process; a new one only when the old one is unfit."""

    def __init__(
        self,
        options: AgentOptions,
        spawner: Spawner,
        *,
        cwd: str,
        env: Mapping[str, str],
        background_grace: float = 60.0,
        completion_signal: str = COMPLETION_SIGNAL,
        reviewing: bool = False,
        files: Path | None = None,
        tasks: TaskCommand | None = None,
        fixed: Callable[[], object] = lambda: None,
    ) -> None:
        """A reviewer has no tool that writes, and ends with a verdict instead of a report.

        `tasks`: what the tools for tasks do, if the options ask for them. `files`: where what is handed to the agent
        lies. `fixed`: what a process keeps from its start on; a new one is started when it is not the same any more.
        """
        self._options = options
        self._spawner = spawner
        self._cwd = cwd
        self._env = {**env, **STATE_EVENTS}
        # Read once: what the agent writes into that file is nobody's wish.
        self._hooks = load_hooks(Path(options.hooks_file)) if options.hooks_file else None
        self._config_dir = env.get("CLAUDE_CONFIG_DIR") or (f"{env['HOME']}/.claude" if env.get("HOME") else None)
        self._grace = background_grace
        self._signal = completion_signal
        self._reviewing = reviewing
        self._tasks = tasks if options.task_tools and not reviewing else None
        self._private = PrivateFiles(env, "review" if reviewing else "work", files)
        self._fixed, self._fixed_then = fixed, fixed()
        self._warm: WarmClaude | None = None
        self._model: str | None = None
        """The one the process we have was started with."""
        self._watch: Watch | None = None
        """Of the running iteration; None: idle."""
        self._conversation: Conversation | None = None
        self._prompted = False
        self._closed = False

    async def iterate(self, order: Order, tell: Tell) -> Outcome:
        """Run one iteration to its end."""
        if self._closed:
            raise AgentError("this agent was closed: make a new one")
        watch = self._watch = Watch(self._grace)
        self._conversation = None
        self._prompted = False
        try:
            return await self._iterate(order, watch, tell)
        except BaseException:
            if self._warm is not None:
                self._warm.in_doubt = True  # left in mid-turn
            raise
        finally:
            self._watch = None
            if self._closed and self._warm is not None:
                await self._warm.end(polite=False)  # it was being started while `close` was called
                self._private.remove()

    async def interrupt(self, *, discard: bool = False) -> None:
        """End the running iteration soon; the process stays warm if it obeys and nothing is left behind."""
        watch, warm = self._watch, self._warm
        if watch is None:
            return
        watch.discard |= discard
        watch.gave_up = False
        if watch.asked_at is not None:
            return
        watch.asked_at = _now()
        if warm is not None:
            await self._ask_to_end(warm)

    async def _ask_to_end(self, warm: WarmClaude) -> None:
        if not warm.connected or (self._prompted and not await warm.interrupt()):
            await warm.end(polite=False)
        warm.pipe.wake()

    def pulse(self) -> Pulse | None:
        """Signs of life of the running iteration."""
        watch, warm, conversation = self._watch, self._warm, self._conversation
        if watch is None or (conversation is not None and watch.resting(conversation)):
            return None
        if _now() < watch.own_wait_ends:
            return None
        return Pulse() if warm is None else warm.pulse()

    async def close(self) -> None:
        """End the process tree, whatever is going on."""
        self._closed = True
        if self._watch is not None:
            self._watch.gave_up = False
            self._watch.asked_at = self._watch.asked_at or _now()
        if self._warm is not None:
            await self._warm.end(polite=self._watch is None)
        self._private.remove()

    async def _iterate(self, order: Order, watch: Watch, tell: Tell) -> Outcome:
        conversation = Conversation(order.iteration_num, cwd=self._cwd, config_dir=self._config_dir)
        self._conversation = conversation
        before = Conversation(order.iteration_num, cwd=self._cwd)
        kept = await self._keep_or_end(order)
        warm = self._warm = kept or await self._spawn(order)
        await tell(AgentStarted(iteration_num=order.iteration_num, pid=warm.pid, warm=kept is not None))
        ready = kept is not None or (watch.asked_at is None and await warm.connect())
        if ready and order.resume_session is None:
            ready = await self._clear(warm, watch, before, conversation, tell)
        if not ready:
            await warm.end(polite=False)
        elif watch.asked_at is None:
            await self._converse(warm, watch, order, conversation, tell)
        return _booked(self._with_login(await self._outcome(warm, conversation, watch)), before.outcome())

    def _with_login(self, outcome: Outcome) -> Outcome:
        """What was refused may be a login that has been renewed elsewhere: the next process has the new one."""
        if outcome.failure is None or self._fixed_then == self._fixed():
            return outcome
        return replace(outcome, failure=replace(outcome.failure, login_replaced=True))

    async def _keep_or_end(self, order: Order) -> WarmClaude | None:
        """Return the process we have if it suits the order; otherwise end it."""
        warm = self._warm
        if warm is None:
            return None
        if (
            warm.usable
            and warm.iterations < RECYCLE_AFTER
            and warm.reminders.rules == order.rules
            and order.resume_session in (None, warm.session_id)
            and self._model == self._model_for(order)
            and self._fixed_then == self._fixed()
            and _fence_fits(warm.budget_usd, order.budget_usd)
        ):
            return warm
        await warm.end(polite=True)
        self._warm = None
        return None

    def _model_for(self, order: Order) -> str | None:
        return order.model or self._options.model

    async def _spawn(self, order: Order) -> WarmClaude:
        self._model, self._fixed_then = self._model_for(order), self._fixed()
        self._private.remove()
        given = self._private.in_place_of(self._options.mcp_config)
        tools = (*(() if self._reviewing else (json.dumps(MCP_CONFIG),)), *given)
        options = replace(self._options, model=self._model, mcp_config=tools)
        argv = claude_argv(
            options,
            claude=find_claude(options.claude, path=self._env.get("PATH")),
            rules=order.rules,
            mode="warm",
            budget_usd=order.budget_usd,
            resume_session=order.resume_session,
            fork=order.fork,
            new_rules=order.new_rules,
            settings_json=settings_json(options, self._hooks, self._env.get(STORE_MARKER), read_only=self._reviewing),
            read_only=self._reviewing,
        )
        process = await self._spawner.spawn(argv, cwd=self._cwd, env=self._env)
        reminders = Reminders(
            rules=order.rules,
            signal=self._signal,
            max_turns=options.max_turns,
            reviewing=self._reviewing,
            tasks=self._tasks,
        )
        return WarmClaude(process, reminders, budget_usd=order.budget_usd)

    async def _clear(
        self, warm: WarmClaude, watch: Watch, before: Conversation, fresh: Conversation, tell: Tell
    ) -> bool:
        """Start a fresh conversation; what still belongs to the old one is booked on `before`."""
        await warm.say("/clear")
        reset = False
        deadline = _now() + START_PATIENCE
        while _now() < deadline and warm.pipe.speaks:
            line = await self._next(warm, deadline)
            if not isinstance(line, Line):
                # Half-cleared it would be useless: see it through, but quickly if somebody is waiting.
                deadline = min(deadline, _now() + CONTROL_PATIENCE) if watch.asked_at else deadline
            elif line.type == "conversation_reset":
                reset = True
            elif reset and line.type == "result":
                return True
            elif reset and line.subtype == "init":
                # Told before the prompt is given: should we die right after it, the transcript can be found.
                for event in fresh.feed(line):
                    await tell(event)
            elif not reset:
                warm.notice(line)
                for event in before.feed(line):
                    if isinstance(event, AgentReply | AgentReplyStarted):
                        await tell(event)
        return False

    async def _converse(
        self, warm: WarmClaude, watch: Watch, order: Order, conversation: Conversation, tell: Tell
    ) -> None:
        """Give the prompt and follow the conversation to its end."""
        warm.reminders.begin()
        options = self._options
        await warm.restore_permission_mode("bypassPermissions" if options.skip_permissions else options.permission_mode)
        self._prompted = True
        warm.remember_family()
        await warm.say(as_prompt(order.prompt))
        while not conversation.over:
            line = await self._next(warm, watch.deadline(conversation))
            if line is None:
                if not warm.pipe.speaks or not await self._press(warm, conversation, watch):
                    return
                continue
            if isinstance(line, Line):
                watch.saw(line, _now())
                warm.notice(line)
            for event in conversation.feed(line):
                await tell(event)
            await self._mind_own_wait(warm, watch, conversation, line)

    async def _mind_own_wait(self, warm: WarmClaude, watch: Watch, conversation: Conversation, line: Parsed) -> None:
        """While Claude waits to try again: a short wait is no silence, a long one ends the turn."""
        if getattr(line, "subtype", None) != "api_retry":
            return
        watch.own_wait_ends = _now() + (conversation.own_wait or 0.0)
        if conversation.waits_too_long and watch.asked_at is None:
            conversation.give_up()
            watch.asked_at, watch.gave_up = _now(), True
            await self._ask_to_end(warm)

    async def _next(self, warm: WarmClaude, deadline: float | None) -> Parsed | None:
        """Return the next line; None when it is time to look around: end of output, deadline, or woken."""
        if not warm.pipe.speaks:
            return None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                line = await warm.pipe.lines.get()
                return None if isinstance(line, Wake) else line
        return None

    async def _press(self, warm: WarmClaude, conversation: Conversation, watch: Watch) -> bool:
        """Do what is due about the silence; False when waiting longer is pointless."""
        deadline = watch.deadline(conversation)
        if deadline is None or _now() < deadline:
            return True
        if watch.resting(conversation):
            tasks = conversation.live_tasks
            if watch.tasks_stopped or not tasks:
                warm.in_doubt = bool(tasks) or (watch.reports_state and not watch.tasks_stopped)
                return False
            for task in tasks:
                await warm.stop_task(task)
            watch.tasks_stopped, watch.quiet_since = True, _now()
            return True
        watch.requests += 1
        if watch.requests < MOST_REQUESTS and await warm.interrupt():
            return True
        await warm.end(polite=False)
        return False

    async def _outcome(self, warm: WarmClaude, conversation: Conversation, watch: Watch) -> Outcome:
        ended_early = watch.asked_at is not None
        interrupted = ended_early and not watch.gave_up
        if not warm.pipe.ended.is_set():
            outcome = conversation.outcome(interrupted=interrupted)
            warm.iterations += 1
            warm.session_id = outcome.session_id
            left_behind = self._prompted and ended_early and not await warm.has_left_nothing()
            if watch.discard or left_behind:
                await warm.end(polite=False)
            return outcome
        status = None if conversation.result_seen else await warm.exit_status(EXIT_PATIENCE)
        said = warm.stderr_tail() or warm.complaint
        return conversation.outcome(exit_code=status, stderr=said, interrupted=interrupted, starved=warm.starved())


def _fence_fits(fence: float | None, left: float | None) -> bool:
    """Whether a process with this budget fence may go on when this much is left to spend.

    The fence is set at the start and begins anew with every conversation. It must never be lower than what is
    left, and it is of little use when it is much higher.
    """
    if fence is None or left is None:
        return fence is left
    return left <= fence <= 2 * left


def _booked(outcome: Outcome, before: Outcome) -> Outcome:
    """Add what was spent in the old conversation after its iteration had been closed: no reply may be lost."""
    known = outcome.cost_usd is not None and before.cost_usd is not None
    cost = (outcome.cost_usd or 0.0) + (before.cost_usd or 0.0) if known else None
    return replace(outcome, cost_usd=cost, usage=outcome.usage + before.usage)


def _now() -> float:
    return asyncio.get_running_loop().time()

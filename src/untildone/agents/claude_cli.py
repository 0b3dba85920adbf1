"""Runs each iteration as one `claude -p`, over any pipe a Spawner can open: the host, a sandbox, a container."""

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from untildone.agents.argv import as_prompt, claude_argv, find_claude, fits_in_argv, hooks_saying, settings_json
from untildone.agents.conversation import Conversation
from untildone.agents.environment import STORE_MARKER
from untildone.agents.hooks_file import load_hooks
from untildone.agents.private_files import PrivateFiles
from untildone.agents.stream import Parsed, StreamParser
from untildone.core.claims import REPORT_SCHEMA
from untildone.core.liveness import Pulse
from untildone.core.outcome import Order, Outcome
from untildone.core.policy import AgentOptions
from untildone.core.trace import AgentStarted
from untildone.errors import AgentError
from untildone.ports import Process, Spawner, Tell

CHUNK = 1 << 18
# A tuple: the type of a line can be anything, also what no set takes.
_WORDS = ("assistant", "user", "result", "stream_event")
EXIT_PATIENCE = 5.0
"""Seconds a process may take to exit after it closed its output."""


class ClaudeCli:
    """One process per iteration, read to the very end: a background task may add results after the first."""

    def __init__(
        self,
        options: AgentOptions,
        spawner: Spawner,
        *,
        cwd: str,
        env: Mapping[str, str],
        background_grace: float = 60.0,
        reviewing: bool = False,
        files: Path | None = None,
    ) -> None:
        """A reviewer writes and reports nothing. `files`: where what is handed to the agent lies."""
        self._options = options
        self._spawner = spawner
        self._cwd = cwd
        self._env = env
        self._grace = background_grace
        self._reviewing = reviewing
        self._hooks = load_hooks(options.hooks_file) if options.hooks_file else None
        home = env.get("HOME")
        self._config_dir = env.get("CLAUDE_CONFIG_DIR") or (f"{home}/.claude" if home else None)
        self._private = PrivateFiles(env, "review" if reviewing else "work", files)
        self._process: Process | None = None
        self._conversation: Conversation | None = None
        self._parser = StreamParser()
        self._interrupted = False
        self._own_wait_ends = 0.0
        self._closed = False

    async def iterate(self, order: Order, tell: Tell) -> Outcome:
        """Run one iteration to its end."""
        if self._closed:
            raise AgentError("this agent was closed: make a new one")
        self._interrupted = False
        self._own_wait_ends = 0.0
        self._conversation = None
        prompt = as_prompt(order.prompt)
        try:
            process = self._process = await self._spawn(order, prompt)
        except BaseException:
            self._private.remove()
            raise
        try:
            await tell(AgentStarted(iteration_num=order.iteration_num, pid=process.pid))
            if not fits_in_argv(prompt):
                with contextlib.suppress(BrokenPipeError):  # it died: its exit will tell why
                    await process.write(prompt.encode())
                    await process.close_stdin()
            return await self._follow(process, order, tell)
        finally:
            self._process = None
            await process.end(0.0)
            self._private.remove()

    async def interrupt(self, *, discard: bool = False) -> None:  # noqa: ARG002 - no process is ever kept
        """End the running iteration: SIGINT first, so that Claude still writes its result."""
        self._interrupted = True
        if self._process is not None:
            await self._process.end()

    def pulse(self) -> Pulse | None:
        """Signs of life of the running iteration."""
        if self._process is None or (self._conversation is not None and self._conversation.resting):
            return None
        if _now() < self._own_wait_ends:
            return None
        return replace(self._process.vitals(), heard=self._parser.heard)

    async def close(self) -> None:
        """End the process tree, whatever is going on."""
        self._closed = True
        await self.interrupt()

    async def _spawn(self, order: Order, prompt: str) -> Process:
        in_argv = fits_in_argv(prompt)
        given = self._private.in_place_of(self._options.mcp_config)
        options = replace(self._options, model=order.model or self._options.model, mcp_config=given)
        hooks = self._hooks if self._hooks is not None else hooks_saying(order.rules)
        argv = claude_argv(
            options,
            claude=find_claude(options.claude, path=self._env.get("PATH")),
            rules=order.rules,
            mode="print",
            budget_usd=order.budget_usd,
            resume_session=order.resume_session,
            fork=order.fork,
            new_rules=order.new_rules,
            settings_json=settings_json(options, hooks, self._env.get(STORE_MARKER), read_only=self._reviewing),
            json_schema=None if self._reviewing else REPORT_SCHEMA,
            prompt=prompt if in_argv else None,
            read_only=self._reviewing,
        )
        try:
            return await self._spawner.spawn(argv, cwd=self._cwd, env=self._env, stdin="null" if in_argv else "pipe")
        except OSError as refused:
            raise AgentError(f"claude cannot be started: {refused.strerror or refused}") from refused

    async def _follow(self, process: Process, order: Order, tell: Tell) -> Outcome:
        conversation = Conversation(order.iteration_num, cwd=self._cwd, config_dir=self._config_dir)
        self._conversation, self._parser = conversation, StreamParser()
        if self._interrupted:  # before there was a process to end
            await process.end()
        last_word = _now()
        while chunk := await self._read(process, conversation, last_word):
            lines = self._parser.feed(chunk)
            await _tell_all(conversation, lines, tell)
            if any(getattr(line, "subtype", None) == "api_retry" for line in lines):
                await self._mind_own_wait(process, conversation)
            if any(_is_word(line) for line in lines):
                last_word = _now()
        await _tell_all(conversation, self._parser.finish(), tell)
        status = await _exit_status(process)
        return conversation.outcome(
            exit_code=status,
            stderr=process.stderr_tail(),
            interrupted=self._interrupted,
            starved=process.starved(),
        )

    async def _mind_own_wait(self, process: Process, conversation: Conversation) -> None:
        """While Claude waits to try again: a short wait is no silence, a long one ends the turn."""
        self._own_wait_ends = _now() + (conversation.own_wait or 0.0)
        if conversation.waits_too_long and not self._interrupted:
            conversation.give_up()
            await process.end()

    async def _read(self, process: Process, conversation: Conversation, last_word: float) -> bytes:
        """Read on; after the agent's last word only as long as background tasks are granted."""
        deadline = last_word + self._grace if conversation.resting else None
        try:
            async with asyncio.timeout_at(deadline):
                return await process.read(CHUNK)
        except TimeoutError:
            await process.end()
            return b""


async def _tell_all(conversation: Conversation, lines: list[Parsed], tell: Tell) -> None:
    for line in lines:
        for event in conversation.feed(line):
            await tell(event)


async def _exit_status(process: Process) -> int | None:
    try:
        async with asyncio.timeout(EXIT_PATIENCE):
            return await process.wait()
    except TimeoutError:
        return None


def _is_word(line: Parsed) -> bool:
    """Whether the line is part of the conversation; system lines come from tasks too."""
    return getattr(line, "type", None) in _WORDS


def _now() -> float:
    return asyncio.get_running_loop().time()

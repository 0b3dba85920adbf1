"""Who may give a command: an agent steers no run, not its own either, and starts none. That it tried is recorded."""

import asyncio
import os
import shlex
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any

from untildone.config import CHECK_MARK, OPERATOR_MARK, state_dir
from untildone.core.meddling import REFUSALS_RECORDED
from untildone.core.printable import one_line
from untildone.errors import NotTheOperator
from untildone.sandbox.guard import parent_of

SESSION_MARK = "CLAUDECODE"
SESSION_ID_MARK = "CLAUDE_CODE_SESSION_ID"
"""What Claude Code sets in the environment of the commands it runs."""
_LOOPS_ARE_YOURS = (
    "Claude started this, and loops are the human's: type `/untildone:loop`, `/untildone:cancel` or "
    "`/untildone:status` in the session, or use a terminal of your own"
)
_GENERATIONS = 1000
"""Far more ancestors than any process has: a bound for a table of processes that changes while it is read."""
_COMMAND_CAP = 200
_PATIENCE = 5.0
"""Seconds after which a refusal that cannot be recorded is only a refusal."""


def operator_only(command: Callable[..., Any]) -> Callable[..., Any]:
    """Refuse inside an agent's process tree."""

    @wraps(command)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        env = agents_environment()
        if env is not None:
            _record_refusal(env)
            raise NotTheOperator("an agent may not start or steer a run: ask the human, or report that you are blocked")
        return command(*args, **kwargs)

    return guarded


def human_only(command: Callable[..., Any]) -> Callable[..., Any]:
    """Refuse whatever an agent started, the one of an interactive Claude Code too: it would let itself go."""

    @wraps(command)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        if os.environ.get(SESSION_MARK):
            raise NotTheOperator(_LOOPS_ARE_YOURS)
        return command(*args, **kwargs)

    return operator_only(guarded)


def refuse_inside_session(session: str) -> None:
    """Refuse what the agent of this session of Claude Code started, whatever it took out of the environment."""
    if session and _ancestor(lambda env: env.get(SESSION_ID_MARK) == session) is not None:
        raise NotTheOperator(_LOOPS_ARE_YOURS)


def is_inside_agent() -> bool:
    """Whether an agent started this process, or one above it."""
    return agents_environment() is not None


def agents_environment() -> Mapping[str, str] | None:
    """The environment of the agent that started this process, or one above it: taking the mark out hides nothing.

    A check counts as the agent: what it runs, the agent may have written.
    """
    return _ancestor(lambda env: bool(_run_of(env)))


def _ancestor(wanted: Callable[[Mapping[str, str]], bool]) -> Mapping[str, str] | None:
    """The environment of the nearest process, this one or one above it, for which that holds."""
    if wanted(os.environ):
        return os.environ
    pid: int | None = os.getppid()
    for _ in range(_GENERATIONS):
        if not pid:
            break
        env = _environment_of(pid)
        if wanted(env):
            return env
        pid = parent_of(pid)
    return None


def _run_of(env: Mapping[str, str]) -> str:
    return env.get(OPERATOR_MARK) or env.get(CHECK_MARK) or ""


def _environment_of(pid: int) -> dict[str, str]:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123 -- not a file of anybody's, and asked often
            variables = file.read().split(b"\0")
    except OSError:
        # Of another user, gone already, or a system without /proc.
        return {}
    pairs = (os.fsdecode(variable).partition("=") for variable in variables)
    return {name: value for name, _, value in pairs}


def _record_refusal(env: Mapping[str, str]) -> None:
    """Tell the run whose agent it was. The refusal itself does not depend on it."""
    said = one_line(shlex.join(sys.argv[1:]), _COMMAND_CAP)
    # Whatever is wrong with the store or with what the agent made of it: the agent gets its refusal, nothing else.
    with suppress(Exception):
        asyncio.run(asyncio.wait_for(_tell_run(state_dir(env), _run_of(env), said), _PATIENCE))


async def _tell_run(store: Path, run_id: str, said: str) -> None:
    from untildone import wiring
    from untildone.core.events import SteeringRefused
    from untildone.engine.journal import load_state

    if not await asyncio.to_thread((store / wiring.STORE_FILE).is_file):
        return
    log = wiring.open_log(store, wiring.system_clock())
    try:
        # An agent that tries in a loop must not flood the log.
        if (await load_state(log, run_id)).refusals < REFUSALS_RECORDED:
            await log.append(run_id, [SteeringRefused(command=said)])
    finally:
        await log.close()

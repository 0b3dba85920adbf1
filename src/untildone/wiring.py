"""The composition root: the only file that names concrete adapters."""

import os
import random
import socket
import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from untildone import __version__
from untildone.core import events as ev
from untildone.core.beginning import beginning
from untildone.core.fold import fold
from untildone.core.policy import Policy, RunSpec
from untildone.core.state import LoopState
from untildone.engine.clock import SystemClock
from untildone.engine.journal import Journal, Observer, load_state
from untildone.engine.parts import Parts
from untildone.errors import ConfigError, RunNotFound
from untildone.ports import Agent, Clock, EventLog, Machine, Notifier, RunRow, Spawner

STORE_FILE = "untildone.db"
ADAPTERS = ("claude_sdk", "claude_cli")


def new_run_id() -> str:
    """Short enough to type, long enough never to meet twice."""
    return uuid.uuid4().hex[:12]


def system_clock() -> Clock:
    """The machine's own time."""
    return SystemClock()


def open_log(state_dir: Path, clock: Clock) -> EventLog:
    """The store of all runs of this user."""
    from untildone.store.sqlite import SqliteLog

    return SqliteLog(state_dir / STORE_FILE, clock)


async def find_run(log: EventLog, wanted: str | None, folder: Path) -> RunRow:
    """A run by id, by the beginning of its id, or by name; without any, the newest of this folder."""
    rows = sorted(await log.runs(), key=lambda row: row.created_at, reverse=True)
    if wanted is None:
        here = os.path.realpath(folder)
        found = [row for row in rows if row.folder == here]
        if not found:
            raise RunNotFound(f"no run in {here} yet: start one with `untildone run`, or see `untildone ls`")
        return found[0]
    found = [row for row in rows if wanted in {row.run_id, row.name}] or [
        row for row in rows if row.run_id.startswith(wanted)
    ]
    if not found:
        raise RunNotFound(f"no run called {wanted!r}: `untildone ls` shows all runs")
    return found[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a run takes from the process it is started in."""

    log: EventLog
    state_dir: Path
    env: Mapping[str, str]
    clock: Clock
    observer: Observer | None = None
    """Told every record as it is written."""
    agent: Agent | None = None
    """An agent given by an embedding program instead of the one the options name."""
    machine: Machine | None = None
    """A machine given by an embedding program instead of the one it runs on."""
    notifiers: Sequence[Notifier] | None = None
    """Channels given by an embedding program instead of those the settings name."""
    dress: Callable[[Parts], Parts] = lambda parts: parts
    """Puts something between the engine and its ports: how a test dies at every boundary of the loop."""


async def start_run(spec: RunSpec, policy: Policy, around: Surroundings, *, run_id: str) -> LoopState:
    """Begin a new run and drive it to its stop."""
    return await _drive(run_id, spec, policy, around, [beginning(run_id, spec, policy)])


async def resume_run(run_id: str, around: Surroundings, *, asked: Sequence[ev.Event] = ()) -> LoopState:
    """Take up a run where it stands, with what the human asks for on the way in, and drive it to its next stop.

    What is asked is recorded by the new driver, after it got the lease: a run that someone else drives stays as it is.
    """
    state = await load_state(around.log, run_id)
    if not state.run_id:
        raise RunNotFound(f"run {run_id} never began: start it again with `untildone run`")
    now = around.clock.now()
    asked_for = fold((ev.Record(seq=state.last_seq + n, at=now, event=e) for n, e in enumerate(asked, 1)), state)
    return await _drive(run_id, asked_for.spec, asked_for.policy, around, asked)


async def _drive(
    run_id: str, spec: RunSpec, policy: Policy, around: Surroundings, opening: Sequence[ev.Event]
) -> LoopState:
    from untildone.engine.announce import announcing
    from untildone.engine.supervise import supervise
    from untildone.sandbox.inhibit import awake

    parts = around.dress(await _parts(spec, around, run_id, policy))
    lease = await around.log.acquire(run_id, name=spec.name, folder=spec.cwd)
    journal = Journal(around.log, lease, around.clock, around.observer)
    driver = ev.ContinuousResumed(pid=os.getpid(), host=socket.gethostname(), version=__version__, lease=lease.token)
    try:
        async with announcing(journal, parts):
            with awake(around.env):
                await supervise(journal, parts, [*opening, driver])
    finally:
        await around.log.release(lease, status=journal.state.phase)
    return journal.state


async def _parts(spec: RunSpec, around: Surroundings, run_id: str, policy: Policy) -> Parts:
    from untildone.agents.transcripts import TranscriptLedger
    from untildone.git.workspace import open_workspace
    from untildone.sandbox.host import HostSpawner
    from untildone.witness.checks import CommandCheck
    from untildone.witness.usher import FolderUsher

    if not os.path.isdir(spec.cwd):  # noqa: PTH112 - one stat, and pathlib is frowned upon in coroutines
        raise ConfigError(f"{spec.cwd} is not a folder: give an existing one with --cwd")
    spawner = HostSpawner()
    return Parts(
        agent=around.agent or _agent(spec, spawner, around, run_id, policy),
        workspace=await open_workspace(spec, run_id=run_id, private=around.state_dir / "folders"),
        checks=[CommandCheck(command, cwd=spec.cwd, timeout=spec.check_timeout) for command in spec.checks],
        usher=FolderUsher(spec.cwd),
        spawner=spawner,
        ledger=TranscriptLedger(_claude_config_dir(spec, around.env)),
        machine=around.machine or _machine(spec, around),
        notifiers=open_notifiers(spec.notify) if around.notifiers is None else around.notifiers,
        clock=around.clock,
        jitter=random.random,
    )


def open_notifiers(urls: Sequence[str]) -> list[Notifier]:
    """The channels behind these addresses: webhooks by ourselves, everything else through apprise."""
    from untildone.notify.webhook import SCHEMES, Webhook, scheme_of

    channels: list[Notifier] = []
    for url in urls:
        if scheme_of(url) in SCHEMES:
            channels.append(Webhook(url))
        else:
            from untildone.notify.apprise import AppriseChannel

            channels.append(AppriseChannel(url))
    return channels


def _machine(spec: RunSpec, around: Surroundings) -> Machine:
    from untildone.sandbox.machine import ThisMachine

    home = Path(around.env.get("HOME", "~")).expanduser()
    claude = _claude_config_dir(spec, around.env)
    return ThisMachine(
        writes_to=(str(around.state_dir), spec.cwd, str(claude)),
        reclaimable={
            "the store of all runs": str(around.state_dir),
            "Claude's transcripts": str(claude / "projects"),
            "the repository's objects and saved states": str(Path(spec.cwd) / ".git"),
            "caches": str(home / ".cache"),
            "temporary files": tempfile.gettempdir(),
        },
    )


def _agent(spec: RunSpec, spawner: Spawner, around: Surroundings, run_id: str, policy: Policy) -> Agent:
    """The agent the options name. What cannot work is said before anything is started or recorded."""
    from untildone.agents.argv import find_claude, require_sandbox
    from untildone.agents.environment import agent_environment
    from untildone.agents.hooks_file import load_hooks
    from untildone.agents.relay import Relay, agent_named

    env = agent_environment(
        around.env,
        run_id=run_id,
        skip_permissions=spec.options.skip_permissions,
        is_root=os.geteuid() == 0,
        config_dir=str(_claude_config_dir(spec, around.env)) if spec.options.config_dir else None,
    )
    find_claude(spec.options.claude, path=env.get("PATH"))
    require_sandbox(spec.options, path=env.get("PATH"))
    if spec.options.hooks_file is not None:
        load_hooks(Path(spec.options.hooks_file))

    def make(name: str) -> Agent:
        return _adapter(name, spec, policy, spawner, env)

    others = [named for fallback in spec.options.fallback if (named := agent_named(fallback)) is not None]
    for name in (spec.options.agent, *others):
        if name not in ADAPTERS:
            raise ConfigError(f"unknown agent {name!r}: use {' or '.join(ADAPTERS)}")
    return Relay(make, first=spec.options.agent) if others else make(spec.options.agent)


def _adapter(name: str, spec: RunSpec, policy: Policy, spawner: Spawner, env: Mapping[str, str]) -> Agent:
    # A check the user named may be run by the agent too: it should know before it claims.
    checks = tuple(f"Bash({check})" for check in spec.checks)
    options = replace(spec.options, allowed_tools=(*spec.options.allowed_tools, *checks))
    if name == "claude_cli":
        from untildone.agents.claude_cli import ClaudeCli

        return ClaudeCli(options, spawner, cwd=spec.cwd, env=env, background_grace=policy.background_grace)
    from untildone.agents.claude_sdk import ClaudeSdk

    return ClaudeSdk(
        options,
        spawner,
        cwd=spec.cwd,
        env=env,
        background_grace=policy.background_grace,
        completion_signal=policy.completion_signal,
    )


def _claude_config_dir(spec: RunSpec, env: Mapping[str, str]) -> Path:
    """Where the agent of this run keeps its login and its transcripts."""
    home = Path(env.get("HOME", "~")).expanduser()
    chosen = spec.options.config_dir
    if chosen is None:
        return Path(env.get("CLAUDE_CONFIG_DIR") or home / ".claude")
    return Path(spec.cwd) / (home / chosen[2:] if chosen.startswith("~/") else chosen)

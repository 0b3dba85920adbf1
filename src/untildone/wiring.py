"""The composition root: the only file that names concrete adapters."""

import os
import random
import socket
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from untildone import __version__, config
from untildone.core import events as ev
from untildone.core.beginning import beginning
from untildone.core.chain import has_next, knows_goals, next_policy, next_run_id, next_spec
from untildone.core.contract import Contract
from untildone.core.dataclass import dataclass
from untildone.core.delivery import landing_for, owes_check
from untildone.core.durations import DAY
from untildone.core.elsewhere import refuse_elsewhere
from untildone.core.fold import fold
from untildone.core.policy import Policy, RunSpec
from untildone.core.printable import one_line
from untildone.core.restarted import in_order
from untildone.core.reviewing import reviewer_options
from untildone.core.state import LoopState
from untildone.engine.clock import SystemClock
from untildone.engine.journal import Journal, Observer, load_state
from untildone.errors import ConfigError, NoSandbox, RunNotFound, UsageError
from untildone.forge.login import login_names, logins
from untildone.forge.remote_access import RemoteAccess
from untildone.ports import Agent, Clock, EventLog, Machine, Notifier, Spawner
from untildone.store.leftovers import LAST_WORDS, ROOMS, WIRE_NOTES

if TYPE_CHECKING:
    from untildone.boxes import Box
    from untildone.engine.parts import Parts
    from untildone.ports.delivery import Forge
    from untildone.sandbox.host import HostSpawner
    from untildone.uplink.serving import Line
    from untildone.uplink.settings import UplinkSettings
    from untildone.witness.examiner import Sealing

STORE_FILE = "untildone.db"
KEEP_DAYS = 90
"""What the agent of a run wrote and did, and what a detached run printed, goes so many days after its last event."""
ADAPTERS = ("claude_sdk", "claude_cli")


def new_run_id() -> str:
    """Short enough to type, long enough never to meet twice."""
    return uuid.uuid4().hex[:12]


def system_clock() -> Clock:
    """The machine's own time."""
    return SystemClock()


def open_log(state_dir: Path, clock: Clock) -> EventLog:
    """A store of runs. In a folder only one run may be at work, whatever stores this user has."""
    from untildone.store.lease import LOCKS_FOLDER
    from untildone.store.sqlite import SqliteLog

    return SqliteLog(state_dir / STORE_FILE, clock, shared_locks=config.own_dir(os.environ) / LOCKS_FOLDER)


def refuse_in_session(state: LoopState) -> None:
    """UsageError for a loop inside Claude Code: no program drives it, so that nothing of this would reach it."""
    if state.spec.in_session:
        raise UsageError(
            f"{state.spec.name} is a loop inside a Claude Code session, and only that session can continue it: "
            f"`untildone loop stop {state.run_id}` ends it; see `untildone loop --help` for what else can be done"
        )


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
    reviewer: Agent | None = None
    """The same for the one who reviews."""
    machine: Machine | None = None
    """A machine given by an embedding program instead of the one it runs on."""
    notifiers: Sequence[Notifier] | None = None
    """Channels given by an embedding program instead of those the settings name."""
    uplink: "UplinkSettings | None" = None
    """A server given by an embedding program instead of the one the settings name."""
    notice: Callable[[str], None] = lambda _: None
    """Told, in one line, what only concerns whoever watches right now: nothing of it is recorded."""
    dress: "Callable[[Parts], Parts]" = lambda parts: parts
    """Puts something between the engine and its ports: how a test dies at every boundary of the loop."""


async def start_run(spec: RunSpec, policy: Policy, around: Surroundings, *, run_id: str) -> LoopState:
    """Begin a new run and drive it to its stop."""
    if around.agent is None:  # one that goes on may have nothing to do but to land what is done
        await _refuse_without_login(spec, around)
    return await _drive(run_id, spec, policy, around, [beginning(run_id, spec, policy)])


async def resume_run(run_id: str, around: Surroundings, *, asked: Sequence[ev.Event] = ()) -> LoopState:
    """Take up a run where it stands, with what the human asks for on the way in, and drive it to its next stop.

    What is asked is recorded by the new driver, after it got the lease: a run that someone else drives stays as it is.
    """
    state = await load_state(around.log, run_id)
    if not state.run_id:
        raise RunNotFound(f"run {run_id} never began: start it again with `untildone run`")
    refuse_in_session(state)
    refuse_elsewhere(state)
    now = around.clock.now()
    asked_for = fold((ev.Record(seq=state.last_seq + n, at=now, event=e) for n, e in enumerate(asked, 1)), state)
    if state.phase == "completed" and landing_for(asked_for) is None and not owes_check(asked_for):
        return await _already_done(state, around)
    return await _drive(run_id, asked_for.spec, asked_for.policy, around, asked)


async def _already_done(state: LoopState, around: Surroundings) -> LoopState:
    """A run whose driver died right after its last word: nothing is left to do but to say so in the list of runs."""
    lease = await around.log.acquire(state.run_id, name=state.spec.name, folder=state.spec.cwd)
    await around.log.release(lease, status=state.phase)
    return state


def with_goals(spec: RunSpec) -> RunSpec:
    """The same with the goals that are to follow, as their files say now.

    UsageError when one cannot be read: better now than at one in the morning, and by then an agent may have
    rewritten the file.
    """
    return replace(spec, then_goals=tuple(map(_goal, spec.then)))


def next_run(state: LoopState, now: float) -> tuple[str, RunSpec, Policy]:
    """The run that follows one that is done. Only a run of an older version still has to read its goal."""
    spec = state.spec
    goal = spec.then_goals[0] if knows_goals(spec) else _goal(spec.then[0])
    spec = next_spec(state.spec, goal=goal, name=config.run_name(Path(state.spec.cwd), goal))
    return next_run_id(state.run_id), spec, next_policy(state, now)


async def goes_on(log: EventLog, state: LoopState) -> bool:
    """Whether the next goal is to be started: not when a human asked for a stop, however late."""
    return has_next(state) and (await load_state(log, state.run_id)).stop is None


def _goal(file: str) -> str:
    from untildone.witness.reading import read_text_file

    return read_text_file(file, "the goal file of --then", again=True)


async def _drive(
    run_id: str, spec: RunSpec, policy: Policy, around: Surroundings, opening: Sequence[ev.Event]
) -> LoopState:
    from untildone.boxes import environment_outside, opened
    from untildone.engine.announce import announcing
    from untildone.engine.supervise import supervise
    from untildone.sandbox.inhibit import awake
    from untildone.trees import tidying
    from untildone.uplink.serving import uplinked

    parts, crew = await _parts(spec, around, run_id, policy)
    parts = around.dress(parts)
    line = _line(spec, around, run_id)
    lease = await around.log.acquire(run_id, name=spec.name, folder=spec.cwd)
    journal = Journal(around.log, lease, around.clock, around.observer)
    driver = ev.ContinuousResumed(
        pid=os.getpid(),
        host=socket.gethostname(),
        version=__version__,
        lease=lease.token,
        sandbox=crew.sandbox,
        sandbox_note=crew.note,
    )
    before = around.clock.now() - KEEP_DAYS * DAY
    try:
        loaded = _loaded(line, journal, parts, spec, around)
        async with (
            uplinked(around.log, journal, loaded),
            opened(crew.boxes, journal, crew.notes),
            tidying(around.log, around.state_dir, before),
            announcing(journal, parts),
        ):
            with awake(environment_outside(around.env, spec.options, spec.cwd)):
                await supervise(journal, parts, in_order(opening, driver))
    finally:
        if journal.state.open is None:
            crew.notes.forget_all()
        await around.log.release(lease, status=journal.state.phase)
    return journal.state


async def _refuse_without_login(spec: RunSpec, around: Surroundings) -> None:
    """Before anything is made or recorded: a run without a login would leave an empty branch behind."""
    from untildone.agents.argv import find_claude
    from untildone.agents.login import refuse_without_login
    from untildone.boxes import environment_outside
    from untildone.git.repository import project_root

    if "--settings" in spec.options.extra_args:
        return  # it may name a key that only Claude Code can look for
    place, folder = claude_config_dir(spec, around.env), Path(spec.cwd)
    env = dict(around.env) | ({"CLAUDE_CONFIG_DIR": str(place)} if spec.options.config_dir else {})
    env = environment_outside(env, spec.options, spec.cwd)
    claude = find_claude(spec.options.claude, path=env.get("PATH"))
    await refuse_without_login(claude, env, config_dir=place, folders=(folder, project_root(folder)))


def _line(spec: RunSpec, around: Surroundings, run_id: str) -> "Line | None":
    """The way to a server, if the run has one. What cannot work is said before anything begins."""
    from untildone.agents.session_files import read_transcript
    from untildone.uplink.opening import Here, line_for

    transcript = partial(read_transcript, claude_config_dir(spec, around.env), spec.cwd)
    here = Here(env=around.env, state_dir=around.state_dir, now=around.clock.now, notice=around.notice)
    return line_for(spec, run_id, replace(here, transcript=transcript), given=around.uplink)


def _loaded(
    line: "Line | None", journal: Journal, parts: "Parts", spec: RunSpec, around: Surroundings
) -> "Line | None":
    """The same line, with what another machine needs to go on with the run, where that is wanted."""
    if line is None:
        return None
    from untildone.moving import Baggage, carrying

    place, now = claude_config_dir(spec, around.env), around.clock.now
    baggage = Baggage(workspace=parts.workspace, config_dir=place, env=around.env, now=now)
    return carrying(line, around.log, journal, baggage, cwd=spec.cwd)


async def _parts(spec: RunSpec, around: Surroundings, run_id: str, policy: Policy) -> "tuple[Parts, _Crew]":
    """With those who work on it."""
    from untildone.agents.environment import STORE_MARKER
    from untildone.agents.last_words import ClaudeLedger
    from untildone.boxes import distrust, environment_outside, find_remote
    from untildone.engine.parts import Parts
    from untildone.git.repository import Keeping as GitKeeping
    from untildone.git.workspace import open_workspace
    from untildone.notify.opening import open_notifiers
    from untildone.sandbox.host import CHECK_MARKER, HostSpawner, behind_guard
    from untildone.witness.checks import Keeping
    from untildone.witness.examiner import Examiner
    from untildone.witness.usher import FolderUsher

    if not os.path.isdir(spec.cwd):  # noqa: PTH112 - one stat, and pathlib is frowned upon in coroutines
        raise ConfigError(f"{spec.cwd} is not a folder: give an existing one with --cwd")
    await _refuse_unusable(spec.contract)
    spawner = HostSpawner(around.state_dir / LAST_WORDS, mark=f"{STORE_MARKER}={_place(around)}")
    marks = {CHECK_MARKER: run_id, STORE_MARKER: _place(around)}
    guard, withheld = tuple(behind_guard(whole_tree=True)), login_names(spec) | {config.SERVER_TOKEN}
    crew = _Crew(run_id, spec, policy, around, spawner)
    if around.agent is None:
        distrust(spec.options, spec.cwd, around.env)
    crew.remote = await find_remote(spec, environment_outside(around.env, spec.options, spec.cwd))
    agent, reviewer = crew.worker(), crew.reviewer()
    at_work = crew.work_box
    inside = at_work.inside([box for box in crew.boxes if box is not at_work]) if at_work else None
    of_git = GitKeeping(marks=tuple(marks.items()), behind=guard, withheld=withheld, inside=inside)
    workspace = await open_workspace(spec, run_id=run_id, private=around.state_dir / "folders", keeping=of_git)
    rooms = workspace.rooms(around.state_dir / ROOMS)
    lander = workspace.lander()
    parts = Parts(
        agent=agent,
        workspace=workspace,
        witness=Examiner(
            spec.contract,
            rooms,
            cwd=spec.cwd,
            logs=around.state_dir / "logs" / run_id,
            keeping=Keeping(env=marks, behind=guard, withheld=withheld, masked=logins(spec, around.env)),
            sealing=_sealing(spec, around, partial(spawner.end_leftovers, run_id), at_work),
        ),
        lander=lander,
        forge=await _forge(spec, around, lander.remote_address),
        reviewer=reviewer,
        # Hooks may start what shall stay, even the next run: only they themselves must not outlive us.
        usher=FolderUsher(spec.cwd, behind=behind_guard(whole_tree=False)),
        spawner=spawner,
        ledger=ClaudeLedger(claude_config_dir(spec, around.env), around.state_dir / LAST_WORDS, crew.notes),
        machine=around.machine or _machine(spec, around),
        notifiers=open_notifiers(spec.notify) if around.notifiers is None else around.notifiers,
        clock=around.clock,
        jitter=random.random,
        tasks_left=_tasks_left(spec),
    )
    return parts, crew


async def _refuse_unusable(contract: Contract) -> None:
    """ConfigError for commands that no shell can run: iterations would be paid for that nothing can prove."""
    from untildone.witness.command import unusable

    told = {f"check {check.name}": check.command for check in contract.checks if check.kind == "command"}
    told |= {"--setup": contract.setup} if contract.setup else {}
    told |= {"--fail-to-pass-check": contract.fail_to_pass_check} if contract.fail_to_pass_check else {}
    for what, command in told.items():
        if said := await unusable(command):
            raise ConfigError(f"{one_line(what, 200)} cannot be run: {said}; correct the command, or leave it out")


def _sealing(spec: RunSpec, around: Surroundings, end_leftovers: Callable[[], int], box: "Box | None") -> "Sealing":
    """Where checks see only the commit, if that can be had here. ConfigError when it must be and cannot.

    If the agent is in a sandbox, so is what checks its work: that runs what it wrote.
    """
    from untildone.sandbox.bubblewrap import can_enclose
    from untildone.sandbox.clean_room import CleanRoom
    from untildone.witness.examiner import Sealing

    contract = spec.contract
    if box is not None and box.checks is not None:
        return Sealing(enclosure=box.checks, in_tree=box.checks.in_tree, end_agents_leftovers=end_leftovers)
    if not contract.checks:
        return Sealing(end_agents_leftovers=end_leftovers)  # nothing will run, so nobody needs to try it out
    probe = can_enclose()
    if contract.proof == "strict" and probe.trouble:
        raise ConfigError(f"--proof strict is not possible here: {probe.trouble}; {probe.remedy}, or leave it out")
    if probe.trouble:
        return Sealing(weaker=probe.trouble, end_agents_leftovers=end_leftovers)
    # The commands of the contract get this process's environment.
    own = (around.state_dir, config.own_dir(os.environ))
    enclosure = CleanRoom(probe, env=os.environ, own=own, network=contract.proof != "strict")
    return Sealing(enclosure=enclosure, end_agents_leftovers=end_leftovers)


def _judges(contract: Contract) -> tuple[str, ...] | None:
    """The programs that checks name, as far as they are there; None: there are no checks."""
    from untildone.witness.lent import named_programs

    if not contract.checks:
        return None
    commands = (contract.setup, contract.fail_to_pass_check, *(check.command for check in contract.checks))
    return tuple(path for one in commands if one for path in named_programs(one, os.environ).values() if path)


def _tasks_left(spec: RunSpec) -> Callable[[], str]:
    def look() -> str:
        from untildone.hook.task_gate import tasks_left

        return tasks_left(spec.cwd)

    return look


def _task_command(spec: RunSpec, env: Mapping[str, str]) -> Callable[[Sequence[str]], str]:
    def run(words: Sequence[str]) -> str:
        from untildone.hook.task_command import run_task

        return run_task(words, env, SystemClock().now(), cwd=spec.cwd)

    return run


def _place(around: Surroundings) -> str:
    return os.path.abspath(around.state_dir)  # noqa: PTH100 - text, and no disk is asked


async def _forge(spec: RunSpec, around: Surroundings, address: Callable[[], Awaitable[str]]) -> "Forge | None":
    """Only for those who want pull requests: a login is looked for, and its lack is told before anything begins."""
    if spec.landing.land != "pr" and not any(check.kind in {"pr-open", "ci-green"} for check in spec.contract.checks):
        return None
    landing = spec.landing
    if (landing.every, landing.strategy, spec.branch_per) == ("iteration", "rebase", "run"):
        # The same commits would be replayed on top of their own copies.
        raise ConfigError("rebasing what each iteration made needs a branch for each: add --branch-per iteration")
    from untildone.boxes import environment_outside
    from untildone.forge.github import open_github

    env = environment_outside(around.env, spec.options, spec.cwd)
    return await open_github(landing, await address(), env, around.clock)


def _machine(spec: RunSpec, around: Surroundings) -> Machine:
    import tempfile

    from untildone.sandbox.machine import ThisMachine

    home = Path(around.env.get("HOME", "~")).expanduser()
    claude = claude_config_dir(spec, around.env)
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


class _Crew:
    """Who works on a run: an agent, and one who reviews its work. Each may live in a box of its own."""

    def __init__(self, run_id: str, spec: RunSpec, policy: Policy, around: Surroundings, host: "HostSpawner") -> None:
        from untildone.agents.wire_notes import WireNotes

        self._run_id = run_id
        self._spec = spec
        self._policy = policy
        self._around = around
        self._host = host
        self.boxes: list[Box] = []
        """The boxes they live in; to be opened before anybody works."""
        self.notes = WireNotes(around.state_dir / LAST_WORDS / f"{run_id}{WIRE_NOTES}")
        """Of what passes their doors."""
        self.remote = RemoteAccess()
        """The run's own remote, as those in boxes may get at it."""
        self.work_box: Box | None = None
        """That of the agent that works."""
        self.sandbox = self.note = ""
        """Where it works, and what is to be known of it; empty: it was given by somebody else."""

    def worker(self) -> Agent:
        """The agent the options name, or one that was given."""
        return self._around.agent or self._agent(self._spec, reviewing=False)

    def reviewer(self) -> Agent | None:
        """An agent of its own for reviews: it shares neither process nor rights with the one that works."""
        spec = self._spec
        has_judges = bool(spec.contract.checks) and spec.contract.guard != "off"
        if spec.review.when == "never" and not (spec.review.disputes and has_judges):
            return None
        its_own = replace(spec, options=reviewer_options(spec))
        return self._around.reviewer or self._agent(its_own, reviewing=True)

    def _agent(self, spec: RunSpec, *, reviewing: bool) -> Agent:
        """What cannot work is said before anything is started or recorded."""
        from untildone.agents.argv import find_claude, require_sandbox
        from untildone.agents.hooks_file import load_hooks
        from untildone.agents.relay import Relay, agent_named
        from untildone.boxes import environment_outside

        env = self._environment(spec, reviewing=reviewing)
        path = environment_outside(env, spec.options, spec.cwd).get("PATH")
        claude = find_claude(spec.options.claude, path=path)
        spec = replace(spec, options=replace(spec.options, claude=claude))
        require_sandbox(spec.options, path=env.get("PATH"))
        if spec.options.hooks_file is not None:
            load_hooks(Path(spec.options.hooks_file))
        box = self._box(spec, env, claude, reviewing=reviewing)

        def make(name: str) -> Agent:
            return self._adapter(name, spec, env, box, reviewing=reviewing)

        others = [named for fallback in spec.options.fallback if (named := agent_named(fallback)) is not None]
        for name in (spec.options.agent, *others):
            if name not in ADAPTERS:
                raise ConfigError(f"unknown agent {name!r}: use {' or '.join(ADAPTERS)}")
        return Relay(make, first=spec.options.agent) if others else make(spec.options.agent)

    def _environment(self, spec: RunSpec, *, reviewing: bool) -> Mapping[str, str]:
        from untildone.agents.environment import agent_environment

        around = self._around
        env = agent_environment(
            around.env,
            run_id=self._run_id,
            skip_permissions=spec.options.skip_permissions,
            is_root=os.geteuid() == 0,
            store=_place(around),
            config_dir=str(claude_config_dir(spec, around.env)) if spec.options.config_dir else None,
            withheld=login_names(spec),
        )
        if env.get("IS_SANDBOX") and "IS_SANDBOX" not in around.env and not reviewing:
            around.notice(
                "--skip-permissions as root: Claude Code gets IS_SANDBOX=1, because it refuses this on a machine that "
                "is no sandbox"
            )
        return env

    def _box(self, spec: RunSpec, env: Mapping[str, str], claude: str, *, reviewing: bool) -> "Box | None":
        """None: the agent works on the host. A sandbox that was asked for by name is there, or nothing is started."""
        from untildone.boxes import Lodger, box_for, wanted_kinds

        wanted = spec.options.sandbox
        self.sandbox = "claude" if wanted == "claude" else "host"
        if not (kinds := wanted_kinds(spec.options)):
            return None

        lodger = Lodger(
            spec=spec,
            env=env,
            config_dir=claude_config_dir(spec, env),
            claude=claude,
            state_dir=self._around.state_dir,
            run_id=self._run_id,
            name=f"{self._run_id}-{'review' if reviewing else 'work'}",
            own=(self._around.state_dir, config.own_dir(os.environ)),
            is_reader=reviewing,
            disk_reserve=self._policy.disk_reserve,
            remote=self.remote,
            judges=None if reviewing else _judges(spec.contract),
        )
        try:
            box = box_for(lodger, self._host)
        except NoSandbox as trouble:
            if kinds == ("bwrap",) and wanted == "auto":
                self.note = str(trouble)
                return None
            asked = f"--sandbox {wanted}" if wanted in kinds else f"--image {spec.options.image}"
            other = "claude" if wanted == "bwrap" else "bwrap"
            steps = f"use --sandbox {other}, or --sandbox host"
            raise ConfigError(f"{asked} is not possible here: {trouble}; {steps}") from trouble
        self.boxes.append(box)
        self.sandbox, self.note = box.kind, box.note
        if not reviewing:
            self.work_box = box
        return box

    def _adapter(
        self, name: str, spec: RunSpec, env: Mapping[str, str], box: "Box | None", *, reviewing: bool
    ) -> Agent:
        from untildone.core.prompt import denied_tools, granted_tools

        # A check the user named may be run by the agent too: it should know before it claims.
        granted = granted_tools(spec, mends=not reviewing)
        options = replace(spec.options, allowed_tools=granted, disallowed_tools=denied_tools(spec))
        spawner: Spawner = self._host if box is None else box.spawner
        inside, files = (env, None) if box is None else (box.env, box.files)
        grace = self._policy.background_grace
        if name == "claude_cli":
            from untildone.agents.claude_cli import ClaudeCli

            return ClaudeCli(
                options, spawner, cwd=spec.cwd, env=inside, background_grace=grace, reviewing=reviewing, files=files
            )
        from untildone.agents.claude_sdk import ClaudeSdk

        return ClaudeSdk(
            options,
            spawner,
            cwd=spec.cwd,
            env=inside,
            background_grace=grace,
            completion_signal=self._policy.completion_signal,
            reviewing=reviewing,
            tasks=_task_command(spec, env),
            files=files,
            fixed=(lambda: None) if box is None else box.lent_login,
        )


def claude_config_dir(spec: RunSpec, env: Mapping[str, str]) -> Path:
    """Where the agent of this run keeps its login and its transcripts."""
    home = Path(env.get("HOME", "~")).expanduser()
    chosen = spec.options.config_dir
    if chosen is None:
        return Path(env.get("CLAUDE_CONFIG_DIR") or home / ".claude")
    return Path(spec.cwd) / (home / chosen[2:] if chosen.startswith("~/") else chosen)

"""A night in three minutes: all its troubles staged in scratch clones, lived through by the real loop, and judged."""

import asyncio
import os
import shlex
import shutil
import signal
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path

from untildone import __version__
from untildone.core import codec
from untildone.core import events as ev
from untildone.core.contract import Contract, commands
from untildone.core.dataclass import dataclass
from untildone.core.policy import Policy, RunSpec, Tending
from untildone.core.printable import one_line
from untildone.core.trace import AgentSession, AgentStarted, AgentToolUse
from untildone.ports import Clock, EventLog
from untildone.rehearsal import garbler, staging
from untildone.rehearsal.acts import Act, faults_of
from untildone.rehearsal.certificate import Certificate, Scene
from untildone.rehearsal.environment import as_subscriber, claude_environment
from untildone.rehearsal.evidence import Seen, children_of, processes_of, read_ledger, told
from untildone.rehearsal.model import ScriptedModel
from untildone.rehearsal.props import Props
from untildone.rehearsal.scenario import Scenario, shipped_scenario

PATIENCE = 60.0
"""Seconds an act may take, and what the staged run has as its limit."""
GONE_PATIENCE = 3.0
"""Seconds after which nothing of a run may be alive any more."""
CHANGED = {
    "limits": f"8 attempts and {PATIENCE:.0f} s for each act; no limit of money, tokens, calls or time of day",
    "time": "idle timeout, background grace and disk reserve are made small; what you switched off stays off",
    "off": "your commands around iterations, notifications, follow-up goals, hooks, MCP servers, fallbacks, the push",
    "Claude Code": "a home and a login of its own, both made up; project settings are not read",
}
ONE_CHECK = "the check"
# Whatever the repository brings along for Claude Code stays out: its hooks and servers could reach outside.
NOTHING_OF_THE_PROJECT = ("--setting-sources", "user", "--strict-mcp-config")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What the process that plays the loop is told."""

    run_id: str
    store: str
    spec: RunSpec
    policy: Policy
    resume: bool = False
    scenario: Scenario | None = None
    """Serve this yourself: where you play, nobody else can be reached."""
    ledger: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What a night is rehearsed with."""

    scratch: Path
    repository: Path | None
    """The user's own; None: there is none here."""
    spec: RunSpec
    policy: Policy
    """Both as the user's settings say."""
    claude: str
    path: str
    loop: tuple[str, ...]
    """The command that plays a Part, whose file is its last argument."""
    python: Mapping[str, str]
    """What tells Python where modules are: the loop itself, or what the checks need, may be found there only."""
    open_log: Callable[[Path], EventLog]
    clock: Clock
    evidence: Callable[[], Path] | None
    """Makes a folder for what is kept of red acts; None: all of `scratch` is kept."""


Told = Callable[[Act, Scene | None], None]
"""Hears of an act when it begins and, with its scene, when it is over."""


async def rehearse_night(setup: Setup, acts: Sequence[Act], tell: Told) -> Certificate:
    """Play the acts one after the other."""
    at, began = setup.clock.now(), setup.clock.monotonic()
    (setup.scratch / "home").mkdir()
    base = await staging.make_base(setup.scratch, setup.repository)
    stages = staging.Stages(base, setup.scratch)
    scenes, versions = [], []
    for act in acts:
        tell(act, None)
        player = _Player(setup, act, base)
        scene = player.tidied(await player.play(stages))
        tell(act, scene)
        scenes.append(scene)
        versions += player.versions
    return Certificate(
        at=at,
        seconds=setup.clock.monotonic() - began,
        version=__version__,
        claude=versions[-1] if versions else None,
        repository=base.origin,
        scenes=tuple(scenes),
        changed=CHANGED | {ONE_CHECK: f"`{base.props.check}` instead of your own"},
    )


def staged_policy(policy: Policy, act: Act) -> Policy:
    """The user's policy with time made short. What the user switched off stays off, and shows."""
    made_small = {name: value for name, value in act.scaled.items() if getattr(policy, name)}
    return replace(
        policy,
        max_runs=None,
        max_iterations=8,
        max_cost_usd=None,
        max_tokens=None,
        max_duration=PATIENCE,
        deadline=None,
        start_at=None,
        max_calls_per_hour=None,
        unbounded=False,
        keep_quota=None,
        iteration_timeout=None,
        loop_delay=0.0,
        **({"disk_reserve": 0} | made_small),  # type: ignore[arg-type]  # names and types of Policy's own fields
    )


def staged_spec(spec: RunSpec, act: Act, folder: Path, claude: str, props: Props) -> RunSpec:
    """The user's settings with the script's goal, and without all that could reach outside."""
    options = replace(
        spec.options,
        claude=claude,
        allow_tools=(*spec.options.allow_tools, "Write", *act.tools),
        add_dirs=(),
        mcp_config=(),
        hooks_file=None,
        fallback=(),
        config_dir=None,
        extra_args=NOTHING_OF_THE_PROJECT,
    )
    return replace(
        spec,
        goal=props.goal,
        cwd=str(folder),
        name=f"night-{act.name}",
        task_file=None,
        contract=Contract(checks=commands(props.check)),
        notify=(),
        then=(),
        then_goals=(),
        options=options,
        tending=Tending(),
    )


class _Player:
    """Plays one act."""

    def __init__(self, setup: Setup, act: Act, base: staging.Base) -> None:
        self._setup = setup
        self._act = act
        self._base = base
        self._run_id = uuid.uuid4().hex[:12]
        self._room = setup.scratch.resolve() / act.name
        self._folder = self._room / "repository"
        self._ledger = self._room / "ledger.jsonl"
        self._trouble: list[str] = []
        self.versions: list[str] = []
        """Of the Claude Code that played."""

    async def play(self, stages: staging.Stages) -> Scene:
        """Stage, let it happen, judge."""
        act, clock = self._act, self._setup.clock
        began = clock.monotonic()
        scene = Scene(name=act.name, staged=act.staged, expected=act.expected, verdict="not rehearsed")
        self._folder.mkdir(parents=True)
        argv = await stages.dressed(act.place, self._folder, [*self._setup.loop, str(self._room / "part.json")])
        if argv is None:
            return replace(scene, why=(_not_permitted(act),))
        log = self._setup.open_log(self._room / "state")
        try:
            await self._perform(argv, log)
            seen = await self._look(log)
        finally:
            await log.close()
        self.versions = [session.version for session in seen.all(AgentSession) if session.version]
        wrong = tuple(faults_of(act, seen))
        return replace(
            scene,
            verdict="red" if wrong else "green",
            happened=told(seen),
            why=wrong,
            seconds=clock.monotonic() - began,
        )

    def tidied(self, scene: Scene) -> Scene:
        """Make room for the next act: its clone goes. What tells of a red one stays, and the scene says where."""
        if self._setup.evidence is None:
            return replace(scene, evidence=str(self._room)) if scene.verdict == "red" else scene
        if scene.verdict == "red":
            scene = self._kept(scene, self._setup.evidence() / self._act.name)
        shutil.rmtree(self._room, ignore_errors=True)
        return scene

    def _kept(self, scene: Scene, place: Path) -> Scene:
        try:
            # The clone's history is in the scratch folder, and goes with it: alone it is of no use.
            shutil.copytree(self._room, place, symlinks=True, ignore=shutil.ignore_patterns(self._folder.name))
        except OSError as refused:
            return replace(scene, why=(*scene.why, f"nothing of it could be kept: {refused.strerror or refused}"))
        return replace(scene, evidence=str(place))

    async def _perform(self, argv: Sequence[str], log: EventLog) -> None:
        scenario = self._base.props.used_in(shipped_scenario(self._act.scenario))
        inside = self._act.place == "loopback"
        with nullcontext() if inside else ScriptedModel(scenario, ledger_path=self._ledger) as model:
            env = self._environment(model.url if model else "")
            if self._act.place != "small_disk":
                await staging.clone(self._base, self._folder, env)
            self._write_part(scenario if inside else None)
            async with self._cued(log) as cue:
                await self._run(argv, env, cue)
            if self._act.cue in {"resume", "kill_loop"}:
                self._write_part(None, resume=True)
                await self._run(argv, env, None)

    def _environment(self, url: str) -> dict[str, str]:
        env = claude_environment(self._setup.scratch / "home", url, path=self._setup.path) | dict(self._setup.python)
        return as_subscriber(env) if self._act.place == "loopback" else env

    def _write_part(self, scenario: Scenario | None, *, resume: bool = False) -> None:
        part = Part(
            run_id=self._run_id,
            store=str(self._room / "state"),
            spec=staged_spec(self._setup.spec, self._act, self._folder, self._claude(), self._base.props),
            policy=staged_policy(self._setup.policy, self._act),
            resume=resume,
            scenario=scenario,
            ledger=str(self._ledger),
        )
        (self._room / "part.json").write_bytes(codec.encode_value(part))

    def _claude(self) -> str:
        if self._act.cue != "garble":
            return self._setup.claude
        program = self._room / "claude"
        command = shlex.join([sys.executable, garbler.__file__, self._setup.claude])
        program.write_text(f'#!/bin/sh\nexec {command} "$@"\n', encoding="utf-8")
        program.chmod(0o755)
        return str(program)

    async def _run(self, argv: Sequence[str], env: Mapping[str, str], cue: "asyncio.Future[int] | None") -> None:
        """Run the loop to its end; the stage hand is told its process as soon as there is one."""
        loop = await asyncio.create_subprocess_exec(
            *argv,
            cwd=self._room,
            env=dict(env),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,  # a Ctrl+C is for the rehearsal: the guards end what it leaves
        )
        if cue is not None:
            cue.set_result(loop.pid)
        try:
            _, err = await asyncio.wait_for(loop.communicate(), PATIENCE + 10)
        except TimeoutError:
            self._trouble.append(f"the loop did not end within {PATIENCE + 10:.0f} s")
            err = b""
        finally:
            if loop.returncode is None:
                loop.kill()
                await loop.wait()
        if err and loop.returncode not in {0, -signal.SIGKILL}:
            self._trouble.append(one_line(err.decode("utf-8", "replace").strip().rsplit("\n", 1)[-1], 300))

    @asynccontextmanager
    async def _cued(self, log: EventLog) -> AsyncIterator["asyncio.Future[int]"]:
        """While inside, the stage hand waits for his moment."""
        loop_pid: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        hand = asyncio.create_task(self._stage_hand(log, loop_pid))
        try:
            yield loop_pid
        finally:
            hand.cancel()
            await asyncio.wait([hand])
            if not hand.cancelled() and (broken := hand.exception()) is not None:
                self._trouble.append(f"the stage hand failed: {broken}")

    async def _stage_hand(self, log: EventLog, loop_pid: "asyncio.Future[int]") -> None:
        pid = await loop_pid
        guard = 0
        async for record in log.follow(self._run_id, trace=True):
            match record.event, self._act.cue:
                case AgentStarted(pid=int(started)), _:
                    guard = started
                case AgentToolUse(tool="Bash"), "kill_claude":
                    for child in children_of(guard):
                        os.kill(child, signal.SIGKILL)
                    return
                case AgentToolUse(tool="Bash"), "kill_loop":
                    os.kill(pid, signal.SIGKILL)
                    return
                case ev.ContinuousWaiting(cause="disk_low"), "free_disk":
                    # The small disk exists for that process alone; its root shows it.
                    (Path(f"/proc/{pid}/root") / self._folder.relative_to("/") / ".git/untildone-filler").unlink()
                    return
                case _:
                    pass

    async def _look(self, log: EventLog) -> Seen:
        judged = self._setup.spec.commit and self._act.place != "small_disk"
        return Seen(
            records=tuple(await log.read(self._run_id, trace=True)),
            ledger=read_ledger([self._ledger]),
            left_running=await _left_running(self._run_id),
            in_head=await staging.is_in_head(self._folder, self._base.props.file) if judged else None,
            ignored=self._base.props.ignored,
            trouble="; ".join(self._trouble),
        )


async def _left_running(run_id: str) -> int | None:
    """How many processes are still alive, after a moment to end."""
    left: list[int] | None = []
    with suppress(TimeoutError):
        async with asyncio.timeout(GONE_PATIENCE):
            while left := processes_of(run_id):  # noqa: ASYNC110 other processes raise no event here
                await asyncio.sleep(0.1)
    return None if left is None else len(left)


def _not_permitted(act: Act) -> str:
    needs = {
        "loopback": "a network namespace of its own (`unshare -n` and `ip`)",
        "small_disk": "a small disk of its own (`unshare -m` and `mount -t tmpfs`)",
    }
    return f"it needs {needs[act.place]}, which this machine does not permit"

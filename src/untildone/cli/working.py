"""`worker`: the loop inside a sandbox, configured by the environment alone, reporting to a server."""

import asyncio
import json
import os
import platform
import socket
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import click

from untildone import config, wiring
from untildone.cli.driving import Job, Output, drive_one, foreground, opened, show_result
from untildone.cli.guarding import operator_only
from untildone.cli.masking import masked_value
from untildone.cli.options import folder_of, store_of
from untildone.cli.restarting import worker_job
from untildone.cli.streams import put, say
from untildone.cli.tables import aligned
from untildone.core.coherence import remarks
from untildone.core.dataclass import dataclass
from untildone.core.limits import limit_of
from untildone.core.policy import Policy, RunSpec
from untildone.core.printable import one_line
from untildone.core.settings import SETTINGS, as_typed
from untildone.core.stopping import DONE, Reason, exit_code
from untildone.core.worker_env import WorkerConfig, as_shown, kept_from_agents, not_read, worker_config
from untildone.core.worker_table import THEMES, VARIABLES
from untildone.errors import RunElsewhere, UsageError
from untildone.ports import EventLog
from untildone.uplink.settings import UplinkSettings, sandbox_slug

BAD_CONFIGURATION = 1
_PLANNED = frozenset({*DONE, Reason.SHUTDOWN_SIGNAL, Reason.STOP_REQUESTED, Reason.TAKEN_OVER})
_SHOWN = 100


class WorkerCommand(click.Command):
    """A command whose help lists the variables it reads."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 -- click's
        """Every variable, by theme."""
        for theme, title in THEMES.items():
            with formatter.section(title):
                formatter.write_dl(
                    [
                        (one.name, f"{one.meaning} [{one.default}]" if one.default else one.meaning)
                        for one in VARIABLES
                        if one.theme == theme
                    ]
                )
        formatter.write_paragraph()
        formatter.write_text(
            "Every other setting is given as UNTILDONE_NAME, as `untildone config` lists them, for example "
            "UNTILDONE_CHECKS='pytest -q'. Settings files are not read. Exit codes: 0 for done, a limit or a stop "
            "that was asked for, 1 for a wrong configuration or too many errors, else as `untildone run` has them."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the environment comes to."""

    wanted: WorkerConfig
    resolved: config.Resolved
    policy: Policy


@click.command(cls=WorkerCommand)
@click.option("--check", is_flag=True, help="Print what the environment asks for, without secrets; start nothing.")
@operator_only
def worker(*, check: bool) -> int:
    """Pursue the goal that the environment names, in a sandbox, and tell a server all about it."""
    plan, wrong = _planned()
    if check:
        put(_checked(plan))
    for line in (*wrong, *(not_read(os.environ) if plan is not None else ())):
        say(line)
    if plan is None:
        return BAD_CONFIGURATION
    return 0 if check else _work(plan)


def _planned() -> tuple[Plan | None, list[str]]:
    """What is to be done, or everything that is wrong, one line each."""
    wanted = worker_config(os.environ, has_login=_has_login(os.environ))
    wrong = [*config.misspelt(os.environ), *_wrong_folder(os.environ)]
    if isinstance(wanted, list) or wrong:
        return None, [*(wanted if isinstance(wanted, list) else ()), *wrong]
    try:
        resolved = config.resolve(wanted.given, env=os.environ, here=folder_of(None))
        policy = config.policy(resolved, now=wiring.system_clock().now())
        # What contradicts itself shows before a folder is touched.
        config.run_spec(resolved, goal=wanted.goal, cwd=Path("/"), name="")
        uplink_settings(wanted)
    except UsageError as contradiction:
        return None, [str(contradiction)]
    return Plan(wanted=wanted, resolved=resolved, policy=policy), []


def _has_login(env: Mapping[str, str]) -> bool:
    """Whether Claude Code has a login of its own, where the agent will look for it."""
    written = env.get("UNTILDONE_CONFIG_DIR") or env.get("CLAUDE_CONFIG_DIR") or "~/.claude"
    place = config.expanded(written)
    in_keychain = platform.system() == "Darwin"  # nobody can look there without asking the user
    return in_keychain or config.is_file(place / ".credentials.json") or _names_helper(place / "settings.json")


def _names_helper(settings: Path) -> bool:
    """Whether Claude Code is told of a program that knows the key."""
    try:
        found = json.loads(settings.read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(found, dict) and bool(found.get("apiKeyHelper"))


def _wrong_folder(env: Mapping[str, str]) -> list[str]:
    """Whether there is nothing to work in, and nothing to make it from."""
    written = env.get("CWD", "")
    if not written.strip() or "\0" in written:
        return []
    place = config.expanded(written)
    can_be_made = env.get("GITHUB_REPO", "").strip() and not os.path.lexists(place)
    if can_be_made or os.path.isdir(place):  # noqa: PTH112 - pathlib raises where a name is too long
        return []
    return [f"CWD {one_line(written, _SHOWN)} is not a folder: make it, or have it cloned with GITHUB_REPO"]


def uplink_settings(wanted: WorkerConfig) -> UplinkSettings:
    """Where the worker reports to, and as whom."""
    return UplinkSettings(
        server=wanted.callback_url,
        sandbox_id=wanted.sandbox_id or sandbox_slug(socket.gethostname()),
        token=wanted.callback_token or "",
        heartbeat=wanted.heartbeat_interval,
        heartbeat_events=True,
        poll=wanted.poll_interval,
        report_transcript=wanted.report_transcript,
        ids=wanted.ids,
    )


def _checked(plan: Plan | None) -> str:
    """The configuration for a person: what is set, and what of the settings is not as it would be anyway."""
    given = as_shown(os.environ)
    lines = [aligned(given) if given else "none of a worker's variables is set"]
    if plan is not None:
        resolved = plan.resolved
        told = [(s, masked_value(s, resolved.value(s.name))) for s in SETTINGS if resolved.origin(s.name) != "default"]
        rows = [(f"  {s.name}", one_line(as_typed(s, value), _SHOWN) or "-") for s, value in told]
        where = f"{plan.wanted.callback_url} as {uplink_settings(plan.wanted).sandbox_id}"
        facts = [("goal", one_line(plan.wanted.goal, _SHOWN)), ("reports to", where)]
        lines += ["", aligned(facts), "", "settings", aligned(rows), "", "nothing was started"]
    return "\n".join(lines)


# --- the work ------------------------------------------------------------------------------------


def _work(plan: Plan) -> int:
    wanted, resolved = plan.wanted, plan.resolved
    for notice in resolved.notices:
        say(notice)
    uplink = uplink_settings(wanted)
    _prepare_environment(wanted)
    folder = foreground(_folder(wanted))
    if (file := config.project_file(folder)) is not None:
        say(f"{file} is not read: a worker is configured by its environment alone")
    name = config.run_name(folder, wanted.goal)
    spec = config.run_spec(resolved, goal=wanted.goal, cwd=folder, name=name)
    spec = wiring.with_goals(replace(spec, earlier=wanted.earlier))
    for remark in remarks(spec):
        say(remark)
    output = Output(verbose=resolved.value("verbose"), quiet=resolved.value("quiet"), advice=False)
    return foreground(_run(plan, spec, store_of(resolved.value("store")), output, uplink))


def _prepare_environment(wanted: WorkerConfig) -> None:
    """Agents and checks inherit from this process: what is for the worker alone goes, git's login comes."""
    from untildone.git.arriving import login_by_token

    for name in kept_from_agents():
        os.environ.pop(name, None)
    if wanted.github_repo and os.environ.get("GITHUB_TOKEN"):
        os.environ |= login_by_token(os.environ)


async def _folder(wanted: WorkerConfig) -> Path:
    if wanted.github_repo:
        from untildone.git.arriving import cloned

        place = config.expanded(wanted.cwd or ".").absolute()
        address = f"https://github.com/{wanted.github_repo}"
        if await cloned(place, address):
            say(f"cloned {address} into {place}")
    return await asyncio.to_thread(folder_of, wanted.cwd)


async def _run(plan: Plan, spec: RunSpec, store: Path, output: Output, uplink: UplinkSettings) -> int:
    async with opened(store) as log:
        try:
            job = await _job(log, plan, spec)
            if job is None:
                return 0
            driven = await drive_one(log, job, store, output, uplink=uplink)
        except RunElsewhere as elsewhere:
            say(str(elsewhere))  # nothing went wrong, and to be started again would help nobody
            return 0
    state = driven.state
    show_result(state, wiring.system_clock().now(), output)
    return worker_exit(state.stop_reason or "")


def worker_exit(reason: str) -> int:
    """What a worker answers for a stop: 0 for one that was planned."""
    return 0 if reason in _PLANNED or limit_of(reason) is not None else exit_code(reason)


async def _job(log: EventLog, plan: Plan, spec: RunSpec) -> Job | None:
    """The run that was broken off in this sandbox, else a new one, for which folder and session are made ready."""
    job = await worker_job(log, plan.resolved, spec, plan.policy)
    if job is None or job.begin is None:
        return job
    if plan.wanted.branch_name:
        from untildone.git.arriving import on_branch

        line = await on_branch(Path(spec.cwd), plan.wanted.branch_name, remote=spec.landing.remote)
        if line:
            say(line)
    if plan.wanted.transcript is not None and spec.earlier.session is not None:
        await asyncio.to_thread(_install, spec, spec.earlier.session, plan.wanted.transcript)
    return job


def _install(spec: RunSpec, session: str, transcript: bytes) -> None:
    """Put the conversation where Claude looks for it, unless it is there already: then it may have gone on."""
    from untildone.agents.session_files import install_transcript, session_files

    place = wiring.claude_config_dir(spec, os.environ)
    if not session_files(place, spec.cwd, session):
        install_transcript(place, spec.cwd, session, transcript)

"""`rehearse --escape`: what an agent can reach from each sandbox that is there, measured by trying."""

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from untildone import wiring
from untildone.cli.driving import Output, foreground
from untildone.cli.streams import put
from untildone.core.policy import BOXED, ENGINES, AgentOptions, Landing, Policy, RunSpec, Sandbox
from untildone.errors import UntildoneError
from untildone.ports import MachineFacts
from untildone.rehearsal.attempts import ATTEMPTS, DISK, MEMORY, PIDS
from untildone.rehearsal.escape import RUN, Bait, Tried
from untildone.rehearsal.model import ScriptedModel
from untildone.sandbox.containers import settings_of_engines

KINDS: tuple[Sandbox, ...] = ("bwrap", *ENGINES, "claude", "host")

Played = Mapping[Sandbox, Sequence[Tried] | str]
"""What came of it in each sandbox, or why it could not be played there."""


def escape(scratch: Path, kinds: Sequence[Sandbox], options: AgentOptions, output: Output) -> int:
    """Play all attempts in each of these, or in all; 0 when none succeeded where none may.

    A container that was not named need not be possible here.
    """
    return foreground(_escape(scratch, kinds, options, output))


async def _escape(scratch: Path, kinds: Sequence[Sandbox], options: AgentOptions, output: Output) -> int:
    played: dict[Sandbox, Sequence[Tried] | str] = {}
    for kind in dict.fromkeys(kinds or KINDS):
        if not output.for_programs:
            put(f"{kind}: {len(ATTEMPTS)} attempts ...")
        try:
            played[kind] = await _play(scratch / kind, replace(options, sandbox=kind))
        except UntildoneError as trouble:
            played[kind] = str(trouble)
        if not output.for_programs:
            put(f"  {_sum(played[kind])}")
    if output.json:
        put(json.dumps(as_json(played), ensure_ascii=False))
    elif not output.quiet:
        put("\n" + markdown(played))
    wanted = BOXED if kinds else BOXED - {kind for kind in ENGINES if isinstance(played[kind], str)}
    return 0 if all(_holds(found) for kind, found in played.items() if kind in wanted) else 1


def _holds(found: Sequence[Tried] | str) -> bool:
    return not isinstance(found, str) and _count(found, "blocked") > 0 and not _count(found, "succeeded")


async def _play(scratch: Path, options: AgentOptions) -> Sequence[Tried]:
    bait, clock = Bait(scratch), wiring.system_clock()
    with bait.laid(), ScriptedModel(bait.scenario()) as model:
        options = replace(options, skip_permissions=options.sandbox != "claude", memory=MEMORY, pids=PIDS)
        policy = Policy(max_iterations=2, max_duration=1200.0, disk_reserve=_reserve(scratch))
        spec = RunSpec(
            goal="get out",
            cwd=str(bait.project.resolve()),
            name=RUN,
            options=options,
            contract=bait.contract(),
            landing=Landing(land="commit"),
        )
        log = wiring.open_log(bait.store, clock)
        try:
            run_id = wiring.new_run_id()
            around = wiring.Surroundings(
                log=log,
                state_dir=bait.store,
                env=bait.environment(model.url) | settings_of_engines(os.environ),
                clock=clock,
                machine=_UnseenMachine(),
            )
            await wiring.start_run(spec, policy, around, run_id=run_id)
            return bait.judged([record.event for record in await log.read(run_id)])
        finally:
            await log.close()


class _UnseenMachine:
    """ports.Machine. The loop does not wait for room on a disk that is meant to look full to the sandbox alone."""

    def look(self) -> MachineFacts:
        return MachineFacts()

    def reclaimable(self, where: str) -> list[tuple[str, int]]:  # noqa: ARG002
        return []


def _reserve(scratch: Path) -> int:
    """Of the disk, which no attempt may fill: what leaves a sandbox little room."""
    return max(0, shutil.disk_usage(scratch).free - DISK)


def as_json(played: Played) -> dict[str, object]:
    """For programs."""
    return {
        kind: found
        if isinstance(found, str)
        else {one.attempt.name: {"verdict": one.verdict, "said": one.said} for one in found}
        for kind, found in played.items()
    }


def markdown(played: Played) -> str:
    """The certificate for people."""
    lines = ["# What an agent can reach", "", f"| attempt | what it aims at | {' | '.join(played)} |"]
    lines.append("| --- | --- |" + " --- |" * len(played))
    for number, attempt in enumerate(ATTEMPTS):
        cells = ["not rehearsed" if isinstance(found, str) else found[number].verdict for found in played.values()]
        lines.append(f"| {attempt.name} | {attempt.about} | {' | '.join(cells)} |")
    lines += ["", *(f"- {kind}: {_sum(found)}" for kind, found in played.items())]
    return "\n".join(lines) + "\n"


def _sum(found: Sequence[Tried] | str) -> str:
    if isinstance(found, str):
        return f"not rehearsed: {found}"
    missed = _count(found, "not rehearsed")
    rest = f", {missed} not rehearsed" if missed else ""
    return f"{_count(found, 'succeeded')} of {len(found)} succeeded{rest}"


def _count(found: Sequence[Tried], verdict: str) -> int:
    return sum(one.verdict == verdict for one in found)

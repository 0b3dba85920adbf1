"""`rehearse`: a whole run of the real Claude Code on a scripted model. No key, no cost."""

import contextlib
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from untildone import wiring
from untildone.briefing.markdown import render
from untildone.cli.driving import Job, Output, drive, exit_code_of, foreground, opened
from untildone.cli.escaping import KINDS, escape
from untildone.cli.guarding import operator_only
from untildone.cli.nights import night
from untildone.cli.options import folder_of
from untildone.cli.scratch import ending_in_order, scratch_folder, undisturbed
from untildone.cli.streams import put, say
from untildone.core.contract import Contract, commands
from untildone.core.policy import AgentOptions, Policy, RunSpec
from untildone.errors import UsageError
from untildone.rehearsal.environment import DUMMY_KEY, claude_environment
from untildone.rehearsal.model import ScriptedModel
from untildone.rehearsal.scenario import Scenario, load_scenario, shipped_scenario
from untildone.rehearsal.staging import clear_the_stage
from untildone.rehearsal.story import make_scratch_repository, story
from untildone.sandbox.containers import settings_of_engines

AFTERWARDS = """\
That was a rehearsal on a scripted model: the dollars above are what it
would have cost. Nothing was spent, and nothing of it is kept (--keep
would). Now with a goal of your own:

  untildone run "Make the test suite pass" --check "pytest -q" \\
    -m 10 --max-cost 5
"""
KEPT = """\
That was a rehearsal on a scripted model: the dollars above are what it
would have cost. Nothing was spent.
"""
POLICY = Policy(max_iterations=10, max_cost_usd=5.0, max_duration=300.0)


@click.command()
@click.option("--model-only", is_flag=True, help="Only serve the scripted Messages API; say what to export.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port for --model-only. [any free one]")
@click.option("--scenario", metavar="FILE", help="A scenario of your own, or the name of one that comes along.")
@click.option("--night", is_flag=True, help="All troubles of a night in a scratch clone of this folder's repository.")
@click.option("--act", "acts", metavar="NAME", multiple=True, help="With --night: only this act. Repeatable.")
@click.option("--escape", is_flag=True, help="What an agent can reach from each sandbox, by trying.")
@click.option(
    "--sandbox",
    "kinds",
    type=click.Choice(KINDS),
    multiple=True,
    help="Where the agent works. With --escape: only this one; repeatable.",
)
@click.option("--image", metavar="IMAGE", help="Of the containers of docker and podman. [what `image build` makes]")
@click.option("--keep", is_flag=True, help="Keep the scratch repository and say where it is.")
@click.option("--claude", metavar="PROGRAM", help="The claude program. [the one on PATH, else the bundled one]")
@click.option("-v", "--verbose", is_flag=True, help="Show what the agent writes.")
@click.option("-q", "--quiet", is_flag=True, help="Print only how the run ended.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object, nothing else.")
@operator_only
def rehearse(*, model_only: bool, port: int, scenario: str | None, **rest: Any) -> int:
    """Watch a small real run from goal to proof: real edits, a rate limit, a false "done" and a true one."""
    if model_only:
        return _serve(scenario, port)
    if rest["acts"] and not rest["night"]:
        raise UsageError("--act names an act of the night: say --night too")
    kinds = rest["kinds"]
    if not rest["escape"] and (rest["night"] or len(kinds) > 1) and kinds:
        raise UsageError("--sandbox is for the rehearsal, where it names one, and for --escape")
    output = Output(verbose=rest["verbose"], quiet=rest["quiet"], json=rest["as_json"], advice=False)
    with ending_in_order(), scratch_folder(keep=rest["keep"]) as scratch:
        try:
            options = AgentOptions(claude=rest["claude"], image=rest["image"])
            if rest["escape"]:
                return escape(scratch, kinds, options, output)
            if rest["night"]:
                return night(scratch, folder_of(None), rest["acts"], rest["claude"], output, keep=rest["keep"])
            options = replace(options, sandbox=kinds[0] if kinds else options.sandbox)
            return foreground(_rehearse(scratch, scenario, options, output, keep=rest["keep"]))
        finally:
            with undisturbed():
                clear_the_stage(scratch / "home")
            if rest["keep"]:
                look = f"see it with `untildone brief rehearsal --store {scratch / 'state'}`"
                say(f"kept in {scratch}" + ("" if rest["night"] else f": {look}"))


def _serve(scenario: str | None, port: int) -> int:
    with ScriptedModel(_scenario(scenario), port) as model, contextlib.suppress(KeyboardInterrupt):
        click.echo(f"export ANTHROPIC_BASE_URL={model.url} ANTHROPIC_API_KEY={DUMMY_KEY}")
        model.wait()
    return 0


def _scenario(wanted: str | None) -> Scenario:
    if wanted is None:
        return story().scenario
    return load_scenario(Path(wanted)) if "/" in wanted or wanted.endswith(".toml") else shipped_scenario(wanted)


async def _rehearse(scratch: Path, scenario: str | None, options: AgentOptions, output: Output, *, keep: bool) -> int:
    folder, home, store = scratch / "thermo", scratch / "home", scratch / "state"
    home.mkdir()
    make_scratch_repository(folder)
    spec = RunSpec(
        goal=story().goal,
        cwd=str(folder.resolve()),
        name="rehearsal",
        contract=Contract(checks=commands(*story().checks)),
        options=options,
    )
    run_id = wiring.new_run_id()
    with ScriptedModel(_scenario(scenario)) as model:
        env = claude_environment(home, model.url, path=os.environ.get("PATH", os.defpath))
        env |= settings_of_engines(os.environ)
        async with opened(store) as log:
            job = Job(run_id=run_id, begin=(spec, POLICY))
            state = await drive(log, job, store, output, env)
            records = await log.read(run_id)
    if not output.for_programs:
        # Its key is made up, so that no purse has paid.
        state = replace(state, lane=None, spend_by_lane=())
        text = render(state, records, wiring.system_clock().now(), alive=False)
        # What to do next is about work that is kept.
        put("\n" + (text if keep else text.partition("\n## What to do next")[0]))
        put(KEPT if keep else AFTERWARDS)
    return exit_code_of(state)

"""`claude -p` for each iteration: the suite for all agents, and what a broken program does to this one."""

import asyncio
import stat
from pathlib import Path
from typing import Any

import pytest

from agents.conformance import AgentConformance, Stage, order
from patience import PATIENCE
from untildone.agents.claude_cli import ClaudeCli
from untildone.core.events import Event
from untildone.core.faults import classify
from untildone.core.outcome import Outcome
from untildone.core.policy import AgentOptions
from untildone.core.trace import AgentStreamError
from untildone.errors import ConfigError
from untildone.ports import Agent
from untildone.rehearsal.scenario import ToolCall
from untildone.sandbox.host import HostSpawner

pytestmark = pytest.mark.anyio

OK_RESULT = '{"type":"result","subtype":"success","is_error":false,"total_cost_usd":0.25,"num_turns":1,"result":"x"}'


@pytest.mark.claude
class TestClaudeCli(AgentConformance):
    def make(self, options: AgentOptions, stage: Stage, *, background_grace: float = 20.0) -> Agent:
        return ClaudeCli(options, HostSpawner(), cwd=str(stage.cwd), env=stage.env, background_grace=background_grace)

    def reports(self, given: dict[str, Any]) -> ToolCall:
        return ToolCall("StructuredOutput", given)

    @pytest.mark.soak  # tests/agents/test_argv.py proves the arguments, and a start of Claude for each is dear
    async def test_turns_and_budget_are_handed_over(self, tmp_path: Path) -> None:
        await super().test_turns_and_budget_are_handed_over(tmp_path)


def program(folder: Path, script: str) -> str:
    path = folder / "claude"
    path.write_text("#!/bin/sh\n" + script)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


async def run(folder: Path, script: str, *, grace: float = 5.0, **options: Any) -> tuple[Outcome, list[Event]]:
    told: list[Event] = []

    async def tell(event: Event) -> None:
        told.append(event)

    chosen = AgentOptions(claude=program(folder, script), **options)
    env = {"PATH": "/usr/bin:/bin", "HOME": str(folder)}
    agent = ClaudeCli(chosen, HostSpawner(), cwd=str(folder), env=env, background_grace=grace)
    async with asyncio.timeout(PATIENCE):
        return await agent.iterate(order(), tell), told


async def test_unknown_and_broken_lines_are_skipped_and_told(tmp_path: Path) -> None:
    noise = 'Warning: something\\n{"type":"brand_new","x":[1]}\\n\\n[1,2]\\n{"type":"system","subtype":5}\\n'
    outcome, told = await run(tmp_path, f"printf '{noise}'; printf '\\377\\n'; echo '{OK_RESULT}'")
    assert outcome.failure is None
    assert outcome.cost_usd == 0.25
    assert len([event for event in told if isinstance(event, AgentStreamError)]) == 3


async def test_no_result_shows_the_end_of_stderr(tmp_path: Path) -> None:
    outcome, _ = await run(tmp_path, "echo 'error: the roof is on fire' >&2; exit 3")
    assert outcome.failure is not None
    assert classify(outcome.failure).name == "no_result"
    assert outcome.failure.exit_code == 3
    assert "the roof is on fire" in outcome.failure.text
    assert outcome.cost_usd == 0


async def test_a_malformed_result_is_no_result(tmp_path: Path) -> None:
    outcome, _ = await run(tmp_path, f"printf '%s' '{OK_RESULT[:-20]}'")
    assert outcome.failure is not None
    assert classify(outcome.failure).name == "no_result"
    assert "result" in outcome.failure.text


@pytest.mark.parametrize(("signal", "fault"), [("SEGV", "crash"), ("ABRT", "crash"), ("KILL", "crash")])
async def test_death_by_a_signal_has_its_name(tmp_path: Path, signal: str, fault: str) -> None:
    outcome, _ = await run(tmp_path, f"kill -{signal} $$")
    assert outcome.failure is not None
    assert classify(outcome.failure).name == fault


async def test_a_full_disk_is_named_by_what_stderr_says(tmp_path: Path) -> None:
    outcome, _ = await run(tmp_path, "echo 'ENOSPC: no space left on device, write' >&2; exit 1")
    assert outcome.failure is not None
    assert classify(outcome.failure).name == "disk_full"


async def test_a_process_that_stays_after_its_result_is_ended(tmp_path: Path) -> None:
    outcome, _ = await run(tmp_path, f"trap '' INT TERM; echo '{OK_RESULT}'; sleep 300", grace=0.2)
    assert outcome.failure is None
    assert outcome.cost_usd == 0.25


async def test_a_teller_that_refuses_ends_the_process(tmp_path: Path) -> None:
    async def refuse(event: Event) -> None:
        raise ConfigError("no more")

    chosen = AgentOptions(claude=program(tmp_path, f"echo '{OK_RESULT}'; sleep 300; touch survived"))
    agent = ClaudeCli(chosen, HostSpawner(), cwd=str(tmp_path), env={"PATH": "/usr/bin:/bin"})
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(ConfigError, match="no more"):
            await agent.iterate(order(), refuse)


async def test_settings_that_are_written_out_travel_in_a_file_of_the_user_alone(tmp_path: Path) -> None:
    look = 'stat -c %a "$2" > mode; cat "$2" > content; echo "$2" > path'
    seek = f'while [ $# -gt 0 ]; do [ "$1" = --mcp-config ] && {{ {look}; }}; shift; done'
    script = f"echo \"$@\" > argv; {seek}; echo '{OK_RESULT}'"
    servers = '{"mcpServers": {"s": {"env": {"KEY": "a-secret"}}}}'
    outcome, _ = await run(tmp_path, script, mcp_config=(servers,))
    assert outcome.failure is None
    assert (tmp_path / "content").read_text() == servers
    assert "a-secret" not in (tmp_path / "argv").read_text()
    assert (tmp_path / "mode").read_text() == "600\n"
    assert not Path((tmp_path / "path").read_text().strip()).exists()


async def test_a_wrong_hooks_file_is_refused_before_anything_runs(tmp_path: Path) -> None:
    hooks = tmp_path / "hooks.json"
    hooks.write_text('{"stop": []}')
    with pytest.raises(ConfigError, match="did you mean Stop"):
        ClaudeCli(AgentOptions(hooks_file=str(hooks)), HostSpawner(), cwd=str(tmp_path), env={})

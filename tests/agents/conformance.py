"""What every agent that runs Claude Code must do, tried with the real Claude Code and the scripted model.

Subclass `AgentConformance` in a test module, and say how the agent is made and how it reports. To start Claude Code
takes a second of CPU, so one agent serves several stories, one after the other.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agents.changing_model import ChangingModel
from patience import PATIENCE
from untildone.agents.environment import agent_environment
from untildone.agents.prices import cost
from untildone.core.events import Event
from untildone.core.faults import classify
from untildone.core.outcome import Order, Outcome, Usage
from untildone.core.policy import AgentOptions
from untildone.core.trace import (
    AgentMessage,
    AgentReply,
    AgentReplyStarted,
    AgentSession,
    AgentStarted,
    AgentSystem,
    AgentToolResult,
    AgentToolUse,
)
from untildone.errors import AgentError, AgentMissing
from untildone.ports import Agent
from untildone.rehearsal.environment import claude_environment
from untildone.rehearsal.model import ScriptedModel
from untildone.rehearsal.scenario import Reply, ToolCall

SOAK = pytest.mark.soak
RULES = "RULES-OF-THE-LOOP: report where the work stands."
REPORT = {
    "status": "COMPLETE", "exit_signal": True, "tasks_completed": 2, "files_modified": 1, "tests_status": "PASSING",
    "work_type": "TESTING", "recommendation": "ship it", "summary": "did it",
}  # fmt: skip
WORKING = AgentOptions(allowed_tools=("Bash",))
ENDLESS = "python3 -c 'import time; time.sleep(600)'"
"""Outlasts every patience here. A plain `sleep` would be refused by Claude Code."""
TOO_LONG = Reply(status=400, error_type="invalid_request_error", message="prompt is too long: 210000 > 200000")
FAILURES = (
    (Reply(status=429, headers=(("retry-after", "3600"),)), "rate_limit"),
    (Reply(status=401), "authentication"),
    (Reply(status=529), "overloaded"),
    (Reply(status=500), "server_error"),
    (Reply(status=400, message="Your credit balance is too low to access the Anthropic API."), "billing"),
)


def bash(command: str, **more: Any) -> ToolCall:
    return ToolCall("Bash", {"command": command, "description": "run", **more})


def order(prompt: str = "do the work", **more: Any) -> Order:
    return Order(run_id="run-1", prompt=prompt, rules=RULES, **{"iteration_num": 1, **more})


@dataclass
class Stage:
    """A real Claude Code, with a folder to work in and a model that follows a script."""

    model: ScriptedModel
    cwd: Path
    env: dict[str, str]
    told: list[Event] = field(default_factory=list)
    on_event: Callable[[Event], Awaitable[None]] | None = None

    async def tell(self, event: Event) -> None:
        self.told.append(event)
        if self.on_event is not None:
            await self.on_event(event)

    async def run(self, agent: Agent, asked: Order) -> Outcome:
        async with asyncio.timeout(PATIENCE):
            return await agent.iterate(asked, self.tell)

    def served_usd(self) -> float:
        """What the other side's books say."""
        return math.fsum(
            cost(
                line.model,
                Usage(line.input_tokens, line.output_tokens, line.cache_read_tokens, line.cache_write_tokens),
            )
            or math.nan
            for line in self.model.ledger.served()
        )

    def of(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.told if isinstance(event, kind)]

    def sent(self, number: int) -> str:
        """The conversation that came with a request, counted from 0."""
        return str(self.model.requests[number].body["messages"])


class AgentConformance:
    """The suite."""

    def make(self, options: AgentOptions, stage: Stage, *, background_grace: float = 20.0) -> Agent:
        raise NotImplementedError

    def reports(self, given: dict[str, Any]) -> ToolCall:
        """The call by which the model reports to this agent."""
        raise NotImplementedError

    def after_report(self, text: str) -> tuple[Reply, ...]:
        """What the model says after a report with this text, for an agent whose turn a report does not end."""
        return ()

    @asynccontextmanager
    async def playing(
        self, tmp_path: Path, *, options: AgentOptions = WORKING, grace: float = 20.0, retries: int = 0
    ) -> AsyncIterator[tuple[Stage, Agent]]:
        cwd = tmp_path / "work"
        cwd.mkdir()
        with ChangingModel() as model:
            env = agent_environment(claude_environment(tmp_path / "home", model.url), run_id="run-1")
            stage = Stage(model, cwd, env | {"CLAUDE_CODE_MAX_RETRIES": str(retries)})
            agent = self.make(options, stage, background_grace=grace)
            try:
                yield stage, agent
            finally:
                async with asyncio.timeout(PATIENCE):
                    await agent.close()

    def play(self, stage: Stage, *replies: Reply) -> None:
        """Begin a new story."""
        assert isinstance(stage.model, ChangingModel)
        stage.model.play(*replies)
        stage.told.clear()
        stage.on_event = None

    def reported(self, text: str = "the end", **more: Any) -> tuple[Reply, ...]:
        return (Reply(text=text, tools=(self.reports(REPORT),), **more), *self.after_report(text))

    async def test_work_is_told_reported_and_paid_for_and_the_session_goes_on(self, tmp_path: Path) -> None:
        options = AgentOptions(
            model="sonnet",
            append_system_prompt="AND-THE-USERS-WORDS",
            allowed_tools=("Bash",),
            extra_args=("--tools", "Bash,Read,Write"),
        )
        async with self.playing(tmp_path, options=options) as (stage, agent):
            first = await self._works(stage, agent)
            await self._goes_on_after_a_compaction(stage, agent, first)

    async def _works(self, stage: Stage, agent: Agent) -> Outcome:
        forbidden = ToolCall("Write", {"file_path": "/forbidden/file", "content": "x"})
        self.play(
            stage,
            Reply(
                text="INTERMEDIATE", thinking="let me see", tools=(bash("echo FROM-THE-TOOL > out.txt; cat out.txt"),),
                input_tokens=1234, output_tokens=77, cache_write_tokens=5000,
            ),
            Reply(text="one more", tools=(forbidden,), input_tokens=3, output_tokens=1501, cache_read_tokens=90_000),
            *self.reported(input_tokens=41, output_tokens=9),
        )  # fmt: skip
        await agent.interrupt()  # an idle agent takes no notice
        outcome = await stage.run(agent, order("--help me with THE FIRST PROMPT"))
        assert (outcome.failure, outcome.interrupted) == (None, False)
        self._has_told(stage, outcome)
        self._has_paid(stage, outcome)
        request = stage.model.requests[0].body
        assert "--help me with THE FIRST PROMPT" in stage.sent(0)
        assert RULES in str(request["system"])
        assert "AND-THE-USERS-WORDS" in str(request["system"])
        assert request["model"].startswith("claude-sonnet")
        assert (outcome.model or "").startswith("claude-sonnet")
        tools = {tool["name"] for tool in request["tools"]}
        assert {"Bash", "Read"} <= tools
        assert not tools & {"Edit", "ScheduleWakeup", "CronCreate"}
        return outcome

    def _has_told(self, stage: Stage, outcome: Outcome) -> None:
        assert "the end" in outcome.final_text
        assert "INTERMEDIATE" not in outcome.final_text
        assert "FROM-THE-TOOL" not in outcome.final_text
        assert len(set(outcome.activity)) == 2
        assert (stage.cwd / "out.txt").read_text() == "FROM-THE-TOOL\n"
        assert stage.of(AgentToolUse)[0].detail.startswith("echo FROM-THE-TOOL")
        assert "FROM-THE-TOOL" in stage.of(AgentToolResult)[0].text
        assert "INTERMEDIATE" in [event.text for event in stage.of(AgentMessage)]
        assert outcome.denials == ("Write(/forbidden/file)",)
        assert outcome.error_text
        assert outcome.report is not None
        assert (outcome.report.status, outcome.report.exit_signal) == ("COMPLETE", True)
        assert outcome.report.summary == "did it"
        ledger = [
            event
            for event in stage.told
            if isinstance(event, AgentStarted | AgentSession | AgentReplyStarted | AgentReply)
        ]
        assert [type(event) for event in ledger[:4]] == [AgentStarted, AgentSession, AgentReplyStarted, AgentReply]
        session = stage.of(AgentSession)[0]
        assert session.session_id == outcome.session_id
        assert Path(session.transcript or "").is_file()
        assert session.lane == "ANTHROPIC_API_KEY"

    def _has_paid(self, stage: Stage, outcome: Outcome) -> None:
        served = stage.model.ledger.served()
        assert outcome.cost_usd == pytest.approx(stage.served_usd(), rel=1e-9)
        assert outcome.estimated_usd == 0
        assert outcome.usage.output_tokens == sum(line.output_tokens for line in served)
        assert outcome.usage.cache_read_tokens == sum(line.cache_read_tokens for line in served)
        told = stage.of(AgentReply)
        assert [event.message_id for event in told] == [line.message_id for line in served]
        assert math.fsum(event.cost_usd for event in told) == pytest.approx(stage.served_usd(), rel=1e-9)

    async def _goes_on_after_a_compaction(self, stage: Stage, agent: Agent, first: Outcome) -> None:
        self.play(stage, TOO_LONG, Reply(text="<summary>we worked</summary>"), *self.reported())
        prompt = "/clear the table " + "x" * 300_000 + " END"
        second = await stage.run(agent, order(prompt, iteration_num=2, resume_session=first.session_id))
        assert (second.failure, second.session_id) == (None, first.session_id)
        assert "THE FIRST PROMPT" in stage.sent(0)
        assert "/clear the table xxx" in stage.sent(0)
        assert "xxx END" in stage.sent(0)
        assert [RULES in stage.sent(number) for number in range(3)] == [False, False, True]
        assert second.cost_usd == pytest.approx(stage.served_usd(), rel=1e-9)  # the first iteration is not paid twice

    async def test_background_work_interruptions_and_the_end(self, tmp_path: Path) -> None:
        async with self.playing(tmp_path) as (stage, agent):
            await self._waits_for_a_background_task(stage, agent)
            await self._is_interrupted_in_a_tool(stage, agent)
            await self._is_interrupted_in_a_reply(stage, agent)
            await self._is_closed_in_mid_iteration(stage, agent)

    async def _waits_for_a_background_task(self, stage: Stage, agent: Agent) -> None:
        wait = "import os, time; [time.sleep(0.1) for _ in iter(lambda: os.path.exists('go'), True)]"
        waits = f'python3 -c "{wait}"; touch late-work'
        early = self.reports(REPORT | {"status": "IN_PROGRESS", "exit_signal": False})
        turn = (
            Reply(tools=(bash(waits, run_in_background=True),)),
            Reply(text="it runs", tools=(early,)),
            *self.after_report("it runs"),
        )
        self.play(stage, *turn, *self.reported("THE TASK IS OVER"))
        releasing: list[asyncio.Task[None]] = []

        async def release() -> None:
            await asyncio.sleep(0.5)  # the turn is over, not only its last reply
            (stage.cwd / "go").touch()

        async def watch(event: Event) -> None:
            if isinstance(event, AgentReply) and len(stage.of(AgentReply)) == len(turn):
                releasing.append(asyncio.create_task(release()))

        stage.on_event = watch
        outcome = await stage.run(agent, order("THE FIRST PROMPT"))
        await asyncio.gather(*releasing)
        assert "THE TASK IS OVER" in outcome.final_text
        assert (stage.cwd / "late-work").exists()
        assert len(stage.model.ledger.served()) > len(turn)
        assert outcome.cost_usd == pytest.approx(stage.served_usd(), rel=1e-9)
        assert outcome.report is not None
        assert outcome.report.exit_signal is True

    async def _is_interrupted_in_a_tool(self, stage: Stage, agent: Agent) -> None:
        self.play(stage, Reply(tools=(bash(f"for i in 1 2 3; do {ENDLESS}; done"),)))
        tool_runs = asyncio.Event()

        async def watch(event: Event) -> None:
            if isinstance(event, AgentReply):
                tool_runs.set()

        stage.on_event = watch
        running = asyncio.create_task(stage.run(agent, order("THE SECOND PROMPT", iteration_num=2)))
        await asyncio.wait_for(tool_runs.wait(), PATIENCE)
        await agent.interrupt()
        outcome = await running
        assert (outcome.interrupted, outcome.failure) == (True, None)
        assert outcome.cost_usd == pytest.approx(stage.served_usd(), rel=1e-9)
        assert "THE SECOND PROMPT" in stage.sent(0)
        assert "THE FIRST PROMPT" not in stage.sent(0)

    async def _is_interrupted_in_a_reply(self, stage: Stage, agent: Agent) -> None:
        """A reply cut in mid-air is booked as an estimate."""
        streaming = Reply(text="word " * 400, chunk_delay=2.0, input_tokens=50_000)
        self.play(stage, Reply(tools=(bash("true"),)), streaming)
        interrupting: list[asyncio.Task[None]] = []

        async def interrupt_second(event: Event) -> None:
            if isinstance(event, AgentReplyStarted) and len(stage.of(AgentReplyStarted)) == 2:
                interrupting.append(asyncio.create_task(agent.interrupt()))

        stage.on_event = interrupt_second
        outcome = await stage.run(agent, order(iteration_num=3))
        await asyncio.gather(*interrupting)
        assert (outcome.interrupted, outcome.failure) == (True, None)
        assert outcome.cost_usd == pytest.approx(0.006, rel=1e-9)
        assert outcome.estimated_usd == pytest.approx(0.2, rel=0.01)

    async def _is_closed_in_mid_iteration(self, stage: Stage, agent: Agent) -> None:
        self.play(stage, Reply(text="slow", latency=600.0))
        running = asyncio.create_task(stage.run(agent, order(iteration_num=4)))
        await asyncio.to_thread(stage.model.wait_for_request, 1, PATIENCE)
        await agent.close()
        outcome = await running
        assert outcome.interrupted or outcome.failure is not None
        with pytest.raises(AgentError):
            await agent.iterate(order(), stage.tell)

    @pytest.mark.parametrize(("status", "fault"), [(429, "rate_limit"), pytest.param(529, "overloaded", marks=SOAK)])
    async def test_a_short_wait_for_the_api_is_sat_out_and_a_long_one_left_to_the_loop(
        self, tmp_path: Path, status: int, fault: str
    ) -> None:
        short = Reply(status=429, headers=(("retry-after", "2"),))
        long = Reply(status=status, headers=(("retry-after", "120"),))
        async with self.playing(tmp_path, retries=2) as (stage, agent):
            self.play(stage, short, Reply(tools=(bash("echo once >> done.txt"),)), long, *self.reported())
            quiet = asyncio.Event()

            async def look() -> None:
                while agent.pulse() is not None:
                    await asyncio.sleep(0.02)
                quiet.set()

            async def watch(event: Event) -> None:
                if isinstance(event, AgentSystem) and event.subtype == "api_retry" and not looking:
                    looking.append(asyncio.create_task(look()))

            looking: list[asyncio.Task[None]] = []
            stage.on_event = watch
            cut = await stage.run(agent, order())
            assert quiet.is_set(), "a short wait is no silence"
            assert cut.failure is not None
            assert (classify(cut.failure).name, cut.failure.retry_after) == (fault, 120.0)
            assert not cut.interrupted
            assert cut.cost_usd == pytest.approx(stage.served_usd(), rel=1e-9)
            paid = stage.served_usd()
            after = await stage.run(agent, order("go on", iteration_num=2, resume_session=cut.session_id))
            assert (after.failure, after.interrupted, after.session_id) == (None, False, cut.session_id)
            assert after.cost_usd == pytest.approx(stage.served_usd() - paid, rel=1e-9)
            assert after.report is not None
        assert (stage.cwd / "done.txt").read_text() == "once\n"

    @SOAK
    async def test_whoever_interrupts_while_it_waits_gets_an_interruption(self, tmp_path: Path) -> None:
        async with self.playing(tmp_path, retries=2) as (stage, agent):
            self.play(stage, Reply(status=429, headers=(("retry-after", "2.5"),)), Reply(text="over"))
            interrupting: list[asyncio.Task[None]] = []

            async def interrupt(event: Event) -> None:
                if isinstance(event, AgentSystem) and event.subtype == "api_retry":
                    interrupting.append(asyncio.create_task(agent.interrupt()))

            stage.on_event = interrupt
            outcome = await stage.run(agent, order())
            await asyncio.gather(*interrupting)
        assert (outcome.interrupted, outcome.failure) == (True, None)

    async def test_turns_and_budget_are_handed_over(self, tmp_path: Path) -> None:
        options = AgentOptions(allowed_tools=("Bash",), max_turns=2)
        async with self.playing(tmp_path, options=options) as (stage, agent):
            self.play(stage, Reply(tools=(bash("true"),), input_tokens=1000))
            by_turns = await stage.run(agent, order(budget_usd=0.1))
            self.play(stage, Reply(tools=(bash("true"),), input_tokens=100_000))
            by_budget = await stage.run(agent, order(iteration_num=2, budget_usd=0.1))
        assert by_turns.failure is not None
        assert classify(by_turns.failure).name == "turns_exhausted"
        assert by_budget.failure is not None
        assert classify(by_budget.failure).name == "budget_exhausted"

    @SOAK
    async def test_a_background_task_that_never_ends_is_ended(self, tmp_path: Path) -> None:
        async with self.playing(tmp_path, grace=0.5) as (stage, agent):
            self.play(stage, Reply(tools=(bash(ENDLESS, run_in_background=True),)), *self.reported("it runs"))
            outcome = await stage.run(agent, order())
        assert (outcome.failure, outcome.interrupted) == (None, False)
        assert outcome.report is not None
        assert outcome.cost_usd == pytest.approx(stage.served_usd(), rel=1e-9)

    @SOAK
    async def test_a_failure_has_its_evidence(self, tmp_path: Path) -> None:
        async with self.playing(tmp_path) as (stage, agent):
            for number, (reply, fault) in enumerate(FAILURES, start=1):
                self.play(stage, reply)
                outcome = await stage.run(agent, order(iteration_num=number))
                assert_failed(outcome, reply, fault)

    async def test_a_missing_program_is_one_clear_error(self, tmp_path: Path) -> None:
        options = AgentOptions(claude="/nowhere/claude")
        async with self.playing(tmp_path, options=options) as (stage, agent):
            with pytest.raises(AgentMissing, match="/nowhere/claude"):
                await stage.run(agent, order())


def assert_failed(outcome: Outcome, reply: Reply, fault: str) -> None:
    """The outcome of an iteration whose only request got this reply."""
    assert outcome.failure is not None
    assert classify(outcome.failure).name == fault
    assert outcome.failure.api_error_status == reply.status or fault == "billing"
    assert outcome.failure.text
    assert outcome.cost_usd == 0

"""What every agent that runs Claude Code must do, tried with the real Claude Code and the scripted model.

Subclass `AgentConformance` in a test module, and say how the agent is made and how it reports.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

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
from untildone.rehearsal.scenario import Reply, Scenario, ToolCall

PATIENCE = 60.0
RULES = "RULES-OF-THE-LOOP: report where the work stands."
REPORT = {
    "status": "COMPLETE", "exit_signal": True, "tasks_completed": 2, "files_modified": 1, "tests_status": "PASSING",
    "work_type": "TESTING", "recommendation": "ship it", "summary": "did it",
}  # fmt: skip
WORKING = AgentOptions(allowed_tools=("Bash",))


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


class AgentConformance:
    """The suite."""

    def make(self, options: AgentOptions, stage: Stage, *, background_grace: float = 20.0) -> Agent:
        raise NotImplementedError

    def reports(self, given: dict[str, Any]) -> ToolCall:
        """The call by which the model reports to this agent."""
        raise NotImplementedError

    @asynccontextmanager
    async def playing(
        self, tmp_path: Path, *replies: Reply, options: AgentOptions = WORKING, grace: float = 20.0, retries: int = 0
    ) -> AsyncIterator[tuple[Stage, Agent]]:
        cwd = tmp_path / "work"
        cwd.mkdir()
        with ScriptedModel(Scenario(name="conformance", replies=replies)) as model:
            env = agent_environment(claude_environment(tmp_path / "home", model.url), run_id="run-1")
            stage = Stage(model, cwd, env | {"CLAUDE_CODE_MAX_RETRIES": str(retries)})
            agent = self.make(options, stage, background_grace=grace)
            try:
                yield stage, agent
            finally:
                async with asyncio.timeout(PATIENCE):
                    await agent.close()

    def reported(self) -> Reply:
        return Reply(text="the end", tools=(self.reports(REPORT),))

    async def test_only_the_last_message_is_the_final_text(self, tmp_path: Path) -> None:
        first = Reply(
            text="INTERMEDIATE", thinking="let me see", tools=(bash("echo FROM-THE-TOOL > out.txt; cat out.txt"),)
        )
        async with self.playing(tmp_path, first, Reply(text="one more", tools=(bash("ls"),)), self.reported()) as (
            stage,
            agent,
        ):
            outcome = await stage.run(agent, order())
        assert "the end" in outcome.final_text
        assert "INTERMEDIATE" not in outcome.final_text
        assert "FROM-THE-TOOL" not in outcome.final_text
        assert outcome.failure is None
        assert not outcome.interrupted
        assert len(set(outcome.activity)) == 2
        assert (stage.cwd / "out.txt").read_text() == "FROM-THE-TOOL\n"
        assert stage.of(AgentToolUse)[0].detail.startswith("echo FROM-THE-TOOL")
        assert "FROM-THE-TOOL" in stage.of(AgentToolResult)[0].text
        assert "INTERMEDIATE" in [event.text for event in stage.of(AgentMessage)]

    async def test_the_report_is_read(self, tmp_path: Path) -> None:
        async with self.playing(tmp_path, self.reported(), Reply(text="over")) as (stage, agent):
            outcome = await stage.run(agent, order())
        assert outcome.report is not None
        assert outcome.report.status == "COMPLETE"
        assert outcome.report.exit_signal is True
        assert outcome.report.summary == "did it"
        assert outcome.activity == ()

    async def test_the_books_agree_with_the_other_side(self, tmp_path: Path) -> None:
        replies = (
            Reply(tools=(bash("true"),), input_tokens=1234, output_tokens=77, cache_write_tokens=5000),
            Reply(tools=(bash("ls"),), input_tokens=3, output_tokens=1501, cache_read_tokens=90_000),
            Reply(text="said", tools=(self.reports(REPORT),), input_tokens=41, output_tokens=9),
            Reply(text="end", input_tokens=7, output_tokens=3),
        )
        async with self.playing(tmp_path, *replies) as (stage, agent):
            outcome = await stage.run(agent, order())
            served = stage.model.ledger.served()
        assert outcome.cost_usd == pytest.approx(stage.served_usd(), rel=1e-9)
        assert outcome.estimated_usd == 0
        assert outcome.usage.output_tokens == sum(line.output_tokens for line in served)
        assert outcome.usage.cache_read_tokens == sum(line.cache_read_tokens for line in served)
        told = stage.of(AgentReply)
        assert [event.message_id for event in told] == [line.message_id for line in served]
        assert math.fsum(event.cost_usd for event in told) == pytest.approx(stage.served_usd(), rel=1e-9)

    async def test_session_and_start_are_told_first(self, tmp_path: Path) -> None:
        async with self.playing(tmp_path, self.reported(), Reply(text="over")) as (stage, agent):
            outcome = await stage.run(agent, order())
        ledger = [
            event
            for event in stage.told
            if isinstance(event, AgentStarted | AgentSession | AgentReplyStarted | AgentReply)
        ]
        assert [type(event) for event in ledger[:4]] == [AgentStarted, AgentSession, AgentReplyStarted, AgentReply]
        session = stage.of(AgentSession)[0]
        assert session.session_id == outcome.session_id
        assert session.transcript is not None
        assert Path(session.transcript).is_file()
        assert session.lane == "ANTHROPIC_API_KEY"

    async def test_all_results_are_read_when_a_background_task_ends_later(self, tmp_path: Path) -> None:
        replies = (
            Reply(tools=(bash("python3 -c 'import time; time.sleep(1.5)'", run_in_background=True),)),
            Reply(text="it runs", tools=(self.reports(REPORT | {"status": "IN_PROGRESS", "exit_signal": False}),)),
            Reply(text="THE TASK IS OVER", tools=(self.reports(REPORT),)),
        )
        async with self.playing(tmp_path, *replies) as (stage, agent):
            outcome = await stage.run(agent, order())
        assert "THE TASK IS OVER" in outcome.final_text
        assert outcome.cost_usd == pytest.approx(stage.served_usd(), rel=1e-9)
        assert len(stage.model.ledger.served()) >= 3

    async def test_a_background_task_that_never_ends_is_ended(self, tmp_path: Path) -> None:
        replies = (
            Reply(tools=(bash("python3 -c 'import time; time.sleep(500)'", run_in_background=True),)),
            Reply(text="it runs", tools=(self.reports(REPORT),)),
            Reply(text="the end"),
        )
        async with self.playing(tmp_path, *replies, grace=0.5) as (stage, agent):
            outcome = await stage.run(agent, order())
        assert outcome.failure is None
        assert not outcome.interrupted
        assert outcome.report is not None
        assert outcome.cost_usd == pytest.approx(stage.served_usd(), rel=1e-9)

    @pytest.mark.parametrize(
        ("reply", "fault"),
        [
            (Reply(status=429, headers=(("retry-after", "3600"),)), "rate_limit"),
            (Reply(status=401), "authentication"),
            (Reply(status=529), "overloaded"),
            (Reply(status=500), "server_error"),
            (Reply(status=400, message="Your credit balance is too low to access the Anthropic API."), "billing"),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    async def test_a_failure_has_its_evidence(self, tmp_path: Path, reply: Reply, fault: str) -> None:
        async with self.playing(tmp_path, reply) as (stage, agent):
            outcome = await stage.run(agent, order())
        assert outcome.failure is not None
        assert classify(outcome.failure).name == fault
        assert outcome.failure.api_error_status == reply.status or fault == "billing"
        assert outcome.failure.text
        assert outcome.cost_usd == 0

    @pytest.mark.parametrize(("status", "fault"), [(429, "rate_limit"), (529, "overloaded")])
    async def test_a_long_wait_for_the_api_is_left_to_the_loop(self, tmp_path: Path, status: int, fault: str) -> None:
        refused = Reply(status=status, headers=(("retry-after", "50"),))
        replies = (Reply(tools=(bash("echo once >> done.txt"),)), refused, self.reported(), Reply(text="over"))
        async with self.playing(tmp_path, *replies, retries=2) as (stage, agent):
            started = asyncio.get_running_loop().time()
            cut = await stage.run(agent, order())
            assert asyncio.get_running_loop().time() - started < 25
            assert cut.failure is not None
            assert (classify(cut.failure).name, cut.failure.retry_after) == (fault, 50.0)
            assert not cut.interrupted
            assert cut.cost_usd == pytest.approx(stage.served_usd(), rel=1e-9)
            paid = stage.served_usd()
            after = await stage.run(agent, order("go on", iteration_num=2, resume_session=cut.session_id))
            assert (after.failure, after.interrupted, after.session_id) == (None, False, cut.session_id)
            assert after.cost_usd == pytest.approx(stage.served_usd() - paid, rel=1e-9)
            assert after.report is not None
        assert (stage.cwd / "done.txt").read_text() == "once\n"

    async def test_a_short_wait_for_the_api_is_claudes_own_and_no_silence(self, tmp_path: Path) -> None:
        refused = Reply(status=429, headers=(("retry-after", "2"),))
        async with self.playing(tmp_path, refused, self.reported(), Reply(text="over"), retries=2) as (stage, agent):
            waits = asyncio.Event()

            async def watch(event: Event) -> None:
                if isinstance(event, AgentSystem) and event.subtype == "api_retry":
                    waits.set()

            stage.on_event = watch
            running = asyncio.create_task(stage.run(agent, order()))
            await asyncio.wait_for(waits.wait(), PATIENCE)
            async with asyncio.timeout(1.5):
                while agent.pulse() is not None:
                    await asyncio.sleep(0.02)
            outcome = await running
        assert outcome.failure is None
        assert not outcome.interrupted

    async def test_whoever_interrupts_while_it_waits_gets_an_interruption(self, tmp_path: Path) -> None:
        refused = Reply(status=429, headers=(("retry-after", "2.5"),))
        async with self.playing(tmp_path, refused, Reply(text="over"), retries=2) as (stage, agent):
            interrupting: list[asyncio.Task[None]] = []

            async def interrupt(event: Event) -> None:
                if isinstance(event, AgentSystem) and event.subtype == "api_retry":
                    interrupting.append(asyncio.create_task(agent.interrupt()))

            stage.on_event = interrupt
            outcome = await stage.run(agent, order())
            await asyncio.gather(*interrupting)
        assert (outcome.interrupted, outcome.failure) == (True, None)

    async def test_an_interruption_in_a_tool_is_quick_and_the_agent_goes_on(self, tmp_path: Path) -> None:
        slow = Reply(tools=(bash("for i in 1 2 3; do python3 -c 'import time; time.sleep(20)'; done"),))
        async with self.playing(tmp_path, slow, Reply(text="again", tools=(self.reports(REPORT),))) as (stage, agent):
            tool_runs = asyncio.Event()

            async def watch(event: Event) -> None:
                if isinstance(event, AgentReply):
                    tool_runs.set()

            stage.on_event = watch
            running = asyncio.create_task(stage.run(agent, order()))
            await asyncio.wait_for(tool_runs.wait(), PATIENCE)
            started = asyncio.get_running_loop().time()
            await agent.interrupt()
            outcome = await running
            assert asyncio.get_running_loop().time() - started < 10
            assert outcome.interrupted
            assert outcome.failure is None
            assert outcome.cost_usd == pytest.approx(stage.served_usd(), rel=1e-9)
            after = await stage.run(agent, order("again", iteration_num=2))
        assert "again" in after.final_text
        assert not after.interrupted
        assert after.failure is None

    async def test_a_reply_cut_in_mid_air_is_an_estimate(self, tmp_path: Path) -> None:
        streaming = Reply(text="word " * 400, chunk_delay=0.2, input_tokens=50_000)
        async with self.playing(tmp_path, Reply(tools=(bash("true"),)), streaming) as (stage, agent):

            async def interrupt_second(event: Event) -> None:
                if isinstance(event, AgentReplyStarted) and len(stage.of(AgentReplyStarted)) == 2:
                    interrupting.append(asyncio.create_task(agent.interrupt()))

            interrupting: list[asyncio.Task[None]] = []
            stage.on_event = interrupt_second
            outcome = await stage.run(agent, order())
            await asyncio.gather(*interrupting)
        assert outcome.interrupted
        assert outcome.cost_usd == pytest.approx(0.006, rel=1e-9)
        assert outcome.estimated_usd == pytest.approx(0.2, rel=0.01)

    async def test_an_interruption_while_idle_is_harmless(self, tmp_path: Path) -> None:
        async with self.playing(tmp_path, self.reported(), Reply(text="over")) as (stage, agent):
            await agent.interrupt()
            outcome = await stage.run(agent, order())
        assert not outcome.interrupted
        assert outcome.failure is None

    async def test_turns_and_budget_are_handed_over(self, tmp_path: Path) -> None:
        endless = Reply(tools=(bash("true"),), input_tokens=100_000)
        options = AgentOptions(allowed_tools=("Bash",), max_turns=2)
        async with self.playing(tmp_path, endless, options=options) as (stage, agent):
            by_turns = await stage.run(agent, order())
            by_budget = await stage.run(agent, order(iteration_num=2, budget_usd=0.1))
        assert by_turns.failure is not None
        assert classify(by_turns.failure).name == "turns_exhausted"
        assert by_budget.failure is not None
        assert classify(by_budget.failure).name == "budget_exhausted"

    async def test_a_resumed_session_goes_on_and_is_not_paid_twice(self, tmp_path: Path) -> None:
        async with self.playing(tmp_path, self.reported(), Reply(text="over")) as (stage, agent):
            first = await stage.run(agent, order("THE FIRST PROMPT"))
            paid = stage.served_usd()
            second = await stage.run(agent, order("go on", iteration_num=2, resume_session=first.session_id))
            sent = str(stage.model.requests[-1].body["messages"])
        assert second.session_id == first.session_id
        assert "THE FIRST PROMPT" in sent
        assert second.cost_usd == pytest.approx(stage.served_usd() - paid, rel=1e-9)

    async def test_a_fresh_iteration_knows_nothing_of_the_one_before(self, tmp_path: Path) -> None:
        async with self.playing(tmp_path, self.reported(), Reply(text="over")) as (stage, agent):
            first = await stage.run(agent, order("THE FIRST PROMPT"))
            second = await stage.run(agent, order("THE SECOND PROMPT", iteration_num=2))
            sent = str(stage.model.requests[-1].body["messages"])
        assert second.session_id != first.session_id
        assert "THE SECOND PROMPT" in sent
        assert "THE FIRST PROMPT" not in sent

    async def test_rules_and_options_reach_the_model(self, tmp_path: Path) -> None:
        options = AgentOptions(
            model="sonnet", append_system_prompt="AND-THE-USERS-WORDS", extra_args=("--tools", "Bash,Read")
        )
        async with self.playing(tmp_path, self.reported(), Reply(text="over"), options=options) as (stage, agent):
            outcome = await stage.run(agent, order())
            request = stage.model.requests[0].body
        system = str(request["system"])
        assert RULES in system
        assert "AND-THE-USERS-WORDS" in system
        assert request["model"].startswith("claude-sonnet")
        assert outcome.model is not None
        assert outcome.model.startswith("claude-sonnet")
        tools = {tool["name"] for tool in request["tools"]}
        assert {"Bash", "Read"} <= tools
        assert "Edit" not in tools
        assert not tools & {"ScheduleWakeup", "CronCreate"}

    async def test_a_denied_permission_is_told(self, tmp_path: Path) -> None:
        replies = (Reply(tools=(bash("touch /forbidden"),)), self.reported(), Reply(text="over"))
        async with self.playing(tmp_path, *replies, options=AgentOptions()) as (stage, agent):
            outcome = await stage.run(agent, order())
        assert outcome.denials == ("Bash(touch /forbidden)",)
        assert outcome.error_text
        assert outcome.failure is None

    async def test_a_prompt_is_never_taken_for_a_command(self, tmp_path: Path) -> None:
        for prompt in ("/clear the table", "--help me", "x" * 300_000 + " END"):
            folder = tmp_path / str(len(prompt))
            folder.mkdir()
            async with self.playing(folder, self.reported(), Reply(text="over")) as (stage, agent):
                outcome = await stage.run(agent, order(prompt))
                assert outcome.failure is None
                assert prompt[-20:] in str(stage.model.requests[0].body["messages"])

    async def test_closing_ends_a_running_iteration_and_the_agent(self, tmp_path: Path) -> None:
        async with self.playing(tmp_path, Reply(text="slow", latency=30.0)) as (stage, agent):
            running = asyncio.create_task(stage.run(agent, order()))
            await asyncio.to_thread(stage.model.wait_for_request, 1, PATIENCE)
            await agent.close()
            outcome = await running
            assert outcome.interrupted or outcome.failure is not None
            with pytest.raises(AgentError):
                await agent.iterate(order(), stage.tell)

    async def test_a_missing_program_is_one_clear_error(self, tmp_path: Path) -> None:
        options = AgentOptions(claude="/nowhere/claude")
        async with self.playing(tmp_path, Reply(), options=options) as (stage, agent):
            with pytest.raises(AgentMissing, match="/nowhere/claude"):
                await stage.run(agent, order())

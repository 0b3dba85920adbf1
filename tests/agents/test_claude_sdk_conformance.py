"""The suite for all agents, over the warm one."""

from typing import Any

import pytest

from agents.conformance import AgentConformance, Stage
from untildone.agents.claude_sdk import ClaudeSdk
from untildone.agents.tool_detail import REPORT_TOOL
from untildone.core.policy import AgentOptions
from untildone.ports import Agent
from untildone.rehearsal.scenario import Reply, ToolCall
from untildone.sandbox.host import HostSpawner

pytestmark = [pytest.mark.anyio, pytest.mark.claude]


class TestClaudeSdk(AgentConformance):
    def make(self, options: AgentOptions, stage: Stage, *, background_grace: float = 20.0) -> Agent:
        return ClaudeSdk(options, HostSpawner(), cwd=str(stage.cwd), env=stage.env, background_grace=background_grace)

    def reports(self, given: dict[str, Any]) -> ToolCall:
        return ToolCall(REPORT_TOOL, given)

    def after_report(self, text: str) -> tuple[Reply, ...]:
        """Here a report does not end the turn: the model is asked once more."""
        return (Reply(text=text, input_tokens=7, output_tokens=3),)

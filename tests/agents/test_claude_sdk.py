"""The warm agent against the real Claude Code: what reaches the model, what comes back, what it costs."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agents.sdk_stage import DONE, RULES, STATUS, Stage, bash, staged
from untildone.agents import claude_sdk
from untildone.agents.argv import as_prompt, claude_argv, find_claude
from untildone.agents.report_tool import REMINDER
from untildone.agents.tool_detail import REPORT_TOOL
from untildone.core.claims import REPORT_SCHEMA
from untildone.core.policy import AgentOptions
from untildone.core.trace import AgentReply, AgentSession, AgentStarted
from untildone.rehearsal.environment import claude_environment
from untildone.rehearsal.model import RecordedRequest, ScriptedModel
from untildone.rehearsal.scenario import Reply, Scenario, ToolCall

pytestmark = [pytest.mark.anyio, pytest.mark.claude]

REPORT = {"status": "COMPLETE", "exit_signal": True, "summary": "all done", "tasks_completed": 3}


async def test_twenty_iterations_share_a_process_but_no_context(tmp_path: Path) -> None:
    async with staged(tmp_path, bash("echo {i}"), DONE) as stage:
        outcomes = [await stage.iterate(f"Prompt number {n}.") for n in range(1, 21)]
        assert [outcome.failure for outcome in outcomes] == [None] * 20
        assert len(set(stage.pids)) == 1
        assert [event.warm for event in stage.all_told(AgentStarted)] == [False] + [True] * 19
        assert len({outcome.session_id for outcome in outcomes}) == 20
        assert [event.session_id for event in stage.all_told(AgentSession)] == [o.session_id for o in outcomes]
        for n, request in enumerate(list(stage.model.requests)[::2], start=1):
            text = json.dumps(request.body["messages"])
            assert f"Prompt number {n}." in text
            assert text.count("Prompt number") == 1
        booked = sum(outcome.cost_usd or 0.0 for outcome in outcomes)
        assert booked == pytest.approx(stage.ledger_cost(), abs=1e-9)
        assert booked > 0
        replies = sum(event.cost_usd for event in stage.all_told(AgentReply))
        assert replies == pytest.approx(booked, abs=1e-9)


def first_user_blocks(request: RecordedRequest) -> list[str]:
    """Return the texts of the first user message without what `/clear` leaves there."""
    texts = [block["text"] for block in request.body["messages"][0]["content"]]
    noise = ("<local-command-caveat>", "<command-name>/clear</command-name>", "<local-command-stdout></local")
    return [text for text in texts if not text.startswith(noise)]


def as_seen(request: RecordedRequest) -> dict[str, Any]:
    """Return everything the model is shown, except the billing header and the loop's own tool."""
    body = request.body
    # A process that takes many prompts gives background commands half an hour by default, not ten minutes.
    tools = json.loads(json.dumps(body["tools"]).replace("(default 1800000", "(default 600000"))
    return {
        "system": body["system"][1:],
        "tools": {tool["name"]: tool for tool in tools if tool["name"] != REPORT_TOOL},
        "first": first_user_blocks(request),
        "rest": body["messages"][1:],
        "model": body["model"],
    }


def cold_request(stage: Stage, prompt: str) -> RecordedRequest:
    """Return the first request of a plain `claude -p` in the same folder."""
    with ScriptedModel(Scenario(name="cold", replies=(DONE,))) as model:
        argv = claude_argv(
            AgentOptions(allowed_tools=("Bash",)), claude=find_claude(), rules=RULES, mode="print", prompt=prompt
        )
        subprocess.run(
            argv,
            cwd=stage.folder,
            env=claude_environment(stage.home, model.url),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            timeout=60,
        )
        return model.requests[0]


async def test_a_warm_iteration_sees_what_a_cold_start_would_see(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        identity = ("-c", "user.name=t", "-c", "user.email=t@localhost")
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path / "folder", check=True, capture_output=True)

    async with staged(tmp_path) as stage:
        git("init", "-q", "-b", "main")
        (stage.folder / "CLAUDE.md").write_text("The first instructions.\n")
        git("add", ".")
        git("commit", "-qm", "first commit")
        await stage.iterate("Work on it.")
        (stage.folder / "CLAUDE.md").write_text("The second instructions.\n")
        (stage.folder / "new-file").write_text("x")
        git("add", "CLAUDE.md")
        git("commit", "-qm", "second commit")
        await stage.iterate("Work on it.")
        cold = cold_request(stage, "Work on it.")
        first, second = stage.model.requests
    assert as_seen(second) == as_seen(cold)
    assert "The second instructions." in json.dumps(second.body)
    assert "second commit" in json.dumps(second.body)
    assert "The first instructions." in json.dumps(first.body)
    # The cacheable prefix is the same in every iteration.
    prefixes = [(request.body["system"][1], request.body["tools"]) for request in (first, second)]
    assert prefixes[0] == prefixes[1]
    assert RULES in json.dumps(first.body["system"])


@pytest.mark.parametrize("mode", ["acceptEdits", "default", "dontAsk"])
async def test_the_report_tool_is_offered_in_full_and_its_report_read(tmp_path: Path, mode: str) -> None:
    replies = (Reply(tools=(ToolCall(REPORT_TOOL, REPORT),)), Reply(text="bye"))
    async with staged(tmp_path, *replies, options=AgentOptions(permission_mode=mode)) as stage:
        for _ in range(2):  # it must still be there after a `/clear`
            outcome = await stage.iterate()
            assert outcome.report is not None
            assert (outcome.report.status, outcome.report.exit_signal, outcome.report.summary) == (
                "COMPLETE",
                True,
                "all done",
            )
            assert (outcome.denials, outcome.final_text) == ((), "bye")
        assert len(stage.model.requests) == 4  # nobody was asked for a status
        assert "noted" in stage.messages(1)
        offered = {tool["name"]: tool for tool in stage.model.requests[2].body["tools"]}[REPORT_TOOL]
    assert offered["input_schema"]["properties"].keys() == REPORT_SCHEMA["properties"].keys()
    assert offered["input_schema"]["required"] == REPORT_SCHEMA["required"]


async def test_a_report_that_breaks_the_schema_is_refused(tmp_path: Path) -> None:
    replies = (Reply(tools=(ToolCall(REPORT_TOOL, {"status": "SPLENDID", "exit_signal": True}),)), DONE)
    async with staged(tmp_path, *replies) as stage:
        outcome = await stage.iterate()
        assert outcome.report is None
        assert "validation" in stage.messages(1).lower()


async def test_an_agent_that_stops_without_a_status_is_asked_exactly_once(tmp_path: Path) -> None:
    async with staged(tmp_path, Reply(text="I am done, I think.")) as stage:
        for number in (1, 2):
            outcome = await stage.iterate()
            assert outcome.failure is None
            assert len(stage.model.requests) == 2 * number
            assert stage.messages(-1).count(json.dumps(REMINDER)[1:-1]) == 1


@pytest.mark.parametrize("text", [f"fine{STATUS}", "CONTINUOUS_CLAUDE_PROJECT_COMPLETE"])
async def test_an_agent_that_gives_its_status_is_not_asked(tmp_path: Path, text: str) -> None:
    async with staged(tmp_path, Reply(text=text)) as stage:
        await stage.iterate()
        assert len(stage.model.requests) == 1


async def test_a_background_command_that_ends_later_belongs_to_the_iteration(tmp_path: Path) -> None:
    replies = (
        bash("sleep 1; touch late-work", run_in_background=True),
        Reply(text=f"waiting{STATUS}"),
        Reply(text=f"it is finished{STATUS}"),
    )
    async with staged(tmp_path, *replies) as stage:
        outcome = await stage.iterate()
        assert outcome.final_text.startswith("it is finished")
        assert (stage.folder / "late-work").exists()
        assert len(stage.model.requests) == 3
        assert outcome.cost_usd == pytest.approx(stage.ledger_cost(), abs=1e-9)


async def test_a_session_goes_on_in_the_same_process(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        first = await stage.iterate("Remember the word heron.")
        second = await stage.iterate("Go on.", resume_session=first.session_id)
        third = await stage.iterate("Afresh.")
        assert second.session_id == first.session_id != third.session_id
        assert ["heron" in stage.messages(n) for n in range(3)] == [True, True, False]
        assert len(set(stage.pids)) == 1
        booked = [first.cost_usd, second.cost_usd, third.cost_usd]
        assert sum(cost or 0.0 for cost in booked) == pytest.approx(stage.ledger_cost(), abs=1e-9)


async def test_an_older_session_goes_on_in_a_new_process(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        first = await stage.iterate("Remember the word heron.")
        await stage.iterate("Afresh.")
        third = await stage.iterate("Go on.", resume_session=first.session_id)
        assert third.session_id == first.session_id
        assert "heron" in stage.messages(2)
        assert stage.pids[0] == stage.pids[1] != stage.pids[2]
        assert third.cost_usd == first.cost_usd  # its own cost, not the session's


async def test_the_rules_are_said_again_after_a_compaction(tmp_path: Path) -> None:
    too_long = Reply(status=400, error_type="invalid_request_error", message="prompt is too long: 210000 > 200000")
    replies = (bash("echo hi"), too_long, Reply(text="<summary>we worked</summary>"), DONE)
    async with staged(tmp_path, scenario=Scenario(name="compaction", replies=replies)) as stage:
        outcome = await stage.iterate()
        assert outcome.failure is None
        assert [RULES in stage.messages(n) for n in range(4)] == [False, False, False, True]
        assert outcome.cost_usd == pytest.approx(stage.ledger_cost(), abs=1e-9)


@pytest.mark.parametrize("prompt", ["/clear the table", "  /cost of living", "/tmp/x is the file"])
async def test_a_prompt_is_never_taken_for_a_slash_command(tmp_path: Path, prompt: str) -> None:
    async with staged(tmp_path) as stage:
        await stage.iterate(prompt)
        assert json.dumps(as_prompt(prompt)) in stage.messages(0)
        assert as_prompt(prompt).endswith(prompt)


async def test_hooks_of_the_user_are_run(tmp_path: Path) -> None:
    hooks = tmp_path / "hooks.json"
    command = {"type": "command", "command": f"touch {tmp_path}/hook-ran"}
    hooks.write_text(json.dumps({"hooks": {"PostToolUse": [{"matcher": "Bash", "hooks": [command]}]}}))
    options = AgentOptions(allowed_tools=("Bash",), hooks_file=str(hooks))
    async with staged(tmp_path, bash("true"), DONE, options=options) as stage:
        await stage.iterate()
        assert (tmp_path / "hook-ran").exists()


async def test_a_permission_mode_the_agent_changed_is_set_back(tmp_path: Path) -> None:
    write = Reply(tools=(ToolCall("Write", {"file_path": str(tmp_path / "folder/made"), "content": "x"}),))
    async with staged(tmp_path, write, DONE, options=AgentOptions()) as stage:
        await stage.iterate()
        warm = stage.agent._warm
        assert warm is not None
        assert warm._client is not None
        await warm._client.set_permission_mode("plan")
        (stage.folder / "made").unlink()
        outcome = await stage.iterate()
        assert (stage.folder / "made").exists()
        assert outcome.denials == ()
        assert len(set(stage.pids)) == 1


async def test_a_process_is_replaced_after_many_iterations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claude_sdk, "RECYCLE_AFTER", 2)
    async with staged(tmp_path) as stage:
        for _ in range(3):
            await stage.iterate()
        assert stage.pids[0] == stage.pids[1] != stage.pids[2]


async def test_other_rules_and_another_budget_need_a_new_process(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        await stage.iterate(budget_usd=1.0)
        await stage.iterate(budget_usd=0.9)
        assert stage.pids[0] == stage.pids[1]
        await stage.iterate(budget_usd=2.0)
        await stage.iterate(budget_usd=2.0, rules="Other rules.")
        assert len(set(stage.pids)) == 3
        assert "Other rules." in json.dumps(stage.model.requests[-1].body["system"])


def test_importing_the_agent_does_not_import_the_sdk() -> None:
    code = "import sys, untildone.agents.claude_sdk; print('claude_agent_sdk' in sys.modules, 'mcp' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"

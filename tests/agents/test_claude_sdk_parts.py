"""The parts of the warm agent that need no Claude: its pipes, the reminders, the waiting, the fence."""

import asyncio
import json
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from patience import PATIENCE
from untildone.agents.claude_pipe import ClaudePipe, Wake
from untildone.agents.claude_sdk import _booked, _fence_fits
from untildone.agents.control import Hook
from untildone.agents.conversation import Conversation
from untildone.agents.own_tools import OwnTool, OwnTools, ToolRefused, wrong_in
from untildone.agents.report_tool import REMINDER, VERDICT_REMINDER, Reminders
from untildone.agents.stream import Line, Malformed, parse_line
from untildone.agents.task_tools import task_tools
from untildone.agents.warm_watch import GLANCE, MOST_REQUESTS, SETTLE, SILENT_SETTLE, STEP, Watch
from untildone.core.claims import REPORT_SCHEMA
from untildone.core.liveness import Pulse
from untildone.core.outcome import Outcome, Usage
from untildone.errors import AgentError

pytestmark = pytest.mark.anyio


class Pipes:
    """A process that says what it is told to say."""

    pid = 0

    def __init__(self, *chunks: bytes) -> None:
        self._chunks = list(chunks)
        self.written: list[bytes] = []
        self.broken = False

    async def read(self, size: int = 1 << 16) -> bytes:
        return self._chunks.pop(0) if self._chunks else b""

    async def write(self, data: bytes) -> None:
        if self.broken:
            raise BrokenPipeError("gone")
        self.written.append(data)

    async def close_stdin(self) -> None:
        self.written.append(b"EOF")

    async def wait(self) -> int:
        return 0

    def stderr_tail(self) -> str:
        return ""

    def starved(self) -> bool:
        return False

    def vitals(self) -> Pulse:
        return Pulse()

    def family(self) -> set[int]:
        return set()

    async def end(self, grace: float = 2.0) -> None: ...


RESULT = {"type": "result", "subtype": "success", "is_error": False, "total_cost_usd": 0.0}
SPEAKING = {"type": "assistant", "message": {"id": "m"}, "parent_tool_use_id": None}
SUBAGENT = {"type": "assistant", "message": {"id": "s"}, "parent_tool_use_id": "t"}
IDLE = {"type": "system", "subtype": "session_state_changed", "state": "idle"}
TASK = {"type": "system", "subtype": "background_tasks_changed", "tasks": [{"task_id": "b1"}]}


def as_line(line: object) -> Line:
    parsed = parse_line(json.dumps(line).encode())
    assert isinstance(parsed, Line)
    return parsed


def wire(*lines: object) -> bytes:
    return b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines)


async def test_every_line_but_control_messages_reaches_the_loop() -> None:
    request = {"type": "control_request", "request_id": "1", "request": {"subtype": "hook_callback", "deep": [1]}}
    response = {"type": "control_response", "response": {"subtype": "success", "request_id": "2"}}
    cancel = {"type": "control_cancel_request", "request_id": "1"}
    data = wire({"type": "result"}, request, {"type": "brand_new"}, response, cancel) + b"rubbish\n"
    heard: list[Line] = []
    pipe = ClaudePipe(Pipes(data[:70], data[70:]), heard.append)
    await pipe.ended.wait()
    lines = [pipe.lines.get_nowait() for _ in range(4)]
    assert [getattr(line, "type", type(line)) for line in lines] == ["result", "brand_new", Malformed, Wake]
    assert not pipe.speaks
    assert [line.type for line in heard] == ["result", "brand_new"]


class Claude(Pipes):
    """A process that says more when it was written to."""

    def __init__(self, *chunks: bytes) -> None:
        super().__init__(*chunks)
        self.news = asyncio.Event()

    async def read(self, size: int = 1 << 16) -> bytes:
        while not self._chunks:
            self.news.clear()
            await self.news.wait()
        return await super().read(size)

    def say(self, *lines: object) -> None:
        self._chunks.append(wire(*lines))
        self.news.set()

    async def told(self, number: int) -> list[dict[str, Any]]:
        async with asyncio.timeout(PATIENCE):
            while len(self.written) < number:
                await asyncio.sleep(0)
        return [json.loads(line) for line in self.written]


def asks(subtype: str, name: str = "7", **details: Any) -> dict[str, Any]:
    return {"type": "control_request", "request_id": name, "request": {"subtype": subtype, **details}}


def success(response: dict[str, Any], name: str = "7") -> dict[str, Any]:
    said = {"subtype": "success", "request_id": name, "response": response}
    return {"type": "control_response", "response": said}


async def test_a_hook_is_answered_however_many_lines_wait_for_the_loop() -> None:
    hook = Hook(event="Stop", answer=lambda given: {"said": given}, timeout=5.0)
    claude = Claude(wire(*[{"type": "user"}] * 1000, asks("hook_callback", callback_id="hook_0", input={"a": 1})))
    ClaudePipe(claude, lambda _line: None, hooks=[hook])
    assert await claude.told(1) == [success({"said": {"a": 1}})]


async def test_what_is_asked_is_waited_for_and_a_refusal_says_why() -> None:
    hook = Hook(event="SessionStart", matcher="compact", answer=lambda _: {}, timeout=5.0)
    claude = Claude()
    pipe = ClaudePipe(claude, lambda _line: None, hooks=[hook])
    beginning = asyncio.create_task(pipe.control.begin())
    (first,) = await claude.told(1)
    point = {"matcher": "compact", "hookCallbackIds": ["hook_0"], "timeout": 5.0}
    assert first["request"] == {"subtype": "initialize", "hooks": {"SessionStart": [point]}}
    claude.say(success({}, first["request_id"]))
    await beginning
    refused = asyncio.create_task(pipe.control.ask("stop_task", task_id="b1"))
    _, second = await claude.told(2)
    assert second["request"] == {"subtype": "stop_task", "task_id": "b1"}
    said = {"subtype": "error", "request_id": second["request_id"], "error": "no such task"}
    claude.say({"type": "control_response", "response": said})
    with pytest.raises(AgentError, match="no such task"):
        await refused


async def test_nobody_waits_for_an_answer_of_a_process_that_ended() -> None:
    claude = Claude()
    pipe = ClaudePipe(claude, lambda _line: None)
    asking = asyncio.create_task(pipe.control.ask("interrupt"))
    await claude.told(1)
    claude._chunks.append(b"")
    claude.news.set()
    with pytest.raises(AgentError, match="ended"):
        await asking


async def test_what_nobody_here_answers_is_refused_and_a_cancelled_question_is_dropped() -> None:
    started = asyncio.Event()

    async def slow(_given: object) -> str:
        started.set()
        await asyncio.sleep(3600)
        return "never"

    tool = OwnTool(name="slow", about="", schema={"properties": {}}, call=slow)
    claude = Claude()
    ClaudePipe(claude, lambda _line: None, tools=OwnTools([tool]))
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "slow"}}
    claude.say(asks("mcp_message", "1", server_name="untildone", message=call))
    await asyncio.wait_for(started.wait(), PATIENCE)
    claude.say({"type": "control_cancel_request", "request_id": "1"}, asks("can_use_tool", "2"))
    claude.say(asks("hook_callback", "3", callback_id="hook_9"))
    answers = [line["response"] for line in await claude.told(2)]
    assert [(said["request_id"], said["subtype"]) for said in answers] == [("2", "error"), ("3", "error")]


# --- our own tools --------------------------------------------------------------------------------


SCHEMA = {
    "properties": {
        "status": {"type": "string", "enum": ["A", "B"]},
        "sure": {"type": "boolean"},
        "count": {"type": "integer", "minimum": 0},
        "items": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
    },
    "required": ["status"],
    "additionalProperties": False,
}


async def echoed(given: Mapping[str, Any]) -> str:
    if given.get("count") == 13:
        raise ToolRefused("not thirteen")
    return json.dumps(given)


async def answer_of_tools(method: str, params: object = None, **about: Any) -> dict[str, Any]:
    tools = OwnTools([OwnTool(name="echo", about="Says it again.", schema=SCHEMA, call=echoed)])
    return await tools.answer({"jsonrpc": "2.0", "method": method, "params": params, **about})


async def test_the_tools_introduce_themselves() -> None:
    hello = await answer_of_tools("initialize", {"protocolVersion": "2025-06-18"}, id=0)
    assert (hello["id"], hello["result"]["protocolVersion"]) == (0, "2025-06-18")
    assert hello["result"]["serverInfo"]["name"] == "untildone"
    listed = await answer_of_tools("tools/list", id=1)
    assert listed["result"]["tools"] == [{"name": "echo", "description": "Says it again.", "inputSchema": SCHEMA}]
    assert await answer_of_tools("notifications/initialized") == {"jsonrpc": "2.0", "result": {}}
    assert (await answer_of_tools("ping", id=2))["result"] == {}
    assert (await answer_of_tools("resources/list", id=3))["error"]["code"] == -32601


@pytest.mark.parametrize(
    ("params", "wrong", "said"),
    [
        ({"name": "echo", "arguments": {"status": "A"}}, False, '{"status": "A"}'),
        ({"name": "echo", "arguments": {"status": "A", "count": 13}}, True, "not thirteen"),
        (
            {"name": "echo", "arguments": {"status": "C"}},
            True,
            "Input validation error: status: 'C' is not one of A, B",
        ),
        ({"name": "echo"}, True, "Input validation error: 'status' is a required property"),
        ({"name": "nobody"}, True, "there is no tool 'nobody'"),
        ("rubbish", True, "there is no tool 'None'"),
    ],
)
async def test_a_call_is_answered(params: object, said: str, *, wrong: bool) -> None:
    told = (await answer_of_tools("tools/call", params, id=1))["result"]
    assert told == {"content": [{"type": "text", "text": said}], "isError": wrong}


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"status": "B", "sure": True, "count": 0, "items": ["x"]}, ""),
        (["status"], "the input is no object"),
        ({"status": "A", "else": 1}, "'else' was unexpected: there are status, sure, count, items"),
        ({"status": 1}, "status: 1 is not of type 'string'"),
        ({"status": "A", "sure": "yes"}, "sure: 'yes' is not of type 'boolean'"),
        ({"status": "A", "count": True}, "count: True is not of type 'integer'"),
        ({"status": "A", "count": -1}, "count: -1 is less than 0"),
        ({"status": "A", "items": "x"}, "items: 'x' is not of type 'array'"),
        ({"status": "A", "items": ["x"] * 3}, "items: 3 items are more than 2"),
        ({"status": "A", "items": ["x", 1]}, "items: 1 is not of type 'string'"),
    ],
)
def test_what_is_wrong_with_an_input_is_said(given: object, complaint: str) -> None:
    assert wrong_in(given, SCHEMA) == complaint


def test_our_own_schemas_say_nothing_that_is_not_looked_at() -> None:
    schemas = [tool.schema for tool in task_tools(lambda _words: "")] + [REPORT_SCHEMA]
    values = [value for schema in schemas for value in schema["properties"].values()]
    looked_at = {"type", "enum", "minimum", "items", "maxItems", "description"}
    assert {word for value in values for word in value} <= looked_at
    assert {word for value in values if "items" in value for word in value["items"]} <= looked_at


async def test_writing_to_a_process_that_is_gone_is_not_an_error() -> None:
    pipes = Pipes()
    pipe = ClaudePipe(pipes, lambda _line: None)
    await pipe.write("hello\n")
    await pipe.end_input()
    assert pipes.written == [b"hello\n", b"EOF"]
    pipes.broken = True
    await pipe.write("anybody?\n")


def reminders() -> Reminders:
    return Reminders(rules="the rules", signal="ALL_DONE")


async def stopping(reminders: Reminders, message: object) -> bool:
    """Whether the agent is asked for its report when it stops with this message."""
    answer = reminders.on_stop({"last_assistant_message": message})
    wanted = VERDICT_REMINDER if reminders.reviewing else REMINDER
    return bool(answer) and answer["hookSpecificOutput"]["additionalContext"] == wanted


async def test_the_agent_is_asked_once_per_iteration() -> None:
    notes = reminders()
    assert [await stopping(notes, "done?"), await stopping(notes, "done!")] == [True, False]
    notes.begin()
    assert await stopping(notes, "done?")


async def test_a_report_or_a_claim_is_enough() -> None:
    notes = reminders()
    assert await notes.on_report({}) == "noted"
    assert not await stopping(notes, "done?")
    assert not await stopping(reminders(), "ALL_DONE")


async def test_nobody_is_asked_when_no_turn_is_left_to_answer() -> None:
    notes = Reminders(rules="", signal="ALL_DONE", max_turns=2)
    for line in ({**SPEAKING, "message": {"id": "1"}}, SUBAGENT, {**SPEAKING, "message": {"id": "1"}}):
        notes.hear(as_line(line))
    assert await stopping(notes, "done?")
    notes.begin()
    for number in ("1", "2"):
        notes.hear(as_line({**SPEAKING, "message": {"id": number}}))
    assert not await stopping(notes, "done?")


@pytest.mark.parametrize("message", [None, 3, ["x"]])
async def test_without_anything_to_judge_by_the_agent_may_stop(message: object) -> None:
    assert not await stopping(reminders(), message)
    assert reminders().on_stop(None) == {}


@pytest.mark.parametrize(
    ("fence", "left", "fits"),
    [
        (None, None, True), (None, 1.0, False), (1.0, None, False), (1.0, 1.0, True), (1.0, 0.6, True),
        (1.0, 1.1, False), (1.0, 0.4, False),
    ],
)  # fmt: skip
def test_a_fence_is_never_lower_and_not_much_higher_than_what_is_left(
    fence: float | None, left: float | None, fits: bool
) -> None:
    assert _fence_fits(fence, left) is fits


def test_what_the_old_conversation_spent_late_is_booked() -> None:
    late = Outcome(cost_usd=0.5, usage=Usage(1, 2, 3, 4))
    assert _booked(Outcome(cost_usd=1.0, usage=Usage(1)), late) == Outcome(cost_usd=1.5, usage=Usage(2, 2, 3, 4))
    assert _booked(Outcome(cost_usd=None), late).cost_usd is None
    assert _booked(Outcome(cost_usd=1.0), Outcome(cost_usd=None)).cost_usd is None
    assert _booked(Outcome(cost_usd=1.0), Outcome(cost_usd=0.0)) == Outcome(cost_usd=1.0)


def after(lines: Iterable[object], *, asked_at: float | None = None, stopped: bool = False) -> float | None:
    """Return the deadline after these lines, all seen at second 100, with a grace of 60."""
    watch, conversation = Watch(60.0, asked_at=asked_at, tasks_stopped=stopped), Conversation(1)
    for line in lines:
        parsed = as_line(line)
        watch.saw(parsed, 100.0)
        conversation.feed(parsed)
    return watch.deadline(conversation)


def test_nothing_hurries_an_agent_that_works() -> None:
    assert after([]) is None
    assert after([SPEAKING, IDLE]) is None
    assert after([SPEAKING, RESULT, SPEAKING]) is None


def test_background_tasks_get_their_grace_and_then_a_moment_to_go() -> None:
    assert after([IDLE, TASK, RESULT]) == 160.0
    assert after([IDLE, TASK, RESULT, SUBAGENT]) == 160.0
    assert after([IDLE, TASK, RESULT], stopped=True) == 100.0 + SETTLE


def test_a_claude_that_does_not_report_its_state_is_given_a_moment() -> None:
    assert after([RESULT]) == 100.0 + SILENT_SETTLE
    assert after([IDLE, RESULT]) == 160.0


def test_whoever_asked_to_end_it_does_not_wait_long() -> None:
    assert after([SPEAKING], asked_at=200.0) == 200.0 + STEP
    assert after([IDLE, TASK, RESULT], asked_at=200.0) == 100.0 + GLANCE
    assert after([IDLE, TASK, RESULT], asked_at=200.0, stopped=True) == 100.0 + STEP
    assert MOST_REQUESTS * STEP < 2.0


async def test_a_reviewer_is_reminded_of_its_verdict_once() -> None:
    notes = Reminders(rules="", signal="ALL_DONE", reviewing=True)
    assert not await stopping(notes, "Fine.\n\nREVIEW: CHANGES")
    assert await stopping(notes, "Fine.\nALL_DONE"), "a claim is no verdict"
    assert not await stopping(notes, "Fine.")

"""The parts of the warm agent that need no Claude: the transport, the reminders, the waiting, the fence."""

import asyncio
import json
from collections.abc import Iterable

import pytest
from claude_agent_sdk import Transport

from untildone.agents.claude_sdk import _booked, _fence_fits
from untildone.agents.conversation import Conversation
from untildone.agents.report_tool import REMINDER, VERDICT_REMINDER, Reminders
from untildone.agents.sdk_transport import SdkTransport, Wake
from untildone.agents.stream import Line, Malformed, parse_line
from untildone.agents.warm_watch import GLANCE, MOST_REQUESTS, SETTLE, SILENT_SETTLE, STEP, Watch
from untildone.core.liveness import Pulse
from untildone.core.outcome import Outcome, Usage

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


async def test_the_transport_has_everything_the_sdk_asks_for() -> None:
    assert Transport.__abstractmethods__ <= set(dir(SdkTransport))


async def test_control_messages_go_to_the_sdk_and_all_others_to_the_loop() -> None:
    request = {"type": "control_request", "request_id": "1", "request": {"subtype": "hook_callback", "deep": [1]}}
    response = {"type": "control_response", "response": {"subtype": "success", "request_id": "2"}}
    cancel = {"type": "control_cancel_request", "request_id": "1"}
    data = wire({"type": "result"}, request, {"type": "brand_new"}, response, cancel) + b"rubbish\n"
    heard: list[Line] = []
    transport = SdkTransport(Pipes(data[:70], data[70:]), heard.append)
    assert [message async for message in transport.read_messages()] == [request, response, cancel]
    assert not transport.is_ready()
    lines = [transport.lines.get_nowait() for _ in range(4)]
    assert [getattr(line, "type", type(line)) for line in lines] == ["result", "brand_new", Malformed, Wake]
    assert not transport.speaks
    assert [line.type for line in heard] == ["result", "brand_new"]


async def test_a_loop_that_does_not_read_does_not_keep_the_sdk_waiting() -> None:
    lines = [{"type": "user"}] * 1000
    answer = {"type": "control_response", "response": {"request_id": "9"}}
    transport = SdkTransport(Pipes(wire(*lines, answer)), lambda _line: None)
    async with asyncio.timeout(60):
        assert await anext(aiter(transport.read_messages())) == answer


async def test_writing_to_a_process_that_is_gone_is_not_an_error() -> None:
    pipes = Pipes()
    transport = SdkTransport(pipes, lambda _line: None)
    await transport.write("hello\n")
    await transport.end_input()
    assert pipes.written == [b"hello\n", b"EOF"]
    pipes.broken = True
    await transport.write("anybody?\n")


def reminders() -> Reminders:
    return Reminders(rules="the rules", signal="ALL_DONE")


async def stopping(reminders: Reminders, message: object) -> bool:
    """Whether the agent is asked for its report when it stops with this message."""
    answer = await reminders.on_stop({"last_assistant_message": message}, None, None)
    wanted = VERDICT_REMINDER if reminders.reviewing else REMINDER
    return bool(answer) and answer["hookSpecificOutput"]["additionalContext"] == wanted


async def test_the_agent_is_asked_once_per_iteration() -> None:
    notes = reminders()
    assert [await stopping(notes, "done?"), await stopping(notes, "done!")] == [True, False]
    notes.begin()
    assert await stopping(notes, "done?")


async def test_a_report_or_a_claim_is_enough() -> None:
    notes = reminders()
    assert await notes.on_report({}) == {"content": [{"type": "text", "text": "noted"}]}
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
    assert await reminders().on_stop(None, None, None) == {}


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

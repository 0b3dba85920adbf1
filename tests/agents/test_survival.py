"""What an agent hears of limits, what it must not take for one, and who takes over."""

import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agents.made_lines import answered, capture, fold, lines, of, result, said, text, tool
from agents.sdk_stage import DONE, bash, staged
from untildone.agents.argv import SANDBOX_PROGRAMS
from untildone.agents.relay import Relay, agent_named
from untildone.agents.scripted import ScriptedAgent
from untildone.core.events import Event
from untildone.core.faults import classify
from untildone.core.outcome import Order, Outcome
from untildone.core.policy import AgentOptions
from untildone.core.trace import AgentQuota, AgentToolResult, QuotaWindow
from untildone.errors import AgentError
from untildone.rehearsal.scenario import Reply, ToolCall


def test_the_windows_of_a_subscription_are_told() -> None:
    _, events = fold(capture("usage-limit-five-hour"))
    assert of(events, AgentQuota) == [
        AgentQuota(
            iteration_num=7,
            windows=(
                QuotaWindow(name="five_hour", utilization=1.0, resets_at=1794777584),
                QuotaWindow(name="seven_day", utilization=0.4, resets_at=1795170384),
            ),
        )
    ]
    _, events = fold(capture("usage-warning-event"))
    assert [window.utilization for quota in of(events, AgentQuota) for window in quota.windows] == [0.92]


def allowed(utilization: object, resets_at: object = 1794777584) -> dict[str, Any]:
    windows = {"five_hour": {"utilization": utilization, "resetsAt": resets_at, "status": "allowed"}}
    return {"type": "rate_limit_event", "rate_limit_info": {"status": "allowed", "unifiedWindows": windows}}


def test_windows_are_told_when_they_change_and_only_then() -> None:
    _, events = fold(lines(allowed(0.1), allowed(0.1), allowed(0.2), allowed(0.2)))
    assert [quota.windows[0].utilization for quota in of(events, AgentQuota)] == [0.1, 0.2]


def test_nonsense_about_windows_is_not_told() -> None:
    wrong = (allowed("much"), allowed(None), allowed([]), allowed(0.5, "soon"), allowed(0.5, 1e12), allowed(-1))
    other = [{"type": "rate_limit_event", "rate_limit_info": info} for info in (None, [], {}, {"unifiedWindows": [1]})]
    assert of(fold(lines(*wrong, *other))[1], AgentQuota) == []
    over = of(fold(lines(allowed(1.07)))[1], AgentQuota)
    assert over[0].windows[0].utilization == 1.0


def test_one_window_told_the_old_way_counts_too() -> None:
    info = {"status": "allowed", "rateLimitType": "five_hour", "utilization": 0.5, "resetsAt": 1794777584}
    [quota] = of(fold(lines({"type": "rate_limit_event", "rate_limit_info": info}))[1], AgentQuota)
    assert quota.windows == (QuotaWindow(name="five_hour", utilization=0.5, resets_at=1794777584),)


RED_HERRINGS = (
    "5-hour limit", "5-hour limit reached · resets 9pm", "You've hit your 5-hour limit · resets 9:19pm (UTC)", "429",
    "HTTP 429 rate limit", "rate limit", "PR 4290", "Claude AI usage limit reached|1794777584", "529 overloaded",
    '{"type":"rate_limit_event","rate_limit_info":{"status":"rejected","resetsAt":1794777584}}',
    '{"type":"result","subtype":"success","is_error":true,"api_error":"usage_limit_reached"}',
    "ENOSPC: no space left on device", "No conversation found with session ID: 1",
)  # fmt: skip


@pytest.mark.parametrize("words", RED_HERRINGS)
def test_words_of_the_project_or_the_agent_never_change_a_decision(words: str) -> None:
    work = (
        said("m1", text(words), tool("Read", {"file_path": words})),
        answered(words),
        answered(words, tool_use_id="t2", is_error=True),
        said("m2", text(words)),
    )
    good, events = fold(lines(*work, result(result=words)))
    assert good.outcome().failure is None
    assert of(events, AgentQuota) == []
    for failed, fault in (
        (result(is_error=True, terminal_reason="api_error", api_error_status=500, result=words), "server_error"),
        (
            result(is_error=True, terminal_reason="max_turns", subtype="error_max_turns", result=words),
            "turns_exhausted",
        ),
        (result(is_error=True, terminal_reason="model_error", result=words), "model_error"),
    ):
        failure = fold(lines(*work, failed))[0].outcome().failure
        assert failure is not None
        assert (classify(failure).name, failure.resets_at) == (fault, None)


# --- who takes over --------------------------------------------------------------------------------------


class Leaver(ScriptedAgent):
    """Somebody may do something while it leaves."""

    meanwhile: Callable[[], Awaitable[None]] | None = None

    async def close(self) -> None:
        if self.meanwhile is not None:
            await self.meanwhile()
        await super().close()


class Seats:
    """Makes scripted agents and remembers who sat when."""

    def __init__(self) -> None:
        self.made: list[tuple[str, Leaver]] = []

    def make(self, name: str) -> ScriptedAgent:
        agent = Leaver([Outcome(final_text=name)] * 9)
        self.made.append((name, agent))
        return agent

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.made]


async def deaf(_: Event) -> None:
    return


def order(number: int, model: str | None = None) -> Order:
    return Order(run_id="r", iteration_num=number, prompt="go on", rules="", model=model, resume_session="s1")


@pytest.mark.anyio
async def test_an_order_names_who_takes_over() -> None:
    seats = Seats()
    relay = Relay(seats.make, first="claude_sdk")
    said = [
        (await relay.iterate(order(n, model), deaf)).final_text
        for n, model in enumerate((None, "haiku", "agent:claude_cli", "agent:claude_cli", None))
    ]
    assert said == ["claude_sdk", "claude_sdk", "claude_cli", "claude_cli", "claude_sdk"]
    assert seats.names == ["claude_sdk", "claude_cli", "claude_sdk"], "who comes back comes back fresh"
    first, second, _ = (agent for _, agent in seats.made)
    assert [asked.model for asked in first.orders] == [None, "haiku"]
    assert [(asked.model, asked.resume_session) for asked in second.orders] == [(None, "s1"), (None, "s1")]
    await relay.close()


@pytest.mark.anyio
async def test_nobody_is_made_after_the_end() -> None:
    seats = Seats()
    relay = Relay(seats.make, first="claude_sdk")
    assert relay.pulse() is None
    await relay.interrupt()
    await relay.close()
    with pytest.raises(AgentError, match="closed"):
        await relay.iterate(order(1), deaf)
    assert seats.made == []


@pytest.mark.anyio
async def test_an_interrupt_while_the_seat_changes_is_not_lost() -> None:
    seats = Seats()
    relay = Relay(seats.make, first="claude_sdk")
    await relay.iterate(order(1), deaf)
    seats.made[0][1].meanwhile = relay.interrupt
    outcome = await relay.iterate(order(2, "agent:claude_cli"), deaf)
    assert outcome.interrupted
    assert seats.made[1][1].orders == []


def test_only_the_prefix_makes_it_an_agent() -> None:
    assert [agent_named(name) for name in (None, "haiku", "agent:claude_cli", "my-agent:x")] == [
        None, None, "claude_cli", None,
    ]  # fmt: skip


# --- on the real Claude Code -----------------------------------------------------------------------------


def require_bubblewrap() -> None:
    missing = [program for program in SANDBOX_PROGRAMS if shutil.which(program) is None]
    assert not missing, f"{missing} missing: apt-get install -y bubblewrap socat"


@pytest.fixture
def on_disk() -> Iterator[Path]:
    """Claude Code's own sandbox has a /dev of its own, and the temporary files of these tests may lie there."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        yield Path(folder)


@pytest.mark.claude
@pytest.mark.anyio
async def test_the_sandbox_keeps_commands_in_the_folder_and_the_store_out_of_reach(on_disk: Path) -> None:
    require_bubblewrap()
    outside = on_disk / "outside.txt"
    store = on_disk / "state"
    store.mkdir()
    key = store / "seal.key"
    key.write_text("the-key-itself")
    replies = (
        bash(f"touch inside.txt; touch {outside}"),
        bash(f"cp {key} seen-by-bash.txt; touch {store}/by-bash; rm -f {key}; true"),
        Reply(tools=(ToolCall("Read", {"file_path": str(key)}),)),
        Reply(tools=(ToolCall("Write", {"file_path": str(store / "by-write"), "content": "x"}),)),
        DONE,
    )
    options = AgentOptions(skip_permissions=True, sandbox="claude")
    async with staged(on_disk, *replies, options=options, env={"UNTILDONE_STORE": str(store)}) as stage:
        assert (await stage.iterate()).failure is None
        results = [event for event in stage.told if isinstance(event, AgentToolResult)]
        assert len(results) == 4
        assert not any("the-key-itself" in event.text for event in results)
        assert not (stage.folder / "seen-by-bash.txt").exists()
        assert (stage.folder / "inside.txt").exists()
    assert not outside.exists()
    assert [path.name for path in store.iterdir()] == ["seal.key"]
    assert key.read_text() == "the-key-itself"

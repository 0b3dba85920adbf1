"""What of a run means something on another machine, and what its move does to its state."""

from dataclasses import replace

import pytest

from core.run_kit import after, started
from untildone.core import events as ev
from untildone.core.contract import CheckSpec, Contract
from untildone.core.fold import fold
from untildone.core.lines import event_line
from untildone.core.moving import HIDDEN, brought_along, moved_spec, sessions_of, unknown_here
from untildone.core.policy import AgentOptions, RunSpec, Tending
from untildone.core.state import LoopState, OpenIteration, Retry

PLAIN = RunSpec(goal="g", cwd="/a/project", name="n")


def test_a_run_with_nothing_special_needs_no_yes() -> None:
    assert brought_along(PLAIN) == []


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        (replace(PLAIN, contract=Contract(checks=(CheckSpec(name="t", command="make test"),))), "check: make test"),
        (replace(PLAIN, contract=Contract(setup="npm ci")), "setup: npm ci"),
        (replace(PLAIN, tending=Tending(on_stop="curl x")), "at the stop: curl x"),
        (replace(PLAIN, tending=Tending(before_iteration="a")), "before each iteration: a"),
        (replace(PLAIN, options=AgentOptions(skip_permissions=True)), "the agent asks for no permission at all"),
        (replace(PLAIN, options=AgentOptions(permission_mode="bypassPermissions")), "bypassPermissions"),
        (replace(PLAIN, options=AgentOptions(allowed_tools=("Read", "Bash"))), "allowed tools: Bash"),
        (replace(PLAIN, options=AgentOptions(add_dirs=("/",))), "folders: /"),
        (replace(PLAIN, options=AgentOptions(mcp_config=('{"x":1}',))), "MCP servers"),
        (replace(PLAIN, options=AgentOptions(extra_args=("--settings", "x"))), "arguments for claude"),
        (replace(PLAIN, options=AgentOptions(hooks_file="/h.json")), "hooks: /h.json"),
        (replace(PLAIN, notify=("https://evil.example",)), "notices to: https://evil.example"),
    ],
)
def test_whatever_runs_or_is_allowed_without_the_agent_asking_is_told(spec: RunSpec, told: str) -> None:
    assert any(told in said for said in brought_along(spec))


def test_the_folder_is_new_and_what_only_the_other_machine_had_stays_there() -> None:
    spec = replace(
        PLAIN,
        task_file="/a/project/TODO.md",
        knowledge_file="docs/known.md",
        repository="/a/origin",
        cleanup_worktree=True,
        notify=(f"https://{HIDDEN}", "desktop://"),
        options=AgentOptions(claude="/a/bin/claude", config_dir="/a/claude", model="m"),
        server_token_file="/a/token",
    )
    moved = moved_spec(spec, cwd="/b/clone", server="http://s")
    assert (moved.cwd, moved.task_file, moved.knowledge_file) == ("/b/clone", "TODO.md", "docs/known.md")
    assert (moved.repository, moved.cleanup_worktree, moved.notify) == (None, False, ("desktop://",))
    assert moved.options == AgentOptions(model="m")
    assert (moved.server, moved.server_token_file, moved.portable) == ("http://s", None, True)


def test_hidden_checks_are_named() -> None:
    checks = (CheckSpec(name="h1", command=HIDDEN, hidden=True), CheckSpec(name="v", command="make"))
    assert unknown_here(replace(PLAIN, contract=Contract(checks=checks))) == ["h1"]


def test_sessions_that_a_run_may_go_on_with() -> None:
    left = OpenIteration(number=3, retry=0, started_at=0.0, started_seq=1, session_id="s3", resume_session="s2")
    state = LoopState(open=left, last_session="s3", retry=Retry(number=3, retry=1, session_id="s1", because="x"))
    assert sessions_of(state) == ["s3", "s2", "s1"]
    assert sessions_of(replace(state, open=replace(left, review=True), retry=None)) == ["s3"]
    assert sessions_of(LoopState()) == []


def test_the_tenure_only_grows_and_an_open_iteration_is_out_of_sight() -> None:
    state = after(started(1), ev.RunMoved(by="cli", tenure=2, host="b"))
    assert state.tenure == 2
    assert state.open is not None
    assert state.open.out_of_sight
    again = fold([ev.Record(seq=state.last_seq + 1, at=9.0, event=ev.RunMoved(by="cli", tenure=1))], state)
    assert again.tenure == 2


def test_a_move_is_told_in_one_line() -> None:
    moved = ev.Record(seq=1, at=0.0, event=ev.RunMoved(by="cli", tenure=1, host="box\n\x1b[31m"))
    assert "brought the run to box" in (event_line(moved) or "")
    assert "\x1b" not in (event_line(moved) or "")

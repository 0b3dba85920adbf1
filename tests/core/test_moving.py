"""What of a run means something on another machine, and what its move does to its state."""

from dataclasses import replace

import pytest

from core.run_kit import after, started
from untildone.core import events as ev
from untildone.core.contract import CheckSpec, Contract
from untildone.core.delivery import done_for, has_arrived
from untildone.core.fold import fold
from untildone.core.lines import event_line
from untildone.core.moving import (
    HIDDEN,
    brought_along,
    may_be_notes,
    moved_spec,
    outside,
    sessions_of,
    stays_behind,
    unknown_here,
)
from untildone.core.policy import AgentOptions, Earlier, Landing, Policy, Review, RunSpec, Tending
from untildone.core.state import Arrival, LoopState, OpenIteration, Retry

PLAIN = RunSpec(goal="g", cwd="/a/project", name="n")
FEW = Policy(max_runs=3)


def test_a_run_with_nothing_special_needs_no_yes() -> None:
    assert brought_along(PLAIN, FEW) == []
    assert brought_along(PLAIN, Policy(max_cost_usd=20.0)) == []


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        (Policy(unbounded=True), "limits: none at all"),
        (Policy(max_runs=10**9), "limits: max_runs 1000000000"),
        (Policy(max_cost_usd=5000.0), "limits: max_cost_usd 5000"),
        (Policy(max_duration=1e9), "limits: max_duration 1000000000"),
    ],
)
def test_a_run_that_may_go_on_for_long_needs_a_yes(policy: Policy, told: str) -> None:
    assert brought_along(PLAIN, policy) == [told]


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
        (
            replace(PLAIN, landing=Landing(land="pr", repo="a/b", base="main")),
            "lands its work: pr by way of origin, a/b",
        ),
        (replace(PLAIN, landing=Landing(land="merge")), "lands its work: merge"),
        (replace(PLAIN, options=AgentOptions(append_system_prompt="obey")), "for the system prompt: obey"),
        (replace(PLAIN, options=AgentOptions(agent="scripted")), "agent: scripted"),
        (replace(PLAIN, review=Review(agent="other")), "agent: other"),
        (replace(PLAIN, options=AgentOptions(fallback=("agent:x",))), "in its place: agent:x"),
        (replace(PLAIN, then_goals=("then this",)), "afterwards: then this"),
        (replace(PLAIN, contract=Contract(waive=("tests/**",))), "guarded files that may change: tests/**"),
        (replace(PLAIN, contract=Contract(guard="off")), "not guarded"),
        (replace(PLAIN, contract=Contract(share=("../..",))), "shared with the checks: ../.."),
    ],
)
def test_whatever_runs_or_is_allowed_without_the_agent_asking_is_told(spec: RunSpec, told: str) -> None:
    said = brought_along(spec, FEW)
    assert any(told in line for line in said)
    assert said[-1] == "limits: max_runs 3"


def test_what_a_human_waived_elsewhere_is_told() -> None:
    assert brought_along(PLAIN, FEW, ("ci/*",))[0] == "guarded files that may change: ci/*"


@pytest.mark.parametrize("name", ["/etc/passwd", "../x.md", "a/../../x", "~/x", "", "/a/projects/x", "x\0y"])
def test_files_that_lie_elsewhere_are_named(name: str) -> None:
    for spec in (replace(PLAIN, task_file=name), replace(PLAIN, knowledge_file=name), replace(PLAIN, notes_file=name)):
        assert outside(spec) == [name]
    assert outside(replace(PLAIN, task_file="/a/project/TODO.md", knowledge_file="docs/k.md")) == []


@pytest.mark.parametrize(
    ("name", "may"),
    [
        ("SHARED_TASK_NOTES.md", True), ("docs/hand-over.md", True), ("notes.txt", True), ("my notes", True),
        (".git/config", False), (".claude/settings.local.json", False), (".claude/agents/x.md", False),
        ("Makefile", False), ("conftest.py", False), (".envrc", False), (".mcp.json", False), ("package.json", False),
        ("requirements.txt", False), ("../notes.md", False), ("/notes.md", False), ("", False), ("notes.md\n", False),
        ("a/.GIT/notes.md", False), ("notes.py", False),
    ],
)  # fmt: skip
def test_only_what_is_read_and_never_run_is_a_name_for_notes(name: str, may: bool) -> None:
    assert may_be_notes(name) is may


def test_an_address_for_the_login_and_patterns_and_foreign_sessions_are_never_taken_over() -> None:
    spec = replace(
        PLAIN,
        landing=Landing(land="pr", forge_url="https://evil.example"),
        mask=("(a+)+$",),
        earlier=Earlier(session="somebody-elses", fork=True, context="c"),
        notes_file="/a/project/N.md",
    )
    moved = moved_spec(spec, cwd="/b", server="http://s")
    assert (moved.landing, moved.mask, moved.earlier) == (Landing(land="pr"), (), Earlier(context="c"))
    assert moved.notes_file == "N.md"
    assert len(stays_behind(LoopState(spec=spec))) == 2
    assert stays_behind(LoopState(spec=PLAIN)) == []


def test_the_folder_is_new_and_what_only_the_other_machine_had_stays_there() -> None:
    spec = replace(
        PLAIN,
        task_file="/a/project/TODO.md",
        knowledge_file="docs/known.md",
        repository="/a/origin",
        cleanup_worktree=True,
        notify=(f"https://{HIDDEN}", "desktop://"),
        options=AgentOptions(
            claude="/a/bin/claude",
            config_dir="/a/claude",
            model="m",
            mcp_config=(HIDDEN, "m.json"),
            extra_args=("--effort", "high", "--settings", HIDDEN, f"--agents={HIDDEN}", "--x"),
        ),
        server_token_file="/a/token",
    )
    moved = moved_spec(spec, cwd="/b/clone", server="http://s")
    assert (moved.cwd, moved.task_file, moved.knowledge_file) == ("/b/clone", "TODO.md", "docs/known.md")
    assert (moved.repository, moved.cleanup_worktree, moved.notify) == (None, False, ("desktop://",))
    kept = ("--effort", "high", "--x")
    assert moved.options == AgentOptions(model="m", mcp_config=("m.json",), extra_args=kept)
    assert len([line for line in stays_behind(LoopState(spec=spec)) if "--mcp-config" in line]) == 1
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


MERGING = Landing(land="merge")


def test_what_has_landed_in_one_clone_lands_in_the_next_one_too() -> None:
    arrival = Arrival(base="main", landed="c1", merged="m1", because="validation_passed")
    state = LoopState(
        run_id="r", spec=replace(PLAIN, landing=MERGING), last_commit="c1", verified=True, arrival=arrival
    )
    assert has_arrived(state)
    moved = fold([ev.Record(seq=1, at=0.0, event=ev.RunMoved(by="cli", tenure=1))], state)
    assert not has_arrived(moved)
    assert (moved.arrival.base, moved.land_due) == ("main", True)
    assert any("main of the other machine has it as m1: push only one" in line for line in stays_behind(state))
    by_pull = replace(state, spec=replace(PLAIN, landing=Landing(land="pr")))
    assert has_arrived(fold([ev.Record(seq=1, at=0.0, event=ev.RunMoved(by="cli", tenure=1))], by_pull))
    assert stays_behind(by_pull) == []


def test_a_start_that_was_made_anew_for_the_way_takes_the_place_of_the_old_one() -> None:
    state = LoopState(run_id="r", spec=PLAIN, arrival=Arrival(start="old"))
    moved = ev.RunMoved(by="cli", tenure=1, start="new")
    assert fold([ev.Record(seq=1, at=0.0, event=moved)], state).arrival.start == "new"
    assert fold([ev.Record(seq=1, at=0.0, event=replace(moved, start=None))], state).arrival.start == "old"


def test_work_that_did_not_come_along_is_named_and_nothing_said_about_it_holds() -> None:
    arrival = Arrival(commit="c2", because="validation_passed", start="s")
    state = LoopState(run_id="r", spec=PLAIN, last_commit="c2", verified=True, arrival=arrival)
    back = ev.Rewound(by="cli", iteration_num=0, commit="s", saved="ref", head="s")
    gone_back = fold([ev.Record(seq=1, at=0.0, event=back)], replace(state, spec=replace(PLAIN, landing=MERGING)))
    assert done_for(gone_back) is None
    assert any("the newest work of the run (c2)" in line for line in stays_behind(state, "c2"))

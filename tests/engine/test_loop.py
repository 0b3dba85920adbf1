"""The loop on real git and a real store: limits, done, commits, hooks, tasks."""

import itertools
from pathlib import Path

import pytest

from engine.rig import FastClock, Rig, claim, counting, idle, writes
from untildone.core import events as ev
from untildone.core.claims import Report
from untildone.core.oneliners import closing_lines
from untildone.core.outcome import FaultEvidence, Outcome
from untildone.core.policy import Policy, Tending
from untildone.core.views import run_view
from untildone.errors import DirtyWorkspace, RunBusy

pytestmark = pytest.mark.anyio


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


@pytest.mark.parametrize("wanted", [1, 2, pytest.param(7, marks=pytest.mark.soak)])
async def test_n_means_exactly_n(rig: Rig, wanted: int) -> None:
    state, agent = await rig.run(itertools.repeat(counting(rig.repo / "n.txt")), Policy(max_runs=wanted))
    assert (state.stop_reason, state.successes, len(agent.orders)) == ("max_runs_reached", wanted, wanted)
    assert rig.seen(ev.ContinuousLimitReached)[0].limit_type == "max_runs"


async def test_each_iteration_with_changes_is_a_commit_with_the_agents_summary(rig: Rig) -> None:
    done = writes(rig.repo / "b.txt", "b\n", claim())
    state, _ = await rig.run([writes(rig.repo / "a.txt", "1\n"), done, claim()], Policy(max_runs=3))
    assert rig.git("log", "--format=%s").splitlines() == ["Finish the job", "wrote a.txt", "first"]
    assert (state.stop_reason, state.commits) == ("completion_signal", 2)


async def test_a_denial_is_told_once_with_what_to_type_and_the_stop_says_it_again(rig: Rig) -> None:
    denied = idle(denials=("Bash(git push)",))
    state, _ = await rig.run([denied, denied], Policy(max_runs=9))
    assert (state.stop_reason, state.stop_detail) == ("permission_denied", "denied: Bash(git push)")
    command = f"untildone resume {state.spec.name} --allow-tool 'Bash(git push:*)'"
    told = [warning.message for warning in rig.seen(ev.ContinuousWarning) if "denied:" in warning.message]
    assert told == [f"the agent was denied: Bash(git push). To allow it: `{command}`."]
    assert command in "\n".join(closing_lines(run_view(state, rig.clock.now(), alive=False)))


async def test_completion_and_limit_together_is_completion(rig: Rig) -> None:
    state, _ = await rig.run([claim(), claim()], Policy(max_runs=2))
    assert state.stop_reason == "completion_signal"


async def test_a_false_claim_comes_back_with_the_evidence(rig: Rig) -> None:
    check = "test -f b.txt || { echo b.txt is missing; exit 3; }"
    state, agent = await rig.run([claim(), writes(rig.repo / "b.txt", "", claim())], checks=(check,))
    assert (state.stop_reason, state.verified, state.attempts) == ("validation_passed", True, 2)
    assert "b.txt is missing" in agent.orders[1].prompt
    assert "b.txt is missing" not in agent.orders[0].prompt
    verdicts = rig.seen(ev.IterationValidation)
    assert [verdict.passed for verdict in verdicts] == [False, True]
    assert verdicts[1].commit == rig.git("rev-parse", "HEAD").strip()


async def test_without_any_work_the_breaker_opens(rig: Rig) -> None:
    state, _ = await rig.run(itertools.repeat(idle()), Policy(max_runs=50))
    assert (state.stop_reason, state.attempts) == ("circuit_open", 3)


async def test_a_limit_on_attempts_counts_failures_too(rig: Rig) -> None:
    crash = Outcome(failure=FaultEvidence(has_result=False, exit_code=139, text="segfault"))
    rig.clock = FastClock(100)
    steps = itertools.cycle([crash, counting(rig.repo / "n.txt")])
    state, _ = await rig.run(steps, Policy(max_iterations=4))
    assert (state.stop_reason, state.attempts, state.successes) == ("max_iterations_reached", 4, 2)


async def test_a_rate_limit_costs_no_attempt_and_goes_on_in_the_session(tmp_path: Path) -> None:
    rig = Rig(tmp_path, clock=FastClock(50))
    limited = Outcome(
        session_id="s1", failure=FaultEvidence(is_error=True, terminal_reason="api_error", api_error_status=429)
    )
    state, agent = await rig.run([limited, limited, claim(session_id="s1"), claim()], Policy(max_runs=5))
    assert (state.attempts, state.stop_reason, state.usage_limit_hit) == (2, "completion_signal", True)
    assert [order.resume_session for order in agent.orders] == [None, "s1", "s1", None]
    assert [order.iteration_num for order in agent.orders] == [1, 1, 1, 2]
    assert "Go on exactly where you stopped" in agent.orders[1].prompt
    # Whether it still has to be waited for depends on how long the loop took meanwhile.
    failed = [record for record in rig.records if isinstance(record.event, ev.IterationFailed)]
    assert [(r.event.error_type, r.event.retry_at > r.at) for r in failed] == [("rate_limit", True)] * 2


async def test_a_usage_limit_waits_until_its_reset(tmp_path: Path) -> None:
    rig = Rig(tmp_path, clock=FastClock(100))
    reset = rig.clock.now() + 60
    limited = Outcome(
        session_id="s1", failure=FaultEvidence(is_error=True, api_error="usage_limit_reached", resets_at=reset)
    )
    await rig.run([limited, claim(), claim()], Policy(max_runs=5))
    again = next(r for r in rig.records if isinstance(r.event, ev.IterationStarted) and r.event.retry == 1)
    assert again.at >= reset


async def test_a_refused_login_stops_at_once_and_says_so(rig: Rig) -> None:
    refused = Outcome(
        failure=FaultEvidence(is_error=True, terminal_reason="api_error", api_error_status=401, text="Invalid API key")
    )
    state, _ = await rig.run([refused])
    assert (state.stop_reason, state.stop_detail, state.phase) == ("authentication", "Invalid API key", "suspended")


async def test_the_users_commands_hear_the_facts(rig: Rig) -> None:
    tending = Tending(before_iteration=rig.hook("b"), after_iteration=rig.hook("a"), on_stop=rig.hook("s"))
    await rig.run([claim(), claim()], tending=tending)
    assert [fact["iteration_num"] for fact in rig.hook_facts("b")] == [1, 2]
    assert [fact["completion_signal_count"] for fact in rig.hook_facts("a")] == [1, 2]
    (stop,) = rig.hook_facts("s")
    assert (stop["stop_reason"], stop["hook"], stop["goal"]) == ("completion_signal", "on_stop", "make it work")


async def test_a_failing_command_warns_or_stops_as_asked(rig: Rig) -> None:
    tending = Tending(before_iteration="echo no good; exit 9")
    state, agent = await rig.run([claim(), claim()], Policy(max_runs=3), tending=tending)
    assert state.stop_reason == "completion_signal"
    assert rig.seen(ev.HookFailed)[0].detail == "exit 9: no good"
    rig.run_id = "run2"
    state, agent = await rig.run([claim()], Policy(max_runs=3, hook_failure="stop"), tending=tending)
    assert (state.stop_reason, agent.orders) == ("hook_failed", [])


async def test_a_hanging_command_does_not_hold_the_run(rig: Rig) -> None:
    tending = Tending(after_iteration="sleep 60", timeout=0.2)
    state, _ = await rig.run([claim(), claim()], tending=tending)
    assert state.stop_reason == "completion_signal"
    assert "longer than 0.2 s" in rig.seen(ev.HookFailed)[0].detail


async def test_a_ticked_task_file_needs_no_iteration(rig: Rig) -> None:
    (rig.repo / "TODO.md").write_text("- [x] one\n- [X] two\n## Optional\n- [ ] three\n")
    state, agent = await rig.run([], task_file="TODO.md")
    assert (state.stop_reason, agent.orders) == ("completion_signal", [])


async def test_the_optional_sections_of_a_task_file_are_the_ones_that_were_named(rig: Rig) -> None:
    (rig.repo / "TODO.md").write_text("- [x] one\n## Someday\n- [ ] three\n")
    state, _ = await rig.run([], task_file="TODO.md", optional_sections=("Someday",))
    assert state.stop_reason == "completion_signal"


async def test_tasks_are_read_anew_each_time_and_ticking_all_is_a_claim(rig: Rig) -> None:
    todo = rig.repo / "TODO.md"
    todo.write_text("- [ ] one\n- [ ] two\n")
    first, second = writes(todo, "- [x] one\n- [ ] two %s\n"), writes(todo, "- [x] one\n- [x] two\n", claim())
    state, agent = await rig.run([first, second], task_file="TODO.md")
    assert (state.stop_reason, state.attempts) == ("completion_signal", 2)
    assert "- [ ] one" in agent.orders[0].prompt
    assert "- [x] one\n- [ ] two %s" in agent.orders[1].prompt


async def test_notes_travel_and_are_capped_with_a_warning(rig: Rig) -> None:
    notes = rig.repo / "SHARED_TASK_NOTES.md"
    steps = [writes(notes, "remember the milk"), writes(notes, "x" * 5_000_000, claim()), claim()]
    _, agent = await rig.run(steps)
    assert "remember the milk" in agent.orders[1].prompt
    assert len(agent.orders[2].prompt) < 60_000
    assert any("5,000,000 bytes" in warning.message for warning in rig.seen(ev.ContinuousWarning))
    assert "SHARED_TASK_NOTES.md" not in rig.git("ls-files")


async def test_the_users_uncommitted_work_is_not_swept_up(rig: Rig) -> None:
    (rig.repo / "mine.txt").write_text("precious")
    with pytest.raises(DirtyWorkspace, match=r"mine\.txt"):
        await rig.run([claim()])
    assert rig.git("status", "--short").strip() == "?? mine.txt"


async def test_one_driver_at_a_time_in_a_folder(rig: Rig) -> None:
    await rig.log.acquire("other", name="other", folder=str(rig.repo))
    with pytest.raises(RunBusy):
        await rig.run([claim()])


async def test_an_agent_that_cannot_be_started_is_told_and_nothing_stays_open(rig: Rig) -> None:
    state, _ = await rig.run([])
    assert (state.stop_reason, state.phase) == ("surroundings_failed", "suspended")
    state, _ = await rig.resume([claim(), claim()])
    assert (state.stop_reason, state.open, state.attempts) == ("completion_signal", None, 3)


async def test_blocked_stops_with_the_agents_reason(rig: Rig) -> None:
    stuck = idle(report=Report(status="BLOCKED", recommendation="the key is missing", exit_signal=True))
    state, agent = await rig.run([stuck, stuck])
    assert (state.stop_reason, state.stop_detail) == ("blocked", "the key is missing")
    assert "reported BLOCKED and had tried nothing: the key is missing" in agent.orders[1].prompt


@pytest.mark.parametrize(
    ("policy", "tries"), [(Policy(max_runs=1), 0), (Policy(max_runs=9, completion_match="published"), 0)]
)
async def test_blocked_gets_no_other_try_beyond_a_limit_or_where_the_agent_is_taken_at_its_word(
    rig: Rig, policy: Policy, tries: int
) -> None:
    stuck = idle(report=Report(status="BLOCKED", recommendation="the key is missing", exit_signal=True))
    state, _ = await rig.run([stuck], policy)
    assert (state.stop_reason, state.attempts) == ("blocked", 1 + tries)


async def test_a_resumed_run_keeps_its_counters(rig: Rig) -> None:
    await rig.run(itertools.repeat(counting(rig.repo / "n.txt")), Policy(max_runs=2))
    await rig.say(ev.LimitsChanged(by="u", changes={"max_runs": 3}))
    state, agent = await rig.resume(itertools.repeat(counting(rig.repo / "n.txt")))
    assert (state.successes, len(agent.orders), agent.orders[0].iteration_num) == (3, 1, 3)

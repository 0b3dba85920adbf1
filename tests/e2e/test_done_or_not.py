"""On the real Claude Code: words never stop a run, being stuck does, and N means N."""

from pathlib import Path

import pytest

from e2e.kit import finished, staged, working
from untildone.rehearsal.scenario import Reply, Scenario, ToolCall, shipped_scenario

pytestmark = pytest.mark.claude


def bash(command: str, text: str = "") -> Reply:
    return Reply(text=text, tools=(ToolCall(name="Bash", input={"command": command}),))


def test_words_that_are_no_claim_stop_nothing_n_means_n_and_every_reply_is_booked(tmp_path: Path) -> None:
    """A budget is set and not reached: one Claude process serves all iterations all the same."""
    lies = shipped_scenario("lying")
    with staged(tmp_path, lies) as stage:
        own = tmp_path / "own"
        limits = ("-m", "7", "--max-cost", "3.00", "--stagnation-threshold", "99")
        result = stage.result("run", "lie", *limits, "--allowed-tools", "Bash", "--config-dir", str(own))
        assert (result["exit_reason"], result["exit_code"], result["success"]) == ("max_runs_reached", 3, False)
        assert (result["loops_completed"], result["attempts"]) == (7, 7)
        events = stage.events(result["run_id"])
        replies = [event for event in events if event["event_type"] == "agent.reply"]
        assert len(stage.model.ledger.served()) == len(replies) >= sum(map(len, lies.iterations))
        assert result["total_cost_usd"] == pytest.approx(stage.ledger_usd(), abs=1e-9)
        starts = [event["event_data"] for event in events if event["event_type"] == "agent.started"]
        assert [start["warm"] for start in starts] == [False] + [True] * 6
        assert len({start["pid"] for start in starts}) == 1
        assert len(list(own.glob("projects/*/*.jsonl"))) == 7, "the transcripts are in the folder that was asked for"
        assert not Path(stage.env["CLAUDE_CONFIG_DIR"]).exists()


@pytest.mark.soak
def test_changes_and_reading_are_work_and_the_same_error_again_and_again_is_not(tmp_path: Path) -> None:
    """Outside the soak: tests/core/test_breaker.py and test_progress.py, and the stuck agents of tests/corpus."""
    same = Reply(text=working("Error: the test still fails at line 12. I changed the code."))
    changes = ((bash("echo $RANDOM$RANDOM >> a.txt"), same),) * 3
    looks = tuple((bash(f"ls -la {n} 2>/dev/null; true"), Reply(text=working("I looked."))) for n in range(3))
    work = (*changes, *looks)
    scenario = Scenario(name="stuck", iterations=(*work, *shipped_scenario("stuck").iterations))
    with staged(tmp_path, scenario) as stage:
        thresholds = ("--same-error-threshold", "3", "--stagnation-threshold", "3")
        result = stage.result_here("run", "get unstuck", "-m", "50", "--allowed-tools", "Bash", *thresholds)
        assert (result["exit_reason"], result["exit_code"]) == ("circuit_open", 4)
        assert len(work) < result["attempts"] <= len(work) + 3
        assert len(stage.git("log", "--oneline").splitlines()) == 1 + len(changes)


@pytest.mark.soak
def test_no_evidence_of_work_opens_it_at_the_published_threshold(tmp_path: Path) -> None:
    with staged(tmp_path, Scenario(name="idle", replies=(Reply(text="I thought about it."),))) as stage:
        result = stage.result_here("run", "think", "-m", "50")
        assert (result["exit_reason"], result["attempts"]) == ("circuit_open", 3)


@pytest.mark.soak
@pytest.mark.parametrize("wanted", [1, 2])
def test_n_means_exactly_n(tmp_path: Path, wanted: int) -> None:
    with staged(tmp_path, shipped_scenario("trivial")) as stage:
        result = stage.result_here("run", "count", "-m", str(wanted))
        ended = (result["exit_reason"], result["loops_completed"], result["attempts"])
        assert ended == ("max_runs_reached", wanted, wanted)
        assert len(stage.model.ledger.served()) == wanted


@pytest.mark.soak
def test_what_the_last_question_brings_to_light_is_done_next_and_a_blocked_agent_never_succeeds(
    tmp_path: Path,
) -> None:
    left = finished().replace("RECOMMENDATION: go on", "REMAINING: the docs")
    answer = Reply(when="One question about your last message", text=left)
    scenario = Scenario(
        name="asked", iterations=((Reply(text=finished()), answer),) * 2 + ((Reply(text=finished()),),) * 2
    )
    with staged(tmp_path, scenario) as stage:
        result = stage.result_here("run", "finish", "-m", "4")
        assert (result["exit_reason"], result["attempts"], result["verified"]) == ("completion_signal", 4, False)
        log = stage.here("log", result["run_id"]).stdout
        assert log.count("last question after iteration") == 2
        assert result["total_cost_usd"] == pytest.approx(stage.ledger_usd(), abs=1e-9)
    blocked = finished().replace("STATUS: COMPLETE", "STATUS: BLOCKED")
    with staged(tmp_path / "blocked", Scenario(name="blocked", replies=(Reply(text=blocked),))) as stage:
        result = stage.result_here("run", "finish", "-m", "4")
        assert (result["exit_reason"], result["exit_code"], result["attempts"]) == ("blocked", 5, 2)
        result = stage.result_here("run", "finish", "-m", "4", "--profile", "clawker", "--new")
        assert (result["exit_reason"], result["exit_code"], result["attempts"]) == ("blocked", 5, 1)


@pytest.mark.soak
def test_completion_and_a_limit_in_the_same_iteration_is_completion(tmp_path: Path) -> None:
    with staged(tmp_path, Scenario(name="both", replies=(Reply(text=finished()),))) as stage:
        result = stage.result_here("run", "finish", "-m", "2", "--max-cost", "0.0001")
        assert result["exit_reason"] == "max_cost_reached"
        result = stage.result_here("run", "finish", "-m", "2", "--new")
        assert (result["exit_reason"], result["success"], result["exit_code"]) == ("completion_signal", True, 0)

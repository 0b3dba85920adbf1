"""On the real Claude Code: words never stop a run, being stuck does, and N means N."""

from pathlib import Path

import pytest

from e2e.kit import finished, staged, working
from untildone.rehearsal.scenario import Reply, Scenario, ToolCall, shipped_scenario

pytestmark = pytest.mark.claude


def bash(command: str, text: str = "") -> Reply:
    return Reply(text=text, tools=(ToolCall(name="Bash", input={"command": command}),))


def test_a_signal_that_is_no_claim_never_stops_a_run(tmp_path: Path) -> None:
    with staged(tmp_path, shipped_scenario("lying")) as stage:
        result = stage.result("run", "lie", "-m", "7", "--stagnation-threshold", "99", "--allowed-tools", "Bash")
        assert (result["exit_reason"], result["loops_completed"], result["exit_code"]) == ("max_runs_reached", 7, 3)
        assert result["success"] is False


def test_the_same_error_each_time_opens_the_breaker_within_five(tmp_path: Path) -> None:
    with staged(tmp_path, shipped_scenario("stuck")) as stage:
        result = stage.result("run", "get unstuck", "-m", "50", "--allowed-tools", "Bash")
        assert (result["exit_reason"], result["exit_code"]) == ("circuit_open", 4)
        assert result["attempts"] <= 5


def test_similar_words_with_real_changes_never_open_it(tmp_path: Path) -> None:
    change = bash("echo $RANDOM$RANDOM >> a.txt")
    same = Reply(text=working("Error: the test still fails at line 12. I changed the code."))
    with staged(tmp_path, Scenario(name="same", iterations=((change, same),) * 8)) as stage:
        result = stage.result("run", "change things", "-m", "8", "--allowed-tools", "Bash")
        assert (result["exit_reason"], result["loops_completed"]) == ("max_runs_reached", 8)
        assert len(stage.git("log", "--oneline").splitlines()) == 9


def test_reading_new_things_is_work(tmp_path: Path) -> None:
    looks = tuple((bash(f"ls -la {n} 2>/dev/null; true"), Reply(text=working("I looked."))) for n in range(6))
    with staged(tmp_path, Scenario(name="reader", iterations=looks)) as stage:
        result = stage.result("run", "read on", "-m", "6", "--allowed-tools", "Bash")
        assert (result["exit_reason"], result["loops_completed"]) == ("max_runs_reached", 6)


def test_no_evidence_of_work_opens_it_at_the_published_threshold(tmp_path: Path) -> None:
    with staged(tmp_path, Scenario(name="idle", replies=(Reply(text="I thought about it."),))) as stage:
        result = stage.result("run", "think", "-m", "50")
        assert (result["exit_reason"], result["attempts"]) == ("circuit_open", 3)


@pytest.mark.parametrize("wanted", [1, 2, 7])
def test_n_means_exactly_n(tmp_path: Path, wanted: int) -> None:
    with staged(tmp_path, shipped_scenario("trivial")) as stage:
        result = stage.result("run", "count", "-m", str(wanted))
        assert (result["exit_reason"], result["loops_completed"], result["attempts"]) == (
            "max_runs_reached",
            wanted,
            wanted,
        )
        assert len(stage.model.ledger.served()) == wanted
        assert result["total_cost_usd"] == pytest.approx(stage.ledger_usd(), abs=1e-9)


def test_completion_and_a_limit_in_the_same_iteration_is_completion(tmp_path: Path) -> None:
    with staged(tmp_path, Scenario(name="both", replies=(Reply(text=finished()),))) as stage:
        result = stage.result("run", "finish", "-m", "2", "--max-cost", "0.0001")
        assert result["exit_reason"] == "max_cost_reached"
    with staged(tmp_path, Scenario(name="both", replies=(Reply(text=finished()),))) as stage:
        result = stage.result("run", "finish", "-m", "2", "--new")
        assert (result["exit_reason"], result["success"], result["exit_code"]) == ("completion_signal", True, 0)


def test_a_claim_is_checked_and_its_failure_reaches_the_model(tmp_path: Path) -> None:
    script = (
        (Reply(text=finished()),),
        (bash("touch b.txt"), Reply(text=finished("Now it is there."))),
    )
    with staged(tmp_path, Scenario(name="claim", iterations=script)) as stage:
        check = "test -f b.txt || { echo b.txt-is-missing; exit 3; }"
        result = stage.result("run", "make b.txt", "-m", "5", "--check", check, "--allowed-tools", "Bash")
        assert (result["exit_reason"], result["verified"], result["attempts"]) == ("validation_passed", True, 2)
        told = [str(request) for request in stage.model.requests]
        assert not any("b.txt-is-missing\\n" in text or "exit 3" in text for text in told[:1])
        assert any("b.txt-is-missing" in text for text in told[1:])

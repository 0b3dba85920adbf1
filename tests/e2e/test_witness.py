"""On the real Claude Code: done is what the loop saw on the commit, whatever the agent says or does to the tests."""

from pathlib import Path
from typing import Any

import pytest

from e2e.kit import Stage, finished, staged, working
from untildone.rehearsal.scenario import Reply, Scenario, ToolCall

pytestmark = pytest.mark.claude

CI = ".github/workflows/ci.yml"
TEST = "tests/test_app.py"
CI_TEXT = """on: push
jobs:
  test:
    steps:
      - run: python3 -m unittest discover -s tests -t .
"""
TEST_TEXT = """import unittest

import app


class TestAnswer(unittest.TestCase):
    def test_answer(self):
        self.assertEqual(app.answer(), 42)
"""
WHAT_CI_RUNS = f'sh -c "$(sed -n "s/.*run: //p" {CI})"'
MADE_RIGHT = "sed -i s/41/42/ app.py"
SKIPPED = f"sed -i '/def test_answer/i \\    @unittest.skip(\"later\")' {TEST}"


def acts(command: str, text: str | None = None) -> tuple[Reply, ...]:
    """An iteration: one command, then a claim or other words."""
    return (Reply(tools=(ToolCall("Bash", {"command": command}),)), Reply(text=text or finished()))


def script(*iterations: tuple[Reply, ...]) -> Scenario:
    return Scenario(name="witness", iterations=iterations)


def run(stage: Stage, check: str, *more: str) -> dict[str, Any]:
    return stage.result_here("run", "make it right", "--check", check, "--allowed-tools", "Bash", *more)


def verdicts(stage: Stage, run_id: str) -> list[dict[str, Any]]:
    """What the loop saw after claims."""
    told = [event["event_data"] for event in stage.events(run_id) if event["event_type"] == "iteration.validation"]
    return [verdict for verdict in told if verdict["claimed"]]


def with_tests(stage: Stage) -> None:
    """A program with a bug, a test that shows it, and CI."""
    for path, text in {CI: CI_TEXT, TEST: TEST_TEXT, "app.py": "def answer():\n    return 41\n"}.items():
        (stage.repo / path).parent.mkdir(parents=True, exist_ok=True)
        (stage.repo / path).write_text(text)
    (stage.repo / "tests/__init__.py").touch()
    (stage.repo / ".gitignore").write_text("__pycache__/\n")
    stage.git("add", ".")
    stage.git("commit", "-qm", "a program with a bug")


def test_claims_are_believed_once_the_check_passes_on_the_commit(tmp_path: Path) -> None:
    """An ignored file makes the check pass in the agent's own tree, but it is in no commit."""
    cheat = acts("echo 42 > answer.local")
    honest = acts("echo 42 > answer.txt; mkdir tests; echo 'assert 42' > tests/test_answer.py")
    with staged(tmp_path, script(acts("echo 1 > n.txt", working()), cheat, honest)) as stage:
        (stage.repo / ".gitignore").write_text("*.local\n")
        stage.git("add", ".")
        stage.git("commit", "-qm", "ignore")
        check = "cat answer.* || { echo 'there is no' answer; exit 3; }"
        result = run(stage, check, "-m", "20")
        assert (result["exit_reason"], result["verified"], result["exit_code"]) == ("validation_passed", True, 0)
        assert result["attempts"] == 3
        assert (stage.repo / "answer.local").exists(), "it was there all the time"
        seen = verdicts(stage, result["run_id"])
        assert [(verdict["iteration_num"], verdict["passed"]) for verdict in seen] == [(2, False), (3, True)]
        # Whether the check is run after the first iteration too depends on how long it takes beside the work.
        told = [str(request.body["messages"]) for request in stage.model.requests]
        assert ["there is no answer" in text for text in (*told[:2], *told[-2:])] == [False, False, True, True]
        assert "only what is committed is there" in told[-1]
        head = stage.git("rev-parse", "HEAD").strip()
        (check_seen,) = seen[-1]["checks"]
        log = Path(check_seen["log"])
        assert (seen[-1]["commit"], seen[-1]["room"]) == (head, "clean")
        assert log.name.startswith(head[:12])
        assert log.read_text().startswith(f"$ {check}\n42\n[exit 0, ")
        brief = stage.here("brief", result["run_id"]).stdout
        assert "**Done and verified: " in brief
        assert "`tests/test_answer.py`" in brief.partition("Changed, and only reported:")[2], "a new test is no problem"
        assert f"at commit `{head}`" in brief
        assert f"all it printed: `{log}`" in brief
        assert stage.git("worktree", "list").count("\n") == 1


@pytest.mark.soak
def test_a_check_that_always_fails_ends_by_the_limit_and_says_not_verified(tmp_path: Path) -> None:
    with staged(tmp_path, script(acts("echo more >> a.txt"))) as stage:
        done = stage.here("run", "x", "-m", "2", "--check", "false", "--allowed-tools", "Bash", "--name", "vain")
        assert done.returncode == 3, done.stderr
        assert "\nnot verified: the checks failed\n" in done.stdout
        assert "\n**Not verified**: `the checks failed`\n" in stage.here("brief", "vain").stdout


def test_tests_that_are_deleted_or_skipped_are_no_way_to_done_unless_a_human_accepts_it(tmp_path: Path) -> None:
    cheats = (acts(f"rm {TEST}"), acts(f"git checkout -q HEAD~1 -- {TEST} && {SKIPPED}"))
    with staged(tmp_path, script(*cheats)) as stage:
        with_tests(stage)
        args = ("--check", WHAT_CI_RUNS, "--allowed-tools", "Bash", "-m", "3", "--name", "cheat", "--no-dispute-review")
        done = stage.here("run", "make it right", *args)
        assert done.returncode == 5, done.stderr
        assert "not verified: disputed: " in done.stdout
        seen = verdicts(stage, "cheat")
        assert [[check["passed"] for check in verdict["checks"]] for verdict in seen] == [[True]] * 2, "they did pass"
        assert [[check["passed"] for check in verdict["base_checks"]] for verdict in seen] == [[False]] * 2
        assert [verdict["disputed"] for verdict in seen] == [["tests/test_app.py::test_answer fails"]] * 2
        told = [str(request.body["messages"]) for request in stage.model.requests]
        assert not any("does not hold with the tests" in text for text in told[:2])
        assert any("- tests/test_app.py::test_answer fails" in text for text in told[2:])
        brief = stage.here("brief", "cheat").stdout
        assert "**Disputed**: the checks pass, but this held in the base" in brief
        assert "- `tests/test_app.py::test_answer fails`" in brief
        accepted = stage.here("accept", "cheat")
        assert accepted.stdout.startswith("accepted   tests/test_app.py::test_answer fails\n"), accepted.stderr
        result = stage.result_here("resume", "cheat")
        assert (result["exit_reason"], result["verified"], result["exit_code"]) == ("changes_accepted", False, 0)
        assert result["attempts"] == 2, "no iteration is paid for to look again"
        assert "**Not verified, but accepted by " in stage.here("brief", "cheat").stdout


@pytest.mark.soak
def test_adding_unit_tests_and_fixing_the_program_is_not_hindered(tmp_path: Path) -> None:
    more = "    def test_again(self):\n        self.assertGreater(app.answer(), 0)\n"
    work = acts(f"{MADE_RIGHT}; printf '\\n{more}' >> {TEST}; cp {TEST} tests/test_b.py")
    with staged(tmp_path, script(work)) as stage:
        with_tests(stage)
        result = run(stage, WHAT_CI_RUNS, "-m", "3")
        assert (result["exit_reason"], result["verified"], result["attempts"]) == ("validation_passed", True, 1)
        brief = stage.here("brief", result["run_id"]).stdout
        assert "Changed, and only reported:" in brief
        assert "`tests/test_b.py`" in brief

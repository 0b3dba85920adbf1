"""`loop iterate|tasks|status|reset`, as clawker published them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli.cli_kit import FIRST, SUSPENDED, Runs, Say
from untildone.core.events import ResetRequested
from untildone.hook import register

Plan = Callable[..., Any]


@pytest.fixture
def plan(say: Say) -> Plan:
    """What a command would run, as `--dry-run` tells programs."""

    def ask(*argv: str) -> Any:
        at = argv.index("--") if "--" in argv else len(argv)
        said = say(*argv[:at], "--dry-run", "--json", *argv[at:])
        assert said.code == 0, said.err
        return json.loads(said.out)

    return ask


def test_iterate_is_run_under_its_older_name(plan: Plan, project: Path) -> None:
    (project / "goal.md").write_text("Port it\n")
    flags = ("--max-loops", "7", "--max-cost", "3", "--check", "make test", "--skip-permissions", "--image", "node:20")
    new = plan("run", "Port it", *flags, "--", "--effort", "high")
    assert (new["policy"]["max_iterations"], new["spec"]["options"]["image"]) == (7, "node:20")
    assert new["spec"]["options"]["extra_args"] == ["--effort", "high"]
    assert plan("loop", "iterate", "-p", "Port it", *flags, "--", "--effort", "high") == new
    assert plan("loop", "iterate", "--prompt", "Port it", *flags, "--", "--effort", "high") == new
    assert plan("loop", "iterate", "--prompt-file", "goal.md", *flags, "--", "--effort", "high") == new


def test_tasks_is_tasks_under_its_older_name(plan: Plan, project: Path) -> None:
    (project / "TODO.md").write_text("- [ ] one\n")
    (project / "how.md").write_text("Do one of: %s")
    told = ("-m", "3", "--max-loops", "9", "--task-prompt-file", "how.md")
    assert plan("loop", "tasks", "--tasks", "TODO.md", *told) == plan("tasks", "TODO.md", *told)


@pytest.mark.parametrize(
    ("argv", "means"),
    [
        (("--prompt", "a", "--prompt-file", "b"), "prompt-file"),
        ((), "a goal is missing"),
        (("--prompt", "  "), "the goal is empty"),
        (("--prompt", "a", "--agent", "claude_cli"), "no option --agent"),
    ],
)
def test_iterate_takes_one_goal_and_no_agent(say: Say, argv: tuple[str, ...], means: str) -> None:
    said = say("loop", "iterate", *argv, "--dry-run")
    assert (said.code, means in said.err) == (2, True), said.err


def test_tasks_needs_its_file_and_takes_no_agent(say: Say, project: Path) -> None:
    assert "--tasks" in say("loop", "tasks", "--dry-run").err
    (project / "TODO.md").write_text("- [ ] one\n")
    said = say("loop", "tasks", "--tasks", "TODO.md", "--agent", "dev", "--dry-run")
    assert (said.code, "no option --agent" in said.err) == (2, True), said.err


def test_fifty_iterations_bound_them_unless_something_says_otherwise(
    say: Say, plan: Plan, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def most(*argv: str) -> Any:
        return plan("loop", "iterate", "-p", "Port it", *argv)["policy"]["max_iterations"]

    assert "nothing limits this run" in say("run", "Port it", "--dry-run").err
    assert most() == 50
    assert most("--max-loops", "3") == 3
    assert most("--profile", "clawker") == 50
    (project / "untildone.toml").write_text("max_iterations = 20\n")
    assert most() == 20, "an untrusted file may lower it"
    (project / "untildone.toml").write_text("max_iterations = 90\n")
    assert "not trusted" in say("loop", "iterate", "-p", "Port it", "--dry-run").err
    monkeypatch.setenv("UNTILDONE_MAX_ITERATIONS", "60")
    assert most() == 60


def test_status_serves_both_kinds(say: Say, runs: Runs, project: Path) -> None:
    assert json.loads(say("loop", "status", "--json").out)["run"] is None
    runs.begin(project, *FIRST, SUSPENDED)
    assert say("loop", "status").out.startswith(say("status").out.rstrip())
    assert "no loop is running" not in say("loop", "status").out
    assert json.loads(say("loop", "status", "--json").out)["run"]["name"] == "night"
    assert say("loop", "start", "Make it work").code == 0
    both = say("loop", "status").out
    assert "night" in both
    assert "Make it work" in both
    told = json.loads(say("loop", "status", "--json").out)
    assert told["loop"]["project"] == str(project)


def test_a_loop_in_a_session_is_shown_once(say: Say, project: Path) -> None:
    assert say("loop", "start", "Make it work").code == 0
    assert say("loop", "status").out.count("Make it work") == 1
    told = json.loads(say("loop", "status", "--json").out)
    assert (told["loop"]["project"], told["run"]) == (str(project), None)


@pytest.mark.parametrize("named", ["night", "abc123def456", "abc1"])
def test_agent_picks_a_run_wherever_it_works(say: Say, runs: Runs, project: Path, tmp_path: Path, named: str) -> None:
    runs.begin(project, *FIRST, SUSPENDED)
    pick = ("loop", "status", "--agent", named, "--cwd", str(tmp_path))
    shown = say(*pick)
    assert (shown.code, shown.out) == (0, say("status", "night").out)
    told = json.loads(say(*pick, "--json").out)
    assert (told["exists"], told["name"]) == (True, "night")
    assert {"agent", "loops_completed", "initial_prompt"} <= told["session"].keys()
    assert {"tripped", "no_progress_count"} <= told["circuit"].keys()


def test_no_such_agent_is_no_error_when_looking_as_published(say: Say, runs: Runs, project: Path) -> None:
    runs.begin(project, SUSPENDED)
    said = say("loop", "status", "--agent", "nobody", "--json")
    assert (said.code, json.loads(said.out)) == (0, {"exists": False})
    assert say("loop", "reset", "--agent", "nobody").code != 0


def test_reset_serves_both_kinds(say: Say, runs: Runs, project: Path, store: Path) -> None:
    runs.begin(project, *FIRST, SUSPENDED)
    assert "cleared breaker" in say("loop", "reset").out
    assert runs.last() == ResetRequested(by="cli", circuit=True, session=False, history=False)
    said = say("loop", "reset", "--agent", "night", "--all", "-q")
    assert (said.code, said.out) == (0, "")
    assert runs.last() == ResetRequested(by="cli", circuit=True, session=True, history=True)
    assert json.loads(say("loop", "reset", "--agent", "night", "--json").out)["name"] == "night"
    before = runs.last()
    loop = json.loads(say("loop", "start", "Make it work", "--json").out)["loop"]
    assert json.loads(say("loop", "reset", "--json").out) == {"loop": loop, "failures": 0, "turns": False}
    told = json.loads(say("loop", "reset", "--agent", loop, "--all", "--json").out)
    assert told == {"loop": loop, "failures": 0, "turns": True}
    assert (register.find(str(store), str(project)) or {})["failures"] == 0
    assert runs.last() == before
    assert "night: cleared breaker" in say("loop", "reset", "--agent", "night").out, "named, it is meant"

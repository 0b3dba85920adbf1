"""On the real Claude Code: a reviewer looks and cannot write, its word counts, and so does every cent of it."""

import json
from pathlib import Path
from typing import Any

import pytest

from e2e.kit import finished, staged
from untildone.rehearsal.scenario import Reply, Scenario, ToolCall

pytestmark = pytest.mark.claude

APPROVE = Reply(text="It does what it should.\n\nREVIEW: APPROVE")
CHANGES = Reply(text="b.txt:1 must say two\n\nREVIEW: CHANGES")
RUN = ("run", "make b.txt", "-m", "9", "--check", "test -f b.txt", "--review", "landing", "--allowed-tools", "Bash")


def call(tool: str, **given: Any) -> Reply:
    return Reply(tools=(ToolCall(name=tool, input=given),))


def work(text: str) -> tuple[Reply, ...]:
    return (call("Bash", command=f"echo {text} > b.txt"), Reply(text=finished()))


def writes_of(repo: Path) -> tuple[Reply, ...]:
    """What a reviewer may not do, whatever the repository allows."""
    return (
        call("Write", file_path=f"{repo}/stray.txt", content="oops"),
        call("Edit", file_path=f"{repo}/a.txt", old_string="a", new_string="oops"),
        call("Bash", command="echo oops > stray.txt"),
        call("Bash", command="git diff; rm a.txt"),
        call("Bash", command="git diff --output=stray.txt HEAD~1 HEAD"),
        call("Bash", command="git -c alias.x='!touch stray.txt' x"),
        call("Bash", command="git commit --allow-empty -m mine"),
    )


@pytest.mark.parametrize("agent", ["claude_sdk", pytest.param("claude_cli", marks=pytest.mark.soak)])
def test_a_reviewer_looks_cannot_write_asks_for_changes_and_then_approves(tmp_path: Path, agent: str) -> None:
    """The second review forgets its verdict and is asked for it once, by a hook that only the SDK has."""
    looks = call("Bash", command="git diff HEAD~1 HEAD")
    writes = writes_of(tmp_path / "repo")
    forgets = (Reply(text="It looks fine to me."),) if agent == "claude_sdk" else ()
    script = (work("one"), (looks, *writes, CHANGES), work("two"), (looks, *forgets, APPROVE))
    with staged(tmp_path, Scenario(name="review", iterations=script)) as stage:
        settings = stage.repo / ".claude/settings.json"
        settings.parent.mkdir()
        settings.write_text(json.dumps({"permissions": {"allow": ["Edit", "Write"]}}))
        stage.git("add", "-A")
        stage.git("commit", "-qm", "settings")
        result = stage.result_here(*RUN, "--review-agent", agent, "--review-model", "claude-haiku-4-5")
        assert (result["exit_reason"], result["attempts"], result["verified"]) == ("validation_passed", 2, True)
        assert result["total_cost_usd"] == pytest.approx(stage.ledger_usd(), abs=1e-9)
        asked = [str(request.body) for request in stage.model.requests]
        assert any("> b.txt:1 must say two" in body and "ASKS FOR CHANGES" in body for body in asked)
        assert any("+one" in body for body in asked), "it has seen the diff"
        assert ("without a verdict" in asked[-1]) == bool(forgets)
        models = {request.body["model"] for request in stage.model.requests if "You review the" in str(request.body)}
        assert len(models) == 1
        assert "haiku" in models.pop()
        assert stage.git("status", "--porcelain") == ""
        assert (stage.repo / "a.txt").read_text() == "a\n"
        assert not (stage.repo / "stray.txt").exists()
        assert stage.git("log", "--format=%s").splitlines().count("mine") == 0


WRITING_GIT = (
    "git diff --output=stray.txt HEAD~1 HEAD",
    "git diff --output stray.txt HEAD~1 HEAD",
    "git log -p --output=../stray.txt",
    "git show --'out'put=stray.txt HEAD",
    "git status && git diff \\--output=stray.txt HEAD~1",
    "git grep --open-files-in-pager='touch stray.txt' a",
    "git grep -O'touch stray.txt' a",
    "git -c alias.x='!touch stray.txt' x",
    "git -c core.pager='touch stray.txt' -p diff HEAD~1",
    "git config diff.external 'touch stray.txt'",
    "git diff --ext-diff HEAD~1",
    "git commit --allow-empty -m mine",
)


@pytest.mark.soak
@pytest.mark.parametrize("lets_git_pass", [False, True])
def test_no_git_of_a_reviewers_writes_even_if_its_user_lets_all_git_pass(tmp_path: Path, lets_git_pass: bool) -> None:
    tries = (*(call("Bash", command=command) for command in WRITING_GIT), APPROVE)
    looks = tuple(call("Bash", command=f"git {look}") for look in ("status", "log --oneline", "diff HEAD~1 HEAD"))
    with staged(tmp_path, Scenario(name="git", iterations=(work("one"), (*looks, *tries)))) as stage:
        if lets_git_pass:
            settings = Path(stage.env["CLAUDE_CONFIG_DIR"]) / "settings.json"
            settings.parent.mkdir(parents=True, exist_ok=True)
            settings.write_text(json.dumps({"permissions": {"allow": ["Bash(git:*)"]}}))
        result = stage.result_here(*RUN)
        assert result["exit_reason"] == "validation_passed"
        told = stage.events(result["run_id"])
        answers = [event["event_data"] for event in told if event["event_type"] == "agent.tool_result"][1:]
        refused = [answer["is_error"] for answer in answers]
        assert refused == [False] * len(looks) + [True] * len(WRITING_GIT), answers
        assert stage.git("status", "--porcelain") == ""
        assert "diff.external" not in (stage.repo / ".git/config").read_text()
        assert not (tmp_path / "stray.txt").exists()


@pytest.mark.soak
def test_two_who_do_not_agree_stop(tmp_path: Path) -> None:
    script = (work("one"), (CHANGES,), work("one"), (CHANGES,))
    with staged(tmp_path, Scenario(name="stalemate", iterations=script)) as stage:
        result = stage.result_here(*RUN, "--review-rounds", "2")
        assert (result["exit_reason"], result["exit_code"], result["attempts"]) == ("review_stalemate", 5, 2)
        assert result["total_cost_usd"] == pytest.approx(stage.ledger_usd(), abs=1e-9)


@pytest.mark.soak
def test_a_whole_commit_message_is_asked_for_and_used(tmp_path: Path) -> None:
    message = "Add b.txt\n\nNothing could be read from it before.\n\nCo-Authored-By: Claude <noreply@anthropic.com>"
    report = {"status": "COMPLETE", "exit_signal": True, "summary": "short", "commit_message": message}
    script = (
        call("Bash", command="echo b > b.txt"),
        call("mcp__untildone__report", **report),
        Reply(text="Done."),
    )
    with staged(tmp_path, Scenario(name="message", iterations=(script,))) as stage:
        result = stage.result_here(*RUN[:6], "--allowed-tools", "Bash", "--commit-message", "agent")
        assert result["exit_reason"] == "validation_passed"
        assert stage.git("log", "-1", "--format=%B").strip() == "Add b.txt\n\nNothing could be read from it before."
        assert "commit_message" in str(stage.model.requests[0].body["system"])

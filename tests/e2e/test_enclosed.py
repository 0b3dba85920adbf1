"""On the real Claude Code: a package that is installed in place, and help that no commit holds."""

import subprocess
import sys
from pathlib import Path

import pytest

from e2e.kit import Stage, finished, staged
from ports import own_port
from untildone.rehearsal.scenario import Reply, Scenario, ToolCall

pytestmark = pytest.mark.claude

PACKAGE = "try:\n    from pkg.local import VALUE\nexcept ImportError:\n    VALUE = 1\n"
SEES = "python -c 'import pkg; print(pkg.__file__, pkg.VALUE, flush=True); assert pkg.VALUE == 2'"


def acts(command: str) -> tuple[Reply, ...]:
    return (Reply(tools=(ToolCall("Bash", {"command": command}),)), Reply(text=finished()))


def installed_in_place(stage: Stage) -> None:
    """A package in src/, installed with `pip install -e .` in an environment that is active."""
    venv = stage.tmp / "home" / ".virtualenvs" / "pkg"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    (packages,) = venv.glob("lib/python*/site-packages")
    (packages / "__editable__.pkg.pth").write_text(f"{stage.repo}/src\n")
    stage.env |= {"VIRTUAL_ENV": str(venv), "PATH": f"{venv}/bin:{stage.env['PATH']}"}
    (stage.repo / "src" / "pkg").mkdir(parents=True)
    (stage.repo / "src" / "pkg" / "__init__.py").write_text(PACKAGE)
    (stage.repo / ".gitignore").write_text("local.py\n__pycache__/\n")
    stage.git("add", ".")
    stage.git("commit", "-qm", "a package")


def test_uncommitted_work_is_not_seen_and_what_lands_is_what_was_checked(tmp_path: Path) -> None:
    port = own_port()
    serves = f"setsid nohup python3 -m http.server {port} --bind 127.0.0.1 >/dev/null 2>&1 </dev/null & sleep 1"
    cheat = f"echo 'VALUE = 2' > src/pkg/local.py; touch ~/help; {serves}"
    reached = f'import socket; assert socket.socket().connect_ex(("127.0.0.1", {port}))'
    with staged(
        tmp_path, Scenario(name="it", iterations=(acts(cheat), acts("echo 'VALUE = 2' > src/pkg/__init__.py")))
    ) as stage:
        installed_in_place(stage)
        checks = [word for check in (SEES, f"python -c '{reached}'", "! cat ~/help") for word in ("--check", check)]
        more = ("--allowed-tools", "Bash", "--worktree", "--land", "merge", "-m", "4", "--name", "it")
        result = stage.result_here("run", "x", *checks, *more)
        assert (result["exit_reason"], result["verified"], result["attempts"]) == ("validation_passed", True, 2), result
        events = stage.events("it")
        seen = [event["event_data"] for event in events if event["event_type"] == "iteration.validation"]
        assert [[check["passed"] for check in verdict["checks"]] for verdict in seen[:2]] == [
            [False, True, True], [True, True, True]
        ]  # fmt: skip
        assert {verdict.get("weaker", "") for verdict in seen} == {""}
        # The path is that of the tree it was installed from, and the content is the commit's.
        inside = f"{stage.repo}/src/pkg/__init__.py"
        assert [verdict["checks"][0]["output_tail"].splitlines()[0] for verdict in seen[:2]] == [
            f"{inside} 1",
            f"{inside} 2",
        ]
        assert Path(inside).read_text() == "VALUE = 2\n", "it has landed"
        started = [event["event_data"]["warm"] for event in events if event["event_type"] == "agent.started"]
        assert started == [False, True], "the agent itself went on"


def test_without_bubblewrap_every_report_says_that_the_proof_is_weaker_and_a_strict_one_is_refused(
    tmp_path: Path,
) -> None:
    without = ("bwrap", "--dev-bind", "/", "/", "--ro-bind", "/dev/null", "/usr/bin/bwrap", "--", sys.executable, "-m")
    args = ("untildone", "run", "x", "-m", "1", "--check", "test -f b.txt", "--allowed-tools", "Bash", "--name", "it")
    with staged(tmp_path, Scenario(name="it", iterations=(acts("touch b.txt"),))) as stage:

        def run(*more: str) -> subprocess.CompletedProcess[str]:
            argv = [*without, *args, *more]
            return subprocess.run(argv, cwd=stage.repo, env=stage.env, capture_output=True, text=True, check=False)

        refused = run("--proof", "strict")
        assert (refused.returncode, refused.stderr.count("\n")) == (2, 1), refused.stderr
        assert "--proof strict is not possible here: bubblewrap is not installed; install bubblewrap" in refused.stderr
        done = run()
        assert done.returncode == 0, done.stderr
        assert "\nproof: weaker, because bubblewrap is not installed\n" in done.stdout
        assert "**Proof: weaker**, because `bubblewrap is not installed`" in stage.here("brief", "it").stdout
        assert "weaker, because bubblewrap is not installed" in stage.here("status", "it").stdout


def test_a_strict_proof_is_refused_where_checks_run_in_the_tree(tmp_path: Path) -> None:
    with staged(tmp_path, Scenario(name="it", iterations=())) as stage:
        done = stage.here("run", "x", "-m", "1", "--check", "true", "--proof", "strict", "--check-in", "tree")
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
        assert "--proof strict needs a fresh checkout" in done.stderr

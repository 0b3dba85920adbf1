"""A worker that is started again, and the machine a run was taken from: neither undoes what a human wants."""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from e2e.kit import Stage, staged, working
from e2e.worker_kit import Server, until
from patience import PATIENCE
from untildone.rehearsal.scenario import Reply, Scenario, ToolCall

pytestmark = pytest.mark.claude

GATED = Reply(tools=(ToolCall("Bash", {"command": "until [ -e ../gate{i} ]; do sleep 0.2; done; echo {i} >> a.txt"}),))
"""What the agent does in each iteration: it waits for somebody outside, and then it changes something."""


@contextmanager
def sandbox(tmp: Path, server: Server, name: str, **env: str) -> Iterator[Stage]:
    with staged(tmp, Scenario(name=name, iterations=((GATED, Reply(text=working())),) * 6)) as stage:
        stage.env |= {
            "CALLBACK_URL": server.url, "SANDBOX_ID": name, "INITIAL_PROMPT": "Count.", "ALLOWED_TOOLS": "Bash",
            "CONTINUOUS_MODE": "true", "CONTINUOUS_MAX_RUNS": "30", "CONTINUOUS_MAX_COST_USD": "10", **env,
        }  # fmt: skip
        yield stage


@contextmanager
def at_work(stage: Stage, *command: str) -> Iterator[subprocess.Popen[str]]:
    """A driver; whatever happens, none is left behind."""
    with stage.popen(*command or ("worker",)) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            print(*process.communicate())


def killed_in_the_first(stage: Stage, server: Server, name: str, *orders: dict[str, object]) -> str:
    """A worker whose agent is at work gets orders, obeys, and dies."""
    stage.env["UNTILDONE_SANDBOX"] = "host"  # the agent waits for a file outside of its folder
    with at_work(stage) as worker:
        run_id = str(until(lambda: server.run_of(name), "the run")["run_id"])
        until(lambda: server.events(run_id, "agent.tool_use"), "the agent at work")
        for number, order in enumerate(orders, 1):
            server.post(f"/runs/{run_id}/orders", order)
            until(lambda n=number: len(obeyed(server, run_id)) == n, f"order {number}")
        worker.send_signal(signal.SIGKILL)
        worker.wait(PATIENCE)
    return run_id


def obeyed(server: Server, run_id: str) -> list[str]:
    names = ("continuous.limits_changed", "continuous.pause_requested")
    return [event["type"] for event in server.events(run_id, *names)]


def test_a_start_with_the_same_environment_undoes_neither_a_pause_nor_a_limit(server: Server, tmp_path: Path) -> None:
    with sandbox(tmp_path, server, "paused") as stage:
        orders = ({"kind": "limits", "max_cost_usd": 0.5}, {"kind": "pause"})
        run_id = killed_in_the_first(stage, server, "paused", *orders)
        begun = len(server.events(run_id, "iteration.started"))
        asked = len(stage.model.requests)
        (stage.tmp / "gate2").touch()
        with at_work(stage) as worker:
            until(lambda: len(server.events(run_id, "continuous.resumed")) == 2, "the second driver")
            until(lambda: server.events(run_id, "continuous.waiting"), "the wait")
            until(lambda: (server.run_of("paused") or {}).get("status") == "paused", "the pause")
            assert server.events(run_id, "continuous.settings_changed") == []
            assert len(server.events(run_id, "iteration.started")) == begun
            assert len(stage.model.requests) == asked
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(PATIENCE) == 0
        limits = stage.here("limits", run_id).stdout
        assert "of $0.50" in limits, limits
        # Another environment is another wish, and only about what it says otherwise.
        stage.env["CONTINUOUS_MAX_RUNS"] = "40"
        with at_work(stage) as worker:
            (changed,) = until(lambda: server.events(run_id, "continuous.settings_changed"), "the new limit")
            assert (changed["data"]["by"], changed["data"]["changes"]) == ("worker", ["max_runs = 40"])
            assert len(server.events(run_id, "iteration.started")) == begun
            server.post(f"/runs/{run_id}/orders", {"kind": "resume"})
            until(lambda: server.events(run_id, "iteration.completed"), "the iteration after the pause")
            until(lambda: len(server.events(run_id, "agent.tool_use")) == 3, "the agent at work in the next one")
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(PATIENCE) == 0
        assert server.events(run_id, "continuous.suspended")[-1]["data"]["stop_reason"] == "shutdown_signal"
        assert "of $0.50" in stage.here("limits", run_id).stdout


@pytest.mark.soak
def test_resuming_a_workers_run_reports_and_where_it_was_taken_from_nothing_goes_on(
    server: Server, tmp_path: Path
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    with sandbox(here, server, "old-home", CONTINUOUS_MAX_RUNS="1") as stage:
        (stage.tmp / "gate1").touch()
        assert stage.here("worker").returncode == 0
        run_id = str(until(lambda: server.run_of("old-home"), "the run")["run_id"])
        why = server.get(f"/runs/{run_id}")["why"]
        assert "--max-runs 2" in why
        assert f"--from-server {run_id}" in why
        (stage.tmp / "gate2").touch()
        done = stage.here("resume", run_id, "--max-runs", "2")
        assert done.returncode == 3, done
        run = server.get(f"/runs/{run_id}")
        assert (run["successes"], run["last_seq"]) == (2, stage.events(run_id)[-1]["seq"])

        other = Stage(there, stage.model)
        other.env |= {"UNTILDONE_SERVER": server.url, "UNTILDONE_TOKEN": server.operator}
        elsewhere = there / "new"
        elsewhere.mkdir()
        taken = other.here("resume", "--from-server", run_id, "--trust", "--cwd", str(elsewhere))
        assert taken.returncode == 3, taken  # its limit is reached there, too

        asked = len(stage.model.requests)
        for command in (("resume", run_id, "--max-runs", "9"), ("resume", run_id)):
            refused = stage.here(*command)
            assert refused.returncode == 2, refused
            (line,) = refused.stderr.splitlines()
            assert "another machine took" in line
            assert f"`untildone resume --from-server {run_id} --take`" in line
        assert stage.here("worker").returncode == 0
        assert len(stage.model.requests) == asked
        status = stage.here("status", run_id).stdout
        assert "another machine took over the run" in status, status
        assert "person" not in status
        assert server.get(f"/runs/{run_id}")["tenure"] == 1

        stage.env |= other.env | {"HOME": stage.env["HOME"], "UNTILDONE_HOME": stage.env["UNTILDONE_HOME"]}
        back = stage.here("resume", "--from-server", run_id, "--take", "--trust")
        assert back.returncode == 3, back
        assert server.get(f"/runs/{run_id}")["tenure"] == 2

"""Real workers with the real Claude Code, a real server that dies and comes back, and a real PostgreSQL behind it."""

import base64
import gzip
import json
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from e2e.kit import Stage, finished, staged, working
from e2e.worker_kit import Server, until, wired
from postgres_kit import Postgres
from untildone.core.printable import printable
from untildone.rehearsal.scenario import Reply, Scenario, ToolCall

pytestmark = pytest.mark.claude

GATED = "until [ -e ../gate{i} ]; do sleep 0.2; done; echo {i} >> a.txt"
"""What the agent does in each iteration: it waits for somebody outside, and then it changes something."""


@pytest.fixture
def mortal_server(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One that a test may kill and start again."""
    server = Server(tmp_path_factory.mktemp("mortal"), postgres.new_database(f"mortal_{uuid.uuid4().hex[:8]}"))
    server.start()
    yield server
    server.end()
    assert "Traceback" not in server.log()


def bash(command: str) -> Reply:
    return Reply(tools=(ToolCall("Bash", {"command": command}),))


@contextmanager
def worker_stage(tmp: Path, url: str, sandbox: str, *iterations: tuple[Reply, ...], **env: str) -> Iterator[Stage]:
    """A sandbox, configured by its environment alone."""
    with staged(tmp, Scenario(name=sandbox, iterations=iterations)) as stage:
        stage.env |= {
            "CALLBACK_URL": url, "SANDBOX_ID": sandbox, "INITIAL_PROMPT": "Count.", "ALLOWED_TOOLS": "Bash",
            "CONTINUOUS_MODE": "true", "CONTINUOUS_MAX_RUNS": "30", "TASK_ID": "task-7", "AGENT_ID": "agent-3", **env,
        }  # fmt: skip
        yield stage


@contextmanager
def at_work(stage: Stage) -> Iterator[subprocess.Popen[str]]:
    """A worker; whatever happens, none is left behind."""
    with stage.popen("worker") as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
                print(*process.communicate())


def ended(process: subprocess.Popen[str]) -> int:
    out, err = process.communicate(timeout=400)
    print(out, err)
    assert "Traceback" not in out + err
    return process.returncode


def worked(stage: Stage) -> int:
    """The exit code of a worker that comes to its end by itself, in this process."""
    done = stage.here("worker")
    print(done.stdout, done.stderr)
    assert "Traceback" not in done.stdout + done.stderr
    return done.returncode


def started(server: Server, run_id: str) -> int:
    """How many iterations the server knows to have begun."""
    return len(server.events(run_id, "iteration.started"))


def assert_same(server: Server, stage: Stage, run_id: str) -> None:
    """The server has what the worker's own log has: each event once, in order, and nothing else."""
    own, theirs = stage.events(run_id), server.events(run_id)
    assert [event["seq"] for event in theirs] == list(range(1, len(own) + 1))
    for mine, copy in zip(own, theirs, strict=True):
        assert (copy["seq"], copy["type"], copy["source"], copy["version"]) == (
            mine["seq"], mine["event_type"], mine["source"], mine["version"],
        )  # fmt: skip
        assert copy["at"] == pytest.approx(mine["at"], abs=1e-6)
        assert copy["data"] | {"task_id": "task-7", "agent_id": "agent-3"} == copy["data"]
        assert mine["event_data"].keys() <= copy["data"].keys()


def prompts(stage: Stage) -> list[str]:
    """The first thing said in every conversation: the prompts of the iterations, in their order."""
    asked = [request.body["messages"] for request in stage.model.requests]
    return [json.dumps(said) for said in asked if not any(one["role"] == "assistant" for one in said)]


def drama(server: Server, tmp: Path, *, kills: int, dark: float) -> None:
    """Deaths of the server, a cut wire for so many seconds, messages in between: nobody in the run notices."""
    iterations = ((bash(GATED), Reply(text=working())),) * (kills + 2)
    sandbox = f"drama-{kills}-{dark:.0f}"
    with (
        wired(server.port) as wire,
        worker_stage(tmp, wire.url, sandbox, *iterations) as stage,
        at_work(stage) as worker,
    ):
        run_id = until(lambda: server.run_of(sandbox), "the run")["run_id"]

        def await_iteration(number: int) -> None:
            until(lambda: started(server, run_id) >= number, f"iteration {number} at the server")

        def let_go_on(number: int) -> None:
            (stage.tmp / f"gate{number}").touch()

        orders = f"/runs/{run_id}/orders"
        for number in range(1, kills + 1):
            await_iteration(number)
            if number == kills:
                server.post(orders, {"kind": "message", "content": "first word"})
                server.post(orders, {"kind": "message", "content": "second word", "message_type": "guardian_nudge"})
            server.end(signal.SIGKILL)
            let_go_on(number)  # the agent goes on while there is nobody to tell
            server.start()
        await_iteration(kills + 1)
        server.post(f"/sandboxes/{sandbox}/messages", {"content": "third word", "message_type": "user_message"})
        until(lambda: "third word" in heard(server, run_id), "the third word")
        wire.cut()
        let_go_on(kills + 1)
        time.sleep(dark)  # the length of the cut is what is tried here
        assert worker.poll() is None
        wire.mend()
        calls = kills + 2
        until(lambda: len(server.events(run_id, "agent.tool_use")) >= calls, "the agent at work in the last iteration")
        server.post(orders, {"kind": "message", "content": "that will do", "message_type": "interrupt"})
        assert ended(worker) == 0
        assert_same(server, stage, run_id)
        assert_unnoticed(server, stage, run_id, done=kills + 1)


def heard(server: Server, run_id: str) -> list[str]:
    """What the worker was told, as it wrote it down."""
    return [event["data"]["content"] for event in server.events(run_id, "agent.message_injected")]


def assert_unnoticed(server: Server, stage: Stage, run_id: str, *, done: int) -> None:
    """As many requests, replies, commits and dollars as without any of it, and each message once."""
    run = server.get(f"/runs/{run_id}")
    assert run["successes"] == done
    failed = server.events(run_id, "iteration.failed", "continuous.waiting", "continuous.recovered")
    assert [event["data"]["error_type"] for event in failed] == ["stopped"]  # the one that the last word cut off
    (stop,) = server.events(run_id, "continuous.suspended")
    assert stop["data"]["stop_reason"] == "stop_requested"
    assert len(stage.git("log", "--oneline").splitlines()) == 1 + done
    assert (stage.repo / "a.txt").read_text().split() == ["a", *map(str, range(1, done + 1))]
    assert run["cost_usd"] == pytest.approx(stage.ledger_usd(), abs=1e-9)
    told = "".join(prompts(stage))
    assert [told.count(word) for word in ("first word", "second word", "third word")] == [1, 1, 1]
    assert heard(server, run_id) == ["first word", "second word", "third word"]


@pytest.mark.soak
def test_the_server_dies_twice_and_the_wire_is_cut_but_every_event_arrives_once(
    mortal_server: Server, tmp_path: Path
) -> None:
    drama(mortal_server, tmp_path, kills=2, dark=1.0)


@pytest.mark.soak
@pytest.mark.parametrize("dark", [3.0, 30.0])
def test_the_server_dies_ten_times_and_there_is_no_network_for_a_while(
    mortal_server: Server, tmp_path: Path, dark: float
) -> None:
    drama(mortal_server, tmp_path, kills=10, dark=dark)


def test_once_from_a_conversation_that_came_along_with_tasks_and_a_token(server: Server, tmp_path: Path) -> None:
    token = server.token("--scope", "worker", "--sandbox", "once")
    first = tmp_path / "first"
    first.mkdir()
    with worker_stage(first, server.url, "earlier", (Reply(text=working("The word is swordfish.")),)) as stage:
        stage.env["CONTINUOUS_MODE"] = "false"
        assert worked(stage) == 0  # one iteration that claimed nothing: a limit, as planned
        run = until(lambda: server.run_of("earlier"), "the first run")
        session = server.events(run["run_id"], "iteration.completed")[0]["data"]["session_id"]
        (transcript,) = (stage.tmp / "home").rglob(f"{session}.jsonl")
        content = transcript.read_bytes()

    def task(name: str, **given: str) -> Reply:
        return Reply(tools=(ToolCall(f"mcp__untildone__{name}", given),))

    second = tmp_path / "second"
    second.mkdir()
    script = (task("task_add", title="say it"), task("task_done", id="1"), bash("env"), Reply(text=finished()))
    more = {
        "CONTINUOUS_MODE": "false", "CALLBACK_TOKEN": token, "RESUME_SESSION_ID": session, "FORK_SESSION": "true",
        "SESSION_TRANSCRIPT_B64": base64.b64encode(gzip.compress(content)).decode(), "ENABLE_SPEC_TOOLS": "true",
        "CONVERSATION_CONTEXT": "We spoke of fish.", "SYSTEM_PROMPT": "You are a stone.", "REPORT_TRANSCRIPT": "1",
        "BRANCH_NAME": "feature/fish", "TICKET_TITLE": "Fish ticket", "ENABLE_SUBAGENTS": "false",
    }  # fmt: skip
    with worker_stage(second, server.url, "once", script, **more) as stage:
        assert worked(stage) == 0
        run = until(lambda: server.run_of("once", "completed"), "the end of the second run")
        assert (run["success"], run["verified"], run["attempts"]) == (True, True, 1)
        asked = stage.model.requests[0].body
        conversation, system = json.dumps(asked["messages"]), json.dumps(asked["system"])
        assert "The word is swordfish." in conversation
        assert "> We spoke of fish." in conversation
        assert "You are a stone." in system
        assert "Fish ticket" in system
        assert not {"Task", "Agent"} & {tool["name"] for tool in asked["tools"]}
        assert stage.git("branch", "--show-current").strip() == "feature/fish"
        events = server.events(run["run_id"])
        completed = next(event["data"] for event in events if event["type"] == "iteration.completed")
        assert completed["session_id"] != session
        assert b"swordfish" in base64.b64decode(completed["transcript_b64"])
        whole = json.dumps(events)
        assert token not in whole
        assert "CALLBACK_TOKEN" not in "".join(e["data"]["text"] for e in events if e["type"] == "agent.tool_result")
        assert printable(whole) == whole
        assert_same(server, stage, run["run_id"])


@pytest.mark.soak
def test_a_signal_is_a_planned_stop(server: Server, tmp_path: Path) -> None:
    """Outside the soak, the last worker of test_worker_again.py gets one."""
    script = (bash(GATED), Reply(text=working()))
    with worker_stage(tmp_path, server.url, "signalled", script, CONTINUOUS_MODE="false") as stage:
        with at_work(stage) as worker:
            run_id = until(lambda: server.run_of("signalled"), "the run")["run_id"]
            until(lambda: server.events(run_id, "agent.tool_use"), "the agent at work")
            worker.send_signal(signal.SIGTERM)
            assert ended(worker) == 0
        (last,) = server.events(run_id, "continuous.suspended")
        assert last["data"]["stop_reason"] == "shutdown_signal"
        # The same environment again: the sandbox was restarted, and the run goes on.
        (stage.tmp / "gate1").touch()
        (stage.tmp / "gate2").touch()
        assert worked(stage) == 0
        until(lambda: (server.run_of("signalled") or {}).get("successes") == 1, "the success")
        run = until(lambda: server.run_of("signalled"), "the run")
        assert run["run_id"] == run_id
        assert_same(server, stage, run_id)


@pytest.mark.soak
def test_errors_are_not_a_planned_stop(server: Server, tmp_path: Path) -> None:
    failing = Reply(status=400, message="no such luck")
    env = {"CONTINUOUS_MODE": "false", "UNTILDONE_ERROR_THRESHOLD": "1"}
    with worker_stage(tmp_path, server.url, "failing", (failing,), **env) as stage:
        assert worked(stage) == 1
        run = until(lambda: server.run_of("failing"), "the failed run")
        (last,) = server.events(run["run_id"], "continuous.suspended")
        assert last["data"]["stop_reason"] == "consecutive_errors"


def test_a_wrong_configuration_is_told_at_once_and_reported_to_nobody(server: Server, tmp_path: Path) -> None:
    wrong = {"MAX_TURNS": "many", "CONTINUOUS_MAX_RUNS": "", "FORK_SESSION": "1", "UNTILDONE_LAND": "moon"}
    with worker_stage(tmp_path, server.url, "wrong", **wrong) as stage:
        said = stage.here("worker")
        assert (said.returncode, said.stdout) == (1, "")
        assert len(said.stderr.splitlines()) == 4
        assert not (stage.tmp / "state").exists()
    assert server.run_of("wrong") is None

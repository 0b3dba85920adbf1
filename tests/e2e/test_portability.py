"""A run that is killed on one machine goes on on another: full conversation, same tree, right books, one driver."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from archives import new_archive
from e2e.kit import Stage, finished, staged, working
from e2e.worker_kit import Server, until
from patience import PATIENCE
from untildone.rehearsal.scenario import Reply, Scenario, ToolCall

pytestmark = pytest.mark.claude

GOAL = "Put the numbers into files."
SECRET = "inDotEnv99x"
GATE = "until [ -e ../gate ]; do sleep 0.2; done"


@pytest.fixture(params=["postgres", pytest.param("sqlite", marks=pytest.mark.soak)])
def any_server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    """The shared one, or one on a file."""
    if request.param == "postgres":
        yield request.getfixturevalue("server")
        return
    folder = tmp_path / "server"
    folder.mkdir()
    server = Server(folder, new_archive(folder))
    server.start()
    yield server
    server.end()
    assert "Traceback" not in server.log()


def bash(command: str, **more: Any) -> Reply:
    return Reply(text="Working.", tools=(ToolCall(name="Bash", input={"command": command}),), **more)


STORY = Scenario(
    name="moves",
    replies=(
        bash("echo 1 > one.txt; echo 'remember: one' > SHARED_TASK_NOTES.md", input_tokens=1000),
        Reply(text=working("The first one is THE-FIRST-WORD."), input_tokens=2000),
        bash("echo 2 > two.txt", input_tokens=3000),
        Reply(text=working("The second one is THE-SECOND-WORD."), input_tokens=4000),
        bash(GATE, input_tokens=5000),
        Reply(text=finished("All is there."), input_tokens=6000),
        Reply(text=finished("Everything is there."), input_tokens=7000),
    ),
)


def machine(tmp: Path, stage: Stage, remote: Path) -> Stage:
    """Another one: own home, own store, a fresh clone at another path. It has the same model."""
    tmp.mkdir()
    subprocess.run(["git", "clone", "-q", str(remote), str(tmp / "repo")], check=True, timeout=PATIENCE)
    other = Stage(tmp, stage.model)
    other.git("config", "user.name", "B")
    other.git("config", "user.email", "b@b")
    return other


def tree(stage: Stage) -> str:
    """The hash of all that lies there and is not ignored."""
    env = os.environ | {"GIT_INDEX_FILE": str(stage.tmp / "looked-at")}
    for words in (("read-tree", "--empty"), ("add", "-A"), ("write-tree",)):
        done = subprocess.run(
            ["git", *words], cwd=stage.repo, env=env, check=True, capture_output=True, timeout=PATIENCE
        )
    return done.stdout.decode().strip()


def test_a_killed_run_goes_on_on_another_machine(tmp_path: Path, any_server: Server) -> None:
    server = any_server
    (tmp_path / "a").mkdir()
    with staged(tmp_path / "a", STORY) as here:
        remote = tmp_path / "remote.git"
        here.git("init", "-q", "--bare", "-b", "work", str(remote))
        here.git("remote", "add", "origin", str(remote))
        here.git("push", "-q", "origin", "work")
        run_id = killed_in_the_third(here, server)
        there = machine(tmp_path / "b", here, remote)
        there.env |= {"UNTILDONE_SERVER": server.url, "UNTILDONE_TOKEN": server.operator}
        refused_politely(there, run_id)
        asked = len(here.model.requests)
        result = there.result_here("resume", "--from-server", run_id, "--take", "--trust")

        assert (result["run_id"], result["exit_reason"]) == (run_id, "completion_signal"), result
        assert result["attempts"] == 5
        same_conversation(here, asked)
        notes = [(stage.repo / "SHARED_TASK_NOTES.md").read_bytes() for stage in (here, there)]
        assert notes[0] == notes[1] == b"remember: one\n"
        assert tree(there) == tree(here)
        assert there.git("diff", here.git("rev-parse", "HEAD").strip()) == ""
        assert there.git("log", "--format=%H") == here.git("log", "--format=%H")
        assert result["total_cost_usd"] == pytest.approx(here.ledger_usd(), abs=1e-6)
        one_story(here, there, server, run_id)
        the_old_driver_is_refused(here, run_id)


def conversation(here: Stage, request: int) -> list[tuple[str, str]]:
    """What the model was told in a request, message by message; where a cache begins is no part of it."""
    messages = here.model.requests[request].body["messages"]
    return [(one["role"], _said(one["content"])) for one in messages]


def _said(content: Any) -> str:
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    kept = ({name: value for name, value in block.items() if name != "cache_control"} for block in blocks)
    return json.dumps([block for block in kept if "<system-reminder>" not in str(block.get("text", ""))])


def same_conversation(here: Stage, asked: int) -> None:
    """All that the model was told and said on one machine, in its order, opens what it is told on the other.

    Keys are masked on the way, there as everywhere.
    """
    before, after = conversation(here, asked - 1), conversation(here, asked)
    before = [(role, said.replace(SECRET, "[secret: A_KEY]")) for role, said in before]
    assert len(after) > len(before) > 6
    assert after[: len(before)] == before
    assert all(word in str(before) for word in (GOAL, "THE-FIRST-WORD", "echo 1 > one.txt"))


def killed_in_the_third(here: Stage, server: Server) -> str:
    """Two iterations and the beginning of a third, all of it known to the server; then -9."""
    name = ("--name", "mover", "--session", "resume", "--allowed-tools", "Bash")
    loop = here.popen("run", GOAL, "-m", "9", *name, "--server", server.url, "--portable")

    def movers() -> list[str]:
        return [run["run_id"] for run in server.get("/runs")["runs"] if run["name"] == "mover"]

    try:
        (run_id,) = until(movers, "the run on the server")
        until(lambda: len(server.events(run_id, "agent.reply")) == 5, "the third iteration")
        head = here.git("rev-parse", "HEAD").strip()
        until(lambda: parcel_head(server, run_id) == head, "the tree after the second iteration")
        os.kill(loop.pid, signal.SIGKILL)
    finally:
        loop.kill()
        loop.communicate()
    return run_id


def parcel_head(server: Server, run_id: str) -> str | None:
    """The commit that is checked out in the newest tree that has travelled."""
    from untildone.git.bundle import unwrapped

    content = server.parcel(run_id, "tree")
    return None if content is None else unwrapped(content)[0].head


def refused_politely(there: Stage, run_id: str) -> None:
    for args, complaint in (
        ((run_id,), "is at work on"),
        ((run_id, "--take"), "say it with --trust"),
        (("nosuchrun",), "there is no such run here"),
        ((run_id, "--take", "--trust", "--cwd", str(there.tmp)), "not empty and no clone"),
        ((run_id, "--take", "--trust", "--cwd", str(there.tmp / "new")), "git clone"),
    ):
        done = there.here("resume", "--from-server", *args)
        assert done.returncode not in {0, None}, done
        assert complaint in done.stderr
        assert "Traceback" not in done.stderr
    assert json.loads(there.here("ls", "--json").stdout) == []


def one_story(here: Stage, there: Stage, server: Server, run_id: str) -> None:
    """The numbers of the server's copy have neither gaps nor doubles, and what happened there is what it has."""
    copied = server.events(run_id)
    seqs = [event["seq"] for event in copied]
    assert seqs == list(range(1, len(seqs) + 1))
    (moved,) = (event for event in copied if event["type"] == "continuous.moved")
    own = {event["seq"]: event["event_type"] for event in there.events(run_id)}
    assert {event["seq"]: event["type"] for event in copied if event["seq"] >= moved["seq"]} == {
        seq: name for seq, name in own.items() if seq >= moved["seq"]
    }
    kept = {event["seq"]: event["event_type"] for event in here.events(run_id)}
    assert all(kept[event["seq"]] == event["type"] for event in copied if event["seq"] < moved["seq"])
    until(lambda: server.get(f"/runs/{run_id}")["status"] == "completed", "the end of the run on the server")
    assert server.get(f"/runs/{run_id}")["tenure"] == 1


def the_old_driver_is_refused(here: Stage, run_id: str) -> None:
    before = here.ledger_usd()
    (here.tmp / "gate").touch()
    done = here.here("resume", run_id)
    assert done.returncode == 2, done
    assert "another machine took over the run" in done.stdout, done.stdout
    assert f"`untildone resume --from-server {run_id} --take`" in done.stderr, done.stderr
    last = here.events(run_id)[-1]
    assert (last["event_type"], last["event_data"]["stop_reason"]) == ("continuous.suspended", "taken_over")
    (stop,) = [e for e in here.events(run_id) if e["event_type"] == "continuous.stop_requested"]
    assert stop["event_data"]["by"] == "server: taken over"
    assert here.ledger_usd() == before


HALF_DONE = Scenario(
    name="stopped",
    replies=(
        bash("echo 1 > one.txt; echo 'remember: one' > SHARED_TASK_NOTES.md", input_tokens=1000),
        Reply(text=working("The first one is THE-FIRST-WORD."), input_tokens=2000),
        bash(f"mkdir half; echo begun > half/done.txt; rm a.txt; echo A_KEY={SECRET} > .env", input_tokens=3000),
        bash(GATE, input_tokens=4000),
        bash("ls -A; cat half/done.txt", input_tokens=5000),
        Reply(text=finished("All is there."), input_tokens=6000),
        Reply(text=finished("Everything is there."), input_tokens=7000),
    ),
)


@pytest.mark.soak
def test_half_done_work_of_a_worker_goes_on_at_once_where_there_was_nothing(tmp_path: Path, server: Server) -> None:
    """Nobody has the repository but the worker; it is stopped in the middle, and is free the moment it has ended."""
    (tmp_path / "a").mkdir()
    with staged(tmp_path / "a", HALF_DONE) as here:
        here.env |= {
            "CALLBACK_URL": server.url, "SANDBOX_ID": "first-box", "INITIAL_PROMPT": GOAL, "ALLOWED_TOOLS": "Bash",
            "CONTINUOUS_MODE": "true", "CONTINUOUS_MAX_RUNS": "9", "UNTILDONE_SESSION": "resume",
        }  # fmt: skip
        with here.popen("worker") as worker:
            run = until(lambda: server.run_of("first-box"), "the run on the server")
            until(lambda: len(server.events(run["run_id"], "agent.tool_use")) == 3, "the agent at the gate")
            worker.send_signal(signal.SIGTERM)
            worker.communicate(timeout=400)
            assert worker.returncode == 0
        asked = len(here.model.requests)
        (tmp_path / "b" / "elsewhere").mkdir(parents=True)
        there = Stage(tmp_path / "b" / "elsewhere", here.model)
        there.repo = tmp_path / "b" / "elsewhere" / "other" / "name"
        (tmp_path / "b" / "elsewhere" / "gate").touch()
        there.env |= {"UNTILDONE_SERVER": server.url, "UNTILDONE_TOKEN": server.operator, "SANDBOX_ID": "second-box"}
        where = ("--cwd", str(there.repo))
        done = subprocess.run(
            [sys.executable, "-m", "untildone", "resume", "--from-server", run["run_id"], "--trust", *where],
            cwd=tmp_path / "b", env=there.env, capture_output=True, text=True, timeout=400, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        assert "did not come along: .env" in done.stderr
        same_conversation(here, asked)
        found = json.dumps(here.model.requests[asked + 1].body["messages"][-1])
        assert "begun" in found
        assert ".env" not in found
        assert "a.txt" not in found
        assert SECRET not in json.dumps(here.model.requests[asked].body)
        (here.repo / ".env").unlink()
        there.git("reset", "-q", here.git("rev-parse", "HEAD").strip())  # what it committed there, uncommitted here
        assert there.git("status", "--porcelain", "-uall") == here.git("status", "--porcelain", "-uall")
        assert tree(there) == tree(here)
        assert server.get(f"/runs/{run['run_id']}")["sandbox_id"] == "second-box"

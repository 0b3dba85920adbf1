"""A run that is killed on one machine goes on on another: full conversation, same tree, right books, one driver."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.kit import Stage, finished, staged, working
from e2e.worker_kit import Server, until
from untildone.rehearsal.scenario import Reply, Scenario, ToolCall

pytestmark = pytest.mark.claude

GOAL = "Put the numbers into files."
GATE = "until [ -e ../gate ]; do sleep 0.05; done"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    folder = tmp_path / "server"
    folder.mkdir()
    server = Server(folder, f"sqlite:///{folder}/archive.db")
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
        Reply(text=finished("Still all there."), input_tokens=7000),
    ),
)


def machine(tmp: Path, stage: Stage, remote: Path) -> Stage:
    """Another one: own home, own store, a fresh clone at another path. It has the same model."""
    tmp.mkdir()
    subprocess.run(["git", "clone", "-q", str(remote), str(tmp / "repo")], check=True, timeout=30)
    other = Stage(tmp, stage.model)
    other.git("config", "user.name", "B")
    other.git("config", "user.email", "b@b")
    return other


def tree(stage: Stage) -> str:
    """The hash of all that lies there and is not ignored."""
    env = os.environ | {"GIT_INDEX_FILE": str(stage.tmp / "looked-at")}
    for words in (("read-tree", "--empty"), ("add", "-A"), ("write-tree",)):
        done = subprocess.run(["git", *words], cwd=stage.repo, env=env, check=True, capture_output=True, timeout=30)
    return done.stdout.decode().strip()


def test_a_killed_run_goes_on_on_another_machine(tmp_path: Path, server: Server) -> None:
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
        result = there.result("resume", "--from-server", run_id, "--take", "--trust")

        assert (result["run_id"], result["exit_reason"]) == (run_id, "completion_signal"), result
        assert result["attempts"] == 5
        said = json.dumps(here.model.requests[asked].body["messages"])
        assert all(word in said for word in (GOAL, "THE-FIRST-WORD", "THE-SECOND-WORD", "echo 2 > two.txt"))
        assert "remember: one" in (there.repo / "SHARED_TASK_NOTES.md").read_text()
        assert tree(there) == tree(here)
        assert there.git("diff", here.git("rev-parse", "HEAD").strip()) == ""
        assert there.git("log", "--format=%H") == here.git("log", "--format=%H")
        assert result["total_cost_usd"] == pytest.approx(here.ledger_usd(), abs=1e-6)
        one_story(here, there, server, run_id)
        the_old_driver_is_refused(here, run_id)


def killed_in_the_third(here: Stage, server: Server) -> str:
    """Two iterations and the beginning of a third, all of it known to the server; then -9."""
    name = ("--name", "mover", "--session", "resume", "--allowed-tools", "Bash")
    loop = here.popen("run", GOAL, "-m", "9", *name, "--server", server.url, "--portable")
    try:
        run = until(lambda: (server.get("/runs") or {}).get("runs"), "the run on the server")[0]
        run_id = str(run["run_id"])
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
        done = there.untildone("resume", "--from-server", *args)
        assert done.returncode not in {0, None}, done
        assert complaint in done.stderr
        assert "Traceback" not in done.stderr
    assert json.loads(there.untildone("ls", "--json").stdout) == []


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
    run = server.get(f"/runs/{run_id}")
    assert (run["tenure"], run["status"]) == (1, "completed")


def the_old_driver_is_refused(here: Stage, run_id: str) -> None:
    before = here.ledger_usd()
    (here.tmp / "gate").touch()
    done = here.untildone("resume", run_id)
    assert "nothing more of this run is reported" in done.stdout, done.stdout
    assert "server: taken over" in done.stdout, done.stdout
    assert here.events(run_id)[-1]["event_type"] in {"continuous.suspended", "continuous.warning"}
    (stop,) = [e for e in here.events(run_id) if e["event_type"] == "continuous.stop_requested"]
    assert stop["event_data"]["by"] == "server: taken over"
    assert here.ledger_usd() == before

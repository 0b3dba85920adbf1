"""On the real Claude Code: whole runs whose agent works in a container of docker or podman."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from containers_kit import IMAGE, Engine, docker_engine, podman_engine
from e2e.kit import Stage, finished, staged, working
from patience import PATIENCE, eventually
from untildone.rehearsal.environment import DUMMY_KEY
from untildone.rehearsal.scenario import Reply, Scenario, ToolCall

pytestmark = [pytest.mark.claude, pytest.mark.soak]

NOTE = "the second file comes next"
ORDER = "mind the second file"
# When the first process of a container was started tells it apart: numbers of namespaces are given again.
BORN = "cut -d' ' -f22 /proc/1/stat"
MARK = f"{BORN} >> containers.txt; env >> seen.txt; ls -A ~ /tmp >> seen.txt; touch ~/.cache/kept; "
BUSY = "touch busy-{number}; (timeout 1000 tail -f /dev/null &); setsid timeout 1000 tail -f /dev/null"
HOOKS = {"PostToolUse": [{"hooks": [{"type": "command", "command": f"{BORN} >> hooked.txt"}]}]}
GOAL = ("run", "two files", "-m", "9", "--name", "night", "--skip-permissions", "--land", "merge")


def bash(command: str, mark: str = MARK) -> Reply:
    return Reply(text="Working.", tools=(ToolCall(name="Bash", input={"command": mark + command}),))


NIGHT = Scenario(
    name="containers",
    iterations=(
        (bash(f"echo one > one.txt; echo '{NOTE}' > SHARED_TASK_NOTES.md"), Reply(text=working())),
        (bash("id -u > who.txt; cat /etc/os-release > system.txt"), Reply(text=working())),
        (bash(BUSY.format(number=3)), Reply(text=working())),
        (bash(BUSY.format(number=4)), Reply(text=working())),
        (bash("echo two > two.txt"), Reply(text=finished())),
    ),
)


@pytest.fixture(params=["docker", "podman"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    if request.param == "podman":
        with podman_engine() as podman:
            yield podman
    else:
        with docker_engine() as (docker, _):
            yield docker


def test_a_night_with_a_message_a_stop_and_a_death_is_verified_and_landed(engine: Engine, tmp_path: Path) -> None:
    with staged(tmp_path, NIGHT) as stage:
        stage.env |= engine.env
        (stage.tmp / "hooks.json").write_text(json.dumps(HOOKS))
        (stage.repo / ".gitignore").write_text("containers.txt\nseen.txt\nhooked.txt\ncommitted.txt\n")
        hook = stage.repo / "hooks" / "pre-commit"
        hook.parent.mkdir()
        hook.write_text("#!/bin/sh\nreadlink /proc/self/ns/mnt >> committed.txt\n")
        hook.chmod(0o755)
        stage.git("add", "-A")
        stage.git("commit", "-qm", "a hook")
        stage.git("config", "core.hooksPath", "hooks")
        hooks = ("--hooks-file", str(stage.tmp / "hooks.json"), "--check", "test -f two.txt")
        first = stage.popen(*GOAL, "--sandbox", engine.kind, "--image", IMAGE, *hooks)
        eventually(lambda: (stage.repo / "busy-3").exists() or first.poll() is not None, "the third iteration")
        assert first.poll() is None, "\n".join(first.communicate())
        assert stage.here("message", "night", ORDER).returncode == 0
        stage.here("stop", "night")
        first.communicate(timeout=PATIENCE)
        assert engine.containers() == []
        second = stage.popen("resume", "night")
        eventually((stage.repo / "busy-4").exists, "the fourth iteration")
        second.kill()
        second.communicate()
        result = stage.result("resume", "night")
        assert (result["exit_reason"], result["verified"]) == ("validation_passed", True), result
        assert engine.containers() == []
        assert result["total_cost_usd"] == pytest.approx(stage.ledger_usd(), abs=1e-9)
        it_was_one_warm_agent_that_knew_what_it_had_to(stage)
        it_saw_the_image_and_no_secret(stage)
        assert "two.txt" in stage.git("ls-tree", "--name-only", "work")


def it_was_one_warm_agent_that_knew_what_it_had_to(stage: Stage) -> None:
    containers = (stage.repo / "containers.txt").read_text().split()
    assert containers[0] == containers[1] == containers[2]
    assert len({*containers[2:]}) == 3, "one that was stopped, one that was killed, one more"
    asked = [json.dumps(request.body) for request in stage.model.requests]
    assert any(NOTE in body for body in asked[2:])
    assert any(ORDER in body for body in asked)
    assert all("LOOP_STATUS" in body for body in asked[:1])


def it_saw_the_image_and_no_secret(stage: Stage) -> None:
    assert "ID=debian" in (stage.repo / "system.txt").read_text()
    assert (stage.repo / "who.txt").read_text() == f"{os.geteuid()}\n"
    hooked = {*(stage.repo / "hooked.txt").read_text().split()}
    assert hooked
    assert hooked <= {*(stage.repo / "containers.txt").read_text().split()}
    ours = str(Path("/proc/self/ns/mnt").readlink())
    assert ours not in (stage.repo / "committed.txt").read_text().split()
    assert len([*(stage.tmp / "state" / "caches").glob("*/kept")]) == 1
    assert not Path(stage.env["HOME"], ".cache", "kept").exists()
    seen = (stage.repo / "seen.txt").read_text()
    assert DUMMY_KEY not in seen
    assert "kept-outside-of-the-sandbox" in seen
    assert all(request.headers["x-api-key"] == DUMMY_KEY for request in stage.model.requests)


def test_no_container_is_left_after_ctrl_c_and_after_a_failure(engine: Engine, tmp_path: Path) -> None:
    words = (*GOAL, "--sandbox", engine.kind, "--image", IMAGE)
    with staged(tmp_path / "interrupted", NIGHT) as stage:
        stage.env |= engine.env
        run = stage.popen(*words)
        eventually(lambda: (stage.repo / "busy-3").exists() or run.poll() is not None, "the third iteration")
        assert run.poll() is None, "\n".join(run.communicate())
        assert engine.containers() != []
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=PATIENCE)
        assert engine.containers() == []
    refused = Scenario(name="refused", iterations=((Reply(status=403, error_type="permission_error", message="no"),),))
    with staged(tmp_path / "failed", refused) as stage:
        stage.env |= engine.env
        run = stage.popen(*words)
        run.communicate(timeout=PATIENCE)
        assert run.returncode not in {0, 2}
        assert len(stage.model.requests) == 1
        assert engine.containers() == []


def test_nothing_gets_out(engine: Engine) -> None:
    argv = ["rehearse", "--escape", "--json", "--sandbox", engine.kind, "--image", IMAGE]
    done = subprocess.run(
        [sys.executable, "-m", "untildone", *argv],
        env={**os.environ, **engine.env}, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    played = json.loads(done.stdout)[engine.kind]
    assert {name for name, one in played.items() if one["verdict"] == "succeeded"} == set()
    assert done.returncode == 0, done.stderr
    assert sum(one["verdict"] == "blocked" for one in played.values()) >= 60


def test_the_image_that_is_built_is_used_where_no_other_is_named(tmp_path: Path) -> None:
    work = (bash("python3 -c 'print(6 * 7)' > answer.txt && gcc --version", mark=""), Reply(text=finished()))
    with docker_engine() as (engine, _), staged(tmp_path, Scenario(name="built", iterations=(work,))) as stage:
        stage.env |= engine.env
        refused = stage.here(*GOAL, "--sandbox", "docker", "--check", "test -f answer.txt")
        assert refused.returncode == 2
        assert "`untildone image build`" in refused.stderr
        argv = ("image", "build", "--sandbox", "docker", "--base", IMAGE, "--", "--network", "host")
        built = stage.untildone(*argv, timeout=900)
        assert built.returncode == 0, built.stdout[-2000:] + built.stderr
        result = stage.result(*GOAL, "--sandbox", "docker", "--check", "grep -q 42 answer.txt")
        assert (result["exit_reason"], result["verified"]) == ("validation_passed", True), result
        assert engine.containers() == []

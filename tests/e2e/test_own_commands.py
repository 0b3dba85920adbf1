"""Checks and hooks are the user's own commands: a check ends with the loop, and a hook may steer runs."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from e2e.kit import finished, staged, working
from e2e.liveness_kit import any_number, bash, sleepers
from patience import eventually
from untildone.rehearsal.scenario import Reply, Scenario

pytestmark = pytest.mark.claude

SCRIPT = Scenario(name="own", iterations=((bash("echo a > f"), Reply(text=finished())),))


def test_a_check_ends_with_a_killed_loop_and_a_hook_may_steer_runs_and_leave_something_running(tmp_path: Path) -> None:
    number, aside, hooks = any_number(), any_number(), any_number()
    check = f"setsid sleep {aside} & sleep {number}"
    said = tmp_path / "said.txt"
    hook = f"setsid sleep {hooks} >/dev/null 2>&1 & '{sys.executable}' -m untildone stop nobody > '{said}' 2>&1"
    with staged(tmp_path, SCRIPT) as stage:
        flags = ("-m", "2", "--skip-permissions", "--agent", "claude_cli")
        run = stage.popen("run", "do it", "--check", check, "--on-stop", hook, *flags)
        eventually(lambda: bool(sleepers(number) and sleepers(aside)))
        run.kill()
        run.communicate()
        eventually(lambda: not sleepers(number) and not sleepers(aside))
        resumed = stage.popen("resume")
        eventually(lambda: bool(sleepers(number) and sleepers(aside)))
        assert (len(sleepers(number)), len(sleepers(aside))) == (1, 1)
        resumed.send_signal(signal.SIGINT)
        resumed.communicate(timeout=400)
        assert (sleepers(number), sleepers(aside)) == (set(), set())
        assert "no run called 'nobody'" in said.read_text()
        [left] = eventually(lambda: sleepers(hooks))
        os.kill(left, signal.SIGKILL)


@pytest.mark.soak
@pytest.mark.parametrize("agent", ["claude_sdk", "claude_cli"])
def test_keys_in_settings_for_servers_stay_off_the_command_line(tmp_path: Path, agent: str) -> None:
    with staged(tmp_path, Scenario(name="one", replies=(Reply(text=working()),))) as stage:
        seen = tmp_path / "seen"
        server = tmp_path / "server.sh"
        told = f'{{ echo "$KEY"; tr "\\0" " " < /proc/$PPID/cmdline; }} > {seen}.new'
        server.write_text(f"#!/bin/sh\n{told}\nmv {seen}.new {seen}\n")
        servers = {"mcpServers": {"own": {"command": "sh", "args": [str(server)], "env": {"KEY": "k3y-of-a-server"}}}}
        flags = ("--max-iterations", "1", "--agent", agent, "--skip-permissions")
        done = stage.result_here("run", "x", *flags, "--mcp-config", json.dumps(servers))
        assert done["exit_reason"] == "max_iterations_reached"
        key, command = seen.read_text().split("\n", 1)
        assert key == "k3y-of-a-server"
        assert "--mcp-config" in command
        assert "k3y" not in command
        assert not list((tmp_path / "state" / "private").iterdir())
        assert "k3y" not in stage.here("log", done["run_id"], "--json", "--verbose").stdout

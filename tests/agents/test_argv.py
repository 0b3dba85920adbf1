"""The command line of Claude Code, and where Claude Code is found."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from patience import PATIENCE
from untildone.agents.argv import (
    as_prompt,
    claude_argv,
    find_claude,
    fits_in_argv,
    hooks_saying,
    require_sandbox,
    settings_json,
)
from untildone.core.policy import AgentOptions
from untildone.errors import AgentMissing


def build(options: AgentOptions | None = None, **more: Any) -> list[str]:
    return claude_argv(options or AgentOptions(), **{"claude": "/c", "rules": "the rules", "mode": "print", **more})


def after(argv: list[str], flag: str) -> list[str]:
    return [argv[at + 1] for at, word in enumerate(argv) if word == flag]


def test_every_option_is_handed_over() -> None:
    options = AgentOptions(
        model="opus", permission_mode="plan", allowed_tools=("Bash(git *)", "Edit"), append_system_prompt="mine",
        add_dirs=("/a", "/b"), mcp_config=("m.json", "{}"), max_turns=7, extra_args=("--effort", "high"),
    )  # fmt: skip
    argv = build(
        options, budget_usd=1.5, resume_session="abc", settings_json="{}", json_schema={"type": "object"}, prompt="go"
    )
    assert argv[:2] == ["/c", "-p"]
    assert after(argv, "--output-format") == ["stream-json"]
    assert {"--verbose", "--include-partial-messages", "--resume=abc"} <= set(argv)
    assert after(argv, "--permission-mode") == ["plan"]
    assert after(argv, "--allowedTools") == ["Bash(git *),Edit,mcp__untildone__report"]
    assert after(argv, "--disallowedTools") == ["ScheduleWakeup,CronCreate"]
    assert after(argv, "--append-system-prompt") == ["the rules\n\nmine"]
    assert after(argv, "--model") == ["opus"]
    assert after(argv, "--max-turns") == ["7"]
    assert after(argv, "--max-budget-usd") == ["1.500000"]
    assert after(argv, "--add-dir") == ["/a", "/b"]
    assert after(argv, "--mcp-config") == ["m.json", "{}"]
    assert after(argv, "--json-schema") == ['{"type": "object"}']
    assert argv[-4:] == ["--effort", "high", "--", "go"]
    assert "--continue" not in argv


def test_what_was_not_asked_for_is_not_there() -> None:
    argv = build()
    flags = {word.partition("=")[0] for word in argv if word.startswith("--")}
    assert not flags & {"--model", "--max-budget-usd", "--resume", "--settings", "--input-format", "--"}


def test_skipping_permissions_replaces_the_mode() -> None:
    argv = build(AgentOptions(skip_permissions=True))
    assert "--dangerously-skip-permissions" in argv
    assert "--permission-mode" not in argv


def test_a_warm_process_reads_prompts_from_its_input() -> None:
    assert after(build(mode="warm"), "--input-format") == ["stream-json"]


def test_a_budget_is_never_rounded_to_none() -> None:
    assert after(build(budget_usd=1e-9), "--max-budget-usd") == ["0.000100"]


def test_only_prompts_the_kernel_takes_go_into_an_argument() -> None:
    assert fits_in_argv("short")
    assert not fits_in_argv("é" * 60_000)
    assert not fits_in_argv("a\0b")


@pytest.mark.parametrize("prompt", ["/clear all", "  /compact", "/tmp/x is the file"])
def test_a_prompt_that_looks_like_a_command_is_disguised(prompt: str) -> None:
    assert as_prompt(prompt) == f"Your task:\n{prompt}"
    assert as_prompt("do /this") == "do /this"


def test_our_hook_says_the_rules_again_whatever_is_in_them() -> None:
    rules = 'it\'s "quoted" $HOME `id` %s \\n\nsecond line'
    [group] = hooks_saying(rules)["SessionStart"]
    assert group["matcher"] == "compact"
    said = subprocess.run(
        ["sh", "-c", group["hooks"][0]["command"]], capture_output=True, text=True, check=True, timeout=PATIENCE
    )
    assert said.stdout == rules


def test_settings_hold_hooks_and_sandbox_and_are_left_out_when_empty() -> None:
    assert settings_json(AgentOptions(), None) is None
    assert json.loads(settings_json(AgentOptions(), {"Stop": []}) or "") == {"hooks": {"Stop": []}}
    both = json.loads(settings_json(AgentOptions(sandbox="claude"), {"Stop": []}) or "")
    assert both["hooks"] == {"Stop": []}
    assert both["sandbox"] == {
        "enabled": True, "autoAllowBashIfSandboxed": True, "allowUnsandboxedCommands": False, "failIfUnavailable": True,
    }  # fmt: skip


def test_a_sandbox_that_cannot_be_built_is_refused_with_the_cure(tmp_path: Path) -> None:
    require_sandbox(AgentOptions(), path=str(tmp_path))
    with pytest.raises(AgentMissing, match="bwrap and socat: install with `sudo apt-get install bubblewrap socat`"):
        require_sandbox(AgentOptions(sandbox="claude"), path=str(tmp_path))
    executable(tmp_path / "bwrap")
    with pytest.raises(AgentMissing, match="needs socat:"):
        require_sandbox(AgentOptions(sandbox="claude"), path=str(tmp_path))
    executable(tmp_path / "socat")
    require_sandbox(AgentOptions(sandbox="claude"), path=str(tmp_path))


def executable(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_the_program_asked_for_comes_first(tmp_path: Path) -> None:
    wanted = executable(tmp_path / "mine" / "my-claude")
    on_path = executable(tmp_path / "bin" / "claude")
    assert find_claude(str(wanted), path=str(on_path.parent)) == str(wanted)
    assert find_claude("claude", path=str(on_path.parent)) == str(on_path)
    assert find_claude(None, path=str(on_path.parent)) == str(on_path)


def test_else_the_one_that_comes_with_the_sdk() -> None:
    found = find_claude(None, path="/nowhere")
    assert found.endswith("claude_agent_sdk/_bundled/claude")
    assert os.access(found, os.X_OK)


def test_looking_for_it_does_not_import_the_sdk() -> None:
    script = (
        "import sys; from untildone.agents.argv import find_claude; find_claude(path='/x'); "
        "print('claude_agent_sdk' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=PATIENCE)
    assert run.stdout.strip() == "False"


@pytest.mark.parametrize("wanted", ["/nowhere/claude", "no-such-claude"])
def test_a_missing_program_is_one_clear_line(wanted: str, tmp_path: Path) -> None:
    with pytest.raises(AgentMissing, match=wanted) as error:
        find_claude(wanted, path=str(tmp_path))
    assert "\n" not in str(error.value)


def test_a_file_that_cannot_be_run_is_not_a_program(tmp_path: Path) -> None:
    plain = tmp_path / "claude"
    plain.write_text("not a program")
    with pytest.raises(AgentMissing):
        find_claude(str(plain))


def test_who_only_reads_has_no_tool_that_writes_and_none_to_report() -> None:
    argv = build(AgentOptions(allowed_tools=("Read",)), read_only=True)
    assert after(argv, "--allowedTools") == ["Read"]
    assert {"Edit", "Write", "NotebookEdit", "ScheduleWakeup"} <= set(after(argv, "--disallowedTools")[0].split(","))
    assert {"Bash(git *--output*)", "Bash(git -c *)"} <= set(after(argv, "--disallowedTools")[0].split(","))
    assert not {"Edit", "Write", "Bash(git *--output*)"} & set(after(build(), "--disallowedTools")[0].split(","))


def test_a_sandbox_gives_who_only_reads_no_commands_to_write_with() -> None:
    options = AgentOptions(sandbox="claude")
    allowed = [
        json.loads(settings_json(options, None, read_only=read_only) or "")["sandbox"]["autoAllowBashIfSandboxed"]
        for read_only in (False, True)
    ]
    assert allowed == [True, False]


def test_a_copy_of_a_conversation_is_only_made_of_one_that_is_resumed() -> None:
    assert "--fork-session" in build(resume_session="abc", fork=True)
    assert "--fork-session" not in build(resume_session="abc")
    assert "--fork-session" not in build(fork=True)
    assert after(build(resume_session="abc", new_rules=True), "--system-prompt-snapshot") == ["off"]
    assert "--system-prompt-snapshot" not in build(resume_session="abc")


def test_what_the_user_forbids_is_forbidden_for_reviewers_too() -> None:
    options = AgentOptions(disallowed_tools=("WebFetch", "Bash(rm:*)"))
    assert after(build(options), "--disallowedTools") == ["ScheduleWakeup,CronCreate,WebFetch,Bash(rm:*)"]
    (denied,) = after(build(options, read_only=True), "--disallowedTools")
    assert {"WebFetch", "Bash(rm:*)", "Edit"} <= set(denied.split(","))

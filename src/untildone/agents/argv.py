"""The command line Claude Code is started with."""

import importlib.util
import json
import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from untildone.agents.task_tools import TASK_TOOLS
from untildone.agents.tool_detail import REPORT_TOOL
from untildone.core.policy import AgentOptions
from untildone.errors import AgentMissing

LONGEST_ARGUMENT = 100_000
"""Bytes of a prompt that still fit into one argument (the kernel refuses 128 KB); a longer one goes to stdin."""
# They would start turns by themselves, long after the iteration they belong to.
DISALLOWED_TOOLS = ("ScheduleWakeup", "CronCreate")
# Denied by name, whatever the settings of the user or the repository allow.
WRITING_TOOLS = ("Edit", "MultiEdit", "Write", "NotebookEdit")
# Many people let every git command pass: options that write or start programs, and the verbs that change something.
WRITING_GIT = tuple(
    f"Bash(git {written})"
    for written in (
        "*--output*", "*--ext-diff*", "*--textconv*", "*--open-files-in-pager*", "grep *-O*", "-c *", "*--config-env*",
        *(f"{verb}:*" for verb in (
            "add", "am", "apply", "checkout", "clean", "commit", "config", "fetch", "gc", "merge", "mv", "pull", "push",
            "rebase", "reset", "restore", "rm", "stash", "switch", "update-ref", "worktree",
        )),
    )
)  # fmt: skip
# Commands may write in the folder and reach no network; one that cannot be confined is not run at all.
SANDBOX = {
    "enabled": True,
    "autoAllowBashIfSandboxed": True,
    "allowUnsandboxedCommands": False,
    "failIfUnavailable": True,
}
SANDBOX_PROGRAMS = ("bwrap", "socat")
_LEAST_BUDGET = 0.0001


def claude_argv(
    options: AgentOptions,
    *,
    claude: str,
    rules: str,
    mode: Literal["print", "warm"],
    budget_usd: float | None = None,
    resume_session: str | None = None,
    fork: bool = False,
    new_rules: bool = False,
    settings_json: str | None = None,
    json_schema: Mapping[str, object] | None = None,
    prompt: str | None = None,
    read_only: bool = False,
) -> list[str]:
    """Build the command line. `print` runs one prompt to its end; `warm` reads prompts from stdin as stream-json.

    With `read_only` there is no tool that writes files, no git that does, and no report is asked for.
    """
    argv = [claude, "-p", "--output-format", "stream-json", "--verbose", "--include-partial-messages"]
    if mode == "warm":
        argv += ["--input-format", "stream-json"]
    argv += _permissions(options, read_only=read_only)
    argv += ["--append-system-prompt", "\n\n".join(filter(None, (rules, options.append_system_prompt)))]
    argv += _valued("--model", options.model)
    argv += _valued("--max-turns", options.max_turns)
    argv += _valued("--max-budget-usd", budget_usd and f"{max(budget_usd, _LEAST_BUDGET):.6f}")
    argv += _valued("--settings", settings_json)
    argv += _valued("--json-schema", json_schema and json.dumps(json_schema))
    for folder in options.add_dirs:
        argv += ["--add-dir", folder]
    for config in options.mcp_config:
        argv += ["--mcp-config", config]
    if resume_session:
        argv += [f"--resume={resume_session}", *(["--fork-session"] if fork else [])]
        # A session that goes on keeps the system prompt it began with, whatever is said here.
        argv += ["--system-prompt-snapshot", "off"] if new_rules else []
    argv += options.extra_args
    if prompt is not None:
        # After `--` a prompt may begin with a dash, and no option that takes many values can swallow it.
        argv += ["--", prompt]
    return argv


def as_prompt(text: str) -> str:
    """Keep a prompt from being taken for a slash command, which would swallow it."""
    return f"Your task:\n{text}" if text.lstrip().startswith("/") else text


def fits_in_argv(prompt: str) -> bool:
    """Whether a prompt may be handed over as an argument."""
    return len(prompt.encode()) <= LONGEST_ARGUMENT and "\0" not in prompt


def settings_json(
    options: AgentOptions, hooks: Mapping[str, Any] | None, store: str | None = None, *, read_only: bool = False
) -> str | None:
    """Build the settings of a run: hooks, and Claude Code's own sandbox if it is wanted; None: nothing to set.

    In the sandbox the folder that holds the runs, `store`, is out of reach: for commands and for Claude's own tools.
    """
    settings: dict[str, Any] = {} if hooks is None else {"hooks": hooks}
    if options.sandbox == "claude":
        # Inside the sandbox any command may write in the folder: who only reads gets no commands for that.
        settings["sandbox"] = {**SANDBOX, "autoAllowBashIfSandboxed": not read_only}
        if store is not None:
            settings["sandbox"]["filesystem"] = {"denyRead": [store], "denyWrite": [store]}
            # Two slashes: an absolute path. Commands alone are in the sandbox, the other tools go by these rules.
            settings["permissions"] = {"deny": [f"Read(/{store}/**)", f"Edit(/{store}/**)"]}
    return json.dumps(settings) if settings else None


def hooks_saying(rules: str) -> dict[str, Any]:
    """Hooks that repeat the rules after a compaction."""
    reminder = {"type": "command", "command": f"printf %s {shlex.quote(rules)}"}
    return {"SessionStart": [{"matcher": "compact", "hooks": [reminder]}]}


def require_sandbox(options: AgentOptions, *, path: str | None = None) -> None:
    """Refuse, before anything runs, a sandbox that cannot be built here."""
    missing = [program for program in SANDBOX_PROGRAMS if shutil.which(program, path=path) is None]
    if options.sandbox == "claude" and sys.platform == "linux" and missing:
        names = " and ".join(missing)
        raise AgentMissing(f"--sandbox claude needs {names}: install with `sudo apt-get install bubblewrap socat`")


def find_claude(wanted: str | None = None, *, path: str | None = None) -> str:
    """Find the program: the one asked for, else `claude` on PATH, else the one that comes with the SDK."""
    if wanted:
        found = shutil.which(wanted, path=path)
        if found is None:
            raise AgentMissing(f"there is no program {wanted!r} to run: check --claude, or leave it out")
        return str(Path(found).absolute())
    found = shutil.which("claude", path=path) or _bundled()
    if found is None:
        raise AgentMissing("there is no `claude` on PATH: install Claude Code, or name the program with --claude")
    return found


def _permissions(options: AgentOptions, *, read_only: bool) -> list[str]:
    if options.skip_permissions:
        argv = ["--dangerously-skip-permissions"]
    else:
        argv = ["--permission-mode", options.permission_mode]
    ours = () if read_only else (REPORT_TOOL, *(TASK_TOOLS if options.task_tools else ()))
    argv += ["--allowedTools", ",".join((*options.allowed_tools, *ours))]
    never = (*DISALLOWED_TOOLS, *options.disallowed_tools)
    denied = (*never, *WRITING_TOOLS, *WRITING_GIT) if read_only else never
    return [*argv, "--disallowedTools", ",".join(denied)]


def _valued(flag: str, value: object) -> list[str]:
    return [] if value is None or value == "" else [flag, str(value)]


def _bundled() -> str | None:
    """Look beside the SDK, in the wheel it came with."""
    spec = importlib.util.find_spec("claude_agent_sdk")
    folders = spec.submodule_search_locations or [] if spec else []
    candidates = (Path(folder) / "_bundled" / "claude" for folder in folders)
    return next((str(path) for path in candidates if os.access(path, os.X_OK)), None)

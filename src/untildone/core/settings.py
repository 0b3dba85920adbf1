"""Every setting, once. Flags, environment variables, file keys, help and docs/settings.md all come from this table.

What a setting means is written at its field in `policy`; few carry their text here.
"""

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType

from untildone.core import units
from untildone.core.setting import HOMES, Group, Home, Setting, as_typed, shows_only, tightens
from untildone.core.setting import pick as _pick
from untildone.core.setting import setting as _setting
from untildone.core.setting import switch as _switch
from untildone.core.settings_delivery import CHECKING, LANDING, REVIEWING, WORKTREES
from untildone.core.worker_values import sandbox_id

__all__ = [
    "ARGUMENTS",
    "BY_NAME",
    "GROUPS",
    "HOMES",
    "PROFILES",
    "PROFILE_NAMES",
    "SETTINGS",
    "Group",
    "Home",
    "Setting",
    "as_typed",
]

GROUPS: Mapping[Group, str] = MappingProxyType(
    {
        "limits": "Limits (at least one, or --unbounded)",
        "done": "When it counts as done",
        "breaker": "The breaker (stops a run that is stuck)",
        "faults": "Faults and pauses",
        "agent": "The agent",
        "git": "Git",
        "landing": "Landing: where the work goes",
        "review": "Review: a second pair of eyes",
        "commands": "Your own commands around iterations",
        "output": "Output and storage",
    }
)

ARGUMENTS = ("goal", "cwd", "name", "task_file", "repository")
"""Fields of a RunSpec that are given anew with each command and are never settings."""

_seconds = partial(units.duration, bare="seconds")
_percent = partial(units.whole, most=100)
_minutes_limit = partial(units.limit_duration, bare="minutes")
_limit = partial(_setting, "policy", "limits", untrusted=tightens)


def _sandbox_id(raw: object) -> str:
    return sandbox_id(units.name_text(raw))


PROFILE_NAMES = ("continuous-claude", "clawker", "ralph")

SETTINGS: tuple[Setting, ...] = (
    # --- limits ---
    _limit("max_runs", units.limit, "N", "-m", "--max-runs", older_env=("CONTINUOUS_MAX_RUNS",)),
    _limit("max_iterations", units.limit, "N", "--max-iterations", "--max-loops"),
    _limit("max_cost_usd", units.money, "USD", "--max-cost", older_env=("CONTINUOUS_MAX_COST_USD",)),
    _limit("max_tokens", units.limit, "N", "--max-tokens"),
    _limit(
        "max_duration", units.limit_duration, "DURATION", "--max-duration",
        older_env=("CONTINUOUS_MAX_DURATION",),
        help="Stop after this much running time, waits included; time in which the run was stopped or paused, or the "
        "machine slept, does not count.",
    ),
    _setting(
        "policy", "limits", "deadline", units.moment, "HH:MM", "--deadline",
        help="Stop at this time of day, or at a date and time such as 2026-01-31T07:30, whatever is going on.",
    ),
    _limit("max_calls_per_hour", units.limit, "N", "--max-calls-per-hour", "--calls-per-hour"),
    _switch("policy", "limits", "unbounded", ("--unbounded",), ("--no-unbounded",)),
    # --- done ---
    *CHECKING,
    _setting(
        "policy", "done", "completion_signal", units.name_text, "TEXT", "--completion-signal",
        older_env=("CONTINUOUS_COMPLETION_SIGNAL",),
    ),
    _pick(
        "policy", "done", "completion_match", "--completion-match",
        ("line", "published", "substring", "substring_any_case"),
    ),
    _setting(
        "policy", "done", "completion_threshold", units.whole, "N", "--completion-threshold",
        older_env=("CONTINUOUS_COMPLETION_THRESHOLD",),
    ),
    _switch("policy", "done", "strict_completion", ("--strict-completion",), ("--no-strict-completion",)),
    _setting("policy", "done", "indicator_threshold", units.whole, "N", "--indicator-threshold"),
    _setting("spec", "done", "task_prompt", units.name_text, "TEXT", "--task-prompt"),
    _setting("spec", "done", "optional_sections", units.lines, "TITLE", "--optional-section", repeatable=True),
    # --- breaker ---
    _setting("policy", "breaker", "no_progress_threshold", units.whole, "N", "--no-progress-threshold"),
    _setting(
        "policy", "breaker", "stagnation_threshold", units.whole, "N", "--stagnation-threshold", "--stall-threshold"
    ),
    _setting("policy", "breaker", "same_error_threshold", units.whole, "N", "--same-error-threshold"),
    _setting("policy", "breaker", "output_decline_threshold", _percent, "PERCENT", "--output-decline-threshold"),
    _setting("policy", "breaker", "max_test_loops", units.whole, "N", "--max-test-loops"),
    _setting("policy", "breaker", "safety_completion_threshold", units.whole, "N", "--safety-completion-threshold"),
    _setting("policy", "breaker", "breaker_cooldown", units.duration, "DURATION", "--breaker-cooldown"),
    _switch("policy", "breaker", "breaker_auto_reset", ("--auto-reset-circuit",), ("--no-auto-reset-circuit",)),
    # --- faults and pauses ---
    _setting(
        "policy", "faults", "start_at", units.moment, "HH:MM", "--at", in_files=False,
        help="Begin at this time of day, or at a date and time such as 2026-01-31T01:00, and wait until then.",
    ),
    _setting("policy", "faults", "error_threshold", units.whole, "N", "--error-threshold"),
    _setting("policy", "faults", "outage_budget", units.duration, "DURATION", "--outage-budget"),
    _switch("policy", "faults", "wait", ("--wait",), ("--no-wait",)),
    _setting(
        "policy", "faults", "max_wait", units.limit_duration, "DURATION", "--max-wait",
        help="Stop instead of waiting longer than this for a usage limit. Without it: 8 days if no reset is named.",
    ),
    _setting("policy", "faults", "keep_quota", units.share, "PERCENT", "--keep-quota"),
    _setting(
        "policy", "faults", "idle_timeout", units.limit_duration, "DURATION", "--idle-timeout",
        help="End an iteration without any sign of life (output, CPU time, files, children) for this long.",
    ),
    _setting("policy", "faults", "disk_reserve", units.size, "SIZE", "--disk-reserve"),
    _setting("policy", "output", "trace_keep", units.size, "SIZE", "--trace-keep"),
    _setting("policy", "faults", "permission_threshold", units.whole, "N", "--permission-threshold"),
    _setting(
        "policy", "faults", "iteration_timeout", _minutes_limit, "DURATION", "--timeout",
        help="Interrupt an iteration after this long (a number alone is minutes); "
        "it counts as productive if the tree changed.",
    ),
    _setting("policy", "faults", "background_grace", _seconds, "DURATION", "--background-grace"),
    _setting(
        "policy", "faults", "max_iteration_cost_usd", units.money, "USD", "--max-iteration-cost", untrusted=tightens
    ),
    _setting("policy", "faults", "max_wakeups", units.limit, "N", "--max-wakeups"),
    _setting("policy", "faults", "loop_delay", _seconds, "DURATION", "--loop-delay"),
    # --- the agent ---
    _pick(
        "options", "agent", "agent", "--agent", ("claude_sdk", "claude_cli"),
        help="How iterations are executed: `claude_sdk` keeps one warm process, `claude_cli` starts one for each.",
    ),
    _setting("options", "agent", "claude", units.name_text, "PROGRAM", "--claude"),
    _setting("options", "agent", "model", units.name_text, "MODEL", "--model"),
    _setting("options", "agent", "permission_mode", units.name_text, "MODE", "--permission-mode"),
    _switch(
        "options", "agent", "skip_permissions", ("--skip-permissions", "--dangerously-skip-permissions"),
        ("--no-skip-permissions",),
    ),
    _setting(
        "options", "agent", "allowed_tools", units.tools, "TOOLS", "--allowed-tools", "--allowedTools",
        repeatable=True,
    ),
    _setting(
        "options", "agent", "allow_tools", units.tools, "RULE", "--allow-tool", repeatable=True,
        adds=True,
    ),
    _setting(
        "options", "agent", "disallowed_tools", units.tools, "TOOLS", "--disallowed-tools", "--disallowedTools",
        repeatable=True,
    ),
    _setting("options", "agent", "append_system_prompt", units.text, "TEXT", "--append-system-prompt"),
    _setting("options", "agent", "add_dirs", units.lines, "DIR", "--add-dir", repeatable=True),
    _setting("options", "agent", "mcp_config", units.lines, "FILE", "--mcp-config", repeatable=True),
    _setting("options", "agent", "max_turns", units.limit, "N", "--max-turns", untrusted=tightens),
    _setting("options", "agent", "hooks_file", units.name_text, "FILE", "--hooks-file"),
    _setting("options", "agent", "fallback", units.tools, "MODELS", "--fallback", repeatable=True),
    _setting("options", "agent", "config_dir", units.name_text, "DIR", "--config-dir"),
    _pick("options", "agent", "sandbox", "--sandbox", ("auto", "host", "bwrap", "docker", "podman", "claude", "none")),
    _setting("options", "agent", "image", units.name_text, "IMAGE", "--image"),
    _pick("options", "agent", "network", "--network", ("registries", "open", "none")),
    _setting("options", "agent", "allow_hosts", units.tools, "HOST", "--allow-host", repeatable=True),
    _setting("options", "agent", "pass_env", units.tools, "NAME", "--pass-env", repeatable=True),
    _switch("options", "agent", "ssh_agent", ("--ssh-agent",), ("--no-ssh-agent",)),
    _setting("options", "agent", "memory", partial(units.size, least=1 << 28), "SIZE", "--memory"),
    _setting("options", "agent", "pids", units.whole, "N", "--pids"),
    _switch("options", "agent", "task_tools", ("--task-tools",), ("--no-task-tools",)),
    _setting("options", "agent", "extra_args", units.words, "ARGS"),
    _pick("policy", "agent", "session", "--session", ("fresh", "resume")),
    _setting("policy", "agent", "session_expiry", units.duration, "DURATION", "--session-expiry"),
    _setting(
        "spec", "agent", "notes_file", units.name_text, "FILE", "--notes-file", older_env=("CONTINUOUS_NOTES_FILE",)
    ),
    _setting("spec", "agent", "knowledge_file", units.name_text, "FILE", "--knowledge-file"),
    # --- git ---
    _switch(
        "cli", "git", "commit", ("--enable-commits",), ("--disable-commits",), default=True,
        older_env=("CONTINUOUS_ENABLE_COMMITS",),
        help="Commit after each successful iteration with changes. Off is the same as `--land none`.",
    ),
    _switch("spec", "git", "commit_notes", ("--commit-notes",), ("--no-commit-notes",)),
    _pick("spec", "git", "commit_message", "--commit-message", ("summary", "agent")),
    _switch("spec", "git", "branch", ("--enable-branches",), ("--disable-branches",)),
    _pick("spec", "git", "branch_per", "--branch-per", ("run", "iteration")),
    _setting(
        "spec", "git", "branch_prefix", units.name_text, "PREFIX", "--git-branch-prefix",
        older_env=("CONTINUOUS_BRANCH_PREFIX",),
    ),
    _pick(
        "spec", "git", "dirty", "--dirty", ("refuse", "keep"), field="keep_dirty", default="refuse",
        help="Uncommitted work of yours in the folder: refuse to start, or keep it (a snapshot is taken first).",
    ),
    *WORKTREES,
    # --- landing and review ---
    *LANDING,
    *REVIEWING,
    # --- the user's own commands ---
    _setting("tending", "commands", "before_iteration", units.name_text, "CMD", "--before-iteration"),
    _setting("tending", "commands", "after_iteration", units.name_text, "CMD", "--after-iteration"),
    _setting("tending", "commands", "on_stop", units.name_text, "CMD", "--on-stop"),
    _setting("tending", "commands", "hook_timeout", units.timeout, "DURATION", "--hook-timeout", field="timeout"),
    _setting("spec", "commands", "notify", units.lines, "URL", "--notify", repeatable=True),
    _setting("spec", "output", "server", units.name_text, "URL", "--server"),
    _setting("spec", "output", "server_token_file", units.name_text, "FILE", "--server-token-file"),
    _setting(
        "spec", "output", "sandbox_id", _sandbox_id, "NAME", "--sandbox-id", older_env=("SANDBOX_ID",)
    ),
    _setting("spec", "output", "mask", units.lines, "PATTERN", "--mask", repeatable=True),
    _switch("spec", "output", "portable", ("--portable",), ("--no-portable",)),
    _setting("spec", "commands", "then", units.lines, "FILE", "--then", repeatable=True),
    _pick("policy", "commands", "hook_failure", "--hook-failure", ("warn", "stop")),
    # --- output and storage ---
    _pick(
        "cli", "output", "profile", "--profile", PROFILE_NAMES,
        help="Start from the defaults of another tool.",
    ),
    _setting(
        "cli", "output", "store", units.name_text, "DIR", "--store", older_env=("UNTILDONE_HOME",), in_files=False,
        help="Folder that holds the runs. Default: ~/.local/state/untildone.",
    ),
    _switch(
        "cli", "output", "verbose", ("-v", "--verbose"), (), default=False,
        untrusted=shows_only, help="Show what the agent writes as it writes.",
    ),
    _switch("cli", "output", "quiet", ("-q", "--quiet"), (), default=False, help="Print only how the run ended."),
)  # fmt: skip

BY_NAME: Mapping[str, Setting] = MappingProxyType({setting.name: setting for setting in SETTINGS})

# What people are used to from the tools this one replaces. Rights are never part of a profile: those are given by name.
PROFILES: Mapping[str, Mapping[str, object]] = MappingProxyType(
    {
        "continuous-claude": {
            "completion_match": "substring",
            "completion_threshold": 3,
            "error_threshold": 3,
            "loop_delay": 1.0,
            "branch_prefix": "continuous-claude/",
            "commit_notes": True,
        },
        "clawker": {
            "max_iterations": 50,
            "max_calls_per_hour": 100,
            "iteration_timeout": 15 * 60.0,
            "loop_delay": 3.0,
            "completion_match": "published",
            "completion_threshold": 1,
            "indicator_threshold": 2,
            "no_progress_threshold": 0,
            "stagnation_threshold": 3,
            "same_error_threshold": 5,
            "output_decline_threshold": 70,
            "max_test_loops": 3,
            "safety_completion_threshold": 5,
            "session_expiry": 24 * 3600.0,
        },
        "ralph": {
            "max_calls_per_hour": 100,
            "iteration_timeout": 15 * 60.0,
            "loop_delay": 5.0,
            "session": "resume",
            "session_expiry": 24 * 3600.0,
            "completion_match": "published",
            "completion_threshold": 2,
            "no_progress_threshold": 0,
            "stagnation_threshold": 3,
            "same_error_threshold": 5,
            "permission_threshold": 2,
            "max_test_loops": 3,
            "safety_completion_threshold": 5,
            "breaker_cooldown": 30 * 60.0,
        },
    }
)

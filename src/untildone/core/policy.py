"""What the user agreed to: the limits and thresholds of a run, and what is to be run, as plain values.

Each field's docstring is its documentation: `docs/settings.md` is generated from them.
"""

from dataclasses import dataclass, field
from typing import Literal

COMPLETION_SIGNAL = "CONTINUOUS_CLAUDE_PROJECT_COMPLETE"

HOUR = 3600.0

ALLOWED_TOOLS = (
    "Read", "Glob", "Grep", "Edit", "Write",
    "Bash(ls:*)", "Bash(git status:*)", "Bash(git diff:*)", "Bash(git log:*)", "Bash(git show:*)",
    "Bash(make:*)", "Bash(pytest:*)", "Bash(python -m pytest:*)", "Bash(python3 -m pytest:*)",
    "Bash(python3 -m unittest:*)", "Bash(npm test:*)", "Bash(npm run:*)", "Bash(cargo build:*)", "Bash(cargo check:*)",
    "Bash(cargo test:*)", "Bash(go build:*)", "Bash(go test:*)", "Bash(go vet:*)",
)  # fmt: skip
"""What an agent needs to change code and see whether it works; nothing that pushes, installs or deletes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """All limits and thresholds of a run. `None` always means "no limit"."""

    max_runs: int | None = None
    """Stop after this many successful iterations."""
    max_iterations: int | None = None
    """Stop after this many attempts, successful or not."""
    max_cost_usd: float | None = None
    """Stop once this much is spent; a running iteration is interrupted."""
    max_tokens: int | None = None
    """Stop once this many tokens (input, output and cache writes) are used; a running iteration is interrupted."""
    max_duration: float | None = None
    """Stop after this many seconds with a living driver, waits included."""
    deadline: float | None = None
    """Stop at this moment (epoch seconds), whatever is going on."""
    max_calls_per_hour: int | None = None
    """Start at most this many iterations in any 60 minutes; the loop waits, it does not stop."""
    unbounded: bool = False
    """Allow a run without any finite limit."""

    completion_signal: str = COMPLETION_SIGNAL
    """The phrase that means "the whole goal is reached", alone on a line or in a tag of the final message."""
    completion_match: Literal["line", "substring", "substring_any_case"] = "line"
    """How the signal is looked for. `substring` and `substring_any_case` reproduce older systems exactly."""
    completion_threshold: int | None = None
    """Consecutive claims needed when there is no check. None: 3 for a phrase, 2 for a status block or report."""
    strict_completion: bool = False
    """A claim needs an explicit exit signal and several indicator phrases as well."""
    indicator_threshold: int = 2
    """Indicator phrases a strict claim needs (clawker called this its completion threshold)."""

    error_threshold: int = 3
    """Stop after this many counted faults in a row."""
    outage_budget: float = 2 * HOUR
    """How long faults that pass by themselves (rate limit, overload, network) may last before the run stops."""
    wait: bool = True
    """Wait until a usage limit resets. Otherwise the run stops, resumably, when it meets one."""
    max_wait: float | None = None
    """Stop instead of waiting longer than this many seconds for a usage limit, all tries together."""
    keep_quota: float | None = None
    """Pause while the subscription's windows have less than this share left: quota for the human's morning."""
    idle_timeout: float | None = 900.0
    """End an iteration without any sign of life (output, CPU time, files, children) for this many seconds."""
    disk_reserve: int = 512 * 1024 * 1024
    """Pause while the disk has fewer free bytes than this."""
    trace_keep: int = 64 * 1024 * 1024
    """Keep at most this much of what the agent wrote and did, the newest. What decided is always kept."""
    permission_threshold: int = 2
    """Stop after this many iterations in a row in which the agent was denied a permission and changed nothing."""

    stagnation_threshold: int = 3
    """Open the breaker after this many iterations in a row without any evidence of work."""
    same_error_threshold: int = 5
    """Open the breaker after this many iterations in a row with the same error and an unchanged tree."""
    output_decline_threshold: int = 70
    """Open the breaker when the output shrinks by this many percent twice running and the tree does not change."""
    max_test_loops: int = 3
    """Open the breaker after this many iterations in a row that only tested and changed nothing."""
    safety_completion_threshold: int = 5
    """Open the breaker after this many iterations in a row that sound finished without claiming it."""
    breaker_cooldown: float = 0.5 * HOUR
    """Seconds an open breaker rests before one trial iteration is allowed."""
    breaker_auto_reset: bool = False
    """Wait out the cooldown and try again instead of stopping when the breaker opens."""

    iteration_timeout: float | None = None
    """Interrupt an iteration after this many seconds; it counts as productive if the tree changed."""
    background_grace: float = 60.0
    """Seconds background tasks may go on after the agent's last word before they are ended."""
    loop_delay: float = 0.0
    """Seconds to rest between iterations."""
    session: Literal["fresh", "resume"] = "fresh"
    """`fresh` gives every iteration a new context; `resume` goes on in the last session, by its id."""
    session_expiry: float = 24 * HOUR
    """Seconds an unfinished run may rest and still be resumed when it is started again."""
    hook_failure: Literal["warn", "stop"] = "warn"
    """What happens when a command before or after an iteration fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOptions:
    """What reaches the agent, whichever adapter runs it."""

    agent: str = "claude_sdk"
    """Which adapter executes iterations: `claude_sdk` (warm), `claude_cli` or `scripted`."""
    claude: str | None = None
    """The `claude` program. None: the one on PATH, else the one bundled with the SDK."""
    model: str | None = None
    """Model name handed to Claude Code."""
    permission_mode: str = "acceptEdits"
    """Claude Code's permission mode."""
    skip_permissions: bool = False
    """Run with no permission checks at all (`--dangerously-skip-permissions`)."""
    allowed_tools: tuple[str, ...] = ALLOWED_TOOLS
    """Tools allowed without asking, in Claude Code's syntax. The checks are always allowed."""
    append_system_prompt: str = ""
    """Extra text for the system prompt."""
    add_dirs: tuple[str, ...] = ()
    """More folders the agent may work in."""
    mcp_config: tuple[str, ...] = ()
    """MCP configuration files or JSON strings."""
    max_turns: int | None = None
    """Turns the agent may take inside one iteration."""
    hooks_file: str | None = None
    """A JSON file with Claude Code hooks to add for this run."""
    fallback: tuple[str, ...] = ()
    """Models, or `agent:NAME`, that take over while the first choice meets a usage limit or an outage."""
    config_dir: str | None = None
    """A CLAUDE_CONFIG_DIR of its own for this run, so that a login renewed elsewhere cannot end it."""
    sandbox: Literal["none", "claude"] = "none"
    """`claude` turns on Claude Code's own sandbox for the commands the agent runs."""
    extra_args: tuple[str, ...] = ()
    """Arguments forwarded verbatim to `claude` (everything after `--`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tending:
    """Commands of the user's that run around the iterations."""

    before_iteration: str | None = None
    """Command run before each iteration, with run facts as JSON on stdin."""
    after_iteration: str | None = None
    """Command run after each iteration, with run facts as JSON on stdin."""
    on_stop: str | None = None
    """Command run when the run stops, with run facts as JSON on stdin."""
    timeout: float = 60.0
    """Seconds each of these commands may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """Everything needed to pursue a goal again after a crash, from the log alone."""

    goal: str
    """What the user wants, in prose."""
    cwd: str
    """The folder the agent works in."""
    name: str
    """A stable name: the same project and goal give the same name."""
    task_file: str | None = None
    """A Markdown file of checkboxes, re-read every iteration."""
    task_prompt: str | None = None
    """How the tasks are put to the agent; the first `%s` becomes the file's text."""
    checks: tuple[str, ...] = ()
    """Commands that must pass before a claim is believed."""
    check_timeout: float = 600.0
    """Seconds a check may take."""
    notes_file: str = "SHARED_TASK_NOTES.md"
    """Hand-over notes from one iteration to the next, relative to the folder."""
    knowledge_file: str | None = None
    """Durable project knowledge shown to every iteration, relative to the folder."""
    commit: bool = True
    """Commit after each successful iteration with changes."""
    commit_notes: bool = False
    """Include the notes file in those commits."""
    branch: bool = True
    """Start a branch for the run when the repository's default branch is checked out."""
    branch_prefix: str = "untildone/"
    """What the run's branch name begins with."""
    keep_dirty: bool = False
    """Start although the user's own uncommitted work is in the folder (it is snapshotted first)."""
    notify: tuple[str, ...] = ()
    """Where to tell what happens: webhook addresses, or anything apprise understands."""
    then: tuple[str, ...] = ()
    """Goal files to pursue one after the other when this one is done."""
    then_goals: tuple[str, ...] = ()
    """What these files said when the run began: nobody who can write them later chooses the next goal."""
    options: AgentOptions = field(default_factory=AgentOptions)
    tending: Tending = field(default_factory=Tending)

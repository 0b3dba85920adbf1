"""What the user agreed to: the limits and thresholds of a run, and what is to be run, as plain values.

Each field's docstring is its documentation: `docs/settings.md` is generated from them.
"""

from dataclasses import field
from typing import Literal

from .contract import Contract
from .dataclass import dataclass
from .permissions import ALLOWED_TOOLS
from .tasks import OPTIONAL_SECTIONS

COMPLETION_SIGNAL = "CONTINUOUS_CLAUDE_PROJECT_COMPLETE"

HOUR = 3600.0

SESSION = "session"
"""The `agent` of a loop that lives in somebody's interactive Claude Code: its hooks drive it, no program of ours."""

NOTES_FILE = "SHARED_TASK_NOTES.md"
"""What the notes for the next iteration are called unless told otherwise."""


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
    start_at: float | None = None
    """Do nothing before this moment (epoch seconds)."""
    max_calls_per_hour: int | None = None
    """Start at most this many iterations in any 60 minutes; the loop waits, it does not stop."""
    unbounded: bool = False
    """Allow a run without any finite limit."""

    completion_signal: str = COMPLETION_SIGNAL
    """The phrase that means "the whole goal is reached", alone on a line or in a tag of the final message."""
    completion_match: Literal["line", "published", "substring", "substring_any_case"] = "line"
    """How a claim is read. `line`: the signal stands alone on a line or in a tag, its own report may not say otherwise,
    and without checks one last question is asked about it. The others take the agent at its word, as older systems
    do: `published` finds the signal in the same way, the rest anywhere in the message. BLOCKED is never done."""
    completion_threshold: int | None = None
    """Consecutive claims needed when there is no check. None: 3 for a phrase, 2 for a status block or report."""
    strict_completion: bool = False
    """A claim needs an explicit exit signal and several indicator phrases as well; the agent is told which."""
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

    no_progress_threshold: int = 6
    """Open the breaker after this many iterations without progress: no new best result of the checks; without checks,
    no new state of the files. 0 switches off whatever compares results, and looks without a claim."""
    stagnation_threshold: int = 3
    """Open the breaker after this many iterations in a row that changed nothing and looked at nothing new."""
    same_error_threshold: int = 0
    """Open the breaker after this many iterations in a row with the same error and an unchanged tree. 0: never."""
    output_decline_threshold: int = 0
    """Open the breaker when the output shrinks by this many percent twice running and the tree does not change.
    0: never."""
    max_test_loops: int = 0
    """Open the breaker after this many iterations in a row that only tested and changed nothing. 0: never."""
    safety_completion_threshold: int = 0
    """Open the breaker after this many iterations in a row that sound finished without claiming it. 0: never."""
    breaker_cooldown: float = 0.5 * HOUR
    """Seconds an open breaker rests before one trial iteration is allowed."""
    breaker_auto_reset: bool = False
    """Wait out the cooldown and try again instead of stopping when the breaker opens."""

    iteration_timeout: float | None = None
    """Interrupt an iteration after this many seconds; it counts as productive if the tree changed."""
    max_iteration_cost_usd: float | None = 40.0
    """End an iteration that has cost this much. The run goes on with the next one."""
    background_grace: float = 60.0
    """Seconds background tasks may go on after the agent's last word before they are ended."""
    max_wakeups: int | None = 10
    """End an iteration after the result of a background task made the agent start another one this many times."""
    loop_delay: float = 0.0
    """Seconds to rest between iterations."""
    session: Literal["fresh", "resume"] = "fresh"
    """`fresh` gives every iteration a new context; `resume` goes on in the last session, by its id."""
    session_expiry: float = 24 * HOUR
    """Seconds an unfinished run may rest and still be resumed when it is started again."""
    hook_failure: Literal["warn", "stop"] = "warn"
    """What happens when a command before or after an iteration fails."""


Sandbox = Literal["auto", "host", "bwrap", "docker", "podman", "claude", "none"]
BOXED: frozenset[Sandbox] = frozenset({"bwrap", "docker", "podman"})
"""Those in which the whole agent works, behind a door."""
ENGINES: tuple[Sandbox, ...] = ("docker", "podman")
NOT_LINUX = "bubblewrap needs Linux"
"""Why `auto` means the host where nothing is wrong with the machine."""
Network = Literal["registries", "open", "none"]
"""What can be reached from a sandbox besides the model: the package registries and what is allowed by name, every host,
or nothing."""


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
    """Run with no permission checks at all (`--dangerously-skip-permissions`).

    As root, Claude Code refuses this unless IS_SANDBOX is set: it is set then, and said at the start.
    """
    allowed_tools: tuple[str, ...] = ALLOWED_TOOLS
    """Tools allowed without asking, in Claude Code's syntax, in place of the default list and its exceptions. The
    checks are always allowed."""
    allow_tools: tuple[str, ...] = ()
    """A rule in Claude Code's syntax that is added to the tools allowed without asking: `Bash(docker:*)`."""
    disallowed_tools: tuple[str, ...] = ()
    """Tools the agent may never use, in Claude Code's syntax."""
    append_system_prompt: str = ""
    """Extra text for the system prompt."""
    add_dirs: tuple[str, ...] = ()
    """More folders the agent may work in."""
    mcp_config: tuple[str, ...] = ()
    """MCP configuration files or JSON strings; a string reaches Claude Code as a file that only you can read."""
    max_turns: int | None = 300
    """Turns the agent may take inside one iteration."""
    hooks_file: str | None = None
    """A JSON file with Claude Code hooks to add for this run."""
    fallback: tuple[str, ...] = ()
    """Models, or `agent:NAME`, that take over while the first choice meets a usage limit or an outage."""
    config_dir: str | None = None
    """A CLAUDE_CONFIG_DIR of its own for this run, so that a login renewed elsewhere cannot end it."""
    sandbox: Sandbox = "auto"
    """Where the agent works: `bwrap` shows it its folder and no secret of yours; `auto` does so where that works, and
    is the `host` elsewhere, which the first line of the run says; `docker` and `podman` do it in a container; `claude`
    turns on Claude Code's own sandbox, for the commands the agent runs. `none` is `host`."""
    image: str | None = None
    """The image of the container the agent works in, such as `node:20`: by docker or podman, whichever is there."""
    network: Network = "registries"
    """What an agent in a sandbox can reach: package registries and what `--allow-host` names, any host, or nothing."""
    allow_hosts: tuple[str, ...] = ()
    """A host that an agent in a sandbox can reach: `NAME`, `*.NAME`, `NAME:PORT`, or a preset such as `pypi`."""
    pass_env: tuple[str, ...] = ()
    """A variable of yours that an agent in a sandbox gets. Keys and tokens are not passed on unless named."""
    ssh_agent: bool = False
    """Lend your ssh-agent to an agent in a sandbox: it can log in wherever your keys may, as long as the run lasts."""
    memory: int | None = None
    """How much memory everything in a sandbox may have together. None: four fifths of the machine's."""
    pids: int = 4096
    """How many processes and threads everything in a sandbox may have together."""
    task_tools: bool = False
    """Give the agent tools for the tasks of the project: what `untildone task` does, as task_add, task_done ..."""
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
class Landing:
    """How the work arrives where the user wants it."""

    land: Literal["none", "commit", "merge", "pr"] = "commit"
    """How far work goes: nowhere, into commits, merged into the base branch here, or there through a pull request."""
    every: Literal["done", "iteration"] = "done"
    """Land when the goal is reached, or what each iteration made."""
    base: str | None = None
    """The branch to land on. None: the one that was checked out at the start."""
    strategy: Literal["squash", "merge", "rebase"] = "squash"
    """How a branch is merged."""
    remote: str = "origin"
    """The remote that branches are pushed to."""
    repo: str | None = None
    """OWNER/NAME on the forge. None: read from the remote's address."""
    forge_url: str | None = None
    """Address of the forge's API. None: GitHub's own, or the Enterprise server the remote points to."""
    ci_timeout: float = 1800.0
    """Seconds to wait for the checks and reviews of a pull request."""
    ci_start: float = 180.0
    """Seconds to wait for checks to appear at all; after that, the run goes on without them."""
    ci_poll: float = 10.0
    """Seconds between two looks at a pull request; they grow while nothing happens."""
    fixes: int = 3
    """How often the agent may fix what keeps its work from landing: red CI, comments, conflicts."""
    close_failed: bool = False
    """Close the pull request and delete its branch when landing fails. Otherwise both are kept."""
    delete_branch: bool = True
    """Delete the branch of a pull request that was merged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """A second pair of eyes."""

    when: Literal["never", "iteration", "landing"] = "never"
    """Have the work reviewed after each iteration that changed something, or only before it lands or counts as done."""
    prompt: str | None = None
    """What the reviewer is asked. None: a thorough default."""
    model: str | None = None
    """The reviewer's model."""
    agent: str | None = None
    """The reviewer's agent, as in `--agent`."""
    rounds: int = 3
    """Stop when this many reviews in a row ask for changes: the two do not agree."""
    disputes: bool = True
    """Let a reviewer settle a dispute that the agent did not: whether a changed test was right to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """What came before this run, somewhere else."""

    session: str | None = None
    """The conversation that the first iteration goes on in."""
    fork: bool = False
    """Go on in a copy of it, under an id of its own."""
    context: str = ""
    """What was said in it, in somebody's words: shown to the first iteration."""


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
    optional_sections: tuple[str, ...] = OPTIONAL_SECTIONS
    """Headings of the task file whose open boxes do not block "done"."""
    notes_file: str = NOTES_FILE
    """Hand-over notes from one iteration to the next, relative to the folder."""
    knowledge_file: str | None = None
    """Durable project knowledge shown to every iteration, relative to the folder."""
    commit_notes: bool = False
    """Include the notes file in those commits."""
    commit_message: Literal["summary", "agent"] = "summary"
    """Commit messages: a line about what was done, in the words of the agent, or a whole message it is asked for."""
    branch: bool = True
    """Start a branch when the repository's default branch is checked out."""
    branch_per: Literal["run", "iteration"] = "run"
    """One branch for the whole run, or a new one for each iteration (`PREFIXiteration-N/DATE-HASH`)."""
    branch_prefix: str = "untildone/"
    """What the names of these branches begin with."""
    keep_dirty: bool = False
    """Start although the user's own uncommitted work is in the folder (it is snapshotted first)."""
    notify: tuple[str, ...] = ()
    """Where to tell what happens: webhook addresses, or anything apprise understands."""
    server: str | None = None
    """A server that gets a copy of what happens, and from which the run takes orders: `http://HOST:PORT`."""
    server_token_file: str | None = None
    """A file with the token for that server. Without it: the variable UNTILDONE_TOKEN."""
    sandbox_id: str | None = None
    """What this machine is called there; a worker's token is for one such name. Without it: the name of the host."""
    mask: tuple[str, ...] = ()
    """Regular expressions of what must not reach the server, beside the keys and tokens that are recognised anyway."""
    portable: bool = False
    """Send the server what another machine needs to go on, too: the conversation, the notes and the tree."""
    then: tuple[str, ...] = ()
    """Goal files to pursue one after the other when this one is done."""
    then_goals: tuple[str, ...] = ()
    """What these files said when the run began: nobody who can write them later chooses the next goal."""
    repository: str | None = None
    """The repository this run's own worktree belongs to; None: it works in place."""
    cleanup_worktree: bool = False
    """Remove the run's own worktree once its work has arrived; one that holds anything else is kept."""
    earlier: Earlier = field(default_factory=Earlier)
    contract: Contract = field(default_factory=Contract)
    landing: Landing = field(default_factory=Landing)
    review: Review = field(default_factory=Review)
    options: AgentOptions = field(default_factory=AgentOptions)
    tending: Tending = field(default_factory=Tending)

    @property
    def checks(self) -> tuple[str, ...]:
        """The names of what must hold before a claim is believed."""
        return tuple(check.name for check in self.contract.checks)

    @property
    def in_session(self) -> bool:
        """Whether this is a loop inside an interactive Claude Code, which only its hooks can drive."""
        return self.options.agent == SESSION

    @property
    def commit(self) -> bool:
        """Whether the loop commits after each successful iteration with changes."""
        return self.landing.land != "none"

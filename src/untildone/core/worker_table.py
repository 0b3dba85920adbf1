"""Every variable a worker reads, once: its name, how it is read, its default, and what it means."""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Literal

from untildone.core import units
from untildone.core import worker_values as values
from untildone.core.dataclass import dataclass
from untildone.core.policy import COMPLETION_SIGNAL, NOTES_FILE
from untildone.core.setting import choice

Theme = Literal["loop", "where", "task", "agent", "github", "earlier"]

THEMES: Mapping[Theme, str] = MappingProxyType(
    {
        "loop": "The loop",
        "where": "Server and sandbox",
        "task": "The task",
        "agent": "The agent",
        "github": "GitHub",
        "earlier": "An earlier conversation",
    }
)
MODES = ("acceptEdits", "default", "dontAsk", "plan", "auto", "bypassPermissions")
"""Claude Code's permission modes; the last one asks for nothing at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """One variable of a worker's environment."""

    name: str
    theme: Theme
    meaning: str
    parse: Callable[[str], Any]
    """ValueError, with the end of a sentence that begins with the name, where it cannot be read."""
    default: str = ""
    """What holds where it is not set, in words."""
    secret: bool = False
    """Its value is shown to nobody."""
    own: bool = False
    """For the worker alone: the agent and the checks do not get it."""


_max_duration = partial(units.limit_duration, bare="seconds")

# --- the table -----------------------------------------------------------------------------------


def _one(
    name: str, theme: Theme, parse: Callable[[str], Any], meaning: str, default: str = "", **more: Any
) -> Variable:
    return Variable(name=name, theme=theme, parse=parse, meaning=meaning, default=default, **more)


VARIABLES: tuple[Variable, ...] = (
    _one(
        "CONTINUOUS_MODE",
        "loop",
        units.switch,
        "Iterate until done or a limit is reached. Off: one iteration, whose word is enough.",
        "false",
    ),
    _one("CONTINUOUS_MAX_RUNS", "loop", units.limit, "Stop after this many successful iterations.", "none"),
    _one("CONTINUOUS_MAX_COST_USD", "loop", units.money, "Stop once this much is spent.", "none"),
    _one("CONTINUOUS_MAX_DURATION", "loop", _max_duration, "Stop after this many seconds.", "none"),
    _one(
        "CONTINUOUS_COMPLETION_SIGNAL",
        "loop",
        units.name_text,
        "The phrase that means that the whole goal is reached.",
        COMPLETION_SIGNAL,
    ),
    _one(
        "CONTINUOUS_COMPLETION_THRESHOLD",
        "loop",
        units.whole,
        "Claims in a row that are believed where nothing is checked.",
        "3",
    ),
    _one(
        "CONTINUOUS_NOTES_FILE", "loop", units.name_text, "Hand-over notes from one iteration to the next.", NOTES_FILE
    ),
    _one(
        "CONTINUOUS_ENABLE_COMMITS",
        "loop",
        units.switch,
        "Commit after each successful iteration with changes.",
        "true",
    ),
    _one(
        "CONTINUOUS_BRANCH_PREFIX",
        "loop",
        units.name_text,
        "What the names of branches begin with.",
        "continuous-claude/",
    ),
    _one(
        "CONTINUOUS_MERGE_STRATEGY",
        "loop",
        choice("squash", "merge", "rebase"),
        "How a pull request is merged: squash, merge or rebase.",
        "squash",
    ),
    _one("CALLBACK_URL", "where", values.address, "Address of the server that is told everything. Needed."),
    _one(
        "CALLBACK_TOKEN",
        "where",
        values.token,
        "This sandbox's token there; a server on the same machine needs none.",
        secret=True,
        own=True,
    ),
    _one("SANDBOX_ID", "where", values.sandbox_id, "What this sandbox is called.", "named after the machine"),
    _one(
        "CWD",
        "where",
        values.folder,
        "The folder to work in; empty or missing, it is cloned from GITHUB_REPO.",
        "where it is started",
    ),
    _one(
        "POLL_INTERVAL",
        "where",
        values.seconds,
        "Seconds between two looks for messages, where the server cannot be waited for.",
        "0.5",
    ),
    _one("HEARTBEAT_INTERVAL", "where", values.seconds, "Seconds between two signs of life.", "30"),
    _one(
        "REPORT_TRANSCRIPT",
        "where",
        units.switch,
        "Send the whole conversation with each iteration, as `transcript_b64`.",
        "false",
    ),
    _one("TASK_ID", "task", values.one_id, "Goes along with every event."),
    _one("AGENT_ID", "task", values.one_id, "Goes along with every event."),
    _one("TICKET_ID", "task", values.one_id, "Goes along with every event, and the agent is told."),
    _one("SPEC_ID", "task", values.one_id, "Goes along with every event."),
    _one("TICKET_TITLE", "task", units.text, "The agent is told."),
    _one(
        "TICKET_DESCRIPTION", "task", units.text, "The goal, where there is no INITIAL_PROMPT; else the agent is told."
    ),
    _one(
        "TASK_DATA_BASE64",
        "task",
        values.task_data,
        "Base64 of a JSON object with what no other variable says: task_id, agent_id, task_description, "
        "ticket_id, ticket_title, ticket_description, spec_id; or nested: `task: {id, description}`, "
        "`ticket: {id, title, description}`.",
        own=True,
    ),
    _one("INITIAL_PROMPT", "task", units.text, "The goal."),
    _one(
        "ANTHROPIC_API_KEY", "agent", values.token, "Claude Code's login; this or the next one is needed.", secret=True
    ),
    _one("ANTHROPIC_AUTH_TOKEN", "agent", values.token, "The same, as a bearer token.", secret=True),
    _one("ANTHROPIC_BASE_URL", "agent", values.address, "Another address of the API.", "Anthropic's own"),
    _one("MODEL", "agent", units.name_text, "The model.", "Claude Code's own"),
    _one(
        "SYSTEM_PROMPT",
        "agent",
        units.text,
        "Takes the place of Claude Code's own system prompt; the rules of the loop are added.",
    ),
    _one("SYSTEM_PROMPT_APPEND", "agent", units.text, "Is added to the system prompt."),
    _one(
        "ALLOWED_TOOLS",
        "agent",
        units.tools,
        "Tools allowed without asking, separated by commas.",
        "as `untildone run` has them",
    ),
    _one("DISALLOWED_TOOLS", "agent", units.tools, "Tools the agent may never use, separated by commas.", "none"),
    _one("PERMISSION_MODE", "agent", choice(*MODES), f"One of {', '.join(MODES)}.", MODES[0]),
    _one("MAX_TURNS", "agent", units.limit, "Turns the agent may take inside one iteration.", "none"),
    _one(
        "MAX_BUDGET_USD",
        "agent",
        units.money,
        "The most that all iterations together may cost; the lower of this and CONTINUOUS_MAX_COST_USD holds.",
        "none",
    ),
    _one(
        "SETTING_SOURCES",
        "agent",
        values.setting_sources,
        f"Which of Claude Code's settings are read: {', '.join(values.SOURCES)}, separated by commas.",
        "all",
    ),
    _one(
        "ENABLE_SPEC_TOOLS",
        "agent",
        units.switch,
        "Give the agent tools for tasks; without a task, or while one is open, nothing counts as done.",
        "false",
    ),
    _one("ENABLE_SKILLS", "agent", units.switch, "Allow, or forbid, skills.", "as Claude Code has it"),
    _one("ENABLE_SUBAGENTS", "agent", units.switch, "Allow, or forbid, subagents.", "as Claude Code has it"),
    _one(
        "GITHUB_TOKEN",
        "github",
        values.token,
        "The login for GitHub. With GITHUB_REPO and commits, work lands through a pull request.",
        secret=True,
    ),
    _one("GITHUB_REPO", "github", values.repository, "OWNER/NAME."),
    _one(
        "BRANCH_NAME",
        "github",
        values.branch_name,
        "The branch to work on, and to open the pull request from; created if it does not exist.",
        "the one that is checked out",
    ),
    _one("RESUME_SESSION_ID", "earlier", values.session_id, "Let the first iteration go on in this conversation."),
    _one("FORK_SESSION", "earlier", units.switch, "Go on in a copy of it, under an id of its own.", "false"),
    _one(
        "SESSION_TRANSCRIPT_B64",
        "earlier",
        values.transcript,
        "Base64 of its transcript (gzip or not), if this machine does not have it.",
        secret=True,
        own=True,
    ),
    _one(
        "CONVERSATION_CONTEXT",
        "earlier",
        units.text,
        "A summary of an earlier conversation: shown to the first iteration.",
        own=True,
    ),
)

_LANDS_ITSELF = "the loop commits, pushes and opens the pull request itself; UNTILDONE_REQUIRE asks for more"
_TOO_COMMON = "other programs have a variable of that name; {} is read"
_PROMPTS = "it chooses between prompts of that worker; INITIAL_PROMPT and SYSTEM_PROMPT_APPEND say what is wanted"

NOT_READ: Mapping[str, str] = MappingProxyType(
    {
        "CONTINUOUS_AUTO_VALIDATE": _LANDS_ITSELF,
        "CONTINUOUS_REQUIRE_CLEAN_GIT": _LANDS_ITSELF,
        "CONTINUOUS_REQUIRE_PUSHED": _LANDS_ITSELF,
        "CONTINUOUS_REQUIRE_PR": _LANDS_ITSELF,
        "REQUIRE_CLEAN_GIT": _LANDS_ITSELF,
        "REQUIRE_CODE_PUSHED": _LANDS_ITSELF,
        "REQUIRE_PR_CREATED": _LANDS_ITSELF,
        "MAX_ITERATIONS": _TOO_COMMON.format("CONTINUOUS_MAX_RUNS"),
        "MAX_TOTAL_COST_USD": _TOO_COMMON.format("CONTINUOUS_MAX_COST_USD"),
        "MAX_DURATION_SECONDS": _TOO_COMMON.format("CONTINUOUS_MAX_DURATION"),
        "MAX_CONSECUTIVE_ERRORS": _TOO_COMMON.format("UNTILDONE_ERROR_THRESHOLD"),
        "COMPLETION_SIGNAL": _TOO_COMMON.format("CONTINUOUS_COMPLETION_SIGNAL"),
        "COMPLETION_THRESHOLD": _TOO_COMMON.format("CONTINUOUS_COMPLETION_THRESHOLD"),
        "NOTES_FILE": _TOO_COMMON.format("CONTINUOUS_NOTES_FILE"),
        "ANTHROPIC_MODEL": "Claude Code reads it itself where MODEL is not set",
        "EXECUTION_MODE": _PROMPTS,
        "AGENT_TYPE": _PROMPTS,
        "REQUIRE_SPEC_SKILL": _PROMPTS,
        "ENABLE_ASK_USER_QUESTION": "a run has no human to ask; questions are collected for the report",
    }
)
"""Variables of the published workers that change nothing here, and why."""

BY_VARIABLE: Mapping[str, Variable] = MappingProxyType({variable.name: variable for variable in VARIABLES})

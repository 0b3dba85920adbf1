"""What a worker in a sandbox is told by its environment, and by nothing else.

One table: what each variable is called, how it is read, and what it means. The help of `untildone worker` and
docs/worker.md come from it. Settings that have no variable here are given as UNTILDONE_NAME, as everywhere.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from untildone.core.dataclass import dataclass
from untildone.core.near_names import nearest, slips
from untildone.core.policy import Earlier
from untildone.core.printable import one_line
from untildone.core.settings import BY_NAME, SETTINGS
from untildone.core.worker_table import BY_VARIABLE, MODES, NOT_READ, VARIABLES, Variable
from untildone.core.worker_values import TaskData

_SHOWN = 120
_LONGEST_LINE = 400
_KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
_OTHER_LOGINS = (
    "CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY",
)  # fmt: skip
"""By these Claude Code has a login without a key."""
_LOOP = "CONTINUOUS_"
"""What begins so is meant for a worker."""
_ALL_ARE_LISTED = "`untildone worker --help` lists them"
_LIMITS = ("CONTINUOUS_MAX_RUNS", "CONTINUOUS_MAX_COST_USD", "CONTINUOUS_MAX_DURATION", "MAX_BUDGET_USD")
_MORE_LIMITS = tuple(
    setting.env[0] for setting in SETTINGS if setting.group == "limits" and setting.name != "max_calls_per_hour"
)
_OTHER_DEFAULTS = {
    "CONTINUOUS_BRANCH_PREFIX": "branch_prefix",
    "CONTINUOUS_COMPLETION_THRESHOLD": "completion_threshold",
}
"""Where a worker was always different from a person at a terminal."""
_NOT_HERE = {
    "then": "is not for workers: start one for each goal",
    "server": "is not for workers: CALLBACK_URL is the address of the server",
    "server_token_file": "is not for workers: CALLBACK_TOKEN is the token for the server",
    "sandbox_id": "is not for workers: SANDBOX_ID is what the sandbox is called",
    "worktree": "is not for workers: a sandbox has its folder for itself",
}
_ONCE: Mapping[str, object] = {"max_runs": "1", "completion_threshold": "1", "error_threshold": "1"}
"""One iteration, whose word is enough, and whose failure is the worker's. One that was cut off is taken up again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """Everything a worker needs to know."""

    goal: str
    callback_url: str
    given: Mapping[str, object]
    """Settings, as if they had been typed."""
    sandbox_id: str | None = None
    """None: named after the machine."""
    callback_token: str | None = field(default=None, repr=False)
    cwd: str | None = None
    """None: where it was started."""
    continuous: bool = False
    ids: Mapping[str, str] = field(default_factory=dict)
    """task_id, agent_id, ticket_id, spec_id: whichever was given goes along with every event."""
    poll_interval: float = 0.5
    heartbeat_interval: float = 30.0
    report_transcript: bool = False
    earlier: Earlier = field(default_factory=Earlier)
    transcript: bytes | None = field(default=None, repr=False)
    """The conversation of `earlier.session`, as Claude Code writes it down."""
    github_repo: str | None = None
    branch_name: str | None = None


def worker_config(env: Mapping[str, str], *, has_login: bool = False) -> WorkerConfig | list[str]:
    """What the environment asks for; else everything that is wrong with it, one line each.

    `has_login`: Claude Code has one of its own on this machine.
    """
    values: dict[str, Any] = {}
    wrong: list[str] = []
    for variable in VARIABLES:
        try:
            values[variable.name] = _read(variable, env)
        except ValueError as problem:
            values[variable.name] = None
            wrong.append(_line(f"{variable.name} {problem}"))
    broken = {line.partition(" ")[0] for line in wrong}
    wrong += _wrong_settings(env)
    wrong += [line for line, needs in _missing(values, env, has_login=has_login) if not broken & set(needs)]
    wrong += _misspelt(env)
    return wrong or _configured(values, env)


def as_shown(env: Mapping[str, str]) -> list[tuple[str, str]]:
    """Every variable that is set, with its value as it may be seen: what is secret is not, and long texts are cut."""
    given = [variable for variable in VARIABLES if env.get(variable.name, "").strip()]
    return [(one.name, "set, not shown" if one.secret else one_line(env[one.name], _SHOWN)) for one in given]


def not_read(env: Mapping[str, str]) -> list[str]:
    """Published variables that are set and change nothing here, with the reason."""
    return [_line(f"{name} is not read: {why}") for name, why in NOT_READ.items() if env.get(name, "").strip()]


def kept_from_agents() -> frozenset[str]:
    """Variables that are for the worker alone: neither the agent nor a check gets them."""
    return frozenset(variable.name for variable in VARIABLES if variable.own)


def _read(variable: Variable, env: Mapping[str, str]) -> Any:
    raw = env.get(variable.name, "")
    return variable.parse(raw) if raw.strip() else None


def _line(text: str) -> str:
    return one_line(text, _LONGEST_LINE)


def _wrong_settings(env: Mapping[str, str]) -> list[str]:
    wrong = []
    for setting in SETTINGS:
        raw = env.get(setting.env[0], "")
        is_seconds = setting.kind == "DURATION" and setting.name != "iteration_timeout" and raw.isdigit()
        try:
            if raw and setting.name in _NOT_HERE:
                raise ValueError(_NOT_HERE[setting.name])  # noqa: TRY301 - one way for all that is wrong
            if raw:
                setting.parse(f"{raw}s" if is_seconds else raw)
        except ValueError as problem:
            wrong.append(_line(f"{setting.env[0]} {problem}"))
    return wrong


def _misspelt(env: Mapping[str, str]) -> list[str]:
    """A name that looks like one of ours and is none would be believed to work."""
    given = {name for name, value in env.items() if value.strip()} - set(BY_VARIABLE) - set(NOT_READ)
    alike = dict(slips(given, BY_VARIABLE))
    ours = {word for name in BY_VARIABLE for word in name.removeprefix(_LOOP).split("_")}
    # CONTINUOUS_INTEGRATION and its like are set by build servers.
    of_loop = {
        name: nearest(name, BY_VARIABLE)
        for name in given
        if name.startswith(_LOOP) and ours.intersection(name.removeprefix(_LOOP).split("_"))
    }
    hints = {name: f"did you mean {meant}?" if meant else _ALL_ARE_LISTED for name, meant in (alike | of_loop).items()}
    return [_line(f"{name} is not a variable of the worker: {hint}") for name, hint in sorted(hints.items())]


def _missing(values: Mapping[str, Any], env: Mapping[str, str], *, has_login: bool) -> list[tuple[str, Sequence[str]]]:
    """What is not there and has to be; beside it, the variables that would have to be right for it to be said."""
    resumed = values["RESUME_SESSION_ID"] is not None
    has_limit = any(values[name] for name in _LIMITS) or any(env.get(name) for name in _MORE_LIMITS)
    told = [
        (
            values["CALLBACK_URL"] is not None,
            "CALLBACK_URL is missing: set it to the address of the server, such as http://127.0.0.1:8642",
            ("CALLBACK_URL",),
        ),
        (
            has_login or any(env.get(name, "").strip() for name in (*_KEYS, *_OTHER_LOGINS)),
            "ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN is missing: Claude Code needs a login",
            (),
        ),
        (
            bool(_goal(values)),
            "there is no goal: set INITIAL_PROMPT, TICKET_DESCRIPTION or TASK_DATA_BASE64",
            ("TASK_DATA_BASE64",),
        ),
        (
            has_limit or not values["CONTINUOUS_MODE"],
            f"nothing limits this run: set at least one of {', '.join(_LIMITS[:-1])}",
            _LIMITS,
        ),
        (
            resumed or values["SESSION_TRANSCRIPT_B64"] is None,
            "SESSION_TRANSCRIPT_B64 needs RESUME_SESSION_ID: the conversation it is the transcript of",
            ("RESUME_SESSION_ID",),
        ),
        (
            resumed or not values["FORK_SESSION"],
            "FORK_SESSION needs RESUME_SESSION_ID: the conversation to go on from",
            ("RESUME_SESSION_ID",),
        ),
    ]
    return [(line, needs) for is_there, line, needs in told if not is_there]


def _configured(values: Mapping[str, Any], env: Mapping[str, str]) -> WorkerConfig:
    task: TaskData = values["TASK_DATA_BASE64"] or TaskData()
    ids = {
        "task_id": values["TASK_ID"] or task.task_id,
        "agent_id": values["AGENT_ID"] or task.agent_id,
        "ticket_id": values["TICKET_ID"] or task.ticket_id,
        "spec_id": values["SPEC_ID"] or task.spec_id,
    }
    return WorkerConfig(
        goal=_goal(values),
        callback_url=values["CALLBACK_URL"],
        callback_token=values["CALLBACK_TOKEN"],
        sandbox_id=values["SANDBOX_ID"],
        cwd=values["CWD"],
        continuous=bool(values["CONTINUOUS_MODE"]),
        ids={name: value for name, value in ids.items() if value},
        poll_interval=values["POLL_INTERVAL"] or float(BY_VARIABLE["POLL_INTERVAL"].default),
        heartbeat_interval=values["HEARTBEAT_INTERVAL"] or float(BY_VARIABLE["HEARTBEAT_INTERVAL"].default),
        report_transcript=bool(values["REPORT_TRANSCRIPT"]),
        earlier=Earlier(
            session=values["RESUME_SESSION_ID"],
            fork=bool(values["FORK_SESSION"]),
            context=values["CONVERSATION_CONTEXT"] or "",
        ),
        transcript=values["SESSION_TRANSCRIPT_B64"],
        github_repo=values["GITHUB_REPO"],
        branch_name=values["BRANCH_NAME"],
        given=_given(values, env),
    )


# --- what it is to do ----------------------------------------------------------------------------


def _goal(values: Mapping[str, Any]) -> str:
    task: TaskData = values["TASK_DATA_BASE64"] or TaskData()
    title = values["TICKET_TITLE"] or task.ticket_title
    ticket = values["TICKET_DESCRIPTION"] or task.ticket_description
    described = f"{title}\n\n{ticket}" if title and ticket else ticket
    return str(values["INITIAL_PROMPT"] or described or task.task_description or title or "").strip()


def _about(values: Mapping[str, Any]) -> str:
    """What the agent should know of its task besides the goal."""
    task: TaskData = values["TASK_DATA_BASE64"] or TaskData()
    goal = _goal(values)
    named = (values["TICKET_ID"] or task.ticket_id, values["TICKET_TITLE"] or task.ticket_title)
    parts = {
        "Ticket": " ".join(filter(None, named)),
        "The ticket says": values["TICKET_DESCRIPTION"] or task.ticket_description,
        "The task says": task.task_description,
    }
    told = [f"{name}: {text}" for name, text in parts.items() if text and text not in goal]
    return "\n\n".join(["# Where this goal comes from", *told]) if told else ""


# --- how it is to do it --------------------------------------------------------------------------


def _given(values: Mapping[str, Any], env: Mapping[str, str]) -> dict[str, object]:
    """Settings by name. What is given as UNTILDONE_NAME says it more precisely, and holds."""
    found = _plain(values) | _rights(values) | _limits(values)
    found = {name: raw for name, raw in found.items() if not env.get(BY_NAME[name].env[0])}
    added = {
        "extra_args": _extra_args(values),
        "allow_tools": _tools(values, allowed=True),
        "disallowed_tools": (*(values["DISALLOWED_TOOLS"] or ()), *_tools(values, allowed=False)),
        "require": ("tasks-done",) if values["ENABLE_SPEC_TOOLS"] else (),
    }
    for name, ours in added.items():
        if ours:
            theirs = env.get(BY_NAME[name].env[0])
            before: Any = BY_NAME[name].parse(theirs) if theirs else found.get(name, BY_NAME[name].default)
            found[name] = tuple(dict.fromkeys((*before, *ours)))
    return found


def _plain(values: Mapping[str, Any]) -> dict[str, object]:
    """Variables that are one setting each, and what a worker does otherwise than a person at a terminal."""
    appended = "\n\n".join(filter(None, (_about(values), values["SYSTEM_PROMPT_APPEND"])))
    lands = values["GITHUB_REPO"] and values["GITHUB_TOKEN"] and values["CONTINUOUS_ENABLE_COMMITS"] is not False
    plain = {"MODEL": "model", "MAX_TURNS": "max_turns", "GITHUB_REPO": "repo"}
    found: dict[str, object] = {plain[name]: values[name] for name in plain if values[name] is not None}
    # Of the others that begin with CONTINUOUS_ the ordinary settings know name and default.
    for name, setting in _OTHER_DEFAULTS.items():
        if values[name] is None:
            found[setting] = BY_VARIABLE[name].default
    if appended:
        found["append_system_prompt"] = appended
    if lands:
        found["land"] = "pr"
    if values["ENABLE_SPEC_TOOLS"]:
        found["task_tools"] = True
    return found


def _limits(values: Mapping[str, Any]) -> dict[str, object]:
    most = [amount for name in ("CONTINUOUS_MAX_COST_USD", "MAX_BUDGET_USD") if (amount := values[name])]
    cost: dict[str, object] = {"max_cost_usd": f"{min(most)!r}"} if most else {}
    return cost if values["CONTINUOUS_MODE"] else {**cost, **_ONCE}


def _rights(values: Mapping[str, Any]) -> dict[str, object]:
    found: dict[str, object] = {"allowed_tools": values["ALLOWED_TOOLS"]} if values["ALLOWED_TOOLS"] else {}
    if values["PERMISSION_MODE"] == MODES[-1]:
        return {**found, "skip_permissions": True}
    return {**found, "permission_mode": values["PERMISSION_MODE"]} if values["PERMISSION_MODE"] else found


def _tools(values: Mapping[str, Any], *, allowed: bool) -> tuple[str, ...]:
    """Skills and subagents are left as Claude Code has them unless somebody says."""
    kinds = (("ENABLE_SKILLS", ("Skill",)), ("ENABLE_SUBAGENTS", ("Task", "Agent")))
    return tuple(tool for name, tools in kinds if values[name] is allowed for tool in tools)


def _extra_args(values: Mapping[str, Any]) -> tuple[str, ...]:
    prompt, sources = values["SYSTEM_PROMPT"], values["SETTING_SOURCES"]
    replaced = () if prompt is None else (f"--system-prompt={prompt}",)
    return (*replaced, *(() if sources is None else (f"--setting-sources={','.join(sources)}",)))

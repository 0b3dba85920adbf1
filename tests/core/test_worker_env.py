"""What a worker makes of its environment: every variable, every mistake, all at once."""

import base64
import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from untildone import config
from untildone.core.policy import Earlier, Policy, RunSpec
from untildone.core.settings import SETTINGS
from untildone.core.worker_env import WorkerConfig, as_shown, kept_from_agents, not_read, worker_config
from untildone.core.worker_table import BY_VARIABLE, VARIABLES

LEAST = {"CALLBACK_URL": "http://127.0.0.1:8642", "ANTHROPIC_API_KEY": "sk-ant-key", "INITIAL_PROMPT": "Do it"}
LOOP = LEAST | {"CONTINUOUS_MODE": "true", "CONTINUOUS_MAX_RUNS": "5"}
TRANSCRIPT = b'{"type":"user"}\n'


def b64(content: bytes | dict[str, Any]) -> str:
    return base64.b64encode(json.dumps(content).encode() if isinstance(content, dict) else content).decode()


def told(**more: str) -> WorkerConfig:
    found = worker_config(LOOP | more)
    assert isinstance(found, WorkerConfig), found
    return found


def settled(**more: str) -> tuple[Policy, RunSpec]:
    """The whole way, from variables to what is run."""
    env = LOOP | more
    wanted = told(**more)
    resolved = config.resolve(wanted.given, env=env | {"HOME": "/"})
    spec = config.run_spec(resolved, goal=wanted.goal, cwd=Path("/x"), name="n")
    return config.policy(resolved, now=0.0), spec


PUBLISHED = """\
CONTINUOUS_MODE CONTINUOUS_MAX_RUNS CONTINUOUS_MAX_COST_USD CONTINUOUS_MAX_DURATION CONTINUOUS_COMPLETION_SIGNAL
CONTINUOUS_COMPLETION_THRESHOLD CONTINUOUS_NOTES_FILE CONTINUOUS_ENABLE_COMMITS CONTINUOUS_BRANCH_PREFIX
CONTINUOUS_MERGE_STRATEGY SANDBOX_ID CALLBACK_URL ANTHROPIC_API_KEY ANTHROPIC_AUTH_TOKEN ANTHROPIC_BASE_URL MODEL
TASK_ID AGENT_ID TICKET_ID TICKET_TITLE TICKET_DESCRIPTION TASK_DATA_BASE64 INITIAL_PROMPT SYSTEM_PROMPT
SYSTEM_PROMPT_APPEND ALLOWED_TOOLS PERMISSION_MODE MAX_TURNS MAX_BUDGET_USD CWD SETTING_SOURCES ENABLE_SPEC_TOOLS
ENABLE_SKILLS ENABLE_SUBAGENTS POLL_INTERVAL HEARTBEAT_INTERVAL GITHUB_TOKEN GITHUB_REPO BRANCH_NAME RESUME_SESSION_ID
FORK_SESSION SESSION_TRANSCRIPT_B64 CONVERSATION_CONTEXT REPORT_TRANSCRIPT DISALLOWED_TOOLS SPEC_ID
"""
LATER = """\
CONTINUOUS_AUTO_VALIDATE CONTINUOUS_REQUIRE_CLEAN_GIT CONTINUOUS_REQUIRE_PUSHED CONTINUOUS_REQUIRE_PR REQUIRE_CLEAN_GIT
REQUIRE_CODE_PUSHED REQUIRE_PR_CREATED MAX_ITERATIONS MAX_TOTAL_COST_USD MAX_DURATION_SECONDS MAX_CONSECUTIVE_ERRORS
COMPLETION_SIGNAL COMPLETION_THRESHOLD NOTES_FILE ANTHROPIC_MODEL EXECUTION_MODE AGENT_TYPE REQUIRE_SPEC_SKILL
ENABLE_ASK_USER_QUESTION
"""
"""Of the workers that followed the published text."""
PAGE = (Path(__file__).parents[2] / "docs" / "worker.md").read_text()


def test_every_published_name_is_read_and_only_the_token_for_the_server_is_new() -> None:
    assert sorted(BY_VARIABLE) == sorted([*PUBLISHED.split(), "CALLBACK_TOKEN"])
    assert len(VARIABLES) == len(BY_VARIABLE)


def test_the_page_says_of_every_published_name_whether_it_is_read_or_why_not() -> None:
    read, unread = PAGE.split("### Published, and not read")
    rows = [dict(re.findall(r"^\| `([A-Z][A-Z0-9_]+)` \| (.*) \|$", part, re.MULTILINE)) for part in (read, unread)]
    assert sorted(rows[0]) == sorted([*PUBLISHED.split(), "CALLBACK_TOKEN"])
    assert sorted(rows[1]) == sorted(LATER.split())
    for name in rows[1]:
        assert worker_config(LOOP | {name: "true"}) == told(), "it changes nothing and stops nothing"
        assert [line.partition(" ")[0] for line in not_read({name: "true"})] == [name]
    settings = {word for why in rows[1].values() for word in re.findall(r"[A-Z]+(?:_[A-Z]+)+", why)}
    assert settings <= {*BY_VARIABLE, *(setting.env[0] for setting in SETTINGS)}


@pytest.mark.parametrize("name", ["CONTINUOUS_INTEGRATION", "ANTHROPIC_API_KEY_2", "GITHUB_TOKEN_RO", "TASK_IDS"])
def test_names_of_others_stop_nothing(name: str) -> None:
    assert worker_config(LOOP | {name: "true"}) == told()


def test_the_published_defaults_hold() -> None:
    policy, spec = settled()
    assert (policy.max_runs, policy.max_cost_usd, policy.max_duration) == (5, None, None)
    assert (policy.completion_signal, policy.completion_threshold) == ("CONTINUOUS_CLAUDE_PROJECT_COMPLETE", 3)
    assert (spec.notes_file, spec.branch_prefix, spec.landing.strategy) == (
        "SHARED_TASK_NOTES.md", "continuous-claude/", "squash",
    )  # fmt: skip
    assert spec.commit
    assert (told().poll_interval, told().heartbeat_interval, told().report_transcript) == (0.5, 30.0, False)


@pytest.mark.parametrize(
    ("variable", "value", "where", "expected"),
    [
        ("CONTINUOUS_MAX_RUNS", "7", "policy.max_runs", 7),
        ("CONTINUOUS_MAX_COST_USD", "2.5", "policy.max_cost_usd", 2.5),
        ("CONTINUOUS_MAX_DURATION", "90", "policy.max_duration", 90.0),
        ("CONTINUOUS_MAX_DURATION", "2h", "policy.max_duration", 7200.0),
        ("CONTINUOUS_COMPLETION_SIGNAL", "ALL GOOD", "policy.completion_signal", "ALL GOOD"),
        ("CONTINUOUS_COMPLETION_THRESHOLD", "2", "policy.completion_threshold", 2),
        ("CONTINUOUS_NOTES_FILE", "N.md", "spec.notes_file", "N.md"),
        ("CONTINUOUS_ENABLE_COMMITS", "false", "spec.commit", False),
        ("CONTINUOUS_BRANCH_PREFIX", "bot/", "spec.branch_prefix", "bot/"),
        ("CONTINUOUS_MERGE_STRATEGY", "rebase", "spec.landing.strategy", "rebase"),
        ("MODEL", "claude-x", "spec.options.model", "claude-x"),
        ("MAX_TURNS", "9", "spec.options.max_turns", 9),
        ("MAX_BUDGET_USD", "4", "policy.max_cost_usd", 4.0),
        ("ALLOWED_TOOLS", "Read, Bash(git a:*),Edit", "spec.options.allowed_tools", ("Read", "Bash(git a:*)", "Edit")),
        ("PERMISSION_MODE", "plan", "spec.options.permission_mode", "plan"),
        ("PERMISSION_MODE", "bypassPermissions", "spec.options.skip_permissions", True),
        ("DISALLOWED_TOOLS", "Bash, WebFetch", "spec.options.disallowed_tools", ("Bash", "WebFetch")),
        ("SPEC_ID", "s1", "config.ids", {"spec_id": "s1"}),
        ("SYSTEM_PROMPT", "You are X", "spec.options.extra_args", ("--system-prompt=You are X",)),
        ("SYSTEM_PROMPT_APPEND", "Be kind", "spec.options.append_system_prompt", "Be kind"),
        ("SETTING_SOURCES", "user, project", "spec.options.extra_args", ("--setting-sources=user,project",)),
        ("ENABLE_SPEC_TOOLS", "1", "spec.options.task_tools", True),
        ("ENABLE_SPEC_TOOLS", "1", "spec.checks", ("tasks-done",)),
        ("ENABLE_SKILLS", "true", "spec.options.allow_tools", ("Skill",)),
        ("ENABLE_SKILLS", "false", "spec.options.disallowed_tools", ("Skill",)),
        ("ENABLE_SUBAGENTS", "true", "spec.options.allow_tools", ("Task", "Agent")),
        ("ENABLE_SUBAGENTS", "false", "spec.options.disallowed_tools", ("Task", "Agent")),
        ("GITHUB_REPO", "me/shop", "spec.landing.repo", "me/shop"),
        ("GITHUB_REPO", "me/shop", "spec.landing.land", "commit"),
        ("SANDBOX_ID", "sb-1", "config.sandbox_id", "sb-1"),
        ("CALLBACK_URL", "https://u.example/base/", "config.callback_url", "https://u.example/base"),
        ("CALLBACK_TOKEN", "ud_secret", "config.callback_token", "ud_secret"),
        ("CWD", "/w", "config.cwd", "/w"),
        ("POLL_INTERVAL", "2", "config.poll_interval", 2.0),
        ("HEARTBEAT_INTERVAL", "5", "config.heartbeat_interval", 5.0),
        ("REPORT_TRANSCRIPT", "1", "config.report_transcript", True),
        ("BRANCH_NAME", "feature/x", "config.branch_name", "feature/x"),
        ("TASK_ID", "t1", "config.ids", {"task_id": "t1"}),
        ("AGENT_ID", "a1", "config.ids", {"agent_id": "a1"}),
        ("TICKET_ID", "k1", "config.ids", {"ticket_id": "k1"}),
        ("CONVERSATION_CONTEXT", "we talked", "config.earlier", Earlier(context="we talked")),
        ("RESUME_SESSION_ID", "11-aa", "config.earlier", Earlier(session="11-aa")),
        ("INITIAL_PROMPT", "  Another goal ", "config.goal", "Another goal"),
        ("ANTHROPIC_AUTH_TOKEN", "z", "config.goal", "Do it"),
        ("ANTHROPIC_BASE_URL", "http://127.0.0.1:9", "config.goal", "Do it"),
    ],
)  # fmt: skip
def test_each_variable_goes_where_it_belongs(variable: str, value: str, where: str, expected: object) -> None:
    policy, spec = settled(**{variable: value})
    home, *names = where.split(".")
    found: Any = {"policy": policy, "spec": spec, "config": told(**{variable: value})}[home]
    for name in names:
        found = getattr(found, name)
    assert found == expected


def test_once_is_one_iteration_whose_word_is_enough_and_whose_failure_counts() -> None:
    wanted = worker_config(LEAST | {"CONTINUOUS_COMPLETION_THRESHOLD": "3", "CONTINUOUS_MAX_RUNS": "9"})
    assert isinstance(wanted, WorkerConfig)
    assert not wanted.continuous
    policy = config.policy(config.resolve(wanted.given, env={"HOME": "/"}), now=0.0)
    assert (policy.max_runs, policy.completion_threshold, policy.error_threshold) == (1, 1, 1)


def test_the_lower_of_both_budgets_holds() -> None:
    assert settled(MAX_BUDGET_USD="3", CONTINUOUS_MAX_COST_USD="9")[0].max_cost_usd == 3.0
    assert settled(MAX_BUDGET_USD="9", CONTINUOUS_MAX_COST_USD="3")[0].max_cost_usd == 3.0
    assert settled(MAX_BUDGET_USD="9", CONTINUOUS_MAX_COST_USD="0")[0].max_cost_usd == 9.0


def test_what_is_said_by_our_own_names_holds_and_lists_are_joined() -> None:
    policy, spec = settled(
        MODEL="a", UNTILDONE_MODEL="b", UNTILDONE_COMPLETION_THRESHOLD="9", UNTILDONE_CHECKS="make test",
        UNTILDONE_REQUIRE="tree-clean", ENABLE_SPEC_TOOLS="true", UNTILDONE_ALLOWED_TOOLS="Read", ALLOWED_TOOLS="Edit",
        ENABLE_SKILLS="true", UNTILDONE_EXTRA_ARGS="--effort high", SETTING_SOURCES="user",
    )  # fmt: skip
    assert (spec.options.model, policy.completion_threshold) == ("b", 9)
    assert spec.checks == ("make test", "tasks-done", "tree-clean")
    assert (spec.options.allowed_tools, spec.options.allow_tools) == (("Read",), ("Skill",))
    assert spec.options.extra_args == ("--effort", "high", "--setting-sources=user")


@pytest.mark.parametrize(
    ("more", "lands"),
    [
        ({"GITHUB_REPO": "me/shop", "GITHUB_TOKEN": "ghp_x"}, "pr"),
        ({"GITHUB_TOKEN": "ghp_x"}, "commit"),
        ({"GITHUB_REPO": "me/shop", "GITHUB_TOKEN": "ghp_x", "CONTINUOUS_ENABLE_COMMITS": "false"}, "none"),
        ({"GITHUB_REPO": "me/shop", "GITHUB_TOKEN": "ghp_x", "UNTILDONE_LAND": "commit"}, "commit"),
    ],
)
def test_with_a_login_for_the_repository_work_lands_by_pull_request(more: dict[str, str], lands: str) -> None:
    assert settled(**more)[1].landing.land == lands


@pytest.mark.parametrize(
    ("more", "goal"),
    [
        ({"INITIAL_PROMPT": "P", "TICKET_DESCRIPTION": "D"}, "P"),
        ({"INITIAL_PROMPT": "", "TICKET_DESCRIPTION": "D"}, "D"),
        ({"INITIAL_PROMPT": "", "TICKET_DESCRIPTION": "D", "TICKET_TITLE": "T"}, "T\n\nD"),
        ({"INITIAL_PROMPT": " ", "TASK_DATA_BASE64": b64({"task_description": "S", "more": [1]})}, "S"),
        ({"INITIAL_PROMPT": "", "TASK_DATA_BASE64": b64({"description": "S2"})}, "S2"),
        ({"INITIAL_PROMPT": "", "TASK_DATA_BASE64": b64({"ticket_description": "K", "task_description": "S"})}, "K"),
        ({"INITIAL_PROMPT": "", "TICKET_TITLE": "Only a title"}, "Only a title"),
        ({"INITIAL_PROMPT": "", "TASK_DATA_BASE64": b64({"task": {"id": "t", "description": "S3"}})}, "S3"),
        ({"INITIAL_PROMPT": "", "TASK_DATA_BASE64": b64({"ticket": {"title": "T", "description": "K"}})}, "T\n\nK"),
        ({"INITIAL_PROMPT": "", "TASK_DATA_BASE64": b64({"task": "?", "task_description": "S"})}, "S"),
    ],
)
def test_the_goal_is_the_prompt_else_the_ticket_else_the_task(more: dict[str, str], goal: str) -> None:
    assert told(**more).goal == goal


def test_what_is_not_the_goal_is_told_beside_it_and_nothing_twice() -> None:
    data = b64({"ticket_title": "Shop", "ticket_description": "Sell", "task_description": "Do it", "ticket_id": 7})
    wanted = told(TASK_DATA_BASE64=data, SYSTEM_PROMPT_APPEND="Be kind", TASK_ID="t")
    assert wanted.given["append_system_prompt"] == (
        "# Where this goal comes from\n\nTicket: 7 Shop\n\nThe ticket says: Sell\n\nBe kind"
    )
    assert wanted.ids == {"task_id": "t", "ticket_id": "7"}


def test_task_data_may_be_nested() -> None:
    nested = {"task": {"id": "t9", "type": "x", "description": "Do it"}, "ticket": {"id": 7, "title": "Shop"}}
    wanted = told(TASK_DATA_BASE64=b64({**nested, "spec": {"id": "s1"}, "requirements": [{}]}))
    assert wanted.ids == {"task_id": "t9", "ticket_id": "7", "spec_id": "s1"}
    assert "Ticket: 7 Shop" in str(wanted.given["append_system_prompt"])
    assert told(TASK_DATA_BASE64=b64({**nested, "task_id": "flat"})).ids["task_id"] == "flat"


@pytest.mark.parametrize("packed", [TRANSCRIPT, gzip.compress(TRANSCRIPT, mtime=0)])
def test_a_transcript_may_be_compressed(packed: bytes) -> None:
    wanted = told(RESUME_SESSION_ID="s", SESSION_TRANSCRIPT_B64=b64(packed), FORK_SESSION="true")
    assert (wanted.transcript, wanted.earlier) == (TRANSCRIPT, Earlier(session="s", fork=True))


WRONG = [
    ("CONTINUOUS_MODE", "maybe"), ("CONTINUOUS_MAX_RUNS", "ten"), ("CONTINUOUS_MAX_RUNS", "-1"),
    ("CONTINUOUS_MAX_COST_USD", "nan"), ("CONTINUOUS_MAX_COST_USD", "inf"), ("CONTINUOUS_MAX_DURATION", "soon"),
    ("CONTINUOUS_COMPLETION_THRESHOLD", "0"), ("CONTINUOUS_ENABLE_COMMITS", "2"),
    ("CONTINUOUS_MERGE_STRATEGY", "octopus"),
    ("CALLBACK_URL", "ftp://x"), ("CALLBACK_URL", "http://user:pw@host"), ("CALLBACK_URL", "http://h/?q=1"),
    ("CALLBACK_TOKEN", "a b"), ("SANDBOX_ID", "../../x"), ("SANDBOX_ID", "a" * 101), ("CWD", "a\0b"),
    ("POLL_INTERVAL", "0"), ("POLL_INTERVAL", "nan"), ("HEARTBEAT_INTERVAL", "-3"), ("REPORT_TRANSCRIPT", "x"),
    ("TASK_ID", "a\nb"), ("AGENT_ID", "x" * 201), ("TICKET_ID", "\x1b[31m"), ("TASK_DATA_BASE64", "%%%"),
    ("TASK_DATA_BASE64", b64(b"[1]")), ("TASK_DATA_BASE64", b64(b"not json")),
    ("TASK_DATA_BASE64", b64({"task_id": [1]})),
    ("ANTHROPIC_API_KEY", "sk two"), ("ANTHROPIC_AUTH_TOKEN", "\u00fc"), ("ANTHROPIC_BASE_URL", "localhost"),
    ("PERMISSION_MODE", "yolo"), ("MAX_TURNS", "1.5"), ("MAX_BUDGET_USD", "much"), ("SETTING_SOURCES", "user,system"),
    ("ENABLE_SPEC_TOOLS", "?"), ("SPEC_ID", "a\nb"), ("ENABLE_SKILLS", "?"), ("ENABLE_SUBAGENTS", "?"),
    ("GITHUB_TOKEN", "gh p"),
    ("GITHUB_REPO", "shop"), ("GITHUB_REPO", "a/b/c"), ("BRANCH_NAME", "a..b"), ("BRANCH_NAME", "-x"),
    ("RESUME_SESSION_ID", "../x"), ("FORK_SESSION", "2"), ("SESSION_TRANSCRIPT_B64", "***"),
    ("SESSION_TRANSCRIPT_B64", b64(b"\x1f\x8bnope")),
    ("SESSION_TRANSCRIPT_B64", b64(gzip.compress(TRANSCRIPT, mtime=0)[:-9])),
    ("SESSION_TRANSCRIPT_B64", b64(b"hello")), ("UNTILDONE_MAX_ITERATIONS", "x"), ("UNTILDONE_LAND", "moon"),
    ("UNTILDONE_LOOP_DELAY", "soon"), ("UNTILDONE_THEN", "next.md"), ("UNTILDONE_WORKTREE", ":"),
]  # fmt: skip


@pytest.mark.parametrize(("variable", "value"), WRONG)
def test_each_mistake_is_one_line_that_begins_with_its_name(variable: str, value: str) -> None:
    more = {variable: value}
    if variable == "SESSION_TRANSCRIPT_B64":
        more["RESUME_SESSION_ID"] = "s"
    wrong = worker_config(LOOP | more)
    assert isinstance(wrong, list)
    assert len(wrong) == 1, wrong
    assert wrong[0].startswith(f"{variable} ")
    assert "\n" not in wrong[0]


def test_no_line_quotes_a_secret() -> None:
    secrets = {name: f"se cret-{name}" for name in ("CALLBACK_TOKEN", "ANTHROPIC_API_KEY", "GITHUB_TOKEN")}
    wrong = worker_config(LOOP | secrets)
    assert isinstance(wrong, list)
    assert len(wrong) == len(secrets)
    assert not [line for line in wrong if "cret-" in line]


def test_everything_that_is_wrong_is_told_at_once() -> None:
    wrong = worker_config({"CONTINUOUS_MODE": "true", "MAX_TURNS": "x", "FORK_SESSION": "1", "UNTILDONE_LAND": "moon"})
    assert isinstance(wrong, list)
    assert [line.partition(" ")[0] for line in wrong] == [
        "MAX_TURNS", "UNTILDONE_LAND", "CALLBACK_URL", "ANTHROPIC_API_KEY", "there", "nothing", "FORK_SESSION",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "more",
    [
        {"CONTINUOUS_MAX_RUNS": "0", "CONTINUOUS_MAX_COST_USD": "1"},
        {"CONTINUOUS_MAX_RUNS": "", "MAX_BUDGET_USD": "1"},
        {"CONTINUOUS_MAX_RUNS": "", "UNTILDONE_DEADLINE": "07:30"},
        {"CONTINUOUS_MAX_RUNS": "", "UNTILDONE_UNBOUNDED": "1"},
        {"CONTINUOUS_MODE": "false", "CONTINUOUS_MAX_RUNS": ""},
    ],
)  # fmt: skip
def test_any_limit_will_do(more: dict[str, str]) -> None:
    assert isinstance(worker_config(LOOP | more), WorkerConfig)


@pytest.mark.parametrize("login", ["ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CODE_USE_BEDROCK"])
def test_other_logins_of_claude_code_will_do(login: str) -> None:
    env = {name: value for name, value in LOOP.items() if name != "ANTHROPIC_API_KEY"}
    assert isinstance(worker_config(env), list)
    assert isinstance(worker_config(env | {login: "1"}), WorkerConfig)


def test_what_is_shown_and_what_repr_says_holds_no_secret() -> None:
    secret = {"CALLBACK_TOKEN": "ud_s3cret", "GITHUB_TOKEN": "ghp_s3cret", "ANTHROPIC_AUTH_TOKEN": "s3cret"}
    shown = dict(as_shown(LOOP | secret | {"TICKET_TITLE": "\x1b[31mred\n" + "x" * 500}))
    assert "s3cret" not in str(shown)
    assert "s3cret" not in repr(told(**secret))
    assert "\x1b" not in shown["TICKET_TITLE"]
    assert len(shown["TICKET_TITLE"]) <= 121


def test_the_token_of_the_worker_is_for_nobody_else() -> None:
    assert {"CALLBACK_TOKEN", "SESSION_TRANSCRIPT_B64"} <= kept_from_agents()
    assert not {"ANTHROPIC_API_KEY", "GITHUB_TOKEN"} & kept_from_agents()

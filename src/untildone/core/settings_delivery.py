"""The settings of proof and arrival: checks and guard, landing, review, worktrees."""

import re
from functools import partial

from untildone.core import check_specs, units
from untildone.core.setting import Setting, pick, setting, switch

_seconds = partial(units.duration, bare="seconds")
_fixes = partial(units.whole, least=0)


# As `git check-ref-format` has it: what has one of these in it is no name for a branch.
NO_BRANCH = re.compile(
    r"""[\s\x00-\x1f\x7f~^:?*\[\\] | \.\. | @\{ | // | ^[-/] | [/.]$ | (^|/)\. | \.lock(/|$) | ^@$""", re.VERBOSE
)


def _share(raw: object) -> tuple[str, ...]:
    """Folders inside of the tree: a fresh checkout borrows nothing else."""
    return tuple(check_specs.below(name) for name in units.lines(raw))


def _worktree(raw: object) -> str:
    """`BRANCH`, `BRANCH:BASE`, `:BASE` or `:`; what is no name for a branch was most likely meant to be the goal."""
    written = units.name_text(raw).strip()
    branch, _, base = written.partition(":")
    if NO_BRANCH.search(branch) or any(char.isspace() or char == ":" for char in base):
        raise ValueError(f"takes BRANCH or BRANCH:BASE, not {written!r}: put the goal before it")
    return written


def _forge_url(raw: object) -> str:
    """The address of an API; what is sent there carries a token."""
    written = units.name_text(raw).strip()
    if not written.startswith(("https://", "http://")):
        raise ValueError(f"must be an address such as https://github.example.com/api/v3, not {written!r}")
    return written.rstrip("/")


CHECKING: tuple[Setting, ...] = (
    setting("contract", "done", "checks", check_specs.checks, "CMD", "--check", repeatable=True),
    setting(
        "cli", "done", "hidden_checks", check_specs.hidden_checks, "CMD", "--hidden-check", repeatable=True, default=(),
        help="A check like --check, of which the agent learns only whether it passed.",
    ),
    setting(
        "cli", "done", "require", check_specs.conditions, "CONDITION", "--require", repeatable=True,
        default=(),
        help="What must hold besides the checks: tasks-ticked, tasks-done, tree-clean, pushed, pr-open, ci-green.",
    ),
    setting("contract", "done", "check_timeout", units.timeout, "DURATION", "--check-timeout", field="timeout"),
    pick("contract", "done", "check_in", "--check-in", ("clean", "tree"), field="room"),
    pick("contract", "done", "proof", "--proof", ("normal", "strict")),
    setting("contract", "done", "setup", units.name_text, "CMD", "--setup"),
    setting("contract", "done", "setup_timeout", units.timeout, "DURATION", "--setup-timeout"),
    setting("contract", "done", "share", _share, "FOLDER", "--share", repeatable=True),
    switch("contract", "done", "baseline", ("--baseline",), ("--no-baseline",)),
    pick("contract", "done", "guard", "--guard", ("off", "on", "strict")),
    setting("contract", "done", "guard_files", units.lines, "GLOB", "--guard-file", repeatable=True),
    setting("contract", "done", "waive", units.lines, "GLOB", "--waive", repeatable=True),
    switch("contract", "done", "fail_to_pass", ("--fail-to-pass",), ("--no-fail-to-pass",)),
    setting(
        "contract", "done", "fail_to_pass_check", units.name_text, "CMD", "--fail-to-pass-check",
    ),
)  # fmt: skip

WORKTREES: tuple[Setting, ...] = (
    setting(
        "cli", "git", "worktree", _worktree, "BRANCH[:BASE]", "--worktree", alone=":",
        help="Work in a worktree of its own on a new branch (alone: named for the run), begun at BASE.",
    ),
    setting(
        "cli", "git", "worktree_base_dir", units.name_text, "DIR", "--worktree-base-dir",
        help="Folder for worktrees; without it, REPOSITORY-worktrees beside the repository.",
    ),
    switch("spec", "git", "cleanup_worktree", ("--cleanup-worktree",), ("--keep-worktree",)),
)  # fmt: skip

LANDING: tuple[Setting, ...] = (
    pick("landing", "landing", "land", "--land", ("none", "commit", "merge", "pr")),
    pick("landing", "landing", "land_every", "--land-every", ("done", "iteration"), field="every"),
    setting("landing", "landing", "base", units.name_text, "BRANCH", "--base"),
    pick(
        "landing", "landing", "merge_strategy", "--merge-strategy", ("squash", "merge", "rebase"), field="strategy",
        older_env=("CONTINUOUS_MERGE_STRATEGY",),
    ),
    setting("landing", "landing", "remote", units.name_text, "NAME", "--remote"),
    setting("landing", "landing", "repo", units.name_text, "OWNER/NAME", "--repo"),
    setting(
        "cli", "landing", "owner", units.name_text, "OWNER", "--owner",
        help="The owner on the forge, for a --repo that is given as NAME alone.",
    ),
    setting("landing", "landing", "forge_url", _forge_url, "URL", "--forge-url"),
    setting("landing", "landing", "ci_timeout", units.timeout, "DURATION", "--ci-timeout"),
    setting("landing", "landing", "ci_start", _seconds, "DURATION", "--ci-start"),
    setting("landing", "landing", "ci_poll", units.timeout, "DURATION", "--ci-poll"),
    setting("landing", "landing", "landing_fixes", _fixes, "N", "--landing-fixes", field="fixes"),
    switch(
        "landing", "landing", "close_failed_pr", ("--close-failed-pr",), ("--keep-failed-pr",), field="close_failed"
    ),
    switch("landing", "landing", "delete_branch", ("--delete-branch",), ("--keep-branch",)),
)  # fmt: skip

REVIEWING: tuple[Setting, ...] = (
    pick(
        "review", "review", "review", "--review", ("never", "iteration", "landing"), field="when", alone="landing"
    ),
    setting(
        "review", "review", "review_prompt", units.name_text, "TEXT", "--review-prompt", field="prompt"
    ),
    setting("review", "review", "review_model", units.name_text, "MODEL", "--review-model", field="model"),
    pick(
        "review", "review", "review_agent", "--review-agent", ("claude_sdk", "claude_cli"), field="agent"
    ),
    setting("review", "review", "review_rounds", units.whole, "N", "--review-rounds", field="rounds"),
    switch(
        "review", "review", "dispute_review", ("--dispute-review",), ("--no-dispute-review",), field="disputes",
    ),
)  # fmt: skip

OLDER_FLAGS: tuple[tuple[str, str, str], ...] = (
    ("--enable-commits", "--land commit", "works as it is; it leaves --land merge and --land pr as they are"),
    ("--disable-commits", "--land none", "works as it is"),
    ("--disable-branches", "--disable-branches", "commits go to the branch that is checked out"),
    ("--git-branch-prefix", "--git-branch-prefix", "of the branch of the run, or with --branch-per iteration of each"),
    ("--merge-strategy", "--merge-strategy", "squash, merge or rebase; for --land merge and --land pr"),
    ("--owner", "--owner", "with --repo NAME; or --repo OWNER/NAME"),
    ("--repo", "--repo", "only where the remote's address does not tell"),
    ("--ci-retry-max", "--landing-fixes", "one number for red CI, comments and conflicts"),
    ("--comment-review-max", "--landing-fixes", "the same number"),
    ("--disable-ci-retry", "--landing-fixes 0", "no problem is fixed, whatever its cause"),
    ("-r", "--review-prompt", "together with --review"),
    ("--review-prompt", "--review-prompt", "together with --review"),
    ("--worktree", "--worktree", "makes a new branch; never one that is checked out"),
    ("--worktree-base-dir", "--worktree-base-dir", "default: REPOSITORY-worktrees beside the repository"),
    ("--cleanup-worktree", "--cleanup-worktree", "only if nothing would be lost"),
    ("--list-worktrees", "--list-worktrees", "the same as `untildone worktrees ls`"),
)
"""Flags people know from other loops: there, here, and what differs."""

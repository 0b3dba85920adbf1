"""A run that goes on on another machine: what of its settings means something there, and what needs a yes first."""

from collections.abc import Iterator
from dataclasses import replace

from untildone.core.policy import ALLOWED_TOOLS, RunSpec
from untildone.core.state import LoopState

HIDDEN = "(hidden)"
"""What a server is told instead of a command that nobody may see."""


def brought_along(spec: RunSpec) -> list[str]:
    """What a run would do or allow on a machine that did not start it, one line each."""
    return [f"{what}: {said}" for what, said in _commands(spec) if said] + list(_rights(spec))


def _commands(spec: RunSpec) -> Iterator[tuple[str, str]]:
    contract, tending = spec.contract, spec.tending
    yield from (("check", check.command) for check in contract.checks)
    yield "setup", contract.setup or ""
    yield "check of new tests", contract.fail_to_pass_check or ""
    yield "before each iteration", tending.before_iteration or ""
    yield "after each iteration", tending.after_iteration or ""
    yield "at the stop", tending.on_stop or ""


def _rights(spec: RunSpec) -> Iterator[str]:
    options = spec.options
    if options.skip_permissions:
        yield "the agent asks for no permission at all"
    elif options.permission_mode not in {"acceptEdits", "default", "plan"}:
        yield f"permission mode: {options.permission_mode}"
    tools = [tool for tool in options.allowed_tools if tool not in ALLOWED_TOOLS]
    lists = (
        ("allowed tools", tools), ("folders", options.add_dirs), ("MCP servers", options.mcp_config),
        ("arguments for claude", options.extra_args), ("notices to", spec.notify),
    )  # fmt: skip
    yield from (f"{what}: {', '.join(said)}" for what, said in lists if said)
    if options.hooks_file:
        yield f"hooks: {options.hooks_file}"


def unknown_here(spec: RunSpec) -> list[str]:
    """The names of checks whose commands no server was told."""
    return [check.name for check in spec.contract.checks if check.hidden and check.command == HIDDEN]


def moved_spec(spec: RunSpec, *, cwd: str, server: str) -> RunSpec:
    """The same run in a folder of another machine. What only the other machine has is left behind."""
    return replace(
        spec,
        cwd=cwd,
        task_file=_within(spec.task_file, spec.cwd),
        knowledge_file=_within(spec.knowledge_file, spec.cwd),
        repository=None,
        cleanup_worktree=False,
        notify=tuple(address for address in spec.notify if HIDDEN not in address),
        options=replace(spec.options, claude=None, config_dir=None),
        server=server,
        server_token_file=None,
        portable=True,
    )


def _within(path: str | None, folder: str) -> str | None:
    """A path that was written out in full, as seen from the folder it lies in."""
    return path.removeprefix(f"{folder.rstrip('/')}/") if path is not None else None


def sessions_of(state: LoopState) -> list[str]:
    """The conversations that a run may go on with: the one that is open, a retry's, and the last one."""
    left = state.open
    named = (
        left.session_id if left is not None and not left.review else None,
        left.resume_session if left is not None and not left.review else None,
        state.retry.session_id if state.retry is not None else None,
        state.last_session,
    )
    return list(dict.fromkeys(session for session in named if session))

"""A run that goes on on another machine: what of its settings means something there, and what needs a yes first."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from untildone.core.permissions import ALLOWED_TOOLS
from untildone.core.policy import AgentOptions, Policy, RunSpec
from untildone.core.printable import one_line
from untildone.core.redaction import HIDDEN
from untildone.core.state import LoopState

MODEST_RUNS = 100
MODEST_USD = 100.0
"""A run that ends with these at the latest may go on without a question about its limits."""

_DEFAULT = AgentOptions()
_SHORT = 10
_NOTES = re.compile(r"(?i)[\w -]+\.(?:md|markdown|rst|adoc|org)|[\w -]*notes?[\w -]*(?:\.txt)?")


def brought_along(spec: RunSpec, policy: Policy, waived: Sequence[str] = ()) -> list[str]:
    """What a run would do, allow or spend on a machine that did not start it, one line each; nothing needs no yes."""
    said = [f"{what}: {text}" for what, text in (*_commands(spec), *_words(spec)) if text]
    said += [*_rights(spec), *_ways_out(spec, waived)]
    if said or not _is_modest(policy):
        said.append(_limits(policy))
    return said


def _commands(spec: RunSpec) -> Iterator[tuple[str, str]]:
    contract, tending = spec.contract, spec.tending
    yield from (("check", check.command) for check in contract.checks)
    yield "setup", contract.setup or ""
    yield "check of new tests", contract.fail_to_pass_check or ""
    yield "before each iteration", tending.before_iteration or ""
    yield "after each iteration", tending.after_iteration or ""
    yield "at the stop", tending.on_stop or ""


def _words(spec: RunSpec) -> Iterator[tuple[str, str]]:
    """What is said to the agent behind the goal's back, or after it."""
    yield "for the system prompt", spec.options.append_system_prompt
    yield "for the reviewer", spec.review.prompt or ""
    yield from (("afterwards", goal) for goal in spec.then_goals)


def _rights(spec: RunSpec) -> Iterator[str]:
    options = spec.options
    if options.skip_permissions:
        yield "the agent asks for no permission at all"
    elif options.permission_mode not in {"acceptEdits", "default", "plan"}:
        yield f"permission mode: {options.permission_mode}"
    own = () if options.allowed_tools == ALLOWED_TOOLS else options.allowed_tools
    tools = [tool for tool in (*own, *options.allow_tools) if tool == "Bash" or tool not in ALLOWED_TOOLS]
    agents = [agent for agent in (options.agent, spec.review.agent) if agent not in {None, _DEFAULT.agent}]
    lists = (
        ("agent", agents), ("in its place", options.fallback), ("allowed tools", tools), ("folders", options.add_dirs),
        ("shared with the checks", spec.contract.share), ("MCP servers", options.mcp_config),
        ("arguments for claude", options.extra_args), ("notices to", spec.notify), ("goal files", spec.then),
    )  # fmt: skip
    yield from (f"{what}: {', '.join(map(str, said))}" for what, said in lists if said)
    if options.hooks_file:
        yield f"hooks: {options.hooks_file}"


def _ways_out(spec: RunSpec, waived: Sequence[str]) -> Iterator[str]:
    """What leaves the folder with the user's login, and what nobody looks at on the way."""
    landing, contract = spec.landing, spec.contract
    if landing.land in {"merge", "pr"}:
        where = " ".join(filter(None, (landing.repo, landing.base)))
        yield f"lands its work: {landing.land} by way of {landing.remote}{f', {where}' if where else ''}"
    if contract.guard == "off":
        yield "changed tests and CI are not guarded"
    if patterns := (*contract.waive, *waived):
        yield f"guarded files that may change: {', '.join(patterns)}"


def _is_modest(policy: Policy) -> bool:
    """Whether it ends soon, whatever happens."""
    counts = (policy.max_runs, policy.max_iterations)
    is_cheap = policy.max_cost_usd is not None and policy.max_cost_usd <= MODEST_USD
    return is_cheap or any(count is not None and count <= MODEST_RUNS for count in counts)


def _limits(policy: Policy) -> str:
    named = ("max_runs", "max_iterations", "max_cost_usd", "max_tokens", "max_duration", "deadline")
    said = [f"{name} {value:.10g}" for name in named if (value := getattr(policy, name)) is not None]
    return f"limits: {', '.join(said) or 'none at all'}"


def unknown_here(spec: RunSpec) -> list[str]:
    """The names of checks whose commands no server was told."""
    return [check.name for check in spec.contract.checks if check.hidden and check.command == HIDDEN]


def outside(spec: RunSpec) -> list[str]:
    """Files of a run that do not lie in its folder: on another machine the same path is somebody else's."""
    named = (spec.task_file, spec.knowledge_file, spec.notes_file)
    return [name for name in named if name is not None and not _is_inside(_within(name, spec.cwd) or "")]


def may_be_notes(name: str) -> bool:
    """Whether a file of this name is only ever read: what configures or builds something will run commands."""
    parts = _parts(name)
    return _is_inside(name) and not any(part.startswith(".") for part in parts) and bool(_NOTES.fullmatch(parts[-1]))


def moved_spec(spec: RunSpec, *, cwd: str, server: str) -> RunSpec:
    """The same run in a folder of another machine. What only the other machine has is left behind.

    So are the address of a forge, which is told the user's login, patterns that could take for ever to match, and a
    conversation that did not travel.
    """
    return replace(
        spec,
        cwd=cwd,
        task_file=_within(spec.task_file, spec.cwd),
        knowledge_file=_within(spec.knowledge_file, spec.cwd),
        notes_file=_within(spec.notes_file, spec.cwd) or spec.notes_file,
        repository=None,
        cleanup_worktree=False,
        notify=tuple(address for address in spec.notify if HIDDEN not in address),
        options=replace(
            spec.options,
            claude=None,
            config_dir=None,
            mcp_config=tuple(one for one in spec.options.mcp_config if one != HIDDEN),
            extra_args=tuple(_told(spec.options.extra_args)),
        ),
        landing=replace(spec.landing, forge_url=None),
        earlier=replace(spec.earlier, session=None, fork=False),
        mask=(),
        server=server,
        server_token_file=None,
        sandbox_id=None,
        portable=True,
    )


def stays_behind(state: LoopState, missing: str | None = None) -> list[str]:
    """What is not here, and what a user may want to say again, one line each. `missing`: the newest commit."""
    spec, lines = state.spec, []
    if missing is not None:
        lines.append(
            f"the newest work of the run ({one_line(missing[:_SHORT])}) was not sent: it is only where it was "
            "made, and is done again here"
        )
    if spec.landing.land == "merge":
        base, merged = one_line(state.arrival.base or "the base", 60), state.arrival.merged
        held = f"has it as {one_line(merged[:_SHORT])}" if merged else "may have it"
        lines.append(
            f"its work lands on {base} of this clone; {base} of the other machine {held}: push only one of them"
        )
    if spec.landing.forge_url is not None:
        lines.append("the address of the forge did not come along: give it with --forge-url if it is yours")
    if HIDDEN in f"{spec.options.mcp_config} {spec.options.extra_args}":
        lines.append("settings for claude that were written out did not come along: give them with --mcp-config or --")
    if spec.mask:
        lines.append(f"{len(spec.mask)} patterns of what is masked did not come along: give yours with --mask")
    return lines


def _told(arguments: Sequence[str]) -> Iterator[str]:
    """The arguments without those that were hidden, and without the flags of those."""
    for argument, following in pairwise((*arguments, "")):
        if argument != HIDDEN and not argument.endswith(f"={HIDDEN}") and following != HIDDEN:
            yield argument


def _within(path: str | None, folder: str) -> str | None:
    """A path that was written out in full, as seen from the folder it lies in."""
    return path.removeprefix(f"{folder.rstrip('/')}/") if path is not None else None


def _is_inside(path: str) -> bool:
    parts = _parts(path)
    return bool(parts) and not path.startswith(("/", "~")) and ".." not in parts and "\0" not in path


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in {"", "."}]


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

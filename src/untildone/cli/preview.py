"""`--dry-run`: what would be asked and run, with nothing started."""

import asyncio
import re
from pathlib import Path

from untildone.cli.streams import hanging, screen_width
from untildone.core.claims import streak_needed
from untildone.core.contract import CheckSpec
from untildone.core.decide import Iterate
from untildone.core.durations import format_duration
from untildone.core.figures import clock, dollars
from untildone.core.limits import LIMITS
from untildone.core.policy import Policy, RunSpec
from untildone.core.printable import printable
from untildone.core.prompt import PAPER_CAP, TASKS_CAP, Paper, Papers, build_prompt, rights_line, rules
from untildone.core.standing import contract_facts
from untildone.core.state import LoopState
from untildone.git.inspection import inspecting
from untildone.git.repository import project_root
from untildone.trees import planned_worktree
from untildone.witness.usher import FolderUsher


def preview_text(spec: RunSpec, policy: Policy, worktree: str | None = None) -> str:
    """The plan of a run and the first prompt, for a person."""
    options = spec.options
    facts = [
        ("name", spec.name),
        ("folder", spec.cwd),
        ("limits", ", ".join(_limits(policy)) or "none (--unbounded)"),
        *([("begins", clock(policy.start_at))] if policy.start_at is not None else []),
        ("checks", "; ".join(map(_check, spec.contract.checks)) or _no_checks(policy)),
        *contract_facts(spec),
        ("agent", f"{options.agent}, model {options.model or 'default'}"),
        ("rights", rights_line(spec, most=None)),
        ("claude arguments", " ".join(options.extra_args) or "none"),
        *([("worktree", planned_worktree(worktree, spec))] if worktree is not None else []),
        ("commits", _commits(spec)),
        *((label, command) for label, command in _commands(spec) if command),
    ]
    papers = Papers(
        notes=_paper(spec, spec.notes_file, PAPER_CAP),
        knowledge=_paper(spec, spec.knowledge_file, PAPER_CAP),
        tasks=_paper(spec, spec.task_file, TASKS_CAP),
    )
    prompt = build_prompt(LoopState(spec=spec, policy=policy), Iterate(1), papers, 0.0)
    width = screen_width()
    lines = [hanging(f"{label:>16}  ", printable(value), width) for label, value in facts]
    warnings = [f"{'warning':>16}  {warning}" for warning in prompt.warnings]
    parts = [
        "\n".join([*lines, *warnings]),
        "--- rules ---",
        rules(spec, policy, sandbox=spec.options.sandbox),
        "--- first prompt ---",
        prompt.text,
    ]
    return "\n\n".join([*(printable(part, lines=True) for part in parts), "Nothing was started (--dry-run)."])


def _no_checks(policy: Policy) -> str:
    return f'none: {streak_needed("signal", policy.completion_threshold)} "done" claims in a row are needed'


def _check(check: CheckSpec) -> str:
    plain = check.hidden or check.name == check.command or not check.command
    return check.name if plain else f"{check.name}: {check.command}"


def _limits(policy: Policy) -> list[str]:
    said = []
    for limit in LIMITS:
        value = limit.value(policy)
        if value is not None:
            said.append(f"{limit.field} {_amount(limit.field, value)}")
    return said


def _amount(field: str, value: float) -> str:
    if field == "max_cost_usd":
        return dollars(value)
    if field == "max_duration":
        return format_duration(value)
    return clock(value) if field == "deadline" else f"{value:g}"


def _commits(spec: RunSpec) -> str:
    if not spec.commit:
        return "off"
    each, folder = "one for each iteration with changes", Path(spec.cwd)
    if not (project_root(folder) / ".git").exists():
        return f"{each}, in a history kept outside of the folder"
    current = asyncio.run(_branch(folder))
    if not current:
        return f"{each}, where HEAD is detached now"
    if not spec.branch:
        return f"{each}, on branch {current}"
    # A name that is no branch name as it stands is made into one when the branch is made.
    plain = re.fullmatch(r"\w(?:[\w-]{0,80}\w)?", spec.name, re.ASCII)
    new = spec.branch_prefix + (spec.name if plain else "...")
    return f"{each}, on the new branch {new} if {current} is the default branch, else on {current}"


async def _branch(folder: Path) -> str:
    async with inspecting(folder) as repository:
        return (await repository.git("symbolic-ref", "-q", "--short", "HEAD")).text if repository else ""


def _commands(spec: RunSpec) -> list[tuple[str, str | None]]:
    around = spec.tending
    return [
        ("before iteration", around.before_iteration),
        ("after iteration", around.after_iteration),
        ("on stop", around.on_stop),
    ]


def _paper(spec: RunSpec, name: str | None, cap: int) -> Paper | None:
    found = FolderUsher(spec.cwd).read_text(name, cap=cap) if name else None
    return Paper(*found) if found is not None else None

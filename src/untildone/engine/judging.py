"""The base judges: a claim is also checked on the new code with the tests, settings and scripts of the base."""

import asyncio
from collections.abc import Sequence

from untildone.core.base_judges import (
    SUSPECT_FILES,
    BaseJudges,
    base_judges,
    ci_changes,
    disputed_by,
    suspects,
    told_changes,
)
from untildone.core.contract import CheckSpec, Contract
from untildone.core.dataclass import dataclass
from untildone.core.findings import FileChange, Finding
from untildone.core.findings import waived as is_waived
from untildone.core.judges import is_data, judges_for, named_files, takes_a_place
from untildone.core.outcome import CheckResult
from untildone.core.state import LoopState
from untildone.core.verdict import fewer_tests
from untildone.engine.parts import Parts
from untildone.ports.delivery import Progress, Subject

_DEEP = 4
"""Scripts that call scripts are followed this far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What became of the files that judge the work, and what they say as they were."""

    changes: tuple[FileChange, ...] = ()
    findings: tuple[Finding, ...] = ()
    files: tuple[str, ...] = ()
    """Those that are not as they were, if the checks were run with them as they were."""
    results: tuple[CheckResult, ...] = ()
    disputed: tuple[str, ...] = ()


def commands(contract: Contract) -> list[CheckSpec]:
    """The checks that are commands."""
    return [check for check in contract.checks if check.kind == "command"]


async def compare_judges(
    state: LoopState, parts: Parts, commits: tuple[str, str], green: Sequence[CheckResult], progress: Progress
) -> Judged:
    """Compare what judges the work with the base. `green`: what passed on the commit; empty where something failed."""
    contract, (start, commit) = state.spec.contract, commits
    if contract.guard == "off" and not contract.fail_to_pass:
        return Judged()
    waived = (*contract.waive, *state.waived)
    scripts = await judging_scripts(contract, parts, start)
    further = await parts.workspace.further_judges(start, commit, judges_for(contract, scripts))
    judges = judges_for(contract, [*scripts, *further])
    changes = tuple(
        await parts.workspace.changes(start, commit, lambda path: judges(path) or takes_a_place(path, contract))
    )
    if contract.guard == "off":
        return Judged(changes=changes)
    findings = tuple(told_changes(changes, contract, judges=judges, waived=waived))
    if not green or not contract.checks:
        return Judged(changes=changes, findings=findings)
    read = frozenset(path for path in scripts if is_data(path))
    base = await asyncio.to_thread(base_judges, changes, contract, judges=judges, whole=read, waived=waived)
    results: Sequence[CheckResult] = ()
    if base.differ and commands(contract):
        results = await _with_base_judges(state, parts, commits, base, progress)
    disputed = disputed_by(results)
    if not disputed:
        disputed = fewer_tests(results or green, state, waived)
    added = await parts.workspace.added_text(start, commit, SUSPECT_FILES)
    disputed += suspects([piece for piece in added if not is_waived(piece[0], waived)], judges)
    disputed += ci_changes(changes, waived)
    return Judged(
        changes=changes,
        findings=findings,
        files=base.files if results else (),
        results=tuple(results),
        disputed=tuple(disputed),
    )


async def _with_base_judges(
    state: LoopState, parts: Parts, commits: tuple[str, str], base: BaseJudges, progress: Progress
) -> list[CheckResult]:
    start, commit = commits
    progress("files that judge the work were changed: checking it with those of the base as well")
    old_judges = await parts.workspace.recombined(commit, start, base)
    subject = Subject(commit=old_judges, room="clean")
    checks = commands(state.spec.contract)
    return await parts.witness.examine(subject, checks, flaky=state.flaky, progress=progress)


async def judging_scripts(contract: Contract, parts: Parts, start: str) -> list[str]:
    """Scripts of the base that the checks run, and those that these call."""
    named = dict.fromkeys(path for check in contract.checks for path in named_files(check.command, is_check=True))
    folders = {check.folder for check in contract.checks}
    found: dict[str, str] = {}
    for _ in range(_DEEP):
        wanted = [f"{folder}/{path}" if folder else path for path in named for folder in folders]
        read = await parts.workspace.read_files(start, wanted)
        new = [text for path, text in read.items() if path not in found]
        found |= read
        named = dict.fromkeys(path for text in new for path in named_files(text))
        if not named:
            break
    return list(found)

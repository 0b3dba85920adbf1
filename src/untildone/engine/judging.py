"""The base judges: a claim is also checked on the new code with the tests, settings and scripts of the base."""

import asyncio
from collections.abc import Callable, Sequence

from untildone.core.base_judges import (
    SUSPECT_FILES,
    BaseJudges,
    base_judges,
    ci_changes,
    disputed_by,
    lost_examples,
    not_needed,
    quieted,
    quieted_by,
    suspects,
    told_changes,
    without_the_work,
)
from untildone.core.contract import CheckSpec, Contract
from untildone.core.dataclass import dataclass
from untildone.core.findings import FileChange, Finding
from untildone.core.findings import waived as is_waived
from untildone.core.judges import included_files, is_data, is_product, judges_for, named_files, takes_a_place
from untildone.core.outcome import CheckResult
from untildone.core.state import LoopState
from untildone.core.verdict import fewer_tests, still_failing
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
    judged = commit
    if base.differ and commands(contract):
        progress("files that judge the work were changed: checking it with those of the base as well")
        judged = await parts.workspace.recombined(commit, start, base)
        subject = Subject(commit=judged, room="clean")
        results = await parts.witness.examine(subject, commands(contract), flaky=state.flaky, progress=progress)
    disputed = disputed_by(results)
    if not disputed:
        disputed = fewer_tests(results or green, state, waived) + still_failing(results or green, state, waived)
    if not disputed:
        disputed = await _without_the_work(state, parts, (start, commit, judged), base, progress)
    disputed += await _suspicions(state, parts, commits, judges, green)
    disputed += ci_changes(changes, waived)
    return Judged(
        changes=changes,
        findings=findings,
        files=base.files if results else (),
        results=tuple(results),
        disputed=tuple(disputed),
    )


async def _without_the_work(
    state: LoopState, parts: Parts, commits: tuple[str, str, str], base: BaseJudges, progress: Progress
) -> list[str]:
    """Checks that failed before the run and pass now, but would do so without the work as well."""
    (start, commit, judged), contract = commits, state.spec.contract
    red = {name for name, passed in state.baseline or () if not passed}
    checks = [check for check in commands(contract) if check.name in red]
    if not checks:
        return []
    waived = (*contract.waive, *state.waived)
    changed = await parts.workspace.changed_files(start, commit)
    without = without_the_work(changed, base, contract, state.spec.goal, waived)
    if not without.others or not without.base.differ:
        return not_needed([check.name for check in checks], without.others) if without.others else []
    progress("other files than code were changed: running what failed before without the changes to the code")
    subject = Subject(commit=await parts.workspace.recombined(judged, start, without.base), room="clean", tries="one")
    results = await parts.witness.examine(subject, checks, progress=progress)
    return not_needed([result.name for result in results if result.command and result.passed], without.others)


async def _suspicions(
    state: LoopState,
    parts: Parts,
    commits: tuple[str, str],
    judges: Callable[[str], bool],
    green: Sequence[CheckResult],
) -> list[str]:
    """What the new code says that no run of a check can see."""
    (start, commit), contract = commits, state.spec.contract
    waived = (*contract.waive, *state.waived)
    added = await parts.workspace.added_text(start, commit, SUSPECT_FILES)
    added = [piece for piece in added if not is_waived(piece[0], waived)]
    counted = all(result.tests_run is not None for result in green if result.command)
    told = suspects(added, judges, goal=state.spec.goal, counted=counted)
    before = dict(state.baseline or ())
    worked_on = [check.command for check in commands(contract) if not before.get(check.name)]
    examples = any("doctest" in check.command for check in contract.checks)
    comments = quieted_by(worked_on)
    if examples or comments:
        changes = await parts.workspace.changes(start, commit, is_product)
        changes = [change for change in changes if not is_waived(change.path, waived)]
        told += quieted(changes, judges, comments) if comments else []
        told += lost_examples(changes) if examples else []
    return told


async def judging_scripts(contract: Contract, parts: Parts, start: str) -> list[str]:
    """Scripts of the base that the checks run, and those that these call."""
    texts = [check.command for check in contract.checks] + ([contract.setup] if contract.setup else [])
    named = dict.fromkeys(path for text in texts for path in named_files(text, is_check=True))
    folders = {check.folder for check in contract.checks} | {""}
    found: dict[str, str] = {}
    for _ in range(_DEEP):
        wanted = [f"{folder}/{path}" if folder else path for path in named for folder in folders]
        read = await parts.workspace.read_files(start, wanted)
        new = [text for path, text in read.items() if path not in found]
        found |= read
        named = dict.fromkeys(path for text in new for path in named_files(text))
        if not named:
            break
    included = (path for text in found.values() for path in included_files(text))
    return list(dict.fromkeys([*found, *included]))

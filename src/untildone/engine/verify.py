"""The loop looks for itself: a baseline before any work, and the whole contract after every claim."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from untildone.core import events as ev
from untildone.core import fail_to_pass
from untildone.core.base_judges import BaseJudges
from untildone.core.contract import FAIL_TO_PASS, CheckSpec, Contract
from untildone.core.decide import Verify
from untildone.core.findings import FileChange
from untildone.core.outcome import CheckResult
from untildone.core.output_signal import compared
from untildone.core.progress import in_doubt
from untildone.core.proven import doubted
from untildone.core.state import LoopState
from untildone.core.unprovable import cannot_run, has_no_program
from untildone.core.verdict import (
    Seen,
    conditions,
    how_it_failed,
    lent_findings,
    not_run,
    refusal,
    replaced_judges,
    validation,
)
from untildone.engine.conditions import look_at
from untildone.engine.journal import Journal
from untildone.engine.judging import commands as _commands
from untildone.engine.judging import compare_judges
from untildone.engine.narrate import narrating
from untildone.engine.parts import Parts
from untildone.engine.watch import unless
from untildone.errors import WorkspaceError
from untildone.ports import Sight
from untildone.ports.delivery import Progress, Subject

BASELINE = "running the checks once before any work, to know what already fails (--no-baseline skips this)"


async def take_baseline(journal: Journal, parts: Parts) -> None:
    """Run the commands of the contract before any work is done, so that the agent is not blamed for old failures."""
    if _commands(journal.state.spec.contract):
        await journal.tell(ev.WitnessAtWork(said=BASELINE))
    with narrating(journal) as progress:
        looking = _baseline(journal.state, parts, progress)
        taken = await unless(journal, parts.clock, looking, lambda: journal.state.stop is not None)
    if taken is not None:
        baseline, notes = taken
        for line in (*([] if baseline.refused else not_run(baseline.checks)), *notes):
            await journal.tell(ev.ContinuousWarning(message=line))
        await journal.record(baseline)


async def _baseline(state: LoopState, parts: Parts, progress: Progress) -> tuple[ev.BaselineTaken, list[str]]:
    contract = state.spec.contract
    start = Subject(commit=state.arrival.start, room=contract.room, tries="one")
    results = await parts.witness.examine(start, _commands(contract), progress=progress)
    notes: list[str] = []
    # Before the first commit there is nothing to check out, and that is nobody's mistake.
    refused = "" if start.commit is None else cannot_run(results)
    if not refused and contract.room == "clean" and start.commit is not None:
        results, refused, notes = await _compared(state, parts, start, results, progress)
    refused = refused or has_no_program(results)
    return ev.BaselineTaken(commit=start.commit, room=contract.room, checks=tuple(results), refused=refused), notes


async def _compared(
    state: LoopState, parts: Parts, start: Subject, results: list[CheckResult], progress: Progress
) -> tuple[list[CheckResult], str, list[str]]:
    """Run what failed in a copy of the tree: a check that needs uncommitted files could never pass in a checkout.

    The results, why the run is refused, and notes.
    """
    # One that did not end in time has cost enough of it.
    red = {r.name for r in results if not r.passed and r.ran and r.exit_code is not None}
    again = [check for check in _commands(state.spec.contract) if check.name in red]
    copied = replace(start, furnished=True)
    try:
        there = await parts.witness.examine(copied, again, progress=progress)
        needed = {result.name for result in there if result.passed}
        # Both verdicts: before the run is refused, it must fail in a fresh checkout a second time.
        twice = [check for check in again if check.name in needed]
        confirmed = {r.name: r for r in await parts.witness.examine(start, twice, progress=progress)}
    except WorkspaceError as trouble:
        note = (
            f"whether {', '.join(sorted(red))} would pass in your tree was not looked at: {trouble}; if it needs "
            "what a fresh checkout does not have, say how that is prepared with --setup"
        )
        return results, "", [note]
    wavering = {name for name, result in confirmed.items() if result.passed}
    told = [replace(confirmed[r.name], flaky=True) if r.name in wavering else r for r in results]
    here = [result for result in there if result.name not in wavering]
    return told, refusal(results, here, state.spec.cwd), []


async def verify(journal: Journal, parts: Parts, claim: Verify) -> None:
    """Examine the work. A stop asked for meanwhile calls it off; the claim then stays unverified."""
    began = parts.clock.monotonic()
    with narrating(journal) as progress:
        look = _examine_the_newest if claim.claimed else glance
        looking = look(journal.state, parts, progress)
        found = await unless(journal, parts.clock, looking, lambda: journal.state.stop is not None)
    if found is None:
        return
    seen, tip = found
    if tip is not None:
        told = f"{seen.branch or 'HEAD'} moved on to {tip[:10]} while the checks ran on {(seen.commit or '')[:10]}"
        await journal.tell(ev.ContinuousWarning(message=f"{told}: nobody has looked at what came after"))
    verdict = validation(journal.state, claim.number, seen)
    took = parts.clock.monotonic() - began
    await journal.record(replace(verdict, claimed=claim.claimed, seconds=took))


async def glance(state: LoopState, parts: Parts, progress: Progress) -> tuple[Seen, None]:
    """Only the commands: what they say is no proof, it shows how far the work is.

    Each runs once; what would count as progress only by what it prints runs again, which shows what of that is noise.
    """
    contract, sight = state.spec.contract, await parts.workspace.look()
    subject = Subject(commit=sight.commit, room=contract.room, tries="one")
    checks = [] if sight.elsewhere else _commands(contract)
    results = await parts.witness.examine(subject, checks, progress=progress)
    names = in_doubt(state.progress, results)
    if again := [check for check in checks if check.name in names]:
        progress("running once more what failed in a new way: what then differs says nothing")
        second = {result.name: result for result in await parts.witness.examine(subject, again, progress=progress)}
        results = [compared(first, second[first.name]) if first.name in second else first for first in results]
    return _seen(sight, contract, results=tuple(results)), None


def _seen(sight: Sight, contract: Contract, **found: Any) -> Seen:
    tree = sight.tree
    return Seen(
        commit=sight.commit, room=contract.room, tree=tree.fingerprint, branch=tree.branch, dirty=tree.dirty,
        elsewhere=sight.elsewhere, **found,
    )  # fmt: skip


async def _examine_the_newest(state: LoopState, parts: Parts, progress: Progress) -> tuple[Seen, str | None]:
    """Examine; once more, if it would pass and commits were made meanwhile: what is called done is what is there.

    Also returns where the branch is in the end, if it moved on again.
    """
    seen = await examine(state, parts, progress)
    tip = await _moved_on(seen, state, parts)
    if tip is not None and all(result.passed for result in seen.results):
        progress("commits were made meanwhile: looking once more")
        seen = await examine(state, parts, progress)
        tip = await _moved_on(seen, state, parts)
    return seen, tip


async def _moved_on(seen: Seen, state: LoopState, parts: Parts) -> str | None:
    """Where the branch is now, if it is not where it was when it was looked at."""
    tree = await parts.workspace.observe()
    if not state.spec.commit or seen.commit is None or tree.branch != seen.branch or tree.head == seen.commit:
        return None
    return tree.head


async def examine(state: LoopState, parts: Parts, progress: Progress) -> Seen:
    """Everything the contract asks for, on the commit that would be called done."""
    contract = state.spec.contract
    sight = await parts.workspace.look()
    if sight.elsewhere:
        return _seen(replace(sight, commit=None), contract)
    tree, commit = sight.tree, sight.commit
    subject = Subject(commit=commit, room=contract.room)
    doubts = doubted(state, commit=commit, tree=tree.fingerprint)
    results = await parts.witness.examine(subject, _commands(contract), flaky=doubts, progress=progress)
    for check in conditions(contract.checks):
        progress(f"looking whether {check.name} holds")
        is_green = all(result.passed for result in results)
        results.append(await look_at(check, state, tree, parts, patient=is_green))
    lent = await parts.witness.lent_changes()
    findings = lent_findings(lent, contract, state.waived)
    start, compared = state.arrival.start, state.arrival.base_of_judges
    judged = None
    if start is not None and compared is not None and commit is not None:
        findings += await parts.workspace.leaks(start, commit, state.waived)
        is_green = all(result.passed for result in results)
        judged = await compare_judges(state, parts, (compared, commit), results if is_green else [], progress)
        findings += judged.findings
        if contract.fail_to_pass and is_green:
            results.append(await _fail_to_pass(state, parts, (compared, commit), judged.changes, progress=progress))
    return _seen(
        sight,
        contract,
        results=tuple(results),
        findings=tuple(findings),
        judges=judged.files if judged else (),
        base_results=judged.results if judged else (),
        disputed=(*judged.disputed, *replaced_judges(lent, (*contract.waive, *state.waived))) if judged else (),
    )


async def _fail_to_pass(
    state: LoopState, parts: Parts, commits: tuple[str, str], changes: Sequence[FileChange], *, progress: Progress
) -> CheckResult:
    """New tests must fail on the code the run began with: otherwise they prove nothing about the change."""
    contract, (start, commit) = state.spec.contract, commits
    files = fail_to_pass.changed_tests(changes)
    if not files:
        return fail_to_pass.verdict("no test was added or changed")
    with_tests = BaseJudges(restored=tuple(files))
    old_code = Subject(commit=await parts.workspace.recombined(start, commit, with_tests), room="clean")
    if contract.fail_to_pass_check:
        wrong = await _by_its_own_check(contract.fail_to_pass_check, old_code, commit, parts, progress)
        return fail_to_pass.verdict(wrong, tests=tuple(files))
    checks, before = _commands(contract), dict(state.baseline or ())
    results = await parts.witness.examine(old_code, checks, progress=progress)
    alone = Subject(commit=start, room="clean", tries="one")
    red = {result.name for result in results if result.ran and not result.passed}
    again = [] if any(before.get(name) for name in red) else [check for check in checks if check.name in red]
    without = await parts.witness.examine(alone, again, progress=progress)
    return fail_to_pass.verdict(fail_to_pass.not_shown(results, without, files, before), tests=tuple(files))


async def _by_its_own_check(command: str, old_code: Subject, commit: str, parts: Parts, progress: Progress) -> str:
    """The user says how the new tests alone are run: red on the old code, green on the new. Returns what is wrong."""
    check = CheckSpec(name=FAIL_TO_PASS, command=command)
    (*_, old) = await parts.witness.examine(old_code, [check], progress=progress)
    if old.passed or not old.ran:
        said = how_it_failed(old) if not old.ran else "passes on the code the run began with, too: it proves nothing"
        return f"`{command}` {said}"
    (*_, new) = await parts.witness.examine(Subject(commit=commit, room="clean"), [check], progress=progress)
    return "" if new.passed else f"`{command}` does not pass on the result ({how_it_failed(new)})"

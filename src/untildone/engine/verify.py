"""The loop looks for itself: a baseline before any work, and the whole contract after every claim."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from untildone.core import events as ev
from untildone.core import fail_to_pass, guard
from untildone.core.contract import FAIL_TO_PASS, CheckSpec, Contract
from untildone.core.decide import Verify
from untildone.core.findings import FileChange, Finding
from untildone.core.outcome import CheckResult
from untildone.core.state import LoopState
from untildone.core.unprovable import cannot_run, has_no_program
from untildone.core.verdict import (
    Seen,
    before_any_work,
    conditions,
    fewer_tests,
    how_it_failed,
    lent_findings,
    not_run,
    refusal,
    validation,
)
from untildone.engine.conditions import look_at
from untildone.engine.journal import Journal
from untildone.engine.narrate import narrating
from untildone.engine.parts import Parts
from untildone.engine.watch import unless
from untildone.errors import WorkspaceError
from untildone.ports.delivery import Progress, Subject


async def take_baseline(journal: Journal, parts: Parts) -> None:
    """Run the commands of the contract before any work is done, so that nobody is blamed for what was red before."""
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
    checks = _commands(contract)
    start = Subject(commit=state.arrival.start, room=contract.room, tries="two")
    results = await parts.witness.examine(start, checks, progress=progress)
    notes: list[str] = []
    # Before the first commit there is nothing to check out, and that is nobody's mistake.
    refused = "" if start.commit is None else cannot_run(results)
    if not refused and contract.room == "clean" and start.commit is not None:
        # What wavers proves nothing about the room it wavered in.
        red = {result.name for result in results if not result.passed and result.ran and not result.flaky}
        copied = replace(start, furnished=True, tries="one")
        try:
            again = [check for check in checks if check.name in red]
            refused = refusal(results, await parts.witness.examine(copied, again, progress=progress), state.spec.cwd)
        except WorkspaceError as trouble:
            notes.append(
                f"whether {', '.join(sorted(red))} would pass in your tree was not looked at: {trouble}; if it needs "
                "what a fresh checkout does not have, say how that is prepared with --setup"
            )
    refused = refused or has_no_program(results)
    return ev.BaselineTaken(commit=start.commit, room=contract.room, checks=tuple(results), refused=refused), notes


async def verify(journal: Journal, parts: Parts, claim: Verify) -> None:
    """Examine the work. A stop asked for meanwhile calls it off; the claim then stays unverified."""
    began = parts.clock.now()
    with narrating(journal) as progress:
        look = _examine_the_newest if claim.claimed else glance
        looking = look(journal.state, parts, progress)
        seen = await unless(journal, parts.clock, looking, lambda: journal.state.stop is not None)
    if seen is None:
        return
    if claim.claimed and (tip := await _moved_on(seen, journal.state, parts)) is not None:
        told = f"{seen.branch or 'HEAD'} moved on to {tip[:10]} while the checks ran on {(seen.commit or '')[:10]}"
        await journal.tell(ev.ContinuousWarning(message=f"{told}: nobody has looked at what came after"))
    verdict = validation(journal.state, claim.number, seen)
    took = max(0.0, parts.clock.now() - began)
    await journal.record(replace(verdict, claimed=claim.claimed, seconds=took))


async def glance(state: LoopState, parts: Parts, progress: Progress) -> Seen:
    """Only the commands, each of them once: what they say is no proof, it shows how far the work is."""
    contract, tree = state.spec.contract, await parts.workspace.observe()
    commit, elsewhere = await parts.workspace.subject(), await parts.workspace.elsewhere()
    subject = Subject(commit=commit, room=contract.room, tries="one")
    checks = [] if elsewhere else _commands(contract)
    results = await parts.witness.examine(subject, checks, progress=progress)
    return Seen(
        results=tuple(results), room=contract.room, commit=commit, tree=tree.fingerprint, branch=tree.branch,
        dirty=tree.dirty, elsewhere=elsewhere,
    )  # fmt: skip


async def _examine_the_newest(state: LoopState, parts: Parts, progress: Progress) -> Seen:
    """Examine; once more, if it would pass and commits were made meanwhile: what is called done is what is there."""
    seen = await examine(state, parts, progress)
    if all(result.passed for result in seen.results) and await _moved_on(seen, state, parts) is not None:
        progress("commits were made meanwhile: looking once more")
        seen = await examine(state, parts, progress)
    return seen


async def _moved_on(seen: Seen, state: LoopState, parts: Parts) -> str | None:
    """Where the branch is now, if it is not where it was when it was looked at."""
    tree = await parts.workspace.observe()
    if not state.spec.commit or seen.commit is None or tree.branch != seen.branch or tree.head == seen.commit:
        return None
    return tree.head


async def examine(state: LoopState, parts: Parts, progress: Progress) -> Seen:
    """Everything the contract asks for, on the commit that would be called done."""
    contract = state.spec.contract
    tree = await parts.workspace.observe()
    commit = await parts.workspace.subject()
    if elsewhere := await parts.workspace.elsewhere():
        return Seen(
            room=contract.room, commit=None, tree=tree.fingerprint, branch=tree.branch, dirty=tree.dirty,
            elsewhere=elsewhere,
        )  # fmt: skip
    subject = Subject(commit=commit, room=contract.room)
    results = await parts.witness.examine(subject, _commands(contract), flaky=state.flaky, progress=progress)
    for check in conditions(contract.checks):
        progress(f"looking whether {check.name} holds")
        is_green = all(result.passed for result in results)
        results.append(await look_at(check, state, tree, parts, patient=is_green))
    findings, changes = await _findings(state, parts, commit)
    findings += lent_findings(await parts.witness.lent_changes(), contract, state.waived)
    findings += fewer_tests(results, state, findings, (*contract.waive, *state.waived))
    if contract.fail_to_pass and all(result.passed for result in results):
        results.append(await _fail_to_pass(state, parts, commit, findings, changes, progress=progress))
    return Seen(
        results=tuple(results),
        findings=tuple(findings),
        room=contract.room,
        commit=commit,
        tree=tree.fingerprint,
        branch=tree.branch,
        dirty=tree.dirty,
    )


def _commands(contract: Contract) -> list[CheckSpec]:
    return [check for check in contract.checks if check.kind == "command"]


async def _findings(state: LoopState, parts: Parts, commit: str | None) -> tuple[list[Finding], list[FileChange]]:
    """What was found, and the changes of guarded files that it was found in."""
    contract, start = state.spec.contract, state.arrival.start
    if start is None or commit is None:
        return [], []
    found = await parts.workspace.leaks(start, commit, state.waived)
    if contract.guard == "off" and not contract.fail_to_pass:
        return found, []
    changes = await parts.workspace.changes(start, commit, lambda path: guard.is_watched(path, contract))
    # In a thread: a large change takes a while to read, and a stop must be heard meanwhile.
    waived, before = (*contract.waive, *state.waived), before_any_work(state)
    found += await asyncio.to_thread(guard.inspect, changes, contract, waived=waived, before=before)
    return found, changes


async def _fail_to_pass(
    state: LoopState,
    parts: Parts,
    commit: str | None,
    findings: Sequence[Finding],
    changes: Sequence[FileChange],
    *,
    progress: Progress,
) -> CheckResult:
    """New tests must fail on the code the run began with: otherwise they prove nothing about the change."""
    contract, start = state.spec.contract, state.arrival.start
    files = tuple(dict.fromkeys(f.path for f in findings if f.kind in {"test_added", "test_edited"}))
    if not files or start is None or commit is None:
        return fail_to_pass.verdict("no test was added or changed")
    old_code = Subject(commit=start, room="clean", borrow=commit, files=files)
    if contract.fail_to_pass_check:
        return await _by_its_own_check(contract.fail_to_pass_check, old_code, commit, parts, progress)
    checks, before = _commands(contract), dict(state.baseline or ())
    results = await parts.witness.examine(old_code, checks, progress=progress)
    alone = Subject(commit=start, room="clean", tries="one")
    red = {result.name for result in results if result.ran and not result.passed}
    again = [] if any(before.get(name) for name in red) else [check for check in checks if check.name in red]
    without = await parts.witness.examine(alone, again, progress=progress)
    tests = await asyncio.to_thread(fail_to_pass.changed_tests, changes)
    return fail_to_pass.verdict(fail_to_pass.not_shown(results, without, tests, before), tests=tuple(tests) or files)


async def _by_its_own_check(
    command: str, old_code: Subject, commit: str, parts: Parts, progress: Progress
) -> CheckResult:
    """The user says how the new tests alone are run: red on the old code, green on the new."""
    check = CheckSpec(name=FAIL_TO_PASS, command=command)
    (*_, old) = await parts.witness.examine(old_code, [check], progress=progress)
    if old.passed or not old.ran:
        said = how_it_failed(old) if not old.ran else "passes on the code the run began with, too: it proves nothing"
        return fail_to_pass.verdict(f"`{command}` {said}")
    (*_, new) = await parts.witness.examine(Subject(commit=commit, room="clean"), [check], progress=progress)
    wrong = "" if new.passed else f"`{command}` does not pass on the result ({how_it_failed(new)})"
    return fail_to_pass.verdict(wrong, tests=old_code.files)

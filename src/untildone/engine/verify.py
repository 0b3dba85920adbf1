"""The loop looks for itself: a baseline before any work, and the whole contract after every claim."""

import asyncio
from collections.abc import Sequence

from untildone.core import events as ev
from untildone.core import guard
from untildone.core.contract import CheckSpec, Contract
from untildone.core.decide import Verify
from untildone.core.findings import Finding
from untildone.core.state import LoopState
from untildone.core.verdict import Seen, conditions, not_run, proves_nothing, refusal, validation
from untildone.engine.conditions import look_at
from untildone.engine.journal import Journal
from untildone.engine.narrate import narrating
from untildone.engine.parts import Parts
from untildone.engine.watch import unless
from untildone.ports.delivery import Progress, Subject


async def take_baseline(journal: Journal, parts: Parts) -> None:
    """Run the commands of the contract before any work is done, so that nobody is blamed for what was red before."""
    with narrating(journal) as progress:
        looking = _baseline(journal.state, parts, progress)
        taken = await unless(journal, parts.clock, looking, lambda: journal.state.stop is not None)
    if taken is not None:
        for line in not_run(taken.checks):
            await journal.tell(ev.ContinuousWarning(message=line))
        await journal.record(taken)


async def _baseline(state: LoopState, parts: Parts, progress: Progress) -> ev.BaselineTaken:
    contract = state.spec.contract
    checks = _commands(contract)
    start = Subject(commit=state.arrival.start, room=contract.room)
    results = await parts.witness.examine(start, checks, progress=progress)
    refused = ""
    if contract.room == "clean":
        red = {result.name for result in results if not result.passed}
        in_tree = Subject(commit=None, room="tree")
        again = [check for check in checks if check.name in red]
        refused = refusal(results, await parts.witness.examine(in_tree, again, progress=progress), state.spec.cwd)
    return ev.BaselineTaken(commit=start.commit, room=contract.room, checks=tuple(results), refused=refused)


async def verify(journal: Journal, parts: Parts, claim: Verify) -> None:
    """Examine the work. A stop asked for meanwhile calls it off; the claim then stays unverified."""
    with narrating(journal) as progress:
        looking = examine(journal.state, parts, progress)
        seen = await unless(journal, parts.clock, looking, lambda: journal.state.stop is not None)
    if seen is not None:
        await journal.record(validation(journal.state, claim.number, seen))


async def examine(state: LoopState, parts: Parts, progress: Progress) -> Seen:
    """Everything the contract asks for, on the commit that would be called done."""
    contract = state.spec.contract
    tree = await parts.workspace.observe()
    commit = await parts.workspace.subject()
    subject = Subject(commit=commit, room=contract.room)
    results = await parts.witness.examine(subject, _commands(contract), flaky=state.flaky, progress=progress)
    for check in conditions(contract.checks):
        progress(f"looking whether {check.name} holds")
        is_green = all(result.passed for result in results)
        results.append(await look_at(check, state, tree, parts, patient=is_green))
    findings = await _findings(state, parts, commit)
    if contract.fail_to_pass and all(result.passed for result in results):
        findings += await _fail_to_pass(state, parts, commit, findings, progress)
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


async def _findings(state: LoopState, parts: Parts, commit: str | None) -> list[Finding]:
    contract, start = state.spec.contract, state.arrival.start
    if start is None or commit is None:
        return []
    found = await parts.workspace.leaks(start, commit, state.waived)
    if contract.guard == "off" and not contract.fail_to_pass:
        return found
    changes = await parts.workspace.changes(start, commit, lambda path: guard.is_watched(path, contract))
    # In a thread: a large change takes a while to read, and a stop must be heard meanwhile.
    found += await asyncio.to_thread(guard.inspect, changes, contract, waived=(*contract.waive, *state.waived))
    return found


async def _fail_to_pass(
    state: LoopState, parts: Parts, commit: str | None, findings: Sequence[Finding], progress: Progress
) -> list[Finding]:
    """New tests must fail on the code the run began with: otherwise they prove nothing about the change."""
    start = state.arrival.start
    tests = tuple(dict.fromkeys(f.path for f in findings if f.kind in {"test_added", "test_edited"}))
    if not tests or start is None or commit is None:
        return [Finding(kind="not_fail_to_pass", path="", text="no test was added or changed", blocking=True)]
    old_code = Subject(commit=start, room="clean", borrow=commit, files=tests)
    results = await parts.witness.examine(old_code, _commands(state.spec.contract), progress=progress)
    return proves_nothing(results, tests)

"""From what the witness saw to the one event that says whether the work holds."""

from collections.abc import Sequence
from dataclasses import replace

from untildone.core import events as ev
from untildone.core.contract import CheckSpec, Contract, Room
from untildone.core.dataclass import dataclass
from untildone.core.failing_tests import failing_tests
from untildone.core.feedback import check_feedback, dispute_feedback, guard_feedback
from untildone.core.findings import Finding, LentChange
from untildone.core.findings import waived as is_waived
from untildone.core.outcome import CheckResult
from untildone.core.policy import Landing
from untildone.core.printable import one_line
from untildone.core.pull import LAG, PullView
from untildone.core.state import LoopState
from untildone.core.unprovable import last_line

_SAID = 200
_NAMED = 5
_LENT = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Everything that was looked at after a claim."""

    results: tuple[CheckResult, ...] = ()
    findings: tuple[Finding, ...] = ()
    judges: tuple[str, ...] = ()
    """Files that judge the work and differ from the base."""
    base_results: tuple[CheckResult, ...] = ()
    """The checks on the same code with the base's judges."""
    disputed: tuple[str, ...] = ()
    """What does not hold with them."""
    room: Room
    commit: str | None
    tree: str
    branch: str | None
    dirty: tuple[str, ...] = ()
    elsewhere: str = ""
    """Why none of it was looked at: the folder is on a branch that is not the run's."""


def validation(state: LoopState, number: int, seen: Seen) -> ev.IterationValidation:
    """The verdict. What passes and cannot be committed is no proof: the evidence would name a commit without it."""
    results = tuple(with_blame(result, state) for result in seen.results)
    failed = [result for result in results if not result.passed]
    blocking = [finding for finding in seen.findings if finding.blocking]
    trouble = state.commit_trouble if not seen.elsewhere else ""
    told = [check_feedback(results)] if failed else []
    told += [guard_feedback(blocking)] if blocking else []
    disputed = [] if failed else [said for said in seen.disputed if said not in state.accepted]
    told += [dispute_feedback(disputed, seen.judges)] if disputed else []
    told += [f"The work could not be committed: {trouble}"] if trouble else []
    told += [f"Nothing was checked: {seen.elsewhere}"] if seen.elsewhere else []
    return ev.IterationValidation(
        iteration_num=number,
        passed=not told,
        feedback="\n\n".join(told),
        checks=results,
        tree=seen.tree,
        commit=seen.commit,
        git_status={"is_clean": not seen.dirty, "branch_name": seen.branch, "uncommitted": len(seen.dirty)},
        errors=(
            *(f"{result.name}: {how_it_failed(result)}" for result in failed),
            *(f"{one_line(finding.place, _SAID)}: {finding.kind.replace('_', ' ')}" for finding in blocking),
            *(f"disputed: {said}" for said in disputed),
            *(["the work could not be committed"] if trouble else []),
            *([seen.elsewhere] if seen.elsewhere else []),
        ),
        room=seen.room,
        findings=seen.findings,
        judges=seen.judges,
        base_checks=seen.base_results,
        disputed=() if failed else seen.disputed,
        weaker=next((result.weaker for result in results if result.weaker), ""),
    )


def how_it_failed(result: CheckResult) -> str:
    """In a few words."""
    if result.hidden:
        return "failed"
    if not result.ran or not result.command:
        return result.output_tail.strip() or "does not hold"
    return "did not end in time" if result.exit_code is None else f"exit {result.exit_code}"


def with_blame(result: CheckResult, state: LoopState) -> CheckResult:
    """The same result, with what the baseline says about it."""
    return replace(result, was_green=dict(state.baseline or ()).get(result.name))


def refusal(fresh: Sequence[CheckResult], here: Sequence[CheckResult], folder: str) -> str:
    """Why a run cannot begin: what passes in a copy of the tree (`here`) and failed in a fresh checkout."""
    green = {result.name for result in here if result.passed}
    if not green:
        return ""
    names = ", ".join(f"`{name}`" for name in dict.fromkeys(result.name for result in here) if name in green)
    said = next((last_line(r) for r in fresh if r.name in green if last_line(r)), "")
    return (
        f"{names} passes in {folder} but fails in a fresh checkout of the same commit"
        + (f" ({said})" if said else "")
        + ", so it could never prove anything there: say how a checkout is prepared with --setup (such as "
        "`--setup 'npm ci'`), or which ignored folders it borrows with --share (such as `--share node_modules`); "
        "--check-in tree checks the agent's own tree instead, which is weaker"
    )


def not_run(results: Sequence[CheckResult]) -> list[str]:
    """Lines for people about checks that could not be run at all."""
    return list(dict.fromkeys(f"{result.name}: {how_it_failed(result)}" for result in results if not result.ran))


def fewer_tests(results: Sequence[CheckResult], state: LoopState, waived: Sequence[str]) -> list[str]:
    """What does not run any more of what the checks ran before any work was done, whatever made it so."""
    contract = state.spec.contract
    before = {key: (run, skipped) for key, run, skipped in state.tests_before}
    told = []
    for result in results:
        run, skipped = before.get(contract.identity(result.name, result.command), (0, None))
        if result.passed and not is_waived(result.name, waived) and (said := _lost(result, run, skipped)):
            told.append(f"{result.name}: {said}")
    return told


def still_failing(results: Sequence[CheckResult], state: LoopState, waived: Sequence[str]) -> list[str]:
    """Checks that failed before the run and end well now although what they print names tests that fail."""
    red = {name for name, passed in state.baseline or () if not passed and not is_waived(name, waived)}
    told = []
    for result in results:
        if result.passed and result.name in red and (named := failing_tests(result.output_tail)):
            first = "" if result.hidden else f", such as {min(test.name or test.file for test in named)}"
            told.append(f"{result.name}: it passes although it names tests that fail{first}")
    return [one_line(said, _SAID) for said in told]


def _lost(result: CheckResult, run: int, skipped: int | None) -> str:
    if result.tests_run is None:
        return f"it no longer says how many tests it ran: {run} at the start" if run else ""
    if result.tests_run < run:
        return f"{run - result.tests_run} of {run} tests were not run"
    if skipped is not None and (result.tests_skipped or 0) > skipped:
        return f"{result.tests_skipped} tests were skipped, {skipped} at the start"
    return ""


def uncommitted(dirty: Sequence[str]) -> str:
    """What a tree that should be clean holds; "" for nothing."""
    more = f" and {len(dirty) - _NAMED} more" if len(dirty) > _NAMED else ""
    return f"uncommitted: {', '.join(one_line(path, _SAID) for path in dirty[:_NAMED])}{more}" if dirty else ""


def ci_verdict(view: PullView, commit: str, landing: Landing, waited: float) -> str | None:
    """Why CI does not call this commit green; "" when it does, None while it may still come."""
    if view.head != commit:
        late = f"the pull request is at {view.head[:10]}, the work is at {commit[:10]}: it is not pushed"
        return late if waited >= LAG else None
    if failed := [check.name for check in view.checks if check.state == "failed"]:
        return f"not green: {one_line(', '.join(failed), _SAID)}"
    if pending := [check.name for check in view.checks if check.state == "pending"]:
        return f"still running: {one_line(', '.join(pending), _SAID)}" if waited >= landing.ci_timeout else None
    if not view.checks:
        return "no check has reported anything" if waited >= landing.ci_start else None
    return ""


def conditions(checks: Sequence[CheckSpec]) -> list[CheckSpec]:
    """The checks that are no commands."""
    return [check for check in checks if check.kind != "command"]


def replaced_judges(changed: Sequence[LentChange], waived: Sequence[str]) -> list[str]:
    """Programs that checks name, and packages installed beside them, that are not what they were."""
    replaced = [one.path for one in changed if one.judges and not is_waived(one.path, waived)]
    text = "the checks run this, and it is not what it was when the run began"
    return [f"{one_line(path, _SAID)}: {text}" for path in replaced[:_LENT]]


def lent_findings(changed: Sequence[LentChange], contract: Contract, let_pass: Sequence[str]) -> list[Finding]:
    """What to say about folders and programs that checks use, that no commit holds, and that are not what they were."""
    text = "the checks use it from outside the commit, and it is not what it was when the run began"
    return [
        Finding(
            kind="settings_changed",
            path=change.path,
            text=text,
            blocking=contract.guard == "strict" and not is_waived(change.path, (*contract.waive, *let_pass)),
        )
        for change in changed[:_LENT]
    ]

"""From what the witness saw to the one event that says whether the work holds."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from untildone.core import events as ev
from untildone.core.contract import CheckSpec, Room
from untildone.core.feedback import check_feedback, guard_feedback
from untildone.core.findings import Finding
from untildone.core.outcome import CheckResult
from untildone.core.policy import Landing
from untildone.core.printable import one_line
from untildone.core.pull import LAG, PullView
from untildone.core.state import LoopState

_SAID = 200
_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Everything that was looked at after a claim."""

    results: tuple[CheckResult, ...] = ()
    findings: tuple[Finding, ...] = ()
    room: Room
    commit: str | None
    tree: str
    branch: str | None
    dirty: tuple[str, ...] = ()


def validation(state: LoopState, number: int, seen: Seen) -> ev.IterationValidation:
    """The verdict. What passes and cannot be committed is no proof: the evidence would name a commit without it."""
    results = tuple(with_blame(result, state) for result in seen.results)
    failed = [result for result in results if not result.passed]
    blocking = [finding for finding in seen.findings if finding.blocking]
    trouble = state.commit_trouble
    told = [check_feedback(results)] if failed else []
    told += [guard_feedback(blocking)] if blocking else []
    told += [f"The work could not be committed: {trouble}"] if trouble else []
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
            *(f"{finding.place}: {finding.kind.replace('_', ' ')}" for finding in blocking),
            *(["the work could not be committed"] if trouble else []),
        ),
        room=seen.room,
        findings=seen.findings,
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
    """Why a run cannot begin: what passes in the tree (`here`) and failed in a fresh checkout of the same commit."""
    green = {result.name for result in here if result.passed}
    if not green:
        return ""
    names = ", ".join(f"`{name}`" for name in dict.fromkeys(result.name for result in here) if name in green)
    said = next((_last_line(r) for r in fresh if r.name in green or r.name == "setup" if _last_line(r)), "")
    return (
        f"{names} passes in {folder} but fails in a fresh checkout of the same commit"
        + (f" ({said})" if said else "")
        + ", so it could never prove anything there: say how a checkout is prepared with --setup (such as "
        "`--setup 'npm ci'`), or which ignored folders it borrows with --share (such as `--share node_modules`); "
        "--check-in tree checks the agent's own tree instead, which is weaker"
    )


def _last_line(result: CheckResult) -> str:
    if result.passed or result.hidden:
        return ""
    lines = result.output_tail.strip().splitlines()
    return one_line(lines[-1], _SAID) if lines else ""


def not_run(results: Sequence[CheckResult]) -> list[str]:
    """Lines for people about checks that could not be run at all."""
    return list(dict.fromkeys(f"{result.name}: {how_it_failed(result)}" for result in results if not result.ran))


def proves_nothing(on_old_code: Sequence[CheckResult], tests: Sequence[str]) -> list[Finding]:
    """What to say about new tests after the checks were run with them on the code before the change."""
    if any(result.ran and not result.passed for result in on_old_code):
        return []
    lost = next((how_it_failed(result) for result in on_old_code if not result.ran), "")
    said = lost or "passes on the code the run began with, too: it proves nothing about the change"
    return [Finding(kind="not_fail_to_pass", path=path, text=said, blocking=True) for path in tests]


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

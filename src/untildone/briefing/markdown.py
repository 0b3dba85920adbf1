"""The report a tired human reads in five minutes, as plain Markdown. Every fact in it comes from the log."""

from collections import Counter
from collections.abc import Sequence
from datetime import tzinfo

from untildone.briefing.delivery import (
    arrival_sentence,
    baseline_lines,
    check_remarks,
    guard_section,
    landing_section,
    review_section,
    where_checked,
)
from untildone.briefing.gathered import Gathered, gather
from untildone.briefing.safe import cell, fence, span
from untildone.core import events as ev
from untildone.core.durations import format_duration
from untildone.core.failing_tests import what_failed
from untildone.core.faults import FAULTS
from untildone.core.figures import clock, count, dollars, git_command, short_commit
from untildone.core.history import IterationRow, iteration_rows
from untildone.core.lines import event_line, exit_text
from untildone.core.lines_delivery import its_command, shown_check
from untildone.core.obstacles import obstacles
from untildone.core.outcome import CheckResult
from untildone.core.spending import SUBSCRIPTION
from untildone.core.standing import fail_to_pass_text
from untildone.core.state import LoopState
from untildone.core.stopping import Reason, cause
from untildone.core.views import RunView, run_view

_ROWS = 25
_ITEMS = 20
_VERDICTS = {
    "passed": ", and the checks passed",
    "failed": ", but **the checks failed**",
    "blocked": ", and the checks passed, but **something else blocked completion**",
    "": "",
}
_COMMAND = 9000
"""Paths may be long, and a command that is cut is of no use."""


def render(
    state: LoopState, records: Sequence[ev.Record], now: float, *, alive: bool | None = None, zone: tzinfo | None = None
) -> str:
    """The briefing of a run, from its folded state and its control records. `zone` None: local time."""
    view = run_view(state, now, alive=alive, zone=zone)
    found, rows = gather(records), iteration_rows(records)
    sections = (
        _head(view, state, found, zone),
        _done(rows, found, in_session=state.spec.in_session),
        _evidence(view, state, found, zone, claimed=any(row.claim for row in rows)),
        guard_section(state, found.validations[-1][1] if found.validations else None, found.steering, zone),
        review_section(found.reviews),
        landing_section(state, found.landings),
        _not_done(view, state, found),
        _faults(rows, found, zone),
        _said("Decisions and assumptions", found.assumptions, "No assumption was reported by the agent."),
        _said("Questions for you", found.questions, "The agent asked nothing."),
        _steering(found, zone),
        _spend(view, rows, found),
        _next(view, state, found),
    )
    return "\n\n".join("\n".join(section) for section in sections if section) + "\n"


def headline(view: RunView) -> str:
    """The one sentence that matters most."""
    if view.success:
        if view.verified:
            return "Done and verified: the loop ran the checks itself after the agent's claim, and all passed."
        return "Done by the agent's word: no checks ran, so nothing but what it says shows that the goal is reached."
    if view.status == "new":
        return "Nothing has happened yet."
    if view.exit_reason == Reason.LANDING_FAILED or (view.verified and view.exit_reason):
        done = "Done and verified" if view.verified else "Done"
        why = "" if view.exit_reason == Reason.LANDING_FAILED else f" yet: {cause(view.exit_reason)}"
        return f"{done}, but not landed{why}."
    if view.exit_reason:
        known = view.exit_reason in set(Reason)
        return f"Not done: {cause(view.exit_reason) if known else span(view.exit_reason)}."
    return f"Not done yet: {view.phase}."


def _head(view: RunView, state: LoopState, found: Gathered, zone: tzinfo | None) -> list[str]:
    lines = [f"# Briefing: {span(view.name or view.run_id or 'no run', 80)}", "", f"**{headline(view)}**", ""]
    if view.unproven:
        lines += [f"**Not verified**: {span(view.unproven, 500)}", ""]
    if arrived := arrival_sentence(state):
        lines += [arrived, ""]
    if view.detail:
        lines += [f"In detail: {span(view.detail, 500)}", ""]
    if not state.run_id:
        return lines[:-1]
    lines += ["The goal, as it was given:", "", fence(state.spec.goal, lines=30), ""]
    drivers = f" ({count(found.drivers, 'start')} in all)" if found.drivers > 1 else ""
    waited = view.elapsed_seconds - view.worked_seconds
    work = f"{format_duration(view.elapsed_seconds)} running{drivers}"
    work += f", {format_duration(waited)} of that waiting" if waited >= 1 else ""
    lines.append(f"- Started {clock(state.started_at, zone=zone)}, {work}.")
    lines.append(f"- {count(view.attempts, 'iteration')}, {view.failed} failed.")
    lines.append(f"- Spent: {view.cost}.")
    lines += [f"- **Warning:** {span(told, 500)}" for told in view.meddling]
    lines.append(f"- Folder {span(state.spec.cwd)}" + _branch(found) + ".")
    lines += [f"- Reason: {span(view.exit_reason)} (exit code {view.exit_code})."] if view.exit_reason else []
    return lines


def _branch(found: Gathered) -> str:
    branch = next((commit.branch for commit in reversed(found.commits) if commit.branch), None)
    return f", branch {span(branch)}" if branch else ""


# --- what was done -------------------------------------------------------------------------------------------


def _done(rows: Sequence[IterationRow], found: Gathered, *, in_session: bool) -> list[str]:
    lines = ["## What was done", ""]
    worked = [row for row in rows if row.outcome == "ok" or row.commits]
    if not worked:
        return [*lines, "Nothing: no iteration succeeded."]
    seen = (
        "edits are those of Claude's own tools, not of commands"
        if in_session
        else "files and commits are what the loop saw"
    )
    lines += [f"Summaries are the agent's own words; {seen}.", ""]
    if len(worked) > _ROWS:
        lines.append(f"- … {len(worked) - _ROWS} earlier iterations are left out here.")
    messages = {commit.commit: commit for commit in found.commits}
    for row in worked[-_ROWS:]:
        lines.append(f"- **Iteration {row.number}**: {span(row.summary, 200) if row.summary else 'no summary given'}")
        lines.append(f"  - {_changes(row, 'edited' if in_session else 'changed')}{_claim(row)}")
        for commit in row.commits:
            landed = messages[commit]
            who = "committed by the agent" if landed.by == "agent" else "commit"
            lines.append(f"  - {who} {span(short_commit(commit))}: {span(landed.message.split(chr(10), 1)[0], 100)}")
    return lines


def _changes(row: IterationRow, done: str) -> str:
    changed = f"{count(row.files_changed, 'file') if row.files_changed else 'no file'} {done}"
    return f"{changed}, {format_duration(row.seconds)}"


def _claim(row: IterationRow) -> str:
    if not row.claim:
        return ""
    return f"; the agent claimed: {row.claim}{_VERDICTS[row.verdict]}"


# --- evidence ------------------------------------------------------------------------------------------------


def _evidence(view: RunView, state: LoopState, found: Gathered, zone: tzinfo | None, *, claimed: bool) -> list[str]:
    lines = ["## Evidence", ""]
    if not found.validations:
        if not state.spec.checks:
            return [*lines, "None. No checks were given, so nothing was verified by anyone but the agent."]
        wanted = ", ".join(span(command) for command in state.spec.checks)
        why = "work was still open, or a limit came first" if claimed else "the agent never claimed to be done"
        when = "run once, before any work" if found.baseline else "never run"
        never = f"None. The checks ({wanted}) were {when}: {why}."
        return [*lines, never, *baseline_lines(found.baseline, state.spec.contract)]
    at, last = found.validations[-1]
    passed = sum(all(check.passed for check in event.checks) for _, event in found.validations)
    kind = "commit" if state.spec.commit else "a snapshot of the tree,"
    where = f"at {kind} {span(last.commit, 64)}" if last.commit else "in the working tree, at no commit"
    lines.append(
        f"The checks were run {count(len(found.validations), 'time')} by the loop itself, {passed} passed. "
        f"The last time, after iteration {last.iteration_num} ({clock(at, zone=zone)}), {where}:"
    )
    lines += ["", "| check | result | exit | seconds | sha256 of its output |", "|---|---|---|---|---|"]
    lines += [_check_row(check) for check in last.checks]
    lines += ["", where_checked(last.room, last.weaker)]
    lines += ["", f"Look by look: {view.progress}."] if view.progress else []
    lines += [*check_remarks(last.checks, state.flaky), *baseline_lines(found.baseline, state.spec.contract)]
    if told := fail_to_pass_text(state):
        lines += ["", f"New tests on old code (--fail-to-pass): {told}."]
    if last.iteration_num < view.attempts:
        lines += ["", "**Work went on after that**: what is there now has not been checked."]
    return lines


def _check_row(check: CheckResult) -> str:
    result = "passed" if check.passed else "**failed**"
    named = ": ".join(filter(None, (shown_check(check), its_command(check))))
    return f"| {cell(named)} | {result} | {_exit(check)} | {check.seconds:.1f} | {cell(check.output_sha256, 64)} |"


def _exit(check: CheckResult) -> str:
    return exit_text(check.exit_code) if check.command else ""


# --- what was not done ---------------------------------------------------------------------------------------


def _not_done(view: RunView, state: LoopState, found: Gathered) -> list[str]:
    lines = []
    if state.tasks_open:
        lines.append(
            f"- {count(state.tasks_open, 'task')} in {span(state.spec.task_file or 'the task file')} still open."
        )
    if state.blocked:
        lines.append(f"- The agent says it is blocked (its words): {span(state.blocked, 500)}")
    lines += [f"- This message did not reach the agent: {span(message, 500)}" for message in view.unheard]
    if state.half_done:
        half = state.half_done
        files = ", ".join(span(path, 100) for path in half.files[:_ITEMS])
        lines.append(
            f"- Iteration {half.iteration_num} was cut off ({span(half.reason)}). Its half-done work is still in"
        )
        lines.append(f"  the folder, and kept as {span(half.ref)}: {files or 'no file listed'}")
    if found.denials:
        denied = ", ".join(span(denial, 120) for denial in list(found.denials)[:_ITEMS])
        lines.append(f"- Denied to the agent: {denied}")
    if found.reviewer_denials:
        denied = ", ".join(span(denial, 120) for denial in list(found.reviewer_denials)[:_ITEMS])
        lines.append(f"- Denied to the reviewer, who only reads: {denied}")
    lines += [
        f"- The agent could not reach {span(host)}: {span(f'--allow-host {host}')} allows it."
        for host in view.refused_hosts
    ]
    lines += [
        f"- The agent used too much: {span(said, 200)}. {span('--' + what.replace('_', '-'))} is the bound."
        for what, said in state.exceeded
    ]
    if view.breaker_state != "closed":
        lines.append(f"- The circuit breaker: {span(view.breaker)}.")
    lines += _failing_checks(found)
    lines += [f"- Completion is blocked: {span(told, 1000)}" for told in obstacles(state)] if not view.success else []
    if not lines and (view.verified or view.exit_reason == Reason.LANDING_FAILED) and not view.success:
        lines = ["The goal is reached; the work has not landed: see above."]
    if not lines and not view.success:
        lines = ["The goal: no claim of the agent's was confirmed. Nothing else is known to be left over."]
    return ["## What was not done, and why", "", *(lines or ["Nothing is known to be left over."])]


def _failing_checks(found: Gathered) -> list[str]:
    if not found.validations or found.validations[-1][1].passed:
        return []
    _, last = found.validations[-1]
    lines = []
    for check in last.checks:
        if not check.passed and (check.hidden or not check.command):
            lines.append(f"- {span(shown_check(check))} does not hold.")
        elif not check.passed:
            command = f" ({span(its_command(check))})" if its_command(check) else ""
            how = exit_text(check.exit_code) if check.ran else "not run"
            what = f": {span(said)}" if (said := what_failed(check.output_tail)) else ""
            lines += [f"- The check {span(shown_check(check))}{command} fails ({how}){what}. The end of its output:"]
            lines += ["", fence(check.output_tail, lines=25), ""]
    return lines


def _faults(rows: Sequence[IterationRow], found: Gathered, zone: tzinfo | None) -> list[str]:
    if not (found.failures or found.recoveries or found.hooks):
        return []
    lines = ["## Faults, and what they cost", ""]
    kinds = Counter(failure.error_type for failure in found.failures)
    for kind, times in kinds.most_common():
        lines.append(_fault(kind, times, [failure for failure in found.failures if failure.error_type == kind]))
    lines += [
        f"- The loop itself died and went on at {clock(at, zone=zone)}: {_mended(event)}"
        for at, event in found.recoveries
    ]
    lines += [f"- Your {span(hook.hook)} command failed: {span(hook.detail)}" for hook in found.hooks[-_ITEMS:]]
    abandoned = [row.number for row in rows if row.outcome == "abandoned"]
    if abandoned:
        lines.append(
            f"- Left behind without an end: {', '.join(f'iteration {number}' for number in abandoned[-_ITEMS:])}."
        )
    return lines


def _fault(kind: str, times: int, failures: Sequence[ev.IterationFailed]) -> str:
    known = FAULTS.get(kind)
    cost = sum(failure.cost_usd or 0.0 for failure in failures)
    estimated = sum(failure.estimated_usd for failure in failures)
    unknown = sum(failure.cost_usd is None for failure in failures)
    spent = dollars(cost) + (f" + about {dollars(estimated)} (estimate)" if estimated else "")
    spent += f" + {count(unknown, 'unknown amount')}" if unknown else ""
    took = format_duration(sum(failure.duration_seconds for failure in failures))
    said = f" Last: {span(failures[-1].error, 200)}" if failures[-1].error else ""
    return f"- {count(times, 'time')} {span(kind)} ({known.meaning if known else 'unknown'}): {spent}, {took}.{said}"


def _mended(event: ev.ContinuousRecovered) -> str:
    parts = []
    if event.iteration_num is not None:
        parts.append(f"iteration {event.iteration_num} was closed and its cost booked")
    if event.orphans_ended:
        parts.append(f"{count(event.orphans_ended, 'leftover process', 'leftover processes')} ended")
    if event.snapshot:
        parts.append(f"half-done work kept as {span(event.snapshot)}")
    return ", ".join(parts) + "." if parts else "nothing had been left open."


def _said(title: str, said: dict[str, int], nothing: str) -> list[str]:
    if not said:
        return [f"## {title}", "", nothing]
    items = [f"- {span(text, 500)} (iteration {number})" for text, number in list(said.items())[-_ITEMS:]]
    left_out = [f"- … {len(said) - _ITEMS} earlier ones are left out here."] if len(said) > _ITEMS else []
    return [f"## {title}", "", "In the agent's own words:", "", *left_out, *items]


def _steering(found: Gathered, zone: tzinfo | None) -> list[str]:
    asked = [(record.at, line) for record in found.steering[-_ITEMS:] if (line := event_line(record))]
    if not asked:
        return []
    return [
        "## What was asked for on the way",
        "",
        *(f"- {clock(at, zone=zone)}: {span(line)}" for at, line in asked),
    ]


# --- spend and next steps ------------------------------------------------------------------------------------


def _spend(view: RunView, rows: Sequence[IterationRow], found: Gathered) -> list[str]:
    lines = ["## Spend", "", f"In all: {view.cost}. {view.spend.usage.counted:,} tokens (cache reads not counted)."]
    if view.paid_by:
        lines.append(f"Paid by: {view.paid_by}.{_nominal(view)}")
    if view.lost:
        lines.append(f"Lost {view.lost}. Where the same session went on, only the answer that broke off is gone.")
    if view.spend.estimated_usd:
        lines.append("Replies that were cut off in mid-air are estimates and stand apart.")
    if view.unpriced:
        names = ", ".join(span(model, 60) for model in view.unpriced)
        lines.append(f"**No price is known for {names}**: these tokens are estimates, at the dearest known price.")
    if view.untold_usd:
        lines.append(
            f"**{dollars(view.untold_usd)} of it passed the door of the sandbox without Claude Code telling of it**: "
            "other programs of the agent asked the model, or an answer was lost on the way."
        )
    if view.spend.unknown_costs:
        lines.append("**Some costs are unknown**: the true sum is higher than what is known.")
    if found.models:
        lines.append(f"Models: {', '.join(span(model, 60) for model in list(found.models)[:_ITEMS])}.")
    lines += ["", *(f"- {gauge.label}: {gauge.text}" for gauge in view.gauges)] if view.gauges else []
    if not rows:
        return lines
    lines += ["", "| iteration | outcome | tries | cost | estimate | time |", "|---|---|---|---|---|---|"]
    if len(rows) > _ROWS:
        lines.append(_sum_row(rows[:-_ROWS]))
    return [*lines, *(_spend_row(row) for row in rows[-_ROWS:])]


def _nominal(view: RunView) -> str:
    if SUBSCRIPTION not in view.paid_by:
        return ""
    return (
        " No API key was in use: a subscription is paid by the month, so its dollars are nominal"
        " (with a cloud provider's account they are real)."
    )


def _spend_row(row: IterationRow) -> str:
    return (
        f"| {row.number} | {cell(row.outcome, 40)} | {row.tries} | {_known(row.cost_usd, row.unknown_costs)} "
        f"| {dollars(row.estimated_usd) if row.estimated_usd else ''} | {format_duration(row.seconds)} |"
    )


def _sum_row(rows: Sequence[IterationRow]) -> str:
    cost = _known(sum(row.cost_usd for row in rows), sum(row.unknown_costs for row in rows))
    estimated = sum(row.estimated_usd for row in rows)
    ok = sum(row.outcome == "ok" for row in rows)
    return (
        f"| {rows[0].number} to {rows[-1].number} | {ok} ok of {len(rows)} | {sum(row.tries for row in rows)} | {cost} "
        f"| {dollars(estimated) if estimated else ''} | {format_duration(sum(row.seconds for row in rows))} |"
    )


def _known(cost: float, unknown: int) -> str:
    if not unknown:
        return dollars(cost)
    return f"{dollars(cost)} + unknown" if cost else "unknown"


def _next(view: RunView, state: LoopState, found: Gathered) -> list[str]:
    lines = ["## What to do next", ""]
    if view.advice:
        lines.append(f"- {view.advice}")
    git = git_command(state.arrival.history, state.spec.cwd)
    if not state.spec.commit and view.files_modified:
        lines.append(f"- See the changes, which are in no commit: {span(f'{git} diff', _COMMAND)}")
    if found.present:
        lines.append(f"- See the changes: {span(f'{git} {_look_at(found)}', _COMMAND)}")
    if state.half_done:
        lines.append(f"- See the half-done work: {span(f'{git} show {state.half_done.ref}', _COMMAND)}")
    if found.questions:
        lines.append("- Answer the questions above in your next goal or message.")
    return lines if len(lines) > len(("title", "")) else [*lines, "Nothing: it goes on by itself."]


def _look_at(found: Gathered) -> str:
    last = short_commit(found.present[-1].commit)
    return f"show {last}" if len(found.present) == 1 else f"log -p --reverse -n {len(found.present)} {last}"

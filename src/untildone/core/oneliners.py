"""A run in a line or a few: the monitor's line, the line asked for with `--format`, and the closing words."""

import re

from untildone.core.durations import format_duration
from untildone.core.figures import count, dollars, short_commit
from untildone.core.printable import one_line
from untildone.core.state import LoopState
from untildone.core.views import RunView, result_json, run_view
from untildone.errors import UsageError

# Only a plain {name}: str.format would also follow attributes and indexes of whatever it is given.
_FIELD = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_NAME = 80
_LOGS = 3
_ESCAPED = {"\\n": "\n", "\\t": "\t"}


def result_line(template: str, view: RunView) -> str:
    r"""`template` with each {field} of the result filled in; {{ and }} are braces, \n and \t what they mean."""
    fields = result_json(view)

    def filled(found: re.Match[str]) -> str:
        if found[0] in {"{{", "}}"}:
            return found[0][0]
        name = found[1]
        if name not in fields:
            known = ", ".join(fields)
            raise UsageError(
                f"--format: {found[0]!r} is not a field; the fields are {known} (a brace is written twice)"
            )
        return _value(fields[name])

    for written, meant in _ESCAPED.items():
        template = template.replace(written, meant)
    return _FIELD.sub(filled, template)


def check_template(template: str) -> None:
    """UsageError when `result_line` could not fill this in: better now than after a night of work."""
    result_line(template, run_view(LoopState(), 0.0, alive=False))


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else one_line(str(value))


def monitor_line(view: RunView) -> str:
    """`[Loop 3/50] IN_PROGRESS | Tasks: 2 | Files: 5 | ...`: the whole run at a glance."""
    of = f"/{view.iterations_at_most}" if view.iterations_at_most is not None else ""
    budget = next((gauge.limit for gauge in view.gauges if gauge.field == "max_cost_usd"), None)
    cost = view.cost + (f"/{dollars(budget)}" if budget is not None else "")
    parts = (
        f"[Loop {view.iteration}{of}] {view.report.status if view.report else view.status.upper()}",
        f"Tasks: {view.tasks_completed}",
        f"Files: {view.files_modified}",
        f"Tests: {view.report.tests_status if view.report else 'NOT_RUN'}",
        f"Cost: {cost}",
        f"Circuit: {view.breaker_state.replace('_', '-')} {view.breaker_count}",
        f"Streak: {view.streak}/{view.streak_needed}",
    )
    return one_line(" | ".join(parts))


def closing_lines(view: RunView, *, advice: bool = True) -> list[str]:
    """The last words after a run: what is not proven, what it took, and, with `advice`, what to do next."""
    took = [
        count(view.attempts, "iteration") + (f" ({view.failed} failed)" if view.failed else ""),
        f"spent {view.cost}",
        f"{format_duration(view.worked_seconds)} of work",
        count(view.files_modified, "file change"),
    ]
    if view.last_commit:
        took.append(f"{count(view.commits, 'commit')} (last {short_commit(view.last_commit)})")
    unproven = f"not verified: {view.unproven}" if view.unproven else ""
    unheard = [f"this message did not reach the agent: “{message}”" for message in view.unheard]
    progress = f"progress: {view.progress}" if view.progress else ""
    weaker = f"proof: {view.weaker}" if view.weaker else ""
    lines = (
        unproven,
        view.uncommitted if view.uncommitted not in unproven else "",
        weaker,
        *_failed_checks(view),
        progress,
        *unheard,
        " · ".join(took),
        view.advice if advice else "",
    )
    return [one_line(line) for line in lines if line]


def _failed_checks(view: RunView) -> list[str]:
    """`pytest -q failed: tests/test_a.py::test_x: assert 0 == 1; all it printed is in LOG`, for each."""
    said = dict(view.failing)
    lines = []
    for name, log in view.red[:_LOGS]:
        facts = [fact for fact in (said.get(name, ""), f"all it printed is in {log}" if log else "") if fact]
        lines += [f"{one_line(name, _NAME)} failed: {'; '.join(facts)}"] if facts else []
    return lines

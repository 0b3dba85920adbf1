"""How a run ended or stands, as text."""

import re

from untildone.core.durations import format_duration
from untildone.core.views import RunView, result_json
from untildone.errors import UsageError

_FIELD = re.compile(r"\{([^{}]*)\}")


def result_line(template: str, view: RunView) -> str:
    """`--format`: plain `{field}` only, so that a template can reach nothing but the result."""
    fields = result_json(view)

    def value(match: re.Match[str]) -> str:
        if match[1] not in fields:
            raise UsageError(f"--format: unknown field {match[1]!r}: known are {', '.join(fields)}")
        found = fields[match[1]]
        return str(found).lower() if isinstance(found, bool) else "" if found is None else str(found)

    return _FIELD.sub(value, template)


def result_text(view: RunView) -> str:
    """The last words of a run, for a person."""
    sign = "✓" if view.success else "■"
    head = f"{sign} {view.name}: {view.phase}"
    if view.detail and view.detail not in head:
        head += f" ({view.detail})"
    numbers = [
        f"{view.successes} of {view.attempts} iterations succeeded",
        view.cost,
        format_duration(view.elapsed_seconds),
        f"{view.commits} commits" if view.commits else "no commits",
    ]
    lines = [head, "  " + ", ".join(numbers)]
    if view.advice:
        lines.append(f"  {view.advice}")
    return "\n".join(lines)

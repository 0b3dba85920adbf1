"""One plain line for each event of the agent: what it said, what it called, what Claude Code told about itself."""

from collections.abc import Callable, Mapping
from typing import Any

from untildone.core import events as ev
from untildone.core import trace as tr
from untildone.core.figures import Timed, count, dollars
from untildone.core.printable import one_line
from untildone.core.spending import lane_name

_DETAIL = 200


_SIGNS = {
    "Bash": "$", "BashOutput": "$", "KillShell": "$",
    "Edit": "✎", "MultiEdit": "✎", "Write": "✎", "NotebookEdit": "✎",
    "Read": "▸", "NotebookRead": "▸", "LS": "▸",
    "Grep": "?", "Glob": "?", "ToolSearch": "?",
    "Task": "»", "Agent": "»", "Skill": "»",
    "WebFetch": "@", "WebSearch": "@",
    "TodoWrite": "☑", "TaskCreate": "☑", "TaskUpdate": "☑",
}  # fmt: skip

Liner = Callable[[Any, float], str | Timed | None]


def tool_line(event: tr.AgentToolUse, width: int = _DETAIL) -> str:
    """A tool call: a sign for its kind, its name, and what it was called with."""
    tool = one_line(event.tool, 60)
    if tool.startswith("mcp__"):
        sign, shown = "+", tool.removeprefix("mcp__").replace("__", "/")
    else:
        sign, shown = _SIGNS.get(tool, "•"), tool
    return ("  " if event.subagent else "") + one_line(f"{sign} {shown} {event.detail}", width)


def _session(event: tr.AgentSession, _: float) -> str:
    lane = f" ({lane_name(event.lane)})" if event.lane else ""
    return one_line(f"session {event.session_id} {event.model or ''}{lane}", _DETAIL)


def _agent_started(event: tr.AgentStarted, _: float) -> str:
    return f"agent {'ready (warm)' if event.warm else 'started'}" + (f", pid {event.pid}" if event.pid else "")


def _agent_message(event: tr.AgentMessage, _: float) -> str | None:
    said = one_line(event.text, _DETAIL)
    return f"{'  ' if event.subagent else ''}“{said}”" if said else None


def _tool_use(event: tr.AgentToolUse, _: float) -> str:
    return tool_line(event)


def _tool_result(event: tr.AgentToolResult, _: float) -> str | None:
    return f"  ✗ {telling(event.text, _DETAIL)}" if event.is_error else None


def telling(text: str, width: int) -> str:
    """A tool's answer on one line, without the rules and boxes programs draw."""
    return one_line(" ".join(line for line in text.splitlines() if any(map(str.isalnum, line))), width)


def _system(event: tr.AgentSystem, at: float) -> str | Timed | None:
    said = _SYSTEM_LINERS.get(event.subtype, _other_system)(event, at)
    return one_line(said, _DETAIL) if isinstance(said, str) else said


def _api_retry(event: tr.AgentSystem, _: float) -> str:
    data = event.data
    status, delay = data.get("error_status"), data.get("retry_delay_ms")
    what = f"answered {status}" if status is not None else "could not be reached"
    when = f" in {delay / 1000:.1f}s" if isinstance(delay, int | float) else ""
    attempt, most = data.get("attempt"), data.get("max_retries")
    # Claude Code counts on beyond its own maximum while it waits out a limit.
    is_beyond = isinstance(attempt, int) and isinstance(most, int) and attempt > most
    tries = f"{attempt} times so far" if is_beyond else f"{attempt} of {most}"
    return f"the API {what} ({data.get('error')}): Claude tries again{when} ({tries})"


def _rate_limit(event: tr.AgentSystem, _: float) -> str | Timed | None:
    data = event.data
    if data.get("status") == "allowed":
        return None
    used, resets = data.get("utilization"), data.get("resetsAt")
    share = f", {used:.0%} used" if isinstance(used, int | float) else ""
    said = one_line(f"usage limit {data.get('rateLimitType')}: {data.get('status')}{share}", _DETAIL)
    return Timed(f"{said}, resets at ", resets) if isinstance(resets, int | float) else said


def _denied(event: tr.AgentSystem, _: float) -> str:
    why = event.data.get("message") or event.data.get("reason") or ""
    return f"claude was denied {event.data.get('tool_name') or 'a tool'}" + (f": {why}" if why else "")


def _compacted(_: tr.AgentSystem, __: float) -> str:
    return "Claude compacted its context"


def _other_system(event: tr.AgentSystem, _: float) -> str:
    facts = " ".join(f"{key}={value}" for key, value in event.data.items() if isinstance(value, str | int | float))
    return f"claude: {event.subtype} {facts}"


_SYSTEM_LINERS: Mapping[str, Liner] = {
    "api_retry": _api_retry,
    "rate_limit_event": _rate_limit,
    "compact_boundary": _compacted,
    "permission_denied": _denied,
}


def _stream_error(event: tr.AgentStreamError, _: float) -> str:
    return one_line(f"a line of the agent could not be read: {event.error}", _DETAIL)


def _silent(_: object, __: float) -> None:
    return None


def _price_unknown(event: tr.AgentPriceUnknown, _: float) -> str:
    model = one_line(event.model, 60) or "a model without a name"
    return f"the price of {model} is not known: its tokens are counted at the dearest known price, as an estimate"


def _host_refused(event: tr.AgentHostRefused, _: float) -> str:
    return one_line(f"the agent could not reach {event.host}: {event.why}", _DETAIL)


def _bound_exceeded(event: tr.AgentBoundExceeded, _: float) -> str:
    return one_line(f"the agent used too much ({event.what}): {event.said}", _DETAIL)


def _books_differ(event: tr.AgentBooksDiffer, _: float) -> str:
    told, passed = dollars(event.told_usd), dollars(event.passed_usd)
    if not event.replies:
        return f"Claude Code says {told}, and by the price list it is {passed}: the larger sum is booked"
    untold = count(event.replies, "reply", "replies")
    return f"replies for {passed} passed the door, Claude Code tells of {told}: {untold} it does not tell of are booked"


AGENT_LINERS: Mapping[type[ev.Event], Liner] = {
    tr.AgentSession: _session,
    tr.AgentPriceUnknown: _price_unknown,
    tr.AgentHostRefused: _host_refused,
    tr.AgentBooksDiffer: _books_differ,
    tr.AgentBoundExceeded: _bound_exceeded,
    tr.AgentWoken: lambda *_: "the result of a background task started another turn of the agent",
    tr.AgentReplyStarted: _silent,
    tr.AgentReply: _silent,
    tr.AgentQuota: _silent,
    tr.AgentStarted: _agent_started,
    tr.AgentMessage: _agent_message,
    tr.AgentThinking: _silent,
    tr.AgentHeartbeat: _silent,
    tr.AgentToolUse: _tool_use,
    tr.AgentToolResult: _tool_result,
    tr.AgentSystem: _system,
    tr.AgentStreamError: _stream_error,
}

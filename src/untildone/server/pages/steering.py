"""Orders from the browser: a form becomes an order, and the answer is one line beside the button."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, cast
from urllib.parse import parse_qsl

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from untildone.core.durations import parse_duration
from untildone.core.limits import LIMIT_FIELDS
from untildone.core.wire import OrderKind
from untildone.errors import UntildoneError, UsageError
from untildone.server.access import Principal, operator
from untildone.server.context import context_of
from untildone.server.pages.rendering import answer
from untildone.server.paths import RunId

router = APIRouter(include_in_schema=False)

MOST_BYTES = 256 * 1024
_FIELDS = 60
_WHOLE = frozenset({"max_runs", "max_iterations", "max_tokens", "max_calls_per_hour"})
Form = Mapping[str, str]
OrderData = dict[str, Any]


@router.post("/runs/{run_id}/steer")
async def steer(request: Request, run_id: RunId, who: Annotated[Principal, Depends(operator)]) -> Response:
    """Give an order."""
    try:
        kind, data = order_of(await _form(request))
        given = await context_of(request).steering.give(run_id, kind, data, by=who.name)
    except UntildoneError as refused:
        return answer("parts/answer.html", {"tone": "bad", "said": str(refused)})
    return answer("parts/answer.html", {"tone": "good", "said": f"{_ASKED[kind]}: {given.said}."})


async def _form(request: Request) -> Form:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST_BYTES:
            raise UsageError("this is too much for one order")
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=_FIELDS, errors="replace"))
    except ValueError:
        raise UsageError("this form cannot be read") from None


def order_of(form: Form) -> tuple[OrderKind, OrderData]:
    """The order that a form means. UsageError in one line when it means none."""
    kind = form.get("kind", "")
    if kind not in _READ:
        raise UsageError("there is no such order")
    return cast("OrderKind", kind), _READ[kind](form)


def _message(form: Form) -> OrderData:
    content = form.get("content", "").replace("\r\n", "\n").strip()
    if quoted := form.get("quoted", "").strip():
        content = "\n".join(f"> {line}" for line in quoted.splitlines()) + f"\n\n{content}"
    return {"content": content, "message_type": "user_message", "urgent": form.get("urgent") == "yes"}


def _stop(form: Form) -> OrderData:
    return {"after_iteration": form.get("after_iteration") == "yes"}


def _waive(form: Form) -> OrderData:
    return {"patterns": [line.strip() for line in form.get("patterns", "").splitlines() if line.strip()]}


def _reset(_: Form) -> OrderData:
    return {"circuit": True, "session": False, "history": False}


def _nothing(_: Form) -> OrderData:
    return {}


def _limits(form: Form) -> OrderData:
    """Only what was changed: others may have changed the rest meanwhile."""
    changed = {
        name: form[name].strip()
        for name in LIMIT_FIELDS
        if name in form and form[name].strip() != form.get(f"was_{name}", "").strip()
    }
    if not changed:
        raise UsageError("no limit was changed")
    return {name: _limit(name, text) if text else None for name, text in changed.items()}


def _limit(name: str, text: str) -> float | int:
    try:
        if name == "max_duration":
            return parse_duration(text)
        if name == "deadline":
            return datetime.strptime(text, "%Y-%m-%d %H:%M").replace(tzinfo=UTC).timestamp()
        return int(text.replace(",", "")) if name in _WHOLE else float(text.removeprefix("$").replace(",", ""))
    except ValueError:
        how = {"max_duration": "1h30m", "deadline": "2026-01-31 07:30", "max_cost_usd": "12.50"}.get(name, "20")
        raise UsageError(f"{text[:40]!r} is not a value for {name.replace('_', ' ')}: write it like {how}") from None


_READ: Mapping[str, Callable[[Form], OrderData]] = {
    "message": _message,
    "stop": _stop,
    "pause": _nothing,
    "resume": _nothing,
    "skip_wait": _nothing,
    "limits": _limits,
    "waive": _waive,
    "reset": _reset,
}
_ASKED: Mapping[str, str] = {
    "message": "Sent",
    "stop": "Asked to stop",
    "pause": "Asked to pause",
    "resume": "Asked to go on",
    "skip_wait": "Asked not to wait",
    "limits": "Asked for new limits",
    "waive": "Waived",
    "reset": "Asked to close the breaker",
}

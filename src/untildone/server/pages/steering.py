"""Orders from the browser: a form becomes an order, and the answer is one line beside the button."""

import hashlib
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, cast
from urllib.parse import parse_qsl

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from untildone.core.durations import parse_duration
from untildone.core.limits import LIMIT_FIELDS
from untildone.core.policy import Policy
from untildone.core.questions import answered
from untildone.core.wire import OrderKind
from untildone.errors import UntildoneError, UsageError
from untildone.server.access import Principal, operator, viewer
from untildone.server.context import context_of
from untildone.server.pages.rendering import answer
from untildone.server.pages.run_shape import LIMIT_LABELS, limit_fields, written_limit
from untildone.server.paths import RunId

router = APIRouter(include_in_schema=False)

MOST_BYTES = 256 * 1024
_FIELDS = 60
_WHOLE = frozenset({"max_runs", "max_iterations", "max_tokens", "max_calls_per_hour"})
_NUMBERS = _WHOLE | {"max_cost_usd"}
_COUNT = re.compile(r"[0-9]{1,15}")
_SUM = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,9})?")
_COMMA = re.compile(r"\$?([0-9]{1,12}),([0-9]{1,2})")
Form = Mapping[str, str]
OrderData = dict[str, Any]


@router.post("/runs/{run_id}/steer")
async def steer(request: Request, run_id: RunId, who: Annotated[Principal, Depends(operator)]) -> Response:
    """Give an order."""
    steering = context_of(request).steering
    try:
        form = await _form(request)
        kind, data = order_of(form, await steering.limits(run_id) if form.get("kind") == "limits" else Policy())
        warning = await steering.warning(run_id, kind, data)
        if warning and form.get("sure") != _sign(kind, data):
            # The yes is for what was asked, not for what the form says by then.
            asks = answer("parts/confirm.html", {"said": warning, "sign": _sign(kind, data)})
            asks.headers["X-Order"] = "refused"
            return asks
        given = await steering.give(run_id, kind, data, by=who.name)
    except UntildoneError as refused:
        said = answer("parts/answer.html", {"tone": "bad", "said": str(refused)})
        # No error to a browser, which would complain about it; the page leaves the dialog open.
        said.headers["X-Order"] = "refused"
        return said
    return answer("parts/answer.html", {"tone": "good", "said": f"{_ASKED[kind]}: {given.said}."})


@router.get("/runs/{run_id}/limits")
async def limits(request: Request, run_id: RunId, _: Annotated[Principal, Depends(viewer)]) -> Response:
    """The fields of the form that changes limits, with what holds at the moment."""
    try:
        policy = await context_of(request).steering.limits(run_id)
    except UntildoneError as refused:
        return answer("parts/answer.html", {"tone": "bad", "said": str(refused)}, status=404)
    return answer("parts/limits.html", {"limits": limit_fields(policy)})


def _sign(kind: str, data: OrderData) -> str:
    """What a yes must hold to mean this very order."""
    return hashlib.sha256(repr((kind, sorted(data.items()))).encode()).hexdigest()[:16]


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


def order_of(form: Form, held: Policy) -> tuple[OrderKind, OrderData]:
    """The order that a form means; `held`: the limits at the moment. UsageError in one line when it means none."""
    kind = form.get("kind", "")
    if kind == "limits":
        return "limits", _limits(form, held)
    if kind not in _READ:
        raise UsageError("there is no such order")
    return cast("OrderKind", kind), _READ[kind](form)


def _message(form: Form) -> OrderData:
    content = form.get("content", "").replace("\r\n", "\n").strip()
    if quoted := form.get("quoted", "").strip():
        content = answered(quoted, content)
    return {"content": content, "message_type": "user_message", "urgent": form.get("urgent") == "yes"}


def _stop(form: Form) -> OrderData:
    return {"after_iteration": form.get("after_iteration") == "yes"}


def _waive(form: Form) -> OrderData:
    return {"patterns": [line.strip() for line in form.get("patterns", "").splitlines() if line.strip()]}


def _reset(_: Form) -> OrderData:
    return {"circuit": True, "session": False, "history": False}


def _nothing(_: Form) -> OrderData:
    return {}


def _limits(form: Form, held: Policy) -> OrderData:
    """Only what was changed in the form: others may have changed the rest meanwhile."""
    given = {name: form[name].strip() for name in LIMIT_FIELDS if name in form}
    touched = {name: text for name, text in given.items() if text != form.get(f"was_{name}", "").strip()}
    meant = {name: _limit(name, text) if text else None for name, text in touched.items()}
    changed = {name: value for name, value in meant.items() if not _holds(held, name, touched[name], value)}
    if changed:
        return changed
    others = [name for name, text in given.items() if text != written_limit(name, getattr(held, name))]
    if not touched and others:
        shown = written_limit(others[0], getattr(held, others[0])) or "none"
        raise UsageError(f"nothing was changed here; meanwhile {_said(others[0])} became {shown}: look again")
    raise UsageError("no limit was changed")


def _holds(held: Policy, name: str, text: str, value: float | None) -> bool:
    """Whether this limit is like that already; what the form shows may be rounded."""
    now = getattr(held, name)
    return bool(value == now or (text and text == written_limit(name, now)))


def _limit(name: str, text: str) -> float | int:
    """Strictly: what a comma means differs from country to country, and a guess may cost a hundred times as much."""
    value = _number(name, text)
    if value <= 0:
        raise UsageError(f"{_said(name)} must be more than zero: leave the field empty for no limit")
    return value


def _number(name: str, text: str) -> float | int:
    try:
        if name == "max_duration":
            return parse_duration(text)
        if name == "deadline":
            return datetime.strptime(text, "%Y-%m-%dT%H:%MZ").replace(tzinfo=UTC).timestamp()
        return int(_plain(text, _COUNT)) if name in _WHOLE else float(_plain(text.removeprefix("$"), _SUM))
    except ValueError:
        raise UsageError(f"{text[:40]!r} is not a value for {_said(name)}: {_how(name, text)}") from None


def _said(name: str) -> str:
    """What the form calls it."""
    return LIMIT_LABELS[name].partition(",")[0].partition(" (")[0].lower()


def _plain(text: str, number: re.Pattern[str]) -> str:
    if not number.fullmatch(text):
        raise ValueError
    return text


def _how(name: str, text: str) -> str:
    """How it would be written."""
    if name == "max_cost_usd" and (cents := _COMMA.fullmatch(text)):
        return f"write {cents[1]}.{cents[2]}"
    like = {"max_duration": "1h30m", "deadline": "2026-01-31T07:30Z", "max_cost_usd": "12.50"}.get(name, "20")
    return f"write it like {like}{', without commas' if ',' in text and name in _NUMBERS else ''}"


_READ: Mapping[str, Callable[[Form], OrderData]] = {
    "message": _message,
    "stop": _stop,
    "pause": _nothing,
    "resume": _nothing,
    "skip_wait": _nothing,
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

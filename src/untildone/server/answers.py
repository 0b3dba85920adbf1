"""What the server says when it will not: one line of JSON, whatever went wrong."""

import logging
import traceback
from typing import Any

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import Response

from untildone.core.printable import one_line
from untildone.errors import NoRoom, RunNotFound, SenderRefused, ServeError, UntildoneError, UsageError
from untildone.server.invalid import what_is_wrong

JSON = "application/json"
_LONGEST = 500
_log = logging.getLogger("untildone.server")


class Problem(BaseModel):
    """Why a request was refused."""

    error: str
    """One line: what is wrong, and what to do."""
    detail: str
    """The same, under the name that clients of the published API read."""


class TakenProblem(Problem):
    """Why a worker's words were refused."""

    taken: bool = False
    """Another machine has taken the run over."""
    last_seq: int | None = None
    """The newest event that is here: the batch does not go on from there."""
    tenure: int | None = None
    """The tenure of the run, which is earlier than the sender's: this server was put back to an older state."""


def _said(description: str, model: type[BaseModel] = Problem) -> dict[str, Any]:
    return {"model": model, "description": description}


Responses = dict[int | str, dict[str, Any]]
ANYWHERE: Responses = {
    400: _said("No request that makes sense"),
    404: _said("There is no such thing here"),
    405: _said("Not with this method"),
    408: _said("The body came too slowly"),
    413: _said("Too large"),
    421: _said("This server has another name"),
    429: _said("Too many requests"),
    503: _said("Not at the moment"),
}
"""What the guard says before a route is asked, and the database behind it."""
INVALID: Responses = {422: _said("Something in the request is not as it should be")}
DENIED: Responses = {401: _said("A token is needed"), 403: _said("This token does not allow it"), **INVALID}
CONFLICT: Responses = {409: _said("As things stand, this cannot be done", TakenProblem)}
WRONG_TYPE: Responses = {415: _said("Not the right content type")}
FULL: Responses = {507: _said("The disk of the server is nearly full")}


def json_answer(value: Any, status: int = 200) -> Response:
    """A value as JSON."""
    return Response(msgspec.json.encode(value), status, media_type=JSON)


def refusal(status: int, error: str, headers: dict[str, str] | None = None, **more: object) -> Response:
    """One line saying why not."""
    said = one_line(error, _LONGEST)
    body = {"error": said, "detail": said, **more}
    return Response(msgspec.json.encode(body), status, headers=headers, media_type=JSON)


def answer_errors(app: FastAPI) -> None:
    """Whatever goes wrong in a request, the answer is one line."""
    app.add_exception_handler(HTTPException, answer_http)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(UntildoneError, answer_ours)
    app.add_exception_handler(Exception, _unexpected)


async def answer_http(_: Request, error: Exception) -> Response:
    """The answer to an HTTP error."""
    assert isinstance(error, HTTPException)
    detail: Any = error.detail
    line = detail.get("error", "") if isinstance(detail, dict) else detail
    return refusal(error.status_code, str(line), dict(error.headers or {}))


async def _invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return refusal(422, what_is_wrong(error.errors()))


async def answer_ours(_: Request, error: Exception) -> Response:
    """The answer to an error of ours."""
    more: dict[str, object] = {}
    if isinstance(error, SenderRefused):
        known = {"last_seq": error.last_seq, "tenure": error.behind}
        more = {"taken": error.taken, **{name: value for name, value in known.items() if value is not None}}
    return refusal(status_of(error), str(error), None, **more)


def status_of(error: Exception) -> int:
    """What an error of ours is in HTTP."""
    if isinstance(error, SenderRefused):
        return 409 if error.taken or error.last_seq is not None or error.behind is not None else 403
    if isinstance(error, NoRoom):
        return 507
    if isinstance(error, RunNotFound):
        return 404
    if isinstance(error, UsageError):
        return 422
    return 503 if isinstance(error, ServeError) else 409


async def _unexpected(request: Request, error: Exception) -> Response:
    # Neither the words of the error nor the query: both may hold what must not be in a log.
    frames = traceback.extract_tb(error.__traceback__)
    where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "nowhere"
    path = one_line(request.url.path, _LONGEST)
    _log.error("%s %s failed: %s at %s", request.method, path, type(error).__name__, where)
    return refusal(500, "the server failed at this; its log says more")

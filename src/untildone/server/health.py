"""Is it alive, is it ready, and its numbers: for supervisors and Prometheus."""

from fastapi import APIRouter, Depends, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel

from untildone.errors import NoRoom, UntildoneError
from untildone.server.access import viewer
from untildone.server.answers import DENIED, refusal
from untildone.server.context import context_of

router = APIRouter(tags=["health"])


class Standing(BaseModel):
    """How the server is."""

    status: str


@router.get("/healthz")
async def healthz() -> Standing:
    """The process answers."""
    return Standing(status="ok")


@router.get("/readyz", response_model=Standing)
async def readyz(request: Request) -> Standing | Response:
    """The database answers, too, and takes what it is given."""
    context = context_of(request)
    if context.stopping.is_set():
        return refusal(503, "the server is going down")
    try:
        await context.archive.runs.entry("ready")
    except UntildoneError:
        return refusal(503, "the database does not answer")
    try:
        context.archive.events.must_be_writable()
    except NoRoom:
        return refusal(503, "the disk is nearly full: nothing more is kept")
    except UntildoneError:
        return refusal(503, "the newest write to the database failed")
    return Standing(status="ok")


@router.get(
    "/metrics",
    dependencies=[Depends(viewer)],
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "Numbers"}, **DENIED},
)
async def metrics(request: Request) -> Response:
    """Numbers about the server, as Prometheus reads them."""
    context = context_of(request)
    return Response(await context.metrics.collected(context), media_type=CONTENT_TYPE_LATEST)

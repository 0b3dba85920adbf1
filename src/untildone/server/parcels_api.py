"""Parcels: what travels beside the events of a run. They hold whole conversations, so looking is no viewer's right."""

from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, Query, Request, Response

from untildone.server.access import Principal, operator, worker
from untildone.server.answers import CONFLICT, DENIED, FULL, WRONG_TYPE, Responses, json_answer
from untildone.server.archive.accepting import of_another_tenure
from untildone.server.archive.port import StoredParcel
from untildone.server.bodies import parcel_body
from untildone.server.context import context_of
from untildone.server.driving import DRIVER_PARAMETER, own_entry
from untildone.server.paths import NEWEST, KnownParcel, ParcelName, RunId, SandboxId
from untildone.server.shapes import ParcelOut, ParcelsOut, parcel_json

router = APIRouter(prefix="/api/v1", tags=["parcels"])

_BYTES = {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}
_BODY = {"requestBody": {"required": True, **_BYTES}}


async def reader(request: Request, sandbox_id: SandboxId) -> Principal:
    """Whoever may read the parcels of a sandbox: being on this machine is no key to what was said there."""
    who = await worker(request, sandbox_id)
    return who if who.via != "loopback" else await operator(request)


_CONTENT: Responses = {200: {**_BYTES, "description": "The parcel as it was sent"}}


@router.put(
    "/sandboxes/{sandbox_id}/runs/{run_id}/parcels/{name:path}",
    response_class=Response,
    responses={200: {"model": ParcelOut}, **DENIED, **CONFLICT, **WRONG_TYPE, **FULL},
    openapi_extra={**_BODY, **DRIVER_PARAMETER},
)
async def put_parcel(  # noqa: PLR0917 - each is a part of the address
    request: Request,
    sandbox_id: SandboxId,
    run_id: RunId,
    name: KnownParcel,
    who: Annotated[Principal, Depends(worker)],
    seq: Annotated[int, Query(ge=0, le=NEWEST, description="The event after which it was packed")] = 0,
    tenure: Annotated[int, Query(ge=0, le=2**31 - 1, description="Whose it is, of a run that has moved")] = 0,
) -> Response:
    """Keep a parcel in place of the one of that name."""
    entry = await own_entry(request, sandbox_id, run_id, who)
    if entry is None:
        raise HTTPException(404, "there is no such run here: its events come first")
    if (other := of_another_tenure(run_id, entry.tenure, tenure)) is not None:
        # Said before the body is read; whether it still holds then is looked at again.
        raise other
    context = context_of(request)
    content = await parcel_body(request)
    now = context.clock.now()
    put = await context.archive.parcels.put(run_id, name, content, seq=seq, now=now, tenure=tenure)
    return json_answer(parcel_json(put))


@router.get(
    "/sandboxes/{sandbox_id}/runs/{run_id}/parcels/{name:path}",
    response_class=Response,
    responses={**_CONTENT, **DENIED},
    openapi_extra=DRIVER_PARAMETER,
)
async def get_own_parcel(
    request: Request, sandbox_id: SandboxId, run_id: RunId, name: ParcelName, who: Annotated[Principal, Depends(reader)]
) -> Response:
    """A parcel of a run that this sandbox drives."""
    await own_entry(request, sandbox_id, run_id, who)
    return _content(await context_of(request).archive.parcels.get(run_id, name))


@router.get(
    "/sandboxes/{sandbox_id}/runs/{run_id}/parcels",
    response_class=Response,
    responses={200: {"model": ParcelsOut}, **DENIED},
    openapi_extra=DRIVER_PARAMETER,
)
async def list_own_parcels(
    request: Request, sandbox_id: SandboxId, run_id: RunId, who: Annotated[Principal, Depends(reader)]
) -> Response:
    """Which parcels there are of a run that this sandbox drives."""
    await own_entry(request, sandbox_id, run_id, who)
    return await _list(request, run_id)


@router.get(
    "/runs/{run_id}/parcels",
    response_class=Response,
    dependencies=[Depends(operator)],
    responses={200: {"model": ParcelsOut}, **DENIED},
)
async def list_parcels(request: Request, run_id: RunId) -> Response:
    """Which parcels there are of a run."""
    return await _list(request, run_id)


@router.get(
    "/runs/{run_id}/parcels/{name:path}",
    response_class=Response,
    dependencies=[Depends(operator)],
    responses={**_CONTENT, **DENIED},
)
async def get_parcel(request: Request, run_id: RunId, name: ParcelName) -> Response:
    """A parcel of a run."""
    return _content(await context_of(request).archive.parcels.get(run_id, name))


async def _list(request: Request, run_id: str) -> Response:
    parcels = await context_of(request).archive.parcels.all(run_id)
    return json_answer({"parcels": [parcel_json(parcel) for parcel in parcels]})


def _content(parcel: StoredParcel | None) -> Response:
    if parcel is None:
        raise HTTPException(404, "there is no such parcel")
    # Nothing a browser would show or run: it is for programs.
    headers = {"X-Seq": str(parcel.seq), "X-Sha256": parcel.sha256, "Content-Disposition": "attachment"}
    return Response(parcel.content, media_type="application/octet-stream", headers=headers)

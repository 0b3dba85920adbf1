"""Conversations, as they came along with a run. They hold whatever was said there, so reading is no viewer's right."""

from collections.abc import Iterator
from itertools import chain
from typing import Annotated

from anyio import to_thread
from fastapi import APIRouter, Depends, HTTPException, Path, Request, Response
from starlette.responses import StreamingResponse

from untildone.core.session_parcel import SESSION_ID, main_transcript
from untildone.errors import AgentError
from untildone.server.access import operator
from untildone.server.answers import CONFLICT, DENIED, Responses, json_answer
from untildone.server.context import context_of
from untildone.server.paths import RunId
from untildone.server.shapes import TranscriptsOut

router = APIRouter(prefix="/api/v1/runs/{run_id}/transcripts", tags=["transcripts"], dependencies=[Depends(operator)])

_PARCEL = "transcript/"
_LINES = "application/x-ndjson"
_SPOKEN: Responses = {200: {"content": {_LINES: {}}, "description": "One JSON object a line, as Claude Code wrote it"}}
SessionId = Annotated[str, Path(pattern=f"^{SESSION_ID.pattern}$", description="Which session of the agent")]


@router.get("", response_class=Response, responses={200: {"model": TranscriptsOut}, **DENIED})
async def list_transcripts(request: Request, run_id: RunId) -> Response:
    """Which conversations of a run there are: of runs that can move, one for each of the agent's sessions."""
    parcels = await context_of(request).archive.parcels.all(run_id)
    told = [
        {"session_id": parcel.name.removeprefix(_PARCEL), "seq": parcel.seq, "at": parcel.at, "size": parcel.size}
        for parcel in parcels
        if parcel.name.startswith(_PARCEL)
    ]
    return json_answer({"transcripts": told})


@router.get("/{session_id}", response_class=Response, responses={**_SPOKEN, **DENIED, **CONFLICT})
async def get_transcript(request: Request, run_id: RunId, session_id: SessionId) -> Response:
    """One conversation, unpacked."""
    parcel = await context_of(request).archive.parcels.get(run_id, f"{_PARCEL}{session_id}")
    if parcel is None:
        raise HTTPException(404, "there is no such conversation here: `untildone run --portable` sends it along")
    try:
        lines = await to_thread.run_sync(_begun, main_transcript(session_id, parcel.content))
    except AgentError as unfit:
        raise HTTPException(409, str(unfit)) from None
    headers = {"Content-Disposition": f'attachment; filename="{session_id}.jsonl"'}
    return StreamingResponse(lines, media_type=_LINES, headers=headers)


def _begun(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The same, with the first piece in hand: what is no transcript is refused before an answer begins."""
    first = next(pieces, b"")
    return chain([first], pieces)

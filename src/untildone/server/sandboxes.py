"""What a sandbox speaks to: events in, messages and orders out, and taking a run over."""

import asyncio
from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Depends, HTTPException, Query, Request, Response
from pydantic import BaseModel, Field

from untildone.core.wire import Batch, Order, Receipt
from untildone.errors import SenderRefused
from untildone.server import intake
from untildone.server.access import Principal, operator, worker
from untildone.server.answers import CONFLICT, DENIED, FULL, WRONG_TYPE, json_answer, status_of
from untildone.server.archive.accepting import of_another_tenure
from untildone.server.archive.port import RunEntry, RunFilter
from untildone.server.bodies import json_body
from untildone.server.context import Context, context_of
from untildone.server.driving import DRIVER_PARAMETER, may_take, own_entry, shown_hash
from untildone.server.paths import NEWEST, RunId, SandboxId
from untildone.server.projecting import liveness
from untildone.server.shapes import EVENTS_BODY, EventsAnswer, OrderOut, QueuedOut, ReceiptOut, TenureOut

router = APIRouter(prefix="/api/v1/sandboxes/{sandbox_id}", tags=["sandboxes"])

LONGEST_WAIT = 55.0
"""Seconds that a worker may wait for an order: less than proxies wait for an answer."""
_LOOKED_AT = 20
_encode = msgspec.json.Encoder()
Worker = Annotated[Principal, Depends(worker)]


@router.post(
    "/events",
    response_class=Response,
    responses={200: {"model": EventsAnswer, "description": "Kept"}, **DENIED, **CONFLICT, **WRONG_TYPE, **FULL},
    openapi_extra={**EVENTS_BODY, **DRIVER_PARAMETER},
)
async def post_events(request: Request, sandbox_id: SandboxId) -> Response:
    """Take one event as published, or a batch of a run's events: they are durable when this answers."""
    context = context_of(request)
    who = await worker(request, sandbox_id)
    try:
        given = intake.parsed(await json_body(request))
        if isinstance(given, Batch):
            trusted = who.scope == "operator"
            answer: object = await intake.receive(
                context, sandbox_id, given, driver_hash=shown_hash(request), trusted=trusted
            )
        else:
            answer = await intake.publish(context, sandbox_id, given)
    except intake.Unreadable as error:
        context.metrics.refused.labels("422").inc()
        raise HTTPException(422, str(error)) from None
    except HTTPException as error:
        context.metrics.refused.labels(str(error.status_code)).inc()
        raise
    except SenderRefused as error:
        context.metrics.refused.labels(str(status_of(error))).inc()
        raise
    return Response(_encode.encode(answer), media_type="application/json")


@router.get("/messages", response_class=Response, responses={200: {"model": list[QueuedOut]}, **DENIED})
async def take_messages(request: Request, sandbox_id: SandboxId, _: Worker) -> Response:
    """Messages that wait for this sandbox. They are gone then."""
    taken = await context_of(request).archive.orders.take(sandbox_id)
    return json_answer([_queued(one.id, one.content, one.message_type, one.at) for one in taken])


class MessageIn(BaseModel):
    """Something to say to an agent."""

    content: str = Field(min_length=1, max_length=20_000, pattern=r"^[^\x00]*$")
    message_type: Literal["user_message", "interrupt", "guardian_nudge", "system"] = "user_message"


class MessageGiven(BaseModel):
    """Where a message went."""

    status: Literal["queued"] = "queued"
    message_id: str
    sandbox_id: str
    run_id: str | None = None
    """The run that gets it as an order; None: it waits for whoever asks for messages."""


@router.post("/messages", responses={**DENIED, **CONFLICT})
async def post_message(
    request: Request, sandbox_id: SandboxId, message: MessageIn, who: Annotated[Principal, Depends(operator)]
) -> MessageGiven:
    """Say something to the agent in a sandbox."""
    context = context_of(request)
    run = await _living_run(context, sandbox_id)
    if run is None:
        put = await context.archive.orders.put(
            sandbox_id, message.content, message.message_type, now=context.clock.now()
        )
        return MessageGiven(message_id=put.id, sandbox_id=sandbox_id)
    data: dict[str, Any] = {
        "content": message.content,
        "message_type": message.message_type,
        "urgent": message.message_type == "interrupt",
    }
    given = await context.steering.give(run.run_id, "message", data, by=who.name)
    return MessageGiven(message_id=str(given.number), sandbox_id=sandbox_id, run_id=run.run_id)


@router.get(
    "/runs/{run_id}",
    response_class=Response,
    responses={200: {"model": ReceiptOut}, **DENIED},
    openapi_extra=DRIVER_PARAMETER,
)
async def get_receipt(request: Request, sandbox_id: SandboxId, run_id: RunId, who: Worker) -> Response:
    """How much of a run the server has."""
    archive = context_of(request).archive
    entry = await own_entry(request, sandbox_id, run_id, who)
    if entry is None:
        return json_answer(Receipt(last_seq=0))
    return json_answer(Receipt(last_seq=entry.last_seq, orders=await archive.orders.newest(run_id)))


@router.get(
    "/runs/{run_id}/orders",
    response_class=Response,
    responses={200: {"model": list[OrderOut]}, **DENIED},
    openapi_extra=DRIVER_PARAMETER,
)
async def get_orders(  # noqa: PLR0917 - each is a part of the address
    request: Request,
    sandbox_id: SandboxId,
    run_id: RunId,
    who: Worker,
    after: Annotated[int, Query(ge=0, le=NEWEST, description="The newest number that is known already")] = 0,
    wait: Annotated[float, Query(ge=0, le=600, description="Seconds to wait for the first one")] = 0,
) -> Response:
    """Orders for a run. With `wait`, the answer comes with the first one."""
    entry = await own_entry(request, sandbox_id, run_id, who)
    if entry is None:
        raise HTTPException(404, "there is no such run here: its events come first")
    return json_answer(await _orders(context_of(request), entry, after, min(wait, LONGEST_WAIT)))


class Tenure(BaseModel, extra="forbid"):
    """Whose turn it is to drive a run."""

    tenure: int = Field(ge=0, le=2**31 - 2)


@router.post("/runs/{run_id}/take", responses={**DENIED, **CONFLICT}, openapi_extra=DRIVER_PARAMETER)
async def take_over(request: Request, sandbox_id: SandboxId, run_id: RunId, known: Tenure, who: Worker) -> TenureOut:
    """Drive a run from this sandbox from now on, with the key that is shown; the driver before it is refused."""
    context = context_of(request)
    entry = await context.archive.runs.entry(run_id)
    if entry is None:
        raise HTTPException(404, "there is no such run here")
    may_take(request, entry, sandbox_id, who)
    if (other := of_another_tenure(run_id, entry.tenure, known.tenure)) is not None:
        # Whoever may take this tenure's run has no right to the next one's: it may be another sandbox's by then.
        raise other
    tenure = await context.archive.runs.take_over(
        run_id, sandbox_id=sandbox_id, tenure=known.tenure, driver_hash=shown_hash(request)
    )
    if tenure is None:
        raise SenderRefused("another machine has taken this run over already", taken=True)
    context.fanout.changed(run_id)
    return TenureOut(tenure=tenure)


async def _orders(context: Context, entry: RunEntry, after: int, wait: float) -> list[Order]:
    loop, orders = asyncio.get_running_loop(), context.archive.orders
    deadline = loop.time() + wait
    # Following begins before the first look: an order that comes in between is seen by one or the other.
    with context.fanout.follow(entry.run_id, only_orders=True) as follower:
        while True:
            found = await orders.after(entry.run_id, after, now=context.clock.now())
            left = deadline - loop.time()
            if found or left <= 0 or follower.ended:
                break
            await follower.next(left)
    # Looked at after the orders were read: whoever still drives the run now did so when they were given.
    now = await context.archive.runs.entry(entry.run_id)
    if now is None or (now.sandbox_id, now.tenure) != (entry.sandbox_id, entry.tenure):
        raise SenderRefused(f"another machine has taken run {entry.run_id} over", taken=True)
    return found


async def _living_run(context: Context, sandbox_id: str) -> RunEntry | None:
    """The run that a worker of ours drives in a sandbox at the moment."""
    now = context.clock.now()
    entries = await context.archive.runs.entries(RunFilter(sandbox_id=sandbox_id, limit=_LOOKED_AT))
    living = (one for one in entries if one.origin == "worker" and one.projection.status != "completed")
    return next((entry for entry in living if liveness(entry, now)), None)


def _queued(number: str, content: str, message_type: str, at: float) -> dict[str, str]:
    return {"id": number, "content": content, "message_type": message_type, "timestamp": intake.iso(at)}

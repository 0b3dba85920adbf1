"""Steering: what people ask of runs. It takes an operator, wherever the server is."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Depends, Request
from pydantic import BaseModel, ConfigDict, Field

from untildone.server.access import Principal, operator
from untildone.server.answers import CONFLICT, DENIED
from untildone.server.context import context_of
from untildone.server.paths import RunId

router = APIRouter(prefix="/api/v1", tags=["orders"])

_TEXT = r"^[^\x00]*$"
Operator = Annotated[Principal, Depends(operator)]


class _Order(BaseModel):
    # A number in quotes is refused: who writes one so may write it in a way that means another.
    model_config = ConfigDict(extra="forbid", strict=True)


class Message(_Order):
    """Say something to the agent: in the next prompt, or at once if urgent."""

    kind: Literal["message"]
    content: str = Field(min_length=1, max_length=20_000, pattern=_TEXT)
    message_type: Literal["user_message", "interrupt", "guardian_nudge", "system"] = "user_message"
    urgent: bool = False


class Answer(_Order):
    """Answer an open question of the agent's: it reads that again, and your words, in the next prompt."""

    kind: Literal["answer"]
    question: str = Field(min_length=1, max_length=2_000, pattern=_TEXT)
    content: str = Field(min_length=1, max_length=10_000, pattern=_TEXT)


class Stop(_Order):
    """Stop the run, now or after the running iteration."""

    kind: Literal["stop"]
    after_iteration: bool = False


class Simple(_Order):
    """Pause the run, go on, or do not wait any longer."""

    kind: Literal["pause", "resume", "skip_wait"]


class Limits(_Order):
    """Other limits; null takes one away."""

    kind: Literal["limits"]
    max_runs: int | None = Field(None, gt=0, le=10**9)
    max_iterations: int | None = Field(None, gt=0, le=10**9)
    max_cost_usd: float | None = Field(None, gt=0, le=1e9)
    max_tokens: int | None = Field(None, gt=0, le=10**15)
    max_duration: float | None = Field(None, gt=0, le=1e9)
    deadline: float | None = Field(None, gt=0, le=1e11)
    max_calls_per_hour: int | None = Field(None, gt=0, le=10**9)


class Waive(_Order):
    """Let files that match be changed although they are protected."""

    kind: Literal["waive"]
    patterns: list[Annotated[str, Field(min_length=1, max_length=500, pattern=_TEXT)]] = Field(
        min_length=1, max_length=100
    )


class Reset(_Order):
    """Forget what the circuit breaker, the session or the history of signals remember."""

    kind: Literal["reset"]
    circuit: bool = False
    session: bool = False
    history: bool = False


OrderIn = Annotated[Message | Answer | Stop | Simple | Limits | Waive | Reset, Body(discriminator="kind")]


class GivenOut(BaseModel):
    """An order was taken."""

    number: int | None
    """None: it has none, because it went straight to where it is read."""
    said: str
    """What comes of it."""


@router.post("/runs/{run_id}/orders", status_code=202, responses={**DENIED, **CONFLICT})
async def post_order(request: Request, run_id: RunId, order: OrderIn, who: Operator) -> GivenOut:
    """Ask something of a run."""
    steering = context_of(request).steering
    if isinstance(order, Answer):
        told = await steering.answer(run_id, order.question, order.content, by=who.name)
        return GivenOut(number=told.number, said=told.said)
    data: dict[str, Any] = order.model_dump(exclude={"kind"}, exclude_unset=isinstance(order, Limits))
    given = await steering.give(run_id, order.kind, data, by=who.name)
    return GivenOut(number=given.number, said=given.said)

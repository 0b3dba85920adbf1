"""Starting a run on the server's own machine: for operators, and only in folders that were allowed."""

from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, Request
from pydantic import BaseModel, ConfigDict, Field

from untildone.server.access import Principal, operator
from untildone.server.answers import CONFLICT, DENIED
from untildone.server.context import context_of
from untildone.server.starting import LONGEST_CHECK, LONGEST_GOAL, MOST_CHECKS, Wish

router = APIRouter(prefix="/api/v1", tags=["runs"])

_TEXT = r"^[^\x00]*$"
Short = Annotated[str, Field(min_length=1, max_length=200, pattern=_TEXT)]


class LimitsIn(BaseModel):
    """When it ends at the latest; at least one."""

    model_config = ConfigDict(extra="forbid", strict=True)
    max_runs: int | None = Field(None, ge=1, le=10**9)
    max_iterations: int | None = Field(None, ge=1, le=10**9)
    max_cost_usd: float | None = Field(None, gt=0, le=1e9)
    max_tokens: int | None = Field(None, ge=1, lt=10**12)
    max_duration: float | None = Field(None, gt=0, le=1e9)
    """Seconds."""


class StartIn(BaseModel):
    """A run that somebody wants."""

    model_config = ConfigDict(extra="forbid")
    goal: str = Field(min_length=1, max_length=LONGEST_GOAL, pattern=_TEXT)
    folder: str = Field(min_length=1, max_length=4096, pattern=r"^/[^\x00]*$")
    limits: LimitsIn
    checks: list[Annotated[str, Field(min_length=1, max_length=LONGEST_CHECK, pattern=_TEXT)]] = Field(
        default_factory=list, max_length=MOST_CHECKS
    )
    name: Short | None = None
    model: Short | None = None


class StartedOut(BaseModel):
    """A run that works in the background."""

    run_id: str


@router.post("/runs", status_code=202, responses={**DENIED, **CONFLICT})
async def start_run(request: Request, wanted: StartIn, _: Annotated[Principal, Depends(operator)]) -> StartedOut:
    """Start a run."""
    starter = context_of(request).starter
    if starter is None:
        raise HTTPException(409, "no run may be started from here: `untildone serve --folder DIR` says where they may")
    wish = Wish(
        goal=wanted.goal,
        folder=wanted.folder,
        limits=wanted.limits.model_dump(exclude_none=True),
        checks=tuple(wanted.checks),
        name=wanted.name,
        model=wanted.model,
    )
    return StartedOut(run_id=(await starter.start(wish)).run_id)

"""Who drives a run: whoever has the key with which it began, or was taken over. Others are told so, on every path.

Ids are seen by everybody who may look, so on a machine where speaking for a sandbox needs no token an id alone would
let any program go on with the story of any run. A run that began without a key is open as its sandbox is.
"""

from fastapi import HTTPException, Request

from untildone.core.wire import DRIVER
from untildone.server.access import Principal
from untildone.server.archive.accepting import is_drivers, not_the_driver
from untildone.server.archive.port import RunEntry
from untildone.server.context import context_of
from untildone.server.keys import hash_of

DRIVER_PARAMETER = {
    "parameters": [
        {
            "name": DRIVER,
            "in": "header",
            "required": False,
            "schema": {"type": "string", "maxLength": 200},
            "description": "The driver's key: what the first batch of a run shows, everything about that run has to",
        }
    ]
}
"""For the OpenAPI description."""


def shown_hash(request: Request) -> str:
    """Of the key that somebody shows; empty: none."""
    key = request.headers.get(DRIVER)
    return hash_of(key) if key else ""


async def own_entry(request: Request, sandbox_id: str, run_id: str, who: Principal) -> RunEntry | None:
    """The entry of this sandbox's run, or none; refused when it is another's."""
    entry = await context_of(request).archive.runs.entry(run_id)
    if entry is None:
        return None
    if entry.sandbox_id != sandbox_id or entry.origin == "local":
        raise HTTPException(403, "this run is another sandbox's")
    if who.scope != "operator" and not _is_driver(request, entry):
        raise HTTPException(403, not_the_driver(run_id))
    return entry


def may_take(request: Request, entry: RunEntry, sandbox_id: str, who: Principal) -> None:
    """Taking a run away from its driver is steering, which needs a token on this very machine, too."""
    if entry.origin != "worker":
        raise HTTPException(409, "this run is driven by no worker: it cannot be taken over from here")
    if who.scope == "operator":
        return
    if entry.sandbox_id != sandbox_id:
        # It holds a whole conversation: what is another sandbox's needs whoever could read it anyway.
        raise HTTPException(403, "this run is another sandbox's: taking it over needs an operator token")
    has_key = bool(entry.driver_hash) and _is_driver(request, entry)
    if who.via == "loopback" and not has_key:
        raise HTTPException(
            403, "taking a run over needs a token, on this machine too: an operator's, or its sandbox's"
        )


def _is_driver(request: Request, entry: RunEntry) -> bool:
    return is_drivers(entry.driver_hash, shown_hash(request))

"""What the parts of an address may be: declared once, checked before anything is looked up."""

from typing import Annotated

from fastapi import Path, Query

NEWEST = 2**53
_ID = r"^[0-9A-Za-z][0-9A-Za-z._-]{0,99}$"
# A sandbox that speaks the published endpoints has a run of its own, with a longer name.
_RUN = r"^[0-9A-Za-z][0-9A-Za-z._-]{0,119}$"
_PARCEL = r"^[0-9A-Za-z][0-9A-Za-z._-]{0,99}(/[0-9A-Za-z][0-9A-Za-z._-]{0,99}){0,3}$"

_KNOWN = r"^(tree|notes|transcript/[0-9A-Za-z][0-9A-Za-z._-]{0,99})$"

SandboxId = Annotated[str, Path(pattern=_ID, description="Which sandbox")]
RunId = Annotated[str, Path(pattern=_RUN, description="Which run")]
ParcelName = Annotated[str, Path(pattern=_PARCEL, description="`transcript/SESSION`, `notes` or `tree`")]
KnownParcel = Annotated[str, Path(pattern=_KNOWN, description="`transcript/SESSION`, `notes` or `tree`")]
"""Under another name nothing is taken: there is no reader for it, and no end of names."""
Seq = Annotated[int, Path(ge=1, le=NEWEST, description="The number of an event")]
Text = Annotated[str, Query(max_length=200, pattern=r"^[^\x00]*$", description="Part of it, in whatever case")]

"""Styles and scripts: a fixed set of files of this package, each known by what is in it."""

import hashlib
from functools import cache
from importlib.resources import files

from fastapi import APIRouter, Request
from fastapi.responses import Response

from untildone.core.dataclass import dataclass

router = APIRouter(include_in_schema=False)

_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
_NAMES = (
    "app.css", "app.js", "live.js", "login.js", "plots.js", "theme.js", "times.js", "icon.svg",
    "vendor/htmx.min.js", "vendor/uPlot.iife.min.js", "vendor/uPlot.min.css",
)  # fmt: skip
_KEPT = "public, max-age=31536000, immutable"


@dataclass(frozen=True, slots=True)
class Asset:
    """A file as it is served."""

    content: bytes
    media_type: str
    version: str


@cache
def assets() -> dict[str, Asset]:
    """All files, by name: nothing else can be asked for."""
    root = files("untildone.server") / "static"
    found = {}
    for name in _NAMES:
        content = root.joinpath(*name.split("/")).read_bytes()
        media_type = _TYPES[name[name.rindex(".") :]]
        found[name] = Asset(content, media_type, hashlib.sha256(content).hexdigest()[:12])
    return found


def asset_url(name: str) -> str:
    """Where a file is found; another content has another address, so that browsers may keep it for ever."""
    return f"/static/{name}?v={assets()[name].version}"


@router.get("/favicon.ico")
async def favicon(request: Request) -> Response:
    """Browsers ask for it by this name where a page does not say."""
    return await static("icon.svg", request)


@router.get("/static/{name:path}")
async def static(name: str, request: Request) -> Response:
    """One of the files."""
    asset = assets().get(name)
    if asset is None:
        return Response(status_code=404)
    etag = f'"{asset.version}"'
    headers = {"ETag": etag, "Cache-Control": _KEPT if request.query_params.get("v") == asset.version else "no-cache"}
    if request.headers.get("if-none-match") == etag:
        return Response(status_code=304, headers=headers)
    return Response(asset.content, media_type=asset.media_type, headers=headers)

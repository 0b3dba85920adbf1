"""Templates: every value is escaped, every name that is missing is an error."""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any

import jinja2
from fastapi.responses import HTMLResponse
from markupsafe import Markup, escape

from untildone import __version__
from untildone.core.durations import format_duration
from untildone.core.figures import clock
from untildone.server.pages.assets import asset_url

_EPOCH = datetime.fromtimestamp(0, UTC)


@cache
def templates() -> jinja2.Environment:
    """The environment of all templates, made once."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("untildone.server", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals.update(asset=asset_url, version=__version__)
    made.filters.update(iso=_iso, marked=_marked, clock=clock, duration=format_duration)
    return made


def _iso(at: float) -> str:
    """A moment as machines read it; one that no calendar holds is the beginning of time."""
    try:
        moment = datetime.fromtimestamp(at, UTC)
    except (OverflowError, ValueError, OSError):
        moment = _EPOCH
    return moment.isoformat(timespec="seconds")


def _marked(text: str) -> Markup:
    """Text in which what stands between two backticks is a command."""
    plain_and_code = text.split("`")
    if len(plain_and_code) % 2 == 0:
        return escape(text)
    parts = (
        Markup("<code>{}</code>").format(part) if at % 2 else escape(part) for at, part in enumerate(plain_and_code)
    )
    return Markup().join(parts)


def rendered(name: str, values: Mapping[str, Any]) -> str:
    """A template with values."""
    return templates().get_template(name).render(values)


def answer(name: str, values: Mapping[str, Any], *, status: int = 200) -> HTMLResponse:
    """A page or a part of one. Nobody keeps a copy: what it shows changes, and may be private."""
    return HTMLResponse(rendered(name, values), status_code=status, headers={"Cache-Control": "no-store"})

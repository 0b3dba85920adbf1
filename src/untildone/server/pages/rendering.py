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
    made.filters.update(iso=_iso, utc=_utc, marked=_marked, duration=format_duration)
    return made


def _iso(at: float) -> str:
    """A moment as machines read it."""
    return _moment(at).isoformat(timespec="seconds")


def _utc(at: float, how: str = "") -> str:
    """A moment for whoever has no script that tells it in their own zone; as a `time`, without the day."""
    return f"{_moment(at):{'%H:%M:%S' if how == 'time' else '%Y-%m-%d %H:%M'}} UTC"


def _moment(at: float) -> datetime:
    """One that no calendar holds is the beginning of time."""
    try:
        return datetime.fromtimestamp(at, UTC)
    except (OverflowError, ValueError, OSError):
        return _EPOCH


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

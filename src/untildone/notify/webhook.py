"""A webhook: each note is one POST of JSON. The body is documented and versioned; docs/notifications.md shows it."""

import asyncio
import base64
import json
import ssl
from collections.abc import Mapping
from functools import partial
from http.client import HTTPException
from typing import Any, NamedTuple
from urllib import error, parse, request

from untildone import __version__
from untildone.core.notice import Note
from untildone.errors import ConfigError
from untildone.notify.aside import aside

SCHEMES = frozenset({"http", "https"})
BODY_VERSION = 1
PATIENCE = 10.0
"""Seconds one attempt may take."""
PAUSES = (1.0, 3.0)
"""Seconds before each further attempt."""
_RETRIED = frozenset({408, 425, 429})
_SERVER_ERRORS = 500


class _Answer(NamedTuple):
    trouble: str = ""
    may_pass: bool = False
    """Another attempt may end well."""


class Webhook:
    """One address that is told by POST."""

    def __init__(self, url: str, *, patience: float = PATIENCE, pauses: tuple[float, ...] = PAUSES) -> None:
        self._address, self._headers = _prepared(url)
        self._patience = patience
        self._pauses = pauses
        self.name = masked(url)

    async def send(self, note: Note) -> str:
        """Deliver, trying again when that may help."""
        data = json.dumps(body_of(note), ensure_ascii=False).encode("utf-8", "replace")
        answer = await self._post(data)
        for pause in self._pauses:
            if not answer.may_pass:
                break
            await asyncio.sleep(pause)
            answer = await self._post(data)
        return answer.trouble

    async def _post(self, data: bytes) -> _Answer:
        post = partial(_post, self._address, self._headers, data, self._patience)
        try:
            return await aside(post, within=self._patience)
        except TimeoutError:
            return _Answer("no answer in time", may_pass=True)


def body_of(note: Note) -> dict[str, object]:
    """What is posted. New fields may come; these keep their names and meanings while the version stays."""
    return {
        "untildone": BODY_VERSION,
        "id": note.id,
        "kind": note.kind,
        "at": note.at,
        "run_id": note.run_id,
        "name": note.name,
        "title": note.title,
        "body": note.body,
        "text": f"{note.title}\n{note.body}",
        "facts": dict(note.facts),
    }


def scheme_of(url: str) -> str:
    """The part before `://`, in small letters; "" when there is none."""
    scheme, separator, _ = url.strip().partition("://")
    return scheme.lower() if separator and scheme.replace("+", "").replace("-", "").isalnum() else ""


def masked(url: str) -> str:
    """An address as it may be shown: tokens stand in the path, the query, and elsewhere even in the host's place."""
    scheme = scheme_of(url)
    if scheme not in SCHEMES:
        return f"{scheme}://…" if scheme else "an address"
    try:
        parts = parse.urlsplit(url.strip())
        host, port = parts.hostname, f":{parts.port}" if parts.port else ""
    except ValueError:
        host, port = None, ""
    return f"{scheme}://{host}{port}/…" if host else f"{scheme}://…"


def _prepared(url: str) -> tuple[str, Mapping[str, str]]:
    """The address without a name and password, and the headers of every request."""
    headers = {"Content-Type": "application/json; charset=utf-8", "User-Agent": f"untildone/{__version__}"}
    try:
        parts = parse.urlsplit(url.strip())
        host, _ = parts.hostname, parts.port
        path = parse.quote(parts.path or "/", safe="/%:@!$&'()*+,;=~-._")
        query = parse.quote(parts.query, safe="/%:@!$&'()*+,;=~-._?")
    except ValueError:
        host = None
    if not host:
        raise ConfigError(f"{masked(url)} cannot be notified: write the address like https://HOST/PATH")
    if parts.username is not None:
        pair = f"{parse.unquote(parts.username)}:{parse.unquote(parts.password or '')}"
        headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode("ascii")
    place = parts.netloc.rpartition("@")[2]
    return parse.urlunsplit((parts.scheme.lower(), place, path, query, "")), headers


class _NoRedirects(request.HTTPRedirectHandler):
    """A note may carry what is nobody else's business: it goes to the address that was given, or nowhere."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _post(address: str, headers: Mapping[str, str], data: bytes, timeout: float) -> _Answer:
    """One attempt. Its trouble never holds the address, nor what a library says about it."""
    asked = request.Request(address, data=data, headers=dict(headers), method="POST")  # noqa: S310 - http(s) only
    try:
        with request.build_opener(_NoRedirects).open(asked, timeout=timeout):
            return _Answer()
    except error.HTTPError as refused:
        refused.close()
        return _refusal(refused.code)
    except error.URLError as unreachable:
        return _Answer(_unreachable(unreachable.reason), may_pass=True)
    except (OSError, HTTPException) as broken:
        return _Answer(_unreachable(broken), may_pass=True)
    except ValueError:
        return _Answer("the address cannot be used")


def _refusal(code: int) -> _Answer:
    if code in _RETRIED or code >= _SERVER_ERRORS:
        return _Answer(f"it answered {code}", may_pass=True)
    if 300 <= code < 400:  # noqa: PLR2004 - redirections
        return _Answer(f"it answered {code}, a redirection, which is not followed: give the address it leads to")
    return _Answer(f"it answered {code}: check the address")


def _unreachable(reason: object) -> str:
    if isinstance(reason, TimeoutError):
        return "no answer in time"
    if isinstance(reason, ssl.SSLCertVerificationError):
        return "its certificate cannot be trusted"
    if isinstance(reason, OSError) and reason.strerror:
        return f"it cannot be reached: {reason.strerror}"
    return f"it cannot be reached: {type(reason).__name__}"

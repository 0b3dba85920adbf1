"""How a browser comes in: a link that works once becomes a cookie that looks and a proof that steers. How it leaves."""

import html

from fastapi import APIRouter, Depends, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from untildone.core.printable import one_line
from untildone.server.access import (
    BROWSER,
    SECURE_COOKIE,
    Principal,
    Refused,
    cookie_name,
    door_of,
    is_proven,
    is_secure,
    session_secret,
    viewer,
)
from untildone.server.answers import refusal
from untildone.server.archive.port import Key
from untildone.server.context import context_of
from untildone.server.keys import LINK_PREFIX, SESSION_SECONDS, cookie_of, hash_of, new_secret, session_key
from untildone.server.pages.assets import asset_url

router = APIRouter(include_in_schema=False)

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title} · untildone</title>
<link rel="icon" href="{icon}" type="image/svg+xml">
<link rel="stylesheet" href="{style}">
{head}
</head>
<body>
<main class="page">
<section class="empty">
<h1>{title}</h1>
<p>{text}</p>
{more}
</section>
</main>
</body>
</html>
"""
_BUTTON = '<form method="post"><button type="submit" autofocus>Log in</button></form>'
_ENTER = "This browser will be logged in until you log out, or for 30 days after its last visit."
_SPENT = "This link was used already, is older than ten minutes, or its server was restarted. Make a new one with:"
_COMMAND = "<pre>untildone token login</pre>"
_PROOF = '<meta name="untildone-proof" content="{proof}">\n<script src="{script}" defer></script>'
_KEPT = "If this page stays, scripts are off in this browser: it can look at runs then, not steer them."
_GO_ON = '<p><a href="/">See all runs</a></p>'


@router.get("/login/{code}")
async def offer(code: str) -> Response:  # noqa: ARG001 -- looked at only when the button is pressed
    """A button. Programs that open links to look at them do not press it, so they do not use the link up."""
    return HTMLResponse(_page("Log in", _ENTER, _BUTTON))


@router.post("/login/{code}")
async def enter(request: Request, code: str) -> Response:
    """Use the link up; the browser is known from now on."""
    context = context_of(request)
    now = context.clock.now()
    link = await _spend(request, code, now)
    if link is None:
        return HTMLResponse(_page("This link does not work any more", _SPENT, _COMMAND), 403)
    proof = new_secret()
    cookie = cookie_of(proof)
    await context.archive.keys.add(link, hash_of(cookie))
    head = _PROOF.format(proof=proof, script=asset_url("login.js"))
    answer = HTMLResponse(_page("Logged in", _KEPT, _GO_ON, head=head))
    _set_cookie(answer, request, cookie, int(SESSION_SECONDS))
    return answer


@router.post("/logout")
async def leave(request: Request, who: Principal = Depends(viewer)) -> Response:  # noqa: B008, FAST002 -- FastAPI's way
    """End this session, in the database too: a copy of the cookie is worth nothing then.

    Whoever has but such a copy forgets it, and logs nobody else out.
    """
    if who.via == "cookie" and who.key_id and is_proven(request):
        await context_of(request).archive.keys.revoke(who.key_id)
        door_of(request).keyring.forget(who.secret_hash)
    # A script would follow a redirect by itself, and get a page where it wants to be told to go to one.
    by_script = "hx-request" in request.headers
    answer = Response(headers={"HX-Redirect": "/"}) if by_script else RedirectResponse("/", 303)
    if session_secret(request):
        _set_cookie(answer, request, "", 0)
    return answer


def wants_page(request: Request) -> bool:
    """Whether a person opened this address in a browser."""
    is_page = "text/html" in request.headers.get("accept", "") and not request.url.path.startswith("/api/")
    return is_page and "hx-request" not in request.headers


async def answer_refusal(request: Request, error: Exception) -> Response:
    """One line of JSON; for a person who opened a page, a page that says how to come in."""
    assert isinstance(error, Refused)
    if wants_page(request) and error.status_code in (401, 403):
        text = "Open a login link in this browser. It is made where the server runs:"
        if error.status_code == 403:  # noqa: PLR2004 -- the status itself
            return HTMLResponse(_page("Not allowed", html.escape(one_line(error.detail)), ""), 403)
        return HTMLResponse(_page("Log in first", text, _COMMAND), 401)
    return refusal(error.status_code, error.detail, dict(error.headers or {}))


async def _spend(request: Request, code: str, now: float) -> Key | None:
    """The session a link stands for, if the link still works."""
    if door_of(request).links.spend(code):
        return session_key("operator", label=BROWSER, parent_id=None, now=now)
    if not code.startswith(LINK_PREFIX):
        # A token must not be used up by mistake.
        return None
    link = await context_of(request).archive.keys.spend(hash_of(code), now=now)
    if link is None or link.kind != "login":
        return None
    return session_key(link.scope, label=link.label or BROWSER, parent_id=link.parent_id, now=now)


def _set_cookie(answer: Response, request: Request, secret: str, seconds: int) -> None:
    name = cookie_name(request)
    answer.set_cookie(
        name,
        secret,
        max_age=seconds,
        path="/",
        httponly=True,
        samesite="strict",
        secure=name == SECURE_COOKIE or is_secure(request),
    )


def _page(title: str, text: str, more: str, *, head: str = "") -> str:
    style, icon = asset_url("app.css"), asset_url("icon.svg")
    return _PAGE.format(title=title, text=text, more=more, head=head, style=style, icon=icon)

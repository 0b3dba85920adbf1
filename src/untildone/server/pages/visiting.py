"""Who looks at a page, and what every page needs of them."""

from dataclasses import dataclass

from fastapi import Request

from untildone.server.access import Principal, csrf_token


@dataclass(frozen=True, slots=True, kw_only=True)
class Visitor:
    """Whoever looks."""

    operator: bool
    cookie: bool
    csrf: str
    """Sent along with every order; empty without a session."""


def visitor_of(request: Request, principal: Principal) -> Visitor:
    """What a page knows of whoever looks at it."""
    return Visitor(operator=principal.scope == "operator", cookie=principal.via == "cookie", csrf=csrf_token(request))

"""Addresses that lead nowhere: a page for people, one line for programs."""

from fastapi import Request
from starlette.responses import Response

from untildone.server.access import Refused, viewer
from untildone.server.answers import answer_http
from untildone.server.login import answer_refusal, wants_page
from untildone.server.pages.rendering import answer
from untildone.server.pages.visiting import visitor_of


async def nowhere(request: Request, error: Exception) -> Response:
    """The answer to a request for what is not there."""
    if not wants_page(request):
        return await answer_http(request, error)
    try:
        visitor = visitor_of(await viewer(request))
    except Refused as refused:
        return await answer_refusal(request, refused)
    values = {"visitor": visitor, "title": "No such page", "said": "This address leads nowhere."}
    return answer("problem.html", values, status=404)

"""The web application: every router, the guard before them, and one line for whatever goes wrong."""

from fastapi import FastAPI

from untildone import __version__
from untildone.server import health, orders_api, parcels_api, runs_api, sandboxes, starts_api, streams, transcripts_api
from untildone.server.answers import ANYWHERE, answer_errors
from untildone.server.context import Context
from untildone.server.guards import guarded
from untildone.server.hot_path import HotPath
from untildone.server.pages import routers as page_routers
from untildone.server.pages.nowhere import nowhere


def make_app(context: Context) -> FastAPI:
    """The application that serves a context."""
    app = FastAPI(
        title="untildone",
        version=__version__,
        description="Runs of untildone: their events, and what people ask of them.",
        openapi_url="/api/openapi.json",
        # Their pages load scripts from elsewhere.
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        responses=ANYWHERE,
    )
    app.state.context = context
    answer_errors(app)
    app.add_exception_handler(404, nowhere)
    for module in (sandboxes, parcels_api, transcripts_api, runs_api, starts_api, orders_api, streams, health):
        app.include_router(module.router)
    for router in page_routers():
        app.include_router(router)
    app.add_middleware(HotPath)
    guarded(app, context)
    return app

"""The dashboard: pages rendered here, kept up to date by server-sent events."""

from fastapi import APIRouter


def routers() -> list[APIRouter]:
    """All pages, for the app to include."""
    from untildone.server.pages import assets, fleet, iteration, live, run, search, steering

    return [module.router for module in (assets, fleet, live, run, iteration, steering, search)]

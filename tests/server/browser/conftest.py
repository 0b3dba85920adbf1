"""One server and one Chromium per module. Whatever a page complains about fails the test."""

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from server.browser.stage import Stage


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    made = Stage(tmp_path_factory.mktemp("stage"))
    try:
        yield made.start()
    finally:
        made.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def operator(browser: Browser, stage: Stage) -> Any:
    """What a browser keeps of an operator who logged in with a link."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(stage.login_link())
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url(stage.url + "/")
    state = context.storage_state()
    context.close()
    return state


class Room:
    """Pages that are watched: errors, refused resources and content that the policy forbids are complaints."""

    def __init__(self, browser: Browser, operator: Callable[[], Any]) -> None:
        self.browser = browser
        self.operator = operator
        self.complaints: list[str] = []
        self.contexts: list[BrowserContext] = []

    def page(self, *, operator: bool = False, **options: Any) -> Page:
        """A page in a browser that remembers nothing, logged in as an operator or not at all."""
        if operator:
            options["storage_state"] = self.operator()
        context = self.browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        context.set_default_timeout(10_000)
        self.contexts.append(context)
        page = context.new_page()
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        return page

    def _console(self, message: Any) -> None:
        if message.type in {"error", "warning"} and "net::ERR_" not in message.text:
            self.complaints.append(f"{message.type}: {message.text}")


@pytest.fixture
def room(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Room]:
    made = Room(browser, lambda: request.getfixturevalue("operator"))
    yield made
    for context in made.contexts:
        context.close()
    assert made.complaints == []

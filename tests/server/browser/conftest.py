"""One server and one Chromium per worker. Whatever a page complains about fails the test.

They end with the last test of this package: while Playwright is open, no test can run an event loop of its own.
"""

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

import patience
from server.browser.stage import Stage

PATIENCE = patience.PATIENCE * 1000
"""In milliseconds, as a browser counts."""
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--process-per-site",
    # These names lead here, as their owner can make it.
    "--host-resolver-rules=MAP *.evil.example 127.0.0.1",
]


@pytest.fixture(scope="package")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """All browser tests of a worker use it, each with runs of its own."""
    made = Stage(tmp_path_factory.mktemp("stage"))
    try:
        yield made.start()
    finally:
        made.stop()


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    path = shutil.which("chromium") or shutil.which("google-chrome")
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=FLAGS, timeout=2 * PATIENCE)
        yield chromium
        chromium.close()


@pytest.fixture(scope="package")
def operator(browser: Browser, stage: Stage) -> Any:
    """What a browser keeps of an operator who logged in with a link."""
    context = browser.new_context()
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    page.goto(stage.login_link())
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url(stage.url + "/")
    state = context.storage_state()
    context.close()
    return state


class Room:
    """Pages that are watched: errors, refused resources and content that the policy forbids are complaints.

    A new page takes a new process. So a viewer's page and an operator's page are kept for the next test, blank.
    """

    def __init__(self, browser: Browser, operator: Callable[[], Any]) -> None:
        self.browser = browser
        self.operator = operator
        self.complaints: list[str] = []
        self._contexts: list[BrowserContext] = []
        self._kept: dict[bool, Page] = {}
        self._taken: set[bool] = set()

    def page(self, *, operator: bool = False, own: bool = False, **options: Any) -> Page:
        """A page, logged in as an operator or not at all.

        One with options, and one that says `own`, is in a browser that remembers nothing and is closed afterwards:
        for tests that change what the browser remembers.
        """
        if own or options or operator in self._taken:
            return self._opened(operator=operator, **options)
        if operator not in self._kept:
            self._kept[operator] = self._opened(operator=operator)
            self._contexts.pop()
        self._taken.add(operator)
        return self._kept[operator]

    def leave(self) -> None:
        """Close what was opened for one test."""
        for context in self._contexts:
            context.close()
        self._contexts.clear()
        for operator in self._taken:
            self._kept[operator].goto("about:blank")
        self._taken.clear()

    def close(self) -> None:
        for page in self._kept.values():
            page.context.close()

    def _opened(self, *, operator: bool, **options: Any) -> Page:
        if operator:
            options["storage_state"] = self.operator()
        # What moves is painted sixty times a second, here by the processor.
        usual = {"viewport": {"width": 1280, "height": 900}, "reduced_motion": "reduce"}
        context = self.browser.new_context(**{**usual, **options})
        context.set_default_timeout(PATIENCE)
        self._contexts.append(context)
        page = context.new_page()
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        return page

    def _console(self, message: Any) -> None:
        if message.type in {"error", "warning"} and "net::ERR_" not in message.text:
            self.complaints.append(f"{message.type}: {message.text}")


@pytest.fixture(scope="package")
def _room(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Room]:
    made = Room(browser, lambda: request.getfixturevalue("operator"))
    yield made
    made.close()


@pytest.fixture
def room(_room: Room) -> Iterator[Room]:
    _room.complaints.clear()
    yield _room
    _room.leave()
    assert _room.complaints == []

"""What people see: all runs, one run, one iteration, search; by keyboard, on a phone, in the dark."""

import re
import time
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Locator, Page, expect

from server.browser import plays
from server.browser.conftest import Room
from server.browser.stage import Stage
from untildone.core import events as ev

SOAK = pytest.mark.soak
KINDS = ("/?text=seen-", "/runs/seen-run", "/runs/seen-fin/iterations/4", "/search?run=seen-fin&text=weeks")
"""A page of each kind."""
MORE = ("/?status=waiting", "/runs/seen-fin", "/runs/seen-stop", "/runs/published-seen-plain", "/search?text=week")
IN_THE_DARK = ("/runs/seen-run", "/runs/seen-fin/iterations/4", *MORE)
"""Pages whose contrast is measured in the dark too. The list and the search are among MORE."""
FITS = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
GROUND = "getComputedStyle(document.body).backgroundColor"


@pytest.fixture
def _told(stage: Stage) -> None:
    """Once for each server."""
    if stage.knows("seen-fin"):
        return
    now = time.time()
    stories = {
        "seen-fin": plays.finished("seen-fin", "iso-weeks"),
        "seen-stop": plays.stopped("seen-stop", "upgrade"),
        "seen-wait": plays.waiting("seen-wait", "queue", now + 3 * 3600),
        "seen-run": plays.running("seen-run", "week-53"),
    }
    for run_id, events in stories.items():
        stage.tell(run_id, events, sandbox=run_id, at=now - 600, every=600 / len(events))
    stage.post(
        "/api/v1/sandboxes/seen-plain/events",
        b'{"event_type": "agent.message", "event_data": {"text": "hello"}, "source": "agent"}',
    )


@pytest.fixture(autouse=True)
def _alive(_told: None, stage: Stage) -> None:
    for run_id in ("seen-run", "seen-wait"):
        stage.sign_of_life(run_id, run_id)


def row(page: Page, run_id: str) -> Locator:
    return page.locator(f"#run-seen-{run_id}")


def test_all_runs_with_state_in_words_spend_and_next_wakeup(room: Room, stage: Stage) -> None:
    page = room.page()
    page.goto(f"{stage.url}/?text=seen-")
    expect(row(page, "fin")).to_contain_text("verified")
    expect(row(page, "fin")).to_contain_text("$0.43")
    expect(row(page, "run")).to_contain_text("running")
    expect(row(page, "run")).to_contain_text("4 iterations")
    expect(row(page, "wait")).to_contain_text(re.compile(r"wakes in \d+ (h|min)"))
    expect(row(page, "stop")).to_contain_text("suspended")
    expect(page.locator("#totals")).to_contain_text(
        re.compile(r"Running\s*[1-9]\d*\s*Waiting\s*[1-9]\d*\s*Stopped\s*[1-9]")
    )
    # The list changes by itself.
    page.evaluate("window.notReloaded = true")
    stage.tell("seen-late", plays.opening("seen-late", "late-comer"), sandbox="seen-late")
    expect(row(page, "late")).to_contain_text("late-comer")
    stopped = ev.ContinuousSuspended(stop_reason="stop_requested", detail="by ada")
    stage.tell("seen-late", [stopped], sandbox="seen-late")
    expect(row(page, "late")).to_contain_text("suspended")
    assert page.evaluate("window.notReloaded")
    page.get_by_role("link", name="Waiting").click()
    expect(page.locator(".run")).to_have_count(1)
    page.locator("#text").fill("seen-queue")
    page.keyboard.press("Enter")
    expect(page.locator("#nothing")).to_be_visible()
    page.locator("#text").fill("SEEN-WAIT")
    page.keyboard.press("Enter")
    expect(row(page, "wait")).to_be_visible()


def test_a_run_says_why_it_stopped_what_proves_it_and_what_each_iteration_did(room: Room, stage: Stage) -> None:
    page = room.page()
    page.goto(f"{stage.url}/runs/seen-fin")
    expect(page.locator("#headline")).to_contain_text("Done: the agent claimed to be done and every check passed")
    evidence = page.locator("#part-evidence")
    for fact in ("3 of 3 passed", "a fresh checkout", "proven at", "landed in main"):
        expect(evidence).to_contain_text(fact)
    expect(page.locator("#steps .step")).to_have_count(4)
    expect(page.locator("#steps .step").first).to_contain_text("checks passed")
    expect(page.locator(".plot canvas")).to_have_count(2)
    page.goto(f"{stage.url}/runs/seen-stop")
    expect(page.locator("#headline")).to_contain_text("Reached the limit of cost ($5.02 of $5.00)")
    expect(page.locator("#headline code").first).to_contain_text("untildone resume upgrade")
    expect(page.locator("#part-evidence")).to_contain_text("1 of 3 passed")
    # An iteration shows its prompt, claim, checks, diff and commit.
    page.goto(f"{stage.url}/runs/seen-fin")
    page.locator("#step-4 .item").click()
    expect(page.locator(".d.add").first).to_contain_text("has_week_53")
    expect(page.locator(".d.del").first).to_contain_text("fromisocalendar")
    for words in ("passed, 3s", "COMPLETE", "00000004", "weeks.py is next", "tests/test_weeks.py"):
        expect(page.locator("main")).to_contain_text(words)
    # More of an event is fetched when asked for.
    page.goto(f"{stage.url}/runs/seen-run")
    edited = page.locator(".line", has_text="edited src/dates/weeks.py").last
    edited.get_by_role("button").click()
    expect(edited.locator(".d.add").first).to_contain_text("has_week_53")


def test_everything_is_in_reach_of_the_keyboard(room: Room, stage: Stage) -> None:
    page = room.page()
    page.goto(f"{stage.url}/?text=seen-")
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#help")).to_be_hidden()
    names = page.locator(".run .item").all_inner_texts()
    for key in "jjk":
        page.keyboard.press(key)
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text(names[0])
    page.wait_for_load_state()  # keys work once the scripts are there
    page.keyboard.press("j")
    page.keyboard.press("g")
    expect(page.locator(".run").first).to_be_visible()
    page.wait_for_load_state()
    page.keyboard.press("/")
    page.keyboard.type("iso-weeks")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("text=iso-weeks"))
    expect(row(page, "fin")).to_be_visible()
    page.goto(f"{stage.url}/search?run=seen-fin")
    page.locator("#search-text").fill("OVERLOADED")
    page.keyboard.press("Enter")
    expect(page.locator(".line")).to_contain_text("iteration 3 broke off")


def test_dark_follows_the_system_and_the_switch_is_remembered(room: Room, stage: Stage) -> None:
    page = room.page(color_scheme="dark")
    page.goto(f"{stage.url}/?text=seen-")
    dark = page.evaluate(GROUND)
    page.get_by_role("button", name="Light or dark").click()
    light = page.evaluate(GROUND)
    page.reload()
    assert (page.evaluate(GROUND), dark != light) == (light, True)


@pytest.mark.parametrize("paths", [pytest.param(KINDS, id="kinds"), pytest.param(MORE, id="more", marks=SOAK)])
def test_pages_fit_every_screen_and_axe_finds_nothing_serious(room: Room, stage: Stage, paths: tuple[str, ...]) -> None:
    page = room.page(bypass_csp=True)
    for path in paths:
        page.emulate_media(color_scheme="light")
        page.goto(stage.url + path)
        assert (path, serious(page)) == (path, [])
        light = page.evaluate(GROUND)
        page.emulate_media(color_scheme="dark")
        assert page.evaluate(GROUND) != light
        if path in IN_THE_DARK:
            assert (path, serious(page, {"runOnly": ["color-contrast"]})) == (path, [])
        for width in (800, 360):
            page.set_viewport_size({"width": width, "height": 740})
            page.wait_for_function(FITS)  # plots are drawn again a moment later
        page.set_viewport_size({"width": 1280, "height": 900})


@pytest.mark.parametrize(
    "buttons",
    [pytest.param(("Limits",), id="limits"), pytest.param(("Message", "Waive", "Stop"), id="more", marks=SOAK)],
)
def test_axe_finds_nothing_serious_in_what_an_operator_opens(
    room: Room, stage: Stage, buttons: tuple[str, ...]
) -> None:
    page = room.page(operator=True, bypass_csp=True)
    page.goto(f"{stage.url}/runs/seen-run")
    found = serious(page, within=".steering")
    for button in buttons:
        page.get_by_role("button", name=button, exact=True).click()
        found += serious(page, within="dialog[open]")
        page.keyboard.press("Escape")
    assert found == []


def serious(page: Page, options: dict[str, Any] | None = None, within: str | None = None) -> list[tuple[str, str]]:
    """What axe says that keeps people out, with where."""
    wanted = {"resultTypes": ["violations"], **(options or {})}
    found = Axe().run(page, context=within, options=wanted).response["violations"]
    return [
        (one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in {"serious", "critical"}
    ]  # fmt: skip

"""What people see: all runs, one run, one iteration, search; by keyboard, on a phone, in the dark."""

import re
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from server.browser import plays
from server.browser.conftest import Room
from server.browser.stage import Stage
from untildone.core import events as ev
from untildone.core.wire import batch

PAGES = ["/", "/?status=waiting", "/runs/fin", "/runs/run", "/runs/stop", "/runs/published-plain",
         "/runs/fin/iterations/4", "/search?text=week", "/search?run=fin&text=weeks", "/runs/nobody"]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _told(stage: Stage) -> Iterator[None]:
    now = time.time()
    stories = {
        "fin": plays.finished("fin", "iso-weeks"),
        "stop": plays.stopped("stop", "upgrade"),
        "wait": plays.waiting("wait", "queue", now + 3000),
        "run": plays.running("run", "week-53"),
    }
    for run_id, events in stories.items():
        stage.tell(run_id, events, sandbox=f"box-{run_id}", at=now - 600, every=600 / len(events))
    stage.post(
        "/api/v1/sandboxes/plain/events",
        b'{"event_type": "agent.message", "event_data": {"text": "hello"}, "source": "agent"}',
    )
    until = time.monotonic() + 10
    while "verified" not in stage.get("/") or "4 iterations" not in stage.get("/parts/rows?run=run"):
        assert time.monotonic() < until
        time.sleep(0.05)
    over = threading.Event()
    beating = threading.Thread(target=_beat, args=(stage, over), daemon=True)
    beating.start()
    yield
    over.set()
    beating.join()


def _beat(stage: Stage, over: threading.Event) -> None:
    """Signs of life, as drivers give them: on a busy machine these tests take longer than a silence may."""
    while not over.wait(10):
        for run_id in ("run", "wait"):
            stage.post(f"/api/v1/sandboxes/box-{run_id}/events", batch(run_id, []))


def row(page: Page, run_id: str):
    return page.locator(f"#run-{run_id}")


def test_all_runs_with_state_in_words_spend_and_next_wakeup(room: Room, stage: Stage) -> None:
    page = room.page()
    page.goto(stage.url)
    expect(row(page, "fin")).to_contain_text("verified")
    expect(row(page, "fin")).to_contain_text("$0.43")
    expect(row(page, "run")).to_contain_text("running")
    expect(row(page, "run")).to_contain_text("4 iterations")
    expect(row(page, "wait")).to_contain_text(re.compile(r"wakes in 4\d min"))
    expect(row(page, "stop")).to_contain_text("suspended")
    expect(page.locator("#totals")).to_contain_text(re.compile(r"Running\s*1\s*Waiting\s*1\s*Stopped\s*2"))


def test_filters_by_state_and_text(room: Room, stage: Stage) -> None:
    page = room.page()
    page.goto(stage.url)
    page.get_by_role("link", name="Waiting").click()
    expect(page.locator(".run")).to_have_count(1)
    page.goto(stage.url)
    page.locator("#text").fill("FRAMEWORK")
    page.keyboard.press("Enter")
    expect(page.locator(".run")).to_have_count(1)
    expect(row(page, "stop")).to_be_visible()


def test_the_list_changes_by_itself(room: Room, stage: Stage) -> None:
    page = room.page()
    page.goto(stage.url)
    expect(row(page, "wait")).to_be_visible()
    page.evaluate("window.notReloaded = true")
    stage.tell("late", plays.opening("late", "late-comer"), sandbox="box-late")
    expect(row(page, "late")).to_contain_text("late-comer")
    stage.tell("late", [ev.ContinuousSuspended(stop_reason="stop_requested", detail="by ada")], sandbox="box-late")
    expect(row(page, "late")).to_contain_text("suspended")
    assert page.evaluate("window.notReloaded")


def test_a_run_says_why_it_stopped_and_what_proves_it(room: Room, stage: Stage) -> None:
    page = room.page()
    page.goto(f"{stage.url}/runs/fin")
    expect(page.locator("#headline")).to_contain_text("Done: the agent claimed to be done and every check passed")
    evidence = page.locator("#part-evidence")
    for fact in ("3 of 3 passed", "a fresh checkout", "proven at", "landed in main"):
        expect(evidence).to_contain_text(fact)
    expect(page.locator("#steps .step")).to_have_count(4)
    expect(page.locator("#steps .step").first).to_contain_text("checks passed")
    expect(page.locator(".plot canvas")).to_have_count(2)
    page.goto(f"{stage.url}/runs/stop")
    expect(page.locator("#headline")).to_contain_text("The money is spent ($5.02 of $5.00)")
    expect(page.locator("#headline code").first).to_contain_text("untildone resume upgrade")
    expect(page.locator("#part-evidence")).to_contain_text("1 of 3 passed")


def test_an_iteration_shows_prompt_claim_checks_diff_and_commit(room: Room, stage: Stage) -> None:
    page = room.page()
    page.goto(f"{stage.url}/runs/fin")
    page.locator("#step-4 .item").click()
    expect(page.locator(".d.add").first).to_contain_text("has_week_53")
    expect(page.locator(".d.del").first).to_contain_text("fromisocalendar")
    for words in ("passed, 3s", "COMPLETE", "00000004", "weeks.py is next", "tests/test_weeks.py"):
        expect(page.locator("main")).to_contain_text(words)


def test_more_of_an_event_is_fetched_when_asked_for(room: Room, stage: Stage) -> None:
    page = room.page()
    page.goto(f"{stage.url}/runs/run")
    edited = page.locator(".line", has_text="edited src/dates/weeks.py").last
    edited.get_by_role("button").click()
    expect(edited.locator(".d.add").first).to_contain_text("has_week_53")


def test_search_finds_runs_and_events(room: Room, stage: Stage) -> None:
    page = room.page()
    page.goto(stage.url)
    page.keyboard.press("/")
    page.keyboard.type("iso-weeks")
    page.keyboard.press("Enter")
    expect(row(page, "fin")).to_be_visible()
    page.goto(f"{stage.url}/search?run=fin")
    page.locator("#search-text").fill("OVERLOADED")
    page.keyboard.press("Enter")
    expect(page.locator(".line")).to_contain_text("iteration 3 broke off")


def test_everything_is_in_reach_of_the_keyboard(room: Room, stage: Stage) -> None:
    page = room.page()
    page.goto(stage.url)
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#help")).to_be_hidden()
    names = page.locator(".run .item").all_inner_texts()
    for key in "jjk":
        page.keyboard.press(key)
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text(names[0])
    page.keyboard.press("j")
    page.keyboard.press("g")
    expect(page.locator(".run").first).to_be_visible()


def test_the_first_key_leads_past_the_header(room: Room, stage: Stage) -> None:
    page = room.page()
    page.goto(stage.url)
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()


@pytest.mark.parametrize("width", [360, 800])
def test_nothing_is_wider_than_the_screen(room: Room, stage: Stage, width: int) -> None:
    page = room.page(viewport={"width": width, "height": 740})
    for path in PAGES[:-1]:
        page.goto(stage.url + path)
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert (path, wide <= 0) == (path, True)


def test_dark_follows_the_system_and_the_switch_is_remembered(room: Room, stage: Stage) -> None:
    page = room.page(color_scheme="dark")
    page.goto(stage.url)
    ground = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(ground)
    page.get_by_role("button", name="Light or dark").click()
    light = page.evaluate(ground)
    page.reload()
    assert (page.evaluate(ground), dark != light) == (light, True)


def test_axe_finds_nothing_serious(room: Room, stage: Stage) -> None:
    page = room.page(reduced_motion="reduce", bypass_csp=True)
    found = []
    for path in PAGES[:-1]:
        page.goto(stage.url + path)
        found += [(path, *said) for said in serious(page)]
    assert found == []


def test_axe_finds_enough_contrast_in_the_dark(room: Room, stage: Stage) -> None:
    page = room.page(color_scheme="dark", reduced_motion="reduce", bypass_csp=True)
    found = []
    for path in ("/", "/runs/run", "/runs/fin/iterations/4"):
        page.goto(stage.url + path)
        found += [(path, *said) for said in serious(page, {"runOnly": ["color-contrast"]})]
    assert found == []


def test_axe_finds_nothing_serious_in_what_an_operator_opens(room: Room, stage: Stage) -> None:
    page = room.page(operator=True, reduced_motion="reduce", bypass_csp=True)
    page.goto(f"{stage.url}/runs/run")
    found = serious(page, within=".steering")
    for button in ("Message", "Limits", "Waive", "Stop"):
        page.get_by_role("button", name=button, exact=True).click()
        found += serious(page, within="dialog[open]")
        page.keyboard.press("Escape")
    assert found == []


def serious(page: Page, options: dict[str, Any] | None = None, within: str | None = None) -> list[tuple[str, str]]:
    """What axe says that keeps people out, with where."""
    found = Axe().run(page, context=within, options=options).response["violations"]
    return [
        (one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in {"serious", "critical"}
    ]  # fmt: skip


def test_a_run_nobody_knows_has_a_page_that_says_so(room: Room, stage: Stage) -> None:
    page = room.page()
    answer = page.goto(f"{stage.url}/runs/nobody")
    assert answer is not None
    assert answer.status == 404
    expect(page.locator("main")).to_contain_text("No run nobody was ever heard of here")
    room.complaints.clear()  # the browser's own word about the status

"""What pages say of runs that are not like most, of what people did, and of addresses that lead nowhere."""

from dataclasses import replace

from playwright.sync_api import Page, expect

from server.browser import plays
from server.browser.conftest import Room
from server.browser.stage import Stage
from untildone.core import events as ev
from untildone.core.policy import SESSION


def in_session(run_id: str) -> ev.ContinuousStarted:
    begin = plays.opening(run_id, run_id)[0]
    assert isinstance(begin, ev.ContinuousStarted)
    return replace(begin, spec=replace(begin.spec, options=replace(begin.spec.options, agent=SESSION)))


def test_a_loop_inside_a_session_is_told_apart_and_not_steered_from_here(room: Room, stage: Stage) -> None:
    stage.tell("loop", [in_session("loop")], sandbox="loop")
    fleet, page = room.page(), room.page(operator=True)
    fleet.goto(stage.url)
    expect(fleet.locator("#run-loop")).to_contain_text("waiting")
    expect(fleet.locator("#run-loop")).to_contain_text("It waits for a session: type /untildone:loop --adopt in one.")
    page.goto(f"{stage.url}/runs/loop")
    expect(page.locator("#headline")).to_contain_text("It waits for a session")
    expect(page.locator(".buttons button:visible")).to_have_count(0)
    expect(page.locator("#answer")).to_contain_text("untildone loop stop loop")
    session = ev.ContinuousResumed(pid=0, host="0199-1", version="0.1.0", lease=0)
    stage.tell("loop", [session, ev.IterationStarted(iteration_num=1)], sandbox="loop")
    expect(fleet.locator("#run-loop")).to_contain_text("inside a Claude Code session")
    expect(page.locator("#headline")).to_contain_text("Running: iteration 1")
    expect(page.locator(".buttons button:visible")).to_have_count(0)
    assert '"in_session":true' in stage.get("/api/v1/runs?text=loop").replace(" ", "")


def test_what_a_human_asked_for_is_no_trouble(room: Room, stage: Stage) -> None:
    broken_off = ev.IterationFailed(
        iteration_num=4, error="", error_type="stopped", retry_allowed=True, cost_usd=0.0, duration_seconds=2.0
    )
    who = "an operator in a browser"
    ended = ev.ContinuousSuspended(stop_reason="stop_requested", detail=f"by {who}")
    stage.tell(
        "asked", [*plays.running("asked", "asked"), ev.StopRequested(by=who), broken_off, ended], sandbox="asked"
    )
    page = room.page(operator=True)
    page.goto(f"{stage.url}/runs/asked")
    expect(page.locator("#headline")).to_contain_text(f"Stopped by {who}; resume:")
    expect(page.locator("#part-trouble")).to_contain_text("No faults.")
    step = page.locator("#step-4")
    expect(step.locator(".badge").first).to_have_text("stopped")
    expect(step.locator(".step-error")).to_have_count(0)
    assert "met" not in step.inner_text()
    last = page.locator(".line").last
    expect(last).to_contain_text(f"stopped: requested by {who} [stop_requested]")
    expect(page.locator(".line", has_text="iteration 4 broke off")).not_to_have_class("line bad")


def test_waiving_everything_and_limits_that_end_a_run_ask_first(room: Room, stage: Stage) -> None:
    stage.tell("ends", plays.running("ends", "ends"), sandbox="ends")
    page = room.page(operator=True)
    page.goto(f"{stage.url}/runs/ends")
    _waives_everything(page, stage)
    page.get_by_role("button", name="Limits").click()
    page.locator("#limit-max_runs").fill("1")
    change = page.get_by_role("button", name="Change")
    change.click()
    said = page.locator("#limits-dialog .answer")
    expect(said).to_contain_text("Runs: that is less than what is used: it stops after its running iteration.")
    expect(page.locator("#limit-max_runs")).to_have_value("1")
    # Without a yes the browser itself holds it back; a yes is for what was asked, and for nothing else.
    change.click()
    expect(page.locator("#limits-dialog")).to_be_visible()
    page.get_by_label("Yes, do it").check()
    page.locator("#limit-max_cost_usd").fill("0.01")
    change.click()
    expect(said).to_contain_text("less than what is used: it stops now")
    expect(page.get_by_label("Yes, do it")).not_to_be_checked()
    assert len(stage.orders("ends", "ends")) == 1
    page.get_by_label("Yes, do it").check()
    change.click()
    expect(page.locator("#limits-dialog")).to_be_hidden()
    expect(page.locator("#answer")).to_contain_text("it stops now")
    assert [order["data"] for order in stage.orders("ends", "ends")][1:] == [{"max_runs": 1, "max_cost_usd": 0.01}]


def _waives_everything(page: Page, stage: Stage) -> None:
    page.get_by_role("button", name="Waive").click()
    page.locator("#waive-text").fill("/etc/../x")
    waive = page.locator("#waive-dialog").get_by_role("button", name="Waive")
    waive.click()
    said = page.locator("#waive-dialog .answer")
    expect(said).to_contain_text("/etc/../x means no file of the project")
    page.locator("#waive-text").fill("**")
    waive.click()
    expect(said).to_contain_text("** means every file: tests, CI and thresholds, too.")
    assert stage.orders("ends", "ends") == []
    page.get_by_label("Yes, do it").check()
    waive.click()
    expect(page.locator("#waive-dialog")).to_be_hidden()
    assert [order["data"] for order in stage.orders("ends", "ends")] == [{"patterns": ["**"]}]


def test_what_has_only_begun_is_not_told_as_if_it_were_over(room: Room, stage: Stage) -> None:
    stage.tell("baseline", plays.opening("baseline", "baseline"), sandbox="baseline")
    page = room.page()
    page.goto(f"{stage.url}/runs/baseline")
    expect(page.locator("[data-plot=checks] .plot-empty")).to_have_text("1 of 3 when they were run, once so far")
    # An iteration under way is not told as if it were over.
    stage.tell("baseline", [*plays.begin(1), *plays.work(1)], sandbox="baseline")
    expect(page.locator("#step-1")).to_be_visible()
    page.locator("#step-1 .item").click()
    main = page.locator("main")
    for words in ("Told when the iteration ends.", "It is still at work.", "Not run yet.", "None yet."):
        expect(main).to_contain_text(words)


def test_a_published_program_shows_what_waits_for_it_and_nothing_it_has_not(room: Room, stage: Stage) -> None:
    stage.post("/api/v1/sandboxes/talked-to/events", b'{"event_type": "a.b", "event_data": {}, "source": "agent"}')
    page = room.page(operator=True)
    page.goto(f"{stage.url}/runs/published-talked-to")
    expect(page.locator(".buttons button:visible")).to_have_text(["Message"])
    for heading in ("Figures", "Over time", "Trouble"):
        expect(page.get_by_role("heading", name=heading)).to_have_count(0)
    page.keyboard.press("m")
    page.locator("#message-text").fill("Leave the parser alone.")
    page.get_by_role("button", name="Send").click()
    expect(page.locator("#part-talk .message")).to_contain_text("waits until the program asks for it")
    assert "Leave the parser alone." in stage.get("/api/v1/sandboxes/talked-to/messages")
    page.reload()
    expect(page.locator("#part-talk .message")).to_have_count(0)


def test_an_address_that_leads_nowhere_is_a_page_for_people(room: Room, stage: Stage) -> None:
    page = room.page()
    for path, says in (
        ("/nowhere", "No such page"),
        ("/runs/x/y/z", "No such page"),
        ("/runs/nobody", "No run nobody was ever heard of here"),
    ):
        answer = page.goto(stage.url + path)
        assert answer is not None
        assert answer.status == 404
        expect(page.locator("main")).to_contain_text(says)
    page.goto(f"{stage.url}/nowhere")
    page.get_by_role("link", name="See all runs").click()
    expect(page).to_have_url(stage.url + "/")
    for path, accept in (("/nowhere", "*/*"), ("/runs/x/y/z", "*/*"), ("/api/v1/nowhere", "text/html")):
        told = page.request.get(stage.url + path, headers={"Accept": accept})
        assert (path, told.status, told.json()) == (path, 404, {"error": "Not Found", "detail": "Not Found"})
    room.complaints.clear()  # the browser's own word about the status


def test_every_button_has_a_name_of_its_own_and_none_is_printed(room: Room, stage: Stage) -> None:
    stage.tell("paper", plays.running("paper", "paper"), sandbox="paper")
    page = room.page(operator=True, own=True)
    page.goto(f"{stage.url}/runs/paper")
    expect(page.locator("[data-hold]")).to_have_text("Freeze log")
    names = page.locator("button:visible:not(.more)").all_inner_texts()
    named = [name.strip() for name in names if name.strip()]
    assert len(named) == len(set(named))
    page.emulate_media(media="print")
    expect(page.locator("button:visible")).to_have_count(0)
    expect(page.locator(".small-link")).to_be_hidden()
    log = "document.getElementById('activity')"
    assert page.evaluate(f"{log}.scrollHeight <= {log}.clientHeight + 1")

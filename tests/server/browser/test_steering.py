"""Orders from the browser: who may give them, what becomes of them, and what is said beside the button."""

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from server.browser import plays
from server.browser.conftest import Room
from server.browser.stage import Stage
from untildone.core import events as ev
from untildone.core import trace as tr
from untildone.core.claims import Claim, Report


def steered_run(room: Room, stage: Stage, run_id: str, *, own: bool = False) -> tuple[Page, str]:
    """The page of a run of its own, seen by an operator."""
    stage.tell(run_id, plays.running(run_id, "steered"), sandbox="box")
    page = room.page(operator=True, own=own)
    page.goto(f"{stage.url}/runs/{run_id}")
    expect(page.locator("#headline")).to_contain_text("Running: iteration 4")
    return page, run_id


@pytest.fixture
def steered(room: Room, stage: Stage, request: pytest.FixtureRequest) -> tuple[Page, str]:
    return steered_run(room, stage, re.sub(r"[^a-z]+", "-", request.node.name)[-60:].strip("-"))


def words(first: int, count: int) -> list[ev.Event]:
    return [tr.AgentMessage(iteration_num=4, text=f"word {number}") for number in range(first, first + count)]


def orders(stage: Stage, run_id: str) -> list[tuple[str, dict[str, Any]]]:
    return [(order["kind"], order.get("data", {})) for order in stage.orders(run_id)]


def test_viewers_see_what_they_cannot_do(room: Room, stage: Stage) -> None:
    stage.tell("looked-at", plays.running("looked-at", "looked-at"))
    page = room.page(own=True)
    buttons = page.locator(".steering")
    page.goto(stage.login_link())
    page.get_by_role("button", name="Log in").click()
    expect(page.locator(".who")).to_have_text("operator")
    page.goto(f"{stage.url}/runs/looked-at")
    expect(buttons.get_by_role("button", name="Stop", exact=True)).to_be_enabled()
    page.get_by_role("button", name="Sign out").click()
    expect(page.locator(".who")).to_have_text("viewer")
    page.goto(f"{stage.url}/runs/looked-at")
    for name in ("Message", "Pause", "Stop"):
        expect(buttons.get_by_role("button", name=name, exact=True)).to_be_disabled()
    expect(page.locator("#answer")).to_contain_text("untildone token login")


def test_a_message_by_keyboard(steered: tuple[Page, str], stage: Stage) -> None:
    page, run_id = steered
    page.keyboard.press("m")
    page.keyboard.type("half a mess")
    stage.tell(run_id, [ev.QuestionAsked(iteration_num=4, question="Is Monday the first day?")])
    asked = page.locator(".questions li", has_text="Is Monday the first day?")
    expect(asked).to_be_attached()
    page.keyboard.type("age")
    expect(page.locator("#message-text")).to_have_value("half a message")  # typing goes on in spite of news
    page.locator("#message-text").fill("Use the <old> parser")
    page.get_by_label("Urgent").check()
    page.get_by_role("button", name="Send").click()
    expect(page.locator("#answer")).to_have_text("Sent: the agent is told at once.")
    expect(page.locator("#message-dialog")).to_be_hidden()
    assert orders(stage, run_id) == [
        ("message", {"content": "Use the <old> parser", "message_type": "user_message", "urgent": True})
    ]
    assert [order["by"] for order in stage.orders(run_id)] == ["an operator in a browser"]
    expect(page.locator("#part-talk")).to_contain_text("on its way to the run")
    taken = ev.MessageReceived(by="dashboard", content="Use the <old> parser", urgent=True, order=1)
    stage.tell(run_id, [taken])
    expect(page.locator("#part-talk .message").first).to_contain_text("waits for the next iteration")
    stage.tell(run_id, [*plays.end(4), ev.IterationStarted(iteration_num=5, messages_shown=2)])
    expect(page.locator("#part-talk .message").first).to_contain_text("the agent has seen it")
    asked.get_by_role("button", name="Answer").click()
    page.keyboard.type("Yes.")
    page.get_by_role("button", name="Send").click()
    expect(asked).to_have_count(0)
    assert orders(stage, run_id)[1][1]["content"] == "> Is Monday the first day?\n\nYes."


def test_stop_and_pause_ask_first(steered: tuple[Page, str], stage: Stage) -> None:
    page, run_id = steered
    buttons = page.locator(".steering")
    expect(buttons.get_by_role("button", name="Go on")).to_be_hidden()
    page.keyboard.press("p")
    expect(page.locator("#pause-dialog")).to_contain_text("A running iteration goes on to its end")
    assert orders(stage, run_id) == []
    page.get_by_role("button", name="Pause after this iteration").click()
    expect(page.locator("#answer")).to_contain_text("Asked to pause")
    paused = ev.IterationFailed(
        iteration_num=4, error="", error_type="paused", retry_allowed=True, cost_usd=0.0
    )  # fmt: skip
    stage.tell(run_id, [ev.PauseRequested(by="dashboard", order=1), paused])
    expect(buttons.get_by_role("button", name="Go on")).to_be_visible()
    expect(buttons.get_by_role("button", name="Pause", exact=True)).to_be_hidden()
    page.keyboard.press("p")
    expect(page.locator("#answer")).to_contain_text("Asked to go on")
    assert [kind for kind, _ in orders(stage, run_id)] == ["pause", "resume"]
    stage.tell(run_id, [ev.ResumeRequested(by="dashboard", order=2), ev.IterationStarted(iteration_num=4)])
    page.keyboard.press("s")
    expect(page.locator("#stop-dialog")).to_contain_text("Stop this run?")
    page.keyboard.press("Escape")
    assert len(orders(stage, run_id)) == 2
    page.keyboard.press("s")
    page.get_by_role("button", name="After this iteration").click()
    expect(page.locator("#answer")).to_contain_text("stops after its running iteration")
    page.keyboard.press("s")
    page.get_by_role("button", name="Stop now").click()
    expect(page.locator("#answer")).not_to_contain_text("after its running iteration")
    expect(page.locator("#answer")).to_contain_text("Asked to stop")
    assert orders(stage, run_id)[2:] == [("stop", {"after_iteration": True}), ("stop", {"after_iteration": False})]


def test_limits_are_those_that_hold_when_the_dialog_opens(steered: tuple[Page, str], stage: Stage) -> None:
    page, run_id = steered

    def change(was: str, runs: str) -> None:
        page.get_by_role("button", name="Limits").click()
        expect(page.locator("#limit-max_runs")).to_have_value(was)
        page.locator("#limit-max_runs").fill(runs)
        page.get_by_role("button", name="Change").click()
        expect(page.locator("#limits-dialog")).to_be_hidden()
        expect(page.locator("#answer")).to_contain_text("the new limits hold")

    change("20", "25")
    stage.tell(run_id, [ev.LimitsChanged(by="ada", changes={"max_runs": 30})])  # by somebody else meanwhile
    stage.tell(run_id, [ev.LimitsChanged(by="dashboard", order=1, changes={"max_runs": 25})])
    stage.settle(run_id)
    change("25", "31")
    assert [data for _, data in orders(stage, run_id)] == [{"max_runs": n} for n in (25, 31)]
    # Only what was changed is sent.
    page.get_by_role("button", name="Limits").click()
    expect(page.locator("#limit-max_runs")).to_have_value("31")
    page.locator("#limit-max_cost_usd").fill("12.50")
    page.locator("#limit-max_duration").fill("6h")
    page.locator("#limit-max_runs").fill("")
    page.get_by_role("button", name="Change").click()
    expect(page.locator("#limits-dialog")).to_be_hidden()
    assert orders(stage, run_id)[2:] == [("limits", {"max_runs": None, "max_cost_usd": 12.5, "max_duration": 21600.0})]


def test_what_cannot_be_done_is_refused_in_the_dialog(steered: tuple[Page, str], stage: Stage) -> None:
    page, run_id = steered
    page.get_by_role("button", name="Limits").click()
    page.locator("#limit-max_cost_usd").fill("7,50")
    page.get_by_role("button", name="Change").click()
    said = page.locator("#limits-dialog .answer")
    expect(said).to_have_text("'7,50' is not a value for budget: write 7.50")
    expect(page.locator("#limit-max_cost_usd")).to_have_value("7,50")
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Limits").click()
    expect(page.locator("#limit-max_cost_usd")).to_have_value("5")
    expect(said).to_be_empty()
    page.keyboard.press("Escape")
    stage.tell(run_id, [ev.ContinuousCompleted(stop_reason="completion_signal")])
    expect(page.locator(".steering").get_by_role("button", name="Message")).to_be_hidden()
    assert orders(stage, run_id) == []


def test_a_question_is_there_until_it_is_answered(steered: tuple[Page, str], stage: Stage) -> None:
    page, run_id = steered
    asks = Claim(report=Report(questions=("May I delete legacy/?", "Which port?")))
    stage.tell(run_id, [ev.IterationCompleted(iteration_num=4, cost_usd=0.1, claim=asks)])
    stage.tell(run_id, [ev.IterationStarted(iteration_num=5), *plays.end(5), ev.IterationStarted(iteration_num=6)])
    expect(page.locator("#step-6")).to_be_visible()
    questions = page.locator(".questions")
    expect(questions).to_contain_text("May I delete legacy/?")
    questions.locator("li", has_text="Which port?").get_by_role("button", name="Answer").click()
    page.keyboard.type("8080")
    page.get_by_role("button", name="Send").click()
    expect(questions).not_to_contain_text("Which port?")
    expect(questions).to_contain_text("May I delete legacy/?")
    expect(page.locator(".messages")).to_contain_text("on its way to the run")
    [(_, sent)] = orders(stage, run_id)
    assert sent["content"] == "> Which port?\n\n8080"


def test_a_session_that_ended_is_told_beside_the_button(room: Room, stage: Stage) -> None:
    page, run_id = steered_run(room, stage, "ended-session", own=True)
    for forget in (lambda: page.evaluate("localStorage.clear()"), page.context.clear_cookies):
        forget()
        page.keyboard.press("p")
        page.get_by_role("button", name="Pause after this iteration").click()
        expect(page.locator("#pause-dialog .said-bad")).to_contain_text("untildone token login")
        page.keyboard.press("Escape")
        expect(page.locator("#pause-dialog")).to_be_hidden()
    assert orders(stage, run_id) == []
    room.complaints.clear()  # the browser's own word about the status


@pytest.mark.soak
def test_a_server_that_is_away_is_told_in_the_dialog_and_nothing_is_lost(room: Room, tmp_path: Path) -> None:
    """Outside the soak: the refusal above, and test_a_browser_that_returns_goes_on_where_it_was."""
    stage = Stage(tmp_path)
    try:
        stage.start()
        page, run_id = steered_run(room, stage, "away", own=True)
        page.goto(stage.login_link())
        page.get_by_role("button", name="Log in").click()
        page.wait_for_url(stage.url + "/")
        page.goto(f"{stage.url}/runs/{run_id}")
        _is_away_and_comes_back(page, stage, run_id)
    finally:
        stage.stop()
    room.complaints.clear()  # the word of htmx about a request that reached nobody


def _is_away_and_comes_back(page: Page, stage: Stage, run_id: str) -> None:
    stage.tell(run_id, words(1, 5))
    expect(page.locator(".line", has_text="word")).to_have_count(5)
    page.keyboard.press("m")
    page.locator("#message-text").fill("Use the old parser")
    stage.kill()
    page.get_by_role("button", name="Send").click()
    said = page.locator("#message-dialog .answer")
    expect(said).to_have_text("The server cannot be reached: nothing was asked. Try again.")
    expect(said).to_be_in_viewport()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Limits").click()
    expect(page.locator("#limits-dialog .answer")).to_contain_text("The server cannot be reached")
    page.keyboard.press("Escape")
    expect(page.locator(".connection")).to_be_visible()
    stage.start()
    # Told before the page is back: it has to ask for it.
    stage.tell(run_id, words(6, 10))
    expect(page.locator(".line", has_text="word")).to_have_count(15)
    expect(page.locator(".connection")).to_be_hidden()
    shown = page.locator(".line .text", has_text="word").all_inner_texts()
    assert re.findall(r"word (\d+)", " ".join(shown)) == [str(n) for n in range(1, 16)], "nothing twice"
    page.keyboard.press("m")
    expect(page.locator("#message-text")).to_have_value("Use the old parser")
    expect(said).to_be_empty()
    page.get_by_role("button", name="Send").click()
    expect(page.locator("#message-dialog")).to_be_hidden()
    assert [kind for kind, _ in orders(stage, run_id)] == ["message"]


def test_a_browser_that_keeps_nothing_is_told_what_that_means(room: Room, stage: Stage) -> None:
    page = room.page()
    page.add_init_script("Storage.prototype.setItem = () => { throw new Error('nothing is kept'); }")
    page.goto(stage.login_link())
    page.get_by_role("button", name="Log in").click()
    expect(page.locator("main p").first).to_contain_text("keeps nothing for this page")
    page.get_by_role("link", name="See all runs").click()
    expect(page).to_have_url(stage.url + "/")

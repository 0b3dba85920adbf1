"""Whatever an agent writes is text: harmless, readable and bounded."""

import urllib.error

import pytest
from playwright.sync_api import Page, expect

from server.browser import plays
from server.browser.conftest import Room
from server.browser.stage import Stage
from untildone.core import events as ev
from untildone.core import trace as tr
from untildone.core.claims import Claim, Report
from untildone.server.intake import MOST_PAYLOAD

SCRIPT = "<script>window.hit = 1</script><img src=x onerror='window.hit = 1'><b hx-get=/logout hx-trigger=load>x</b>"
ANSI = "\x1b[31mred\x1b[0m \x1b]0;title\x07 bell\x07 \x1b[2J"
BIDI = "safe\u202egnp.exe\u2066 \u200f"
LINK = "javascript:window.hit=1 https://evil.example/?a=1"
NASTY = f"{SCRIPT} {ANSI} {BIDI} {LINK}"


def told(stage: Stage, run_id: str, *events: ev.Event, name: str = "plain") -> str:
    stage.tell(run_id, [*plays.opening(run_id, name, goal=NASTY), *plays.begin(1), *events], sandbox=run_id)
    return f"{stage.url}/runs/{run_id}"


def harmless(page: Page) -> bool:
    shown = page.evaluate("document.documentElement.textContent")
    safe = page.evaluate(
        "window.hit === undefined && !document.querySelector('main a[href^=\"javascript\"], main img')"
    )
    return safe and not any(char in shown for char in "\x1b\x07\u202e\u2066")


def test_scripts_escapes_and_turned_text_are_harmless_everywhere(room: Room, stage: Stage) -> None:
    report = Report(status="BLOCKED", summary=NASTY, questions=(NASTY,), recommendation=NASTY)
    hostile = [
        tr.AgentMessage(iteration_num=1, text=NASTY),
        tr.AgentToolUse(iteration_num=1, tool=NASTY, tool_use_id="t", detail=NASTY),
        tr.AgentToolResult(iteration_num=1, tool_use_id="t", is_error=True, text=NASTY),
        tr.AgentFileEdited(iteration_num=1, tool_use_id="t", tool="Edit", file_path=NASTY, diff_preview=NASTY),
        ev.MessageReceived(by=NASTY, content=NASTY),
        ev.QuestionAsked(iteration_num=1, question=NASTY),
        ev.IterationCompleted(iteration_num=1, cost_usd=0.1, output_preview=NASTY, claim=Claim(report=report)),
        tr.IterationFilesChanged(iteration_num=1, diff_preview=f"+{NASTY}\n-{NASTY}"),
        ev.ContinuousSuspended(stop_reason="blocked", detail=NASTY),
    ]
    url = told(stage, "nasty", *hostile, name=NASTY)
    page = room.page(operator=True)
    page.goto(url)
    expect(page.locator("#headline")).to_contain_text("<script>")
    for button in page.locator(".more").all():
        button.click()
    expect(page.locator(".piece")).not_to_have_count(0)
    expect(page.locator(".piece").first).to_contain_text("⟨U+202E⟩")
    assert harmless(page)
    for path in (
        "/",
        f"{url.removeprefix(stage.url)}/iterations/1",
        "/search?text=script",
        "/search?run=nasty&text=hit",
    ):
        page.goto(stage.url + path)
        assert (path, harmless(page)) == (path, True)
    assert SCRIPT[:25] in page.locator("main").inner_text()


def test_hostile_lines_that_come_live_are_harmless_too(room: Room, stage: Stage) -> None:
    page = room.page()
    page.goto(told(stage, "nasty-live"))
    lines = f"</li></ol>{NASTY}\ndata: <script>window.hit=1</script>\n\nevent: reset\n\n"
    stage.tell("nasty-live", [tr.AgentMessage(iteration_num=1, text=lines)], sandbox="nasty-live")
    expect(page.locator(".line.said")).to_contain_text("window.hit")
    assert harmless(page)


def test_a_line_as_long_as_any_may_be_is_shown_bit_by_bit(room: Room, stage: Stage) -> None:
    page = room.page()
    page.goto(told(stage, "huge"))
    with pytest.raises(urllib.error.HTTPError, match="422"):
        stage.tell("huge", [tr.AgentMessage(iteration_num=1, text="x" * (MOST_PAYLOAD + 1))], sandbox="huge")
    stage.tell("huge", [tr.AgentMessage(iteration_num=1, text="x" * (MOST_PAYLOAD - 1000))], sandbox="huge")
    line = page.locator(".line.said")
    expect(line).to_be_visible()
    assert len(line.inner_text()) < 1000
    page.reload()
    line.locator(".more").click()
    expect(line.locator(".piece pre")).to_have_count(1)
    line.get_by_role("button", name="Show more").click()
    expect(line.locator(".piece pre")).to_have_count(2)
    assert len(line.inner_text()) < 60_000
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")

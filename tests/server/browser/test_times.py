"""All times of a page are in one zone, the reader's, wherever the server and the run are."""

import re
import time
from datetime import datetime
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from playwright.sync_api import Page, expect

from server.browser import plays
from server.browser.conftest import Room
from server.browser.stage import Stage
from untildone.core import events as ev
from untildone.core import trace as tr
from untildone.core.policy import Policy

HERE = "America/New_York"
OUTSIDE = """
  const found = [], texts = document.createTreeWalker(document.querySelector('main'), NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const node = texts.currentNode, isTime = node.parentElement.closest('time');
    if (!isTime && /\\b\\d{1,2}:\\d\\d\\b/.test(node.textContent)) found.push(node.textContent);
  }
  return found;
"""


class Moments(NamedTuple):
    """When a wait ends, and when a run must."""

    wakes: float
    deadline: float


def tell(stage: Stage, prefix: str) -> Moments:
    """Tell of two runs, PREFIX-dated and PREFIX-rests, and return their moments."""
    dated, rests = f"{prefix}-dated", f"{prefix}-rests"
    now = time.time()
    wakes, deadline = now + 3000, now + 7200
    policy = Policy(max_runs=20, deadline=deadline)
    quota = {"status": "allowed_warning", "rateLimitType": "five_hour", "resetsAt": wakes}
    running = [
        *plays.opening(dated, dated, policy=policy), *plays.begin(1),
        tr.AgentSystem(iteration_num=1, subtype="rate_limit_event", data=quota),
        ev.LimitsChanged(by="ada", changes={"deadline": deadline}),
        ev.IterationFailed(
            iteration_num=1, error="", error_type="crash", retry_allowed=True, cost_usd=0.0, retry_at=wakes
        ),
        *plays.begin(1),
    ]  # fmt: skip
    stage.tell(dated, running, sandbox=dated)
    stage.tell(rests, plays.waiting(rests, rests, wakes), sandbox=rests)
    return Moments(wakes, deadline)


def clock(at: float) -> str:
    """The time of day, at the end of what a page shows for this moment: on another day the date is before it."""
    return f"{datetime.fromtimestamp(at, ZoneInfo(HERE)):%H:%M}"


def reader(room: Room, **options: Any) -> Page:
    return room.page(timezone_id=HERE, locale="en-GB", **options)


def has_only_its_readers_times(page: Page) -> bool:
    expect(page.locator("main time").first).to_be_visible()
    assert page.evaluate(f"() => {{ {OUTSIDE} }}") == []
    return "UTC" not in page.locator("main").inner_text()


def test_every_time_of_every_page_is_the_readers(room: Room, stage: Stage) -> None:
    wakes, deadline = tell(stage, "here")
    page = reader(room)
    for path in ("/?text=here-", "/runs/here-dated/iterations/1", "/search?run=here-dated&text=limit"):
        page.goto(stage.url + path)
        assert has_only_its_readers_times(page), path
    page.goto(f"{stage.url}/runs/here-rests")
    expect(page.locator(".meta")).to_contain_text(re.compile(rf"Wakes\s*in 4\d min \([^)]*{clock(wakes)}\)"))
    expect(page.locator(".line", has_text="waiting for the usage limit until")).to_contain_text(clock(wakes))
    assert has_only_its_readers_times(page)
    page.goto(f"{stage.url}/runs/here-dated")
    expect(page.locator(".line", has_text="resets at")).to_contain_text(clock(wakes))
    expect(page.locator(".line", has_text="changed the limits")).to_contain_text(
        re.compile(rf"deadline = .*{clock(deadline)}")
    )
    expect(page.locator(".troubles li", has_text="next try at")).to_contain_text(clock(wakes))
    expect(page.locator(".gauge", has_text="deadline")).to_contain_text(re.compile(rf"\([^)]*{clock(deadline)}\)"))
    stage.tell("here-dated", [ev.ContinuousWaiting(cause="network", until=wakes)], sandbox="here-dated")
    expect(page.locator(".line", has_text="waiting for the network until")).to_contain_text(clock(wakes))
    assert has_only_its_readers_times(page), "what came live, too"


def test_a_deadline_is_typed_in_the_readers_time(room: Room, stage: Stage) -> None:
    _, deadline = tell(stage, "typed")
    page = reader(room, operator=True)
    page.goto(f"{stage.url}/runs/typed-dated")
    page.get_by_role("button", name="Limits").click()
    here = ZoneInfo(HERE)
    field = page.locator("#limit-deadline")
    expect(field).to_have_value(f"{datetime.fromtimestamp(deadline, here):%Y-%m-%dT%H:%M}")
    # Left as it is, it is not sent, though the form knows no seconds.
    page.locator("#limit-max_runs").fill("30")
    page.get_by_role("button", name="Change").click()
    expect(page.locator("#limits-dialog")).to_be_hidden()
    later = datetime.fromtimestamp(deadline + 86400, here).replace(second=0, microsecond=0)
    page.get_by_role("button", name="Limits").click()
    expect(field).not_to_have_value("")
    field.fill(f"{later:%Y-%m-%dT%H:%M}")
    page.get_by_role("button", name="Change").click()
    expect(page.locator("#limits-dialog")).to_be_hidden()
    assert [order["data"] for order in stage.orders("typed-dated", "typed-dated")] == [
        {"max_runs": 30},
        {"deadline": later.timestamp()},
    ]


def test_without_scripts_times_name_their_zone_and_nothing_pretends_to_steer(room: Room, stage: Stage) -> None:
    wakes, _ = tell(stage, "still")
    page = reader(room, operator=True, java_script_enabled=False)
    page.goto(f"{stage.url}/runs/still-rests")
    utc = f"{datetime.fromtimestamp(wakes, ZoneInfo('UTC')):%Y-%m-%d %H:%M} UTC"
    expect(page.locator(".meta")).to_contain_text(f"Wakes {utc}", use_inner_text=True)
    expect(page.locator(".line", has_text="waiting for the usage limit until")).to_contain_text(utc)
    expect(page.locator(".steering")).to_contain_text("Scripts are off in this browser")
    for button in page.locator(".buttons button:visible").all():
        expect(button).to_be_disabled()

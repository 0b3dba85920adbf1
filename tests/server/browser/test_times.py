"""All times of a page are in one zone, the reader's, wherever the server and the run are."""

import re
import time
from collections.abc import Iterator
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Page, expect

from server.browser import plays
from server.browser.conftest import Room
from server.browser.stage import Stage
from untildone.core import events as ev
from untildone.core import trace as tr
from untildone.core.policy import Policy

HERE = "America/New_York"
NOW = time.time()
UNTIL = NOW + 3000
DEADLINE = NOW + 7200
OUTSIDE = """
  const found = [], texts = document.createTreeWalker(document.querySelector('main'), NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const node = texts.currentNode, isTime = node.parentElement.closest('time');
    if (!isTime && /\\b\\d{1,2}:\\d\\d\\b/.test(node.textContent)) found.push(node.textContent);
  }
  return found;
"""


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    made = Stage(tmp_path_factory.mktemp("stage"))
    made.env["TZ"] = "Asia/Tokyo"
    try:
        yield told(made.start())
    finally:
        made.stop()


def told(stage: Stage) -> Stage:
    policy = Policy(max_runs=20, deadline=DEADLINE)
    quota = {"status": "allowed_warning", "rateLimitType": "five_hour", "resetsAt": UNTIL}
    running = [
        *plays.opening("dated", "dated", policy=policy), *plays.begin(1),
        tr.AgentSystem(iteration_num=1, subtype="rate_limit_event", data=quota),
        ev.LimitsChanged(by="ada", changes={"deadline": DEADLINE}),
        ev.IterationFailed(
            iteration_num=1, error="", error_type="crash", retry_allowed=True, cost_usd=0.0, retry_at=UNTIL
        ),
        *plays.begin(1),
    ]  # fmt: skip
    stage.tell("dated", running, sandbox="dated")
    stage.tell("rests", plays.waiting("rests", "rests", UNTIL), sandbox="rests")
    return stage


def clock(at: float) -> str:
    return f"{datetime.fromtimestamp(at, ZoneInfo(HERE)):%H:%M}"


def reader(room: Room, **options: object) -> Page:
    return room.page(timezone_id=HERE, locale="en-GB", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "path", ["/", "/runs/dated", "/runs/rests", "/runs/dated/iterations/1", "/search?run=dated&text=limit"]
)
def test_no_sentence_has_a_time_of_another_zone_in_it(room: Room, stage: Stage, path: str) -> None:
    page = reader(room)
    page.goto(stage.url + path)
    expect(page.locator("main time").first).to_be_visible()
    assert page.evaluate(f"() => {{ {OUTSIDE} }}") == []
    assert "UTC" not in page.locator("main").inner_text()


def test_waits_deadlines_and_lines_tell_the_readers_time(room: Room, stage: Stage) -> None:
    page = reader(room)
    page.goto(f"{stage.url}/runs/rests")
    expect(page.locator(".meta")).to_contain_text(re.compile(rf"Wakes\s*in 4\d min \({clock(UNTIL)}\)"))
    expect(page.locator(".line", has_text="waiting for the usage limit until")).to_contain_text(clock(UNTIL))
    page.goto(f"{stage.url}/runs/dated")
    expect(page.locator(".line", has_text="resets at")).to_contain_text(clock(UNTIL))
    expect(page.locator(".line", has_text="changed the limits")).to_contain_text(f"deadline = {clock(DEADLINE)}")
    expect(page.locator(".troubles li", has_text="next try at")).to_contain_text(clock(UNTIL))
    expect(page.locator(".gauge", has_text="deadline")).to_contain_text(f"({clock(DEADLINE)})")


def test_lines_that_come_live_tell_it_too(room: Room, stage: Stage) -> None:
    stage.tell("lives", [*plays.opening("lives", "lives"), *plays.begin(1)], sandbox="lives")
    page = reader(room)
    page.goto(f"{stage.url}/runs/lives")
    stage.tell("lives", [ev.ContinuousWaiting(cause="network", until=UNTIL)], sandbox="lives")
    line = page.locator(".line", has_text="waiting for the network until")
    expect(line).to_contain_text(clock(UNTIL))
    assert page.evaluate(f"() => {{ {OUTSIDE} }}") == []
    assert "UTC" not in line.inner_text()


def test_a_deadline_is_typed_in_the_readers_time(room: Room, stage: Stage) -> None:
    page = reader(room, operator=True)
    page.goto(f"{stage.url}/runs/dated")
    page.get_by_role("button", name="Limits").click()
    here = ZoneInfo(HERE)
    field = page.locator("#limit-deadline")
    expect(field).to_have_value(f"{datetime.fromtimestamp(DEADLINE, here):%Y-%m-%dT%H:%M}")
    # Left as it is, it is not sent, though the form knows no seconds.
    page.locator("#limit-max_runs").fill("30")
    page.get_by_role("button", name="Change").click()
    expect(page.locator("#limits-dialog")).to_be_hidden()
    later = datetime.fromtimestamp(DEADLINE + 86400, here).replace(second=0, microsecond=0)
    page.get_by_role("button", name="Limits").click()
    expect(field).not_to_have_value("")
    field.fill(f"{later:%Y-%m-%dT%H:%M}")
    page.get_by_role("button", name="Change").click()
    expect(page.locator("#limits-dialog")).to_be_hidden()
    assert [order["data"] for order in stage.orders("dated", "dated")] == [
        {"max_runs": 30},
        {"deadline": later.timestamp()},
    ]


def test_without_scripts_times_name_their_zone_and_nothing_pretends_to_steer(room: Room, stage: Stage) -> None:
    page = reader(room, operator=True, java_script_enabled=False)
    page.goto(f"{stage.url}/runs/rests")
    utc = f"{datetime.fromtimestamp(UNTIL, ZoneInfo('UTC')):%Y-%m-%d %H:%M} UTC"
    expect(page.locator(".meta")).to_contain_text(f"Wakes {utc}", use_inner_text=True)
    expect(page.locator(".line", has_text="waiting for the usage limit until")).to_contain_text(utc)
    expect(page.locator(".steering")).to_contain_text("Scripts are off in this browser")
    for button in page.locator(".buttons button:visible").all():
        expect(button).to_be_disabled()

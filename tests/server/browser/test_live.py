"""A run as it happens: nothing lost, nothing twice, whatever happens to the page or the server."""

import re
import time
from functools import partial

import pytest
from playwright.sync_api import Page, expect

from costs import costs_at_most
from server.browser import plays
from server.browser.conftest import Room
from server.browser.stage import Stage
from untildone.core import events as ev
from untildone.core import trace as tr


def said(first: int, count: int) -> list[ev.Event]:
    return [tr.AgentMessage(iteration_num=1, text=f"word {n}") for n in range(first, first + count)]


def words(page: Page) -> list[int]:
    """The numbers of the words that are shown, in order."""
    texts = page.locator(".line.said .text").all_inner_texts()
    return [int(found[1]) for text in texts if (found := re.search(r"word (\d+)", text))]


def begun(stage: Stage, run_id: str) -> None:
    stage.tell(run_id, [*plays.opening(run_id, run_id), *plays.begin(1)], sandbox=run_id)


def test_lines_come_as_they_happen_and_the_page_with_them(room: Room, stage: Stage) -> None:
    begun(stage, "live")
    page = room.page()
    page.goto(f"{stage.url}/runs/live")
    stage.tell("live", said(1, 3), sandbox="live")
    expect(page.locator(".line.said")).to_have_count(3)
    page.reload()
    stage.tell("live", said(4, 2), sandbox="live")
    expect(page.locator(".line.said")).to_have_count(5)
    assert words(page) == [1, 2, 3, 4, 5]
    stage.tell("live", plays.end(1, done=True, passing=3), sandbox="live")
    expect(page.locator("#step-1")).to_contain_text("checks passed")
    expect(page.locator("#part-evidence")).to_contain_text("3 of 3 passed")
    stage.tell("live", [ev.ContinuousCompleted(stop_reason="validation_passed", verified=True)], sandbox="live")
    expect(page.locator("#headline")).to_contain_text("Done")


def test_whoever_reads_further_up_is_left_there(room: Room, stage: Stage) -> None:
    begun(stage, "reader")
    stage.tell("reader", said(1, 150), sandbox="reader")
    page = room.page()
    page.goto(f"{stage.url}/runs/reader")
    top = "document.getElementById('activity').scrollTop"
    page.wait_for_function(f"{top} > 100")
    page.evaluate(f"{top} = 50")
    stage.tell("reader", said(151, 20), sandbox="reader")
    expect(page.locator(".line.said").last).to_contain_text("word 170")
    assert page.evaluate(top) == 50


def test_a_paused_page_holds_what_comes(room: Room, stage: Stage) -> None:
    begun(stage, "held")
    page = room.page()
    page.goto(f"{stage.url}/runs/held")
    page.locator("[data-hold]").click()
    stage.tell("held", said(1, 4), sandbox="held")
    expect(page.locator("[data-held]")).to_have_text("4 new")
    expect(page.locator(".line.said")).to_have_count(0)
    page.locator("[data-hold]").click()
    expect(page.locator(".line.said")).to_have_count(4)


def test_a_page_keeps_only_so_many_lines(room: Room, stage: Stage) -> None:
    begun(stage, "flood")
    page = room.page()
    page.goto(f"{stage.url}/runs/flood")
    stage.tell("flood", said(1, 1500), sandbox="flood")
    expect(page.locator(".line.said").last).to_contain_text("word 1500")
    shown = words(page)
    assert len(shown) <= 1000
    assert shown == list(range(shown[0], 1501))


def test_earlier_lines_and_iterations_are_fetched_page_by_page(room: Room, stage: Stage) -> None:
    begun(stage, "long")
    stage.tell("long", said(1, 700), sandbox="long")
    stage.tell("long", [event for n in range(2, 131) for event in (*plays.begin(n), *plays.end(n))], sandbox="long")
    page = room.page()
    page.goto(f"{stage.url}/runs/long")
    expect(page.locator("#step-130")).to_be_visible()
    page.reload()  # a page that was opened earlier may have seen all of them come
    assert page.locator(".step").count() <= 131
    page.get_by_role("button", name="Older iterations").click()
    expect(page.locator(".step")).to_have_count(130)
    before = page.locator(".line[data-seq]").count()
    assert before <= 200
    page.get_by_role("button", name="Earlier").click()
    expect(page.locator(".line[data-seq]").nth(before)).to_be_attached()
    seqs = [int(seq) for seq in page.locator(".line[data-seq]").evaluate_all("all => all.map(one => one.dataset.seq)")]
    assert seqs == sorted(set(seqs))


@pytest.mark.parametrize("events", [3_000, pytest.param(100_000, marks=pytest.mark.soak)])
def test_a_long_run_opens_as_fast_as_a_short_one(stage: Stage, events: int) -> None:
    small, large = f"small-{events}", f"large-{events}"
    for run_id, count in ((small, 200), (large, events)):
        begun(stage, run_id)
        stage.tell(run_id, said(1, count), sandbox=run_id)

    def opens(run_id: str) -> None:
        assert "word" in stage.get(f"/runs/{run_id}")

    costs_at_most(3, partial(opens, large), partial(opens, small), clock=time.perf_counter)

"""A line of ten megabytes, said by the real Claude Code, on its whole way: driver, log, uplink, server, page."""

import json

import pytest
from playwright.sync_api import Page, expect

from e2e.kit import Stage as Sandbox
from e2e.kit import finished
from e2e.worker_kit import until
from server.browser.conftest import Room
from server.browser.stage import Stage
from server.browser.test_story import PATIENCE, RIGHT, WEEKS, at_work, bash, gate, write
from untildone.rehearsal.scenario import Reply, ToolCall
from untildone.uplink.dressing import TEXT_CAP

pytestmark = [pytest.mark.claude, pytest.mark.soak]

LENGTH = 10_000_000
NASTY = "needle <script>window.hit = 1</script> \x1b[2J\x07 \u202egnp.exe "
LINE = NASTY + "x" * (LENGTH - len(NASTY))
BLINK = """() => new Promise((done) => {
  const begun = performance.now();
  requestAnimationFrame(() => setTimeout(() => done(performance.now() - begun), 0));
})"""
"""How long the page's own thread takes to come round: milliseconds."""


def answers_at_once(page: Page) -> bool:
    # One of many: other processes of this machine are not what is asked about.
    return any(page.evaluate(BLINK) < 1000 for _ in range(30))


def printed(sandbox: Sandbox, *words: str) -> str:
    done = sandbox.untildone(*words)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert "\u202e" not in done.stdout
    return done.stdout


def test_a_line_of_ten_megabytes_is_harmless(room: Room, stage: Stage) -> None:
    page = room.page()
    first = (
        Reply(text=LINE, tools=(ToolCall("Bash", {"command": gate(1)}),)),
        write("weeks.py", WEEKS.format(check=RIGHT)),
        bash("python3 -B check.py"),
        Reply(text=finished("Done in spite of it.")),
    )
    with at_work(stage, "long-line", first) as (sandbox, worker):
        runs = until(lambda: json.loads(stage.get("/api/v1/runs?sandbox=long-line"))["runs"], "the run")
        run_id = runs[0]["run_id"]
        page.goto(f"{stage.url}/runs/{run_id}")
        line = page.locator(".line.said", has_text="needle")
        expect(line).to_be_visible(timeout=PATIENCE)
        expect(page.locator(".line.tool")).not_to_have_count(0, timeout=PATIENCE)
        assert len(line.inner_text()) < 1000
        assert answers_at_once(page)
        (sandbox.tmp / "gate1").touch()
        # The run goes on, and comes to its end.
        expect(page.locator("#headline")).to_contain_text("every check passed", timeout=PATIENCE)
        assert worker.wait(120) == 0

        event = json.loads(stage.get(f"/api/v1/runs/{run_id}/events?type=agent.assistant_message&text=needle"))[
            "events"
        ]
        assert [len(one["data"]["text"]) for one in event] == [TEXT_CAP + 1]
        whole = sandbox.untildone("log", run_id, "--verbose", "--json").stdout
        assert max(map(len, whole.splitlines())) > LENGTH
        told = printed(sandbox, "log", run_id, "--verbose")
        assert "needle" in told
        assert max(map(len, told.splitlines())) < 1000
        assert len(printed(sandbox, "status", run_id)) < 10_000

    page.reload()
    line.locator(".more").click()
    expect(line.locator(".piece pre")).to_have_count(1)
    line.get_by_role("button", name="Show more").click()
    expect(line.locator(".piece pre")).to_have_count(2)
    assert answers_at_once(page)
    log = "document.getElementById('activity')"
    page.evaluate(f"{log}.scrollTop = 0")
    page.locator("#activity").hover()
    page.mouse.wheel(0, 300)
    page.wait_for_function(f"{log}.scrollTop > 0")
    assert answers_at_once(page)
    page.goto(f"{stage.url}/search?run={run_id}")
    page.locator("#search-text").fill("NEEDLE")
    page.keyboard.press("Enter")
    expect(page.locator(".line.said")).to_contain_text("needle")
    assert answers_at_once(page)
    assert page.evaluate("window.hit === undefined")
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")

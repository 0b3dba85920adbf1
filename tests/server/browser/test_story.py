"""A real run of the real Claude Code, seen and steered in a real browser from its start to verified done.

The pictures of the documentation are made here: `UNTILDONE_SCREENSHOTS=1` writes them to `docs/images`.
"""

import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from e2e.kit import Stage as Sandbox
from e2e.kit import finished, staged, working
from e2e.worker_kit import until
from server.browser import plays
from server.browser.conftest import Room
from server.browser.stage import Stage
from untildone.rehearsal.scenario import Reply, Scenario, ToolCall
from untildone.uplink.dressing import TEXT_CAP

pytestmark = pytest.mark.claude

IMAGES = Path(__file__).parents[3] / "docs" / "images"
PICTURES = os.environ.get("UNTILDONE_SCREENSHOTS") == "1"
"""Whether this makes the pictures; then it is the only test that is run, and the list of runs is empty."""
PATIENCE = 120_000
GOAL = "Accept ISO weeks in the parser of dates, week 53 included."
WEEKS = """from datetime import date


def parse(text):
    year, week = text.split("-W")
    {check}return date.fromisocalendar(int(year), int(week), 1)
"""
RIGHT = "if int(week) == 53 and date(int(year), 12, 28).isocalendar().week != 53:\n        raise ValueError(text)\n    "
CHECK = """from weeks import parse

assert str(parse("2020-W53")) == "2020-12-28"
assert "raise ValueError" in open("weeks.py").read(), "2021 has no week 53"
print("2 passed")
"""


def bash(command: str) -> Reply:
    return Reply(tools=(ToolCall("Bash", {"command": command}),))


def gate(number: int) -> str:
    """A command that ends when somebody outside lets it."""
    return f"until [ -e ../gate{number} ]; do sleep 0.02; done; ls"


def write(sandbox_file: str, content: str) -> Reply:
    return Reply(
        text="Now the parser itself.", tools=(ToolCall("Write", {"file_path": sandbox_file, "content": content}),)
    )


@contextmanager
def at_work(stage: Stage, name: str, *iterations: tuple[Reply, ...]) -> Iterator[tuple[Sandbox, subprocess.Popen[str]]]:
    """A worker in a sandbox of its own; whatever happens, none is left behind."""
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-"))
    placed = tuple(tuple(_placed(reply, folder / "repo") for reply in replies) for replies in iterations)
    with staged(folder, Scenario(name=name, iterations=placed)) as sandbox:
        (sandbox.repo / "check.py").write_text(CHECK)
        sandbox.git("add", ".")
        sandbox.git("commit", "-qm", "What week 53 means")
        sandbox.env |= {
            "CALLBACK_URL": stage.url, "SANDBOX_ID": name, "INITIAL_PROMPT": GOAL, "ALLOWED_TOOLS": "Bash,Write,Read",
            "CONTINUOUS_MODE": "true", "CONTINUOUS_MAX_RUNS": "10", "CONTINUOUS_MAX_COST_USD": "5",
            "UNTILDONE_CHECKS": "python3 -B check.py", "TZ": "UTC",
            "UNTILDONE_SANDBOX": "host",  # the agent waits for a file outside of its folder
        }  # fmt: skip
        with sandbox.popen("worker") as worker:
            try:
                yield sandbox, worker
            finally:
                if worker.poll() is None:
                    worker.kill()
                print(*worker.communicate())
    shutil.rmtree(folder)


def _placed(reply: Reply, repo: Path) -> Reply:
    """Tools that write want to be told the whole path."""
    if not reply.tools or reply.tools[0].name != "Write":
        return reply
    given = reply.tools[0].input
    return Reply(text=reply.text, tools=(ToolCall("Write", {**given, "file_path": str(repo / given["file_path"])}),))


def picture(page: Page, name: str) -> None:
    if not PICTURES:
        return
    page.wait_for_timeout(600)
    # What the machine is called that made the picture, and its folders, are nobody's business.
    page.evaluate(
        """(folder) => {
          for (const dt of document.querySelectorAll('.meta dt'))
            if (dt.textContent === 'Host') dt.nextElementSibling.textContent = 'build-3';
          const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), its = new RegExp(folder, 'g');
          while (texts.nextNode()) texts.currentNode.data = texts.currentNode.data.replaceAll(its, '');
        }""",
        rf"{re.escape(tempfile.gettempdir())}/calendar-\w+",
    )
    IMAGES.mkdir(exist_ok=True)
    page.screenshot(path=IMAGES / f"dashboard-{name}.png")


def said(sandbox: Sandbox) -> str:
    """All that the model was ever told."""
    return " ".join(str(request.body["messages"]) for request in sandbox.model.requests)


def test_seen_live_from_start_to_verified_done_with_a_word_in_between(room: Room, stage: Stage) -> None:
    page = room.page(operator=True)
    page.goto(f"{stage.url}/?text={'' if PICTURES else 'week+53+included'}")
    if PICTURES:
        expect(page.locator("#nothing")).to_contain_text("untildone worker")
        picture(page, "empty")
    first = (
        Reply(text="I will look at what is there.", tools=(ToolCall("Bash", {"command": gate(1)}),)),
        write("weeks.py", WEEKS.format(check="")),
        Reply(text=finished("Weeks are parsed.")),
    )
    # Longer than what an event may say at a server.
    long = "Now the check." if PICTURES else "needle" + "x" * 2 * TEXT_CAP
    second = (bash(gate(2)), write("weeks.py", WEEKS.format(check=RIGHT)),
              Reply(text=long, tools=(ToolCall("Bash", {"command": "python3 -B check.py"}),)),
              Reply(text=finished("Years without a week 53 are refused now.")))  # fmt: skip
    with at_work(stage, "calendar", first, second) as (sandbox, worker):
        # Other stories leave runs at the same server.
        mine = page.locator(".run", has_text=GOAL)
        mine.first.wait_for(timeout=PATIENCE)
        # Not a click: the list grows meanwhile, and another run may be where the pointer goes.
        page.goto(f"{stage.url}{mine.locator('.item').first.get_attribute('href')}")
        expect(page.locator(".line.said")).to_contain_text("I will look at what is there.", timeout=PATIENCE)
        expect(page.locator("#headline")).to_contain_text("Running: iteration 1")
        page.wait_for_load_state()

        page.keyboard.press("m")
        page.locator("#message-text").fill("Years without a week 53 must be refused.")
        page.get_by_role("button", name="Send").click()
        expect(page.locator("#answer")).to_contain_text("Sent")
        talk = page.locator("#part-talk .message").first
        expect(talk).to_contain_text("waits for the next iteration", timeout=PATIENCE)
        (sandbox.tmp / "gate1").touch()
        expect(page.locator("#step-1")).to_contain_text("checks failed", timeout=PATIENCE)
        expect(talk).to_contain_text("the agent has seen it", timeout=PATIENCE)
        until(lambda: "Years without a week 53 must be refused." in said(sandbox), "the word at the model")
        expect(page.locator("#headline")).to_contain_text("Running: iteration 2")
        expect(page.locator(".line.tool")).to_have_count(3, timeout=PATIENCE)
        picture(page, "run")

        page.reload()
        (sandbox.tmp / "gate2").touch()
        expect(page.locator("#headline")).to_contain_text("every check passed", timeout=PATIENCE)
        assert worker.wait(120) == 0
    expect(page.locator("#part-head .badge")).to_contain_text("verified")
    expect(page.locator("#part-evidence")).to_contain_text("1 of 1 passed after iteration 2")
    seqs = [int(seq) for seq in page.locator(".line[data-seq]").evaluate_all("all => all.map(one => one.dataset.seq)")]
    assert seqs == sorted(set(seqs))
    if PICTURES:
        pictures_of_the_end(page, room, stage)
        return
    line = page.locator(".line.said", has_text="needle")
    assert len(line.inner_text()) < 1000
    line.locator(".more").click()
    expect(line.locator(".piece pre")).to_have_count(1)
    page.locator("#step-2 .item").click()
    expect(page.locator(".d.add").first).to_be_visible()


def pictures_of_the_end(page: Page, room: Room, stage: Stage) -> None:
    where = page.url
    picture(page, "done")
    fleet_to_look_at(stage)
    page.goto(stage.url)
    expect(page.locator("#run-week-53")).to_contain_text("4 iterations")
    picture(page, "fleet")
    dark = room.page(color_scheme="dark")
    dark.goto(where)
    expect(dark.locator(".plot canvas")).not_to_have_count(0)
    picture(dark, "dark")
    dark.goto(f"{where}/iterations/2")
    expect(dark.locator(".d.add").first).to_be_visible()
    picture(dark, "iteration")
    phone = room.page(viewport={"width": 390, "height": 844}, device_scale_factor=2)
    phone.goto(where)
    picture(phone, "phone")


def fleet_to_look_at(stage: Stage) -> None:
    """More runs, for a picture that says something."""
    now = time.time()
    stories = {
        "upgrade": plays.stopped("upgrade", "upgrade-framework"),
        "queue": plays.waiting("queue", "notify-queue", now + 3000),
        "iso-weeks": plays.finished("iso-weeks", "iso-weeks"),
        "week-53": plays.running("week-53", "week-53"),
    }
    for run_id, events in stories.items():
        stage.tell(run_id, events, sandbox=f"box-{run_id}", at=now - 1200, every=1200 / len(events))


@pytest.mark.soak
def test_a_stop_ends_the_iteration_that_is_under_way(room: Room, stage: Stage) -> None:
    page = room.page(operator=True)
    with at_work(stage, "stopped", (bash(gate(1)), Reply(text=working()))) as (_, worker):
        run_id = until(lambda: _run_of(stage, "stopped"), "the run")
        page.goto(f"{stage.url}/runs/{run_id}")
        expect(page.locator(".line.tool")).not_to_have_count(0, timeout=PATIENCE)
        page.keyboard.press("s")
        page.get_by_role("button", name="Stop now").click()
        # The agent's command would never end by itself.
        expect(page.locator("#headline")).to_contain_text("Stopped by an operator in a browser", timeout=PATIENCE)
        assert worker.wait(120) == 0
    expect(page.locator(".steering").get_by_role("button", name="Stop")).to_be_hidden()


def _run_of(stage: Stage, sandbox: str) -> str | None:
    runs = json.loads(stage.get(f"/api/v1/runs?sandbox={sandbox}"))["runs"]
    return str(runs[0]["run_id"]) if runs else None

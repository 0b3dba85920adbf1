"""A loop in the Claude Code that a person sits in front of: every way to take it back works, none of them loses it."""

from pathlib import Path

import pytest

from e2e.plugin_kit import house, told
from patience import eventually
from untildone.rehearsal.scenario import Reply

pytestmark = pytest.mark.claude

CTRL_C, ESCAPE = "\x03", "\x1b"
HALF = Reply(text="Half way {n}.")
NEVER = Reply(text="Too late.", latency=300)
START = "/untildone:loop make it work --promise 'ALL DONE' --max 9"


@pytest.mark.soak
def test_a_person_interrupts_compacts_clears_and_cancels(tmp_path: Path) -> None:
    refused = Reply(status=403, message="not you")
    replies = (HALF, NEVER, HALF, refused, Reply(text="<summary>Things were done.</summary>"), HALF, NEVER, HALF)
    with house(tmp_path, *replies) as here, here.terminal() as screen:
        screen.type(START)
        screen.wait_for("the loop holds this session: at most 9 turns")
        screen.wait_for("untildone: turn 2 of 9")
        here.model.wait_for_request(2)
        screen.press(CTRL_C)
        screen.wait_for("Interrupted")
        assert "iteration_count: 2" in here.loop_file.read_text()
        screen.type("Go on now.")  # nothing had gone on by itself: this is what the next request is about
        assert "Go on now." in told(here.model.wait_for_request(3))
        screen.wait_for("untildone: turn 3 of 9")
        screen.wait_for("API Error: 403")
        screen.type("/compact")
        screen.wait_for("Compacted")
        screen.type("Continue please.")
        compacted = told(here.model.wait_for_request(6))
        assert ("Its goal:\\nmake it work" in compacted, "Things were done." in compacted) == (True, True)
        screen.wait_for("untildone: turn 4 of 9")
        here.model.wait_for_request(7)
        screen.press(ESCAPE)
        screen.wait_for("Interrupted")
        assert "not open" not in here.untildone("loop", "status")
        screen.type("/clear")
        screen.wait_for("Claude Code v")
        screen.type("Hello you.")
        screen.wait_for("Half way 8.")
        screen.type("/untildone:status")
        screen.wait_for("turn 4 of 9, holds another session")
        assert "which is not open: `claude --resume" in " ".join(here.untildone("loop", "status").split())
        screen.type("/untildone:cancel")
        screen.wait_for("the loop is called off, recorded as not done")
        assert (len(here.model.requests), here.loop_file.exists()) == (8, False)
        assert "stop_requested" in here.untildone("log")


def test_a_check_that_runs_is_ended_by_an_interrupt(tmp_path: Path) -> None:
    with house(tmp_path, Reply(text="ALL DONE"), Reply(text="ALL DONE"), NEVER) as here:
        brought = here.project / ".stravinsky" / "continuation-loop.md"
        brought.parent.mkdir()
        brought.write_text("---\nactive: true\n---\nGo on forever.\n")
        here.git("init", "-q")
        here.git("add", "-f", ".")
        with here.terminal() as screen:
            screen.wait_for("lies here but was not started on this machine, so it does nothing")
            screen.type(f"{START} --check 'echo $$ > pid; [ -e go ] || sleep 300; echo NO LUCK; exit 1'")
            pid = here.project / "pid"
            eventually(lambda: pid.exists() and pid.read_text().strip())
            screen.press(CTRL_C)
            screen.wait_for("Interrupted")
            eventually(lambda: not Path(f"/proc/{pid.read_text().strip()}").exists())
            assert "iteration_count: 1" in here.loop_file.read_text()
            (here.project / "go").touch()
            screen.type("What now?")
            screen.wait_for("untildone: turn 2 of 9")
            assert "NO LUCK" in told(here.model.wait_for_request(3))

"""The live screen, drawn on a terminal of memory and on a real pseudo-terminal."""

import fcntl
import io
import os
import pty
import struct
import subprocess
import sys
import termios
import textwrap
import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console, Group

from core.night_kit import HOSTILE, POLICY, night, night_events
from core.run_kit import START, after, completed, failed, now_of, opening, records, spec, started
from untildone.cli.driving import Job, shown_at_first
from untildone.cli.footer import Activity, footer, rows_added
from untildone.cli.live import LiveScreen
from untildone.cli.plain import PlainLines
from untildone.cli.progress import open_progress
from untildone.core import events as ev
from untildone.core import trace as tr
from untildone.core.events import Record
from untildone.core.fold import fold
from untildone.core.printable import columns
from untildone.core.state import LoopState
from untildone.core.views import RunView, run_view


def drawn(view: RunView, activity: Activity, now: float, *, width: int = 100, height: int = 30) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height, color_system=None)
    with console.capture() as caught:
        console.print(Group(*footer(view, activity, now, width=width, height=height)))
    return caught.get().rstrip("\n").split("\n")


def busy(detail: str = "pytest -q") -> tuple[RunView, Activity, float]:
    """An iteration in which a tool has been running for eight seconds."""
    state = after(started(1), policy=POLICY, goal="fix the parser")
    now = now_of(state)
    activity = Activity()
    call = tr.AgentToolUse(iteration_num=1, tool="Bash", tool_use_id="t", detail=detail)
    activity.see(Record(seq=8, at=now, event=tr.AgentMessage(iteration_num=1, text="first\n\nthen this")))
    activity.see(Record(seq=9, at=now, event=call))
    return run_view(state, now + 8, alive=True), activity, now + 8


# --- the footer ----------------------------------------------------------------------------------------------


def test_the_footer_tells_goal_iteration_tool_words_and_limits() -> None:
    text = "\n".join(drawn(*busy()))
    for part in (
        "fix the parser", "iteration 1 of 6", "8s  $ Bash pytest -q", "“then this”",
        "$0.00 of $5.00", "of 2h", "not stuck (0 of 6)", "done claims 0 of 2",
    ):  # fmt: skip
        assert part in text


def test_the_agents_words_are_prose_without_status_blocks_json_and_code() -> None:
    activity = Activity()
    for text in (
        "I fixed it.\n\n---LOOP_STATUS---\nSTATUS: COMPLETE\nEXIT_SIGNAL: true\n---END_LOOP_STATUS---\n",
        '```json\n{"status": "x"}\n```\n{"done": true}\n<promise>DONE</promise>',
        "x" * 5000 + "\nWORK_TYPE: TESTING\n---END_LOOP_STATUS---\n**Now** the docs.",
    ):
        activity.see(Record(seq=8, at=START, event=tr.AgentMessage(iteration_num=1, text=text)))
    assert [word for word in activity.words if "xxx" not in word] == ["I fixed it.", "Now the docs."]


def test_the_first_frame_of_a_new_run_has_its_goal_and_limits() -> None:
    job = Job(run_id="r", begin=(spec(goal="fix the parser"), POLICY))
    view = run_view(shown_at_first(job, LoopState(), START), START, alive=True)
    text = "\n".join(drawn(view, Activity(), START))
    assert "── fix the parser ─" in text
    assert "before iteration 1 of 6" in text
    assert "$0.00 of $5.00" in text


def test_what_the_loop_looks_at_itself_is_shown_with_its_time_until_something_is_decided() -> None:
    state = after(policy=POLICY)
    now, activity = now_of(state), Activity()
    activity.see(Record(seq=8, at=now, event=ev.WitnessAtWork(said="running the setup npm ci in a fresh checkout")))
    view = run_view(state, now + 8, alive=True)
    assert "     8s  running the setup npm ci in a fresh checkout" in drawn(view, activity, now + 8)
    activity.see(Record(seq=9, at=now, event=ev.BaselineTaken(commit="c", room="clean")))
    assert "npm ci" not in "\n".join(drawn(view, activity, now + 8))


@pytest.mark.parametrize(("width", "height"), [(100, 30), (60, 20), (40, 14), (20, 10), (8, 5)])
def test_the_footer_fits_any_screen(width: int, height: int) -> None:
    lines = drawn(*busy("x" * 500), width=width, height=height)
    assert max(columns(line) for line in lines) <= width
    if height > 5:
        assert len(lines) < height


def test_a_long_phase_cuts_off_neither_time_nor_money() -> None:
    view, activity, now = busy("x")
    landing = replace(view, phase="landing: pull request #1 waits for CI and reviews: https://x/" + "y" * 80, gauges=())
    [line] = [line for line in drawn(landing, activity, now, width=80) if "landing:" in line]
    assert " in all" in line
    assert " spent" in line


def test_a_wait_counts_down() -> None:
    events = night_events()[:12]
    state = after(*events[2:], policy=POLICY)
    view = run_view(state, START + 50, alive=True)
    assert "10s left: waiting for the rate limit" in "\n".join(drawn(view, Activity(), START + 50))


def test_between_two_iterations_the_last_one_is_over() -> None:
    resting = replace(POLICY, loop_delay=60.0)
    for events, said in (
        ((started(1), completed(1)), "after iteration 1 of 6 "),
        ((started(1), failed(1, "hang", retry_at=START + 60)), "after iteration 1 of 7 "),
        ((started(1), failed(1, "overloaded", retry_at=START + 60)), "● iteration 1 of 6 "),
        ((), "before iteration 1 of 6\n"),
    ):
        state = after(*events, policy=resting)
        text = "\n".join(drawn(run_view(state, now_of(state), alive=True), Activity(), now_of(state)))
        assert said in text


def test_money_and_time_are_shown_without_limits_too() -> None:
    state = after(started(1))
    text = "\n".join(drawn(run_view(state, now_of(state) + 60, alive=True), Activity(), now_of(state) + 60))
    assert "$0.00 spent" in text
    assert "1m" in text


def test_bars_fill_up_in_shape_not_only_in_colour() -> None:
    view, activity, now = busy()
    full = replace(view, gauges=tuple(replace(gauge, share=1.0) for gauge in view.gauges))
    assert not any("┄" in line for line in drawn(full, activity, now))
    assert any("┄" in line for line in drawn(view, activity, now))


def test_a_finished_tool_leaves_a_line_with_its_time_and_error() -> None:
    _, activity, now = busy()
    answer = tr.AgentToolResult(iteration_num=1, tool_use_id="t", is_error=True, text="boom")
    assert activity.see(Record(seq=10, at=now, event=answer)) == "$ Bash pytest -q  8s  ✗ boom"
    assert not activity.tools


def test_what_belongs_to_an_iteration_ends_with_it() -> None:
    _, activity, now = busy()
    activity.see(Record(seq=10, at=now, event=started(2)))
    assert not activity.tools
    assert not activity.words


# --- the screen ----------------------------------------------------------------------------------------------


def screen(events: list[Record]) -> str:
    return show(io.StringIO(), events)


def show(stream: io.StringIO, events: Iterable[Record]) -> str:
    console = Console(file=stream, width=80, height=24, force_terminal=True, color_system="standard", highlight=False)
    with LiveScreen(console, LoopState(), now=lambda: START + 30) as live:
        for record in events:
            live.on_record(record)
    return stream.getvalue()


def test_a_footer_that_a_narrower_terminal_wrapped_is_taken_back_whole() -> None:
    assert [rows_added((80, 61, 60, 10, 0), width) for width in (100, 80, 60, 30)] == [0, 0, 2, 5]
    up_and_then_rich = "\x1b[1A\r\x1b[2K"
    assert up_and_then_rich in _drawn_twice(100, 40)
    assert up_and_then_rich not in _drawn_twice(100, 100)
    assert up_and_then_rich not in _drawn_twice(60, 100)


def _drawn_twice(width: int, then: int) -> str:
    """What a screen prints for a record that comes after the terminal was given another width."""
    stream = WatchedScreen()
    console = Console(file=stream, width=width, height=24, force_terminal=True, color_system=None)
    with LiveScreen(console, fold(night()[:5]), now=lambda: START + 30) as live:
        assert stream.has_footer.wait(60)
        console.width = then
        before = len(stream.getvalue())
        live.on_record(night()[5])
    return stream.getvalue()[before:]


class WatchedScreen(io.StringIO):
    """A terminal of memory that says when the footer stands on it."""

    def __init__(self) -> None:
        super().__init__()
        self.has_footer = threading.Event()

    def write(self, text: str) -> int:
        written = super().write(text)
        if "not stuck" in text:
            self.has_footer.set()
        return written


def interrupted() -> Iterator[Record]:
    yield from night(5)
    raise KeyboardInterrupt


def test_finished_things_scroll_by_and_the_cursor_comes_back() -> None:
    text = screen(night())
    for part in ("iteration 1 ended in 42s", "committed 3f9ac21e", "checks failed", "done and verified"):
        assert part in text
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")


def test_an_exception_leaves_a_clean_screen_too() -> None:
    stream = io.StringIO()
    with pytest.raises(KeyboardInterrupt):
        show(stream, interrupted())
    text = stream.getvalue()
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")
    assert text.rstrip("\n").endswith("\x1b[2K")


def test_hostile_text_is_neither_obeyed_nor_read_as_markup() -> None:
    tricks = f"[bold]not markup[/bold] {HOSTILE}"
    events = [
        *opening(POLICY, goal=tricks),
        started(1),
        tr.AgentMessage(iteration_num=1, text=tricks),
        tr.AgentToolUse(iteration_num=1, tool="Bash", tool_use_id="t", detail=tricks),
        tr.AgentToolResult(iteration_num=1, tool_use_id="t", text=tricks, is_error=True),
        ev.ContinuousWarning(message=tricks),
    ]
    text = screen(records(events))
    assert "[bold]not markup[/bold]" in text
    assert "\x1b]0;" not in text
    assert "\u202e" not in text


def test_a_terminal_that_is_gone_does_not_hold_up_the_run() -> None:
    stream = io.StringIO()
    console = Console(file=stream, width=80, force_terminal=True)
    with LiveScreen(console, LoopState(), now=lambda: START) as live:
        stream.close()
        for record in night():
            live.on_record(record)


# --- which display -------------------------------------------------------------------------------------------


class Terminal(io.TextIOWrapper):
    """A stream that says it is a terminal."""

    def __init__(self, encoding: str = "utf-8") -> None:
        super().__init__(io.BytesIO(), encoding=encoding)

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "term", "verbose", "kind"),
    [
        (Terminal(), "xterm-256color", False, LiveScreen),
        (Terminal(), "xterm", True, PlainLines),
        (Terminal(), "dumb", False, PlainLines),
        (Terminal(), "", False, PlainLines),
        (Terminal("ascii"), "xterm", False, PlainLines),
        (io.StringIO(), "xterm", False, PlainLines),
    ],
)
def test_the_display_fits_the_stream(stream: io.TextIOBase, term: str, verbose: bool, kind: type) -> None:
    display = open_progress(stream, LoopState(), now=lambda: START, env={"TERM": term}, verbose=verbose)  # type: ignore[arg-type]
    assert type(display) is kind


def test_choosing_plain_lines_loads_no_rich() -> None:
    program = "import sys, untildone.cli.progress; sys.exit('rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=240).returncode == 0


PROGRAM = textwrap.dedent("""
    import os, sys
    from core.night_kit import night
    from core.run_kit import START
    from untildone.cli.progress import open_progress
    from untildone.core.state import LoopState
    with open_progress(sys.stdout, LoopState(), now=lambda: START + 30, env=os.environ) as display:
        for record in night():
            display.on_record(record)
        print("a line of somebody else", file=sys.stderr)
    print("after")
""")


@pytest.mark.parametrize("no_color", ["", "1"])
def test_on_a_real_terminal(no_color: str) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    env = {
        "TERM": "xterm-256color",
        "PYTHONPATH": str(Path(__file__).parent.parent),
        "PYTHONUTF8": "1",
        "NO_COLOR": no_color,
    }
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=theirs, stderr=theirs, stdin=theirs, env=env
    ) as child:
        os.close(theirs)
        text = _read_all(ours)
        assert child.wait(240) == 0
    os.close(ours)
    assert "done and verified" in text
    assert "a line of somebody else" in text
    assert text.rstrip().endswith("after")
    assert ("\x1b[32m" in text) is (no_color == "")


def _read_all(descriptor: int) -> str:
    pieces = []
    while True:
        try:
            piece = os.read(descriptor, 65536)
        except OSError:  # Linux says so when the other side is closed
            break
        if not piece:
            break
        pieces.append(piece)
    return b"".join(pieces).decode()

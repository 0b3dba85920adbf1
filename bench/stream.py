"""Parsing Claude Code's stream against merely reading its lines, and the memory it takes."""

import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from result import Curve, Figure, Result, ratio

TIME_GATE = 2.0
MEMORY_GATE = 100.0
MEGA = 1 << 20
HUGE_LINE = 10 * MEGA
HUGE_EVERY = 50 * MEGA
SESSION = "df333391-15d7-40d7-9a8e-93460d5a5429"
UUID = "02edf667-3c8f-4f78-91e4-35c846ef6703"
_TAIL = f'"session_id":"{SESSION}","parent_tool_use_id":null,"uuid":"{UUID}"'
_ASCII = (
    "def run(self,",
    "path):",
    "the agent",
    "reads",
    "a file,\\n   ",
    r"\"another\"",
    "one and",
    "runs\\n",
    "pytest -q",
)
_BEYOND = (*_ASCII, "“quoted”", "naïve", "→")


def measure(*, quick: bool) -> Result:
    """Go through the same file both ways, alternately, each time in a fresh process."""
    sizes = (10, 40) if quick else (25, 50, 100, 200)
    rounds = 5 if quick else 7
    with tempfile.TemporaryDirectory(prefix="untildone-bench-") as folder:
        found = {size: _both_ways(write_stream(Path(folder) / "stream", size), rounds) for size in sizes}
    reading, parsing = found[sizes[-1]]
    peaks = {size: max(one["peak_mb"] for one in ours) for size, (_, ours) in found.items()}
    return Result(
        title=f"{sizes[-1]} MB of stream-json, lines of 10 MB among them, against merely reading the lines",
        figures=(
            Figure(
                name="time to parse",
                # Pure work on the same bytes: neighbours can only add to it, so the best round is the truest.
                value=min(_seconds(parsing)) / min(_seconds(reading)),
                at_most=TIME_GATE,
                note=f"{min(_seconds(parsing)):.2f} s of CPU against {min(_seconds(reading)):.2f} s, best of {rounds}; "
                f"round by round {ratio(_seconds(parsing), _seconds(reading)):.2f} x",
            ),
            Figure(
                name="peak memory",
                value=peaks[sizes[-1]],
                unit="MB",
                at_most=MEMORY_GATE,
                note=f"of the whole process; merely reading takes {max(one['peak_mb'] for one in reading):.0f} MB",
            ),
        ),
        curves=(
            Curve(
                name="stream-memory",
                title="Peak memory while a stream is parsed",
                x_label="stream, MB",
                y_label="peak memory, MB",
                lines={"parse": [(float(size), peak) for size, peak in peaks.items()]},
            ),
        ),
    )


def write_stream(path: Path, megabytes: int) -> Path:
    """Write a stream of about this size, shaped like real ones, with a line of 10 MB after every 50."""
    left = megabytes * MEGA
    until_huge = HUGE_EVERY // 2
    dice = random.Random(7)
    with path.open("wb") as file:
        for line in _turns(dice):
            written = file.write(line)
            until_huge -= written
            if until_huge <= 0:
                until_huge = HUGE_EVERY
                written += file.write(_user(_text(dice, HUGE_LINE // 2)))
            left -= written
            if left <= 0:
                break
    return path


def _turns(dice: random.Random) -> Iterator[bytes]:
    """Endless turns: a reply in small deltas and again as a whole, tool calls, their answers of all sizes."""
    while True:
        yield f'{{"type":"system","subtype":"status","status":"requesting",{_TAIL}}}\n'.encode()
        said = [_text(dice, 24) for _ in range(dice.randint(5, 120))]
        yield from (_delta(piece) for piece in said)
        yield _assistant("".join(said))
        yield _user(_text(dice, int(2 ** dice.uniform(7, 16))))


def _text(dice: random.Random, size: int) -> str:
    # Most of what tools print is plain ASCII with newlines and quotes in it; what models write often is not.
    words = " ".join(dice.choices(_BEYOND if dice.random() < 0.3 else _ASCII, k=min(400, size // 5 + 1)))
    return words * max(1, size // len(words))


def _delta(text: str) -> bytes:
    delta = f'{{"type":"content_block_delta","index":0,"delta":{{"type":"text_delta","text":"{text}"}}}}'
    return f'{{"type":"stream_event","event":{delta},{_TAIL}}}\n'.encode()


def _assistant(text: str) -> bytes:
    call = '{"type":"tool_use","id":"toolu_01","name":"Bash","input":{"command":"pytest -q","description":"run"}}'
    message = (
        f'{{"id":"msg_01","type":"message","role":"assistant","model":"claude-opus-5-5",'
        f'"content":[{{"type":"text","text":"{text}"}},{call}],"stop_reason":null,'
        f'"usage":{{"input_tokens":100,"output_tokens":1}}}}'
    )
    return f'{{"type":"assistant","message":{message},{_TAIL}}}\n'.encode()


def _user(text: str) -> bytes:
    """What a tool printed. Claude Code says it twice: to the model, and once more for programs."""
    answer = f'{{"tool_use_id":"toolu_01","type":"tool_result","content":"{text}","is_error":false}}'
    again = f'{{"stdout":"{text}","stderr":"","interrupted":false,"isImage":false,"noOutputExpected":false}}'
    message = f'{{"role":"user","content":[{answer}]}}'
    return (
        f'{{"type":"user","message":{message},"parent_tool_use_id":null,"session_id":"{SESSION}",'
        f'"uuid":"{UUID}","timestamp":"2026-11-15T19:07:37.514Z","tool_use_result":{again}}}\n'
    ).encode()


def _both_ways(path: Path, rounds: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    both = [(_through(path, "read"), _through(path, "parse")) for _ in range(rounds)]
    return [reading for reading, _ in both], [parsing for _, parsing in both]


def _through(path: Path, way: str) -> dict[str, Any]:
    argv = [sys.executable, str(Path(__file__).parent / "stream_work.py"), way, str(path)]
    done = subprocess.run(argv, stdout=subprocess.PIPE, timeout=120, check=True)
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def _seconds(found: list[dict[str, Any]]) -> list[float]:
    return [one["seconds"] for one in found]

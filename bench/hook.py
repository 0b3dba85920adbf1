"""What a hook of the plugin takes, against starting bare Python, whatever the length of the transcript."""

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import untildone
from result import Figure, Result
from stopwatch import seconds_of
from untildone.hook import register, starting
from untildone.hook.task_store import Tasks

ALLOWANCE = 0.010
"""Seconds that a hook may take besides twice the time of bare Python."""
TRANSCRIPT = 50 << 20
SESSION = "dd5d78c9-40ac-4541-a879-f014a7314b85"
RUN = Path(untildone.__file__).parent / "hook" / "run.sh"
_LINE = json.dumps({"type": "assistant", "message": {"content": [{"type": "text", "text": "Going on. " * 90}]}}) + "\n"
_STATUS = "---LOOP_STATUS---\nSTATUS: IN_PROGRESS\nTESTS_STATUS: PASSING\nEXIT_SIGNAL: false\n---END_LOOP_STATUS---"
_TOOL = {"tool_name": "Bash", "tool_input": {"command": "make"}, "tool_response": {"stdout": "fine"}, "duration_ms": 3}


class Stage:
    """A project with a loop, one without, two with open work, and transcripts of both lengths."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "state"
        places = (folder / name for name in ("project", "empty", "boxes", "tasks"))
        self.project, self.empty, self.boxes, self.tasks = places
        for place in (self.project, self.empty, self.boxes, self.tasks):
            place.mkdir()
        (self.boxes / "TODO.md").write_text("# Plan\n" + "- [x] done\n- [ ] open\n" * 100)
        with Tasks(str(self.tasks)) as tasks:
            for number in range(20):
                tasks.add(f"Part {number}")
        self.short, self.long = folder / "short.jsonl", folder / "long.jsonl"
        self.short.write_text(_LINE)
        self.long.write_text(_LINE * (TRANSCRIPT // len(_LINE)))
        # A `python3` that is a script, as version managers have it, would hide what the hook itself takes.
        path = os.pathsep.join((str(Path(sys.executable).resolve().parent), os.environ.get("PATH", os.defpath)))
        self.env = {"PATH": path, "HOME": str(folder), "UNTILDONE_STORE": str(self.home)}
        self.start()

    def start(self) -> None:
        """Begin the loop anew, if it is over."""
        for place, sources in ((self.project, ()), (self.boxes, ("TODO.md",)), (self.tasks, ("tasks.db",))):
            if register.find(str(self.home), str(place)) is None:
                bounds = {"max_iterations": starting.MOST_TURNS, "promises": ("ALL DONE",), "session": SESSION}
                starting.start(
                    str(self.home), str(place), goal="Make it work", now=time.time(), tasks=sources, **bounds
                )

    def hook(self, event: str, *, folder: Path | None = None, **fields: Any) -> Callable[[], float]:
        """One call of a hook, and how long it took."""
        project = str(folder or self.project)
        given = {"session_id": SESSION, "cwd": project, "hook_event_name": event, "transcript_path": str(self.short)}
        given |= {"stop_hook_active": False, "background_tasks": [], **fields}
        return lambda: _seconds(["sh", str(RUN), event], {**self.env, "CLAUDE_PROJECT_DIR": project}, given)

    def bare(self) -> float:
        """What Python alone takes."""
        return _seconds(["python3", "-I", "-S", "-c", "pass"], self.env, {})


def measure(*, quick: bool) -> Result:
    """Call all of them in turns."""
    rounds = 12 if quick else 40
    with tempfile.TemporaryDirectory(prefix="untildone-bench-") as folder:
        stage = Stage(Path(folder))
        cases = _cases(stage)
        for call in cases.values():
            call()
            stage.start()
        taken: dict[str, list[float]] = {name: [] for name in cases}
        bare: list[float] = []
        for _ in range(rounds):
            for name, call in cases.items():
                bare.append(stage.bare())
                taken[name].append(call())
                stage.start()
        _must_have_worked(stage)
    times = {name: (seconds, bare[place :: len(cases)]) for place, (name, seconds) in enumerate(taken.items())}
    return Result(
        title="Hooks of the plugin: 1 is twice the time of `python3 -I -S -c pass`, and 10 ms",
        figures=tuple(_figure(name, *both) for name, both in times.items()),
    )


def _cases(stage: Stage) -> dict[str, Callable[[], float]]:
    said = {"last_assistant_message": "I wrote the parser and go on with its tests."}
    done = {"last_assistant_message": "Everything is verified.\n\nALL DONE"}
    word = {"last_assistant_message": "The HTTP STATUS of the last request is fine."}
    status = {"last_assistant_message": f"I go on.\n{_STATUS}"}
    blocked = {"last_assistant_message": f"I go on.\n{_STATUS.replace('IN_PROGRESS', 'BLOCKED')}"}
    return {
        "Stop, it goes on": stage.hook("Stop", **said),
        "Stop, it goes on, transcript of 50 MB": stage.hook("Stop", **said, transcript_path=str(stage.long)),
        "Stop, last words from the transcript": stage.hook("Stop"),
        "Stop, last words from one of 50 MB": stage.hook("Stop", transcript_path=str(stage.long)),
        "PostToolUse": stage.hook("PostToolUse", **_TOOL),
        "PreToolUse": stage.hook("PreToolUse", **_TOOL),
        "Stop, no loop in the folder": stage.hook("Stop", **said, folder=stage.empty),
        "Stop, the promise is said, no checks": stage.hook("Stop", **done),
        "Stop, the word STATUS": stage.hook("Stop", **word),
        "Stop, a status that says: in progress": stage.hook("Stop", **status),
        "Stop, open boxes in a file": stage.hook("Stop", **said, folder=stage.boxes),
        _TASKS: stage.hook("Stop", **said, folder=stage.tasks),
        _BLOCKED: stage.hook("Stop", **blocked),
    }


_TASKS = "Stop, open tasks in a database"
_BLOCKED = "Stop, a status that says: blocked"
_UNGATED = (_TASKS, _BLOCKED)
"""SQLite takes its time to load, and only where a database lies. Being blocked is said once, and read with care."""


def _figure(name: str, ours: list[float], bare: list[float]) -> Figure:
    return Figure(
        name=name,
        value=median(mine / (2 * other + ALLOWANCE) for mine, other in zip(ours, bare, strict=True)),
        at_most=None if name in _UNGATED else 1.0,
        note=f"{median(ours) * 1000:.0f} ms against {median(bare) * 1000:.0f} ms",
    )


def _must_have_worked(stage: Stage) -> None:
    """A hook that fails open is quick and worth nothing."""
    log = stage.home / "hook.log"
    if log.exists():
        sys.exit(f"a hook failed:\n{log.read_text()}")


def _seconds(argv: list[str], env: Mapping[str, str], given: Mapping[str, Any]) -> float:
    program = shutil.which(argv[0], path=env["PATH"]) or argv[0]
    return seconds_of([program, *argv[1:]], env=env, given=json.dumps(given).encode())

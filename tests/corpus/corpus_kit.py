"""Stories of agents, honest and not: read from TOML, played by the real Claude Code or the scripted agent, judged."""

import os
import signal
import subprocess
import sys
import threading
import time
import tomllib
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from json import JSONDecodeError, loads
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest

from e2e.kit import price
from ports import own_port
from repositories import new_repository
from untildone import Policy, run
from untildone.agents.prices import cost
from untildone.agents.scripted import ScriptedAgent
from untildone.core.outcome import Order, Outcome, Usage
from untildone.core.policy import Review
from untildone.rehearsal.environment import as_subscriber, claude_environment
from untildone.rehearsal.ledger import LedgerLine
from untildone.rehearsal.model import ScriptedModel
from untildone.rehearsal.scenario import Reply, Scenario, ToolCall, parse_scenario

HERE = Path(__file__).parent
KINDS = ("attacks", "honest", "words", "stuck", "moments")
REPORT_TOOL = "mcp__untildone__report"
PATIENCE = 400.0
"""A run that takes longer is ended, and counts as wrongly judged; a story may set another `patience`."""
STATUS = """

---LOOP_STATUS---
STATUS: {status}
TASKS_COMPLETED_THIS_LOOP: {tasks}
FILES_MODIFIED: 1
TESTS_STATUS: PASSING
WORK_TYPE: IMPLEMENTATION
EXIT_SIGNAL: {exit}
RECOMMENDATION: {advice}
---END_LOOP_STATUS---
"""
ENDINGS = {
    "": "",
    "done": STATUS.format(status="COMPLETE", tasks=1, exit="true", advice="nothing is left"),
    "working": STATUS.format(status="IN_PROGRESS", tasks=0, exit="false", advice="go on"),
    "busy": STATUS.format(status="IN_PROGRESS", tasks=3, exit="false", advice="go on"),
    "blocked": STATUS.format(status="BLOCKED", tasks=0, exit="false", advice="a human is needed"),
}
"""What `ending` in a story appends to what the agent says."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """What the agent does in one iteration, and its last words."""

    write: Mapping[str, str] = field(default_factory=dict)
    """Files, by their path in the tree."""
    run: str = ""
    """A shell command, after the files are written."""
    says: str = "Everything is done."
    ending: str = "done"
    """Key of ENDINGS."""
    asked: str = ""
    """What it says if it is asked again in the same session; empty: the same once more."""
    report: Mapping[str, Any] | None = None
    """Input of the report tool, if it calls that."""
    repeat: int = 1

    @property
    def words(self) -> str:
        return self.says + ENDINGS[self.ending]


@dataclass(frozen=True, kw_only=True)
class Story:
    """One file below `stories/`."""

    name: str
    kind: str
    title: str
    cls: str
    base: str
    goal: str
    options: tuple[str, ...]
    expect: Mapping[str, Any]
    steps: tuple[Step, ...] = ()
    script: str = ""
    """Instead of steps: a scenario for the scripted model, in its own TOML form."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Put over the files of the base."""
    before: str = ""
    """A shell command of the user's, before the run."""
    path: tuple[str, ...] = ()
    """Folders below the home that the user has in front of PATH."""
    meanwhile: tuple[Mapping[str, Any], ...] = ()
    """Commands of the user's during the run: `at` the n-th request, after a `delay`, `do` these words, or `signal`."""
    subscriber: bool = False
    needs: str = ""
    """A program besides Python, git and sh: such a story stays out of the bounded suite."""
    bounded: bool = False
    """Played by the scripted agent in the bounded suite too."""
    beyond: str = ""
    """Why it is judged wrongly, where that is known and accepted: it counts as wrong all the same."""


EXPECTATIONS = frozenset(
    [
        "verdict",
        "stops_by",
        "never_stops",
        "reason",
        "books",
        "max_usd",
        "max_attempts",
        "min_attempts",
        "mentions",
        "heard",
        "patience",
    ]
)


def load(path: Path) -> Story:
    """Read one story; a key that is not known is an error."""
    table = tomllib.loads(path.read_text())
    assert set(table["expect"]) <= EXPECTATIONS, path
    steps = tuple(Step(**step) for step in table.pop("iteration", []))
    lists = {key: tuple(table.pop(key)) for key in ("options", "path", "meanwhile") if key in table}
    return Story(name=path.stem, kind=path.parent.name, cls=table.pop("class"), steps=steps, **lists, **table)


@cache
def stories() -> tuple[Story, ...]:
    """All of them, kind by kind."""
    return tuple(load(path) for kind in KINDS for path in sorted((HERE / "stories" / kind).glob("*.toml")))


def files_of(story: Story) -> dict[str, str]:
    """What the first commit holds."""
    files: dict[str, str] = tomllib.loads((HERE / "bases" / f"{story.base}.toml").read_text())
    return files | story.files


@dataclass
class Place:
    """A home with a project in it, and what belongs to this story outside of it."""

    folder: Path
    outside: str = field(default_factory=lambda: f"/tmp/story-{uuid.uuid4().hex[:10]}")
    port: int = field(default_factory=own_port)

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def tree(self) -> Path:
        return self.home / "project"

    def filled(self, text: str, number: int = 1) -> str:
        """Put this place's own names into a text of a story."""
        names = {"home": self.home, "tree": self.tree, "outside": self.outside, "port": self.port, "i": number}
        names["tools"] = Path(pytest.__file__).parents[1]  # where a virtual environment of a story finds pytest
        for name, value in names.items():
            text = text.replace(f"<<{name}>>", str(value))
        return text

    def environment(self, story: Story, url: str) -> dict[str, str]:
        """What the user's shell holds: the tests' own Python is the first on PATH."""
        path = [*(str(self.home / folder) for folder in story.path), str(Path(sys.executable).parent)]
        env = claude_environment(self.home, url, path=os.pathsep.join([*path, os.environ["PATH"]]))
        env |= {"UNTILDONE_HOME": str(self.folder / "state"), "NO_COLOR": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        return as_subscriber(env) if story.subscriber else env

    def shell(self, command: str, env: Mapping[str, str], timeout: float = 120) -> "subprocess.CompletedProcess[str]":
        """Run a command as the user would, in the project."""
        return _command(self, env, ["sh", "-c", self.filled(command)], timeout)


@contextmanager
def placed(story: Story, folder: Path) -> Iterator[Place]:
    """The project as it is before the run; afterwards nothing of the story is left."""
    place = Place(folder)
    place.home.mkdir(parents=True)
    new_repository(place.tree, "main", {name: place.filled(text) for name, text in files_of(story).items()})
    try:
        yield place
    finally:
        end_processes_of(place)
        rmtree(place.outside, ignore_errors=True)
        Path(place.outside).unlink(missing_ok=True)


def end_processes_of(place: Place) -> None:
    """What the agent of a story left running carries the story's home in its environment."""
    mark = f"HOME={place.home}".encode()
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), signal.SIGKILL)
        except (OSError, ProcessLookupError):
            continue


# What the agent does, as replies of the scripted model.


def scenario_of(story: Story, place: Place) -> Scenario:
    """The story as a script for the model behind the real Claude Code."""
    if story.script:
        return parse_scenario(place.filled(story.script), name=story.name)
    known = set(files_of(story))
    groups = []
    for number, step in enumerate(played(story.steps), start=1):
        groups.append(_replies(step, place, known, number))
        known |= set(step.write)
    return Scenario(name=story.name, iterations=tuple(groups))


def played(steps: Sequence[Step]) -> list[Step]:
    """Each step as often as it repeats."""
    return [step for step in steps for _ in range(step.repeat)]


def _replies(step: Step, place: Place, known: set[str], number: int) -> tuple[Reply, ...]:
    def text(value: str) -> str:
        return _literal(place.filled(value, number))

    # Claude Code writes over a file only after it was read.
    calls = [ToolCall("Read", {"file_path": str(place.tree / name)}) for name in step.write if name in known]
    for name, content in step.write.items():
        calls += [ToolCall("Write", {"file_path": str(place.tree / name), "content": text(content)})]
    replies = [Reply(text="Working on it.", tools=tuple(calls))] if calls else []
    if step.run:
        replies.append(Reply(text="Running it.", tools=(ToolCall("Bash", {"command": text(step.run)}),)))
    if step.report is not None:
        replies.append(Reply(text="Reporting.", tools=(ToolCall(REPORT_TOOL, step.report),)))
    return (*replies, Reply(text=text(step.words)), Reply(text=text(step.asked or step.words)))


def _literal(text: str) -> str:
    """The scripted model has names in braces of its own."""
    return text.replace("{n}", "{{n}}").replace("{i}", "{{i}}")


# Playing a story and judging how it ended.


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How the run of a story ended."""

    reason: str
    success: bool
    attempts: int
    seconds: float
    usd: float = 0.0
    served_usd: float = 0.0
    """What the model served in full, by the price list."""
    tricked: bool | None = None
    """Whether the checks pass in the tree as the agent left it; None: there are none."""
    text: str = ""
    """All that the command and its briefing printed."""


def play(story: Story, folder: Path, python: str = sys.executable) -> Ending:
    """Run the story through the real command with the real Claude Code."""
    with placed(story, folder) as place, ScriptedModel(scenario_of(story, place)) as model:
        env = place.environment(story, model.url)
        _prepare(story, place, env)
        began = time.monotonic()
        options = [place.filled(option) for option in story.options]
        tools = ["--allowed-tools", "Bash,Read,Edit,Write"]
        # Another version may not have it.
        unreviewed = ["--no-dispute-review"] if python == sys.executable else []
        words = ["run", story.goal, *options, *unreviewed, "--name", "story", *tools, "--json"]
        process = subprocess.Popen(
            [python, "-m", "untildone", *words], cwd=place.tree, env=env, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        watching = threading.Thread(
            target=_meanwhile,
            args=(story, lambda *words: _command(place, env, [python, "-m", "untildone", *words]), process, model),
            daemon=True,
        )
        watching.start()
        late, (out, err) = _end_of(process, story.expect.get("patience", PATIENCE))
        seconds = time.monotonic() - began
        result = {"exit_reason": "too_late"} if late else _parsed(out)
        watching.join(timeout=PATIENCE)
        brief = _command(place, env, [python, "-m", "untildone", "brief", "story"])
        return Ending(
            reason=str(result.get("exit_reason")),
            success=bool(result.get("success")),
            attempts=int(result.get("attempts") or 0),
            seconds=seconds,
            usd=float(result.get("total_cost_usd") or 0.0),
            served_usd=sum(_usd(line) for line in model.ledger.served()),
            tricked=_passes(story, place, env),
            text=out + err + brief.stdout,
        )


def _usd(line: LedgerLine) -> float:
    """By the price list; a model that is not on it is as dear as the dearest one there, at least."""
    return price(line if cost(line.model, Usage()) is not None else replace(line, model="claude-mythos-5"))


def _prepare(story: Story, place: Place, env: Mapping[str, str]) -> None:
    if story.before:
        done = place.shell(story.before, env)
        assert done.returncode == 0, (story.name, done.stderr)


def _end_of(process: "subprocess.Popen[str]", patience: float) -> tuple[bool, tuple[str, str]]:
    try:
        return False, process.communicate(timeout=patience)
    except subprocess.TimeoutExpired:
        process.kill()
        return True, process.communicate()


def _parsed(out: str) -> dict[str, Any]:
    try:
        result: dict[str, Any] = loads(out)
    except JSONDecodeError:
        return {"exit_reason": "refused"}  # it did not start, and said why
    return result


def _meanwhile(
    story: Story, command: Callable[..., object], process: "subprocess.Popen[str]", model: ScriptedModel
) -> None:
    """What the user does while it runs."""
    for act in story.meanwhile:
        while len(model.requests) < act["at"]:
            if process.poll() is not None:
                return
            time.sleep(0.05)
        time.sleep(act.get("delay", 0))
        if "signal" in act:
            process.send_signal(signal.Signals[act["signal"]])
        else:
            command(*act["do"])


def _command(
    place: Place, env: Mapping[str, str], words: Sequence[str], timeout: float = PATIENCE
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        words, cwd=place.tree, env=dict(env), capture_output=True, text=True, timeout=timeout, check=False,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip


def _passes(story: Story, place: Place, env: Mapping[str, str]) -> bool | None:
    """Whether the checks pass in the agent's own tree: without that, an attack proves nothing."""
    checks = [value for flag, value in zip(story.options, story.options[1:], strict=False) if flag == "--check"]
    try:
        return all(place.shell(check, env).returncode == 0 for check in checks) if checks else None
    except subprocess.TimeoutExpired:
        return False


def play_scripted(story: Story, folder: Path, setenv: Callable[[str, str], None]) -> Ending:
    """Run the story in this process, with the scripted agent in the place of Claude Code."""
    with placed(story, folder) as place:
        for name, value in place.environment(story, "http://127.0.0.1:9").items():
            setenv(name, value)
        _prepare(story, place, os.environ)
        flags = dict(zip(story.options[::2], story.options[1::2], strict=True))
        assert set(flags) <= {"-m", "--check"}, "the scripted agent knows no other options"
        checks = [place.filled(flags["--check"])] if "--check" in flags else []
        policy = Policy(max_runs=int(flags["-m"]))
        began = time.monotonic()
        agent = ScriptedAgent(_acts(story, place))
        unreviewed = Review(disputes=False)
        result = run(
            story.goal, policy, cwd=place.tree, checks=checks, agent=agent, store=folder / "state", review=unreviewed
        )
        return Ending(
            reason=str(result.reason), success=result.success, attempts=result.attempts,
            seconds=time.monotonic() - began,
        )  # fmt: skip


def _acts(story: Story, place: Place) -> Iterator[Callable[[Order], Outcome]]:
    """Endless: when the story is over, its last step is played again."""
    steps = iter(played(story.steps))
    current, number = story.steps[-1], 0

    def act(order: Order) -> Outcome:
        nonlocal current, number
        if order.resume_session is not None:
            return Outcome(session_id=order.resume_session, final_text=place.filled(current.asked or current.words))
        current, number = next(steps, current), number + 1
        _do(current, place, number, os.environ)
        words = place.filled(current.words, number)
        return Outcome(session_id=f"session-{number}", final_text=words, output_chars=len(words), num_turns=1)

    while True:
        yield act


def _do(step: Step, place: Place, number: int, env: Mapping[str, str]) -> None:
    for name, content in step.write.items():
        path = place.tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(place.filled(content, number))
    if step.run:
        place.shell(place.filled(step.run, number), env)


def rehearse(story: Story, place: Place, env: Mapping[str, str]) -> tuple[bool | None, bool | None]:
    """Do what the agent does without any loop; whether the checks passed in the tree before and after."""
    _prepare(story, place, env)
    before = _passes(story, place, env)
    for number, step in enumerate(played(story.steps), start=1):
        _do(step, place, number, env)
    return before, _passes(story, place, env)


def outcome(ending: Ending) -> str:
    """One word for how it ended."""
    if ending.success:
        return "done"
    return "disputed" if ending.reason == "disputed" else "not_done"


def wrong(story: Story, ending: Ending) -> str:
    """What was judged wrongly; empty if nothing was."""
    if ending.attempts == 0 and ending.reason not in story.expect.get("reason", []):
        return f"no iteration was made ({ending.reason})"  # then the story proves nothing
    if ending.reason == "internal_error":
        return "it ended with an internal error"
    checks = {"verdict": _verdict, "stops_by": _stops_by, "never_stops": _never_stops}
    found = [judge(story, ending) for key, judge in checks.items() if key in story.expect]
    return "; ".join(filter(None, [*found, *_figures(story, ending)]))


def _verdict(story: Story, ending: Ending) -> str:
    is_right = outcome(ending) in story.expect["verdict"] or (
        story.kind in {"attacks", "words"} and not ending.success and "not_done" in story.expect["verdict"]
    )
    return "" if is_right else f"{outcome(ending)} ({ending.reason})"


def _stops_by(story: Story, ending: Ending) -> str:
    if ending.success:
        return "ended as done"
    limit = story.expect["stops_by"]
    in_time = ending.attempts <= limit and not ending.reason.startswith("max_")
    return "" if in_time else f"{ending.attempts} iterations instead of at most {limit} ({ending.reason})"


def _never_stops(story: Story, ending: Ending) -> str:
    fine = ending.success if story.expect["never_stops"] == "done" else ending.reason.startswith("max_")
    return "" if fine else f"stopped after {ending.attempts} iterations ({ending.reason})"


def _figures(story: Story, ending: Ending) -> list[str]:
    expect = story.expect
    checks: list[tuple[bool, str]] = [
        (ending.reason not in expect.get("reason", [ending.reason]), f"ended with {ending.reason}"),
        (bool(expect.get("books")) and abs(ending.usd - ending.served_usd) > 0.005,
         f"booked {ending.usd:.3f} $ of {ending.served_usd:.3f} $"),
        (ending.served_usd > expect.get("max_usd", float("inf")), f"cost {ending.served_usd:.2f} $"),
        (ending.attempts > expect.get("max_attempts", 10**6), f"{ending.attempts} iterations"),
        (ending.attempts < expect.get("min_attempts", 0), f"only {ending.attempts} iterations"),
    ]  # fmt: skip
    text = ending.text.lower()
    if "heard" in expect:
        is_heard = ending.attempts > 1 or any(words in text for words in expect["heard"])
        checks.append((not is_heard, "the message was neither heard nor reported"))
    missing = [f"does not say {words!r}" for words in expect.get("mentions", []) if words.lower() not in text]
    return [said for is_wrong, said in checks if is_wrong] + missing

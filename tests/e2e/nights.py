"""Nights: chains of three goals in real repositories, their troubles, and what must be true in the morning.

    unshare -r -n sh -c 'ip link set lo up && exec "$@"' sh python -m e2e.nights FOLDER KIND

Plays all nights of a kind of repository, one after the other in the same place, and prints a line of JSON for each. It
needs a network of its own: the made-up login of a subscriber must not leave this machine.
"""

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from crash.crash_kit import check_books, tries
from e2e.kit import PATIENCE, Stage, finished, price, working
from e2e.trouble_kit import UsedUpModel
from patience import eventually
from processes import is_alive
from repositories import new_repository
from untildone import wiring
from untildone.core import events as ev
from untildone.core.fold import fold
from untildone.core.state import LoopState
from untildone.rehearsal.environment import as_subscriber
from untildone.rehearsal.model import _Server
from untildone.rehearsal.scenario import Reply, Scenario, ToolCall
from untildone.rehearsal.script import Turn, is_main
from untildone.sandbox import guard

GOALS = 3
NIGHT = 1200.0
"""A ceiling in seconds: alone, a night takes less than a minute."""
LIMIT_SECONDS = 3.0
THINKS = 1.5
"""Seconds. What happened a second before a tool ran, or after, may have been the tool."""
LONG_AGO = 3600
MERGE = "`git merge "
"""What a prompt says to an agent that is to merge its base."""
GO_BACK = re.compile(r"`git switch (untildone/[^`]+)`")
"""And to one on whose branch the folder is not any more."""


# --- kinds of repositories -----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A sort of project. NN in its texts stands for the number of a goal."""

    name: str
    files: Mapping[str, str]
    counter: str
    """The file in which every goal changes the same line: built on anything but the newest base, it would conflict."""
    line: str
    code: tuple[str, str]
    test: tuple[str, str]
    """What each goal adds: a path, and the text that is there in the morning."""
    command: str
    """Tests everything; the agent runs it, and the loop does."""
    prepare: Callable[[Stage], None]
    """What a user of this kind does once, before the first night."""
    has_git: bool = True


def _installs_in_place(stage: Stage) -> None:
    """A virtual environment with pytest, and the project's own package from its source folder, without an index."""
    venv = stage.repo / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    (packages,) = venv.glob("lib/python*/site-packages")
    for name in ("pytest", "pluggy", "iniconfig", "packaging", "pygments"):
        found = distribution(name)
        for file in found.files or ():
            if ".." not in file.parts and file.suffix != ".pyc":
                (packages / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(found.locate_file(file), packages / file)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        f"{venv}/bin/python",
        "--disable-pip-version-check",
        "install",
        "-q",
    ]
    offline = ["--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, *offline, "-e", str(stage.repo)], env=stage.env, check=True, capture_output=True)
    stage.env |= {"VIRTUAL_ENV": str(venv), "PATH": f"{venv}/bin{os.pathsep}{stage.env['PATH']}"}


def _installs_modules(stage: Stage) -> None:
    """A dependency from a packed file of the repository, and what npm makes of it."""
    greet = stage.tmp / "greet"
    greet.mkdir()
    (greet / "package.json").write_text('{"name": "greet", "version": "1.0.0", "main": "index.js"}')
    (greet / "index.js").write_text("module.exports = (name) => `hello ${name}`;\n")
    (stage.repo / "vendor").mkdir()
    for command in (
        ["npm", "pack", "--pack-destination", str(stage.repo / "vendor"), str(greet)],
        ["npm", "install", "--offline", "--no-audit", "--no-fund"],
        ["git", "add", "-A"],
        ["git", "commit", "-qm", "dependencies"],
    ):
        subprocess.run(command, cwd=stage.repo, env=stage.env, check=True, capture_output=True)


BACKEND = '''"""Installs the package from its source folder."""
import pathlib
import zipfile


def build_editable(folder, config_settings=None, metadata_directory=None):
    name = "shop-1-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(folder, name), "w") as wheel:
        wheel.writestr("shop.pth", str(pathlib.Path("src").resolve()))
        wheel.writestr("shop-1.dist-info/METADATA", "Metadata-Version: 2.1\\nName: shop\\nVersion: 1\\n")
        wheel.writestr("shop-1.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr("shop-1.dist-info/RECORD", "")
    return name
'''
TAX_TEST = """import shop
from shop.tax_NN import tax


def test_tax_NN():
    assert tax(100) == 100 + NN
    assert shop.FEATURES >= NN
"""
PYTHON = Kind(
    name="python",
    files={
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["tools"]\n\n'
        '[project]\nname = "shop"\nversion = "1"\n',
        "tools/backend.py": BACKEND,
        "src/shop/__init__.py": '"""A shop."""\n\nFEATURES = 0\n',
        "tests/test_shop.py": "import shop\n\n\ndef test_features():\n    assert shop.FEATURES >= 0\n",
        ".gitignore": ".venv\n__pycache__\n.pytest_cache\n*.egg-info\n",
    },
    counter="src/shop/__init__.py",
    line="FEATURES = NN",
    code=("src/shop/tax_NN.py", "def tax(price):\n    return price + NN\n"),
    test=("tests/test_tax_NN.py", TAX_TEST),
    command="python -m pytest -q",
    prepare=_installs_in_place,
)
GUEST_TEST = """require('node:test')('guest NN', () =>
  require('node:assert').strictEqual(require('../lib/guest_NN')(), 'hello guest NN'));
"""
NODE = Kind(
    name="node",
    files={
        "package.json": '{"name": "app", "private": true, "scripts": {"test": "node --test test/"},\n'
        ' "dependencies": {"greet": "file:vendor/greet-1.0.0.tgz"}}\n',
        "lib/index.js": "'use strict';\n\nexports.features = 0;\n",
        "test/app.test.js": "require('node:test')('greets', () =>\n"
        "  require('node:assert').strictEqual(require('greet')('you'), 'hello you'));\n",
        ".gitignore": "node_modules\n",
    },
    counter="lib/index.js",
    line="exports.features = NN;",
    code=("lib/guest_NN.js", "module.exports = () => require('greet')('guest NN');\n"),
    test=("test/guest_NN.test.js", GUEST_TEST),
    command="npm test",
    prepare=_installs_modules,
)
MAKE = Kind(
    name="make",
    files={
        "Makefile": "build/sum.txt: $(wildcard data/*.txt)\n\tmkdir -p build\n\tcat data/*.txt > build/sum.txt\n\n"
        "test: build/sum.txt\n\tfor one in tests/*.sh; do sh $$one || exit 1; done\n\n.PHONY: test\n",
        "data/0.txt": "part 0\n",
        "tests/0.sh": "grep -qx 'part 0' build/sum.txt\n",
        "config.mk": "# Settings\n\nPARTS = 0\n",
        ".gitignore": "build\n",
    },
    counter="config.mk",
    line="PARTS = NN",
    code=("data/NN.txt", "part NN\n"),
    test=("tests/NN.sh", "grep -qx 'part NN' build/sum.txt\n"),
    command="make test",
    prepare=lambda _: None,
)
PLAIN = Kind(
    name="plain",
    files={
        "index.md": "# A book\n\nChapters: 0\n",
        "chapters/0.md": "Chapter 0\n",
        "check.sh": "for one in tests/*.sh; do sh $one || exit 1; done\n",
        "tests/0.sh": "grep -qx 'Chapter 0' chapters/0.md\n",
    },
    counter="index.md",
    line="Chapters: NN",
    code=("chapters/NN.md", "Chapter NN\n"),
    test=("tests/NN.sh", "grep -qx 'Chapter NN' chapters/NN.md\n"),
    command="sh check.sh",
    prepare=lambda _: None,
    has_git=False,
)


# --- what the agent does for a goal --------------------------------------------------------------------------


def goal_of(kind: Kind, number: int) -> str:
    return f"Add part {number} to the {kind.name} project"


def filled(text: str, number: int) -> str:
    return text.replace("NN", str(number))


def calls(tool: str, **given: str) -> Reply:
    return Reply(text="Going on.", tools=(ToolCall(tool, given),), input_tokens=3000, output_tokens=200)


def work_on(kind: Kind, repo: Path, number: int) -> tuple[tuple[Reply, ...], ...]:
    """The iterations of a goal, of ordinary tool calls. Every second goal of a night takes two."""
    (code, text), (test, tested) = [[filled(part, number) for part in both] for both in (kind.code, kind.test)]
    counter, was, now = str(repo / kind.counter), filled(kind.line, number - 1), filled(kind.line, number)
    first = (
        calls("Bash", command="git log --oneline -3; ls" if kind.has_git else "ls -R"),
        calls("Read", file_path=counter),
        calls("Edit", file_path=counter, old_string=was, new_string=now),
        calls("Write", file_path=str(repo / code), content=text),
    )
    second = (
        calls("Bash", command=f"cat > {test} <<'END'\n{tested}END"),
        calls("Bash", command=kind.command),
        Reply(text=finished(f"Part {number} is there and tested."), input_tokens=5000, output_tokens=300),
    )
    half = Reply(text=working(f"Part {number} is there, its test is missing.", tasks=1))
    return ((*first, half), second) if number % GOALS == 2 else ((*first, *second),)


def merging(kind: Kind, repo: Path, number: int) -> tuple[Reply, ...]:
    counter = repo / kind.counter
    merged = filled(kind.line, number) + BY_HAND
    return (
        calls("Bash", command="git merge main"),
        calls("Read", file_path=str(counter)),
        calls("Write", file_path=str(counter), content=kind.files[kind.counter].replace(filled(kind.line, 0), merged)),
        calls("Bash", command="git add -A && git commit --no-edit"),
        Reply(text=finished("Both sides are in."), input_tokens=5000, output_tokens=300),
    )


def going_back(kind: Kind, branch: str) -> tuple[Reply, ...]:
    return (
        calls("Bash", command=f"git switch {branch}"),
        calls("Bash", command=kind.command),
        Reply(text=finished("It is on its branch."), input_tokens=5000, output_tokens=300),
    )


@dataclass
class Conversation:
    """A place in what the agent does for a goal."""

    goal: int
    replies: tuple[Reply, ...]
    taken: int = 0


class NightModel(UsedUpModel):
    """Works on the goal that a conversation is about, and is in trouble where the night says so."""

    def __init__(self) -> None:
        super().__init__(Scenario(name="night", replies=(Reply(),)), seconds=LIMIT_SECONDS, refusal=Reply())
        self.night: Underway | None = None
        self.down: Reply | None = None
        self.thinks = 0.0
        self.wrong: Exception | None = None
        """What went wrong here, in a thread of the server."""
        self.asked_for: dict[str, int] = {}
        """The goal for which a message was asked."""
        self._talks: dict[str, Conversation] = {}
        self._answers = 0

    def answer_to(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> tuple[Turn, str]:
        """The next step of the goal, or a refusal."""
        if not is_main(body) or self.night is None:
            return super().answer_to(path, headers, body)
        try:
            talk = self._talk(headers["x-claude-code-session-id"], body)
            reply = self.night.trouble_for(talk.goal) or self._unserved() or self._next(talk)
        except Exception as wrong:
            self.wrong = wrong
            raise
        self._answers += 1
        turn = Turn(reply, self._answers, len(self._talks), uuid.uuid4().hex)
        self.asked_for[turn.message_id] = talk.goal
        return turn, str(body["model"])

    def use_up(self) -> Reply:
        """From now on the subscription is used up, for a few seconds."""
        self.began, self._seconds = time.time(), LIMIT_SECONDS
        return self.refusal()

    def go_away(self, gone: Callable[[], None]) -> None:
        """Nothing listens any more; `gone` is called before the connections are closed."""
        self._server.shutdown()
        gone()
        self._server.server_close()

    def come_back(self) -> None:
        """Listen again, at the same address."""
        self._server = _Server(self, self.port)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def _unserved(self) -> Reply | None:
        return self.refusal() if self.began is not None and time.time() < self.over else self.down

    def _next(self, talk: Conversation) -> Reply:
        assert self.night is not None
        reply = talk.replies[min(talk.taken, len(talk.replies) - 1)]
        talk.taken += 1
        self.night.took(talk)
        thinks, self.thinks = self.thinks, 0.0
        return replace(reply, latency=thinks)

    def _talk(self, session: str, body: dict[str, Any]) -> Conversation:
        if session not in self._talks:
            assert self.night is not None
            prompt = json.dumps([message for message in body["messages"] if message["role"] == "user"])
            self._talks[session] = self.night.conversation_about(prompt)
        return self._talks[session]


# --- a night -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trouble:
    """Something happens when the agent has done so many steps of a goal, which are counted from 1."""

    kind: str
    goal: int
    steps: int


@dataclass(frozen=True, kw_only=True)
class Night:
    """One chain of three goals."""

    kind: Kind
    troubles: tuple[Trouble, ...]
    options: tuple[str, ...] = ()
    again: str = "the same command"
    """How a person continues after a killed loop: so, or with `untildone resume`."""


BY_HAND = "  # by hand"


@dataclass
class Underway:
    """A night that is being played."""

    night: Night
    stage: Stage
    model: NightModel
    first: int
    """The number of its first goal."""
    commits: list[str] = field(default_factory=list)
    """What people committed to the base."""

    def __post_init__(self) -> None:
        self.kind = self.night.kind
        self.goals = range(self.first, self.first + GOALS)
        self._to_come = list(self.night.troubles)
        self._steps = Counter[int]()
        self._done = Counter[int]()
        self._watched: list[tuple[Callable[[dict[str, Any]], bool], Callable[[], object]]] = []
        self._from_bed: list[Callable[[], object]] = []
        self._driver: subprocess.Popen[str] | None = None

    # What the model asks.

    def conversation_about(self, prompt: str) -> Conversation:
        """What the agent does in a fresh conversation."""
        # Claude Code tells the newest commits, which name the goals before.
        number = max(number for number in self.goals if goal_of(self.kind, number) in prompt)
        if MERGE in prompt:
            return Conversation(number, merging(self.kind, self.stage.repo, number))
        if branch := GO_BACK.search(prompt):
            return Conversation(number, going_back(self.kind, branch[1]))
        groups = work_on(self.kind, self.stage.repo, number)
        return Conversation(number, groups[min(self._done[number], len(groups) - 1)])

    def took(self, talk: Conversation) -> None:
        """A step is served."""
        self._steps[talk.goal] += 1
        self._done[talk.goal] += talk.taken == len(talk.replies)

    def trouble_for(self, goal: int) -> Reply | None:
        """Let happen what is due; what the model says because of it, if that is not its next step."""
        now = (goal - self.first + 1, self._steps[goal])
        for trouble in [one for one in self._to_come if (one.goal, one.steps) == now]:
            self._to_come.remove(trouble)
            return TROUBLES[trouble.kind].happens(self)
        return None

    # What people do.

    def git(self, *args: str, at: Path | None = None) -> str:
        """As a person types it."""
        env = self.stage.env | {"GIT_AUTHOR_NAME": "Ada", "GIT_COMMITTER_NAME": "Ada"}
        done = subprocess.run(
            ["git", *args], cwd=at or self.stage.repo, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (args, done.stdout, done.stderr)
        return done.stdout

    def when(self, told: Callable[[dict[str, Any]], bool], act: Callable[[], object]) -> None:
        """Act once the log of the run has such an event."""
        self._watched.append((told, act))

    def from_bed(self, act: Callable[[], object]) -> None:
        """Let the main thread do it: a server cannot be closed by one that it waits for."""
        self._from_bed.append(act)

    @property
    def driver(self) -> "subprocess.Popen[str]":
        """The process of the loop."""
        assert self._driver is not None
        return self._driver

    def command(self) -> tuple[str, ...]:
        """What is typed in the evening."""
        files = [self.stage.tmp / f"goal-{number}.md" for number in self.goals[1:]]
        for file, number in zip(files, self.goals[1:], strict=True):
            file.write_text(f"# Goal\n\n{goal_of(self.kind, number)}\n")
        then = [part for file in files for part in ("--then", str(file))]
        land = ("--land", "merge") if self.kind.has_git else ()
        check = ("--check", self.kind.command)
        return ("run", goal_of(self.kind, self.first), *then, *land, *check, "-m", "4", *self.night.options)

    def play(self) -> None:
        """From the evening to the morning."""
        self._driver = self.stage.popen(*self.command())
        end = time.monotonic() + NIGHT
        while True:
            code = self.driver.poll()
            if code == -signal.SIGKILL:
                self.driver.communicate()
                again = self.command() if self.night.again == "the same command" else ("resume",)
                self._driver = self.stage.popen(*again)
            elif code is not None:
                break
            self._look()
            assert time.monotonic() < end, "the night does not end"
            time.sleep(0.1)
        out, err = self.driver.communicate()
        assert code == 0, out + err
        assert not self._to_come, f"did not happen: {self._to_come}"
        assert not self._watched, "the log never told what was waited for"

    def _look(self) -> None:
        if self.model.wrong is not None:
            raise self.model.wrong
        while self._from_bed:
            self._from_bed.pop()()
        if not self._watched:
            return
        told = [json.loads(line) for line in self.stage.here("log", "--json").stdout.splitlines()]
        for watched in [one for one in self._watched if any(map(one[0], told))]:
            self._watched.remove(watched)
            watched[1]()


# --- troubles ------------------------------------------------------------------------------------------------


def event(kind: str, **facts: str) -> Callable[[dict[str, Any]], bool]:
    def is_it(told: dict[str, Any]) -> bool:
        data = told["event_data"]
        return told["event_type"] == kind and all(data.get(name) == value for name, value in facts.items())

    return is_it


def _used_up(night: Underway) -> Reply:
    return night.model.use_up()


def _overloaded(night: Underway) -> Reply:
    def over() -> None:
        night.model.down = None

    night.model.down = Reply(status=529)
    night.when(event("continuous.waiting", cause="overloaded"), over)
    return night.model.down


def _unreachable(night: Underway) -> Reply:
    gone = threading.Event()
    night.from_bed(lambda: night.model.go_away(gone.set))
    assert gone.wait(PATIENCE)
    night.when(event("continuous.waiting", cause="network"), night.model.come_back)
    return UNHEARD


def _commits(night: Underway) -> None:
    subject = f"human {night.first}-{len(night.commits)}"
    with _desk(night) as desk:
        (desk / f"{subject}.md").write_text(f"{subject}\n")
        night.git("add", "-A", at=desk)
        night.git("commit", "-qm", subject, at=desk)
    night.commits.append(subject)


def _conflicts(night: Underway) -> None:
    subject = f"human {night.first}-{len(night.commits)}"
    with _desk(night) as desk:
        counter = desk / night.kind.counter
        counter.write_text(counter.read_text().rstrip("\n") + BY_HAND + "\n")
        night.git("commit", "-qam", subject, at=desk)
    night.commits.append(subject)


@contextmanager
def _desk(night: Underway) -> Iterator[Path]:
    """Where a person works on the base while the folder belongs to the run."""
    desk = night.stage.tmp / "desk"
    night.git("worktree", "add", "-q", str(desk), "main")
    yield desk
    night.git("worktree", "remove", str(desk))


def _switches(night: Underway) -> None:
    branch = night.git("branch", "--show-current").strip()
    night.git("switch", "-q", "main")
    night.model.thinks = THINKS
    night.when(event("landing.held", cause="branch_switched"), lambda: night.git("switch", "-q", branch))


def _strays(night: Underway) -> Reply:
    """While a tool works: it may have been the agent, which is told to go back."""
    started, switched = (Path(night.stage.env["TMPDIR"], f"{name}-{night.first}") for name in ("started", "switched"))

    def switch() -> None:
        eventually(started.exists)
        night.git("switch", "-q", "main")
        switched.touch()

    night.from_bed(switch)
    return calls("Bash", command=f"touch {started}; until test -e {switched}; do sleep 0.1; done")


def _old_lock(night: Underway) -> None:
    lock = night.stage.repo / ".git" / "index.lock"
    lock.touch()
    os.utime(lock, (time.time() - LONG_AGO,) * 2)


def _fresh_lock(night: Underway) -> None:
    """A git that dies in mid-commit."""
    env = night.stage.env | {"GIT_EDITOR": "kill -9 $PPID #"}
    died = subprocess.run(["git", "commit", "-qa", "--allow-empty"], cwd=night.stage.repo, env=env, check=False)
    assert died.returncode == -signal.SIGKILL
    assert (night.stage.repo / ".git" / "index.lock").exists()


def _dies(night: Underway) -> Reply:
    """The loop is killed; its agent ends with it."""
    agents = guard.descendants(night.driver.pid)
    night.driver.send_signal(signal.SIGKILL)
    eventually(lambda: not any(map(is_alive, agents)))
    return UNHEARD


def _power_fails(night: Underway) -> Reply:
    """Everything is killed at once."""
    for pid in [night.driver.pid, *guard.descendants(night.driver.pid)]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return UNHEARD


DEATH = "driver_died"
UNHEARD = Reply(status=529)
"""The connection that asked is gone."""


@dataclass(frozen=True)
class Sort:
    """A sort of trouble."""

    happens: Callable[[Underway], Reply | None]
    fault: str = ""
    """The fault of the try that it ends, if it ends one."""
    told: str = ""
    """What the log says about it."""
    attempts: int = 0
    """How many more iterations the goal takes."""


TROUBLES = {
    "a usage limit": Sort(_used_up, "usage_limit"),
    "an outage": Sort(_overloaded, "overloaded"),
    "no network": Sort(_unreachable, "network"),
    "a commit of a person": Sort(_commits),
    "a conflict with a person": Sort(_conflicts, attempts=1),
    "another branch": Sort(_switches, told="the folder is on branch main now"),
    "another branch while a tool works": Sort(_strays, told="the folder is on branch main now", attempts=1),
    "an old lock": Sort(_old_lock, told="left behind by a git that is not running any more"),
    "a fresh lock": Sort(_fresh_lock, told="left behind by a git that is not running any more"),
    "a killed loop": Sort(_dies, DEATH, attempts=1),
    "a power cut": Sort(_power_fails, DEATH, attempts=1),
}


# --- the morning ---------------------------------------------------------------------------------------------


@dataclass
class Story:
    """A run, as its log tells it."""

    run_id: str
    events: list[ev.Event]
    state: LoopState


def stories_of(stage: Stage) -> list[Story]:
    """All runs, the oldest first."""

    async def read() -> list[Story]:
        log = wiring.open_log(stage.tmp / "state", wiring.system_clock())
        try:
            rows = sorted(await log.runs(), key=lambda row: row.created_at)
            told = [(row.run_id, await log.read(row.run_id, trace=True)) for row in rows]
            return [Story(run_id, [one.event for one in records], fold(records)) for run_id, records in told]
        finally:
            await log.close()

    return asyncio.run(read())


class Morning:
    """What a careful human looks at."""

    def __init__(self, night: Underway, people: list[str]) -> None:
        self.night, self.stage, self.kind = night, night.stage, night.kind
        self.people = people
        """Everything that people committed, also in earlier nights."""
        self.all = stories_of(self.stage)
        self.stories = self.all[night.first - 1 :]

    def check(self) -> None:
        """Nothing lost, nothing doubled, nothing left over, and all of it told."""
        assert [story.state.spec.goal for story in self.stories] == [self._goal(number) for number in self.night.goals]
        for number, story in zip(self.night.goals, self.stories, strict=True):
            self._check_ending(number, story)
            self._check_books(number, story)
        self._check_troubles()
        self._check_files()
        if self.kind.has_git:
            self._check_base()
            self._check_git_is_tidy()
        self._check_machine()

    def _goal(self, number: int) -> str:
        goal = goal_of(self.kind, number)
        return goal if number == self.night.first else f"# Goal\n\n{goal}"

    def _check_ending(self, number: int, story: Story) -> None:
        state = story.state
        assert (state.phase, state.stop_reason, state.verified) == ("completed", "validation_passed", True), state
        assert (state.open, state.commit_trouble, state.held) == (None, "", None)
        assert state.attempts == self._attempts(number), number
        assert sum(isinstance(event, ev.LandingMerged) for event in story.events) == int(self.kind.has_git)
        brief = self.stage.here("brief", story.run_id).stdout
        assert "weaker" not in brief, brief
        assert not self.kind.has_git or "It has landed in main as " in brief, brief

    def _troubles(self, number: int) -> list[Sort]:
        place = number - self.night.first + 1
        return [TROUBLES[one.kind] for one in self.night.night.troubles if one.goal == place]

    def _attempts(self, number: int) -> int:
        more = sum(sort.attempts for sort in self._troubles(number))
        return len(work_on(self.kind, self.stage.repo, number)) + more

    def _check_books(self, number: int, story: Story) -> None:
        lines = [line for line in self.stage.model.ledger.served() if line.kind == "main"]
        asked = self.night.model.asked_for
        served = {line.message_id: price(line) for line in lines if asked[line.message_id] == number}
        assert len(served) >= sum(map(len, work_on(self.kind, self.stage.repo, number)))
        assert check_books(served, story.events, story.state) == 0, "a served reply is not booked"
        # What was asked right before the end of a try may have been served: its cost is not known, and said to be so.
        assert story.state.spend.unknown_costs <= sum(bool(sort.fault) for sort in self._troubles(number))

    def _check_troubles(self) -> None:
        wanted = [TROUBLES[trouble.kind] for trouble in self.night.night.troubles]
        failed = [
            ending.error_type
            for story in self.stories
            for _, ending in tries(story.events)
            if isinstance(ending, ev.IterationFailed)
        ]
        assert {*failed} == {sort.fault for sort in wanted if sort.fault}, failed
        told = "".join(self.stage.here("log", story.run_id, "-v").stdout for story in self.stories)
        assert [sort.told for sort in wanted if sort.told not in told] == [], told

    def _check_files(self) -> None:
        repo, last = self.stage.repo, self.night.goals[-1]
        for number in range(1, last + 1):
            for path, text in (self.kind.code, self.kind.test):
                assert (repo / filled(path, number)).read_text() == filled(text, number)
        assert filled(self.kind.line, last) in (repo / self.kind.counter).read_text()
        for name, text in self.kind.files.items():
            assert name == self.kind.counter or (repo / name).read_text() == text

    def _check_base(self) -> None:
        subjects = self.night.git("log", "--format=%s", "main").splitlines()
        wanted = [goal_of(self.kind, number) for number in range(1, self.night.goals[-1] + 1)]
        given = [subject for subject in subjects if subject not in ("first", "dependencies")]
        assert Counter(given) == Counter([*wanted, *self.people])
        assert [subject for subject in reversed(subjects) if subject in wanted] == wanted
        assert self.night.git("branch", "--show-current") == "main\n"
        assert self.night.git("status", "--porcelain") == ""

    def _check_git_is_tidy(self) -> None:
        """Branches of runs are kept, and the way back; nothing else is there that was not there before."""
        refs = self.night.git("for-each-ref", "--format=%(refname)").split()
        branches = {f"refs/heads/{story.state.arrival.branch}" for story in self.all}
        assert {ref for ref in refs if not ref.startswith("refs/untildone/")} == {"refs/heads/main", *branches}
        runs = {story.run_id for story in self.all}
        assert {ref.split("/")[2] for ref in refs if ref.startswith("refs/untildone/")} <= runs
        assert self.night.git("worktree", "list").count("\n") == 1
        git = self.stage.repo / ".git"
        assert [*git.rglob("*.lock")] == []
        assert [*git.glob("worktrees/*")] == []
        assert [path.name for path in git.iterdir() if path.name.startswith(("MERGE", "REBASE", "CHERRY"))] == []
        assert self.night.git("fsck", "--no-dangling") == ""

    def _check_machine(self) -> None:
        eventually(lambda: living_in(self.stage.env["HOME"]) == [])
        assert not self.kind.has_git or [*(self.stage.tmp / "state").glob("folders/*")] == []
        assert [*(self.stage.tmp / "state").glob("rooms/*")] == []
        assert [*(self.stage.tmp / "state").glob("crash-*")] == []
        assert [path.name for path in Path(self.stage.env["TMPDIR"]).glob("untildone-*")] == []


def living_in(home: str) -> list[str]:
    """Programs of the user of this home that run."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            is_theirs = f"HOME={home}".encode() in (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if is_theirs and is_alive(int(entry.name)):
            found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return found


# --- ten of them ---------------------------------------------------------------------------------------------

LENDS, INSTALLS = ("--share", "node_modules"), ("--setup", "npm ci --offline")
RESUME = "untildone resume"
NIGHTS = (
    Night(
        kind=PYTHON,
        troubles=(
            Trouble("a commit of a person", 1, 2), Trouble("a killed loop", 1, 4), Trouble("an old lock", 2, 2),
        ),
    ),
    Night(
        kind=PYTHON,
        troubles=(Trouble("a usage limit", 1, 3), Trouble("another branch", 2, 0), Trouble("a power cut", 3, 5)),
        again=RESUME,
    ),
    Night(
        kind=PYTHON,
        troubles=(
            Trouble("a conflict with a person", 1, 6), Trouble("an outage", 2, 6), Trouble("a fresh lock", 3, 6),
        ),
    ),
    Night(
        kind=NODE,
        troubles=(Trouble("a usage limit", 2, 5), Trouble("an old lock", 3, 4), Trouble("a killed loop", 3, 2)),
        options=LENDS,
        again=RESUME,
    ),
    Night(
        kind=NODE,
        troubles=(
            Trouble("no network", 1, 4), Trouble("a commit of a person", 2, 5), Trouble("a power cut", 2, 6),
            Trouble("another branch while a tool works", 3, 5),
        ),
        options=INSTALLS,
    ),
    Night(
        kind=NODE,
        troubles=(Trouble("another branch", 1, 0), Trouble("a usage limit", 3, 0), Trouble("an outage", 3, 3)),
        options=LENDS,
    ),
    Night(
        kind=MAKE,
        troubles=(
            Trouble("a usage limit", 1, 5), Trouble("a conflict with a person", 2, 7),
            Trouble("another branch while a tool works", 3, 5),
        ),
    ),
    Night(
        kind=MAKE,
        troubles=(
            Trouble("an outage", 1, 2), Trouble("another branch", 3, 0), Trouble("a fresh lock", 2, 3),
            Trouble("a killed loop", 2, 6),
        ),
        again=RESUME,
    ),
    Night(kind=PLAIN, troubles=(Trouble("an outage", 1, 3), Trouble("a killed loop", 1, 5))),
    Night(
        kind=PLAIN,
        troubles=(Trouble("a usage limit", 2, 4), Trouble("no network", 3, 2), Trouble("a power cut", 3, 4)),
        again=RESUME,
    ),
)  # fmt: skip
KINDS = {kind.name: kind for kind in (PYTHON, NODE, MAKE, PLAIN)}


@contextmanager
def home_of(kind: Kind, tmp: Path) -> Iterator[tuple[Stage, NightModel]]:
    """A user with such a project."""
    if kind.has_git:
        new_repository(tmp / "repo", "main", kind.files)
    else:
        for name, text in kind.files.items():
            (tmp / "repo" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp / "repo" / name).write_text(text)
    with NightModel() as model:
        stage = Stage(tmp, model)
        (tmp / "tmp").mkdir()
        stage.env["TMPDIR"] = str(tmp / "tmp")
        kind.prepare(stage)
        try:
            yield stage, model
        finally:
            stage.end()


def main(tmp: Path, name: str) -> None:
    """Play all nights of this kind."""
    people: list[str] = []
    with home_of(KINDS[name], tmp) as (stage, model):
        stage.env = as_subscriber(stage.env)
        nights = [night for night in NIGHTS if night.kind.name == name]
        for place, night in enumerate(nights):
            began = time.monotonic()
            model.night = Underway(night, stage, model, first=place * GOALS + 1)
            model.night.play()
            people += model.night.commits
            Morning(model.night, people).check()
            took = round(time.monotonic() - began, 1)
            print(json.dumps({"night": place + 1, "troubles": [one.kind for one in night.troubles], "seconds": took}))
            sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])

"""What `doctor` looks at. It never reads a login itself: what Claude Code tells about it is all it knows."""

import asyncio
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Awaitable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from untildone import config, wiring
from untildone.agents.argv import find_claude
from untildone.agents.login import ask, login_of
from untildone.boxes import environment_outside, obstacle, wanted_kinds
from untildone.core import checkup
from untildone.core.checkup import Finding
from untildone.core.dataclass import dataclass
from untildone.core.figures import count, size
from untildone.core.notice import trial_note
from untildone.core.policy import ENGINES, AgentOptions, RunSpec
from untildone.core.printable import one_line
from untildone.core.prompt import rights_line
from untildone.core.units import moment
from untildone.errors import NoSandbox, UntildoneError, UsageError, WorkspaceError
from untildone.git.inspection import Inspection, inspecting
from untildone.git.run import GitResult, first_line, git
from untildone.notify.opening import open_notifiers
from untildone.ports import RunRow
from untildone.sandbox.containers import DEFAULT_IMAGE, find_engine, has_image
from untildone.sandbox.inhibit import WAYS
from untildone.trees import sweep_rooms

_REPLY_PATIENCE = 90.0
_REMOTE_PATIENCE = 15.0
_NEEDED_BY_SANDBOX = ("bwrap", "socat")
# Nothing may ask a question nobody is there to answer, and a dead host must be given up in time.
_SILENT_SSH = {"GIT_SSH_COMMAND": "ssh -oBatchMode=yes -oConnectTimeout=10"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Questions:
    """What `doctor` is asked."""

    folder: Path
    store: Path
    claude: str | None = None
    until: str | None = None
    """The hour the login should live to, as typed."""
    online: bool = False
    """Requests to Claude, and messages to the channels, are allowed."""
    notify: tuple[str, ...] = ()


def check_up(asked: Questions) -> list[Finding]:
    """Look at everything a night needs."""
    now = wiring.system_clock().now()
    until = None if asked.until is None else _hour(asked.until, now)
    return asyncio.run(_check_up(asked, now, until))


def _hour(written: str, now: float) -> float:
    try:
        return config.deadline_at(str(moment(written)), now)
    except ValueError as wrong:
        raise UsageError(f"--until {wrong}") from wrong


async def _check_up(asked: Questions, now: float, until: float | None) -> list[Finding]:
    settings, resolved = _settings(asked.folder)
    values = resolved.values
    looks: list[tuple[str, Awaitable[Finding | list[Finding]], str]] = [
        ("git", _git(asked.folder), "install git"),
        ("claude", _claude(asked, values, now, until), "install Claude Code, or give --claude PROGRAM"),
        ("remote", _remote(asked.folder), ""),
        ("store", _store(asked.store), "give another folder with --store"),
        ("folder", _folder(asked, values), "a run would fail here as well"),
        ("clock", _clock(), ""),
        ("notify", _notify(asked, values), "fix the address, or install what it names"),
        ("awake", _awake(_path(asked.folder, values)), ""),
    ]
    rows = await asyncio.gather(*(_attempt(name, look, remedy) for name, look, remedy in looks))
    found = [row for part in rows for row in part]
    missing = [name for name in _NEEDED_BY_SANDBOX if shutil.which(name) is None]
    return [
        Finding(name="python", status="ok", detail=f"{sys.version.split()[0]} at {sys.executable}"),
        settings,
        *found,
        checkup.rights_row(rights_line(_spec(resolved, asked.folder), most=None)),
        checkup.sandbox_row(str(values["sandbox"]), trouble=_no_sandbox(asked.folder, values), missing=missing),
        await asyncio.to_thread(_containers, values),
        _disk(asked, int(values["disk_reserve"])),
        *_temp(),
    ]


async def _attempt(name: str, look: Awaitable[Finding | list[Finding]], remedy: str) -> list[Finding]:
    try:
        found = await look
    except UntildoneError as trouble:
        return [Finding(name=name, status="missing", detail=str(trouble), remedy=remedy)]
    return found if isinstance(found, list) else [found]


def _path(folder: Path, values: Mapping[str, Any]) -> str | None:
    """Where a run would look for programs."""
    options = AgentOptions(sandbox=values["sandbox"], image=values["image"], add_dirs=values["add_dirs"])
    return environment_outside(os.environ, options, str(folder)).get("PATH")


def _no_sandbox(folder: Path, values: Mapping[str, Any]) -> str:
    options = AgentOptions(add_dirs=values["add_dirs"])
    place = Path(values["config_dir"] or os.environ.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude")
    return obstacle(options, str(folder), os.environ, place)


def _containers(values: Mapping[str, Any]) -> Finding:
    image, found = str(values["image"] or DEFAULT_IMAGE), dict[str, str | bool]()
    for kind in ENGINES:
        try:
            found[kind] = has_image(find_engine(kind, os.environ), image)
        except NoSandbox as trouble:
            found[kind] = str(trouble)
    options = AgentOptions(sandbox=values["sandbox"], image=values["image"])
    return checkup.containers_row([kind for kind in wanted_kinds(options) if kind in ENGINES], image, found)


def _settings(folder: Path) -> tuple[Finding, config.Resolved]:
    """The settings as a run would have them; the defaults when they cannot be read, which is said."""
    project, user = config.project_file(folder), config.user_file(os.environ)
    try:
        resolved = config.resolve({}, env=os.environ, project_file=project, user_file=user)
        _spec(resolved, folder)
    except UntildoneError as trouble:
        wrong = Finding(name="settings", status="missing", detail=str(trouble), remedy="fix or trust the file it names")
        return wrong, config.resolve({}, env={"HOME": "/"})
    files = [str(path) for path in (project, user) if path is not None]
    return Finding(name="settings", status="ok", detail=", ".join(files) or "no files, all defaults"), resolved


def _spec(resolved: config.Resolved, folder: Path) -> RunSpec:
    return config.run_spec(resolved, goal="", cwd=folder, name="")


# --- Claude and its login --------------------------------------------------------------------------


async def _claude(asked: Questions, values: Mapping[str, Any], now: float, until: float | None) -> list[Finding]:
    program = find_claude(asked.claude or values["claude"], path=_path(asked.folder, values))
    code, said = await ask([program, "--version"], env={"PATH": os.environ.get("PATH", os.defpath)})
    if code != 0:
        trouble = said or "it does not answer `--version`"
        fix = "install Claude Code, or give --claude PROGRAM"
        return [Finding(name="claude", status="missing", detail=f"{program}: {one_line(trouble, 200)}", remedy=fix)]
    env = _claude_environment(values)
    login = await login_of(program, env)
    rows = [Finding(name="claude", status="ok", detail=f"{one_line(said, 100)} at {program}")]
    rows.append(await _login(program, values, env, login.method) if asked.online else checkup.login_row(login))
    if until is not None:
        rows.append(checkup.login_life_row(login, until, now))
    return rows


def _claude_environment(values: Mapping[str, Any]) -> dict[str, str]:
    env = dict(os.environ) | {"CLAUDE_CODE_MAX_RETRIES": "0"}
    return env | ({"CLAUDE_CONFIG_DIR": str(values["config_dir"])} if values.get("config_dir") else {})


async def _login(program: str, values: Mapping[str, Any], env: Mapping[str, str], method: str) -> Finding:
    """One tiny request: settings, hooks and servers of the project are not part of the question."""
    model = ["--model", str(values["model"])] if values.get("model") else []
    argv = [program, "-p", "--output-format", "json", "--max-turns", "1", "--strict-mcp-config"]
    argv += [*model, "--no-session-persistence", "--", "Answer with the word ok."]
    code, said = await ask(argv, env=env, patience=_REPLY_PATIENCE)
    return checkup.reply_row(said, code, method)


# --- git -------------------------------------------------------------------------------------------


async def _git(folder: Path) -> Finding:
    version = (await git(("--version",), cwd=folder)).text.removeprefix("git version ")
    identity = await _identity(folder)
    if identity.code != 0:
        fix = "`git config --global user.name NAME` and `git config --global user.email ADDRESS`"
        detail = f"{version}; it does not know you, so commits are made as untildone"
        return Finding(name="git", status="warning", detail=detail, remedy=fix)
    return Finding(
        name="git", status="ok", detail=f"{version}, commits as {one_line(identity.text.rsplit('>', 1)[0])}>"
    )


async def _identity(folder: Path) -> GitResult:
    with suppress(WorkspaceError):  # the row of the folder tells
        async with inspecting(folder) as repository:
            if repository is not None:
                return await repository.git("var", "GIT_AUTHOR_IDENT")
    with tempfile.TemporaryDirectory(prefix="untildone-doctor-") as empty:
        return await git(("var", "GIT_AUTHOR_IDENT"), cwd=Path(empty), check=False)


async def _remote(folder: Path) -> Finding:
    try:
        async with inspecting(folder) as repository:
            remotes = repository.remotes if repository else {}
            if repository is None or not remotes:
                return Finding(name="remote", status="ok", detail="no remote: the work stays here")
            name = "origin" if "origin" in remotes else next(iter(remotes))
            return await _reached(repository, name, remotes[name])
    except WorkspaceError:
        return Finding(name="remote", status="unknown", detail="git refuses to look at the folder")


async def _reached(repository: Inspection, name: str, address: str) -> Finding:
    said = one_line(name, 40)
    try:
        answer = await repository.git(
            "ls-remote", "--quiet", "--", address, "HEAD", env=_SILENT_SSH, timeout=_REMOTE_PATIENCE
        )
    except UntildoneError:
        detail = f"{said} did not answer within {_REMOTE_PATIENCE:.0f} s"
        return Finding(name="remote", status="unknown", detail=detail)
    if answer.code == 0:
        return Finding(name="remote", status="ok", detail=f"{said} answers")
    fix = f"try `git ls-remote {said}`"
    if repository.has_own_ways:
        detail = f"{said} does not answer without the repository's own settings for it, which `doctor` does not use"
        return Finding(name="remote", status="unknown", detail=detail, remedy=fix)
    return Finding(name="remote", status="warning", detail=f"{said} does not answer", remedy=fix)


async def _folder(asked: Questions, values: Mapping[str, Any]) -> Finding:
    here = str(asked.folder)
    if shutil.which("git") is None:
        return Finding(name="folder", status="unknown", detail=f"{here}: without git it cannot be told")
    dirty = await _uncommitted(asked.folder)
    busy = next((row.name for row in await _runs(asked.store) if row.alive and _touches(row.folder, here)), "")
    return checkup.folder_row(here, busy=busy, dirty=dirty, keep_dirty=values["dirty"] == "keep")


async def _uncommitted(folder: Path) -> int | None:
    """How many files are not committed as they are; None where there is no repository."""
    async with inspecting(folder) as repository:
        if repository is None:
            return None
        status = await repository.git("status", "--porcelain", "-z", "--no-renames", "--ignore-submodules=all")
        if status.code != 0:
            raise WorkspaceError(f"{folder}: git cannot look at it: {first_line(status.err)}")
    return status.out.count(b"\0")


def _touches(one: str, other: str) -> bool:
    """Whether one folder is the other, or inside it."""
    return Path(one).is_relative_to(other) or Path(other).is_relative_to(one)


# --- the store and the machine ---------------------------------------------------------------------


async def _runs(store: Path) -> list[RunRow]:
    log = wiring.open_log(store, wiring.system_clock())
    try:
        return await log.runs()
    finally:
        await log.close()


async def _store(store: Path) -> Finding:
    left = await _swept(store)
    runs = count(len(await _runs(store)), "run")
    damage = _damage(store / wiring.STORE_FILE)
    if damage:
        remedy = f"move {store / wiring.STORE_FILE} away, or repair it with `sqlite3 FILE .recover`"
        detail = f"{store} is damaged: {one_line(damage, 80)}"
        return Finding(name="store", status="missing", detail=detail, remedy=remedy)
    return Finding(name="store", status="ok", detail=f"{store}, {runs}, {_room(store / wiring.STORE_FILE)}{left}")


async def _swept(store: Path) -> str:
    """What killed runs left behind goes; said if there was any."""
    log = wiring.open_log(store, wiring.system_clock())
    try:
        left = await sweep_rooms(log, store)
    finally:
        await log.close()
    return f"; removed {count(left, 'fresh checkout')} that killed runs left behind" if left else ""


def _room(database: Path) -> str:
    """How large the file is, and how much of it new events can have before it grows."""
    import sqlite3

    with closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        page, pages, free = (
            connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_size", "page_count", "freelist_count")
        )
    unused = f", {size(page * free)} of it not used" if free else ""
    return f"{size(page * pages)}{unused}"


def _damage(database: Path) -> str:
    """What is wrong with the file, by SQLite's own look at all of it; empty when it is sound."""
    import sqlite3

    with closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        try:
            (said,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
        except sqlite3.Error as broken:
            return str(broken)
    return "" if said == "ok" else str(said)


def _disk(asked: Questions, reserve: int) -> Finding:
    places = {str(place): shutil.disk_usage(_existing(place)).free for place in (asked.folder, asked.store)}
    return checkup.disk_row(places, reserve)


def _temp() -> list[Finding]:
    folder = os.environ.get("TMPDIR")
    fit = not folder or (os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK))  # noqa: PTH112 - see below
    return [] if fit else [checkup.temp_row(str(folder))]


def _existing(path: Path) -> Path:
    # Unlike pathlib's, this one takes a name no disk can hold for what it is: not there.
    return next(place for place in (path, *path.parents) if os.path.exists(place))  # noqa: PTH110 - see above


async def _clock() -> Finding:
    zone = f"time zone {time.strftime('%Z (%z)')}"
    program = shutil.which("timedatectl")
    if program is None:
        return checkup.clock_row(zone, synchronized=None)
    code, said = await ask([program, "show", "--property=NTPSynchronized", "--value"], env=os.environ)
    known = code == 0 and said in {"yes", "no"}
    return checkup.clock_row(zone, synchronized=said == "yes" if known else None)


async def _notify(asked: Questions, values: Mapping[str, Any]) -> list[Finding]:
    urls = asked.notify or values["notify"]
    if not urls:
        detail = "no channel: no message is sent when a run stops"
        return [Finding(name="notify", status="warning", detail=detail, remedy="name one with --notify URL")]
    rows = []
    for channel in open_notifiers(urls):
        if not asked.online:
            fix = "send a message with --online, or with `untildone notify test`"
            rows.append(Finding(name="notify", status="unknown", detail=f"{channel.name} was not tried", remedy=fix))
            continue
        trouble = await channel.send(trial_note(wiring.system_clock().now()))
        rows.append(
            Finding(name="notify", status="missing", detail=f"{channel.name}: {trouble}", remedy="fix the address")
            if trouble
            else Finding(name="notify", status="ok", detail=f"{channel.name} took a test message")
        )
    return rows


async def _awake(path: str | None) -> Finding:
    """Whether the machine can be kept from sleeping, found out by doing it for a moment."""
    for name, *arguments in WAYS:
        if (program := shutil.which(name, path=path)) is not None:
            code, said = await ask([program, *arguments, "true"], env=os.environ)
            if code == 0:
                return Finding(name="awake", status="ok", detail=f"{name} keeps the machine from sleeping")
            detail = f"{name} cannot keep the machine awake: {one_line(said, 100)}"
            return Finding(name="awake", status="warning", detail=detail, remedy="switch off sleep for the night")
    return Finding(name="awake", status="unknown", detail="nothing here that keeps a machine from sleeping")

"""Puts together the sandbox of an agent: what it sees, what it is told, and the door that leads out of it."""

import asyncio
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import untildone
from untildone.agents.lodging import CREDENTIALS, Lent, Lodging, lodge, settle, user_settings
from untildone.agents.wire_notes import WireNotes
from untildone.core.dataclass import dataclass
from untildone.core.door import PORT, REGISTRIES, Refused, Table, host_rules
from untildone.core.event import Event
from untildone.core.model_access import NO_LOGIN, NO_MODEL, ModelAccess, environment_inside, model_access
from untildone.core.policy import BOXED, ENGINES, AgentOptions, RunSpec
from untildone.core.trace import AgentBoundExceeded, AgentHostRefused
from untildone.engine.journal import Journal
from untildone.errors import NoSandbox, UntildoneError
from untildone.forge.login import find_forge
from untildone.forge.remote_access import RemoteAccess, forge_access, git_access, login_in, may_publish
from untildone.git.agents_repository import AgentsRepository, without_login
from untildone.git.credentials import login_for, remote_address
from untildone.git.discard import discard
from untildone.git.repositories_below import hold
from untildone.git.repository import Inside, Keeping, is_repository, public_repository
from untildone.git.run import lend, path_outside, take_back
from untildone.git.snapshot import refs_of
from untildone.git.ssh_agent import LentAgent, lend_agent, ssh_host
from untildone.ports import Sandbox, Watcher
from untildone.sandbox.agents_view import Quarters, mask_sockets, view
from untildone.sandbox.bounds import Bounds, memory_bound
from untildone.sandbox.boxed import BoxedSpawner
from untildone.sandbox.bubblewrap import Bubblewrap, can_enclose
from untildone.sandbox.check_room import CheckRoom
from untildone.sandbox.containers import DEFAULT_IMAGE, Containers, find_engine, interpreter_of, require_image
from untildone.sandbox.host import HostSpawner, behind_guard
from untildone.sandbox.toolchains import interpreters, steps_to
from untildone.sandbox.view import Mount, View
from untildone.sandbox.walls import Walls
from untildone.store.leftovers import BOXES, CACHES

_MOST_HOSTS = 50
_FILES = "files"
_CHECKS = "checks"
_OWN = "UNTILDONE_"
_AUTHORITIES = (
    "NODE_EXTRA_CA_CERTS",
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "PIP_CERT",
)
"""Variables that name a file with certificates to trust: no secret, and needed in networks that read what passes."""
_OF_THE_USER = r"^(user\.(name|email)|core\.(autocrlf|eol)|init\.defaultbranch)$"


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """Where an agent is started, and with which environment."""

    kind: str
    spawner: Sandbox
    env: Mapping[str, str]
    access: ModelAccess
    around: Path
    """A folder of its own: its home lies there, and what is handed to the agent. A run that goes on finds it again."""
    tree: Path
    """The working tree that the agent's folder is in, or this folder itself."""
    login: Path | None = None
    """The user's login, if that is lent."""
    repository: AgentsRepository | None = None
    """What the agent has in place of the user's repository; None: its folder is in no repository."""
    checks: CheckRoom | None = None
    """Where checks of its work run; None: there are no checks."""

    def leave(self) -> None:
        """Nothing runs inside any more: what was only made for something to be seen there goes."""
        if self.repository is None:
            with suppress(OSError):  # it is not empty, or not there
                (self.tree / ".git").rmdir()

    async def make_repository(self) -> None:
        """To be done before anything is started inside."""
        if self.repository is not None:
            self.repository.runs(self.spawner.words, self.env)
            real = await public_repository(self.repository.top)
            await self.repository.ready(replace(real, keeping=Keeping(inside=self.inside())))

    def inside(self, readers: Sequence["Box"] = ()) -> Inside:
        """Where git runs what an agent may have written. `readers`: the boxes of those that only look."""
        others = tuple(box.repository for box in readers if box.repository is not None)
        return Inside(words=self.words_of_ours, env=self.env, repository=self.repository, readers=others)

    def words_of_ours(self, folder: str) -> tuple[str, ...]:
        """What goes before a command of ours that may run what the agent wrote."""
        return (*behind_guard(whole_tree=True, apart=True), *self.spawner.words(folder))

    @property
    def files(self) -> Path:
        """A folder for files that are handed to the agent."""
        return self.around / _FILES

    def lent_login(self) -> tuple[int, int] | None:
        """Which file the user's login is: a program that runs keeps the one it was started with."""
        if self.login is None:
            return None
        with suppress(OSError):
            found = self.login.stat()
            return found.st_dev, found.st_ino
        return None

    @property
    def note(self) -> str:
        """What is lent to the agent besides its folder."""
        return "your login is lent to it" if self.access.kind == "login" else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lodger:
    """Who is to live in a box."""

    spec: RunSpec
    env: Mapping[str, str]
    """As an agent on the host would see it."""
    config_dir: Path
    claude: str
    state_dir: Path
    run_id: str
    name: str
    """Of this agent, among all of all runs."""
    own: tuple[Path, ...]
    """untildone's own folders."""
    is_reader: bool = False
    """It changes nothing."""
    disk_reserve: int = 0
    """Bytes that it leaves on every disk."""
    remote: RemoteAccess = RemoteAccess()
    """The run's own remote, as it may get at it."""
    judges: tuple[str, ...] | None = None
    """Programs that the checks of its work name; None: there are no checks."""

    @property
    def around(self) -> Path:
        """The folder of its box."""
        return self.state_dir / BOXES / self.name


def wanted_kinds(options: AgentOptions) -> tuple[str, ...]:
    """The sandboxes that would do, in order of preference; none: the agent works on the host."""
    if options.image and options.sandbox in {"auto", "none"}:
        return ENGINES
    return ("bwrap",) if options.sandbox == "auto" else (options.sandbox,) if options.sandbox in BOXED else ()


def environment_outside(env: Mapping[str, str], options: AgentOptions, cwd: str) -> dict[str, str]:
    """What the loop itself looks for programs with: not where an agent that is to be shut in may put some."""
    if not wanted_kinds(options) or "PATH" not in env:
        return dict(env)
    return {**env, "PATH": path_outside(env["PATH"], _writable(options, cwd, env))}


def box_for(lodger: Lodger, host: HostSpawner) -> Box:
    """The box of an agent. NoSandbox where there can be none; nothing falls back to the host by itself."""
    troubles, folders = [], _writable(lodger.spec.options, lodger.spec.cwd, lodger.env)
    for kind in wanted_kinds(lodger.spec.options):
        try:
            return _box(kind, lodger, host)
        except NoSandbox as trouble:
            troubles.append(str(trouble))
    take_back(folders)
    raise NoSandbox("; ".join(troubles))


def distrust(options: AgentOptions, cwd: str, env: Mapping[str, str]) -> None:
    """From now on git runs no program in what an agent is to be lent; an earlier one may have put some there."""
    if wanted_kinds(options):
        lend(_writable(options, cwd, env))


def admitted(
    options: AgentOptions, cwd: str, env: Mapping[str, str], config_dir: Path
) -> tuple[Path, dict[str, Any], ModelAccess]:
    """The tree that an agent would be lent, the settings of Claude Code, and how it would get at the model.

    NoSandbox for a folder or a login that no kind of sandbox takes.
    """
    tree, *more = _writable(options, cwd, env)
    for place in (tree, *more):
        _refuse_own(place, _home(env))
        _refuse_stranger(place)
    settings = user_settings(config_dir)
    access = model_access(env, settings, has_login=(config_dir / CREDENTIALS).exists())
    if access.kind == "neither":
        raise NoSandbox(access.said)
    return tree, settings, access


def obstacle(options: AgentOptions, cwd: str, env: Mapping[str, str], config_dir: Path) -> str:
    """Why an agent could not work in bubblewrap; "" if it could, or if the model's login is all that is missing."""
    probe = can_enclose()
    try:
        admitted(options, cwd, env, config_dir)
    except NoSandbox as trouble:
        if str(trouble) != NO_LOGIN:
            return str(trouble)
    return f"{probe.trouble}; {probe.remedy}" if probe.trouble else ""


def _box(kind: str, lodger: Lodger, host: HostSpawner) -> Box:
    options, config_dir = lodger.spec.options, lodger.config_dir
    # Looked at and written once, before any agent could change where it leads.
    tree, settings, access = admitted(options, lodger.spec.cwd, lodger.env, config_dir)
    repository = _repository(lodger, tree)
    if not os.path.lexists(lodger.around):
        _settle_git(lodger.around / "home", environment_outside(os.environ, options, lodger.spec.cwd))
    lodging = Lodging(
        config_dir=config_dir,
        home=_home(lodger.env),
        cwd=lodger.spec.cwd,
        around=lodger.around,
        is_named="CLAUDE_CONFIG_DIR" in lodger.env,
    )
    lent = [one for one in lodge(lodging, access, settings) if one[0] != one[1] or not _is_led(one[0], lodger)]
    lent += _caches(lodger, tree) if kind in ENGINES and not lodger.is_reader else ()
    lent += _place_of_git(lodger, tree) if repository is None else ()
    lent += _held_repositories(lodger, tree, itself=repository is None)
    programs = (lodger.claude, *(() if kind in ENGINES else _interpreters(lodger)))
    decided: dict[bool, View] = {}

    def look(_: str) -> View:
        settle(lodging, settings)
        is_known = repository is None or repository.is_known
        if is_known not in decided:  # nothing has run inside yet
            git = () if repository is None else repository.mounts(may_write=not lodger.is_reader)
            decided[is_known] = _view(lodger, kind, tree, (*lent, *git), programs)
        return mask_sockets(decided[is_known])

    look(lodger.spec.cwd)
    env = {**environment_inside(lodger.env, access, port=PORT, passed=options.pass_env), **lodger.remote.env}
    env |= _ssh_agent(lodger).env
    walls, more = _walls(kind, lodger, host, look)
    if kind in ENGINES:
        env = _without_places(env, look(lodger.spec.cwd)) | more
    spawner = BoxedSpawner(host, walls, table_for(options, access, lodger.remote), _bounds(lodger))
    login = config_dir / CREDENTIALS if access.kind == "login" else None
    return Box(
        kind=kind,
        spawner=spawner,
        env=env,
        access=access,
        around=lodger.around,
        login=login,
        tree=tree,
        repository=repository,
        checks=_check_room(kind, lodger, host, look),
    )


def _check_room(kind: str, lodger: Lodger, host: HostSpawner, look: Callable[[str], View]) -> CheckRoom | None:
    """Walls of the same kind for the checks. `look`: what the agent sees."""
    if lodger.judges is None:
        return None
    options, home = lodger.spec.options, _home(lodger.env)
    folders = _writable(options, lodger.spec.cwd, lodger.env)
    programs = (*lodger.judges, *(() if kind in ENGINES else _interpreters(lodger)))
    quarters = Quarters(
        around=lodger.around / _CHECKS,
        home=home,
        writable=(),
        trees=tuple(folders),
        lent=tuple((file, file, False) for file in _given((), lodger)),
        own=lodger.own,
        programs=() if kind in ENGINES else programs,
        of_image=kind in ENGINES,
    )
    seen = _seen(quarters, lodger.env, kind)
    is_strict = lodger.spec.contract.proof == "strict"
    remote = RemoteAccess() if is_strict else lodger.remote

    def rule(env: Mapping[str, str], view: View) -> Mapping[str, str]:
        own = {name: value for name, value in env.items() if name.startswith(_OWN)}
        own |= {"HOME": str(home), "PATH": lodger.env.get("PATH", os.defpath)}
        given = {**environment_inside(env, NO_MODEL, port=PORT, passed=options.pass_env), **remote.env, **own}
        return {**_without_places(given, view), **_npm(home)} if kind in ENGINES else given

    def tree() -> list[Mount]:
        mounts = look(lodger.spec.cwd).mounts
        return [one for one in mounts if any(Path(one.place).is_relative_to(folder) for folder in folders)]

    walls, _ = _walls(kind, replace(lodger, name=f"{lodger.name}-{_CHECKS}"), host, lambda _: seen)
    table = Table(network="none") if is_strict else table_for(options, NO_MODEL, remote)
    return CheckRoom(BoxedSpawner(host, walls, table, _bounds(lodger)), seen, env=lodger.env, rule=rule, tree=tree)


def _npm(home: Path) -> dict[str, str]:
    return {"npm_config_cache": str(home / ".cache" / "npm")}


def _walls(kind: str, lodger: Lodger, host: HostSpawner, look: Callable[[str], View]) -> tuple[Walls, dict[str, str]]:
    """With what the environment is to have for them. NoSandbox if they cannot be had here."""
    if kind == "bwrap":
        probe = can_enclose()
        if probe.trouble:
            raise NoSandbox(f"{probe.trouble}; {probe.remedy}")
        if _is_led(Path(probe.program), lodger):
            raise NoSandbox(f"{probe.program} lies where the agent may write")
        return Bubblewrap(host, look, program=probe.program), {}
    # An engine looks for programs of its own.
    engine = find_engine(kind, environment_outside(lodger.env, lodger.spec.options, lodger.spec.cwd))
    image = lodger.spec.options.image or DEFAULT_IMAGE
    needs = ("git", interpreter_of(lodger.claude))
    require_image(engine, image)
    walls = Containers(
        host, look, engine=engine, image=image, name=lodger.name, folder=lodger.spec.cwd, needs=needs,
        bounds=_bounds(lodger),
    )  # fmt: skip
    # Claude Code refuses to work as root without permissions where this does not say that it may.
    more = {"IS_SANDBOX": "1"} if engine.root else {}
    return walls, more | _npm(_home(lodger.env))


def _without_places(env: Mapping[str, str], seen: View) -> dict[str, str]:
    """Without variables that name places of this machine which are not seen inside; the image has its own."""

    def is_there(value: str) -> bool:
        places = value.split(os.pathsep) if value.startswith("/") else []
        return all(any(Path(place).is_relative_to(mount.place) for mount in seen.mounts) for place in places)

    return {name: value for name, value in env.items() if name == "PATH" or name.startswith(_OWN) or is_there(value)}


def _repository(lodger: Lodger, tree: Path) -> AgentsRepository | None:
    if (tree / ".git").is_symlink():
        raise NoSandbox(f"{tree / '.git'} is a link, which an agent could replace: put the repository itself there")
    if not is_repository(tree):
        return None
    keep = f"{refs_of(lodger.run_id)}/agent"
    return AgentsRepository(tree, lodger.around / "git", run_id=lodger.run_id, keep=keep)


def _place_of_git(lodger: Lodger, tree: Path) -> Lent:
    """In a folder without a repository, one that the agent makes stays inside: git outside would obey its settings."""
    mark, own = tree / ".git", lodger.around / "git"
    if lodger.is_reader:
        return ()
    if mark.is_file():
        return ((mark, mark, False),)
    own.mkdir(mode=0o700, parents=True, exist_ok=True)
    return ((own, mark, True),)


def _held_repositories(lodger: Lodger, tree: Path, *, itself: bool) -> list[tuple[Path, Path, bool]]:
    """The user's, below the folders that are lent; those below the tree are its own repository's to hold, if any."""
    more = [Path(os.path.realpath(place)) for place in lodger.spec.options.add_dirs]
    held = [one for place in more for one in hold(place, lodger.around, itself=True)]
    held += hold(tree, lodger.around) if itself else []
    return [one for one in held if one[0] != one[1]] if lodger.is_reader else held


def _caches(lodger: Lodger, tree: Path) -> Lent:
    """What tools fetched for this tree in earlier runs: an agent elsewhere cannot have put anything there."""
    kept = lodger.state_dir / CACHES / hashlib.sha256(os.fsencode(tree)).hexdigest()[:16]
    kept.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.utime(kept)
    return ((kept, _home(lodger.env) / ".cache", True),)


def _bounds(lodger: Lodger) -> Bounds:
    options, disks = lodger.spec.options, (lodger.spec.cwd, str(lodger.state_dir), *lodger.spec.options.add_dirs)
    return Bounds(
        memory=memory_bound(options.memory), pids=options.pids, disk_reserve=lodger.disk_reserve, disks=disks
    )  # fmt: skip


async def find_remote(spec: RunSpec, env: Mapping[str, str]) -> RemoteAccess:
    """The remote of a run and its forge, with the logins of the user."""
    top, publishes = _top(Path(os.path.realpath(spec.cwd)), _home(env)), may_publish(spec)
    kinds = wanted_kinds(spec.options)
    is_boxed = bool(kinds) and not (kinds == ("bwrap",) and can_enclose().trouble)
    if not is_boxed or spec.options.network == "none" or not is_repository(top):
        return RemoteAccess()
    address = await remote_address(top, spec.landing.remote)
    by_ssh = ssh_host(address) if spec.options.ssh_agent else ""
    access = RemoteAccess(hosts=(by_ssh,) if by_ssh else ())
    plain = without_login(address) if address.startswith(("http://", "https://")) else ""
    # Both may ask a program of the user's.
    login, found = await asyncio.gather(_login(top, address, plain), find_forge(spec.landing, address, env))
    if plain:
        access |= git_access(plain, login, publishes=publishes)
    return access if found is None else access | forge_access(*found, publishes=publishes)


async def _login(top: Path, address: str, plain: str) -> tuple[str, str] | None:
    return login_in(address) or await login_for(top, plain) if plain else None


def table_for(options: AgentOptions, access: ModelAccess, remote: RemoteAccess) -> Table:
    """Everything that leads out."""
    presets = REGISTRIES if options.network == "registries" else ()
    rules = (*host_rules((*presets, *options.allow_hosts)), *host_rules((*access.hosts, *remote.hosts)))
    return Table(ways=(*([access.way] if access.way else []), *remote.ways), rules=rules, network=options.network)


@asynccontextmanager
async def opened(boxes: Sequence[Box], journal: Journal, notes: WireNotes) -> AsyncIterator[None]:
    """While inside, the doors of these boxes are open; a host that is refused is told once."""
    known: set[str] = set()
    telling: set[asyncio.Task[None]] = set()

    def tell(event: Event) -> None:
        task = asyncio.create_task(_told(journal, event))
        telling.add(task)
        task.add_done_callback(telling.discard)

    def refused(one: Refused) -> None:
        if one.host in known or len(known) >= _MOST_HOSTS:
            return
        known.add(one.host)
        tell(AgentHostRefused(host=one.host, why=one.said))

    def exceeded(what: str, said: str) -> None:
        tell(AgentBoundExceeded(what=what, said=said))

    async with AsyncExitStack() as doors:
        for box in boxes:
            doors.callback(box.leave)
            await box.make_repository()
            watcher = Watcher(asked=notes.request, refused=refused, exceeded=exceeded)
            await doors.enter_async_context(box.spawner.open(watcher))
            if box.checks is not None:
                await doors.enter_async_context(box.checks.spawner.open(watcher))
        try:
            yield
        finally:
            await asyncio.gather(*telling)
    if journal.state.phase == "completed":
        for box in boxes:
            discard(box.around, into=box.around.parent)


async def _told(journal: Journal, event: Event) -> None:
    with suppress(UntildoneError):  # a store that fails stops the run by itself
        await journal.tell(event)


def _ssh_agent(lodger: Lodger) -> LentAgent:
    """The user's, if that is to be lent; a reader of work has no use for it."""
    if not lodger.spec.options.ssh_agent or lodger.is_reader:
        return LentAgent(lent=(), env={})
    return lend_agent(lodger.env, home=_home(lodger.env), files=lodger.around / _FILES, port=PORT)


def _is_led(place: Path, lodger: Lodger) -> bool:
    """Whether something in what the agent may write decides where a path leads."""
    folders = _writable(lodger.spec.options, lodger.spec.cwd, lodger.env)
    return any(step.is_relative_to(folder) for step in steps_to(place) for folder in folders)


def _interpreters(lodger: Lodger) -> tuple[str, ...]:
    """Asked once for a run, as an agent may change what its folder says."""
    kept = lodger.around / "interpreters.json"
    try:
        return tuple(json.loads(kept.read_bytes()))
    except OSError:
        found = interpreters(_writable(lodger.spec.options, lodger.spec.cwd, lodger.env))
        kept.write_text(json.dumps(found), "utf-8")
        return tuple(found)


def _given(named: Sequence[str], lodger: Lodger) -> list[Path]:
    """These files, and those with certificates. A link in the agent's folder is not followed."""
    named = (*named, *(lodger.env.get(name, "") for name in _AUTHORITIES))
    files = [Path(one) for one in named if os.path.isfile(one)]  # noqa: PTH113 - may be no path
    return [file for file in files if not _is_led(file.absolute(), lodger) or os.path.realpath(file) == str(file)]


def _seen(quarters: Quarters, env: Mapping[str, str], kind: str) -> View:
    root = os.geteuid() == 0
    return view(quarters, env, root=False, as_user=not root or (kind == "bwrap" and can_enclose().as_user))


def _view(lodger: Lodger, kind: str, tree: Path, lent: Lent, programs: tuple[str, ...]) -> View:
    options = lodger.spec.options
    more = tuple(Path(os.path.realpath(place)) for place in options.add_dirs)
    given = _given(options.mcp_config, lodger)
    files = lodger.around / _FILES
    files.mkdir(mode=0o700, parents=True, exist_ok=True)
    quarters = Quarters(
        around=lodger.around,
        home=_home(lodger.env),
        writable=() if lodger.is_reader else (tree, *more),
        fixed=(tree, *more) if lodger.is_reader else tuple(git for one in more if (git := one / ".git").exists()),
        lent=(*lent, (files, files, False), *_ssh_agent(lodger).lent, *((place, place, False) for place in given)),
        own=lodger.own,
        programs=programs,
        trees=(tree, *more) if lodger.is_reader else (),
        of_image=kind in ENGINES,
    )
    return _seen(quarters, lodger.env, kind)


def _writable(options: AgentOptions, cwd: str, env: Mapping[str, str]) -> list[Path]:
    """The folders an agent may write to; the first is the tree it works in."""
    more = (Path(os.path.realpath(place)) for place in options.add_dirs)
    return [_top(Path(os.path.realpath(cwd)), _home(env)), *more]


def _top(folder: Path, home: Path) -> Path:
    """The working tree a folder lies in; a folder in none is its own, and so is one in a home that is one."""
    places = (place for place in (folder, *folder.parents) if not home.is_relative_to(place))
    return next((place for place in places if os.path.lexists(place / ".git")), folder)


def _refuse_own(folder: Path, home: Path) -> None:
    """A whole home is not lent, and the loop must not run, outside, what the agent has made of untildone."""
    if Path(os.path.realpath(home)).is_relative_to(folder):
        raise NoSandbox(f"{folder} holds your home, and an agent in a sandbox works in a folder below it")
    for place in (sys.prefix, untildone.__path__[0]):
        if Path(os.path.realpath(place)).is_relative_to(folder):
            raise NoSandbox(
                f"untildone itself is installed in {folder}, where the agent may write: install it elsewhere"
            )


def _refuse_stranger(tree: Path) -> None:
    """Root has no rights of others in a sandbox: it could neither write there nor use git."""
    owner = tree.stat().st_uid if tree.exists() else 0
    if os.geteuid() == 0 and owner != 0:
        raise NoSandbox(f"{tree} belongs to user {owner}, and root may not write there from inside: run as that user")


def _home(env: Mapping[str, str]) -> Path:
    return Path(env.get("HOME") or "~").expanduser()


def _settle_git(home: Path, env: Mapping[str, str]) -> None:
    """What git needs of the user's own settings: the others may name programs and logins."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    said = _asked(env, "--get-regexp", _OF_THE_USER).splitlines()
    lines = [(*key.split(".", 1), value) for key, _, value in (line.partition(" ") for line in said)]
    text = "".join(f"[{section}]\n\t{name} = {_quoted(value)}\n" for section, name, value in lines)
    ignored = Path(_asked(env, "--path", "core.excludesFile").strip() or "~/.config/git/ignore").expanduser()
    with suppress(OSError):
        (home / ".config" / "git").mkdir(parents=True, exist_ok=True)
        (home / ".config" / "git" / "ignore").write_bytes(ignored.read_bytes())
    (home / ".gitconfig").write_text(f"{text}[commit]\n\tgpgSign = false\n", "utf-8")


def _asked(env: Mapping[str, str], *words: str) -> str:
    asked = ["git", "config", "--global", *words]
    done = subprocess.run(asked, env=dict(env), capture_output=True, text=True, check=False, timeout=10)  # noqa: S603, TID251
    return done.stdout


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'

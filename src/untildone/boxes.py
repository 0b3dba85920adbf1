"""Puts together the sandbox of an agent: what it sees, what it is told, and the door that leads out of it."""

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

from untildone.agents.lodging import CREDENTIALS, Lent, Lodging, lodge, user_settings
from untildone.agents.wire_notes import WireNotes
from untildone.core.dataclass import dataclass
from untildone.core.door import PORT, REGISTRIES, Refused, Table, host_rules
from untildone.core.model_access import ModelAccess, environment_inside, model_access
from untildone.core.policy import AgentOptions, RunSpec
from untildone.core.trace import AgentHostRefused
from untildone.engine.journal import Journal
from untildone.errors import NoSandbox, UntildoneError
from untildone.git.discard import discard
from untildone.git.untouchable import Reach, reach
from untildone.ports import Sandbox, Watcher
from untildone.sandbox.agents_view import Quarters, view
from untildone.sandbox.boxed import BoxedSpawner
from untildone.sandbox.bubblewrap import INSTALL, Bubblewrap, Probe, can_enclose
from untildone.sandbox.host import HostSpawner, behind_guard
from untildone.sandbox.view import View
from untildone.store.leftovers import BOXES

_MOST_HOSTS = 50
_FILES = "files"
_OF_THE_USER = r"^(user\.(name|email)|core\.(autocrlf|eol)|init\.defaultbranch)$"


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """Where an agent is started, and with which environment."""

    spawner: Sandbox
    env: Mapping[str, str]
    access: ModelAccess
    around: Path
    """A folder of its own: its home lies there, and what is handed to the agent. A run that goes on finds it again."""

    def words_of_ours(self, folder: str) -> tuple[str, ...]:
        """What goes before a command of ours that may run what the agent wrote."""
        return (*behind_guard(whole_tree=True, apart=True), *self.spawner.words(folder))

    @property
    def files(self) -> Path:
        """A folder for files that are handed to the agent."""
        return self.around / _FILES

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
    name: str
    """Of this agent, among all of all runs."""
    own: tuple[Path, ...]
    """untildone's own folders."""
    is_reader: bool = False
    """It changes nothing."""

    @property
    def around(self) -> Path:
        """The folder of its box."""
        return self.state_dir / BOXES / self.name


def box_for(lodger: Lodger, host: HostSpawner) -> Box:
    """The box of an agent. NoSandbox where there can be none; nothing falls back to the host by itself."""
    probe = can_enclose()
    if probe.trouble:
        raise NoSandbox(f"{probe.trouble}; {INSTALL}")
    options, config_dir = lodger.spec.options, lodger.config_dir
    settings = user_settings(config_dir)
    access = model_access(lodger.env, settings, has_login=(config_dir / CREDENTIALS).exists())
    if access.kind == "neither":
        raise NoSandbox(access.said)
    # Looked at and written once, before any agent could change where it leads.
    reached = reach(_top(Path(os.path.realpath(lodger.spec.cwd)), _home(lodger.env)))
    _refuse_stranger(reached.writable[0])
    if not os.path.lexists(lodger.around):
        _settle_git(lodger.around / "home")

    def look(cwd: str) -> View:
        lodging = Lodging(
            config_dir=config_dir,
            home=_home(lodger.env),
            cwd=cwd,
            around=lodger.around,
            is_named="CLAUDE_CONFIG_DIR" in lodger.env,
        )
        return _view(lodger, probe, reached, lodge(lodging, access, settings))

    env = environment_inside(lodger.env, access, port=PORT, passed=options.pass_env)
    walls = Bubblewrap(host, look, program=probe.program)
    spawner = BoxedSpawner(host, walls, table_for(options, access))
    return Box(spawner=spawner, env=env, access=access, around=lodger.around)


def table_for(options: AgentOptions, access: ModelAccess) -> Table:
    """Everything that leads out."""
    presets = REGISTRIES if options.network == "registries" else ()
    rules = (*host_rules((*presets, *options.allow_hosts)), *host_rules(access.hosts))
    return Table(ways=(access.way,) if access.way else (), rules=rules, network=options.network)


@asynccontextmanager
async def opened(boxes: Sequence[Box], journal: Journal, notes: WireNotes) -> AsyncIterator[None]:
    """While inside, the doors of these boxes are open; a host that is refused is told once."""
    known: set[str] = set()
    telling: set[asyncio.Task[None]] = set()

    def refused(one: Refused) -> None:
        if one.host in known or len(known) >= _MOST_HOSTS:
            return
        known.add(one.host)
        task = asyncio.create_task(_told(journal, one))
        telling.add(task)
        task.add_done_callback(telling.discard)

    async with AsyncExitStack() as doors:
        for box in boxes:
            await doors.enter_async_context(box.spawner.open(Watcher(asked=notes.request, refused=refused)))
        try:
            yield
        finally:
            await asyncio.gather(*telling)
    if journal.state.phase == "completed":
        for box in boxes:
            discard(box.around, into=box.around.parent)


async def _told(journal: Journal, one: Refused) -> None:
    with suppress(UntildoneError):  # a store that fails stops the run by itself
        await journal.tell(AgentHostRefused(host=one.host, why=one.said))


def _view(lodger: Lodger, probe: Probe, reached: Reach, lent: Lent) -> View:
    options = lodger.spec.options
    more = tuple(Path(os.path.realpath(place)) for place in options.add_dirs)
    given = tuple(Path(one) for one in options.mcp_config if os.path.isfile(one))  # noqa: PTH113 - may be no path
    files = lodger.around / _FILES
    files.mkdir(mode=0o700, parents=True, exist_ok=True)
    quarters = Quarters(
        around=lodger.around,
        home=_home(lodger.env),
        writable=() if lodger.is_reader else (*reached.writable, *more),
        fixed=(*reached.writable, *more) if lodger.is_reader else reached.fixed,
        lent=(*lent, (files, files, False), *((place, place, False) for place in given)),
        own=lodger.own,
        programs=(lodger.claude,),
    )
    root = os.geteuid() == 0
    return view(quarters, lodger.env, root=False, as_user=not root or probe.as_user)


def _top(folder: Path, home: Path) -> Path:
    """The working tree a folder lies in; a folder in none is its own, and so is one in a home that is one."""
    places = (place for place in (folder, *folder.parents) if not home.is_relative_to(place))
    return next((place for place in places if os.path.lexists(place / ".git")), folder)


def _refuse_stranger(tree: Path) -> None:
    """Root has no rights of others in a sandbox: it could neither write there nor use git."""
    owner = tree.stat().st_uid
    if os.geteuid() == 0 and owner != 0:
        raise NoSandbox(f"{tree} belongs to user {owner}, and root may not write there from inside: run as that user")


def _home(env: Mapping[str, str]) -> Path:
    return Path(env.get("HOME") or "~").expanduser()


def _settle_git(home: Path) -> None:
    """What git needs of the user's own settings: the others may name programs and logins."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    said = _asked("--get-regexp", _OF_THE_USER).splitlines()
    lines = [(*key.split(".", 1), value) for key, _, value in (line.partition(" ") for line in said)]
    text = "".join(f"[{section}]\n\t{name} = {_quoted(value)}\n" for section, name, value in lines)
    ignored = Path(_asked("--path", "core.excludesFile").strip() or "~/.config/git/ignore").expanduser()
    with suppress(OSError):
        (home / ".config" / "git").mkdir(parents=True, exist_ok=True)
        (home / ".config" / "git" / "ignore").write_bytes(ignored.read_bytes())
    (home / ".gitconfig").write_text(f"{text}[commit]\n\tgpgSign = false\n", "utf-8")


def _asked(*words: str) -> str:
    asked = ["git", "config", "--global", *words]
    return subprocess.run(asked, capture_output=True, text=True, check=False, timeout=10).stdout  # noqa: S603, TID251


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'

"""Where each value comes from: command line, environment, project file, user file, profile, default. First one wins."""

import hashlib
import os.path
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any

from untildone.config_file import Given, from_file
from untildone.config_file import read as _read
from untildone.core.check_specs import BadCheck, exchanged, together
from untildone.core.coherence import coherent, forge_repository
from untildone.core.contract import Contract
from untildone.core.dataclass import dataclass
from untildone.core.durations import next_clock
from untildone.core.limits import has_finite_limit
from untildone.core.near_names import nearest
from untildone.core.policy import AgentOptions, Landing, Policy, Review, RunSpec, Tending
from untildone.core.printable import one_line
from untildone.core.settings import BY_NAME, HOMES, PROFILES, SETTINGS, Home, Setting
from untildone.errors import ConfigError, UsageError

PROJECT_FILE = "untildone.toml"
OPERATOR_MARK = "UNTILDONE_RUN"
"""Set in the environment of everything an agent starts: whoever has it is not the operator."""
CHECK_MARK = "UNTILDONE_CHECK_OF"
"""Set in the environment of the checks of a run, so that they are found again after a crash."""
SERVER_TOKEN = "UNTILDONE_TOKEN"  # noqa: S105 - the name of a variable
"""Holds the token for a server: no setting, so that it is neither typed, written into a file nor shown."""

SERVE_PREFIX = "UNTILDONE_SERVE_"
"""How the variables begin that set up a server: they are no settings of a run."""

_PREFIX = "UNTILDONE_"
# Relative paths in these mean the folder they were written in, so that a run can be resumed from anywhere.
_PATHS = frozenset({"hooks_file", "add_dirs", "mcp_config", "claude", "config_dir", "then", "server_token_file"})
_SLUG_LENGTH = 32
_LONGEST_COMPLAINT = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One place settings come from."""

    given: Mapping[str, Given]
    base: Path
    """What relative paths mean here."""
    flags: bool = False
    parsed: bool = False
    """Its values are final: they come from our own table."""
    seconds: bool = False
    """A number without a unit is seconds here, whatever the setting."""
    trusted: bool = True
    """False for a project file that the user has not allowed with `config trust`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """Every setting with its value and where that came from."""

    values: Mapping[str, Any]
    origins: Mapping[str, str]
    notices: tuple[str, ...] = ()
    """What the user should be told about how something was read."""
    untrusted: frozenset[str] = frozenset()
    """Settings that only a project file gives that is not trusted: they limit a run, but do not permit one."""

    def value(self, name: str) -> Any:
        """The parsed value of a setting."""
        return self.values[name]

    def origin(self, name: str) -> str:
        """Where the value came from, in words."""
        return self.origins[name]


def resolve(
    cli: Mapping[str, object],
    *,
    env: Mapping[str, str],
    project_file: Path | None = None,
    user_file: Path | None = None,
    here: Path | None = None,
    usual: Mapping[str, object] | None = None,
) -> Resolved:
    """Settle every setting. `cli` holds only what was typed: None and () mean "not given".

    `usual`: the defaults of one command, parsed already, where they are not those of the table.
    """
    base = here or Path.cwd()
    layers = [
        Layer(given=_from_flags(cli), base=base, flags=True),
        Layer(given=_from_environment(env), base=base, seconds=True),
    ]
    if project_file is not None:
        # Read once: what is trusted is what is used, whoever writes meanwhile.
        content = _read(project_file)
        trusted = is_trusted(project_file, state_dir(env), content)
        layers.append(Layer(given=from_file(project_file, content), base=project_file.parent, trusted=trusted))
    if user_file is not None:
        layers.append(Layer(given=from_file(user_file), base=user_file.parent))
    profile, origin = _settle(BY_NAME["profile"], layers)
    if profile is not None:
        presets = {name: Given(value, f"profile {profile} ({origin})") for name, value in PROFILES[profile].items()}
        layers.append(Layer(given=presets, base=base, parsed=True))
    if usual:
        presets = {name: Given(value, "default of this command") for name, value in usual.items()}
        layers.append(Layer(given=presets, base=base, parsed=True))
    settled = {setting.name: _settle(setting, layers) for setting in SETTINGS}
    settled["land"] = _settle_land(layers)
    values = {name: value for name, (value, _) in settled.items()}
    return Resolved(
        values=values,
        origins={name: origin for name, (_, origin) in settled.items()},
        notices=(*_notices(layers), *misspelt(env)),
        untrusted=_untrusted(layers, values, project_file),
    )


def policy(resolved: Resolved, *, now: float, zone: tzinfo | None = None) -> Policy:
    """The limits and thresholds as one value. UsageError when nothing at all limits the run."""
    fields = _fields(resolved, "policy")
    fields |= _moments(fields, now, zone)
    agreed = Policy(**fields)
    foreign = {BY_NAME[name].field for name in resolved.untrusted}
    kept: dict[str, Any] = {name: None if name in foreign else value for name, value in fields.items()}
    own = Policy(**kept)
    if not own.unbounded and not has_finite_limit(own):
        # Otherwise a repository could permit a run of any size by limiting it to a billion iterations.
        but = "; the project file may only lower your limits until `untildone config trust`" if own != agreed else ""
        raise UsageError(
            "nothing limits this run: give at least one of -m/--max-runs, --max-iterations, --max-cost, --max-tokens, "
            f"--max-duration or --deadline, or say --unbounded{but}"
        )
    return agreed


def run_spec(resolved: Resolved, *, goal: str, cwd: Path, name: str, task_file: str | None = None) -> RunSpec:
    """What is to be run, as one value that survives a crash."""
    fields = _fields(resolved, "spec")
    fields["keep_dirty"] = fields["keep_dirty"] == "keep"
    checks = together(resolved.value("checks"), resolved.value("hidden_checks"), resolved.value("require"))
    repo = forge_repository(resolved.value("owner"), resolved.value("repo"))
    spec = RunSpec(
        goal=goal,
        cwd=str(cwd),
        name=name,
        task_file=task_file,
        options=AgentOptions(**_fields(resolved, "options")),
        tending=Tending(**_fields(resolved, "tending")),
        contract=Contract(**_fields(resolved, "contract") | {"checks": checks}),
        landing=Landing(**_fields(resolved, "landing") | {"repo": repo}),
        review=Review(**_fields(resolved, "review")),
        **fields,
    )
    return coherent(spec)


def changed(given: Mapping[str, object], spec: RunSpec, limits: Policy, *, now: float) -> tuple[RunSpec, Policy]:
    """The same values with what was typed put in their place; files and environment have no say here."""
    typed = {name: raw for name, raw in given.items() if raw is not None and raw != ()}
    resolved = resolve(typed, env={"HOME": "/"})
    new: dict[str, dict[str, Any]] = {home: {} for home in (*HOMES, "cli")}
    for name in typed:
        setting, value = BY_NAME[name], resolved.value(name)
        before = getattr(spec.options, setting.field) if setting.adds else ()
        new[setting.home][setting.field] = tuple(dict.fromkeys((*before, *value))) if setting.adds else value
    new["policy"] |= _moments(new["policy"], now, None)
    if "keep_dirty" in new["spec"]:
        new["spec"]["keep_dirty"] = new["spec"]["keep_dirty"] == "keep"
    new["spec"]["options"] = replace(spec.options, **new["options"])
    new["spec"]["tending"] = replace(spec.tending, **new["tending"])
    if typed.keys() & {"checks", "hidden_checks", "require"}:
        told = [resolved.value(name) if name in typed else None for name in ("checks", "hidden_checks", "require")]
        new["contract"]["checks"] = exchanged(spec.contract.checks, *told)
    if typed.keys() & {"owner", "repo"}:
        new["landing"]["repo"] = forge_repository(resolved.value("owner"), resolved.value("repo"))
    if "commit" in typed and "land" not in typed and spec.commit is not resolved.value("commit"):
        new["landing"]["land"] = resolved.value("land")
    for part in ("contract", "landing", "review"):
        new["spec"][part] = replace(getattr(spec, part), **new[part])
    return coherent(replace(spec, **new["spec"])), replace(limits, **new["policy"])


def _moments(fields: Mapping[str, Any], now: float, zone: tzinfo | None) -> dict[str, float]:
    """Start and deadline as moments: a deadline of 07:30 is the first one after the start."""
    found: dict[str, float] = {}
    for name, flag in (("start_at", "the start"), ("deadline", "the deadline")):
        written = fields.get(name)
        if written is not None:
            found[name] = deadline_at(written, found.get("start_at", now), zone)
            if found[name] <= now:
                raise UsageError(f"{flag} {written} has already passed")
    if "deadline" in found and found["deadline"] <= found.get("start_at", now):
        raise UsageError(f"the deadline {fields['deadline']} comes before the start {fields['start_at']}")
    return found


def deadline_at(written: str, now: float, zone: tzinfo | None = None) -> float:
    """The epoch second meant by `07:30` (the next one) or a date with time. Local time unless `zone` is given."""
    if "T" in written:
        moment = datetime.fromisoformat(written)
        return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).timestamp()
    first = next_clock(written, now, _utc_offset(now, zone))
    # In the night the clocks are changed, the offset at that moment is another one than now.
    return next_clock(written, now, _utc_offset(first, zone))


def _utc_offset(at: float, zone: tzinfo | None) -> int:
    there = datetime.fromtimestamp(at, zone)
    offset = (there if zone else there.astimezone()).utcoffset()
    return round(offset.total_seconds()) if offset else 0


def run_name(cwd: Path, goal: str) -> str:
    """A readable name that is the same whenever folder and goal are the same."""
    digest = hashlib.sha256(f"{cwd}\0{goal}".encode("utf-8", "surrogateescape")).hexdigest()[:4]
    first_line = goal.strip().split("\n", 1)[0]
    words = re.sub(r"[^a-z0-9]+", "-", f"{cwd.name} {first_line}".lower()).strip("-")
    short = words if len(words) <= _SLUG_LENGTH else words[:_SLUG_LENGTH].rsplit("-", 1)[0]
    return f"{short or 'run'}-{digest}"


# --- where things are ---------------------------------------------------------------------------


def state_dir(env: Mapping[str, str]) -> Path:
    """The folder that holds the runs."""
    for name in BY_NAME["store"].env:
        if env.get(name):
            return expanded(env[name])
    return own_dir(env)


def own_dir(env: Mapping[str, str]) -> Path:
    """What is one and the same for a user, wherever the runs are."""
    return _xdg(env, "XDG_STATE_HOME", ".local/state") / "untildone"


def expanded(written: str) -> Path:
    """A path as people write it; where `~name` is nobody's home, the name is all it is."""
    return Path(os.path.expanduser(written))  # noqa: PTH111 - pathlib raises instead


def is_file(path: Path) -> bool:
    """Whether there is such a file: not, if its name is longer than any disk takes."""
    return os.path.isfile(path)  # noqa: PTH113 - pathlib raises instead


def user_file(env: Mapping[str, str]) -> Path | None:
    """The user's own settings file, if there is one."""
    path = _xdg(env, "XDG_CONFIG_HOME", ".config") / "untildone" / "config.toml"
    return path if is_file(path) else None


def project_file(cwd: Path) -> Path | None:
    """The project's settings file: in the folder itself, else in the root of its repository."""
    folders = [cwd]
    root = next((folder for folder in (cwd, *cwd.parents) if (folder / ".git").exists()), None)
    if root is not None and root != cwd:
        folders.append(root)
    for folder in folders:
        if is_file(folder / PROJECT_FILE):
            return folder / PROJECT_FILE
        pyproject = folder / "pyproject.toml"
        if is_file(pyproject) and b"[tool.untildone" in _read(pyproject):
            return pyproject
    return None


def _xdg(env: Mapping[str, str], variable: str, fallback: str) -> Path:
    base = env.get(variable, "")
    # The XDG specification says that relative paths here are invalid and must be ignored.
    return Path(base) if base.startswith("/") else Path(env.get("HOME") or Path.home()) / fallback


# --- trust ---------------------------------------------------------------------------------------


def trust(path: Path, store: Path) -> Path:
    """Remember that this file, as it is now, may set everything; returns the mark."""
    mark = _trust_mark(path, store, _read(path))
    try:
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.write_text(f"{path.resolve()}\n", encoding="utf-8")
    except OSError as refused:
        raise ConfigError(f"{mark.parent} cannot be written: {refused.strerror}") from refused
    return mark


def is_trusted(path: Path, store: Path, content: bytes) -> bool:
    """Whether the user trusted exactly this file with exactly this content."""
    return is_file(_trust_mark(path, store, content))


def _trust_mark(path: Path, store: Path, content: bytes) -> Path:
    digest = hashlib.sha256(str(path.resolve()).encode("utf-8", "surrogateescape") + b"\0" + content)
    return store / "trusted" / digest.hexdigest()


def _untrusted(layers: Sequence[Layer], values: Mapping[str, Any], path: Path | None) -> frozenset[str]:
    """The settings that an untrusted project file alone decides. ConfigError when it may not: that takes trust."""
    above: set[str] = set()
    for layer in layers:
        if not layer.trusted:
            break
        above |= layer.given.keys()
    else:
        return frozenset()
    own = [layer for layer in layers if layer.trusted]
    decided = {name for name in layer.given if name not in above or BY_NAME[name].adds}
    refused = sorted(name for name in decided if not _is_open(BY_NAME[name], values[name], own))
    if refused:
        raise ConfigError(
            f"{path} is not trusted and sets {', '.join(refused)}: read it, then allow it with `untildone config "
            "trust` (until then it may only lower limits)"
        )
    # What tightens a limit of the user's own leaves a limit that the user permitted.
    return frozenset(name for name in decided if _settle(BY_NAME[name], own)[0] is None)


def _is_open(setting: Setting, value: Any, own: Sequence[Layer]) -> bool:
    return setting.untrusted is not None and setting.untrusted(value, _settle(setting, own)[0])


# --- layers --------------------------------------------------------------------------------------


def _from_flags(cli: Mapping[str, object]) -> dict[str, Given]:
    given = {}
    for name, raw in cli.items():
        if raw is None or raw == ():
            continue
        flags = BY_NAME[name].off_flags if raw is False else BY_NAME[name].flags
        given[name] = Given(raw, next((flag for flag in flags if flag.startswith("--")), "the command line"))
    return given


def _from_environment(env: Mapping[str, str]) -> dict[str, Given]:
    given = {}
    for setting in SETTINGS:
        name = next((name for name in setting.env if env.get(name)), None)
        if name is not None:
            given[setting.name] = Given(env[name], f"environment {name}")
    return given


def misspelt(env: Mapping[str, str]) -> Iterable[str]:
    """A line for each variable that looks like a setting and is none: it would be believed to work."""
    known = {name for setting in SETTINGS for name in setting.env} | {OPERATOR_MARK, CHECK_MARK, SERVER_TOKEN}
    for name in sorted(env):
        if name.startswith(_PREFIX) and not name.startswith(SERVE_PREFIX) and name not in known:
            near = nearest(name, known)
            hint = f"did you mean {near}?" if near else "`untildone config` lists all settings"
            yield f"the environment variable {one_line(name, 100)} is no setting: {hint}"


# --- values --------------------------------------------------------------------------------------


def _settle(setting: Setting, layers: Iterable[Layer]) -> tuple[Any, str]:
    """The first place wins; the others are read all the same, so that a mistake shows before it matters."""
    given = [(layer, layer.given[setting.name]) for layer in layers if setting.name in layer.given]
    settled = [(_parsed(setting, value, layer), value.origin) for layer, value in given]
    if setting.adds and settled:
        together = dict.fromkeys(item for values, _ in reversed(settled) for item in values)
        return tuple(together), ", ".join(origin for _, origin in settled)
    return settled[0] if settled else (setting.default, "default")


def _parsed(setting: Setting, given: Given, layer: Layer) -> Any:
    raw = given.raw
    if layer.parsed:
        return raw
    if layer.seconds and setting.kind == "DURATION" and setting.name != "iteration_timeout" and str(raw).isdigit():
        raw = f"{raw}s"
    try:
        value = setting.parse(raw)
    except ValueError as wrong:
        said = one_line(str(wrong), _LONGEST_COMPLAINT)
        if layer.flags:
            raise UsageError(f"{given.origin} {said}") from wrong
        one_of_many = isinstance(wrong, BadCheck) and wrong.at < len(given.places)
        origin = given.places[wrong.at] if isinstance(wrong, BadCheck) and one_of_many else given.origin
        raise ConfigError(f"{origin}: {setting.name} {said}") from wrong
    return _anchored(value, layer.base) if setting.name in _PATHS else value


def _settle_land(layers: Iterable[Layer]) -> tuple[Any, str]:
    """How far work goes. `commit` is an older word for it: off is `none`; on is whatever else says more than `none`."""
    wants_commits = False
    for layer in layers:
        land, commit = layer.given.get("land"), layer.given.get("commit")
        how = None if land is None else _parsed(BY_NAME["land"], land, layer)
        commits = None if commit is None else _parsed(BY_NAME["commit"], commit, layer)
        if land and commit and commits is (how == "none"):
            raise UsageError(f"{commit.origin} and {land.origin} {how} contradict each other: give one of them")
        if land and not (wants_commits and how == "none"):
            return how, land.origin
        if commit and commits is False and not wants_commits:
            return "none", commit.origin
        wants_commits = wants_commits or commits is True
    return BY_NAME["land"].default, "default"


def _anchored(value: Any, base: Path) -> Any:
    if isinstance(value, tuple):
        return tuple(_anchored(item, base) for item in value)
    is_path = "/" in value or os.path.exists(base / value)  # noqa: PTH110 - as is_file
    return str((base / expanded(value)).absolute()) if is_path and not value.startswith("{") else value


def _notices(layers: Iterable[Layer]) -> Iterable[str]:
    for layer in layers:
        given = layer.given.get("iteration_timeout")
        if given is not None:
            bare = str(given.raw).strip()
            if not layer.parsed and bare.isdigit() and int(bare):
                yield f"{given.origin} {bare} is read as {bare} minutes; write {bare}m or {bare}s to be clear"
            return


def _fields(resolved: Resolved, home: Home) -> dict[str, Any]:
    return {setting.field: resolved.value(setting.name) for setting in SETTINGS if setting.home == home}

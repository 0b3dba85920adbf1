"""What an agent in a sandbox finds of the user's Claude Code: instructions and settings, and no secrets."""

import json
import os
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from untildone.agents.transcripts import PROJECTS, project_name
from untildone.core.dataclass import dataclass
from untildone.core.model_access import ModelAccess, settings_inside
from untildone.errors import AgentError

CREDENTIALS = ".credentials.json"
SETTINGS = "settings.json"
_STATE = ".claude.json"
_INSTRUCTIONS = ("CLAUDE.md", "agents", "commands", "hooks", "output-styles", "plugins", "rules", "skills")
_MEMORY = "memory"
_FOLDER = "claude"

Lent = tuple[tuple[Path, Path, bool], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lodging:
    """Where Claude Code keeps its things, outside and inside."""

    config_dir: Path
    """At the same path inside and outside."""
    home: Path
    cwd: str
    around: Path
    """The folder of the sandbox."""
    is_named: bool
    """The configuration's folder is named by a variable, so that Claude Code keeps all of its state in it."""


def user_settings(config_dir: Path) -> dict[str, Any]:
    """The user's settings of Claude Code; none where they cannot be read."""
    try:
        found = json.loads((config_dir / SETTINGS).read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def lodge(lodging: Lodging, access: ModelAccess, settings: Mapping[str, Any]) -> Lent:
    """Make it ready, before anything has run inside; returns source, place and whether it may be written.

    What Claude Code writes for itself goes with the sandbox. Its transcripts of this folder are where they always
    are: from them costs are found out, and conversations gone on with. What it remembers of the project is a copy:
    otherwise an agent could tell things to the user's next session.
    """
    own, memory = lodging.around / _FOLDER, lodging.around / _MEMORY
    transcripts = lodging.config_dir / PROJECTS / project_name(lodging.cwd)
    try:
        for folder in (own, lodging.around / "home", transcripts):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.path.lexists(memory):
            _copy(transcripts / _MEMORY, memory)
    except OSError as trouble:
        raise AgentError(f"cannot make {own} ready for Claude Code: {trouble.strerror or trouble}") from trouble
    settle(lodging, settings)
    lent = [(own, lodging.config_dir, True), (transcripts, transcripts, True), (memory, transcripts / _MEMORY, True)]
    lent += [(place, place, False) for name in _INSTRUCTIONS if (place := lodging.config_dir / name).exists()]
    login = lodging.config_dir / CREDENTIALS
    if access.kind == "login" and login.exists():
        lent.append((login, login, True))
    return tuple(lent)


def settle(lodging: Lodging, settings: Mapping[str, Any]) -> None:
    """Write the settings anew, before each start: what an agent wrote in their place is not to last."""
    own = lodging.around / _FOLDER
    state = own / _STATE if lodging.is_named else lodging.around / "home" / _STATE
    trusted = {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}
    try:
        _write_anew(own / SETTINGS, settings_inside(settings), beside=lodging.around)
        if not _is_plain(state):
            begun = {"hasCompletedOnboarding": True, "projects": {lodging.cwd: trusted}}
            _write_anew(state, begun, beside=lodging.around)
    except OSError as trouble:
        raise AgentError(f"cannot make {own} ready for Claude Code: {trouble.strerror or trouble}") from trouble


def _copy(notes: Path, to: Path) -> None:
    to.mkdir(mode=0o700)
    for file in notes.glob("*.md"):
        if file.is_file() and not file.is_symlink():
            (to / file.name).write_bytes(file.read_bytes())


def _write_anew(path: Path, content: Mapping[str, Any], *, beside: Path) -> None:
    """The agent can put anything there: a link is not followed, and a folder is put aside."""
    made = beside / f"{path.name}.{secrets.token_hex(4)}"
    with os.fdopen(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:
        json.dump(content, file)
    if os.path.lexists(path) and stat.S_ISDIR(path.lstat().st_mode):
        path.rename(path.with_name(made.name))
    made.replace(path)


def _is_plain(path: Path) -> bool:
    return os.path.lexists(path) and stat.S_ISREG(path.lstat().st_mode)

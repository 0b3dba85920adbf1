"""Our hooks and commands in the settings of Claude Code, for people who want no plugin: put in, and taken out again.

What stood there before is kept, byte for byte. Nothing here is loaded by a hook.
"""

import base64
import hashlib
import json
import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import Any

from untildone.core.dataclass import dataclass
from untildone.core.hook_settings import MARK, Hook, cap_of, read_settings, with_hooks, without_hooks
from untildone.errors import ConfigError, UsageError
from untildone.hook.files import Lock, write_text

ROOT = Path(__file__).resolve().parent.parent
"""The plugin's own folder: this package."""
_LARGEST = 8 << 20
_ROOT_NAME = "${CLAUDE_PLUGIN_ROOT}"
_COPIED = {"commands": "commands/untildone", "agents": "agents/untildone", "skills": "skills"}
"""Folders of the plugin, and where Claude Code finds their files without one."""


@dataclass(slots=True)
class Kept:
    """What we know about one settings file we changed."""

    before: bytes | None = None
    """Its content before; None: there was no such file."""
    after: str = ""
    """The hash of what we made of it."""
    cap: str | None = None
    files: dict[str, str] = field(default_factory=dict)
    """Files we put beside it, with the hashes of their contents."""
    made: bool = False
    """There was no folder for it before."""


def hooks_here() -> list[Hook]:
    """Every hook of the plugin, as a settings file needs it. Where untildone is gone, each of them does nothing."""
    script = shlex.quote(str(ROOT / "hook" / "run.sh"))
    given = json.loads((ROOT / "plugin" / "hooks.json").read_text("utf-8"))["hooks"]
    return [
        Hook(
            event=event,
            command=f"[ ! -r {script} ] || sh {script} {event} {MARK}",
            timeout=group["hooks"][0]["timeout"],
            matcher=group.get("matcher", ""),
        )
        for event, groups in given.items()
        for group in groups
    ]


def install(settings: Path, state: Path, *, only_cap: bool = False) -> bool:
    """Put hooks, the raised cap and the commands in; False: all of it was there already.

    With `only_cap` the cap alone: beside the plugin, which brings the rest, everything else would be there twice.
    """
    with Lock(str(_kept_path(settings, state)) + ".lock"):
        kept = _load(settings, state)
        content = _read(settings)
        made = kept.made if kept is not None else not settings.parent.exists()
        text = _clean(content, settings, kept)
        if kept is None or content is None or _hash(content) != kept.after:
            before = None if content is None else text.encode("utf-8", "surrogateescape")
            kept = Kept(before=before, cap=cap_of(read_settings(text, str(settings))), files=kept.files if kept else {})
        wanted = with_hooks(text, () if only_cap else hooks_here()).encode("utf-8", "surrogateescape")
        changed = wanted != content
        kept.after, kept.made = _hash(wanted), made
        copied = {} if only_cap else dict(_copies(settings.parent))
        changed = _forget(kept, copied) or changed
        changed = _copy(kept, copied) or changed
        _save(settings, state, kept)
        if wanted != content:
            _write(settings, wanted)
    return changed


def uninstall(settings: Path, state: Path) -> bool:
    """Take everything out: the bytes of before, or what others made of them meanwhile; False: nothing was there."""
    with Lock(str(_kept_path(settings, state)) + ".lock"):
        kept = _load(settings, state)
        content = _read(settings)
        wanted: bytes | None = _clean(content, settings, kept).encode("utf-8", "surrogateescape")
        if kept is not None and content is not None and _hash(content) == kept.after:
            wanted = kept.before
        found = kept is not None or (content is not None and wanted != content)
        if content is not None and wanted is None:
            _remove(Path(os.path.realpath(settings)), folders=0)
        elif content is not None and wanted is not None and wanted != content:
            _write(settings, wanted)
        if kept is not None:
            _forget(kept, {})
            if kept.made:
                with suppress(OSError):  # somebody else's files are in it by now
                    settings.parent.rmdir()
            _remove(_kept_path(settings, state))
    return found


def recorded(state: Path) -> Iterator[Path]:
    """The settings files we changed and did not change back."""
    for path in sorted((state / "plugin").glob("*.json")):
        try:
            yield Path(json.loads(path.read_text("utf-8"))["path"])
        except (OSError, ValueError, KeyError, TypeError):
            continue


def read_text_of(settings: Path) -> str | None:
    """The text of a settings file; None where there is none."""
    content = _read(settings)
    return None if content is None else content.decode("utf-8", "surrogateescape")


# --- the settings file -----------------------------------------------------------------------------------------


def _clean(content: bytes | None, settings: Path, kept: Kept | None) -> str:
    """Its text without anything of ours."""
    if content is None:
        return ""
    if kept is not None and _hash(content) == kept.after:
        return (kept.before or b"").decode("utf-8", "surrogateescape")
    text = content.decode("utf-8", "surrogateescape")
    read_settings(text, str(settings))
    if not text.strip("\ufeff \t\r\n"):
        return text
    return without_hooks(text, earlier_cap=kept.cap if kept is not None else None)


def _read(settings: Path) -> bytes | None:
    try:
        with settings.open("rb") as file:
            content = file.read(_LARGEST + 1)
    except FileNotFoundError:
        return None
    except OSError as refused:
        raise ConfigError(f"{settings} cannot be read: {refused.strerror}") from refused
    if len(content) > _LARGEST:
        raise ConfigError(f"{settings} is too large to be a settings file")
    return content


def _write(settings: Path, content: bytes) -> None:
    # The file may be a link into somebody's collection of settings: it stays one.
    try:
        write_text(os.path.realpath(settings), content.decode("utf-8", "surrogateescape"))
    except OSError as refused:
        raise UsageError(f"{settings} cannot be written: {refused.strerror}") from refused


def _remove(path: Path, folders: int = 1) -> None:
    """A file, and the folders it leaves empty."""
    with suppress(OSError):
        path.unlink(missing_ok=True)
        for folder in path.parents[:folders]:
            folder.rmdir()


# --- what we know about it -------------------------------------------------------------------------------------


def _kept_path(settings: Path, state: Path) -> Path:
    return state / "plugin" / f"{_hash(os.fsencode(os.path.abspath(settings)))[:24]}.json"


def _load(settings: Path, state: Path) -> Kept | None:
    try:
        known: dict[str, Any] = json.loads(_kept_path(settings, state).read_text("utf-8"))
        before = known["before"]
        return Kept(
            before=None if before is None else base64.b64decode(before),
            after=known["after"],
            cap=known["cap"],
            files=dict(known["files"]),
            made=known.get("made") is True,
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _save(settings: Path, state: Path, kept: Kept) -> None:
    known = {
        "path": os.path.abspath(settings),
        "before": None if kept.before is None else base64.b64encode(kept.before).decode("ascii"),
        "after": kept.after,
        "cap": kept.cap,
        "files": kept.files,
        "made": kept.made,
    }
    write_text(str(_kept_path(settings, state)), json.dumps(known), private=True)


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


# --- the commands beside it ------------------------------------------------------------------------------------


def _copies(folder: Path) -> Iterator[tuple[str, bytes]]:
    for source, target in _COPIED.items():
        base = ROOT / "plugin" / source
        for file in sorted(base.rglob("*.md")):
            text = file.read_text("utf-8").replace(_ROOT_NAME, str(ROOT))
            yield str(folder / target / file.relative_to(base)), text.encode("utf-8")


def _copy(kept: Kept, copies: Mapping[str, bytes]) -> bool:
    """Put our files there; one that is somebody else's stays."""
    changed = False
    for name, content in copies.items():
        there = _content(name)
        if there == content:
            kept.files.setdefault(name, _hash(content))
        elif there is None:
            write_text(name, content.decode("utf-8"))
            kept.files[name] = _hash(content)
            changed = True
    return changed


def _forget(kept: Kept, wanted: Mapping[str, bytes]) -> bool:
    """Remove our files that are not wanted as they are, unless somebody changed them."""
    changed = False
    for name, known in list(kept.files.items()):
        there = _content(name)
        if there is not None and wanted.get(name) == there:
            continue
        del kept.files[name]
        if there is not None and _hash(there) == known:
            _remove(Path(name), folders=2)
            changed = True
    return changed


def _content(name: str) -> bytes | None:
    try:
        return Path(name).read_bytes()
    except OSError:
        return None

"""Claude's transcripts of one session as a parcel, and back into another home, for another folder.

Claude finds a session by its id in whatever project folder of its configuration the file lies, and takes the working
folder from the process, not from the file: so the content travels as it is.
"""

import gzip
import io
import os
import tarfile
import tempfile
from collections.abc import Callable, Container
from contextlib import suppress
from pathlib import Path

from untildone.agents.transcripts import PROJECTS, SUBAGENTS, transcript_path
from untildone.core.session_parcel import LARGEST, MAIN, MOST_FILES, SESSION_ID, SUBAGENT, contents, too_large
from untildone.errors import AgentError

LARGEST_PARCEL = 64 << 20
"""Bytes of a parcel."""
_CHUNK = 1 << 20


def session_files(config_dir: Path, cwd: str, session_id: str) -> list[Path]:
    """The transcript of a session, then those of its subagents; none where there is no such session."""
    if not SESSION_ID.fullmatch(session_id):
        return []
    main = transcript_path(config_dir, cwd, session_id)
    if not _is_file(main):
        # A session may have been begun in another folder.
        found = sorted(path for path in config_dir.glob(f"{PROJECTS}/*/{session_id}.jsonl") if _is_file(path))
        if not found:
            return []
        main = found[-1]
    below = main.with_suffix("") / SUBAGENTS
    others = sorted(path for path in below.glob("agent-*") if SUBAGENT.fullmatch(path.name) and _is_file(path))
    return [main, *others[:MOST_FILES]]


def session_stamp(config_dir: Path, cwd: str, session_id: str) -> tuple[tuple[str, int, int], ...]:
    """Changes whenever a file of the session does."""
    stats = ((path, _stat(path)) for path in session_files(config_dir, cwd, session_id))
    return tuple((path.name, stat.st_size, stat.st_mtime_ns) for path, stat in stats if stat is not None)


def pack_session(
    config_dir: Path, cwd: str, session_id: str, *, mask: Callable[[bytes], bytes] = lambda lines: lines
) -> bytes | None:
    """All transcripts of a session, compressed; None when there is none. AgentError when they are too large.

    A transcript that is being written is cut after its last whole line. `mask` takes out what must not leave.
    """
    files = session_files(config_dir, cwd, session_id)
    if not files:
        return None
    packed = io.BytesIO()
    left = LARGEST
    # Level 1: transcripts shrink to a tenth either way, and somebody waits for the processor.
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=1, mtime=0) as squeezed,
        tarfile.open(fileobj=squeezed, mode="w", format=tarfile.GNU_FORMAT) as archive,
    ):
        for path in files:
            content = mask(_whole_lines(path, left))
            left -= len(content)
            entry = tarfile.TarInfo(MAIN if path is files[0] else path.name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    if packed.tell() > LARGEST_PARCEL:
        raise AgentError(too_large(session_id))
    return packed.getvalue()


def read_transcript(config_dir: Path, cwd: str, session_id: str) -> bytes | None:
    """The main transcript of a session as it is now; None when there is none, or it is too large to be shown."""
    files = session_files(config_dir, cwd, session_id)
    with suppress(AgentError):
        return _whole_lines(files[0], LARGEST_PARCEL) if files else None
    return None


def install_session(config_dir: Path, cwd: str, session_id: str, parcel: bytes) -> list[Path]:
    """Put the transcripts of a session where Claude, started in `cwd`, finds them; returns the files.

    Each file is there as a whole or not at all, the main one last. AgentError when the parcel is no such parcel, or
    when another conversation of that id is there already.
    """
    main = _main_place(config_dir, cwd, session_id)
    found = dict(contents(session_id, parcel))
    _refuse_headless(session_id, found)
    _refuse_another(main, found[MAIN], session_id)
    subagents = main.with_suffix("") / SUBAGENTS
    placed = [(subagents / name, content) for name, content in found.items() if name != MAIN]
    try:
        for place, content in (*placed, (main, found[MAIN])):
            _write(place, content)
    except OSError as trouble:
        raise AgentError(
            f"the transcript of session {session_id} cannot be put into {main.parent}: {trouble}"
        ) from trouble
    return [main, *(place for place, _ in placed)]


def install_transcript(config_dir: Path, cwd: str, session_id: str, content: bytes) -> Path:
    """Put one transcript, as Claude wrote it, where Claude finds it; an older copy of it is replaced."""
    main = _main_place(config_dir, cwd, session_id)
    if len(content) > LARGEST:
        raise AgentError(too_large(session_id))
    _refuse_another(main, content, session_id)
    try:
        _write(main, content)
    except OSError as trouble:
        raise AgentError(
            f"the transcript of session {session_id} cannot be put into {main.parent}: {trouble}"
        ) from trouble
    return main


def _main_place(config_dir: Path, cwd: str, session_id: str) -> Path:
    if not SESSION_ID.fullmatch(session_id):
        raise AgentError(f"{session_id[:60]!r} is no name of a session: nothing was installed")
    return transcript_path(config_dir, cwd, session_id)


def check_session(session_id: str, parcel: bytes) -> None:
    """Read a parcel through without putting anything in place. AgentError when it is no such parcel."""
    if not SESSION_ID.fullmatch(session_id):
        raise AgentError(f"{session_id[:60]!r} is no name of a session: it is not used")
    _refuse_headless(session_id, {name for name, _ in contents(session_id, parcel)})


def _refuse_headless(session_id: str, names: Container[str]) -> None:
    if MAIN not in names:
        raise AgentError(f"the transcript of session {session_id} is not in its parcel: it cannot go on here")


def _refuse_another(main: Path, content: bytes, session_id: str) -> None:
    """A conversation that went on here is never overwritten by an older or another one."""
    if not main.exists():
        return
    if not _is_file(main):
        raise AgentError(f"{main} is no plain file: move it away")
    with main.open("rb") as there:
        at = 0
        while chunk := there.read(_CHUNK):
            if content[at : at + len(chunk)] != chunk:
                raise AgentError(
                    f"another conversation of session {session_id} is in {main}: move it away to continue the one "
                    "from the server"
                )
            at += len(chunk)


def _whole_lines(path: Path, most: int) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(most + 1)
    except OSError as trouble:
        raise AgentError(f"{path} cannot be read: {trouble.strerror or trouble}") from trouble
    if len(content) > most:
        raise AgentError(too_large(path.stem))
    return content if path.suffix == ".json" else content[: content.rfind(b"\n") + 1]


def _write(place: Path, content: bytes) -> None:
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=".untildone-", dir=place.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(place)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _is_file(path: Path) -> bool:
    """A link could lead anywhere."""
    return path.is_file() and not path.is_symlink()


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None

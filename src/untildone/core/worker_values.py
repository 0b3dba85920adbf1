"""How the variables of a worker are read, as pure functions from text to values.

Each raises ValueError with the end of a sentence that begins with the variable's name.
"""

import base64
import binascii
import json
import re
import zlib
from dataclasses import fields

from untildone.core.dataclass import dataclass
from untildone.core.settings_delivery import NO_BRANCH

SOURCES = ("user", "project", "local")
"""Where Claude Code finds settings."""
_LONGEST_ID = 200
_LONGEST_TRANSCRIPT = 64 << 20
_GZIP = b"\x1f\x8b"
_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,99}")
_SESSION = re.compile(r"[0-9A-Za-z_-]{1,100}")
_REPOSITORY = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]*/[0-9A-Za-z._-]+")
_ADDRESS = re.compile(r"https?://[0-9A-Za-z.\-\[\]:]+(/[^\s?#@]*)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskData:
    """What an orchestrator knows of the task."""

    task_id: str = ""
    agent_id: str = ""
    task_description: str = ""
    ticket_id: str = ""
    ticket_title: str = ""
    ticket_description: str = ""
    spec_id: str = ""


_NESTED = ("task", "ticket", "agent", "spec")
"""Objects of the nested layout: `task.id` there is `task_id` in the flat one."""


def seconds(raw: str) -> float:
    """A number of seconds above zero, such as 0.5."""
    try:
        number = float(raw)
    except ValueError:
        number = 0.0
    if not 0 < number <= 86_400:  # noqa: PLR2004 - a day
        raise ValueError(f"must be a number of seconds above 0, not {raw!r}")
    return number


def sandbox_id(raw: str) -> str:
    """A name that can be part of an address."""
    if not _NAME.fullmatch(raw.strip()):
        raise ValueError(f"must be at most 100 letters, digits, dots, dashes or underscores, not {raw!r}")
    return raw.strip()


def one_id(raw: str) -> str:
    """One line."""
    if len(raw) > _LONGEST_ID or not raw.strip().isprintable():
        raise ValueError(f"must be one line of at most {_LONGEST_ID} characters")
    return raw.strip()


def address(raw: str) -> str:
    """The address of a server; a login does not belong there."""
    written = raw.strip().rstrip("/")
    if not _ADDRESS.fullmatch(written):
        raise ValueError("must be an address such as http://127.0.0.1:8642, without a login in it")
    return written


def token(raw: str) -> str:
    """Never quoted in an error: it is a secret, or nearly one."""
    written = raw.strip()
    if not written.isascii() or not written.isprintable() or " " in written:
        raise ValueError("has characters that no token has: set it again")
    return written


def session_id(raw: str) -> str:
    """The id of a session of Claude Code."""
    if not _SESSION.fullmatch(raw.strip()):
        raise ValueError(f"must be the id of a session of Claude Code, not {raw!r}")
    return raw.strip()


def repository(raw: str) -> str:
    """OWNER/NAME."""
    if not _REPOSITORY.fullmatch(raw.strip()):
        raise ValueError(f"must be OWNER/NAME, not {raw!r}")
    return raw.strip()


def branch_name(raw: str) -> str:
    """A name git takes for a branch."""
    if NO_BRANCH.search(raw.strip()):
        raise ValueError(f"is no name for a branch: {raw!r}")
    return raw.strip()


def setting_sources(raw: str) -> tuple[str, ...]:
    """Some of SOURCES, separated by commas."""
    named = tuple(dict.fromkeys(word.strip() for word in raw.split(",") if word.strip()))
    if not named or not set(named) <= set(SOURCES):
        raise ValueError(f"must be among {', '.join(SOURCES)}, separated by commas, not {raw!r}")
    return named


def folder(raw: str) -> str:
    """A path."""
    if "\0" in raw:
        raise ValueError("is no name for a folder")
    return raw


def _decoded(raw: str) -> bytes:
    try:
        return base64.b64decode("".join(raw.split()), validate=True)
    except (binascii.Error, ValueError) as wrong:
        raise ValueError("is not base64") from wrong


def task_data(raw: str) -> TaskData:
    """A JSON object in base64. What is not known is left alone: orchestrators say more than we need."""
    try:
        told = json.loads(_decoded(raw))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as wrong:
        raise ValueError("is base64, but not of JSON") from wrong
    if not isinstance(told, dict):
        raise ValueError("must be base64 of a JSON object")  # noqa: TRY004 - one kind of error for all parsers
    parts = {part: told[part] for part in _NESTED if isinstance(told.get(part), dict)}
    told = {f"{part}_{name}": value for part, values in parts.items() for name, value in values.items()} | told
    found = {one.name: told.get(one.name) for one in fields(TaskData)}
    found["task_description"] = found["task_description"] or told.get("description")
    wrong_ones = sorted(name for name, value in found.items() if not isinstance(value, str | int | None))
    if wrong_ones:
        raise ValueError(f"must have text as {', '.join(wrong_ones)}")
    return TaskData(**{name: str(value) for name, value in found.items() if value is not None})


def transcript(raw: str) -> bytes:
    """JSON lines in base64, compressed with gzip or not: a variable holds 128 KB at most."""
    content = _decoded(raw)
    if content.startswith(_GZIP):
        unpacking = zlib.decompressobj(wbits=31)
        try:
            content = unpacking.decompress(content, _LONGEST_TRANSCRIPT)
        except zlib.error as wrong:
            raise ValueError("is gzip, but broken") from wrong
        if not unpacking.eof:
            raise ValueError(f"is incomplete, or larger than {_LONGEST_TRANSCRIPT >> 20} MiB")
    if not content.lstrip().startswith(b"{"):
        raise ValueError("is not a transcript: JSON lines are expected")
    return content

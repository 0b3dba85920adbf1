"""Where the server of a database answers, noted by it while it is at work: links lead there, not to a guess."""

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from untildone import config
from untildone.server.archive.places import shown_place

_LONGEST = 300
_FILE = "sqlite:///"


def note(database: str, url: str) -> None:
    """Write down where the server of this database answers. One that cannot is no worse for it."""
    place = _place(database)
    with suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        written = place.with_name(f"{place.name}.{os.getpid()}")
        written.write_text(url, encoding="utf-8")
        written.replace(place)


def forget(database: str, url: str) -> None:
    """The server that answered there is gone; what another one wrote meanwhile stays."""
    if noted(database) == url:
        with suppress(OSError):
            _place(database).unlink(missing_ok=True)


def noted(database: str) -> str | None:
    """Where the server of this database answers, or did before it was killed; None: nothing is known."""
    try:
        with _place(database).open(encoding="utf-8") as written:
            return written.read(_LONGEST) or None
    except (OSError, UnicodeError):
        return None


def _place(database: str) -> Path:
    """Beside a database that is a file: whoever can open that finds it, whatever their own folder is."""
    if database.startswith(_FILE):
        path = Path(database.removeprefix(_FILE))
        return path.with_name(f"{path.name}.address")
    # By what is shown of the URL: a password leaves no trace in a name of a file.
    name = hashlib.sha256(shown_place(database).encode("utf-8", "replace")).hexdigest()[:16]
    return config.state_dir(os.environ) / f"serving-{name}"

"""Everything apprise reaches: chat, mail, push and a hundred others. An extra, imported only when it is asked for."""

from functools import partial
from typing import Any

from untildone.core.notice import Note, NoteKind
from untildone.errors import ConfigError
from untildone.notify.aside import aside
from untildone.notify.webhook import masked

PATIENCE = 30.0
"""Seconds one note may take."""

_TYPES: dict[NoteKind, str] = {
    "done": "success",
    "stopped": "failure",
    "waiting": "info",
    "needs_you": "warning",
    "budget": "warning",
}


class AppriseChannel:
    """One address that apprise understands."""

    def __init__(self, url: str) -> None:
        self.name = masked(url)
        self._apprise = _opened(url)

    async def send(self, note: Note) -> str:
        """Deliver through apprise, which says only whether it worked."""
        notify = partial(self._apprise.notify, title=note.title, body=note.body, notify_type=_TYPES[note.kind])
        try:
            sent = await aside(notify, within=PATIENCE)
        except TimeoutError:
            return "no answer in time"
        return "" if sent else "apprise could not deliver it: try `untildone notify test`"


def _opened(url: str) -> Any:
    try:
        import apprise
    except ImportError as missing:
        raise ConfigError(
            f"{masked(url)} needs apprise: run `pip install 'untildone[notify]'`, or give an https:// webhook"
        ) from missing
    channel = apprise.Apprise()
    if not channel.add(url):
        raise ConfigError(f"{masked(url)} is no address that apprise understands: see `apprise --help`")
    return channel

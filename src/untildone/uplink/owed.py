"""Which runs of a store report to which server, and how far that has come: one small file each.

Nothing depends on these files but the wish to go on: what is still wanted, the server itself says.
"""

import os
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec

from untildone.core.dataclass import dataclass
from untildone.core.wire import RUN_ID
from untildone.errors import UplinkRefused

FOLDER = "uplink"
MOST_REFUSALS = 5
"""Tries of later runs to deliver what a server refuses: a token may be mended, most other reasons stay."""
_LARGEST = 64 * 1024
_ACCOUNT = ".json"
_CURSOR = ".published"

T = TypeVar("T")


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """A run and its server."""

    run_id: RUN_ID
    server: str
    sandbox_id: RUN_ID
    acknowledged: int = 0
    """The newest number the server was known to have."""
    tenure: int = 0
    """Raised whenever another machine takes the run over."""
    settled: bool = False
    """All was delivered when the driver left."""
    refusals: int = 0
    """How often the server would not have what was left."""
    given_up: bool = False
    """Another machine has the run, or the server refused often enough: nothing more is to be sent."""
    key: Annotated[str, msgspec.Meta(pattern=r"^[0-9A-Za-z_-]{0,200}\Z")] = ""
    """What only the driver of this run knows, and shows wherever it speaks of it; empty: it began without one."""

    def __repr__(self) -> str:
        """Without the key, which no traceback may show."""
        return f"Account({self.run_id!r}, {self.server!r}, {self.sandbox_id!r})"


class PublishedCursor(msgspec.Struct, frozen=True, kw_only=True):
    """How far a run has come at a server that takes one event at a time and remembers no numbers."""

    server: str
    sandbox_id: str
    seq: int
    """The newest event it has taken."""


def new_key() -> str:
    """A key for the driver of a run. It begins as tokens do, so that it is hidden wherever it turns up."""
    return f"ud_driver_{secrets.token_urlsafe(32)}"


def after_delivery(account: Account, *, acknowledged: int, left: int, refused: UplinkRefused | None) -> Account:
    """The account of a run that nobody drives, after somebody tried to deliver the rest."""
    refusals = account.refusals + (refused is not None)
    over = refused is not None and (refused.taken or refusals >= MOST_REFUSALS)
    return msgspec.structs.replace(
        account, acknowledged=acknowledged, settled=not left, refusals=refusals, given_up=account.given_up or over
    )


@dataclass(frozen=True, slots=True)
class Accounts:
    """The files of a store."""

    state_dir: Path

    def read(self, run_id: str) -> Account | None:
        """What is known about a run."""
        return _decoded(self._path(run_id), Account)

    def write(self, account: Account) -> None:
        """Remember. A disk that does not take it is no reason to stop anything."""
        _replace(self._path(account.run_id), msgspec.json.encode(account))

    def cursor(self, run_id: str) -> PublishedCursor | None:
        """How far the run has come at a server that speaks the published protocol; None: there is no such server."""
        return _decoded(self._path(run_id, _CURSOR), PublishedCursor)

    def write_cursor(self, run_id: str, cursor: PublishedCursor) -> None:
        """Remember how far it has come."""
        _replace(self._path(run_id, _CURSOR), msgspec.json.encode(cursor))

    def key(self, run_id: str) -> str:
        """What the driver of this run shows; empty: nothing."""
        known = self.read(run_id)
        return known.key if known is not None else ""

    def begun(self, account: Account) -> Account:
        """The account of a run that is driven from now on, with its key; without, where no disk would keep that."""
        known = self.read(account.run_id)
        if known is not None:
            # One that began without a key has none at the server either.
            return msgspec.structs.replace(account, key=known.key)
        self.write(msgspec.structs.replace(account, key=new_key()))
        # A driver that lost its key would be a stranger to the server.
        return msgspec.structs.replace(account, key=self.key(account.run_id))

    def forget(self, run_id: str) -> None:
        """There is no such run any more."""
        for kind in (_ACCOUNT, _CURSOR):
            with suppress(OSError):
                self._path(run_id, kind).unlink()

    def unsettled(self, server: str) -> list[Account]:
        """Runs that may still owe this server something, the one touched longest ago first."""
        with suppress(OSError):
            paths = sorted((self.state_dir / FOLDER).glob(f"*{_ACCOUNT}"), key=_touched)
            accounts = [account for path in paths if (account := _decoded(path, Account)) is not None]
            return [one for one in accounts if one.server == server and not one.settled and not one.given_up]
        return []

    def _path(self, run_id: str, kind: str = _ACCOUNT) -> Path:
        return self.state_dir / FOLDER / f"{run_id}{kind}"


def _replace(path: Path, content: bytes) -> None:
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, made = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".new")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            Path(made).replace(path)
        except OSError:
            with suppress(OSError):
                Path(made).unlink()
            raise


def _touched(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _decoded(path: Path, kind: type[T]) -> T | None:
    with suppress(OSError, ValueError), path.open("rb") as file:
        return msgspec.json.decode(file.read(_LARGEST), type=kind)
    return None

"""A line to a server, put together from what the user set and what the process knows."""

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from untildone.config import SERVER_TOKEN
from untildone.core.dataclass import dataclass
from untildone.core.policy import RunSpec
from untildone.core.printable import one_line
from untildone.errors import ConfigError
from untildone.ports import Uplink
from untildone.uplink.dressing import Dressing, Transcript
from untildone.uplink.known_secrets import KnownSecrets
from untildone.uplink.masking import Masking
from untildone.uplink.owed import Account, Accounts
from untildone.uplink.published_protocol import SandboxUplink
from untildone.uplink.serving import Beside, Line
from untildone.uplink.settings import UplinkSettings, checked_address, is_readable_on_the_way, sandbox_slug

_LONGEST_TOKEN = 4096


def settings_for(
    spec: RunSpec, env: Mapping[str, str], state_dir: Path, run_id: str, given: UplinkSettings | None = None
) -> UplinkSettings | None:
    """Where a run reports to: as the embedding program says, else as its settings do; None: nowhere."""
    if given is not None:
        return replace(given, server=checked_address(given.server), mask=(*given.mask, *spec.mask))
    if spec.server is None:
        return _as_before(spec, env, Accounts(state_dir).read(run_id))
    server = checked_address(spec.server)
    return UplinkSettings(
        server=server,
        sandbox_id=_sandbox(spec, Accounts(state_dir).read(run_id), server),
        token=token_for(spec.server_token_file, env),
        token_file=spec.server_token_file,
        mask=spec.mask,
        portable=spec.portable,
    )


def _sandbox(spec: RunSpec, known: Account | None, server: str) -> str:
    """A run keeps the name under which the server knows it, whatever this machine is called by now."""
    if known is None or known.server != server or (spec.sandbox_id and not known.acknowledged):
        return spec.sandbox_id or sandbox_slug(socket.gethostname())
    return known.sandbox_id


def _as_before(spec: RunSpec, env: Mapping[str, str], known: Account | None) -> UplinkSettings | None:
    """Where a run reported to whose server was named by the program that drove it then, as a worker is."""
    if known is None:
        return None
    token = token_for(None, env)
    return UplinkSettings(
        server=checked_address(known.server), sandbox_id=known.sandbox_id, token=token, mask=spec.mask
    )


def token_for(file: str | None, env: Mapping[str, str]) -> str:
    """The token for a server, from a file or the environment; "" when there is none. It is never an option."""
    if file is None:
        return env.get(SERVER_TOKEN, "").strip()
    try:
        handle = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as opened:
            token = opened.read(_LONGEST_TOKEN).decode("utf-8", "replace").strip()
    except OSError as wrong:
        raise ConfigError(f"the token file {file} cannot be read: {wrong.strerror}") from None
    if not token:
        raise ConfigError(f"the token file {file} is empty")
    return token


@dataclass(frozen=True, slots=True, kw_only=True)
class Here:
    """What the process knows that drives a run."""

    env: Mapping[str, str]
    state_dir: Path
    now: Callable[[], float]
    transcript: Transcript | None = None
    """Reads the transcript of a session."""
    beside: Sequence[Beside] = ()
    """What else goes to the server."""
    notice: Callable[[str], None] = lambda _: None
    """Told what only concerns whoever watches right now."""


def line_for(spec: RunSpec, run_id: str, here: Here, *, given: UplinkSettings | None = None) -> Line | None:
    """The line of a run to its server; None: it has none. Nothing is sent yet, but what cannot work is said."""
    settings = settings_for(spec, here.env, here.state_dir, run_id, given)
    if settings is None:
        return None
    if settings.token and is_readable_on_the_way(settings.server):
        here.notice(
            f"the token for {one_line(settings.server, 200)} travels readable by everybody on the way: "
            "give an https:// address"
        )
    return open_line(settings, here, folder=spec.cwd)


def open_line(settings: UplinkSettings, here: Here, *, folder: str) -> Line:
    """A line over HTTP. ConfigError for a pattern that cannot be read."""
    known = KnownSecrets(here.env, folder, also=(settings.token,), now=here.now, tell=here.notice)
    masking = Masking(known, settings.mask)
    accounts = Accounts(here.state_dir)

    def renewed() -> str:
        return replace(settings, token=token_for(settings.token_file, {SERVER_TOKEN: settings.token})).token

    def connect(sandbox_id: str) -> Uplink:
        ids = {**settings.ids, "sandbox_id": sandbox_id}
        dress = Dressing(masking, ids, here.transcript if settings.report_transcript else None)
        return SandboxUplink(
            settings.server,
            sandbox_id,
            settings.token,
            dress=dress,
            renewed=renewed,
            accounts=accounts,
            tell=here.notice,
        )

    return Line(settings=settings, connect=connect, accounts=accounts, beside=here.beside, notice=here.notice)

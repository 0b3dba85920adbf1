"""`resume --from-server`: a run that lived on another machine is brought here, and then resumed like any other."""

import os
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from untildone import config, wiring
from untildone.cli.driving import opened
from untildone.cli.streams import say
from untildone.core.policy import Policy, RunSpec
from untildone.core.printable import one_line
from untildone.errors import UsageError
from untildone.moving import Destination, bring_here
from untildone.uplink.client import HttpUplink
from untildone.uplink.fetching import Reader
from untildone.uplink.opening import token_for
from untildone.uplink.owed import new_key
from untildone.uplink.settings import checked_address, sandbox_slug

_SHOWN = 200
_LINE = 2000
_OPERATOR = (
    f"taking a run over needs an operator token, on the server's own machine too: set {config.SERVER_TOKEN} to "
    "what `untildone token create --scope operator` prints there"
)


async def bring(
    run: str | None, store: Path, cwd: str | None, typed: Mapping[str, Any], *, take: bool, trust: bool
) -> str:
    """Take the run over, with other settings if given; returns its id."""
    if not run:
        raise UsageError(
            "which run? `untildone resume --from-server RUN`, by its name or its id as the server shows them"
        )
    server, token, sandbox_id = _server(typed)
    folder = config.expanded(cwd).absolute() if cwd else Path.cwd()
    clock = wiring.system_clock()

    def settle(spec: RunSpec, policy: Policy) -> tuple[RunSpec, Policy]:
        return config.changed(typed, spec, policy, now=clock.now()) if typed else (spec, policy)

    blank, _ = settle(RunSpec(goal="", cwd=str(folder), name=""), Policy())
    if not token:
        # A server on this machine shows the run without one, and would refuse when the yes to it was given already.
        raise UsageError(_OPERATOR)
    key = new_key()
    uplink = HttpUplink(server, sandbox_id, token, key=lambda _: key, wants=_OPERATOR)
    try:
        async with opened(store) as log:
            to = Destination(
                log=log, store=store, folder=folder, server=server, sandbox_id=sandbox_id, key=key,
                clock=clock, take=take,
                config_dir=wiring.claude_config_dir(replace(blank, cwd=str(folder)), os.environ),
                host=socket.gethostname(), agree=lambda lines: _agree(lines, trust=trust), settle=settle,
            )  # fmt: skip
            reader = Reader(uplink, sandbox_id)
            run_id = await reader.meant(run)
            for line in await bring_here(reader, run_id, to):
                say(line)
    finally:
        await uplink.close()
    return run_id


def _server(typed: Mapping[str, Any]) -> tuple[str, str, str]:
    """Its address, the token for it, and what this machine is called there."""
    wanted = {name: typed[name] for name in ("server", "server_token_file", "sandbox_id") if name in typed}
    resolved = config.resolve(wanted, env=os.environ, user_file=config.user_file(os.environ))
    server = resolved.value("server")
    if server is None:
        raise UsageError("which server? give --server URL, or set UNTILDONE_SERVER")
    sandbox_id = resolved.value("sandbox_id") or sandbox_slug(socket.gethostname())
    return checked_address(server), token_for(resolved.value("server_token_file"), os.environ), sandbox_id


def _agree(lines: Sequence[str], *, trust: bool) -> None:
    """A run that somebody started elsewhere may bring commands along that run here without any agent in between."""
    if trust or not lines:
        return
    say("this run was started on another machine and brings along:")
    for line in lines[:_SHOWN]:
        say(f"  {one_line(line, _LINE)}")
    if len(lines) > _SHOWN:
        say(f"  and {len(lines) - _SHOWN} more")
    if not sys.stdin.isatty():
        raise UsageError("nothing of that runs here without a yes: say it with --trust")
    if not click.confirm("let all of that run here?", err=True):
        raise click.Abort

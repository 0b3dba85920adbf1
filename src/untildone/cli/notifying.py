"""`notify test`: whether a message really arrives, tried before the night."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

import click

from untildone import config, wiring
from untildone.cli.guarding import operator_only
from untildone.core.notice import trial_note
from untildone.errors import UsageError
from untildone.notify.opening import open_notifiers
from untildone.ports import Notifier


@click.group()
def notify() -> None:
    """Where runs tell what happens."""


@notify.command(short_help="Send a test message to each address.")
@click.argument("urls", metavar="[URL]...", nargs=-1)
@operator_only
def test(urls: Sequence[str]) -> int:
    """Send a test message to these addresses, or to those the settings name."""
    channels = open_notifiers(urls or _configured())
    if not channels:
        raise UsageError("there is no address to notify: give one, or set one with --notify or in a settings file")
    troubles = asyncio.run(_send(channels))
    for channel, trouble in zip(channels, troubles, strict=True):
        click.echo(f"{channel.name}: {trouble or 'ok'}")
    return 1 if any(troubles) else 0


async def _send(channels: Sequence[Notifier]) -> list[str]:
    note = trial_note(wiring.system_clock().now())
    return await asyncio.gather(*(channel.send(note) for channel in channels))


def _configured() -> tuple[str, ...]:
    folder = Path.cwd()
    found = config.resolve(
        {}, env=os.environ, project_file=config.project_file(folder), user_file=config.user_file(os.environ)
    )
    named: tuple[str, ...] = found.value("notify")
    return named

"""`autostart`: after a reboot the system itself takes up the runs that were interrupted."""

import getpass
import os
import plistlib
import sys
from collections.abc import Mapping
from pathlib import Path
from xml.parsers.expat import ExpatError

import click

from untildone.cli.guarding import operator_only
from untildone.core.dataclass import dataclass
from untildone.errors import UntildoneError, UsageError

UNIT_NAME = "untildone.service"
LABEL = "untildone.autostart"
MARK = "# Written by `untildone autostart install`."
LINGER = Path("/var/lib/systemd/linger")
KEPT = ("PATH", "UNTILDONE_HOME", "UNTILDONE_STORE", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "CLAUDE_CONFIG_DIR")
"""What a run needs from the environment and a service does not get by itself. No keys: this file is no safe."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """The file that makes a system start us, and what goes with it."""

    path: Path
    content: bytes
    switch: Path | None
    """The link by which the system knows that it is switched on."""
    after_install: tuple[str, ...]
    after_uninstall: tuple[str, ...]


@click.group()
def autostart() -> None:
    """Resume interrupted runs after a reboot."""


@autostart.command()
@operator_only
def install() -> None:
    """Write the service file, and say what to run next."""
    service = service_here()
    if _existing(service) == service.content:
        click.echo(f"{service.path} is there already, as it should be")
    else:
        _write(service)
        click.echo(f"wrote {service.path}")
    click.echo("Now run:")
    for command in service.after_install:
        click.echo(f"  {command}")
    click.echo("It does not hold any API key: what `claude` needs beside its login, the system must provide.")


@autostart.command()
@operator_only
def uninstall() -> None:
    """Remove the service file, and nothing else."""
    service = service_here()
    if _existing(service) is None:
        click.echo(f"there is no {service.path}")
        return
    for file in (service.switch, service.path):
        if file is not None and (file == service.path or _is_ours(file, service)):
            _remove(file)
            click.echo(f"removed {file}")
    click.echo("Now run:")
    for command in service.after_uninstall:
        click.echo(f"  {command}")


@autostart.command()
def status() -> None:
    """Say whether interrupted runs are resumed after a reboot."""
    service = service_here()
    found = _existing(service)
    if found is None:
        click.echo("not installed: `untildone autostart install` does it")
        return
    stale = "" if found == service.content else " (of another version or place: install it again)"
    click.echo(f"installed: {service.path}{stale}")
    if service.switch is not None:
        on = _is_ours(service.switch, service)
        click.echo("switched on" if on else f"not switched on: systemctl --user enable {UNIT_NAME}")
        lingers = (LINGER / getpass.getuser()).exists()
        click.echo("starts with the machine" if lingers else "starts when you log in; earlier: loginctl enable-linger")


def service_here() -> Service:
    """The service for this system. UsageError where we know none."""
    if sys.platform == "darwin":
        return launchd_agent(os.environ)
    if sys.platform.startswith("linux"):
        return systemd_unit(os.environ)
    raise UsageError(f"autostart knows systemd and launchd, and {sys.platform} has neither")


def systemd_unit(env: Mapping[str, str]) -> Service:
    """A user unit that takes up interrupted runs once, at the start of the user's session."""
    if set(sys.executable) & set("'\"\\") or not sys.executable.isprintable():
        raise UsageError(
            f"systemd starts no program with quotes in its path: install untildone elsewhere than {sys.executable}"
        )
    folder = _base(env, "XDG_CONFIG_HOME", ".config") / "systemd" / "user"
    lines = [
        MARK,
        "[Unit]",
        "Description=Resume interrupted runs of untildone",
        "",
        "[Service]",
        "Type=oneshot",
        # The runs go on in the background. A service that is over would take them along.
        "RemainAfterExit=yes",
        *(f"Environment={_quoted(f'{name}={value}')}" for name, value in _kept(env).items()),
        # The colon: a dollar sign in a path is just that.
        f"ExecStart={' '.join(_quoted(word) for word in (':' + sys.executable, *_ARGUMENTS))}",
        "",
        "[Install]",
        "WantedBy=default.target",
        "",
    ]
    return Service(
        path=folder / UNIT_NAME,
        content="\n".join(lines).encode(),
        switch=folder / "default.target.wants" / UNIT_NAME,
        after_install=(
            "systemctl --user daemon-reload",
            f"systemctl --user enable {UNIT_NAME}",
            "loginctl enable-linger   # so that it starts with the machine, not with your next login",
        ),
        after_uninstall=("systemctl --user daemon-reload",),
    )


def launchd_agent(env: Mapping[str, str]) -> Service:
    """A launch agent that takes up interrupted runs once, at login."""
    path = _base(env, "", "Library/LaunchAgents") / f"{LABEL}.plist"
    content = plistlib.dumps(
        {
            "Label": LABEL,
            "ProgramArguments": [sys.executable, *_ARGUMENTS],
            "EnvironmentVariables": _kept(env),
            "RunAtLoad": True,
            # The runs go on in the background when this command is over.
            "AbandonProcessGroup": True,
        }
    )
    return Service(
        path=path,
        content=content,
        switch=None,
        after_install=(f"launchctl bootstrap gui/{os.getuid()} '{path}'",),
        after_uninstall=(f"launchctl bootout gui/{os.getuid()}/{LABEL}",),
    )


_ARGUMENTS = ("-P", "-m", "untildone", "resume", "--interrupted", "--detach")


def _kept(env: Mapping[str, str]) -> dict[str, str]:
    kept = {name: env[name] for name in KEPT if env.get(name)}
    broken = next((name for name, value in kept.items() if not value.isprintable()), None)
    if broken is not None:
        raise UsageError(f"{broken} holds characters that fit into no service file: set it to something plainer")
    return kept


def _quoted(word: str) -> str:
    """A word as systemd reads it back."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


def _base(env: Mapping[str, str], variable: str, fallback: str) -> Path:
    given = env.get(variable, "")
    return Path(given) if given.startswith("/") else Path(env.get("HOME") or Path.home()) / fallback


def _existing(service: Service) -> bytes | None:
    """What is there now. UsageError when somebody else wrote it."""
    try:
        content = service.path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as refused:
        raise _Unchanged(f"{service.path} cannot be read: {refused.strerror}") from refused
    if not _is_written_by_us(service.path, content):
        raise UsageError(f"{service.path} was not written by untildone: move it away first")
    return content


def _is_written_by_us(path: Path, content: bytes) -> bool:
    if path.suffix != ".plist":
        return content.startswith(MARK.encode())
    try:
        table = plistlib.loads(content)
    except (ValueError, ExpatError, plistlib.InvalidFileException):
        return False
    return isinstance(table, dict) and table.get("Label") == LABEL


def _is_ours(link: Path, service: Service) -> bool:
    return link.is_symlink() and link.parent / link.readlink() == service.path


def _write(service: Service) -> None:
    try:
        service.path.parent.mkdir(parents=True, exist_ok=True)
        service.path.write_bytes(service.content)
    except OSError as refused:
        raise _Unchanged(f"{service.path} cannot be written: {refused.strerror}") from refused


def _remove(file: Path) -> None:
    try:
        file.unlink()
    except OSError as refused:
        raise _Unchanged(f"{file} cannot be removed: {refused.strerror}") from refused


class _Unchanged(UntildoneError):
    """The system refused to let us write or remove the service file."""

"""What programs in a sandbox need to log in with the user's ssh-agent: its socket, known hosts, a way out."""

import stat
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from untildone.core.dataclass import dataclass
from untildone.errors import ConfigError

SOCKET = "SSH_AUTH_SOCK"
_PORT = 22
# Nothing but a shell is needed: not every machine has a program that speaks to proxies.
_THROUGH_THE_DOOR = r"""exec 3<>/dev/tcp/127.0.0.1/{port} || exit
printf 'CONNECT %s:%s HTTP/1.1\r\nhost: %s\r\n\r\n' "$1" "$2" "$1" >&3
IFS= read -r said <&3
case $said in *' 200 '*) ;; *) cat <&3 >&2; exit 1 ;; esac
while IFS= read -r line <&3 && [ "$line" != $'\r' ]; do :; done
cat <&3 & exec cat >&3
"""
_SETTINGS = """Host *
  ProxyCommand bash {script} %h %p
  UserKnownHostsFile {known}
  BatchMode yes
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LentAgent:
    """What is lent, and what programs are told of it."""

    lent: tuple[tuple[Path, Path, bool], ...]
    """Source, place, and whether it may be written."""
    env: Mapping[str, str]


def lend_agent(env: Mapping[str, str], *, home: Path, files: Path, port: int) -> LentAgent:
    """`files`: a folder that is seen inside at the same place; `port`: of the door. ConfigError without an agent."""
    place = Path(env.get(SOCKET, ""))
    if not place.is_absolute() or not _is_socket(place):
        raise ConfigError(
            f"--ssh-agent needs an ssh-agent that runs, and {SOCKET} names none: start one, or leave it out"
        )
    known, script, settings = home / ".ssh" / "known_hosts", files / "through-the-door", files / "ssh-settings"
    files.mkdir(mode=0o700, parents=True, exist_ok=True)
    script.write_text(_THROUGH_THE_DOOR.format(port=port), "utf-8")
    settings.write_text(_SETTINGS.format(script=script, known=known), "utf-8")
    lent = [(place, place, False), *([(known, known, False)] if known.is_file() else [])]
    return LentAgent(lent=tuple(lent), env={SOCKET: str(place), "GIT_SSH_COMMAND": f"ssh -F {settings}"})


def _is_socket(place: Path) -> bool:
    try:
        return stat.S_ISSOCK(place.stat().st_mode)
    except OSError:
        return False


def ssh_host(address: str) -> str:
    """HOST:PORT of an address of ssh; "" for any other."""
    if "://" in address:
        try:
            parts = urlsplit(address)
            found, port = parts.hostname or "", parts.port or _PORT
        except ValueError:
            return ""
        return f"{found}:{port}" if parts.scheme in {"ssh", "git+ssh", "ssh+git"} and found else ""
    host, colon, _ = address.partition(":")
    return f"{host.rpartition('@')[2]}:{_PORT}" if colon and host and "/" not in host else ""

"""Which forge, and which repository on it, a remote's address means."""

import re
from urllib.parse import unquote, urlsplit

from untildone.core.dataclass import dataclass
from untildone.core.printable import one_line
from untildone.errors import ConfigError

GITHUB = "github.com"
NO_GITHUB = frozenset(
    {"gitlab.com", "bitbucket.org", "codeberg.org", "gitea.com", "dev.azure.com", "ssh.dev.azure.com", "git.sr.ht"}
)
"""Well-known forges that speak another language."""
_TENANTS = ".ghe.com"
_SSH_OVER_HTTPS = {"ssh.github.com": GITHUB}
_SCP_LIKE = re.compile(r"(?:[^@/\s]+@)?(?P<host>\[[0-9a-fA-F:]+\]|[^:/\s]{2,}):(?P<path>[^\s]+)")
_NAME = re.compile(r"[A-Za-z0-9._-]+/[A-Za-z0-9._-]+")
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True)
class Remote:
    """What a remote's address says."""

    host: str
    repo: str
    """OWNER/NAME."""
    port: int | None = None
    """Only of a web address: the port of ssh says nothing about the API."""


def parse_remote(url: str) -> Remote | None:
    """Host and OWNER/NAME of an https, ssh or scp-like address; None for a path, or what is no such address."""
    url = url.strip()
    if "://" in url:
        return _from_url(url)
    match = _SCP_LIKE.fullmatch(url)
    return _remote(match["host"].strip("[]"), match["path"], None) if match else None


def _from_url(url: str) -> Remote | None:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if parts.scheme not in {"https", "http", "ssh", "git", "git+ssh", "ssh+git"} or not host:
        return None
    return _remote(host, unquote(parts.path), port if parts.scheme in {"https", "http"} else None)


def _remote(host: str, path: str, port: int | None) -> Remote | None:
    repo = path.strip("/").removesuffix(".git")
    host = _SSH_OVER_HTTPS.get(host.lower(), host.lower())
    return Remote(host, repo, port) if is_repo(repo) else None


def is_repo(text: str) -> bool:
    """Whether this is OWNER/NAME: it becomes part of addresses, so nothing else may pass."""
    return bool(_NAME.fullmatch(text)) and not {".", ".."} & set(text.split("/"))


def api_of(remote: Remote) -> str:
    """The API of the GitHub a remote points to."""
    if remote.host == GITHUB:
        return "https://api.github.com"
    if remote.host.endswith(_TENANTS):
        return f"https://api.{remote.host}"
    port = f":{remote.port}" if remote.port else ""
    return f"https://{remote.host}{port}/api/v3"


def checked_api(url: str) -> str:
    """An API's address as it may be used: a login goes only over https, or to this machine itself."""
    try:
        parts = urlsplit(url.strip())
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or parts.username or parts.query or parts.fragment or parts.scheme not in {"https", "http"}:
        raise ConfigError(f"{one_line(url, 80)!r} is no address of a forge: write it like https://HOST/api/v3")
    if parts.scheme == "http" and host not in _LOOPBACK:
        raise ConfigError(f"a login is not sent to {host} in the clear: give an https address with --forge-url")
    return url.strip().rstrip("/")


def host_of(api: str) -> str:
    """The host whose login is needed for an API."""
    host = urlsplit(api).hostname or ""
    return GITHUB if host == "api.github.com" else host.removeprefix("api.") if host.endswith(_TENANTS) else host


def is_loopback(url: str) -> bool:
    """Whether an address leads to this machine itself."""
    return urlsplit(url).hostname in _LOOPBACK

"""How an agent in a sandbox gets at the run's own remote and its forge: through the door, with logins kept outside."""

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import field
from urllib.parse import unquote, urlsplit

from untildone.core.contract import FORGE_CONDITIONS
from untildone.core.dataclass import dataclass
from untildone.core.door import Way
from untildone.core.policy import RunSpec

_PASSES = ("accept", "content-", "git-", "if-", "range", "user-agent", "x-github-")
"""Beginnings of headers that git and clients of a forge need; others could tell the server to do something else."""
REMOTE_HOST = "remote.invalid"
"""What the remote's host is called inside."""
FORGE_HOST = "forge.invalid"
_PUSHES = "Bash(git push"


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteAccess:
    """What leads there, and what programs inside are told of it."""

    ways: tuple[Way, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    hosts: tuple[str, ...] = ()
    """What may be connected to: by ssh, where the user's ssh-agent is lent."""

    def __or__(self, other: "RemoteAccess") -> "RemoteAccess":
        hosts = (*self.hosts, *other.hosts)
        return RemoteAccess(ways=(*self.ways, *other.ways), env={**self.env, **other.env}, hosts=hosts)


def may_publish(spec: RunSpec) -> bool:
    """Whether the agent may push: only if the user allows `git push`, or asks for it by a condition.

    `--skip-permissions` alone does not lift what the login of the user can do to a repository that others use.
    """
    rules = (*spec.options.allowed_tools, *spec.options.allow_tools)
    asked = any(check.kind in FORGE_CONDITIONS for check in spec.contract.checks)
    return asked or any(rule.startswith(_PUSHES) for rule in rules)


def login_in(address: str) -> tuple[str, str] | None:
    """User and password that are written into an address."""
    parts = urlsplit(address)
    return (unquote(parts.username or ""), unquote(parts.password)) if parts.password else None


def git_access(address: str, login: tuple[str, str] | None, *, publishes: bool) -> RemoteAccess:
    """The run's own repository at a web address without a login in it, and no other repository of that host."""
    parts = urlsplit(address)
    path = parts.path.rstrip("/").removesuffix(".git")
    if parts.scheme not in {"http", "https"} or not parts.hostname or not path.strip("/"):
        return RemoteAccess()
    reads, writes = (("GET", "info/refs"), ("POST", "git-upload-pack")), (("POST", "git-receive-pack"),)
    asked = (*reads, *writes) if publishes else reads
    calls = tuple((verb, f"{path}{end}/{what}") for verb, what in asked for end in ("", ".git"))
    adds = (("authorization", f"Basic {b64encode(':'.join(login).encode()).decode()}"),) if login else ()
    upstream = f"{parts.scheme}://{parts.netloc}"
    # Git reads settings from the environment after all files: nothing has to be written.
    told = {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.http://{REMOTE_HOST}{path}.insteadOf",
        "GIT_CONFIG_VALUE_0": f"{upstream}{path}",
    }
    way = Way(host=REMOTE_HOST, upstream=upstream, adds=adds, calls=calls, passes=_PASSES)
    return RemoteAccess(ways=(way,), env=told)


def forge_access(api: str, repo: str, token: str, *, publishes: bool) -> RemoteAccess:
    """What the forge tells of one repository, by its REST API; `api` without a slash at its end.

    Not GraphQL: one such request can ask for everything the login may see.
    """
    base = f"/repos/{repo}"
    writes = (("POST", f"{base}/pulls"),) if publishes else ()
    adds = (("authorization", f"Bearer {token}"),) if token else ()
    calls = (("GET", base), ("GET", f"{base}/"), *writes)
    way = Way(host=FORGE_HOST, upstream=api, adds=adds, calls=calls, passes=_PASSES)
    return RemoteAccess(ways=(way,), env={"GITHUB_API_URL": f"http://{FORGE_HOST}", "GITHUB_REPOSITORY": repo})

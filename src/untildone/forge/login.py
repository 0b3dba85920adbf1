"""The user's login at a forge: from the environment, else what `gh` keeps. It is never printed, stored or logged."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from untildone.core.contract import FORGE_CONDITIONS
from untildone.core.policy import Landing, RunSpec
from untildone.errors import ConfigError, LoginMissing
from untildone.forge.address import GITHUB, NO_GITHUB, api_of, checked_api, host_of, is_repo, parse_remote

PATIENCE = 10.0
"""Seconds `gh` may take."""
OF_GITHUB = ("GITHUB_TOKEN", "GH_TOKEN")
OF_ENTERPRISE = ("GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN")
SHORTEST = 8
"""What is shorter is no login, and would be found in any text."""


def login_names(spec: RunSpec) -> frozenset[str]:
    """The variables with the login for a forge, which neither agent, checks nor hooks get where the loop uses it.

    An agent that is to publish by itself is asked for that by a condition, and needs it.
    """
    publishes = any(check.kind in FORGE_CONDITIONS for check in spec.contract.checks)
    return frozenset() if spec.landing.land != "pr" or publishes else frozenset(OF_GITHUB + OF_ENTERPRISE)


def logins(spec: RunSpec, env: Mapping[str, str]) -> tuple[str, ...]:
    """The logins themselves, where the loop uses them: nothing that is kept or shown may hold one."""
    if spec.landing.land != "pr":
        return ()
    values = (env.get(name, "").strip() for name in OF_GITHUB + OF_ENTERPRISE)
    return tuple(value for value in values if len(value) >= SHORTEST)


async def find_token(host: str, env: Mapping[str, str], *, chosen: bool = False) -> str:
    """A token for this host. LoginMissing names every place that was looked at.

    A token meant for github.com goes to another host only when the user chose that host by name: the address of a
    remote alone is no reason to hand it out.
    """
    is_github = host == GITHUB or host.endswith(".ghe.com")
    names = OF_GITHUB if is_github else OF_ENTERPRISE + (OF_GITHUB if chosen else ())
    for name in names:
        if token := env.get(name, "").strip():
            return _clean(token, name)
    if token := await _from_gh(host, env):
        return _clean(token, "gh")
    raise LoginMissing(
        f"there is no login for {host}: set {' or '.join(names[:2])}, or log in with `gh auth login --hostname {host}`"
    )


async def find_forge(landing: Landing, address: str, env: Mapping[str, str]) -> tuple[str, str, str] | None:
    """The API of a run's forge, OWNER/NAME, and a login there or ""; None if it is no GitHub as far as is known."""
    remote = parse_remote(address) if address else None
    repo = landing.repo or (remote.repo if remote else "")
    if not is_repo(repo) or (landing.forge_url is None and (remote is None or remote.host in NO_GITHUB)):
        return None
    try:
        api = checked_api(landing.forge_url or (api_of(remote) if remote else ""))
        return api, repo, await find_token(host_of(api), env, chosen=landing.forge_url is not None)
    except LoginMissing:
        is_known = landing.forge_url is not None or host_of(api) == GITHUB
        return (api, repo, "") if is_known else None
    except ConfigError:
        return None


def _clean(token: str, source: str) -> str:
    """A token becomes a header: anything but plain characters would break it, or end up in an error's text."""
    if token.isascii() and token.isprintable() and " " not in token:
        return token
    raise LoginMissing(f"the token from {source} has characters that no token has: set it again")


async def _from_gh(host: str, env: Mapping[str, str]) -> str:
    """What `gh` has for this host; "" without it."""
    # With a token in its environment gh would only repeat it, whatever host it is meant for.
    clean = {name: value for name, value in env.items() if name not in OF_GITHUB + OF_ENTERPRISE}
    program = ("gh", "auth", "token", "--hostname", host)
    try:
        process = await asyncio.create_subprocess_exec(
            *program,
            env=clean | {"GH_PROMPT_DISABLED": "1", "GH_NO_UPDATE_NOTIFIER": "1"},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError:
        return ""
    try:
        async with asyncio.timeout(PATIENCE):
            out, _ = await process.communicate()
    except TimeoutError:
        return ""
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return out.decode("utf-8", "replace").strip() if process.returncode == 0 else ""

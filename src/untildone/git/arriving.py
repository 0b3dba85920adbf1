"""A folder made ready for a worker in a sandbox: cloned if it is empty, and on the branch that was asked for."""

import os
from collections.abc import Mapping
from pathlib import Path

from untildone.core.printable import one_line
from untildone.errors import WishRefused, WorkspaceError
from untildone.git.repository import NO_HOOKS, project_root
from untildone.git.run import COMMIT_TIMEOUT, UNATTENDED, disk_trouble, first_line, git

_HELPER = (
    '!f() { test "$1" = get && test -n "$GITHUB_TOKEN" && '
    'printf "username=x-access-token\\npassword=%s\\n" "$GITHUB_TOKEN"; }; f'
)
"""What git asks for a login: the token is read from the environment of the moment, and written down nowhere."""


def login_by_token(env: Mapping[str, str], host: str = "https://github.com") -> dict[str, str]:
    """Variables by which git logs in there with GITHUB_TOKEN; what is configured by variables already stays."""
    count = env.get("GIT_CONFIG_COUNT", "0")
    at = int(count) if count.isascii() and count.isdigit() else 0
    # An empty helper first: those of the machine would be asked before, and told to remember the token after.
    settings = ((f"credential.{host}.helper", ""), (f"credential.{host}.helper", _HELPER))
    found = {"GIT_CONFIG_COUNT": str(at + len(settings))}
    for number, (key, value) in enumerate(settings, at):
        found |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return found


async def cloned(folder: Path, address: str) -> bool:
    """Clone into a folder that is missing or empty; False: something is there already, and is left as it is."""
    with disk_trouble(f"cannot make {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        if os.listdir(folder):  # noqa: PTH208 - all there is to know is whether it is empty
            return False
    asked = (*NO_HOOKS, "clone", "-q", "--", address, ".")
    done = await git(asked, cwd=folder, env=UNATTENDED, check=False, timeout=COMMIT_TIMEOUT)
    if done.code:
        raise WorkspaceError(f"{address} could not be cloned into {folder}: {first_line(done.err)}")
    return True


async def on_branch(folder: Path, branch: str, *, remote: str = "origin") -> str:
    """Switch to a branch: the one here, else the remote's, else a new one. "" or one line about what was done.

    WishRefused where there is no repository, or where uncommitted work is in the way.
    """
    top = project_root(folder)
    here = await git(("symbolic-ref", "-q", "--short", "HEAD"), cwd=top, check=False)
    if here.code == 0 and here.text == branch:
        return ""
    if (await git(("rev-parse", "--git-dir"), cwd=top, check=False)).code:
        raise WishRefused(f"{folder} is not in a git repository: it cannot be on branch {branch}")
    if not await _has(top, f"refs/heads/{branch}"):
        # A remote that cannot be asked, or has no such branch, is told by the look after it.
        fetching = ("fetch", "-q", "--no-tags", remote, f"+refs/heads/{branch}:refs/remotes/{remote}/{branch}")
        await git((*NO_HOOKS, *fetching), cwd=top, env=UNATTENDED, check=False, timeout=COMMIT_TIMEOUT)
    how: tuple[str, ...]
    if await _has(top, f"refs/heads/{branch}"):
        how, told = (branch,), f"switched to branch {branch}"
    elif await _has(top, f"refs/remotes/{remote}/{branch}"):
        how, told = ("-c", branch, "--track", f"{remote}/{branch}"), f"switched to branch {branch} of {remote}"
    else:
        how, told = ("-c", branch), f"made branch {branch}"
    done = await git((*NO_HOOKS, "switch", "-q", *how), cwd=top, check=False)
    if done.code:
        raise WishRefused(f"{folder} cannot be switched to branch {branch}: {first_line(done.err)}")
    return one_line(told)


async def _has(top: Path, ref: str) -> bool:
    return (await git(("rev-parse", "-q", "--verify", f"{ref}^{{commit}}"), cwd=top, check=False)).code == 0

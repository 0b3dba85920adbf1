"""The address of a remote, and the login that the user's git has for it. It is never printed, stored or logged."""

from pathlib import Path

from untildone.errors import WorkspaceError
from untildone.git.run import UNATTENDED, git

_PATIENCE = 15.0
_NO_QUESTIONS = UNATTENDED | {"GIT_ASKPASS": "", "SSH_ASKPASS": ""}
"""Neither a terminal nor a window is asked."""


async def remote_address(folder: Path, name: str) -> str:
    """Where a remote lies; "" without one. It may hold a password: not for eyes."""
    asked = await git(["remote", "get-url", "--", name], cwd=folder, check=False)
    return "" if asked.code else asked.text


async def login_for(folder: Path, address: str) -> tuple[str, str] | None:
    """User and password for a web address, from the helpers that the user's settings name."""
    asked = ["-c", "core.askPass=", "credential", "fill"]
    wanted = f"url={address}\n\n".encode()
    try:
        done = await git(
            asked, cwd=folder, env=_NO_QUESTIONS, stdin=wanted, check=False, timeout=_PATIENCE, dies_with_us=True
        )
    except WorkspaceError:
        return None
    lines = (line.partition("=") for line in done.out.decode("utf-8", "replace").splitlines())
    told = {name: value for name, _, value in lines}
    return (told.get("username", ""), told["password"]) if done.code == 0 and told.get("password") else None

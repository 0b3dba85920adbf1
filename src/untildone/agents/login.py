"""Whether Claude Code has a login: told by signs and by Claude Code itself, never by reading one."""

import asyncio
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from untildone.core.checkup import LOG_IN, Login, read_login
from untildone.errors import AgentError, NotLoggedIn

PATIENCE = 20.0
_VARIABLES = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")
_OTHER_CLOUDS = "CLAUDE_CODE_USE_"
_CREDENTIALS = ".credentials.json"
_SETTINGS = (".claude/settings.json", ".claude/settings.local.json")
_LONGEST = 1 << 20


async def ask(argv: Sequence[str], *, env: Mapping[str, str], patience: float = PATIENCE) -> tuple[int | None, str]:
    """What a program answers: its exit code (None: it did not end in time or cannot be started) and its output.

    It is started in an empty folder: a project has settings, hooks and servers that are not part of the question.
    """
    pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    with tempfile.TemporaryDirectory(prefix="untildone-ask-") as empty:
        try:
            process = await asyncio.create_subprocess_exec(
                *argv, stdin=null, stdout=pipe, stderr=asyncio.subprocess.STDOUT, env=dict(env), cwd=empty
            )
        except OSError as broken:
            return None, f"cannot be started: {broken.strerror}"
        try:
            out, _ = await asyncio.wait_for(process.communicate(), patience)
        except TimeoutError:
            return None, f"no answer within {patience:.0f} s"
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    return process.returncode, out.decode("utf-8", "replace").strip()


async def login_of(claude: str, env: Mapping[str, str]) -> Login:
    """What Claude Code itself says: no request is sent."""
    return read_login((await ask([claude, "auth", "status", "--json"], env=env))[1])


async def log_in(claude: str, env: Mapping[str, str], *, console: bool) -> bool:
    """Claude Code's own login, in this terminal, whose words and questions pass by: nothing here reads them."""
    argv = [claude, "auth", "login", *(["--console"] if console else [])]
    with tempfile.TemporaryDirectory(prefix="untildone-login-") as empty:
        try:
            process = await asyncio.create_subprocess_exec(*argv, env=dict(env), cwd=empty)
        except OSError as broken:
            raise AgentError(f"{claude} cannot be started: {broken.strerror}") from broken
        try:
            return await process.wait() == 0
        finally:
            if process.returncode is None:
                process.terminate()
                await process.wait()


async def refuse_without_login(
    claude: str, env: Mapping[str, str], *, config_dir: Path, folders: Iterable[Path]
) -> None:
    """NotLoggedIn when Claude Code is sure that it has no login. `folders`: whose settings it would read as well."""
    if _has_sign(env, config_dir, folders):
        return
    login = await login_of(claude, env)
    if login.known and not login.logged_in:
        raise NotLoggedIn(f"Claude Code is not logged in, so nothing was started: {LOG_IN}")


def _has_sign(env: Mapping[str, str], config_dir: Path, folders: Iterable[Path]) -> bool:
    """A quick look: most people have a key or a login, and starting a program to ask would take a while."""
    if any(env.get(name) for name in _VARIABLES) or any(name.startswith(_OTHER_CLOUDS) for name in env):
        return True
    if os.path.exists(config_dir / _CREDENTIALS):  # noqa: PTH110 - pathlib raises for a name no disk takes
        return True
    # A project's own settings may name a key, or a program that prints one.
    return any(_may_name_a_key(folder / name) for folder in folders for name in _SETTINGS)


def _may_name_a_key(settings: Path) -> bool:
    try:
        with settings.open("rb") as file:
            text = file.read(_LONGEST)
    except OSError:
        return False
    return b"apiKeyHelper" in text or any(name.encode() in text for name in (*_VARIABLES, _OTHER_CLOUDS))

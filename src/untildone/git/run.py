"""The only place git is started: a safe environment, a bounded time, one clear line when it fails."""

import asyncio
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

from untildone.core.dataclass import dataclass
from untildone.core.printable import one_line
from untildone.errors import GitKilled, WorkspaceError

READ_TIMEOUT = 120.0
COMMIT_TIMEOUT = 900.0
"""Commits run the user's own hooks, and people keep whole test suites there."""

# A window that asks for a passphrase would wait for a human all night.
UNATTENDED = {"SSH_ASKPASS_REQUIRE": "never"}
"""Added to the environment of commands that talk to a remote."""

_MOST_SAID = 16 << 20
"""Bytes of complaints that are read: a hook may complain without end."""
_END_GRACE = 1.0
_GUARD_GRACE = 6.0
"""A guard goes through all that was started: killed before it is done, it would leave it behind."""

# A commit runs the user's hooks, which may take minutes. Should we be killed meanwhile, an orphaned commit would go
# on by itself and take what the next driver has staged. So a watcher in its process group reads from a pipe that we
# alone hold open: a line means that all went well, its end without one that we are dead. Linux' PR_SET_PDEATHSIG
# would reach git only and not the hook, needs code between fork and exec, and does not exist elsewhere.
_TIED = '(trap "" TERM; read -r _ <"$0" || { kill -TERM 0; sleep 2; kill -KILL 0; }) & exec "$@"'

_GONE = re.compile(r"fatal: bad object ([0-9a-f]{7,64})\b")
_ADVICE = re.compile(r"git config --global --add safe\.directory .+")

# A hook, an alias or a shell may have left these behind; each of them would make git look at another repository.
_MISLEADING = frozenset(
    {
        "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_COMMON_DIR", "GIT_CONFIG", "GIT_CONFIG_PARAMETERS", "GIT_DIR",
        "GIT_EXTERNAL_DIFF", "GIT_GLOB_PATHSPECS", "GIT_GRAFT_FILE", "GIT_ICASE_PATHSPECS", "GIT_IMPLICIT_WORK_TREE",
        "GIT_INDEX_FILE", "GIT_LITERAL_PATHSPECS", "GIT_NAMESPACE", "GIT_NOGLOB_PATHSPECS", "GIT_OBJECT_DIRECTORY",
        "GIT_PREFIX", "GIT_REPLACE_REF_BASE", "GIT_SHALLOW_FILE", "GIT_WORK_TREE",
    }
)  # fmt: skip

_QUIET = {
    "GIT_TERMINAL_PROMPT": "0",
    # Looking at a repository must not take locks the agent's own git could trip over.
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_EDITOR": ":",
    "GIT_PAGER": "cat",
    "LC_ALL": "C",
    # What an agent lets stand in for a commit or a file would be seen here and by nobody else.
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_GRAFT_FILE": f"{os.devnull}/none",
}

# A file monitor named in a repository's config is a program of that repository's choice, and it would outlive us. A
# folder of a clone may look like a bare repository, with a config that came along. `ext::` as an address is a command.
_ALWAYS = (
    "-c", "core.fsmonitor=false", "-c", "safe.bareRepository=explicit", "-c", "protocol.ext.allow=never",
)  # fmt: skip
# Behind a guard nothing outlives the command: tidying up in the background would be killed each time it begins.
_TO_THE_END = ("-c", "gc.autoDetach=false", "-c", "maintenance.autoDetach=false")


@dataclass(frozen=True, slots=True)
class GitResult:
    """What a git command answered."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        """Its stdout as one stripped string, for answers that are a name or a hash."""
        return os.fsdecode(self.out).strip()


async def git(
    args: Sequence[str],
    *,
    cwd: Path,
    git_dir: Path | None = None,
    work_tree: Path | None = None,
    env: Mapping[str, str] | None = None,
    withheld: Collection[str] = (),
    base: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
    check: bool = True,
    timeout: float = READ_TIMEOUT,
    dies_with_us: bool = False,
    behind: Sequence[str] = (),
    most: int = -1,
    script: str = "",
) -> GitResult:
    """Run one git command. WorkspaceError when it cannot start, takes too long, or (with `check`) fails.

    Of what it prints, at most so many bytes are read. `withheld`: variables it does not get; `base`: what it gets
    instead of ours.

    With `dies_with_us` it ends, hooks and all, when this process does. `behind`: the program that sees to that, and
    to it that nothing of a hook outlives the command. `script`: one of ours that runs git itself, with these words.
    """
    own = _environment(withheld) if base is None else {**base, **_QUIET}
    whole = own | _place(git_dir, work_tree) | dict(env or {})
    with disk_trouble(f"git {verb(args)} cannot run in {cwd}"), ExitStack() as files:
        # Files, not pipes: a hook may leave a background process behind that would keep a pipe open for ever.
        given, out, err = (files.enter_context(tempfile.TemporaryFile()) for _ in range(3))
        given.write(stdin or b"")
        given.seek(0)
        found = "git" if base is not None else _git_outside_of(cwd)
        program: list[str] = [*behind, found, *_TO_THE_END] if behind else [found]
        options: Sequence[str] = _ALWAYS
        if script:
            program, options = [*behind, "/bin/sh", "-c", script, "sh"], ()
        handed: tuple[int, ...] = ()
        if dies_with_us and not behind:
            program, handed = files.enter_context(_life_line(program[0]))
        process = await _start([*program, *options, *args], cwd, whole, (given, out, err), handed)
        late = f"git {verb(args)} did not end within {timeout:.0f} s in {cwd}"
        code = await _wait(process, timeout, late, _GUARD_GRACE if behind else _END_GRACE)
        result = GitResult(code, _content(out, most), _content(err, _MOST_SAID).decode("utf-8", "replace"))
    if check:
        refuse_failed(result, args, cwd)
    return result


def refuse_killed(done: GitResult, command: str) -> None:
    """GitKilled if somebody killed it."""
    if done.code == -signal.SIGKILL:
        raise GitKilled(f"git {command} was killed")


def refuse_failed(done: GitResult, args: Sequence[str], cwd: Path) -> None:
    """WorkspaceError in git's own words if it failed."""
    refuse_killed(done, verb(args))
    if done.code != 0:
        raise WorkspaceError(f"git {verb(args)} failed in {cwd}: {_cause(done.err)}")


def first_line(text: str) -> str:
    """The first line that says something, without what would disturb a terminal."""
    lines = (one_line(line) for line in text.splitlines())
    return next((line for line in lines if line), "it gave no reason")


@contextmanager
def disk_trouble(doing: str) -> Iterator[None]:
    """A full or read-only disk is expected trouble: one line, no traceback."""
    try:
        yield
    except OSError as trouble:
        raise WorkspaceError(f"{doing}: {_reason(trouble)}") from trouble


def _reason(trouble: OSError) -> str:
    """Somebody who tidies up may take the folder for temporary files along: nobody would guess that."""
    if isinstance(trouble, FileNotFoundError) and tempfile.tempdir and not Path(tempfile.tempdir).is_dir():
        return f"the folder for temporary files, {tempfile.tempdir}, is gone: make it again"
    return trouble.strerror or str(trouble)


def _cause(err: str) -> str:
    if gone := _GONE.search(err):
        return f"commit {gone[1][:10]} is not in the repository any more: fetch it again, or start a new run"
    # A folder of another owner (common in containers): git's own advice is the fix, some lines further down.
    advice = _ADVICE.search(err)
    return first_line(err) if advice is None else f"{first_line(err)}; run `{advice[0]}`"


def verb(args: Sequence[str]) -> str:
    """The command itself, without the settings before it."""
    start = 0
    while args[start : start + 1] == ("-c",) or args[start : start + 1] == ["-c"]:
        start += 2
    return args[start] if args[start:] else "command"


def _place(git_dir: Path | None, work_tree: Path | None) -> dict[str, str]:
    told = {"GIT_DIR": git_dir, "GIT_WORK_TREE": work_tree}
    return {name: str(place) for name, place in told.items() if place is not None}


_lent: set[Path] = set()
"""Folders in which an agent that is shut in may put programs: nothing of them is run outside."""


def lend(folders: Iterable[Path]) -> None:
    """From now on git, and what it starts, is never a program in these folders."""
    _lent.update(folders)


def take_back(folders: Iterable[Path]) -> None:
    """They were not lent: the user's own hooks may need programs in them."""
    _lent.difference_update(folders)


def _git_outside_of(cwd: Path) -> str:
    """Which git is started: never one in the tree it is asked about, where an agent may have put it."""
    top = next((place for place in (cwd, *cwd.parents) if os.path.lexists(place / ".git")), cwd)
    tops = [os.path.realpath(folder) for folder in (*_lent, top)]
    for place in os.environ.get("PATH", os.defpath).split(os.pathsep):
        # Looked at only where there is a git: this is done for every command.
        if (found := shutil.which("git", path=place)) and _is_outside(place, tops):
            return found
    return "git"


def path_outside(path: str, folders: Collection[Path]) -> str:
    """Where programs are looked for, without places in these folders."""
    tops = [os.path.realpath(folder) for folder in folders]
    return os.pathsep.join(place for place in path.split(os.pathsep) if _is_outside(place, tops))


def own_path() -> str:
    """Where what runs outside looks for programs: in no folder that was lent."""
    return path_outside(os.environ.get("PATH", os.defpath), _lent)


def _is_outside(place: str, tops: Collection[str]) -> bool:
    real = os.path.realpath(place)
    return place.startswith("/") and not any(real == top or real.startswith(f"{top.rstrip('/')}/") for top in tops)


def _environment(withheld: Collection[str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in _MISLEADING and name not in withheld}
    lent = {"PATH": own_path()} if _lent and "PATH" in kept else {}
    return kept | lent | _QUIET


def _content(file: IO[bytes], most: int = -1) -> bytes:
    file.seek(0)
    return file.read(most)


@contextmanager
def _life_line(program: str) -> Iterator[tuple[list[str], tuple[int, ...]]]:
    """What to start instead of plain git, and the file descriptor to hand over."""
    reader, writer = os.pipe()
    try:
        yield ["/bin/sh", "-c", _TIED, f"/dev/fd/{reader}", program], (reader,)
    finally:
        with suppress(BrokenPipeError):  # the watcher was ended together with the rest
            os.write(writer, b"\n")
        os.close(reader)
        os.close(writer)


async def _start(
    argv: Sequence[str],
    cwd: Path,
    env: Mapping[str, str],
    files: tuple[IO[bytes], IO[bytes], IO[bytes]],
    handed: tuple[int, ...],
) -> asyncio.subprocess.Process:
    stdin, stdout, stderr = files
    try:
        # Its own session, so that hooks and their children can be ended together with it.
        return await asyncio.create_subprocess_exec(
            *argv, cwd=cwd, env=env, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True, pass_fds=handed
        )
    except OSError as trouble:
        if shutil.which("git", path=env.get("PATH")) is None:
            install = "xcode-select --install" if sys.platform == "darwin" else "sudo apt install git"
            raise WorkspaceError(f"git is not installed: run `{install}`") from trouble
        raise WorkspaceError(f"cannot work in {cwd}: {trouble.strerror or trouble}") from trouble


async def _wait(process: asyncio.subprocess.Process, timeout: float, complaint: str, grace: float) -> int:
    try:
        async with asyncio.timeout(timeout):
            return await process.wait()
    except TimeoutError as late:
        raise WorkspaceError(complaint) from late
    finally:
        if process.returncode is None:
            await _end(process, grace)


async def _end(process: asyncio.subprocess.Process, grace: float) -> None:
    # Politely first: git removes its lock files on SIGTERM, and a lock left behind would block every later commit.
    for sign in (signal.SIGTERM, signal.SIGKILL):
        # One that has just ended is waited for as well: until then nobody has taken note of it.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
        with suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await process.wait()
                return


def obstacle(done: GitResult) -> str:
    """What is in the way of a merge or a switch. Git names the files on lines of their own."""
    lines = [line.strip() for line in done.err.splitlines()]
    files = [line for raw, line in zip(done.err.splitlines(), lines, strict=True) if raw.startswith("\t")]
    said = first_line(done.err).removeprefix("error: ").removesuffix(":")
    return f"{said}: {', '.join(files[:5])}" if files else said

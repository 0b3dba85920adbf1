"""Committing all that changed, in the user's name, or leaving everything exactly as it was."""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from untildone.core.dataclass import dataclass
from untildone.core.printable import printable
from untildone.errors import GitKilled, GitLocked, WorkspaceError
from untildone.git.admission import Refused, new_links
from untildone.git.leaks import refusal, staged_secrets
from untildone.git.locks import remove_own_locks
from untildone.git.plain_file import copy_plain
from untildone.git.repository import NO_HOOKS, PRIVATE_IDENTITY, Repository
from untildone.git.run import COMMIT_TIMEOUT, GitResult, disk_trouble, first_line, refuse_killed

SUBJECT_CHARS = 72
_BODY_CHARS = 10_000
_REASON_LINES = 20
_REASON_CHARS = 2000
_ADDED_IN_PART = 1
"""What `git add --ignore-errors` answers when some files could not be added."""
_TRIES = 5
"""Something may go on writing and deleting files while we look at them."""

_TRAILER = re.compile(r"[A-Za-z0-9-]+[ \t]*[:=#]|\(cherry picked from commit |---")
"""What git, or a program that reads its log, takes for more than text."""
_SUMMARY = re.compile(rb"^\[.+? ([0-9a-f]{40,64})\] .*?(?:\n (\d+) files? changed|\Z)", re.DOTALL)
_NOTHING = (b"nothing to commit", b"nothing added to commit", b"no changes added to commit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """How a commit went."""

    commit: str | None = None
    files: int = 0
    warning: str = ""
    complete: bool = True
    """All that was to be committed is in it."""
    nothing: bool = False
    """There was nothing to commit after all: the files differ in ways that git does not record."""
    locked: str = ""
    """The lock file that kept git from committing, and what to do about it."""


def clean_message(message: str, *, otherwise: str) -> str:
    """A first line of at most 72 characters, a blank line, a body; no control characters and no trailers in it.

    The words are an agent's or a program's: a line such as `Signed-off-by: ...` must not speak for the user.
    """
    lines = [line.strip() for line in printable(message.strip(), lines=True).split("\n")]
    first, rest = (lines[0], lines[1:]) if lines and lines[0] else (otherwise, lines)
    if len(first) > SUBJECT_CHARS:
        rest = [first, "", *rest]
        first = first[: SUBJECT_CHARS - 1].rsplit(" ", 1)[0].rstrip()[: SUBJECT_CHARS - 1] + "…"
    body = "\n".join(f"  {line}" if _TRAILER.match(line) else line for line in rest).strip("\n")[:_BODY_CHARS].rstrip()
    return f"{first}\n\n{body}\n" if body else f"{first}\n"


async def find_identity(repository: Repository) -> tuple[str, ...]:
    """The `-c` options that stand in for what the user has not configured; empty when nothing is missing."""
    if repository.private:
        return PRIVATE_IDENTITY
    asked = await repository.git("config", "-z", "--get-regexp", r"^user\.(name|email)$", check=False)
    pairs = (entry.partition(b"\n") for entry in asked.out.split(b"\0"))
    known = {key.decode() for key, _, value in pairs if value.strip()}
    for part in ("name", "email"):
        if all(os.environ.get(f"GIT_{who}_{part.upper()}") for who in ("AUTHOR", "COMMITTER")):
            known.add(f"user.{part}")
    options = zip(PRIVATE_IDENTITY[::2], PRIVATE_IDENTITY[1::2], strict=True)
    return tuple(word for flag, value in options if value.partition("=")[0] not in known for word in (flag, value))


async def add_all(repository: Repository, *, leave_out: Sequence[bytes] = (), index: Path | None = None) -> str:
    """Stage the whole tree, in another index if given; returns what could not be added and why, or nothing."""
    env = None if index is None else {"GIT_INDEX_FILE": str(index)}
    hooks = () if index is None else NO_HOOKS  # the user's hooks have no business with an index of ours
    args, stdin = [*hooks, "add", "-A", "--ignore-errors"], None
    if leave_out:
        args += ["--pathspec-from-file=-", "--pathspec-file-nul"]
        stdin = b"\0".join((b":/", *(b":(top,exclude,literal)" + path for path in leave_out)))
    for _ in range(_TRIES):
        added = await repository.git(*args, env=env, stdin=stdin, check=False, dies_with_us=index is None)
        if "sparse-checkout" in added.err and "--sparse" not in args:
            args.append("--sparse")  # a file where the user wants none is work all the same
            continue
        # Git gives up as a whole when a file it has just listed is gone; the next look does not list it any more.
        if "No such file or directory" not in added.err or added.code in (0, _ADDED_IN_PART):
            break
    refuse_killed(added, "add")
    if added.code not in (0, _ADDED_IN_PART):
        raise WorkspaceError(f"git add failed in {repository.top}: {first_line(added.err)}")
    return first_line(added.err) if added.code else ""


async def take_out_new_repositories(repository: Repository, index: Path | None = None) -> bool:
    """Let the index have no other repository that the last commit does not have; whether there was one."""
    env = None if index is None else {"GIT_INDEX_FILE": str(index)}
    asked = await repository.git("rev-parse", "-q", "--verify", "HEAD^{tree}", check=False)
    base = asked.text or (await repository.git("hash-object", "-t", "tree", os.devnull)).text
    told = await repository.git("diff-index", "--cached", "--raw", "-z", "--no-renames", base, "--", env=env)
    new = b"".join(path + b"\0" for path in new_links(told.out))
    if new:
        await repository.git(*NO_HOOKS, "update-index", "--force-remove", "-z", "--stdin", env=env, stdin=new)
    return bool(new)


async def commit_all(
    repository: Repository,
    message: str,
    *,
    identity: Sequence[str] = (),
    leave_out: Sequence[bytes] = (),
    let_pass: Sequence[str] = (),
    before: str | None = None,
) -> Committed:
    """Commit the whole tree. If that fails the index is put back and the reason returned; no file is touched.

    Keys and tokens are a reason, unless a human let these files pass. `before`: the commit that is checked out.
    """
    agents = repository.agents

    async def stage_and_commit() -> tuple[str, GitResult]:
        await repository.follow_agents()
        with disk_trouble("cannot keep a copy of the index"), _index_kept(agents.index):
            missed = await add_all(agents, leave_out=leave_out)
            await _refuse_secrets(agents, let_pass)
            try:
                return missed, await _commit_index(agents, message, identity)
            except Refused:
                if not await take_out_new_repositories(agents):
                    raise
                return missed, await _commit_index(agents, message, identity)

    try:
        try:
            missed, done = await stage_and_commit()
        except GitKilled:
            remove_own_locks(agents.folders)
            missed, done = await stage_and_commit()
            if done.code and (made := await _made_since(repository, before)):
                return replace(made, complete=not missed)  # it was killed when all was done
    except WorkspaceError as refused:
        locked = str(refused) if isinstance(refused, GitLocked) else ""
        return Committed(warning=f"not committed, the work is kept as it is: {refused}", complete=False, locked=locked)
    warning = f"not everything could be committed: {missed}" if missed else ""
    if done.code:
        return Committed(warning=warning, complete=False, nothing=not missed)
    summary = _SUMMARY.match(done.out) if agents is repository else None  # a hook inside may say what it likes
    head = summary[1].decode() if summary else (await repository.git("rev-parse", "HEAD")).text
    return Committed(commit=head, files=int(summary[2] or 0) if summary else 0, warning=warning, complete=not missed)


async def _made_since(repository: Repository, before: str | None) -> Committed | None:
    await repository.follow_agents()
    head = (await repository.git("rev-parse", "--verify", "--quiet", "HEAD", check=False)).text
    if not head or head == before:
        return None
    changed = await repository.git("diff-tree", "-r", "-z", "--name-only", "--root", before or head, head)
    return Committed(commit=head, files=changed.out.count(b"\0"))


async def _refuse_secrets(repository: Repository, let_pass: Sequence[str]) -> None:
    # A private repository never leaves this machine, and a plain folder may well hold its user's keys.
    if not repository.private and (found := await staged_secrets(repository, let_pass)):
        raise WorkspaceError(refusal(found))


async def _commit_index(repository: Repository, message: str, identity: Sequence[str]) -> GitResult:
    quiet = (*NO_HOOKS, "-c", "commit.gpgSign=false") if repository.private else ()
    args = (*identity, *quiet, "-c", "core.abbrev=no", "commit", "--cleanup=whitespace", "-F", "-")
    stdin = message.encode("utf-8", "replace")
    done = await repository.git(*args, stdin=stdin, check=False, timeout=COMMIT_TIMEOUT, dies_with_us=True)
    refuse_killed(done, "commit")
    if done.code and not any(words in done.out for words in _NOTHING):
        raise WorkspaceError(_reason(done))
    return done


@contextmanager
def _index_kept(index: Path) -> Iterator[None]:
    """Put the index back as it was if what follows fails or is cancelled."""
    kept = index.with_name(index.name + ".untildone")
    existed = index.exists()
    kept.unlink(missing_ok=True)  # a link that waits there would be followed
    if existed:
        copy_plain(index, kept)  # with its time: git tells from it which files it may trust
    try:
        yield
    except BaseException:
        if existed:
            kept.replace(index)
        else:
            index.unlink(missing_ok=True)
        raise
    finally:
        kept.unlink(missing_ok=True)


def _reason(done: GitResult) -> str:
    """The end of what git and the hooks said: the agent may be able to mend it."""
    said = (done.err.strip() or done.out.decode("utf-8", "replace")).strip()
    # Cut after the cleaning: half an escape code would not be recognised as one.
    said = printable(said[-4 * _REASON_CHARS :], lines=True)[-_REASON_CHARS:]
    lines = [line.rstrip() for line in said.split("\n")[-_REASON_LINES:]]
    return "\n".join(lines).strip() or f"git commit ended with {done.code} and gave no reason"

"""Runs that land: each with a branch of its own in one repository, and what must not change there meanwhile."""

import hashlib
import subprocess
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from untildone.core.policy import Landing, RunSpec
from untildone.git.lander import GitLander
from untildone.git.repository import open_repository
from untildone.ports.delivery import Verifier

Wanted = str | Callable[[str], str] | Callable[[str], Awaitable[str]]


@dataclass
class Looks:
    """A verifier that remembers what it looked at and finds red what a rule says."""

    repo: Path
    is_red: Callable[[set[str]], str] = lambda _: ""
    """From the files of a commit to what is wrong."""
    before: Callable[[], None] = lambda: None
    """Something that happens while it looks."""
    seen: list[str] = field(default_factory=list)

    async def __call__(self, commit: str) -> str:
        self.seen.append(commit)
        self.before()
        return self.is_red(files_of(self.repo, commit))


def run_git(folder: Path, *args: str, text: str | None = None) -> str:
    done = subprocess.run(
        ["git", *args], cwd=folder, capture_output=True, check=True, timeout=240, text=True, input=text
    )
    return done.stdout.rstrip("\n")


def files_of(folder: Path, commit: str) -> set[str]:
    return set(run_git(folder, "ls-tree", "-r", "--name-only", commit).splitlines())


def work_on(folder: Path, branch: str, files: dict[str, str], *, start: str = "main", message: str = "work") -> str:
    """A commit on a branch, made without any working tree."""
    known = subprocess.run(
        ["git", "rev-parse", "-q", "--verify", f"refs/heads/{branch}"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    parent = known.stdout.strip() or run_git(folder, "rev-parse", start)
    stream = [f"commit refs/heads/{branch}", "mark :1", "committer Ada <ada@example.org> now"]
    stream += [f"data {len(message.encode()) + 1}", f"{message}\n", f"from {parent}"]
    for name, content in files.items():
        stream += [f"M 100644 inline {name}", f"data {len(content.encode())}", content]
    stream += ["", "get-mark :1", ""]
    return run_git(folder, "fast-import", "--quiet", "--date-format=now", "--cat-blob-fd=1", text="\n".join(stream))


async def lander_in(folder: Path, run_id: str = "r1", *, base: str | None = "main", **landing: object) -> GitLander:
    repository = await open_repository(folder, private=folder.parent / "private")
    options = Landing(land="merge", **landing)  # type: ignore[arg-type]
    spec = RunSpec(goal="g", cwd=str(folder), name=run_id, landing=options)
    return GitLander(repository, spec, run_id=run_id, base=lambda: base)


def untouched(folder: Path, *, base: str = "main") -> dict[str, str]:
    """All that belongs to the user: branches, tags, stash, index and files, by content."""
    refs = run_git(folder, "for-each-ref", "--format=%(refname) %(objectname)").splitlines()
    kept = {"refs": "\n".join(r for r in refs if not r.startswith((f"refs/heads/{base} ", "refs/untildone/")))}
    kept["HEAD"] = (folder / ".git" / "HEAD").read_text()
    kept["index"] = hashlib.sha256((folder / ".git" / "index").read_bytes()).hexdigest()
    kept["stash"] = run_git(folder, "stash", "list", "--format=%H")
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        if path.is_file() and inside.parts[0] != ".git":
            kept[str(inside)] = hashlib.sha256(path.read_bytes()).hexdigest()
    return kept


def green(folder: Path) -> Verifier:
    return Looks(folder)

"""What the agent committed by itself during an iteration."""

from untildone.core.dataclass import dataclass
from untildone.git.repository import Repository

_COMMITS = 1000
_SUBJECT = "\x01"


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """Commits that are new since a moment."""

    commits: int = 0
    files: frozenset[str] = frozenset()
    subject: str = ""
    """First line of the newest one."""


async def made_between(repository: Repository, before: str | None, after: str | None) -> Made:
    """The commits reachable from `after` and not from `before`; asks git only if the two differ."""
    if after is None or before == after:
        return Made()
    span = after if before is None else f"{before}..{after}"
    log = await repository.git(
        "-c", "core.quotePath=false", "-c", "log.showSignature=false", "log", "--no-renames", "--no-color",
        "--name-only", f"--max-count={_COMMITS}", f"--format={_SUBJECT}%s", span, "--", check=False,
    )  # fmt: skip
    lines = [line for line in log.out.decode("utf-8", "backslashreplace").split("\n") if line]
    subjects = [line.removeprefix(_SUBJECT) for line in lines if line.startswith(_SUBJECT)]
    files = frozenset(line for line in lines if not line.startswith(_SUBJECT))
    return Made(commits=len(subjects), files=files, subject=subjects[0] if subjects else "")

"""A rig whose work lands by pull requests: a scripted GitHub over a real bare remote."""

import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from engine.rig import FILES, FastClock, Rig
from repositories import add_remote, new_bare_repository
from untildone import wiring
from untildone.agents.scripted import ScriptedAgent
from untildone.core.policy import Landing
from untildone.rehearsal.github import TOKEN, ScriptedGitHub
from untildone.rehearsal.github_checks import ScriptedCheck

BRANCH = "untildone/it"
GREEN = ScriptedCheck(name="test")
RED = ScriptedCheck(name="test", state="failure", log="ran 3 tests\nFAILED test_it: expected 2, got 1\n")
RUNNING = ScriptedCheck(name="test", state="in_progress")


def git_in(folder: Path, *args: str) -> str:
    return subprocess.run(["git", *args], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


class PullRig(Rig):
    """Everything real but the forge and the agent; time runs fast."""

    branch: ClassVar[str] = "main"
    github: ScriptedGitHub
    forge_env: Mapping[str, str] = MappingProxyType({"GITHUB_TOKEN": TOKEN})
    """What the run's environment says about the login."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.bare = new_bare_repository(self.tmp / "origin.git", FILES)
        add_remote(self.repo, self.bare)

    def landing(self, **changes: Any) -> Landing:
        known = {"land": "pr", "repo": self.github.repo, "forge_url": self.github.url, "ci_poll": 1.0}
        return Landing(**{**known, **changes})

    def around(self, agent: ScriptedAgent) -> wiring.Surroundings:
        around = super().around(agent)
        return wiring.Surroundings(
            log=around.log, state_dir=around.state_dir, env={**around.env, **self.forge_env}, clock=around.clock,
            observer=around.observer, agent=agent,
        )  # fmt: skip

    def on_base(self, path: str) -> str:
        return git_in(self.bare, "show", f"main:{path}")

    def subjects(self) -> list[str]:
        return git_in(self.bare, "log", "--format=%s", "main").splitlines()

    def branches(self) -> list[str]:
        return git_in(self.bare, "for-each-ref", "--format=%(refname:short)", "refs/heads").splitlines()

    def human_pushes(self, path: str, text: str, branch: str = "main") -> None:
        """Somebody else works on a branch meanwhile."""
        clone = self.tmp / "human"
        if not clone.exists():
            git_in(self.tmp, "clone", "-q", str(self.bare), str(clone))
        git_in(clone, "fetch", "-q", "origin")
        git_in(clone, "checkout", "-q", "-B", "theirs", f"origin/{branch}")
        (clone / path).write_text(text)
        git_in(clone, "add", ".")
        git_in(clone, "-c", "user.name=H", "-c", "user.email=h@h", "commit", "-qm", f"human changes {path}")
        git_in(clone, "push", "-q", "origin", f"HEAD:{branch}")


@contextmanager
def pull_rig(tmp: Path, ci: Callable[[str, int], Sequence[ScriptedCheck]], speed: float = 50.0) -> Iterator[PullRig]:
    rig = PullRig(tmp, clock=FastClock(speed))
    with ScriptedGitHub(rig.bare, ci) as github:
        rig.github = github
        yield rig

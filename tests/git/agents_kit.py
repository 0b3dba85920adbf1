"""A workspace whose agent works in bubblewrap, with a repository of its own; scripts stand in for the agent."""

import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from core.run_kit import with_contract
from git.conftest import Project
from untildone.core.policy import RunSpec
from untildone.git.agents_repository import AgentsRepository
from untildone.git.repository import Inside, Keeping, Repository
from untildone.git.workspace import GitWorkspace, open_workspace
from untildone.sandbox.bubblewrap import can_enclose, enclosed
from untildone.sandbox.view import Mount, View

HOME = "/untildone-home"


@dataclass
class Boxed:
    """One driver of a run, and its agent."""

    project: Project
    workspace: GitWorkspace
    agents: AgentsRepository
    keeping: Keeping
    env: dict[str, str]

    @property
    def repository(self) -> Repository:
        return self.workspace._repository

    def agent(self, script: str, *, check: bool = True) -> str:
        """What the agent does, in its folder."""
        done = subprocess.run(
            [*self.agents.behind(), "/bin/sh", "-ec", script], cwd=self.project.path, env=self.env, timeout=240,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert not check or done.returncode == 0, done.stderr + done.stdout
        return (done.stdout + ("" if check else done.stderr)).strip()


async def boxed(
    project: Project, state: Path, *, run_id: str = "r1", first: tuple[str, ...] = (), **changes: Any
) -> Boxed:
    """A driver that has made the agent's repository, or found the one of an earlier driver.

    `first`: what goes before every command that runs inside.
    """
    around = state / "box"
    (around / "home").mkdir(parents=True, exist_ok=True)
    agents = AgentsRepository(project.path, around / "git", run_id=run_id, keep=f"refs/untildone/{run_id}/agent")
    env = {"HOME": HOME, "PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C"}

    def words(folder: str) -> tuple[str, ...]:
        system = ("/usr", "/etc", "/lib", "/lib64", "/bin")
        mounts = [Mount(place=place, kind="read", source=place) for place in system if Path(place).is_dir()]
        mounts += [Mount(place="/tmp", kind="empty"), Mount(place=HOME, kind="write", source=str(around / "home"))]
        mounts += [Mount(place=str(project.path), kind="write", source=str(project.path))]
        mounts += [
            Mount(place=str(place), kind="write" if may_write else "read", source=str(source))
            for source, place, may_write in agents.mounts()
        ]
        probe = can_enclose()
        view = View(mounts=tuple(mounts), whole_system=False, network=False, as_user=probe.as_user)
        return (*first, *enclosed(view, program=probe.program), "--chdir", folder, "--")

    agents.runs(words, env)
    keeping = Keeping(inside=Inside(words=words, env=env, repository=agents))
    spec = RunSpec(**with_contract({"goal": "g", "cwd": str(project.path), "name": "tidy-up", **changes}))
    workspace = await open_workspace(spec, run_id=run_id, private=state / "private", keeping=keeping)
    await agents.ready(replace(workspace._repository, keeping=keeping))
    return Boxed(project=project, workspace=workspace, agents=agents, keeping=keeping, env=env)

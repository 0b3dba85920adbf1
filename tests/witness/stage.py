"""A repository with one commit, and a witness that examines it as a run has it examined."""

import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from repositories import new_repository
from untildone.core.contract import CheckSpec, Contract, commands
from untildone.core.outcome import CheckResult
from untildone.core.policy import RunSpec
from untildone.git.workspace import GitWorkspace, open_workspace
from untildone.ports.delivery import Subject
from untildone.sandbox.bubblewrap import can_enclose
from untildone.sandbox.clean_room import CleanRoom
from untildone.sandbox.host import behind_guard
from untildone.witness.checks import Keeping
from untildone.witness.examiner import Examiner, Sealing


class Stage:
    """A repository with one commit and somebody who examines it."""

    def __init__(self, tmp: Path) -> None:
        self.tmp = tmp
        self.enclosed = True
        self.leftovers: Callable[[], int] = lambda: 0
        self.workspaces: list[GitWorkspace] = []
        self.repo = new_repository(tmp / "repo", files={"a.txt": "a\n", ".gitignore": "node_modules\n"})

    def git(self, *args: str) -> str:
        identity = ("-c", "user.name=A", "-c", "user.email=a@b")
        done = subprocess.run(["git", *identity, *args], cwd=self.repo, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def commit(self) -> str:
        self.git("add", "-A")
        self.git("commit", "-qm", "more")
        return self.git("rev-parse", "HEAD")

    async def examiner(self, cwd: str = "", **contract: Any) -> Examiner:
        place = str(self.repo / cwd)
        spec = RunSpec(goal="g", cwd=place, name="n", contract=Contract(**contract))
        workspace = await open_workspace(spec, run_id="r1", private=self.tmp / "private")
        self.workspaces.append(workspace)
        rooms, logs = workspace.rooms(self.tmp / "state" / "rooms"), self.tmp / "logs"
        keeping = Keeping(behind=behind_guard(whole_tree=True))
        return Examiner(
            spec.contract, rooms, cwd=place, logs=logs, keeping=keeping, sealing=self.sealing(spec.contract)
        )

    def sealing(self, contract: Contract) -> Sealing:
        if not self.enclosed:
            return Sealing(weaker="bubblewrap is not installed")
        own, network = (self.tmp / "state",), contract.proof == "normal"
        enclosure = CleanRoom(can_enclose(), env=os.environ, own=own, network=network)
        return Sealing(enclosure=enclosure, end_agents_leftovers=self.leftovers)

    async def examine(self, *checks: str | CheckSpec, **contract: Any) -> list[CheckResult]:
        specs = [commands(check)[0] if isinstance(check, str) else check for check in checks]
        return await self.examine_all(specs, **contract)

    async def examine_all(self, checks: Sequence[CheckSpec], **contract: Any) -> list[CheckResult]:
        examiner = await self.examiner(**contract)
        return await examiner.examine(Subject(commit=self.git("rev-parse", "HEAD"), room="clean"), checks)

"""`resume --from-server` of a run whose machine means harm: nothing is written, read or run that nobody agreed to."""

import asyncio
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cli.cli_kit import Say
from cli.far_kit import Elsewhere
from untildone import wiring
from untildone.core.changed import settings_changed
from untildone.core.contract import CheckSpec, Contract
from untildone.core.events import Record
from untildone.core.policy import Policy, RunSpec, Tending
from untildone.errors import UsageError
from untildone.moving import Destination, bring_here
from untildone.uplink.client import HttpUplink
from untildone.uplink.fetching import Reader


@pytest.mark.parametrize(
    "name",
    [".git/config", "sub/n.md", *(pytest.param(name, marks=pytest.mark.soak) for name in ("work.txt", "mine.md"))],
)
def test_notes_become_no_file_but_notes(far: Elsewhere, say: Say, project: Path, name: str) -> None:
    """The other machine chose both their name and what they say."""
    (far.folder / "sub").symlink_to(far.tmp)
    far.committed()
    run_id = far.send(f"notes-{name.replace('/', '-')}", notes_file=name, notes=b"[core]\n\tfsmonitor = touch /ran\n")
    subprocess.run(["git", "clone", "-q", str(far.folder), str(project)], check=True, timeout=240)
    (project / ".git" / "info" / "exclude").write_text("mine.md\n")
    (project / "mine.md").write_text("mine")
    said = say("resume", "--from-server", run_id, "--take")
    assert said.code == 3, said
    assert f"the notes did not come along: {name} is left as it is" in said.err
    assert "fsmonitor" not in (project / ".git" / "config").read_text()
    assert (project / "mine.md").read_text() == "mine"
    assert (project / "work.txt").read_text() == "done there\n"
    assert not (far.tmp / "n.md").exists()


def test_a_folder_that_a_link_leads_to_is_none_of_the_runs(
    far: Elsewhere, say: Say, project: Path, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (far.folder / "link").symlink_to(home)
    far.committed()
    run_id = far.send("link1", notes_file="notes.md", below="link")
    said = say("resume", "--from-server", run_id, "--take")
    assert (said.code, "link is no folder of the run's tree" in said.err) == (1, True), said
    assert list(home.iterdir()) == []
    assert far.server.get(f"/runs/{run_id}")["tenure"] == 0


def test_an_ignored_link_here_does_not_stand_in_for_the_folder(
    far: Elsewhere, say: Say, project: Path, tmp_path: Path
) -> None:
    """What lies in the clone and is ignored is nothing that the tree could tell of."""
    far.committed()
    run_id = far.send("link2", notes_file="notes.md", below="out")
    home = tmp_path / "home"
    home.mkdir()
    subprocess.run(["git", "clone", "-q", str(far.folder), str(project)], check=True, timeout=240)
    (project / ".git" / "info" / "exclude").write_text("out\n")
    (project / "out").symlink_to(home)
    said = say("resume", "--from-server", run_id, "--take")
    assert (said.code, "leads out of the run's folder" in said.err) == (1, True), said
    assert list(home.iterdir()) == []


def test_files_of_the_tree_that_act_by_themselves_need_a_yes(far: Elsewhere, say: Say, project: Path) -> None:
    far.committed()
    subprocess.run(["git", "clone", "-q", str(far.folder), str(project)], check=True, timeout=240)
    (far.folder / ".claude").mkdir()
    (far.folder / ".claude" / "settings.json").write_text('{"hooks": {}}')
    far.committed()
    run_id = far.send("acts1")
    said = say("resume", "--from-server", run_id, "--take")
    assert (said.code, "can run commands by itself: .claude/settings.json" in said.err) == (2, True), said
    assert not (project / ".claude").exists()
    assert far.server.get(f"/runs/{run_id}")["tenure"] == 0
    assert say("resume", "--from-server", run_id, "--take", "--trust").code == 3
    assert (project / ".claude" / "settings.json").exists()


@pytest.mark.parametrize("spec", [{"task_file": "/etc/hostname"}, {"knowledge_file": "../x"}, {"notes_file": "/x.md"}])
def test_a_run_that_reads_what_lies_elsewhere_does_not_come_here(
    far: Elsewhere, say: Say, spec: dict[str, Any]
) -> None:
    run_id = far.send(f"reads{len(str(spec))}", parcels=False, **spec)
    said = say("resume", "--from-server", run_id, "--take", "--trust")
    assert (said.code, "lies outside of its folder" in said.err) == (2, True), said


def test_what_comes_after_the_yes_is_asked_about_again(far: Elsewhere, project: Path, store: Path) -> None:
    """While a human reads the question, the other machine may think of something else."""
    run_id = far.send("later1", contract=Contract(checks=(CheckSpec(name="c", command="true"),)))
    old = RunSpec(goal="a goal", name="n", cwd=str(far.folder), notes_file="NOTES.md")
    contract = Contract(checks=(CheckSpec(name="c", command="true"),))
    evil = replace(old, contract=contract, tending=Tending(before_iteration="touch /ran"))
    asked: list[list[str]] = []

    async def bring() -> None:
        uplink = HttpUplink(far.server.url, "far", far.server.operator)
        log = wiring.open_log(store, wiring.system_clock())

        def agree(lines: Sequence[str]) -> None:
            asked.append(list(lines))
            if len(asked) > 1:
                raise UsageError("no")

        class Racing(Reader):
            async def take(self, run_id: str, tenure: int) -> int:
                changed = settings_changed("cli", (old, Policy()), evil, Policy(max_runs=1))
                await uplink.send(run_id, [Record(seq=27, at=99.0, event=changed)])
                return await super().take(run_id, tenure)

        to = Destination(
            log=log, store=store, folder=project, server=far.server.url, sandbox_id="here", key="",
            config_dir=project / "claude", clock=wiring.system_clock(), host="h", take=True, agree=agree,
        )  # fmt: skip
        try:
            with pytest.raises(UsageError, match="no"):
                await bring_here(Racing(uplink, "here"), run_id, to)
        finally:
            await uplink.close()
        assert await log.runs() == []
        await log.close()

    asyncio.run(bring())
    assert asked == [["check: true", "limits: max_runs 1"], ["before each iteration: touch /ran"]]
    assert list(project.iterdir()) == []

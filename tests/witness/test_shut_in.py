"""Checks of an agent that works in a sandbox run in walls like the agent's, with the commit in place of its tree."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from patience import PATIENCE
from untildone.boxes import Box, Lodger, box_for
from untildone.core.contract import CheckSpec, Contract, Room
from untildone.core.door import Refused
from untildone.core.outcome import CheckResult
from untildone.core.policy import AgentOptions, RunSpec
from untildone.git.workspace import open_workspace
from untildone.ports import Watcher
from untildone.ports.delivery import Subject
from untildone.sandbox.host import CHECK_MARKER, HostSpawner
from untildone.witness.checks import Keeping
from untildone.witness.examiner import Examiner, Sealing
from witness.stage import Stage

pytestmark = pytest.mark.anyio


class ShutIn:
    """A stage whose agent lives in a sandbox."""

    def __init__(self, stage: Stage) -> None:
        self.stage, self.home = stage, stage.tmp / "home"
        self.refused: list[Refused] = []
        self.options: dict[str, Any] = {}
        self.box: Box | None = None

    @asynccontextmanager
    async def _examiner(self, contract: Contract) -> AsyncIterator[Examiner]:
        stage, state = self.stage, self.stage.tmp / "state"
        options = AgentOptions(sandbox="bwrap", **self.options)
        spec = RunSpec(goal="g", cwd=str(stage.repo), name="n", contract=contract, options=options)
        workspace = await open_workspace(spec, run_id="r1", private=stage.tmp / "private")
        stage.workspaces.append(workspace)
        lodger = Lodger(
            spec=spec,
            env={**os.environ, "HOME": str(self.home), "ANTHROPIC_API_KEY": "the-key"},
            config_dir=self.home / ".claude",
            claude="/usr/bin/true",
            state_dir=state,
            run_id="r1",
            name="r1-work",
            own=(state,),
            judges=(),
        )
        self.box = box_for(lodger, HostSpawner())
        room = self.box.checks
        assert room is not None
        async with room.spawner.open(Watcher(asked=lambda: lambda _: None, refused=self.refused.append)):
            sealing, keeping = Sealing(enclosure=room, in_tree=room.in_tree), Keeping(env={CHECK_MARKER: "r1"})
            rooms, logs = workspace.rooms(state / "rooms"), stage.tmp / "logs"
            yield Examiner(contract, rooms, cwd=str(stage.repo), logs=logs, keeping=keeping, sealing=sealing)

    async def examine(
        self, *commands: str, room: Room = "clean", timeout: float = PATIENCE, **contract: Any
    ) -> list[CheckResult]:
        checks = tuple(
            CheckSpec(name=f"check-{n}", command=command, timeout=timeout) for n, command in enumerate(commands)
        )
        commit = self.stage.git("rev-parse", "HEAD")
        async with self._examiner(Contract(checks=checks, room=room, **contract)) as examiner:
            return await examiner.examine(Subject(commit=commit, room=room, tries="one"), checks)


@pytest.fixture
def shut_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ShutIn:
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    return ShutIn(Stage(tmp_path))


async def test_the_commit_is_seen_at_the_trees_place_and_what_the_setup_makes_stays_for_the_checks(
    shut_in: ShutIn,
) -> None:
    repo = shut_in.stage.repo
    (repo / "never-committed").touch()
    setup = "touch made; echo kept > $HOME/kept; echo here > /tmp/here"
    looks = "pwd; ls; cat ~/kept /tmp/here; git log --format=%s; git status --short"
    (seen,) = await shut_in.examine(looks, setup=setup)
    assert seen.output_tail == f"{repo}\na.txt\nmade\nkept\nhere\nfirst\n?? made\n", seen
    assert (seen.passed, seen.weaker) == (True, "")
    (repo / "node_modules").mkdir()
    (repo / "node_modules" / "lib").write_text("lent")
    lent, written = await shut_in.examine("cat node_modules/lib; ls ~", "touch node_modules/x", share=("node_modules",))
    assert (lent.output_tail, written.passed) == ("lent", False)


async def test_a_link_that_the_agent_put_in_place_of_what_is_shared_lends_nothing(shut_in: ShutIn) -> None:
    secret = shut_in.home / "secret"
    secret.mkdir()
    (shut_in.stage.repo / "node_modules").symlink_to(secret)
    (refused,) = await shut_in.examine("true", share=("node_modules",))
    assert not refused.passed
    assert "an agent in a sandbox must not decide" in refused.output_tail


async def test_keys_and_tokens_are_not_in_the_environment_unless_they_are_passed(
    shut_in: ShutIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_TOKEN", "of-the-user")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "the-key")
    (kept,) = await shut_in.examine("env")
    assert "of-the-user" not in kept.output_tail
    assert "the-key" not in kept.output_tail
    assert "HTTPS_PROXY=http://127.0.0.1:8484\n" in kept.output_tail
    shut_in.options = {"pass_env": ("A_TOKEN",)}
    (passed,) = await shut_in.examine('echo "$A_TOKEN"')
    assert passed.output_tail == "of-the-user\n"


@pytest.mark.parametrize("room", ["clean", "tree"])
async def test_the_home_is_a_fresh_one_and_the_rest_of_the_machine_is_not_there(shut_in: ShutIn, room: Room) -> None:
    (shut_in.home / "diary").write_text("dear diary")
    tried = f"cat ~/diary {shut_in.stage.tmp}/beside; echo mine > ~/left; echo mine > {shut_in.stage.tmp}/left; ls ~"
    (shut_in.stage.tmp / "beside").write_text("beside")
    (seen,) = await shut_in.examine(tried, room=room)
    assert "dear diary" not in seen.output_tail
    assert "\nbeside" not in seen.output_tail
    assert seen.output_tail.endswith("left\n")
    assert not [*shut_in.stage.tmp.glob("left"), *shut_in.home.glob("left")]


async def test_in_the_tree_the_checks_see_the_tree_and_their_home_goes_with_them(shut_in: ShutIn) -> None:
    (shut_in.stage.repo / "new").write_text("not committed")
    first, second = await shut_in.examine("cat new; echo x > made; touch ~/home", "ls ~", room="tree")
    assert (first.output_tail, second.output_tail) == ("not committed", "home\n")
    assert (shut_in.stage.repo / "made").read_text() == "x\n"
    assert shut_in.box is not None
    assert not [one for one in (shut_in.box.around / "checks").iterdir() if (one / "home").exists()]


async def test_the_network_is_the_agents_and_with_strict_proof_there_is_none(shut_in: ShutIn) -> None:
    ask = (
        "curl -s -m 20 -x http://127.0.0.1:8484 http://unknown.example/; curl -sS -m 5 http://127.0.0.1:8484/v1/models"
    )
    (asked,) = await shut_in.examine(ask)
    assert "unknown.example:80 cannot be reached from inside" in asked.output_tail
    assert [one.host for one in shut_in.refused][:1] == ["unknown.example:80"]
    shut_in.options = {"allow_hosts": ("localhost:9",)}
    (strict,) = await shut_in.examine(
        "curl -s -m 20 --noproxy '' -x http://127.0.0.1:8484 http://localhost:9/", proof="strict"
    )
    assert "cannot be reached from inside" in strict.output_tail


async def test_output_and_status_come_through_and_what_does_not_end_is_ended(shut_in: ShutIn) -> None:
    for_ever = "sleep 1000 & echo begun; sleep 1000"
    late, mixed = await shut_in.examine(for_ever, "echo one; echo two >&2; echo three; exit 3", timeout=2.0)
    assert (late.exit_code, late.output_tail) == (None, "begun\n")
    assert (mixed.exit_code, mixed.output_tail) == (3, "one\ntwo\nthree\n")

"""`resume --from-server` against a real server: what arrives, what is refused, and that a refusal changes nothing.

The runs have reached their limit, so that going on with them needs no agent.
"""

import asyncio
import gzip
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from cli.cli_kit import Runs, Say
from cli.far_kit import LINE, SESSION, STOPPED, Elsewhere
from patience import eventually
from untildone.agents.transcripts import transcript_path
from untildone.core.contract import CheckSpec, Contract
from untildone.core.events import (
    ContinuousCompleted,
    IterationStarted,
    ResetRequested,
    RunMoved,
    SettingsChanged,
)
from untildone.core.policy import Tending
from untildone.core.trace import AgentSession
from untildone.errors import UplinkRefused
from untildone.ports import Parcel
from untildone.uplink.client import HttpUplink
from untildone.uplink.owed import Accounts


def test_folder_conversation_notes_and_log_arrive_and_the_numbers_go_on(
    far: Elsewhere, say: Say, runs: Runs, tmp_path: Path, project: Path
) -> None:
    run_id = far.send("moves1")
    flags = ("--take", "--json", "--max-cost", "0.20", "--sandbox-id", "my-desk")
    said = say("resume", "--from-server", run_id, *flags)
    assert said.code == 3, said
    result = json.loads(said.out)
    assert (result["run_id"], result["exit_reason"], result["total_cost_usd"]) == (run_id, "max_runs_reached", 0.25)
    assert (project / "work.txt").read_text() == "done there\n"
    assert (project / "NOTES.md").read_text() == "think of it\n"
    assert transcript_path(tmp_path / "claude-here", str(project), SESSION).read_bytes() == LINE
    records = runs.read(run_id)
    assert [record.seq for record in records][:6] == [1, 6, 11, 16, 21, 26]
    assert [record.seq for record in records][6:] == list(range(27, 27 + len(records) - 6))
    assert isinstance(records[6].event, RunMoved)
    assert records[6].event.tenure == 1
    assert isinstance(records[7].event, SettingsChanged)
    state = runs.state(run_id)
    assert (state.spec.cwd, state.last_session, state.tenure) == (str(project), SESSION, 1)
    copy = far.server.get(f"/runs/{run_id}")
    assert (copy["tenure"], copy["last_seq"], copy["folder"]) == (1, records[-1].seq, str(project))
    assert (copy["sandbox_id"], state.policy.max_cost_usd) == ("my-desk", 0.20)
    the_machine_that_lost_the_run_is_refused(far, run_id)
    (account,) = (Accounts(path.parent) for path in tmp_path.rglob("uplink") if (path / f"{run_id}.json").exists())
    assert "ud_driver_" not in str(records)
    the_new_driver_has_a_key_of_its_own(far, run_id, account.key(run_id), records[-1].seq)


def the_machine_that_lost_the_run_is_refused(far: Elsewhere, run_id: str) -> None:
    """Also from a sandbox of the same name, as a container that is started again somewhere else has it."""

    async def put(tenure: int) -> None:
        uplink = HttpUplink(far.server.url, "my-desk", far.server.operator)
        try:
            await uplink.put(run_id, Parcel(name="notes", content=gzip.compress(b"late"), tenure=tenure))
        finally:
            await uplink.close()

    with pytest.raises(UplinkRefused) as refused:
        asyncio.run(put(0))
    assert refused.value.taken
    asyncio.run(put(1))


def the_new_driver_has_a_key_of_its_own(far: Elsewhere, run_id: str, key: str, last_seq: int) -> None:
    assert key

    async def heard(shown: str) -> int:
        uplink = HttpUplink(far.server.url, "my-desk", key=lambda _: shown)
        try:
            return (await uplink.received(run_id)).last_seq
        finally:
            await uplink.close()

    assert asyncio.run(heard(key)) == last_seq
    with pytest.raises(UplinkRefused, match="another driver's"):
        asyncio.run(heard(""))


def test_without_a_token_it_is_said_before_anything_happens(
    far: Elsewhere, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = far.send("untold1")
    monkeypatch.delenv("UNTILDONE_TOKEN")
    said = say("resume", "--from-server", run_id, "--take", "--trust")
    assert (said.code, said.err.count("\n")) == (2, 1), said
    assert "untildone token create --scope operator" in said.err
    assert far.server.get(f"/runs/{run_id}")["tenure"] == 0


@pytest.mark.parametrize(
    "scope",
    [("viewer",), pytest.param(("worker", "--sandbox", "vm"), marks=pytest.mark.soak)],
    ids=lambda scope: scope[0],
)
def test_a_token_that_does_not_open_names_the_one_that_does(
    far: Elsewhere, say: Say, monkeypatch: pytest.MonkeyPatch, scope: tuple[str, ...]
) -> None:
    run_id = far.send(f"closed-{scope[0]}")
    monkeypatch.setenv("UNTILDONE_TOKEN", far.server.token("--scope", *scope))
    said = say("resume", "--from-server", run_id, "--take", "--trust")
    assert (said.code, said.err.count("\n")) == (2, 1), said
    assert "untildone token create --scope operator" in said.err
    assert "--scope worker" not in said.err
    assert far.server.get(f"/runs/{run_id}")["tenure"] == 0


def test_a_conversation_that_did_not_travel_is_begun_anew(far: Elsewhere, say: Say, runs: Runs) -> None:
    open_one = (IterationStarted(iteration_num=2), AgentSession(iteration_num=2, session_id="other-session"), STOPPED)
    run_id = far.send("moves3", *open_one)
    said = say("resume", "--from-server", run_id, "--take")
    assert "did not come along: the next one begins anew" in said.err
    assert any(isinstance(record.event, ResetRequested) for record in runs.read(run_id))


def test_a_run_at_work_elsewhere_is_taken_only_when_asked(far: Elsewhere, say: Say) -> None:
    run_id = far.send("alive1", IterationStarted(iteration_num=2))
    said = say("resume", "--from-server", run_id)
    assert (said.code, "name-alive1 is at work" in said.err, "--take" in said.err) == (2, True, True)


def test_a_run_that_has_just_stopped_is_free_and_found_by_its_name(far: Elsewhere, say: Say, runs: Runs) -> None:
    run_id = far.send("rests1")
    eventually(lambda: far.server.get(f"/runs/{run_id}")["name"] == "name-rests1")
    said = say("resume", "--from-server", "name-rests1", "--sandbox-id", "my-desk")
    assert (said.code, "--take" in said.err) == (3, False), said
    assert far.server.get(f"/runs/{run_id}")["sandbox_id"] == "my-desk"
    assert runs.state(run_id).spec.sandbox_id == "my-desk"


def test_a_name_that_several_runs_have_is_not_guessed(far: Elsewhere, say: Say, runs: Runs) -> None:
    for run_id in ("twin1", "twin2"):
        far.send(run_id, name="twin", parcels=False)
        eventually(lambda run_id=run_id: far.server.get(f"/runs/{run_id}")["name"] == "twin")
    said = say("resume", "--from-server", "twin")
    assert (said.code, said.err.count("\n"), "twin1" in said.err, "twin2" in said.err) == (2, 1, True, True)


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ({"tending": Tending(on_stop="touch /ran")}, "at the stop: touch /ran"),
        ({"contract": Contract(checks=(CheckSpec(name="c", command="make all"),))}, "check: make all"),
        ({"name": "n\x1b[2J", "tending": Tending(on_stop="x\x1b[2Jy")}, "at the stop: x"),
    ],
)
def test_commands_that_come_along_need_a_yes(
    far: Elsewhere, say: Say, project: Path, spec: dict[str, Any], complaint: str
) -> None:
    run_id = far.send(f"trust{len(complaint)}{len(spec)}", **spec)
    said = say("resume", "--from-server", run_id, "--take")
    assert said.code == 2
    assert complaint in said.err
    assert "--trust" in said.err
    assert "\x1b" not in said.err
    assert list(project.iterdir()) == []
    assert far.server.get(f"/runs/{run_id}")["tenure"] == 0


def test_hidden_checks_must_be_given_again(far: Elsewhere, say: Say) -> None:
    hidden = Contract(checks=(CheckSpec(name="hidden check 1", command="secret test", hidden=True),))
    run_id = far.send("hidden1", contract=hidden)
    said = say("resume", "--from-server", run_id, "--take", "--trust")
    assert said.code == 2
    assert "hidden check 1" in said.err
    assert "secret test" not in said.err


def test_what_cannot_go_on_is_said_and_nothing_is_changed(
    far: Elsewhere, say: Say, runs: Runs, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = far.send("over1", ContinuousCompleted(stop_reason="completion_signal"))
    bare = far.send("bare1", parcels=False)
    full = far.send("full1")
    (project / "mine.txt").write_text("mine")
    for words, complaint in (
        ((done, "--take"), "is done"),
        ((bare, "--take"), "--portable"),
        ((full, "--take"), "it needs an empty one"),
        (("nosuchrun",), "there is no such run here"),
        ((), "which run?"),
        ((full, "--interrupted"), "--interrupted"),
    ):
        said = say("resume", "--from-server", *words)
        assert said.code in {1, 2}, said
        assert complaint in said.err, said
        assert said.err.count("\n") == 1
    monkeypatch.setenv("UNTILDONE_SERVER", "http://127.0.0.1:9")
    assert "cannot be reached" in say("resume", "--from-server", full).err
    monkeypatch.delenv("UNTILDONE_SERVER")
    assert "which server?" in say("resume", "--from-server", full).err
    assert "--from-server" in say("resume", "--take").err
    assert [path.name for path in project.iterdir()] == ["mine.txt"]
    assert far.server.get(f"/runs/{full}")["tenure"] == 0


def test_a_run_that_is_here_is_resumed_not_fetched(far: Elsewhere, say: Say, runs: Runs, project: Path) -> None:
    runs.begin(project, run_id="here1")
    far.send("here1")
    assert "is here already: resume it with `untildone resume here1`" in say("resume", "--from-server", "here1").err


def test_a_run_that_went_on_elsewhere_is_not_resumed_here_but_can_be_taken_back(
    far: Elsewhere, say: Say, runs: Runs, tmp_path: Path
) -> None:
    run_id = far.send("back1")
    assert say("resume", "--from-server", run_id, "--take").code == 3

    async def taken_by_a_third() -> None:
        uplink = HttpUplink(far.server.url, "third", far.server.operator, key=lambda _: "ud_driver_third")
        assert await uplink.take(run_id, tenure=1) == 2
        await uplink.close()

    asyncio.run(taken_by_a_third())
    for _ in range(2):
        said = say("resume", run_id, "--max-runs", "9")
        assert (said.code, said.err.count("\n")) == (2, 1), said
        assert f"`untildone resume --from-server {run_id} --take`" in said.err
    assert runs.state(run_id).stop_reason == "taken_over"
    assert "another machine took over the run" in say("status", run_id).out
    assert say("run", "a goal", "--name", runs.state(run_id).spec.name, "-m", "3").code == 2
    # Without git it needs an empty folder, here as anywhere.
    assert say("resume", "--from-server", run_id, "--take", "--cwd", str(tmp_path / "back")).code == 3
    state = runs.state(run_id)
    assert (state.tenure, state.stop_reason) == (3, "max_runs_reached")
    assert far.server.get(f"/runs/{run_id}")["last_seq"] == runs.read(run_id)[-1].seq
    assert say("resume", run_id).code == 3


def test_a_folder_in_which_it_is_laid_out_already_will_do(far: Elsewhere, say: Say, runs: Runs, tmp_path: Path) -> None:
    """A machine may die before the log was written, or have lost its store: the same folder is no obstacle then."""
    me = ("-c", "user.name=A", "-c", "user.email=a@b")
    for words in (("init", "-q", "-b", "work"), ("add", "-A"), (*me, "commit", "-qm", "1")):
        subprocess.run(["git", *words], cwd=far.folder, check=True, timeout=240)
    run_id = far.send("crash1")
    assert say("resume", "--from-server", run_id, "--take", "--store", str(tmp_path / "lost")).code == 3
    assert runs.read(run_id) == []
    assert say("resume", "--from-server", run_id, "--take").code == 3
    assert runs.state(run_id).tenure == 2

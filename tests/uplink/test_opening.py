"""From what the user set to a line that works: who is reported to, as whom, and with which token."""

import asyncio
import json
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec.structs import replace as replace_account

from engine.rig import Rig
from untildone import config, wiring
from untildone.config import SERVER_TOKEN
from untildone.core import events as ev
from untildone.core.outcome import Order, Outcome
from untildone.core.policy import Policy, RunSpec
from untildone.errors import ConfigError, UsageError
from untildone.server.archive.opening import open_archive
from untildone.server.keys import hash_of, new_token, token_key
from untildone.uplink.opening import settings_for, token_for
from untildone.uplink.owed import Account, Accounts
from untildone.uplink.settings import UplinkSettings
from uplink.uplink_kit import PATIENCE, ActingAgent, RealServer, until

SPEC = RunSpec(goal="g", cwd="/", name="n", server="http://127.0.0.1:8642/", mask=("ACME",))


def test_without_a_server_there_is_no_line(tmp_path: Path) -> None:
    assert settings_for(replace(SPEC, server=None), {}, tmp_path, "r") is None


def test_a_run_whose_driver_named_the_server_goes_on_reporting_there(tmp_path: Path) -> None:
    Accounts(tmp_path).write(Account(run_id="r", server="http://server.test", sandbox_id="box-4"))
    made = settings_for(replace(SPEC, server=None), {SERVER_TOKEN: "ud_abc"}, tmp_path, "r")
    assert made is not None
    assert (made.server, made.sandbox_id, made.token, made.mask) == (
        "http://server.test", "box-4", "ud_abc", ("ACME",),
    )  # fmt: skip


def test_settings_come_from_the_run_and_the_token_from_the_environment(tmp_path: Path) -> None:
    made = settings_for(SPEC, {SERVER_TOKEN: " ud_abc\n"}, tmp_path, "r")
    assert made is not None
    assert (made.server, made.token, made.mask) == ("http://127.0.0.1:8642", "ud_abc", ("ACME",))
    assert made.sandbox_id
    assert not made.heartbeat_events


def test_what_an_embedding_program_gives_counts(tmp_path: Path) -> None:
    given = UplinkSettings(server="https://there.test/base/", sandbox_id="box", mask=("X",))
    made = settings_for(SPEC, {SERVER_TOKEN: "ud_abc"}, tmp_path, "r", given)
    assert made == replace(given, server="https://there.test/base", mask=("X", "ACME"))


def test_a_run_keeps_the_name_the_server_knows_it_by(tmp_path: Path) -> None:
    accounts = Accounts(tmp_path)
    accounts.write(Account(run_id="r", server="http://127.0.0.1:8642", sandbox_id="old-name"))
    accounts.write(Account(run_id="q", server="http://other.test", sandbox_id="old-name"))
    first, second = (settings_for(SPEC, {}, tmp_path, run_id) for run_id in "rq")
    assert first is not None
    assert second is not None
    assert (first.sandbox_id, second.sandbox_id != "old-name") == ("old-name", True)


def test_the_user_may_say_what_this_machine_is_called_until_the_server_knows_the_run(tmp_path: Path) -> None:
    named, accounts = replace(SPEC, sandbox_id="laptop"), Accounts(tmp_path)
    refused = Account(run_id="refused", server="http://127.0.0.1:8642", sandbox_id="vm", refusals=1)
    for account in (refused, replace_account(refused, run_id="known", acknowledged=7)):
        accounts.write(account)
    made = {run_id: settings_for(named, {}, tmp_path, run_id) for run_id in ("new", "refused", "known")}
    assert {run_id: one.sandbox_id for run_id, one in made.items() if one} == {
        "new": "laptop", "refused": "laptop", "known": "vm",
    }  # fmt: skip
    resolved = config.resolve({}, env={"HOME": "/", "UNTILDONE_SANDBOX_ID": "box-1"}, here=tmp_path)
    assert config.run_spec(resolved, goal="g", cwd=tmp_path, name="n").sandbox_id == "box-1"
    with pytest.raises(UsageError, match="--sandbox-id must be at most 100 letters"):
        config.resolve({"sandbox_id": "a/b"}, env={"HOME": "/"}, here=tmp_path)


def test_a_token_file_wins_and_must_hold_one(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("ud_file\n")
    assert token_for(str(file), {SERVER_TOKEN: "ud_env"}) == "ud_file"
    file.write_text(" \n")
    with pytest.raises(ConfigError, match="is empty"):
        token_for(str(file), {})
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        token_for(str(tmp_path / "none"), {})


@pytest.mark.parametrize("field", [{"server": "nonsense"}, {"mask": ("(",)}, {"server_token_file": "/nowhere/token"}])
@pytest.mark.anyio
async def test_what_cannot_work_is_said_before_anything_begins(tmp_path: Path, field: dict[str, object]) -> None:
    rig = Rig(tmp_path)
    spec = {"server": "http://127.0.0.1:9", **field}
    with pytest.raises(ConfigError):
        await rig.run([Outcome(final_text="x")], Policy(max_runs=1), **spec)
    assert await rig.log.runs() == []


def test_the_settings_are_guarded_and_the_token_is_none_of_them(tmp_path: Path) -> None:
    given = {"server": "http://a.test", "server_token_file": "t", "mask": ("A", "B")}
    resolved = config.resolve(given, env={"HOME": "/", SERVER_TOKEN: "ud_x"}, here=tmp_path)
    assert resolved.value("server") == "http://a.test"
    assert resolved.value("mask") == ("A", "B")
    assert resolved.notices == ()
    assert "ud_x" not in repr(resolved)
    project = tmp_path / "untildone.toml"
    project.write_text('server = "http://evil.test"\n')
    with pytest.raises(ConfigError, match="sets server"):
        config.resolve({}, env={"HOME": "/"}, project_file=project)


def test_a_damaged_or_foreign_account_is_none(tmp_path: Path) -> None:
    accounts = Accounts(tmp_path)
    accounts.write(Account(run_id="r", server="http://s", sandbox_id="b", acknowledged=7))
    assert [one.acknowledged for one in accounts.unsettled("http://s")] == [7]
    for content in (b"", b"{", b"\xff", b'{"run_id": "../x", "server": "http://s", "sandbox_id": "b"}', b"[]"):
        (tmp_path / "uplink" / "r.json").write_bytes(content)
        assert accounts.read("r") is None
        assert accounts.unsettled("http://s") == []
    accounts.forget("r")
    accounts.forget("r")
    assert list((tmp_path / "uplink").iterdir()) == []


async def _operator(server: RealServer) -> str:
    archive = await open_archive(f"sqlite:///{server.database}", serving=False)
    token = new_token()
    await archive.keys.add(token_key("operator", sandbox_id=None, label="ann", lasts=None, now=1.0), hash_of(token))
    await archive.close()
    return token


@pytest.mark.anyio
async def test_a_run_with_a_server_is_reported_without_secrets_and_steered(tmp_path: Path, server: RealServer) -> None:
    """All of it at once: `--server`, the real server, a message and a stop from there."""
    rig = Rig(tmp_path)
    (rig.repo / ".git" / "info" / "exclude").write_text(".env\n")
    (rig.repo / ".env").write_text("PAYMENT_KEY=pay-77-very-hidden\n")
    token = await _operator(server)
    prompts: list[str] = []

    def order(**body: object) -> None:
        request = urllib.request.Request(
            f"{server.url}/api/v1/runs/{rig.run_id}/orders",
            json.dumps(body).encode(),
            {"Content-Type": "application/json", "Authorization": f"Bearer {token}"},
        )
        with urllib.request.urlopen(request, timeout=240) as answer:
            assert answer.status == 202

    async def first(told: Order) -> Outcome:
        prompts.append(told.prompt)
        await until(lambda: len(server.rows(rig.run_id)) > 3)
        await asyncio.to_thread(order, kind="message", content="mind the gap")
        await until(lambda: any(isinstance(one.event, ev.MessageReceived) for one in rig.records))
        return Outcome(final_text="the key is pay-77-very-hidden", session_id="s-1")

    async def second(told: Order) -> Outcome:
        prompts.append(told.prompt)
        await asyncio.to_thread(order, kind="stop")
        await asyncio.sleep(2 * PATIENCE)
        return Outcome(final_text="never")

    around = replace(rig.around(ActingAgent(first, second)), env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"})
    spec = rig.spec(server=server.url, mask=(r"gap\b",), goal="work with pay-77-very-hidden")
    state = await wiring.start_run(spec, Policy(max_runs=5), around, run_id=rig.run_id)
    assert state.stop_reason == "stop_requested"
    assert "mind the gap" in prompts[1]
    kept = server.rows(rig.run_id)
    assert [seq for seq, _, _ in kept] == [one.seq for one in await rig.log.read(rig.run_id, trace=True)]
    everything = "".join(data for _, _, data in kept)
    assert "pay-77-very-hidden" not in everything
    assert "[secret: PAYMENT_KEY]" in everything
    assert "mind the gap" not in everything
    assert all(json.loads(data)["sandbox_id"] for _, _, data in kept)

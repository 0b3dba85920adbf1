"""A run is heard from its driver alone: whoever has not its key is refused on every path, on this machine too."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from server.door_kit import Reply, Served, served
from server.sending_kit import batch, event, get, send
from untildone.server import hot_path
from untildone.server.archive import room
from untildone.uplink.owed import new_key

KEY = new_key()
SHOWN = {"Untildone-Driver": KEY}
EVENTS = "/api/v1/sandboxes/box/events"
BYTES = {"Content-Type": "application/octet-stream"}


class Usage(NamedTuple):
    total: int
    free: int


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("driving")) as made:
        yield made


def begin(server: Served, run_id: str, shown: dict[str, str] | None = None) -> None:
    assert post(server, batch(run_id, range(1, 3)), SHOWN if shown is None else shown).status == 200


def post(server: Served, body: Any, shown: dict[str, str], **more: Any) -> Reply:
    return server.ask("POST", EVENTS, json_body=body, headers=shown, **more)


def take(server: Served, run_id: str, *, sandbox: str = "box", tenure: int = 0, **more: Any) -> Reply:
    return server.ask(
        "POST", f"/api/v1/sandboxes/{sandbox}/runs/{run_id}/take", json_body={"tenure": tenure}, **more
    )  # fmt: skip


def everything(server: Served, run_id: str, shown: dict[str, str], token: str = "") -> dict[str, Reply]:
    """All that can be said and asked about a run, each without changing what the next one finds."""
    run = f"/api/v1/sandboxes/box/runs/{run_id}"
    done = event(3, event_type="continuous.completed", kind="control", event_data={"stop_reason": "verified_done"})
    return {
        "receipt": server.ask("GET", run, headers=shown, token=token),
        "orders": server.ask("GET", f"{run}/orders", headers=shown, token=token),
        "parcel": server.ask("PUT", f"{run}/parcels/notes", body=b"x", headers={**shown, **BYTES}, token=token),
        "sign of life": post(server, batch(run_id, range(0)), shown, token=token),
        "the next event": post(server, {"run_id": run_id, "events": [done]}, shown, token=token),
    }


def statuses(answers: dict[str, Reply]) -> dict[str, int]:
    return {name: answer.status for name, answer in answers.items()}


@pytest.mark.parametrize("shown", [{}, {"Untildone-Driver": "ud_driver_guessed"}, {"Untildone-Driver": ""}])
@pytest.mark.parametrize("short_cut", [True, False])
def test_without_the_key_nothing_is_said_or_heard_about_a_run(
    server: Served, shown: dict[str, str], *, short_cut: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not short_cut:
        monkeypatch.setattr(hot_path, "_EVENTS", re.compile("never"))
    run_id = f"keyed-{short_cut}-{len(shown.get('Untildone-Driver', 'x'))}"
    begin(server, run_id)
    refused = everything(server, run_id, shown)
    assert set(statuses(refused).values()) == {403}, refused
    assert all("another driver's" in answer.error for answer in refused.values())
    assert get(server, f"/api/v1/runs/{run_id}")["last_seq"] == 2
    assert set(statuses(everything(server, run_id, SHOWN)).values()) == {200}


def test_the_token_of_the_sandbox_is_no_key_and_an_operators_opens_in_its_place(server: Served) -> None:
    begin(server, "with-tokens")
    _, operator = server.token("operator")
    assert set(statuses(everything(server, "with-tokens", {}, operator)).values()) == {200}
    _, worker = server.token("worker", "guarded")
    guarded = "/api/v1/sandboxes/guarded"
    body = batch("guarded-run", range(1, 3))
    assert server.ask("POST", f"{guarded}/events", json_body=body, headers=SHOWN, token=worker).status == 200
    assert server.ask("POST", f"{guarded}/events", json_body=body, token=worker).status == 403
    parcels = f"{guarded}/runs/guarded-run/parcels"
    for path in (parcels, f"{parcels}/notes"):
        assert server.ask("GET", path, token=worker).status == 403
        assert server.ask("GET", path, token=worker, headers=SHOWN).status in {200, 404}


def test_a_run_that_began_without_a_key_stays_open_whoever_shows_one_later(server: Served) -> None:
    begin(server, "open", {})
    assert set(statuses(everything(server, "open", SHOWN)).values()) == {200}
    assert set(statuses(everything(server, "open", {})).values()) == {200}


def test_what_is_kept_of_the_key_is_its_hash_and_nobody_is_shown_that(server: Served) -> None:
    begin(server, "hashed")
    entry = server.run(server.archive.runs.entry("hashed"))
    assert len(entry.driver_hash) == 64
    seen = server.ask("GET", "/api/v1/runs/hashed").body + server.ask("GET", "/api/v1/runs").body
    seen += server.ask("GET", "/runs/hashed").body + server.ask("GET", "/metrics").body + repr(entry).encode()
    assert KEY.encode() not in seen
    assert entry.driver_hash.encode() not in seen
    database = Path(server.context.settings.database.removeprefix("sqlite:///"))
    assert all(KEY.encode() not in file.read_bytes() for file in database.parent.iterdir())


def test_taking_a_run_away_needs_a_token_on_this_machine_too(server: Served) -> None:
    for run_id, shown in (("fought-over", SHOWN), ("fought-over-open", {})):
        begin(server, run_id, shown)
        for sandbox in ("box", "thief"):
            for tried in ({}, {"Untildone-Driver": new_key()}):
                answer = take(server, run_id, sandbox=sandbox, headers=tried)
                assert (answer.status, "token" in answer.error) == (403, True), answer
        assert post(server, batch(run_id, range(3, 4)), shown).status == 200
    assert json.loads(take(server, "fought-over", headers=SHOWN).body) == {"tenure": 1}  # its own driver


def test_taking_a_run_over_brings_the_new_drivers_key_in(server: Served) -> None:
    begin(server, "handed-over")
    _, operator = server.token("operator")
    new = {"Untildone-Driver": new_key()}
    assert take(server, "handed-over", headers=new, token=operator).status == 200
    later = batch("handed-over", range(3, 5), tenure=1)
    assert post(server, later, SHOWN).status == 403
    assert post(server, later, {}).status == 403
    assert post(server, later, new).status == 200
    old = post(server, batch("handed-over", range(3, 5)), SHOWN)
    assert (old.status, json.loads(old.body)["taken"]) == (409, True)


def test_whoever_took_a_run_over_that_is_forgotten_is_told_which_tenure_holds(server: Served) -> None:
    begin(server, "forgotten")
    for sandbox in ("box", "elsewhere"):
        answer = send(server, "forgotten", range(0), sandbox=sandbox, tenure=3)
        assert (answer.status, json.loads(answer.body)["tenure"]) == (409, 0)
        assert json.loads(answer.body)["taken"] is False
    parcel = "/api/v1/sandboxes/box/runs/forgotten/parcels/tree?tenure=3"
    answer = server.ask("PUT", parcel, body=b"x", headers={**BYTES, **SHOWN})
    assert (answer.status, json.loads(answer.body)["tenure"]) == (409, 0)


@pytest.mark.parametrize("name", ["x1", "tree2", "transcript", "notes/more", "transcript/a/b", "Tree"])
def test_parcels_have_the_names_that_somebody_reads(server: Served, name: str) -> None:
    begin(server, "named", {})
    answer = server.ask("PUT", f"/api/v1/sandboxes/box/runs/named/parcels/{name}", body=b"x", headers=BYTES)
    assert answer.status == 422
    assert get(server, "/api/v1/runs/named/parcels", token=server.token("operator")[1]) == {"parcels": []}


def test_a_disk_that_is_nearly_full_is_said_and_the_rest_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = {"bytes": 100 << 30}
    monkeypatch.setattr(room, "EVERY", 0.0)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(200 << 30, free["bytes"]))
    with served(tmp_path) as server:
        begin(server, "full")
        free["bytes"] = 500 << 20
        parcel = "/api/v1/sandboxes/box/runs/full/parcels/tree"
        published = {"event_type": "a.b", "event_data": {}}
        for answer in (
            post(server, batch("full", range(3, 5)), SHOWN),
            post(server, published, {}),
            server.ask("PUT", parcel, body=b"x", headers={**BYTES, **SHOWN}),
        ):
            assert (answer.status, "nearly full" in answer.error) == (507, True)
            assert str(tmp_path) not in answer.error
        assert post(server, batch("full", range(0)), SHOWN).status == 200  # that it lives is told without room
        stop = {"kind": "message", "content": "hello"}
        _, operator = server.token("operator")
        assert server.ask("POST", "/api/v1/runs/full/orders", json_body=stop, token=operator).status == 202
        free["bytes"] = 520 << 20  # not clearly more
        assert post(server, batch("full", range(3, 5)), SHOWN).status == 507
        free["bytes"] = 100 << 30
        assert post(server, batch("full", range(3, 5)), SHOWN).status == 200


def test_a_right_to_a_run_does_not_outlive_its_being_taken_elsewhere(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(server, "raced")
    runs = server.archive.runs
    look = runs.entry

    async def taken_meanwhile(run_id: str) -> Any:
        """An operator gives the run to another sandbox right after somebody looked whose it is."""
        entry = await look(run_id)
        await runs.take_over(run_id, sandbox_id="other", tenure=0)
        return entry

    monkeypatch.setattr(runs, "entry", taken_meanwhile)
    answer = take(server, "raced", tenure=1, headers=SHOWN)
    monkeypatch.undo()
    assert answer.status == 409
    assert server.run(look("raced")).sandbox_id == "other"

"""Runs, events, iterations, diffs, orders and parcels over HTTP."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from core.run_kit import START, completed, opening, records, started
from patience import PATIENCE
from server.archive_kit import WORKER, stored
from server.door_kit import Reply, Served, served, until
from server.sending_kit import event, get, send
from untildone.core.claims import Claim, Report
from untildone.core.trace import AgentFileEdited
from untildone.server import runs_api
from untildone.server.archive import events as archive_events


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("server")) as one:
        yield one


@pytest.fixture(scope="module")
def operator(server: Served) -> str:
    return server.token("operator")[1]


def post_events(server: Served, run_id: str, events: list[dict[str, Any]]) -> Reply:
    return server.ask("POST", "/api/v1/sandboxes/box/events", json_body={"run_id": run_id, "events": events})


def seqs(page: dict[str, Any]) -> list[int]:
    return [one["seq"] for one in page["events"]]


# --- runs ------------------------------------------------------------------------------------------------


def test_runs_come_in_pages_the_one_heard_of_last_first(server: Served) -> None:
    names = [f"page-{number}" for number in range(7)]
    for name in names:
        send(server, name, range(1, 2), sandbox="pages")
    found, cursor = [], ""
    for _ in range(4):
        page = get(server, f"/api/v1/runs?sandbox=pages&limit=2{cursor}")
        found += [run["run_id"] for run in page["runs"]]
        if page["next"] is None:
            break
        cursor = f"&before={quote(page['next'])}"
    assert found == names[::-1]


def test_a_real_run_is_shown_as_it_stands(server: Served) -> None:
    told = stored(records([*opening(), started(1), completed(1)]))
    server.run(server.archive.events.receive(WORKER, "real", told, now=START))
    server.run(server.context.projector.settled("real"))
    run = get(server, "/api/v1/runs/real")
    assert (run["last_seq"], run["folded_seq"], run["attempts"]) == (len(told), len(told), 1)
    assert (run["status"], run["alive"]) == ("interrupted", False)
    assert run["why"].startswith("Nothing was heard of it for ")
    rows = get(server, "/api/v1/runs/real/iterations")
    assert [(row["number"], row["outcome"]) for row in rows["iterations"]] == [(1, "ok")]
    assert [one["run_id"] for one in get(server, f"/api/v1/runs?text={quote(run['goal'][:8].upper())}")["runs"]] == [
        "real"
    ]
    assert get(server, "/api/v1/runs?text=real&status=completed&status=paused")["runs"] == []
    assert get(server, "/api/v1/runs?text=real&status=running")["runs"] == []
    [listed] = get(server, "/api/v1/runs?text=real&status=interrupted")["runs"]
    assert (listed["status"], listed["alive"], bool(listed["why"])) == ("interrupted", False, True)
    numbers = server.ask("GET", "/metrics").body.decode()
    assert 'untildone_runs{status="interrupted"}' in numbers
    server.run(server.archive.runs.heard("real", now=time.time()))
    assert get(server, "/api/v1/runs/real")["status"] == "running"
    assert [one["run_id"] for one in get(server, "/api/v1/runs?text=real&status=running")["runs"]] == ["real"]


def test_an_iteration_is_given_as_it_is_described(server: Served) -> None:
    told = stored(records([*opening(), started(1)]))
    server.run(server.archive.events.receive(WORKER, "cut", told, now=time.time()))
    server.run(server.context.projector.settled("cut"))
    [row] = get(server, "/api/v1/runs/cut/iterations")["iterations"]
    described = get(server, "/api/openapi.json")["components"]["schemas"]["IterationOut"]["properties"]
    assert row.keys() == described.keys()
    assert (row["outcome"], row["first_seq"], row["session_id"]) == ("running", len(told), "")
    server.run(server.archive.events.receive(WORKER, "cut-off", told, now=START))
    server.run(server.context.projector.settled("cut-off"))
    [row] = get(server, "/api/v1/runs/cut-off/iterations")["iterations"]
    assert row["outcome"] == "abandoned", "nobody drives it any more"


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/runs?limit=0",
        "/api/v1/runs?limit=x",
        "/api/v1/runs?before=yesterday",
        "/api/v1/runs?text=%00",
        "/api/v1/runs?status=A%20B",
        "/api/v1/runs?status=bogus",
        "/api/v1/runs/real/events?after=-1",
        "/api/v1/runs/real/events?limit=5000",
        "/api/v1/runs/real/events?kind=other",
        "/api/v1/runs/real/events?type=a%25",
        "/api/v1/runs/real/events/0",
        f"/api/v1/runs/real/events/{2**70}",
        "/api/v1/runs/%20",
    ],
)
def test_what_is_asked_wrongly_is_refused_in_one_line(server: Served, path: str) -> None:
    answer = server.ask("GET", path)
    assert (answer.status, bool(answer.error)) == (422, True)


@pytest.mark.parametrize("what", ["", "/events", "/events/1", "/iterations", "/diffs"])
def test_a_run_that_is_not_there(server: Served, what: str) -> None:
    answer = server.ask("GET", f"/api/v1/runs/nowhere{what}")
    assert (answer.status, "there is no such" in answer.error) == (404, True)


def test_a_path_that_is_not_there_and_a_method_that_is_not_known(server: Served) -> None:
    assert server.ask("GET", "/api/v1/nothing").error
    answer = server.ask("DELETE", "/api/v1/runs/real")
    assert (answer.status, bool(answer.error)) == (405, True)


# --- events ----------------------------------------------------------------------------------------------


def test_events_are_paged_forwards_and_backwards(server: Served) -> None:
    send(server, "pages", range(1, 501))
    forwards, after = [], 0
    while True:
        page = get(server, f"/api/v1/runs/pages/events?after={after}&limit=150")
        forwards += seqs(page)
        if page["next"] is None:
            break
        after = page["next"]
    assert forwards == list(range(1, 501))
    page = get(server, "/api/v1/runs/pages/events?before=501&limit=100")
    assert (seqs(page), page["next"]) == (list(range(401, 501)), 401)
    assert seqs(get(server, "/api/v1/runs/pages/events?before=401&limit=2")) == [399, 400]
    assert seqs(get(server, "/api/v1/runs/pages/events?before=3")) == [1, 2]
    assert seqs(get(server, "/api/v1/runs/pages/events?after=10&before=14")) == [11, 12, 13]


def test_events_are_filtered(server: Served) -> None:
    kinds = [("iteration.started", "control"), ("agent.tool_use", "trace"), ("agent.tool_result", "trace")]
    post_events(
        server,
        "mixed",
        [
            event(3 * number + place, event_type=name, kind=kind, event_data={"iteration_num": number + 1, "t": "Ü%_"})
            for number in range(3)
            for place, (name, kind) in enumerate(kinds, 1)
        ],
    )
    path = "/api/v1/runs/mixed/events"
    assert seqs(get(server, f"{path}?kind=control")) == [1, 4, 7]
    assert seqs(get(server, f"{path}?type=agent.tool_use&type=iteration.*")) == [1, 2, 4, 5, 7, 8]
    assert seqs(get(server, f"{path}?iteration=2")) == [4, 5, 6]
    assert seqs(get(server, f"{path}?text={quote('%_')}&limit=2")) == [1, 2]
    assert seqs(get(server, f"{path}?text=nowhere")) == []
    assert get(server, f"{path}/5")["type"] == "agent.tool_use"


def test_an_answer_ends_before_it_becomes_huge(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs_api, "MOST_BYTES", 50_000)
    monkeypatch.setattr(runs_api, "_AT_ONCE", 10)
    post_events(server, "huge", [event(seq, event_data={"t": "x" * 5000}) for seq in range(1, 101)])
    page = get(server, "/api/v1/runs/huge/events?limit=100")
    assert (seqs(page), page["next"]) == (list(range(1, 11)), 10)
    page = get(server, "/api/v1/runs/huge/events?limit=100&before=101")
    assert (seqs(page), page["next"]) == (list(range(91, 101)), 91)


def test_a_search_in_a_long_run_goes_on_where_it_was(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_events, "MOST_SCANNED", 50)
    monkeypatch.setattr(runs_api, "MOST_SCANNED", 50)
    words = {seq: "needle" if seq in (3, 60, 199) else "hay" for seq in range(1, 201)}
    post_events(server, "hay", [event(seq, event_data={"t": word}) for seq, word in words.items()])
    for start, step in (("after=0", "after"), ("before=201", "before")):
        found, cursor, pages = [], start, 0
        while cursor:
            page = get(server, f"/api/v1/runs/hay/events?text=needle&{cursor}")
            found += seqs(page)
            cursor = f"{step}={page['next']}" if page["next"] is not None else ""
            pages += 1
        assert sorted(found) == [3, 60, 199]
        assert pages == 4


def test_diffs_are_what_changed_files(server: Served) -> None:
    edited = AgentFileEdited(iteration_num=1, tool_use_id="t", tool="Edit", file_path="a.py", diff_preview="+x")
    told = stored(records([*opening(), started(1), edited, completed(1)]))
    server.run(server.archive.events.receive(WORKER, "edits", told, now=START))
    [diff] = get(server, "/api/v1/runs/edits/diffs")["events"]
    assert (diff["type"], diff["data"]["file_path"]) == ("agent.file_edited", "a.py")


# --- orders ----------------------------------------------------------------------------------------------


def test_steering_takes_an_operator_and_the_worker_gets_the_order(server: Served, operator: str) -> None:
    send(server, "steered", range(1, 3))
    path = "/api/v1/runs/steered/orders"
    order = {"kind": "message", "content": "look at the tests"}
    assert server.ask("POST", path, json_body=order).status == 401
    assert server.ask("POST", path, json_body=order, token=server.token("viewer")[1]).status == 403
    given = server.ask("POST", path, json_body=order, token=operator)
    assert given.status == 202
    number = json.loads(given.body)["number"]
    [waiting] = get(server, "/api/v1/sandboxes/box/runs/steered/orders")
    assert (waiting["number"], waiting["kind"], waiting["data"]["content"]) == (number, "message", "look at the tests")
    assert get(server, f"/api/v1/sandboxes/box/runs/steered/orders?after={number}") == []
    assert get(server, "/api/v1/sandboxes/box/runs/steered")["orders"] == number
    assert json.loads(send(server, "steered", range(3, 4)).body)["orders"] == number


@pytest.mark.parametrize(
    ("order", "status"),
    [
        ({"kind": "message", "content": ""}, 422),
        ({"kind": "message", "content": "x" * 20_001}, 422),
        ({"kind": "limits", "max_cost_usd": -1}, 422),
        ({"kind": "limits", "max_cost_usd": 0}, 422),
        ({"kind": "limits", "max_cost": 1}, 422),
        ({"kind": "limits", "max_cost_usd": "7.50"}, 422),
        ({"kind": "limits", "max_cost_usd": "7,50"}, 422),
        ({"kind": "limits", "max_runs": "1_000"}, 422),
        ({"kind": "limits", "max_runs": True}, 422),
        ({"kind": "limits"}, 422),
        ({"kind": "waive", "patterns": []}, 422),
        ({"kind": "explode"}, 422),
        ({}, 422),
        ([], 422),
    ],
)
def test_orders_that_no_run_takes_are_refused(server: Served, operator: str, order: object, status: int) -> None:
    send(server, "orderly", range(1, 2))
    answer = server.ask("POST", "/api/v1/runs/orderly/orders", json_body=order, token=operator)
    assert (answer.status, bool(answer.error)) == (status, True)


def test_an_answer_reaches_the_agent_with_its_question(server: Served, operator: str) -> None:
    asks(server, "asking", "Tabs\nor spaces?")
    order = {"kind": "answer", "question": "Tabs\nor spaces?", "content": "Tabs."}
    given = server.ask("POST", "/api/v1/runs/asking/orders", json_body=order, token=operator)
    assert given.status == 202
    [waiting] = get(server, "/api/v1/sandboxes/box/runs/asking/orders")
    assert waiting["kind"] == "message"
    assert waiting["data"]["content"] == "> Tabs\n> or spaces?\n\nTabs."
    assert waiting["data"]["urgent"] is False
    assert get(server, "/api/v1/runs/asking")["questions"] == [], "answered, though nobody has fetched that yet"


def test_open_questions_are_told_and_only_those_are_answered(server: Served, operator: str) -> None:
    asks(server, "wondering", "May I delete legacy/?", "Which port?")
    assert get(server, "/api/v1/runs/wondering")["questions"] == ["May I delete legacy/?", "Which port?"]
    invented = {"kind": "answer", "question": "May I go home?", "content": "No."}
    refused = server.ask("POST", "/api/v1/runs/wondering/orders", json_body=invented, token=operator)
    assert refused.status == 409
    assert "no such question is open" in refused.error
    assert get(server, "/api/v1/sandboxes/box/runs/wondering/orders") == []


def asks(server: Served, run_id: str, *questions: str) -> None:
    """A run whose first iteration asked something, and whose second did not."""
    first = completed(1, claim=Claim(report=Report(questions=questions)))
    events = stored(records([*opening(), started(1), first, started(2), completed(2, claim=Claim(report=Report()))]))
    server.run(server.archive.events.receive(WORKER, run_id, events, now=time.time()))
    server.run(server.context.projector.settled(run_id))


def test_an_order_for_a_run_that_is_not_there(server: Served, operator: str) -> None:
    answer = server.ask("POST", "/api/v1/runs/nowhere/orders", json_body={"kind": "stop"}, token=operator)
    assert (answer.status, bool(answer.error)) == (404, True)


def test_a_waiting_worker_gets_an_order_at_once(server: Served, operator: str) -> None:
    send(server, "waiting", range(1, 2))
    found: list[Any] = []
    path = "/api/v1/sandboxes/box/runs/waiting/orders?wait=50"
    asking = threading.Thread(target=lambda: found.extend(get(server, path)))
    asking.start()
    until(lambda: server.context.fanout.followers > 0)
    began = time.monotonic()
    server.ask("POST", "/api/v1/runs/waiting/orders", json_body={"kind": "message", "content": "hi"}, token=operator)
    asking.join(PATIENCE)
    assert [order["kind"] for order in found] == ["message"]
    assert time.monotonic() - began < 25, "half of what it would have waited for"


def test_a_worker_that_waits_asks_the_database_twice_however_much_happens(server: Served, operator: str) -> None:
    send(server, "patient", range(1, 2))
    asked = []
    orders = server.archive.orders
    after = orders.after

    async def counted(*args: Any, **kwargs: Any) -> Any:
        asked.append(args)
        return await after(*args, **kwargs)

    orders.after = counted
    try:
        waiting = threading.Thread(
            target=get, args=(server, "/api/v1/sandboxes/box/runs/patient/orders?wait=50"), daemon=True
        )
        waiting.start()
        until(lambda: server.context.fanout.followers > 0)
        for seq in range(2, 12):
            send(server, "patient", range(seq, seq + 1))
        order = {"kind": "message", "content": "hi"}
        server.ask("POST", "/api/v1/runs/patient/orders", json_body=order, token=operator)
        waiting.join(PATIENCE)
        assert not waiting.is_alive()
    finally:
        orders.after = after
    assert len(asked) == 2


# --- parcels ---------------------------------------------------------------------------------------------


def test_parcels_are_kept_and_given_back_to_those_who_may(server: Served, operator: str) -> None:
    send(server, "parcels", range(1, 4))
    own = "/api/v1/sandboxes/box/runs/parcels/parcels"
    octets = {"Content-Type": "application/octet-stream"}
    for content, seq in ((b"\x1f\x8bfirst", 2), (b"\x1f\x8bsecond", 3)):
        put = server.ask("PUT", f"{own}/transcript/abc?seq={seq}", body=content, headers=octets)
        assert (put.status, json.loads(put.body)["size"]) == (200, len(content))
    # Being on this machine is enough to speak for a sandbox without a token, not to read what was said in it.
    assert [server.ask("GET", path).status for path in (own, f"{own}/transcript/abc")] == [401, 401]
    answer = server.ask("GET", f"{own}/transcript/abc", token=operator)
    assert (answer.body, answer.headers["x-seq"]) == (b"\x1f\x8bsecond", "3")
    assert [one["name"] for one in get(server, own, token=operator)["parcels"]] == ["transcript/abc"]
    theirs = "/api/v1/runs/parcels/parcels"
    assert server.ask("GET", theirs).status == 401
    assert server.ask("GET", f"{theirs}/transcript/abc", token=server.token("viewer")[1]).status == 403
    assert server.ask("GET", f"{theirs}/transcript/abc", token=operator).body == b"\x1f\x8bsecond"
    other = "/api/v1/sandboxes/other/runs/parcels/parcels/transcript/abc"
    assert server.ask("GET", other, token=operator).status == 403
    assert server.ask("GET", f"{own}/notes", token=operator).status == 404


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("box/runs/nowhere/parcels/notes", {"Content-Type": "application/octet-stream"}, 404),
        ("other/runs/parcels/parcels/notes", {"Content-Type": "application/octet-stream"}, 403),
        ("box/runs/parcels/parcels/notes", {"Content-Type": "text/plain"}, 415),
        ("box/runs/parcels/parcels/a%20b", {"Content-Type": "application/octet-stream"}, 422),
        ("box/runs/parcels/parcels/a/b/c/d/e", {"Content-Type": "application/octet-stream"}, 422),
        ("box/runs/parcels/parcels/notes?seq=-1", {"Content-Type": "application/octet-stream"}, 422),
    ],
)
def test_parcels_that_are_not_taken(server: Served, path: str, headers: dict[str, str], status: int) -> None:
    send(server, "parcels", range(1, 4))
    answer = server.ask("PUT", f"/api/v1/sandboxes/{path}", body=b"x", headers=headers)
    assert (answer.status, bool(answer.error)) == (status, True), answer


# --- health ----------------------------------------------------------------------------------------------


def test_health_and_numbers(server: Served) -> None:
    send(server, "counted", range(1, 11))
    send(server, "counted", range(1, 11))
    assert get(server, "/healthz") == {"status": "ok"}
    assert get(server, "/readyz") == {"status": "ok"}
    told = dict(
        line.rsplit(" ", 1) for line in server.ask("GET", "/metrics").body.decode().splitlines() if line[0] != "#"
    )
    assert float(told["untildone_events_stored_total"]) >= 10
    assert float(told["untildone_events_duplicate_total"]) >= 10
    assert float(told["untildone_resident_bytes"]) > 10_000_000
    assert float(told["untildone_batch_seconds_count"]) > 0
    assert any(name.startswith("untildone_runs{") for name in told)
    before = float(told["untildone_followers_lagged_total"])
    server.context.fanout.lagged += 2
    for _ in range(2):
        numbers = server.ask("GET", "/metrics").body.decode().splitlines()
        assert "# TYPE untildone_followers_lagged_total counter" in numbers
        assert f"untildone_followers_lagged_total {before + 2}" in numbers


def test_a_database_that_is_away_is_said_in_one_line(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    from untildone.errors import ServeError

    async def away(_: str) -> None:
        await asyncio.sleep(0)
        raise ServeError("the database does not answer")

    monkeypatch.setattr(server.archive.runs, "entry", away)
    assert server.ask("GET", "/readyz").status == 503
    answer = server.ask("GET", "/api/v1/runs/some")
    assert (answer.status, answer.error) == (503, "the database does not answer")


def test_what_nobody_expected_is_one_line_without_a_stack(
    server: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(_: str) -> None:
        await asyncio.sleep(0)
        raise ZeroDivisionError("secret ud_abc")

    monkeypatch.setattr(server.archive.runs, "entry", broken)
    answer = server.ask("GET", "/api/v1/runs/some?token=ud_query")
    assert (answer.status, "Traceback" in answer.body.decode()) == (500, False)
    assert "secret" not in answer.error
    assert "ZeroDivisionError" in caplog.text
    assert "ud_" not in caplog.text

"""Events come in: what is well-formed is stored once, everything else is refused with one line."""

import gzip
import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patience import PATIENCE
from server.door_kit import Served, served, until
from server.sending_kit import batch, event, get, send
from untildone.core.wire import Batch
from untildone.server import bodies, hot_path
from untildone.server.intake import Published, Unreadable, parsed, stored_events

EVENTS = "/api/v1/sandboxes/box/events"

CUT_OFF = gzip.compress(b"{}", mtime=0)[:-3]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("server")) as one:
        yield one


def test_a_batch_is_stored_and_what_came_twice_is_stored_once(server: Served) -> None:
    first = json.loads(send(server, "twice", range(1, 101)).body)
    again = json.loads(send(server, "twice", range(51, 151)).body)
    assert (first["last_seq"], first["stored"]) == (100, 100)
    assert (again["last_seq"], again["stored"]) == (150, 50)
    kept = get(server, "/api/v1/runs/twice/events?limit=1000")["events"]
    assert [one["seq"] for one in kept] == list(range(1, 151))
    assert kept[120]["data"] == {"iteration_num": 1, "text": "word 121"}


def test_an_empty_batch_is_a_sign_of_life(server: Served) -> None:
    send(server, "quiet", range(1, 3))
    before = get(server, "/api/v1/runs/quiet")["heard_at"]
    answer = send(server, "quiet", range(0))
    assert json.loads(answer.body) == {"last_seq": 2, "stored": 0, "orders": 0}
    assert get(server, "/api/v1/runs/quiet")["heard_at"] > before


def test_payloads_are_kept_to_the_byte(server: Served) -> None:
    payload = '{"big":12345678901234567890123,"float":1e400,"text":"\\u0000 \\" é \U0001f600","nested":[[],{}]}'
    body = json.dumps(batch("exact", range(1, 2))).replace(json.dumps(event(1)["event_data"]), payload)
    answer = server.ask("POST", EVENTS, body=body.encode(), headers={"Content-Type": "application/json"})
    assert answer.status == 200, answer
    assert payload.encode() in server.ask("GET", "/api/v1/runs/exact/events/1").body


def test_gzip_is_unpacked(server: Served) -> None:
    packed = gzip.compress(json.dumps(batch("packed", range(1, 501))).encode())
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    assert json.loads(server.ask("POST", EVENTS, body=packed, headers=headers).body)["stored"] == 500


def test_a_small_body_that_stands_for_a_huge_one_is_refused(server: Served) -> None:
    bomb = gzip.compress(b" " * (bodies.MOST_JSON + 1))
    assert len(bomb) < 100_000
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    answer = server.ask("POST", EVENTS, body=bomb, headers=headers)
    assert answer.status == 413
    assert "32 MiB" in answer.error


@pytest.mark.parametrize(
    ("headers", "body", "status", "says"),
    [
        ({"Content-Type": "text/plain"}, b"{}", 415, "application/json"),
        ({}, b"{}", 415, "application/json"),
        ({"Content-Type": "application/json", "Content-Encoding": "br"}, b"{}", 415, "gzip"),
        ({"Content-Type": "application/json", "Content-Encoding": "gzip"}, b"{}", 400, "gzip"),
        ({"Content-Type": "application/json", "Content-Encoding": "gzip"}, CUT_OFF, 400, "whole"),
        ({"Content-Type": "application/json; charset=utf-8"}, b"", 422, "event"),
        ({"Content-Type": "application/json"}, b"\xff\xfe", 422, "event"),
        ({"Content-Type": "application/json"}, b"[" * 100_000, 422, "event"),
        ({"Content-Type": "application/json"}, b'{"event_type":"a","event_data":' + b"[" * 100_000, 422, "event"),
    ],
)
def test_what_cannot_be_read_is_refused(
    server: Served, headers: dict[str, str], body: bytes, status: int, says: str
) -> None:
    answer = server.ask("POST", EVENTS, body=body, headers=headers)
    assert (answer.status, says in answer.error) == (status, True), answer


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"events": [event(2), event(1)]}, "in order"),
        ({"events": [event(1), event(1)]}, "in order"),
        ({"events": [event(0)]}, "seq"),
        ({"events": [event(1, at=-1)]}, "clock"),
        ({"events": [event(1, at=1e300)]}, "clock"),
        ({"events": [event(1, event_type="a\nb")]}, "shown"),
        ({"events": [event(1, event_type="a\u0000")]}, "shown"),
        ({"events": [event(1, event_type="")]}, "event_type"),
        ({"events": [event(1, event_data=[1])]}, "object"),
        ({"events": [event(1, event_data=None)]}, "object"),
        ({"events": [event(1, kind="other")]}, "kind"),
        ({"events": [event(1, source="other")]}, "source"),
        ({"events": [event(seq) for seq in range(1, 1002)]}, "1000"),
        ({"run_id": "../../etc"}, "run_id"),
        ({"run_id": "line\n"}, "run_id"),
        ({"run_id": "published-box"}, "published-"),
        ({"tenure": -1}, "tenure"),
    ],
)
def test_a_batch_that_no_run_writes_is_refused(server: Served, changed: dict[str, Any], says: str) -> None:
    answer = server.ask("POST", EVENTS, json_body={"run_id": "wrong", "events": [event(1)], **changed})
    assert (answer.status, says in answer.error) == (422, True), answer
    assert server.ask("GET", "/api/v1/runs/wrong").status == 404


def test_a_run_belongs_to_the_sandbox_that_began_it(server: Served) -> None:
    send(server, "mine", range(1, 3))
    answer = send(server, "mine", range(3, 5), sandbox="other")
    assert answer.status == 403
    assert server.ask("GET", "/api/v1/sandboxes/other/runs/mine").status == 403
    assert get(server, "/api/v1/sandboxes/box/runs/mine")["last_seq"] == 2


def test_words_of_whoever_drove_before_are_refused(server: Served) -> None:
    send(server, "moved", range(1, 3))
    _, operator = server.token("operator")
    take = {"json_body": {"tenure": 0}, "token": operator}
    taken = server.ask("POST", "/api/v1/sandboxes/elsewhere/runs/moved/take", **take)
    assert (taken.status, json.loads(taken.body)) == (200, {"tenure": 1})
    late = send(server, "moved", range(3, 5))
    assert late.status in (403, 409)
    old = send(server, "moved", range(3, 5), sandbox="elsewhere")
    assert (old.status, json.loads(old.body)["taken"]) == (409, True)
    assert send(server, "moved", range(3, 5), sandbox="elsewhere", tenure=1).status == 200
    again = server.ask("POST", "/api/v1/sandboxes/third/runs/moved/take", **take)
    assert (again.status, json.loads(again.body)["taken"]) == (409, True)


def test_taking_over_what_is_not_there_or_not_a_workers(server: Served) -> None:
    assert server.ask("POST", "/api/v1/sandboxes/box/runs/none/take", json_body={"tenure": 0}).status == 404
    server.ask("POST", "/api/v1/sandboxes/plain/events", json_body={"event_type": "a", "event_data": {}})
    answer = server.ask("POST", "/api/v1/sandboxes/box/runs/published-plain/take", json_body={"tenure": 0})
    assert answer.status == 409


def test_a_guarded_sandbox_is_not_robbed_without_its_token(server: Served) -> None:
    _, secret = server.token("worker", "guarded")
    body = batch("precious", range(1, 2))
    assert server.ask("POST", "/api/v1/sandboxes/guarded/events", json_body=body, token=secret).status == 200
    take = {"tenure": 0}
    assert server.ask("POST", "/api/v1/sandboxes/thief/runs/precious/take", json_body=take).status == 403
    _, other = server.token("worker", "thief")
    path = "/api/v1/sandboxes/thief/runs/precious/take"
    assert server.ask("POST", path, json_body=take, token=other).status == 403
    _, operator = server.token("operator")
    assert server.ask("POST", path, json_body=take, token=operator).status == 200


def test_the_short_cut_and_the_route_answer_alike(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    _, foreign = server.token("worker", "another")
    cases: list[tuple[Any, str]] = [
        (batch("alike", range(1, 3)), ""),
        (batch("alike", range(2, 1, -1)), ""),
        ({"event_type": "a", "event_data": []}, ""),
        (batch("alike", range(1, 3)), foreign),
        (batch("alike", range(1, 3)), "ud_wrong"),
        (batch("alike", range(5, 6), tenure=0), ""),
    ]

    def answers() -> list[tuple[int, Any]]:
        found = [server.ask("POST", EVENTS, json_body=body, token=token) for body, token in cases]
        return [(one.status, {**json.loads(one.body), "stored": 0}) for one in found]

    short = answers()
    monkeypatch.setattr(hot_path, "_EVENTS", re.compile("never"))
    assert answers() == short
    assert [status for status, _ in short] == [200, 200, 422, 403, 401, 409]
    assert short[-1][1]["last_seq"] == 2


def test_a_sign_of_life_does_not_claim_a_name(server: Served) -> None:
    assert send(server, "wanted", range(0), sandbox="squatter").status == 200
    assert send(server, "wanted", range(1, 2), sandbox="owner").status == 200


def test_an_event_that_is_too_large_is_refused_with_a_line(server: Served) -> None:
    body = {"run_id": "large", "events": [event(1, event_data={"t": "x" * (4 << 20)})]}
    answer = server.ask("POST", EVENTS, json_body=body)
    assert (answer.status, "larger than 4 MiB" in answer.error) == (422, True)


def test_who_was_replaced_while_waiting_gets_no_orders(server: Served) -> None:
    send(server, "handed", range(1, 2), sandbox="old")
    path = "/api/v1/sandboxes/old/runs/handed/orders?after=0&wait=50"
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(server.ask, "GET", path)
        until(lambda: server.context.fanout.followers > 0)
        server.run(server.archive.runs.take_over("handed", sandbox_id="new", tenure=0))
        server.run(server.archive.orders.give("handed", "pause", {}, by="me", now=1.0))
        server.run(_ordered(server, "handed"))
        assert (waiting.result(PATIENCE).status, json.loads(waiting.result().body)["taken"]) == (409, True)
    assert server.ask("GET", "/api/v1/sandboxes/old/runs/future/orders").status == 404


async def _ordered(server: Served, run_id: str) -> None:
    server.context.fanout.ordered(run_id)


def test_refusals_are_counted(server: Served) -> None:
    server.ask("POST", EVENTS, json_body={"run_id": "?"})
    told = server.ask("GET", "/metrics").body.decode()
    refused = next(
        line for line in told.splitlines() if line.startswith('untildone_requests_refused_total{status="422"}')
    )
    assert float(refused.split()[1]) >= 1


# --- whatever is sent ------------------------------------------------------------------------------------

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
_WIRE = st.fixed_dictionaries(
    {},
    optional={
        "event_type": st.text() | st.just("a.b"),
        "event_data": _JSON | st.just({}),
        "seq": st.integers(-1, 3) | st.integers(),
        "at": st.floats() | st.just(1.0),
        "kind": st.sampled_from(["control", "trace", "x"]),
    },
)
_BATCH = st.fixed_dictionaries(
    {}, optional={"run_id": st.text() | st.just("run"), "events": st.lists(_WIRE, max_size=3) | _JSON, "tenure": _JSON}
)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300) | (_JSON | _WIRE | _BATCH).map(lambda value: json.dumps(value).encode()))
def test_every_body_is_taken_or_unreadable(body: bytes) -> None:
    try:
        found = parsed(body)
        events = stored_events(found) if isinstance(found, Batch) else []
    except Unreadable:
        return
    assert isinstance(found, Batch | Published)
    for one in events:
        assert one.seq >= 1
        assert isinstance(msgspec.json.decode(one.data.encode(), strict=False), dict) or "e" in one.data


def test_bodies_are_bounded_before_they_are_read(server: Served) -> None:
    headers = {"Content-Type": "application/json", "Content-Length": str(10**9)}
    said = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    with server.socket() as line:
        line.sendall(f"POST {EVENTS} HTTP/1.1\r\nHost: 127.0.0.1\r\n{said}\r\n".encode())
        assert line.recv(1000).startswith(b"HTTP/1.1 413")

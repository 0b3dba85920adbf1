"""How much anybody may send, how slowly, and how often."""

import gzip
import json
import select
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from patience import PATIENCE
from server.door_kit import Served, served, trickled
from server.sending_kit import batch
from untildone.server import guards, limits, room
from untildone.server.access import neighbourhood
from untildone.server.limits import EVENTS, LOGIN, LOOKING, PARCELS, STEERING, STREAMS, Buckets, lane_of

HOST = b"Host: 127.0.0.1\r\n"
JSON = b"Content-Type: application/json\r\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("server")) as one:
        yield one


@pytest.mark.parametrize(
    ("method", "path", "lane"),
    [
        ("POST", "/api/v1/sandboxes/box/events", EVENTS),
        ("GET", "/api/v1/sandboxes/box/events", LOOKING),
        ("PUT", "/api/v1/sandboxes/box/runs/r/parcels/transcript/x", PARCELS),
        ("POST", "/api/v1/sandboxes/box/runs/r/parcels/x", STEERING),
        ("POST", "/login/x", LOGIN),
        ("POST", "/api/v1/runs", STEERING),
        ("DELETE", "/whatever", STEERING),
        ("GET", "/", LOOKING),
        ("GET", "/api/v1/stream", STREAMS),
        ("GET", "/api/v1/runs/r/stream", STREAMS),
        ("GET", "/runs/r/live", STREAMS),
        ("GET", "/runs/r/stream", LOOKING),
    ],
)
def test_lanes(method: str, path: str, lane: limits.Lane) -> None:
    assert lane_of(method, path) is lane


@pytest.mark.parametrize("began", [100.0, 0.25], ids=["long up", "just started"])
def test_buckets_fill_up_again(began: float) -> None:
    now = [began]
    buckets = Buckets(2.0, 4.0, ticks=lambda: now[0])
    assert [buckets.take("a") for _ in range(4)] == [0, 0, 0, 0]
    assert buckets.take("a") == pytest.approx(0.5)
    assert buckets.wait("a") == pytest.approx(0.5)
    assert (buckets.take("b"), buckets.wait("c")) == (0, 0)
    now[0] += 0.5
    assert buckets.wait("a") == 0
    assert (buckets.take("a"), buckets.take("a") > 0) == (0, True)
    now[0] += 1000
    assert [buckets.take("a") for _ in range(4)] == [0, 0, 0, 0]
    assert buckets.take("a") > 0


def test_a_crowd_of_addresses_is_not_remembered_for_ever() -> None:
    now = [100.0]
    buckets = Buckets(1.0, 2.0, ticks=lambda: now[0])
    for number in range(25_000):
        now[0] += 0.0001
        buckets.take(f"10.{number}")
    assert len(buckets._empty_at) <= 10_000


def test_an_ipv6_network_is_one() -> None:
    assert neighbourhood("2001:db8:1:2:3::4") == neighbourhood("2001:db8:1:2:ffff::1")
    assert neighbourhood("2001:db8:1:2::1") != neighbourhood("2001:db8:1:3::1")
    assert neighbourhood("::ffff:10.0.0.1") == "10.0.0.1"
    assert neighbourhood("fe80::1%eth0") == neighbourhood("fe80::2")
    assert neighbourhood("10.0.0.1") != neighbourhood("10.0.0.2")


def test_a_body_that_is_too_large_is_refused_before_it_is_read(server: Served) -> None:
    said = b"POST /api/v1/sandboxes/box/events HTTP/1.1\r\n" + HOST + JSON
    with server.socket() as line:
        line.sendall(said + b"Content-Length: 99999999999\r\nExpect: 100-continue\r\n\r\n")
        answer = line.recv(65536)
        while b"32 MiB" not in answer and (more := line.recv(65536)):
            answer += more
    assert answer.startswith(b"HTTP/1.1 413")
    assert b"32 MiB" in answer


def test_a_body_without_a_length_is_cut_off_where_it_becomes_too_large(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = limits.Lane(name="steering", most_bytes=1000, seconds=20, rate=50, burst=500)
    monkeypatch.setattr(limits, "STEERING", small)
    chunk = b"400\r\n" + b" " * 1024 + b"\r\n"
    said = b"POST /api/v1/sandboxes/box/messages HTTP/1.1\r\n" + HOST + JSON
    with server.socket() as line:
        line.sendall(said + b"Transfer-Encoding: chunked\r\n\r\n" + chunk)
        assert line.recv(65536).startswith(b"HTTP/1.1 413")


def test_a_body_that_trickles_in_is_cut_off(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    brief = limits.Lane(name="events", most_bytes=10_000, seconds=0.5, rate=3000, burst=6000)
    monkeypatch.setattr(limits, "EVENTS", brief)
    said = b"POST /api/v1/sandboxes/box/events HTTP/1.1\r\n" + HOST + JSON + b"Content-Length: 5000\r\n\r\n{"
    with server.socket() as line:
        line.sendall(said)
        assert trickled(line, b" ").startswith(b"HTTP/1.1 408")


def test_a_body_that_hangs_is_cut_off_however_much_came(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "IDLE_SECONDS", 1.5)  # longer than it takes to send what comes
    said = b"POST /api/v1/sandboxes/box/events HTTP/1.1\r\n" + HOST + JSON + b"Content-Length: 9000000\r\n\r\n"
    with server.socket() as line:
        line.sendall(said + b" " * 8_000_000)
        assert line.recv(65536).startswith(b"HTTP/1.1 408")


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for a hundred thousand bytes of events, and not all of it for one."""
    small = limits.Lane(
        name="events", most_bytes=90_000, seconds=2 * PATIENCE, rate=3000, burst=6000, room=(100_000, 60_000)
    )
    monkeypatch.setattr(limits, "EVENTS", small)
    monkeypatch.setattr(limits, "LANES", (small, *limits.LANES[1:]))
    monkeypatch.setattr(limits, "IDLE_SECONDS", 2 * PATIENCE)  # what is held is held until the end
    monkeypatch.setattr(room, "WAIT_SECONDS", 0.2)


@pytest.mark.usefixtures("narrow")
def test_bodies_that_never_end_take_only_their_share(tmp_path: Path) -> None:
    path = "/api/v1/sandboxes/box/events"
    said = b"POST /api/v1/sandboxes/box/events HTTP/1.1\r\n" + HOST + JSON + b"Content-Length: 80000\r\n\r\n"
    with served(tmp_path) as one:
        _, token = one.token("operator")
        held = [one.socket(), one.socket()]
        for line in held:
            line.sendall(said + b" " * 50_000)
        # Of the two, one is too much already.
        answered, _, _ = select.select(held, [], [], PATIENCE)
        assert [line.recv(65536)[:12] for line in answered] == [b"HTTP/1.1 503"]
        large = batch("large", range(1, 151))
        assert len(json.dumps(large)) > 10_000
        answer = one.ask("POST", path, json_body=large)
        assert (answer.status, answer.headers["retry-after"]) == (503, "5")
        assert "too much is being sent" in answer.error
        packed = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
        assert one.ask("POST", path, body=gzip.compress(json.dumps(large).encode()), headers=packed).status == 503
        assert one.ask("POST", path, json_body=large, token=token).status == 200
        for line in held:
            line.close()
        assert one.ask("POST", path, json_body=batch("small", range(1, 151))).status == 200


def test_opening_streams_without_a_key_is_for_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seldom = limits.Lane(name="streams", most_bytes=4096, seconds=10, rate=0.01, burst=3)
    monkeypatch.setattr(guards, "LANES", tuple(seldom if lane is STREAMS else lane for lane in limits.LANES))
    with served(tmp_path) as one:
        _, token = one.token("viewer")
        opened = [one.ask("GET", "/api/v1/stream", reads=False) for _ in range(5)]
        assert [answer.status for answer in opened] == [200, 200, 200, 429, 429]
        # A crowd that is refused leaves no connections behind.
        assert opened[-1].headers["connection"] == "close"
        assert one.ask("GET", "/api/v1/runs").status == 200
        known = [one.ask("GET", "/api/v1/stream", reads=False, token=token) for _ in range(5)]
        assert {answer.status for answer in known} == {200}


def test_one_request_too_many_is_told_when_to_come_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = replace(LOGIN, rate=0.01, burst=10)
    monkeypatch.setattr(guards, "LANES", tuple(slow if lane is LOGIN else lane for lane in limits.LANES))
    with served(tmp_path) as one:
        answers = [one.ask("POST", "/login/x") for _ in range(15)]
    assert {answer.status for answer in answers} == {403, 429}
    assert all(int(answer.headers["retry-after"]) >= 1 for answer in answers if answer.status == 429)

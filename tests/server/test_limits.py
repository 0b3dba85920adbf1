"""How much anybody may send, how slowly, and how often."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from server.door_kit import Served, served, trickled
from untildone.server import limits
from untildone.server.access import neighbourhood
from untildone.server.limits import EVENTS, LOGIN, LOOKING, PARCELS, STEERING, Buckets, lane_of

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
    ],
)
def test_lanes(method: str, path: str, lane: limits.Lane) -> None:
    assert lane_of(method, path) is lane


def test_buckets_fill_up_again() -> None:
    now = [100.0]
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


def test_one_request_too_many_is_told_when_to_come_again(tmp_path: Path) -> None:
    with served(tmp_path) as one:
        answers = [one.ask("POST", "/login/x") for _ in range(130)]
    assert {answer.status for answer in answers} == {403, 429}
    assert int(answers[-1].headers["retry-after"]) >= 1

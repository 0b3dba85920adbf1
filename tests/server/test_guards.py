"""Before any route: for which name, from which page, and in what shape."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from server.door_kit import Served, served
from untildone.server import guards, limits
from untildone.server.guards import CONTENT_POLICY, HEADERS

EVENT = b'{"event_type": "agent.started", "event_data": {}, "source": "agent"}'


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("here")) as one:
        yield one


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("named"), names=("runs.example.org",)) as one:
        yield one


@pytest.fixture(scope="module")
def everywhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("everywhere"), host="0.0.0.0") as one:
        yield one


def status(answer: bytes) -> int:
    found = re.match(rb"HTTP/1\.1 (\d+)", answer)
    return int(found[1]) if found else 0


def get(server: Served, path: str, *headers: str) -> int:
    lines = [f"GET {path} HTTP/1.1", *headers, "Connection: close", "", ""]
    return status(server.raw("\r\n".join(lines).encode("latin-1")))


HOSTS = [
    ("127.0.0.1", 200, 401),
    ("127.0.0.1:8642", 200, 401),
    ("127.0.0.9", 200, 401),
    ("[::1]:80", 200, 401),
    ("LocalHost", 200, 401),
    ("localhost.", 200, 401),
    ("runs.example.org", 421, 421),
    ("RUNS.example.org:443", 421, 421),
    # A name whose owner points it here is how a page of theirs would read ours.
    ("evil.example", 421, 421),
    ("127.0.0.1.evil.example", 421, 421),
    ("localhost.evil.example", 421, 421),
    ("evil.example:8642", 421, 421),
    ("127.0.0.1.nip.io", 421, 421),
    ("0x7f.1", 421, 421),
    # An address is what somebody typed: on a server for the network, any.
    ("192.168.7.7:8642", 421, 401),
    ("[fe80::1]", 421, 401),
    ("127.0.0.1@evil.example", 400, 400),
    ("evil.example/127.0.0.1", 400, 400),
    ("127.0.0.1, evil.example", 400, 400),
    ("127.0.0.1:80:80", 400, 400),
    ("", 400, 400),
]


@pytest.mark.parametrize(("host", "here_says", "everywhere_says"), HOSTS, ids=[host or "none" for host, *_ in HOSTS])
def test_only_our_own_names(here: Served, everywhere: Served, host: str, here_says: int, everywhere_says: int) -> None:
    assert get(here, "/api/v1/runs", f"Host: {host}") == here_says
    assert get(everywhere, "/api/v1/runs", f"Host: {host}") == everywhere_says


@pytest.mark.parametrize(
    ("host", "expected"),
    # By a name it is reached through a proxy, which may ask for any of ours: then nobody is from here.
    [("runs.example.org", 401), ("RUNS.example.org:443", 401), ("127.0.0.1", 401), ("evil.example", 421)],
)
def test_a_server_with_a_name_of_its_own(named: Served, host: str, expected: int) -> None:
    assert get(named, "/api/v1/runs", f"Host: {host}") == expected


def test_one_host_and_not_two(here: Served) -> None:
    assert get(here, "/api/v1/runs") == 400
    assert get(here, "/api/v1/runs", "Host: 127.0.0.1", "Host: 127.0.0.1") == 400
    assert get(here, "/api/v1/runs", "Host: 127.0.0.1", "X-Forwarded-Host: evil.example") == 401
    # Whatever the request line names, the header decides, and it is ours.
    assert get(here, "http://evil.example/api/v1/runs", "Host: 127.0.0.1") in {200, 400}
    assert get(here, "http://127.0.0.1/api/v1/runs", "Host: evil.example") in {400, 421}


def test_a_supervisor_may_ask_by_any_address(here: Served) -> None:
    assert get(here, "/healthz", "Host: 10.0.0.7:8642") == 200


ORIGINS = [
    ("GET", "Sec-Fetch-Site: same-origin", 200),
    ("GET", "Sec-Fetch-Site: none", 200),
    ("GET", "Sec-Fetch-Site: cross-site", 403),
    ("GET", "Sec-Fetch-Site: same-site", 403),
    ("GET", "Origin: http://127.0.0.1:PORT", 200),
    ("GET", "Origin: http://127.0.0.1", 403),
    ("GET", "Origin: http://evil.example", 403),
    ("GET", "Origin: null", 403),
    ("GET", "Origin: file://", 403),
    ("GET", "Origin: http://[", 403),
    ("GET", "Referer: http://[x", 403),
    ("GET", "Origin: http://127.0.0.1:PORT.evil.example", 403),
    ("GET", "Origin: http://evil.example@127.0.0.1:PORT", 403),
    ("POST", "Origin: http://127.0.0.1:PORT", 200),
    ("POST", "Origin: http://evil.example", 403),
    ("POST", "Origin: null", 403),
    ("POST", "Origin: ", 403),
    ("POST", "Sec-Fetch-Site: cross-site", 403),
    ("POST", "Sec-Fetch-Site: same-site", 403),
    ("POST", "X-Nothing: said", 200),
]


@pytest.mark.parametrize(("method", "header", "expected"), ORIGINS, ids=[f"{m} {h}" for m, h, _ in ORIGINS])
def test_pages_of_others_may_not_ask(here: Served, method: str, header: str, expected: int) -> None:
    name, _, value = header.replace("PORT", str(here.port)).partition(": ")
    headers = {name: value, "Content-Type": "application/json"}
    path = "/api/v1/sandboxes/box/messages" if method == "GET" else "/api/v1/sandboxes/box/events"
    assert here.ask(method, path, headers=headers, body=EVENT if method == "POST" else None).status == expected


def test_a_stream_is_not_for_pages_of_others(here: Served) -> None:
    asked = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}
    assert here.ask("GET", "/api/v1/stream", headers=asked).status == 403
    assert here.ask("GET", "/api/v1/stream", headers={"Origin": "http://evil.example"}).status == 403


def test_a_link_to_a_page_may_be_followed_but_not_framed_nor_to_the_api(here: Served) -> None:
    follow = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert here.ask("GET", "/login/x", headers=follow).status == 200
    assert here.ask("GET", "/login/x", headers={**follow, "Sec-Fetch-Dest": "iframe"}).status == 403
    assert here.ask("POST", "/login/x", headers=follow).status == 403
    assert here.ask("GET", "/api/v1/runs", headers=follow).status == 403


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_what_a_form_can_send_is_no_event(here: Served, kind: str) -> None:
    answer = here.ask(
        "POST", "/api/v1/sandboxes/box/events", body=EVENT, headers={"Content-Type": kind} if kind else {}
    )
    assert answer.status == 415


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/v1/runs"),
        ("GET", "/login/x"),
        ("GET", "/nowhere"),
        ("POST", "/api/v1/sandboxes/box/messages"),
        ("GET", "/api/v1/stream"),
        ("DELETE", "/api/v1/runs"),
    ],
)
def test_every_answer_has_the_headers(here: Served, method: str, path: str) -> None:
    there = here.ask(method, path, reads=False).headers
    assert {name: there.get(name) for name in HEADERS} == HEADERS
    assert "server" not in there
    assert not any(name.startswith("access-control") for name in there)


def test_a_refusal_has_them_too(here: Served) -> None:
    answer = here.ask("GET", "/api/v1/runs", headers={"Host": "evil.example"})
    assert answer.status == 421
    assert answer.headers["content-security-policy"] == CONTENT_POLICY
    assert "--name evil.example" in answer.error


def test_a_preflight_gets_no_permission(here: Served) -> None:
    asked = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    answer = here.ask("OPTIONS", "/api/v1/sandboxes/box/events", headers=asked)
    assert answer.status == 403
    assert "access-control-allow-origin" not in answer.headers


PATHS = [
    "/api/v1/sandboxes/../runs",
    "/api/v1/sandboxes/%2e%2e/messages",
    "/api/v1/sandboxes/box/../other/messages",
    "/api/v1/sandboxes/box%2f..%2fother/messages",
    "/api/v1/sandboxes/box%5c/messages",
    "/api/v1/sandboxes/box%00/messages",
    "/api/v1/sandboxes/box%0d%0aX:y/messages",
    "/api/v1/sandboxes/box%2fother/messages",
    "//api/v1/sandboxes/box/messages",
    "/api/v1/sandboxes//messages",
    "/api/v1/sandboxes/box;x/messages",
    "/API/v1/sandboxes/box/messages",
    "/static/../../../etc/passwd",
    "/static/..%2f..%2f..%2fetc%2fpasswd",
    "/static/%2e%2e/%2e%2e/app.py",
    "*",
]


@pytest.mark.parametrize("path", PATHS)
def test_paths_with_tricks_lead_nowhere(everywhere: Served, path: str) -> None:
    _, secret = everywhere.token("worker", "box")
    assert get(everywhere, path, "Host: 127.0.0.1", f"Authorization: Bearer {secret}") in {400, 404, 422}


SMUGGLED = [
    "Content-Length: 5\r\nTransfer-Encoding: chunked",
    "Content-Length: 5\r\nContent-Length: 6",
    "Content-Length: +5",
    "Content-Length: 0x5",
    "Transfer-Encoding: chunked, identity",
    "Transfer-Encoding : chunked",
    "X-A: b\r\n folded: c",
    "X-A: b\x00c",
]


@pytest.mark.parametrize("headers", SMUGGLED, ids=[repr(one) for one in SMUGGLED])
def test_what_a_proxy_may_read_otherwise_is_refused_and_hung_up_on(here: Served, headers: str) -> None:
    second = "GET /api/v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    said = f"POST /api/v1/sandboxes/box/events HTTP/1.1\r\nHost: 127.0.0.1\r\n{headers}\r\n\r\n0\r\n\r\n{second}"
    answer = here.raw(said.encode("latin-1"))
    assert answer.count(b"HTTP/1.1 200") == 0
    assert status(answer) in {400, 0} or answer.count(b"HTTP/1.1") == 1


def test_nothing_here_speaks_websocket(here: Served) -> None:
    asked = ["Host: 127.0.0.1", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"]
    said = "\r\n".join(["GET /api/v1/stream HTTP/1.1", *asked, "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", "", ""])
    with here.socket() as line:
        line.sendall(said.encode())
        assert b"101 Switching" not in line.recv(65536)


def test_the_noise_of_others_keeps_nobody_out_who_has_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = {lane: replace(lane, rate=0.01, burst=10) for lane in (limits.STEERING, limits.LOGIN)}
    monkeypatch.setattr(guards, "LANES", tuple(slow.get(lane, lane) for lane in limits.LANES))
    stop = {"kind": "stop"}
    with served(tmp_path) as here:
        browser = here.log_in()
        assert 429 in [here.ask("POST", "/api/v1/runs/x/orders", json_body={}).status for _ in range(15)]
        assert 429 in [here.ask("GET", "/api/v1/runs", token="ud_wrong").status for _ in range(60)]
        _, fresh = here.token("operator")
        assert here.ask("POST", "/api/v1/runs/x/orders", json_body=stop, token=fresh).status == 404
        assert here.ask("POST", "/api/v1/runs/x/orders", json_body=stop, headers=browser).status == 404
        assert 429 in [here.ask("POST", "/login/once_no", headers=here.own()).status for _ in range(15)]
        assert here.log_in()


def test_a_page_of_another_site_does_not_empty_the_queue(here: Served) -> None:
    path, host = "/api/v1/sandboxes/box/messages", "Host: 127.0.0.1"
    assert get(here, path, host, "Referer: http://evil.example/") == 403
    assert get(here, path, host, "Referer: http://127.0.0.1/runs/x") == 200

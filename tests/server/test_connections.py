"""Nobody holds the server by being slow, by being large, or by being many."""

import select
import socket
from collections.abc import Iterator
from contextlib import suppress

import pytest

from patience import PATIENCE
from server.door_kit import Served, served, trickled, until
from server.sending_kit import event
from untildone.server import connections, event_stream
from untildone.server.connections import BoundedProtocol

HOST = b"Host: 127.0.0.1\r\n"
JSON = b"Content-Type: application/json\r\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One that looks ten times as often."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connections, "SWEEP_EVERY", 0.1)
        with served(tmp_path_factory.mktemp("server")) as one:
            yield one


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose patience is short."""
    monkeypatch.setattr(connections, "HEADER_SECONDS", 0.3)
    monkeypatch.setattr(connections, "STUCK_SECONDS", 0.3)
    monkeypatch.setattr(connections, "LINGER_SECONDS", 0.3)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize(
    "begun",
    [b"", b"GET / HTTP/1.1\r\nX-A: ", b"\r\n", b"GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n\r\n"],
    ids=["nothing", "half a header", "blank lines", "blank lines after a request"],
)
def test_headers_that_never_end_are_cut_off(server: Served, begun: bytes) -> None:
    byte = b"\r\n" if begun.endswith(b"\r\n") or not begun else b"a"
    with server.socket() as line:
        line.sendall(begun)
        assert trickled(line, byte).startswith(b"HTTP/1.1 200" if b"healthz" in begun else b"")


@pytest.mark.parametrize(
    "headers",
    [b"X-A: " + b"a" * 100_000, b"".join(b"X-%d: a\r\n" % n for n in range(300)), b"Cookie: " + b"a=b; " * 10_000],
    ids=["one large", "many", "cookies"],
)
def test_huge_headers_are_refused(server: Served, headers: bytes) -> None:
    said = b"GET /healthz HTTP/1.1\r\n" + HOST + headers + b"\r\n\r\n"
    with server.socket() as line:
        line.sendall(said)
        assert line.recv(65536).startswith(b"HTTP/1.1 431")


def test_a_header_without_an_end_is_refused_before_it_fills_the_memory(server: Served) -> None:
    with server.socket() as line:
        line.sendall(b"GET /" + b"a" * 40_000)
        assert line.recv(65536).startswith(b"HTTP/1.1 431")


@pytest.mark.usefixtures("hasty")
def test_a_client_that_does_not_read_is_dropped(server: Served) -> None:
    with socket.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.settimeout(PATIENCE)
        line.connect(("127.0.0.1", server.port))
        asked = b"GET /api/openapi.json HTTP/1.1\r\n" + HOST + b"\r\n"
        line.sendall(asked * 200)
        # Reading would be taking; the system tells of a cut line without it.
        watch = select.poll()
        watch.register(line, 0)
        assert [what & (select.POLLHUP | select.POLLERR) > 0 for _, what in watch.poll(PATIENCE * 1000)] == [True]


@pytest.mark.usefixtures("hasty")
def test_what_nobody_wants_is_not_taken_for_ever(server: Served) -> None:
    said = b"POST /api/v1/sandboxes/box/events HTTP/1.1\r\n" + HOST + JSON + b"Content-Length: 99999999999\r\n\r\n"
    with server.socket() as line:
        line.sendall(said)
        assert trickled(line, b" ").startswith(b"HTTP/1.1 413")


def test_whoever_comes_when_it_is_full_gets_the_place_of_the_oldest_without_a_key(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, token = server.token("viewer")
    ask = b"GET /api/v1/stream HTTP/1.1\r\n" + HOST
    with server.socket() as known:
        known.sendall(ask + f"Authorization: Bearer {token}\r\n\r\n".encode())
        assert known.recv(1000).startswith(b"HTTP/1.1 200")
        monkeypatch.setattr(connections, "MOST_CONNECTIONS", 20)
        crowd = [server.socket() for _ in range(40)]
        try:
            assert server.ask("GET", "/healthz").status == 200
            assert crowd[0].recv(1000) == b""
        except ConnectionResetError:
            pass
        finally:
            for line in crowd:
                line.close()
        watch = select.poll()
        watch.register(known, 0)
        assert watch.poll(0) == []


def test_with_keys_alone_there_are_only_so_many_connections(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "make_room", lambda _: False)
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 20)
    crowd = [server.socket() for _ in range(30)]
    try:
        assert crowd[-1].recv(1000).startswith(b"HTTP/1.1 503")
    finally:
        for line in crowd:
            line.close()


def test_one_key_does_not_keep_an_operator_out(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    (_, viewer), (_, operator) = server.token("viewer"), server.token("operator")
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 20)
    crowd = []
    try:
        for _ in range(40):
            crowd.append(asking(server, viewer))
            with suppress(ConnectionResetError):  # its place may be the one that was given away
                crowd[-1].recv(1000)
            # Without a key, one has a place as well: it is the crowd that gives way.
            assert server.ask("GET", "/healthz").status == 200
        answer = server.ask("POST", "/api/v1/runs/none/orders", json_body={"kind": "stop"}, token=operator)
        assert answer.status == 404
    finally:
        for line in crowd:
            line.close()


def test_of_a_key_that_has_too_many_the_youngest_go(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    _, token = server.token("viewer")
    monkeypatch.setattr(connections, "MOST_OF_ONE_KEY", 5)
    crowd = [watching(server, token) for _ in range(8)]
    try:
        watch = select.poll()
        for line in crowd:
            watch.register(line, 0)
        until(lambda: len(watch.poll(0)) == 3)
        gone = {number for number, _ in watch.poll(0)}
        # Those that came in the same moment are of one age.
        assert gone <= {line.fileno() for line in crowd[3:]}
    finally:
        for line in crowd:
            line.close()


def asking(server: Served, token: str) -> socket.socket:
    line = server.socket()
    line.sendall(b"GET /api/v1/stream HTTP/1.1\r\n" + HOST + f"Authorization: Bearer {token}\r\n\r\n".encode())
    return line


def watching(server: Served, token: str) -> socket.socket:
    line = asking(server, token)
    assert line.recv(1000).startswith(b"HTTP/1.1 200")
    return line


def test_answers_that_nobody_reads_have_a_bound_together(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MOST_UNREAD", 10_000_000)
    # None of them is found to be slow.
    monkeypatch.setattr(connections, "STUCK_SECONDS", 2 * PATIENCE)
    monkeypatch.setattr(event_stream, "SLOW_SECONDS", 2 * PATIENCE)
    for seq in range(1, 5):
        body = {"run_id": "unread", "events": [event(seq, event_data={"text": "z" * 3_000_000})]}
        assert server.ask("POST", "/api/v1/sandboxes/box/events", json_body=body).status == 200
    crowd = []
    watch = select.poll()
    try:
        for _ in range(4):
            line = socket.socket()
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            line.connect(("127.0.0.1", server.port))
            line.sendall(b"GET /api/v1/runs/unread/stream?after=0 HTTP/1.1\r\n" + HOST + b"\r\n")
            watch.register(line, 0)
            crowd.append(line)
        until(lambda: len(watch.poll(0)) >= 2)
        # The server may be in the middle of it.
        until(lambda: sum(BoundedProtocol.unread.values()) <= 10_000_000)
        assert server.ask("GET", "/api/v1/runs/unread/events?limit=1").status == 200
    finally:
        for line in crowd:
            line.close()
    until(lambda: not BoundedProtocol.unread)

"""HTTP with a real server that behaves badly in every way."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from patience import PATIENCE
from untildone import wiring
from untildone.errors import ForgeError
from untildone.forge import http
from untildone.forge.http import Answer, Http, retry_at

pytestmark = pytest.mark.anyio

Handle = Callable[[BaseHTTPRequestHandler], None]
TOKEN = "s3cr3t-t0ken"


@contextmanager
def serving(handle: Handle) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

        def do_GET(self) -> None:
            handle(self)

        def do_POST(self) -> None:
            handle(self)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def reply(request: BaseHTTPRequestHandler, status: int, body: bytes = b"{}", **headers: str) -> None:
    request.send_response(status)
    for name, value in {"Content-Length": str(len(body)), **headers}.items():
        request.send_header(name.replace("_", "-"), value)
    request.end_headers()
    request.wfile.write(body)


def client(url: str) -> Http:
    return Http(url, TOKEN, wiring.system_clock())


async def get(made: Http, path: str = "/x", method: str = "GET") -> Answer:
    async with made.talk() as talk:
        return await talk.ask(method, path, body={} if method == "POST" else None)


async def trouble(made: Http, method: str = "GET") -> ForgeError:
    with pytest.raises(ForgeError) as raised:
        await get(made, method=method)
    assert TOKEN not in f"{raised.value!r} {raised.value.__cause__!r}"
    assert "\n" not in str(raised.value)
    return raised.value


async def test_what_did_not_change_is_asked_for_by_its_mark() -> None:
    seen: list[str | None] = []

    def handle(request: BaseHTTPRequestHandler) -> None:
        seen.append(request.headers.get("If-None-Match"))
        if seen[-1]:
            reply(request, 304, b"")
        else:
            reply(request, 200, json.dumps({"a": 1}).encode(), ETag='"1"')

    with serving(handle) as url:
        made = client(url)
        assert (await get(made)).body == (await get(made)).body == {"a": 1}
    assert seen == [None, '"1"']


async def test_the_login_never_goes_to_another_host() -> None:
    logins: list[str | None] = []

    def store(request: BaseHTTPRequestHandler) -> None:
        logins.append(request.headers.get("Authorization"))
        reply(request, 200, b"early\n" + b"x" * http.TAIL + b"\nthe end")

    with serving(store) as elsewhere, serving(lambda request: reply(request, 302, b"", Location=elsewhere)) as url:
        error = await trouble(client(url))
        assert error.lasting
        assert logins == [], "an API's redirection to another host is not followed at all"
        async with client(url).talk() as talk:
            log = await talk.tail("/log")
        assert log is not None
        assert log.endswith("the end")
        assert len(log) <= http.TAIL
        assert logins == [None]


async def test_a_renamed_repository_is_followed_only_by_questions_and_on_the_same_host() -> None:
    def handle(request: BaseHTTPRequestHandler) -> None:
        if request.path == "/x":
            reply(request, 301, b"", Location="/repositories/1")
        else:
            reply(request, 200, b'{"renamed": true}')

    with serving(handle) as url:
        assert (await get(client(url))).body == {"renamed": True}
        assert "--repo" in str(await trouble(client(url), "POST"))


async def test_a_log_that_lies_in_the_clear_elsewhere_is_not_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    place = "http://logs.example.invalid/x"
    with serving(lambda request: reply(request, 302, b"", Location=place)) as url:
        async with client(url).talk() as talk:
            assert await talk.tail("/log") is None


async def test_an_answer_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "ANSWER_CAP", 1 << 20)
    with serving(lambda request: reply(request, 200, b"[" + b" " * (2 << 20) + b"]")) as url:
        error = await trouble(client(url))
        assert "more than 1 MB" in str(error)


async def test_no_answer_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "PATIENCE", 1.0)
    done = threading.Event()
    with serving(lambda _: (done.wait(PATIENCE), None)[1]) as url:
        error = await trouble(client(url))
        done.set()
    assert not error.lasting
    assert "in time" in str(error)


async def test_nobody_there() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        error = await trouble(client(f"http://127.0.0.1:{free.getsockname()[1]}"))
    assert not error.lasting
    assert "cannot be reached" in str(error)


@pytest.mark.parametrize("body", [b"<html>hello</html>", b"[" * 100_000])
async def test_an_answer_that_is_no_json(body: bytes) -> None:
    with serving(lambda request: reply(request, 200, body)) as url:
        assert not (await trouble(client(url))).lasting
    with serving(lambda request: reply(request, 502, body)) as url:
        assert (await get(client(url))).status == 502


def test_a_client_does_not_show_its_login() -> None:
    assert TOKEN not in repr(client("https://api.github.com"))


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"retry-after": "30"}, 1030.0),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "5000"}, 5000.0),
        ({"x-ratelimit-remaining": "7", "x-ratelimit-reset": "5000"}, None),
        ({"ratelimit-remaining": "0", "ratelimit-reset": "5000"}, 5000.0),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, None),
        ({"retry-after": "-5"}, None),
        ({}, None),
    ],
)
def test_when_a_limit_ends(headers: dict[str, str], expected: float | None) -> None:
    assert retry_at(Answer(403, headers), 1000.0) == expected


def test_graphql_of_an_enterprise_server_lies_beside_its_rest_api() -> None:
    assert client("https://ghe.example.com/api/v3").address("/graphql") == "https://ghe.example.com/api/graphql"
    assert client("https://api.github.com").address("/graphql") == "https://api.github.com/graphql"

"""A link that works once becomes a cookie that looks and a proof that steers."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from patience import PATIENCE
from server.door_kit import Reply, Served, served, until
from untildone.server import guards
from untildone.server.archive.port import Key, Scope
from untildone.server.keys import (
    LINK_SECONDS,
    SESSION_IDLE,
    Keyring,
    Links,
    cookie_of,
    hash_of,
    link_key,
    new_link,
    new_secret,
    session_key,
)

STEER = "/api/v1/sandboxes/box/messages"
MESSAGE = {"content": "hello"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("server"), names=("runs.example.org",)) as one:
        yield one


def steer(server: Served, headers: dict[str, str]) -> int:
    return server.ask("POST", STEER, json_body=MESSAGE, headers=headers).status


def link_in_database(server: Served, *, made_ago: float = 0.0, scope: Scope = "operator") -> str:
    code = new_link()
    key = link_key(scope, label="phone", now=server.context.clock.now() - made_ago)
    server.run(server.archive.keys.add(key, hash_of(code)))
    return code


def press(server: Served, code: str, headers: dict[str, str] | None = None) -> Reply:
    return server.ask("POST", f"/login/{code}", headers=headers if headers is not None else server.own())


def fresh_link(server: Served) -> str:
    async def make() -> str:
        return server.door.links.make()

    return str(server.run(make()))


def test_looking_at_a_link_does_not_use_it_up(server: Served) -> None:
    code = fresh_link(server)
    for _ in range(3):
        page = server.ask("GET", f"/login/{code}")
        assert page.status == 200
        assert b'<form method="post">' in page.body
        assert not page.cookies
        assert code.encode() not in page.body
    assert press(server, code).status == 200


@pytest.mark.parametrize("make", [fresh_link, link_in_database], ids=["of this server", "of the command"])
def test_a_link_logs_in_once(server: Served, make: object) -> None:
    assert callable(make)
    code = make(server)
    first, again = press(server, code), press(server, code)
    assert first.status == 200
    assert first.proof not in first.cookies[0]
    assert hash_of(first.proof).encode() not in first.body
    name, *attributes = [part.strip() for part in first.cookies[0].split(";")]
    assert name.startswith("untildone-0=")
    assert {"httponly", "path=/", "samesite=strict"} <= {attribute.lower() for attribute in attributes}
    assert not any(attribute.lower().startswith(("domain", "secure")) for attribute in attributes)
    assert again.status == 403
    assert not again.cookies


def test_only_one_of_many_at_the_same_moment_gets_in(server: Served) -> None:
    code, got = link_in_database(server), []
    crowd = [threading.Thread(target=lambda: got.append(press(server, code).status)) for _ in range(6)]
    for one in crowd:
        one.start()
    for one in crowd:
        one.join(PATIENCE)
    assert sorted(got) == [200, 403, 403, 403, 403, 403]


def test_a_link_is_good_for_ten_minutes(server: Served) -> None:
    assert press(server, link_in_database(server, made_ago=LINK_SECONDS - 60)).status == 200
    assert press(server, link_in_database(server, made_ago=LINK_SECONDS + 1)).status == 403
    now = [0.0]
    links = Links(ticks=lambda: now[0])
    early, late = links.make(), links.make()
    now[0] = LINK_SECONDS - 1
    assert links.spend(early)
    assert not links.spend(early)
    now[0] = LINK_SECONDS + 1
    assert not links.spend(late)


def test_the_link_of_a_server_that_died_is_worth_nothing(tmp_path: Path) -> None:
    with served(tmp_path) as first:
        code = fresh_link(first)
        session = first.log_in()
    with served(tmp_path) as second:
        assert press(second, code).status == 403
        # Whoever was logged in still is.
        assert steer(second, {**session, **second.own()}) == 200


def test_a_token_is_no_link_and_is_not_used_up_by_trying(server: Served) -> None:
    _, secret = server.token("operator")
    assert press(server, secret).status == 403
    assert server.ask("POST", STEER, json_body=MESSAGE, token=secret).status == 200


def test_a_page_of_another_site_cannot_log_anybody_in(server: Served) -> None:
    code = fresh_link(server)
    assert press(server, code, {"Origin": "http://evil.example"}).status == 403
    assert press(server, code, {"Origin": "null"}).status == 403
    assert press(server, code).status == 200


def without(headers: dict[str, str], name: str) -> dict[str, str]:
    return {given: value for given, value in headers.items() if given != name}


def test_a_session_steers_only_with_the_proof_of_its_own_login(server: Served) -> None:
    browser, other = server.log_in(), server.log_in()
    assert steer(server, browser) == 200
    cookie = browser["Cookie"].partition("=")[2]
    for shown in ("", "é", other["X-Untildone-Proof"], cookie, hash_of(cookie), cookie_of(cookie)):
        assert steer(server, {**browser, "X-Untildone-Proof": shown}) == 403
    assert steer(server, without(browser, "X-Untildone-Proof")) == 403
    assert steer(server, without(browser, "Cookie")) == 401
    for origin in (
        "http://evil.example",
        "null",
        f"http://127.0.0.1:{server.port + 1}",
        f"http://localhost:{server.port}",
    ):
        assert steer(server, {**browser, "Origin": origin}) == 403
    for site in ("cross-site", "same-site"):
        assert steer(server, {**browser, "Sec-Fetch-Site": site}) == 403


def test_the_proof_of_a_viewer_proves_a_viewer(server: Served) -> None:
    code = link_in_database(server, scope="viewer")
    answer = press(server, code)
    cookie = answer.cookies[0].partition(";")[0]
    browser = {**server.own(), "Cookie": cookie, "X-Untildone-Proof": answer.proof}
    assert server.ask("GET", "/api/v1/runs", headers=browser).status == 200
    refused = server.ask("POST", STEER, json_body=MESSAGE, headers=browser)
    assert (refused.status, "may look, not steer" in refused.error) == (403, True)


def test_a_page_whose_session_ended_is_told_how_to_log_in(server: Served) -> None:
    by_page = {**server.log_in(), "HX-Request": "true"}
    for gone, status in (("Cookie", 401), ("X-Untildone-Proof", 403)):
        answer = server.ask("POST", STEER, json_body=MESSAGE, headers=without(by_page, gone))
        assert answer.status == status
        assert "`untildone token login`" in answer.error
        assert "Bearer" not in answer.error
    by_program = server.ask("POST", STEER, json_body=MESSAGE)
    assert "Bearer" in by_program.error


def test_a_session_looks_without_it(server: Served) -> None:
    cookie = {"Cookie": server.log_in()["Cookie"]}
    assert server.ask("GET", "/api/v1/runs", headers={**cookie, "X-Forwarded-For": "10.0.0.7"}).status == 200
    assert server.ask("GET", "/api/v1/runs", headers={"X-Forwarded-For": "10.0.0.7"}).status == 401


def test_two_cookies_of_the_name_are_none_unless_the_proof_tells_which(server: Served) -> None:
    browser = server.log_in()
    doubled = {**browser, "Cookie": f"{browser['Cookie']}; {browser['Cookie'].partition('=')[0]}=x"}
    assert steer(server, without(doubled, "X-Untildone-Proof")) == 401
    # Whoever sets a second one keeps nobody from steering.
    assert steer(server, doubled) == 200


def test_over_https_the_cookie_is_bound_to_the_host(server: Served) -> None:
    by_proxy = {"Host": "runs.example.org", "X-Forwarded-Proto": "https", "X-Forwarded-For": "10.0.0.7"}
    own = {**by_proxy, "Origin": "https://runs.example.org"}
    answer = press(server, fresh_link(server), own)
    assert answer.status == 200
    assert answer.cookies[0].startswith("__Host-untildone=")
    assert "; secure" in answer.cookies[0].lower()
    secret = answer.cookies[0].partition(";")[0].partition("=")[2]
    proof = {"X-Untildone-Proof": answer.proof}
    assert steer(server, {**own, **proof, "Cookie": f"__Host-untildone={secret}"}) == 200
    # A sibling domain can set any cookie but that one.
    assert steer(server, {**own, **proof, "Cookie": f"untildone-0={secret}"}) == 401
    # And a page that came over plain http is not ours.
    plain = {**own, **proof, "Origin": "http://runs.example.org", "Cookie": f"__Host-untildone={secret}"}
    assert steer(server, plain) == 403


def test_logging_out_ends_the_session_in_the_database_too(server: Served) -> None:
    browser = server.log_in()
    assert server.ask("POST", "/logout", headers=without(browser, "X-Untildone-Proof")).status == 303
    # Whoever has no more than the cookie ends nobody's session.
    assert steer(server, browser) == 200
    answer = server.ask("POST", "/logout", headers=browser)
    assert answer.status == 303
    assert "max-age=0" in answer.cookies[0].lower()
    assert steer(server, browser) == 401
    by_script = server.ask("POST", "/logout", headers={**server.log_in(), "HX-Request": "true"})
    assert (by_script.status, by_script.headers["hx-redirect"]) == (200, "/")


def test_whoever_revokes_a_session_ends_it(server: Served) -> None:
    browser = server.log_in()
    assert steer(server, browser) == 200
    newest, *_ = server.run(server.archive.keys.sessions())
    assert server.run(server.archive.keys.revoke(newest.key_id))
    until(lambda: steer(server, browser) == 401)


def test_an_open_stream_ends_when_its_key_does(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards, "RECHECK", 0.5)
    key, secret = server.token("viewer")
    with server.socket() as line:
        line.sendall(
            f"GET /api/v1/stream HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {secret}\r\n\r\n".encode()
        )
        assert line.recv(65536).startswith(b"HTTP/1.1 200")
        server.run(server.archive.keys.revoke(key.key_id))
        heard = b""
        while not heard.endswith(b"0\r\n\r\n"):
            piece = line.recv(65536)
            assert piece, heard
            heard += piece


def test_whoever_waits_for_an_order_gets_none_with_a_revoked_token(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guards, "RECHECK", 0.0)
    key, secret = server.token("worker", "waiting")
    event = {"event_type": "agent.message", "event_data": {}, "seq": 1, "at": 1.0, "kind": "trace"}
    batch = {"run_id": "r1", "events": [event]}
    _, other = server.token("worker", "waiting")
    assert server.ask("POST", "/api/v1/sandboxes/waiting/events", json_body=batch, token=other).status == 200
    path = "/api/v1/sandboxes/waiting/runs/r1/orders?wait=50"
    answers: list[Reply] = []
    waits = threading.Thread(target=lambda: answers.append(server.ask("GET", path, token=secret)))
    waits.start()
    until(
        lambda: any(one.key_id == key.key_id and one.last_used_at for one in server.run(server.archive.keys.tokens()))
    )
    until(lambda: server.context.fanout.followers > 0)
    server.run(server.archive.keys.revoke(key.key_id))
    until(lambda: server.ask("GET", "/api/v1/sandboxes/waiting/runs/r1", token=secret).status == 401)
    server.run(server.archive.orders.give("r1", "pause", {}, by="me", now=1.0))
    server.loop.call_soon_threadsafe(server.context.fanout.ordered, "r1")
    waits.join(PATIENCE)
    assert [answer.status for answer in answers] == [401]


class _Ring:
    """Keys that are asked, and how often."""

    def __init__(self, key: Key) -> None:
        self.key = key
        self.asked = 0
        self.noted: list[float] = []

    async def find(self, secret_hash: str, *, now: float) -> Key | None:
        self.asked += 1
        return self.key

    async def used(self, key_id: str, *, now: float) -> None:
        self.noted.append(now)


@pytest.mark.anyio
async def test_a_session_slides_and_ends_when_nobody_comes() -> None:
    class Clock:
        at = 1000.0

        def now(self) -> float:
            return self.at

        async def sleep(self, seconds: float) -> None:
            raise AssertionError

    clock = Clock()
    ring = _Ring(session_key("operator", label="", parent_id=None, now=clock.at))
    keyring = Keyring(ring, clock, ticks=clock.now)  # type: ignore[arg-type] -- only what is asked of it
    secret_hash = hash_of(new_secret())
    assert await keyring.session(secret_hash)
    assert await keyring.session(secret_hash)
    assert (ring.asked, ring.noted) == (1, [1000.0])
    clock.at += 2
    assert await keyring.session(secret_hash)
    assert (ring.asked, ring.noted) == (2, [1000.0])
    clock.at += SESSION_IDLE
    assert await keyring.session(secret_hash) is None


def test_a_person_without_a_login_is_told_how_to_get_one(tmp_path: Path) -> None:
    with served(tmp_path, host="0.0.0.0") as one:
        page = one.ask("GET", "/", headers={"Accept": "text/html"})
        assert page.status == 401
        assert b"untildone token login" in page.body
        assert one.ask("GET", "/api/v1/runs", headers={"Accept": "text/html"}).error.startswith("this needs a token")

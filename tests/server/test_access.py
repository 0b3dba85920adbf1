"""Who may do what: every route, by everybody, on a server for this machine and on one for the network."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute, Mount

from server.door_kit import Reply, Served, served, until
from untildone.server.app import make_app
from untildone.server.keys import hash_of, new_secret, new_token, session_key
from untildone.server.limits import Buckets

OPEN = {
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("GET", "/login/{code}"),
    ("POST", "/login/{code}"),
    ("GET", "/static/{name:path}"),
    ("GET", "/favicon.ico"),
}
WORKER = "/api/v1/sandboxes/{sandbox_id}"
OF_OPERATORS = {
    ("POST", "/api/v1/sandboxes/{sandbox_id}/messages"),
    ("GET", "/api/v1/runs/{run_id}/parcels"),
    ("GET", "/api/v1/runs/{run_id}/parcels/{name:path}"),
    ("GET", "/api/v1/runs/{run_id}/transcripts"),
    ("GET", "/api/v1/runs/{run_id}/transcripts/{session_id}"),
}
ANYBODY_WHO_LOOKS = {("POST", "/logout")}
WHO = ("nobody", "viewer", "operator", "worker", "other worker", "browser", "cookie alone", "revoked", "made up")
LET_IN = {
    "open": set(WHO),
    "viewer": {"viewer", "operator", "browser", "cookie alone"},
    "operator": {"operator", "browser"},
    "worker": {"operator", "worker", "browser"},
}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("here")) as one:
        yield patient(one)


@pytest.fixture(scope="module")
def everywhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("everywhere"), host="0.0.0.0") as one:
        yield patient(one)


def patient(one: Served) -> Served:
    """Tables try more bad tokens than anybody may."""
    one.context.door = replace(one.door, failures=Buckets(1e6, 1e6))
    return one


def routes(one: Served) -> list[tuple[str, str]]:
    """Every route there is, whoever wrote it."""

    def flat(found: Iterable[BaseRoute]) -> Iterator[tuple[str, str]]:
        for route in found:
            if isinstance(route, APIRoute):
                yield from ((method, route.path) for method in sorted(route.methods or ()))
            elif hasattr(route, "original_router"):
                yield from flat(route.original_router.routes)
            else:
                assert isinstance(route, Mount) or getattr(route, "path", "") == "/api/openapi.json", route

    app = make_app(replace(one.context, door=None))
    return list(flat(app.routes))


def kind_of(method: str, path: str) -> str:
    """What a route needs, said without looking at it: what nobody thought of and changes things needs an operator."""
    if (method, path) in OPEN:
        return "open"
    if (method, path) in OF_OPERATORS:
        return "operator"
    if path.startswith(WORKER):
        return "worker"
    return "viewer" if method in {"GET", "HEAD"} or (method, path) in ANYBODY_WHO_LOOKS else "operator"


def concrete(path: str) -> str:
    path = path.replace("{sandbox_id}", "box").replace("{seq}", "1").replace("{number}", "1")
    return re.sub(r"\{[^}]*\}", "x1", path)


def credentials(one: Served) -> dict[str, dict[str, str]]:
    def bearer(secret: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {secret}"}

    gone, gone_secret = one.token("operator")
    assert one.run(one.archive.keys.revoke(gone.key_id))
    return {
        "nobody": {},
        "viewer": bearer(one.token("viewer")[1]),
        "operator": bearer(one.token("operator")[1]),
        "worker": bearer(one.token("worker", "box")[1]),
        "other worker": bearer(one.token("worker", "other")[1]),
        "browser": one.log_in(),
        "cookie alone": {name: value for name, value in one.log_in().items() if name != "X-Untildone-Proof"},
        "revoked": bearer(gone_secret),
        "made up": bearer(new_token()),
    }


def is_let_in(reply: Reply) -> bool:
    assert reply.status != 429
    return reply.status not in {401, 403}


def tried(one: Served, expected: dict[str, set[str]]) -> list[str]:
    """Every route by everybody: where it did not go as expected."""
    wrong, seen, there = [], 0, routes(one)
    for who, headers in credentials(one).items():
        for method, path in there:
            if path in {"/logout", "/login/{code}"} and method == "POST":
                continue  # they end the session that is tried with
            seen += 1
            reply = one.ask(method, concrete(path), headers=headers, json_body={}, reads=False)
            if is_let_in(reply) != (who in expected[kind_of(method, path)]):
                wrong.append(f"{who}: {method} {path} -> {reply.status} {reply.body[:100]!r}")
    assert seen > 100
    return wrong


def test_bound_elsewhere_everything_needs_a_token(everywhere: Served) -> None:
    assert tried(everywhere, LET_IN) == []


def test_bound_elsewhere_what_no_route_closes_is_closed(everywhere: Served) -> None:
    for path in ("/api/openapi.json", "/no/such/page", "/api/v1/nothing"):
        assert everywhere.ask("GET", path).status == 401
    _, secret = everywhere.token("viewer")
    assert everywhere.ask("GET", "/api/openapi.json", token=secret).status == 200


def test_no_body_is_read_of_anybody_unknown(everywhere: Served) -> None:
    said = b"POST /api/v1/runs/r/orders HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    with everywhere.socket() as line:
        line.sendall(said + b"Content-Length: 1000\r\n\r\n{")
        assert line.recv(65536).startswith(b"HTTP/1.1 401")


def test_on_this_machine_looking_needs_nothing_but_what_is_shown_must_be_valid(here: Served) -> None:
    # The worker's sandbox has a token, so that it takes one to speak for it.
    expected = {**LET_IN, "viewer": {*LET_IN["viewer"], "nobody"}}
    assert tried(here, expected) == []


def test_on_this_machine_a_sandbox_without_a_token_is_open_until_one_is_made(here: Served) -> None:
    event = {"event_type": "agent.started", "event_data": {}, "source": "agent"}
    assert here.ask("POST", "/api/v1/sandboxes/free/events", json_body=event).status == 200
    assert here.ask("GET", "/api/v1/sandboxes/free/messages").status == 200
    key, secret = here.token("worker", "free")
    until(lambda: here.ask("GET", "/api/v1/sandboxes/free/messages").status == 401)
    assert here.ask("GET", "/api/v1/sandboxes/free/messages", token=secret).status == 200
    # Revoking the token does not open it again.
    here.run(here.archive.keys.revoke(key.key_id))
    until(lambda: here.ask("GET", "/api/v1/sandboxes/free/messages", token=secret).status == 401)
    assert here.ask("GET", "/api/v1/sandboxes/free/messages").status == 401


@pytest.mark.parametrize(
    "header", ["X-Forwarded-For: 10.0.0.1", "Forwarded: for=1.2.3.4", "Via: 1.1 proxy", "X-Real-IP: 127.0.0.1"]
)
def test_behind_a_proxy_nobody_is_from_here(here: Served, header: str) -> None:
    name, _, value = header.partition(": ")
    assert here.ask("GET", "/api/v1/runs", headers={name: value}).status == 401
    assert here.ask("GET", "/api/v1/sandboxes/open/messages", headers={name: value}).status == 401


@pytest.mark.parametrize("settings", [{"closed": True}, {"names": ("runs.example.org",)}], ids=["closed", "named"])
def test_where_something_may_lead_here_nobody_is_from_here(tmp_path: Path, settings: dict[str, Any]) -> None:
    """A proxy or a tunnel that does not tell asks like any program of this machine."""
    with served(tmp_path, **settings) as one:
        for path in ("/", "/api/v1/runs", "/metrics", "/api/v1/sandboxes/open/messages"):
            assert one.ask("GET", path).status == 401
        assert one.ask("GET", "/healthz").status == 200
        assert one.ask("GET", "/api/v1/runs", token=one.token("viewer")[1]).status == 200


def test_a_forwarded_address_makes_nobody_local(everywhere: Served) -> None:
    for name in ("X-Forwarded-For", "X-Real-IP", "X-Forwarded-Host", "Forwarded"):
        assert everywhere.ask("GET", "/api/v1/runs", headers={name: "127.0.0.1"}).status == 401


@pytest.mark.parametrize("path", ["/events", "/messages", "/runs/r", "/runs/r/orders", "/runs/r/parcels/notes"])
def test_a_token_of_one_sandbox_opens_no_other(everywhere: Served, path: str) -> None:
    _, secret = everywhere.token("worker", "mine")
    method = "POST" if path == "/events" else "GET"
    body = {"event_type": "agent.started", "event_data": {}, "source": "agent"} if method == "POST" else None
    own = everywhere.ask(method, f"/api/v1/sandboxes/mine{path}", token=secret, json_body=body)
    assert own.status in {200, 404}
    for other in ("theirs", "Mine", "mine.", "mine%20", "min", "mine%0a"):
        answer = everywhere.ask(method, f"/api/v1/sandboxes/{other}{path}", token=secret, json_body=body)
        assert answer.status in {400, 403, 422}, other


def test_a_run_of_another_sandbox_stays_closed_to_a_worker(everywhere: Served) -> None:
    _, mine = everywhere.token("worker", "mine")
    _, theirs = everywhere.token("worker", "theirs")
    batch = {"run_id": "run-of-theirs", "events": [{"event_type": "a.b", "event_data": {}, "seq": 1, "at": 1.0}]}
    assert everywhere.ask("POST", "/api/v1/sandboxes/theirs/events", token=theirs, json_body=batch).status == 200
    base = "/api/v1/sandboxes/mine/runs/run-of-theirs"
    assert everywhere.ask("POST", "/api/v1/sandboxes/mine/events", token=mine, json_body=batch).status == 403
    assert everywhere.ask("GET", base, token=mine).status == 403
    assert everywhere.ask("GET", f"{base}/orders", token=mine).status == 403
    assert everywhere.ask("GET", f"{base}/parcels/notes", token=mine).status == 403
    assert everywhere.ask("PUT", f"{base}/parcels/notes?seq=1", token=mine, body=b"x").status in {403, 415}
    assert everywhere.ask("POST", f"{base}/take", token=mine, json_body={"tenure": 0}).status == 403


def test_a_token_is_valid_in_its_own_place_only(everywhere: Served) -> None:
    session, link = new_secret(), f"once_{new_secret()}"
    now = everywhere.context.clock.now()
    everywhere.run(
        everywhere.archive.keys.add(session_key("operator", label="", parent_id=None, now=now), hash_of(session))
    )
    _, token = everywhere.token("operator")
    assert everywhere.ask("GET", "/api/v1/runs", token=session).status == 401
    assert everywhere.ask("GET", "/api/v1/runs", token=link).status == 401
    cookie = {"Cookie": f"untildone-0={token}"}
    assert everywhere.ask("GET", "/api/v1/runs", headers=cookie).status == 401
    assert everywhere.ask("GET", "/api/v1/runs", headers={"Cookie": f"untildone-0={session}"}).status == 200


@pytest.mark.parametrize("said", ["Basic dXNlcjpwdw==", "Bearer", "Bearer x", "bearer ud_", "Token ud_x", "ud_x", ""])
def test_what_is_no_token_is_refused_even_where_nothing_is_needed(here: Served, said: str) -> None:
    answer = here.ask("GET", "/api/v1/runs", headers={"Authorization": said})
    assert answer.status == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert "token" in answer.error


def test_two_tokens_at_once_are_none(everywhere: Served) -> None:
    _, secret = everywhere.token("viewer")
    said = f"GET /api/v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nAuthorization: Bearer {secret}\r\n"
    assert everywhere.raw(f"{said}\r\n".encode()).startswith(b"HTTP/1.1 200")
    assert everywhere.raw(f"{said}Authorization: Bearer {secret}\r\n\r\n".encode()).startswith(b"HTTP/1.1 401")


def test_an_expired_token_fails(everywhere: Served) -> None:
    _, secret = everywhere.token("viewer", lasts=-1.0)
    assert everywhere.ask("GET", "/api/v1/runs", token=secret).status == 401


def test_use_is_noted(everywhere: Served) -> None:
    key, secret = everywhere.token("viewer")
    assert everywhere.ask("GET", "/api/v1/runs", token=secret).status == 200
    found = {one.key_id: one for one in everywhere.run(everywhere.archive.keys.tokens())}
    assert found[key.key_id].last_used_at is not None


def test_guessing_is_slowed_down_and_those_who_know_are_not(tmp_path: Path) -> None:
    with served(tmp_path, host="0.0.0.0") as one:
        _, secret = one.token("viewer")
        assert one.ask("GET", "/api/v1/runs", token=secret).status == 200
        answers = [one.ask("GET", "/api/v1/runs", token=new_token()) for _ in range(40)]
        assert {answer.status for answer in answers} == {401, 429}
        assert int(answers[-1].headers["retry-after"]) >= 1
        assert one.ask("GET", "/api/v1/runs", token=secret).status == 200

"""A real browser that is logged in here, and a page of somebody else that tries everything a page can."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from playwright.sync_api import Browser, BrowserContext, Page

from server.browser.conftest import PATIENCE
from server.door_kit import Served, served
from untildone.server.archive.port import EventFilter, published_run
from untildone.server.keys import cookie_of, hash_of

ATTACK = """<!doctype html><title>trying</title><body><script>
const there = "http://127.0.0.1:PORT", tried = {};
const event = JSON.stringify({event_type: "agent.started", event_data: {by: "evil"}, source: "agent"});
const ask = (name, path, options) => fetch(there + path, {credentials: "include", ...options})
  .then(async (answer) => { tried[name] = answer.type === "opaque" ? "opaque" : await answer.text(); })
  .catch((error) => { tried[name] = "refused"; });
const stream = new Promise((done) => {
  const source = new EventSource(there + "/api/v1/stream", {withCredentials: true});
  source.onopen = () => { tried.stream = "open"; source.close(); done(); };
  source.onerror = () => { tried.stream = "refused"; source.close(); done(); };
});
const image = new Promise((done) => {
  const img = new Image();
  img.onload = img.onerror = done;
  img.src = there + "/api/v1/sandboxes/victim/messages?image";
});
const framed = document.createElement("iframe");
framed.src = there + "/";
document.body.append(framed);
const form = document.createElement("form");
form.method = "post"; form.action = there + "/logout"; form.target = "away";
const away = document.createElement("iframe"); away.name = "away";
document.body.append(away, form);
form.submit();
Promise.all([
  ask("plain", "/api/v1/sandboxes/victim/events", {method: "POST", mode: "no-cors", body: event}),
  ask("json", "/api/v1/sandboxes/victim/events",
      {method: "POST", body: event, headers: {"Content-Type": "application/json"}}),
  ask("read", "/api/v1/runs", {}),
  ask("page", "/", {}),
  ask("messages", "/api/v1/sandboxes/victim/messages", {mode: "no-cors"}),
  ask("steer", "/api/v1/sandboxes/victim/messages",
      {method: "POST", mode: "no-cors", body: JSON.stringify({content: "evil"})}),
  stream, image,
]).then(() => setTimeout(() => { document.title = JSON.stringify(tried); }, 500));
</script>"""

STEALING = """<!doctype html><title>trying</title><body><script>
const there = "http://127.0.0.1:PORT", tried = {kept: localStorage.getItem("untildone-proof")};
const read = (name, look) => { try { tried[name] = look() || "refused"; } catch { tried[name] = "refused"; } };
const opened = window.open(there + "/");
const framed = document.createElement("iframe");
framed.src = there + "/";
document.body.append(framed);
fetch(there + "/api/v1/sandboxes/victim/messages", {method: "POST", credentials: "include",
  headers: {"X-Untildone-Proof": "x", "Content-Type": "application/json"}, body: '{"content": "evil"}'})
  .then((answer) => { tried.header = answer.status; }, () => { tried.header = "refused"; })
  .then(() => setTimeout(() => {
    read("opened", () => opened && opened.localStorage.getItem("untildone-proof"));
    read("framed", () => framed.contentWindow.localStorage.getItem("untildone-proof"));
    document.title = JSON.stringify(tried);
  }, 500));
</script>"""
STEERING = """() => fetch("/api/v1/sandboxes/victim/messages", {method: "POST", body: '{"content": "mine"}', headers:
  {"Content-Type": "application/json", "X-Untildone-Proof": localStorage.getItem("untildone-proof")}})
  .then((answer) => answer.status)"""


@contextmanager
def page_of_somebody_else(port: int, attack: str = ATTACK, cookies: list[str] | None = None) -> Iterator[int]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if cookies is not None:
                cookies.append(self.headers.get("Cookie", ""))
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(attack.replace("PORT", str(port)).encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("server")) as one:
        yield one


@pytest.fixture(scope="module")
def visitor(browser: Browser, server: Served) -> Iterator[BrowserContext]:
    """A browser that is logged in here."""
    context = browser.new_context()
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    page.goto(f"http://127.0.0.1:{server.port}/login/{server.run(make_link(server))}")
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url(f"http://127.0.0.1:{server.port}/")
    page.close()
    yield context
    context.close()


async def make_link(server: Served) -> str:
    return server.door.links.make()


def is_logged_in(page: Page, server: Served) -> bool:
    page.goto(f"http://127.0.0.1:{server.port}/")
    return page.locator(".who").inner_text() == "operator"


@pytest.mark.parametrize("name", ["127.0.0.1", pytest.param("www.evil.example", marks=pytest.mark.soak)])
def test_a_page_of_somebody_else_gets_nothing_done(server: Served, visitor: BrowserContext, name: str) -> None:
    server.run(server.archive.orders.put("victim", "for the worker alone", "user_message", now=1.0))
    page = visitor.new_page()
    assert is_logged_in(page, server)
    with page_of_somebody_else(server.port) as port:
        # On this machine another port is the same site: cookies travel, so that only the origin tells it apart.
        page.goto(f"http://{name}:{port}/")
        page.wait_for_function("document.title.startsWith('{')", timeout=PATIENCE)
        tried = json.loads(page.title())
    assert set(tried) == {"plain", "json", "read", "page", "messages", "steer", "stream"}
    assert {tried[name] for name in ("json", "read", "page", "stream")} == {"refused"}
    assert server.run(server.archive.events.read(published_run("victim"), EventFilter())) == []
    kept = server.run(server.archive.orders.take("victim"))
    assert [message.content for message in kept] == ["for the worker alone"]
    assert is_logged_in(page, server)
    page.close()


def test_whoever_gets_the_cookie_on_another_port_cannot_steer(server: Served, visitor: BrowserContext) -> None:
    page, got = visitor.new_page(), list[str]()
    assert is_logged_in(page, server)
    proof = page.evaluate("localStorage.getItem('untildone-proof')")
    with page_of_somebody_else(server.port, STEALING, got) as port:
        page.goto(f"http://127.0.0.1:{port}/")
        page.wait_for_function("document.title.startsWith('{')", timeout=PATIENCE)
        tried = json.loads(page.title())
    assert tried == {"kept": None, "header": "refused", "opened": "refused", "framed": "refused"}
    assert proof not in "".join(got)
    # A cookie knows no port: it was there. Its bearer is no browser, and says whatever helps.
    stolen = {**server.own(), "Cookie": next(cookie for cookie in got if cookie)}
    value = stolen["Cookie"].partition("=")[2]
    pages = [server.ask("GET", path, headers=stolen) for path in ("/", "/search", "/login/once_x", "/api/v1/runs")]
    assert [answer.status for answer in pages] == [200] * 4
    assert not any(proof.encode() in answer.body for answer in pages)
    guesses = [{}, *({"X-Untildone-Proof": guess} for guess in ("", value, cookie_of(value), hash_of(value)))]
    guesses += [{"X-CSRF-Token": value}, {"Authorization": f"Bearer {value}"}, {"Authorization": f"Bearer ud_{value}"}]
    for guess in guesses:
        for path in ("/api/v1/sandboxes/victim/messages", "/api/v1/runs/r/orders", "/runs/r/steer", "/api/v1/runs"):
            assert server.ask("POST", path, json_body={"content": "evil"}, headers={**stolen, **guess}).status in {
                401,
                403,
            }
    assert server.ask("POST", f"/login/{value}", headers=stolen).status == 403
    assert server.ask("POST", "/logout", headers=stolen).status == 303
    assert server.run(server.archive.orders.take("victim")) == []
    # Whoever logged in still steers.
    assert is_logged_in(page, server)
    assert page.evaluate(STEERING) == 200
    assert [one.content for one in server.run(server.archive.orders.take("victim"))] == ["mine"]
    page.close()


def test_a_name_that_is_pointed_here_leads_nowhere(server: Served, visitor: BrowserContext) -> None:
    page = visitor.new_page()
    answer = page.goto(f"http://rebound.evil.example:{server.port}/api/v1/runs")
    assert answer is not None
    assert answer.status == 421
    page.close()


def test_the_dashboard_breaks_no_rule_of_its_own_policy(server: Served, visitor: BrowserContext) -> None:
    page = visitor.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    assert is_logged_in(page, server)
    page.goto(f"http://127.0.0.1:{server.port}/login/once_x")
    page.get_by_role("button", name="Log in").click()
    page.get_by_text("does not work any more").wait_for(timeout=PATIENCE)
    assert [line for line in said if "Content Security Policy" in line] == []
    page.close()

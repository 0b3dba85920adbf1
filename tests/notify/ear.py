"""A real HTTP server on loopback that hears notes and answers as it is told."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from patience import PATIENCE
from untildone.core.notice import Note

NOTE = Note(
    kind="stopped",
    run_id="run1",
    name="it",
    title="it: stopped: reached the limit of cost",
    body="Go on, später.",
    facts={"reason": "max_cost_reached", "exit_code": 3},
    id="run1-7",
    at=1_000_000.5,
)


@dataclass
class Ear:
    answers: list[int] = field(default_factory=list)
    """Status codes in order; then 204."""
    location: str = ""
    silent: bool = False
    """Takes the request and never answers."""
    heard: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    methods: list[str] = field(default_factory=list)
    let_go: threading.Event = field(default_factory=threading.Event)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook/s3cret?token=t0ken"


@contextmanager
def listening(**how: Any) -> Iterator[Ear]:
    ear = Ear(**how)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            text = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            ear.methods.append(self.command)
            ear.paths.append(self.path)
            ear.headers.append(dict(self.headers))
            if text:
                ear.heard.append(json.loads(text))
            if ear.silent:
                ear.let_go.wait(PATIENCE)
                return
            self.send_response(ear.answers.pop(0) if ear.answers else 204)
            if ear.location:
                self.send_header("Location", ear.location)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_POST  # noqa: N815 -- the name http.server looks for

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    ear.port = server.server_address[1]
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    serving.start()
    try:
        yield ear
    finally:
        ear.let_go.set()
        server.shutdown()
        server.server_close()
        serving.join(PATIENCE)

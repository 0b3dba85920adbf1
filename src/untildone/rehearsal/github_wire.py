"""HTTP of the scripted GitHub: JSON in and out, marks for what did not change, and a store of logs on a second port."""

import hashlib
import json
import socketserver
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from untildone.core.dataclass import dataclass

HOST = "127.0.0.1"
_OK, _FOUND, _NOT_MODIFIED = 200, 302, 304
_BODY_CAP = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer."""

    status: int
    body: Any = None
    """JSON, or bytes as they are; None: nothing."""
    headers: Mapping[str, str] = field(default_factory=dict)


Answerer = Callable[[str, str, Mapping[str, str], str, Any], Reply]
"""Method, path, query, Authorization header and decoded body to an answer."""


Route = tuple[str, str, Callable[[list[str], Mapping[str, str], Any], Reply]]
"""Method, pattern of the path below the repository, and who answers: with what the pattern caught, query and body."""


def page(found: Sequence[Any], query: Mapping[str, str]) -> Reply:
    """One page of a list."""
    size, number = int(query.get("per_page", "30")), int(query.get("page", "1"))
    return Reply(_OK, list(found[(number - 1) * size : number * size]))


class Server:
    """Two listeners: the API, and the place where logs lie."""

    def __init__(self, answer: Answerer, port: int) -> None:
        self._logs: dict[str, str] = {}
        self.strangers: list[str] = []
        """Authorization headers that came to the store of logs: nobody should send one."""
        self._listeners = [_Listener(answer, port), _Listener(self._stored, 0)]
        self._threads = [
            threading.Thread(target=one.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
            for one in self._listeners
        ]
        self.url, self._store = (f"http://{HOST}:{one.server_address[1]}" for one in self._listeners)

    @property
    def unchanged(self) -> int:
        """How many questions were answered with nothing new."""
        return self._listeners[0].unchanged

    def start(self) -> None:
        """Begin to answer."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stop answering."""
        for listener, thread in zip(self._listeners, self._threads, strict=True):
            if thread.is_alive():
                listener.shutdown()
                thread.join()
            listener.server_close()

    def elsewhere(self, text: str) -> Reply:
        """The way to a text that lies in the store."""
        key = uuid.uuid4().hex
        self._logs[key] = text
        return Reply(_FOUND, None, {"Location": f"{self._store}/{key}"})

    def _stored(self, _: str, path: str, __: Mapping[str, str], login: str, ___: Any) -> Reply:
        if login:
            self.strangers.append(login)
        return Reply(_OK, self._logs.get(path.lstrip("/"), "").encode())


class _Listener(socketserver.ThreadingTCPServer):
    """Plain TCP instead of HTTPServer, which asks the resolver for the host's name before it starts."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, answer: Answerer, port: int) -> None:
        self.answer = answer
        self.unchanged = 0
        super().__init__((HOST, port), _Handler)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "rehearsal"
    disable_nagle_algorithm = True
    timeout = 60
    server: _Listener

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 the base class names it so
        """Say nothing: who rehearses reads the requests."""

    def handle(self) -> None:
        try:
            super().handle()
        except (ConnectionError, TimeoutError):
            self.close_connection = True

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_PUT(self) -> None:
        self._serve()

    def do_PATCH(self) -> None:
        self._serve()

    def do_DELETE(self) -> None:
        self._serve()

    def _serve(self) -> None:
        parts = urlsplit(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(min(length, _BODY_CAP))) if length else None
        login = self.headers.get("Authorization") or ""
        reply = self.server.answer(self.command, parts.path, dict(parse_qsl(parts.query)), login, body)
        self._send(reply)

    def _send(self, reply: Reply) -> None:
        is_raw = isinstance(reply.body, bytes)
        data = reply.body if is_raw else b"" if reply.body is None else json.dumps(reply.body).encode()
        headers = dict(reply.headers)
        if self.command == "GET" and reply.status == _OK:
            mark = f'"{hashlib.sha256(data).hexdigest()}"'
            headers["ETag"] = mark
            if self.headers.get("If-None-Match") == mark:
                reply, data = Reply(_NOT_MODIFIED), b""
                self.server.unchanged += 1
        self.send_response(reply.status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", "text/plain" if is_raw else "application/json; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

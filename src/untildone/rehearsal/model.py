"""A Messages API on loopback that says what a scenario tells it to, and keeps the books on it.

python -m untildone.rehearsal.model --scenario FILE [--port N] [--ledger FILE]
"""

import json
import socket
import socketserver
import sys
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from untildone.core.dataclass import dataclass
from untildone.errors import ConfigError, UntildoneError
from untildone.rehearsal import wire
from untildone.rehearsal.ledger import OK, PATIENCE, Ledger, LedgerLine, wall_clock
from untildone.rehearsal.scenario import Reply, Scenario, load_scenario
from untildone.rehearsal.script import Script, Turn

HOST = "127.0.0.1"
KEPT_REQUESTS = 200
ENDING_SECONDS = 30.0
"""A ceiling: handlers end at once when their connections do, but a busy machine may be slow to let them."""
BODY_CAP = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """What a client sent."""

    n: int
    path: str
    headers: dict[str, str]
    """Names in lower case."""
    body: dict[str, Any]


class ScriptedModel:
    """The server, in a thread of its own. Use it as a context manager, or call `start` and `close`."""

    def __init__(self, scenario: Scenario, port: int = 0, *, ledger_path: Path | None = None) -> None:
        self.ledger = Ledger(ledger_path)
        self._scenario = scenario
        self._script = Script(scenario, uuid.uuid4().hex[:12])
        self._requests: deque[RecordedRequest] = deque(maxlen=KEPT_REQUESTS)
        self._arrival = threading.Condition()
        try:
            self._server = _Server(self, port)
        except (OSError, OverflowError) as taken:
            raise ConfigError(f"port {port} on {HOST} cannot be used: {taken}") from taken
        self.port: int = self._server.server_address[1]
        self.url = f"http://{HOST}:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def requests(self) -> list[RecordedRequest]:
        """The newest main requests."""
        with self._arrival:
            return list(self._requests)

    def wait_for_request(self, n: int, timeout: float = PATIENCE) -> RecordedRequest:
        """Main request number `n`, as soon as it is there; TimeoutError when it does not come."""
        with self._arrival:
            self._arrival.wait_for(lambda: self._requests and self._requests[-1].n >= n, timeout)
            for request in self._requests:
                if request.n == n:
                    return request
        raise TimeoutError(f"request {n} did not come within {timeout} s")

    def start(self) -> Self:
        """Begin to answer."""
        self._thread.start()
        return self

    def close(self) -> None:
        """Stop answering, dropping what is under way."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def wait(self) -> None:
        """Return when somebody closes the server."""
        self._thread.join()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def answer_to(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> tuple[Turn, str]:
        """The turn to serve for this request, and the model that answers."""
        with self._arrival:
            turn = self._script.next(body, headers.get("x-claude-code-session-id", ""))
            if turn.n:
                self._requests.append(RecordedRequest(turn.n, path, headers, body))
                self._arrival.notify_all()
        asked = body.get("model")
        spoken = turn.reply.model or (self._scenario.model if turn.n else None)
        return turn, spoken or (asked if isinstance(asked, str) else "unknown")

    def book(self, turn: Turn, model: str, *, sent: float) -> None:
        """Write down what was served; `sent` is the share of the reply that left."""
        reply = turn.reply
        if reply.status is not None:
            reply = replace(
                reply,
                input_tokens=0,
                output_tokens=0,
                cache_read_tokens=0,
                cache_write_tokens=0,
                cache_write_1h_tokens=0,
            )
        self.ledger.book(
            LedgerLine(
                n=turn.n,
                kind="main" if turn.n else "side",
                message_id=turn.message_id,
                model=model,
                input_tokens=reply.input_tokens,
                output_tokens=int(reply.output_tokens * sent),
                cache_read_tokens=reply.cache_read_tokens,
                cache_write_tokens=reply.cache_write_tokens + reply.cache_write_1h_tokens,
                complete=sent >= 1,
                status=reply.status or OK,
                at=wall_clock(),
            )
        )


class _Server(socketserver.ThreadingTCPServer):
    """Plain TCP instead of HTTPServer, which asks the resolver for the host's name before it starts."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, model: ScriptedModel, port: int) -> None:
        self.model = model
        self._open: set[socket.socket] = set()
        self._change = threading.Condition()
        super().__init__((HOST, port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._change:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        with self._change:
            self._open.discard(request)
            self._change.notify_all()

    def server_close(self) -> None:
        """End every connection: to its handler it looks as if the client had left."""
        super().server_close()
        with self._change:
            for connection in self._open:
                _hang_up(connection)
            self._change.wait_for(lambda: not self._open, timeout=ENDING_SECONDS)


class _ClientLeft(Exception):
    pass


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "rehearsal"
    disable_nagle_algorithm = True
    timeout = 600
    server: _Server
    connection: socket.socket
    plain_answers: ClassVar[dict[str, dict[str, Any]]] = {
        "/": {},
        "/v1/models": {"data": [], "has_more": False, "first_id": None, "last_id": None},
    }

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 the base class names it so
        """Say nothing: the ledger is the record."""

    def handle(self) -> None:
        try:
            super().handle()
        except (_ClientLeft, ConnectionError, TimeoutError):
            self.close_connection = True

    def do_HEAD(self) -> None:
        self.send_response(OK)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_GET(self) -> None:
        answer = self.plain_answers.get(self.path.split("?")[0])
        if answer is None:
            self._refuse(404, f"there is no {self.path} here")
        else:
            self._send_json(OK, answer)

    def do_POST(self) -> None:
        path = self.path.split("?")[0]
        try:
            body = self._read_body()
        except (ValueError, RecursionError) as wrong:
            self.close_connection = True
            self._refuse(400, str(wrong))
            return
        if path == "/v1/messages":
            self._answer(body)
        elif path == "/v1/messages/count_tokens":
            self._send_json(OK, {"input_tokens": max(1, len(json.dumps(body)) // 4)})
        else:
            self._refuse(404, f"there is no {self.path} here")

    def _read_body(self) -> dict[str, Any]:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > BODY_CAP:
            raise ValueError("a request needs a Content-Length, and not a huge one")
        body = json.loads(self.rfile.read(int(length)))
        if not isinstance(body, dict) or not isinstance(body.get("messages"), list):
            raise ValueError("the body must be a JSON object with messages")  # noqa: TRY004 one kind of error for all bad bodies
        return body

    def _answer(self, body: dict[str, Any]) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        turn, model = self.server.model.answer_to(self.path, headers, body)
        book = partial(self.server.model.book, turn, model)
        try:
            self._pause(turn.reply.latency)
        except _ClientLeft:
            book(sent=0.0)
            raise
        if turn.reply.status is not None:
            book(sent=0.0)
            self._send_json(turn.reply.status, wire.error_body(turn.reply), wire.headers(turn.reply, wall_clock()))
        elif body.get("stream"):
            self._send_pieces("text/event-stream", wire.stream(turn, model), turn.reply, book)
        else:
            self._send_pieces("application/json", [_encode(wire.message(turn, model))], turn.reply, book)

    def _send_pieces(self, kind: str, pieces: list[bytes], reply: Reply, book: Callable[..., None]) -> None:
        whole = sum(map(len, pieces))
        kept = _cut(pieces, whole if reply.cut_after is None else int(whole * reply.cut_after))
        # The last piece of a whole reply is sent only after the books say so: whoever has the reply finds it there.
        *early, last = [*kept, b""] if reply.cut_after is not None else kept
        gone = 0
        try:
            self._begin(OK, kind, [*wire.headers(reply, wall_clock()), ("Transfer-Encoding", "chunked")])
            for piece in early:
                self._pause(reply.chunk_delay if gone else 0)
                self._send_chunk(piece)
                gone += len(piece)
            self._pause(reply.chunk_delay if gone else 0)
        except (_ClientLeft, OSError):
            # What it cost was said in the last piece but one: whoever left after that has had the whole of it.
            is_paid = early and reply.cut_after is None and gone == whole - len(last)
            book(sent=1.0 if is_paid else gone / whole)
            raise
        book(sent=(gone + len(last)) / whole)
        if reply.cut_after is not None:
            raise _ClientLeft  # without the closing chunk the client sees a connection that broke off
        self._send_chunk(last)
        self._send_chunk(b"")

    def _send_chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def _pause(self, seconds: float) -> None:
        """Wait, but not for a client that has left."""
        before = self.connection.gettimeout()
        self.connection.settimeout(seconds)
        try:
            if not self.connection.recv(1, socket.MSG_PEEK):
                raise _ClientLeft
        except (TimeoutError, BlockingIOError):
            return
        except OSError as broken:
            raise _ClientLeft from broken
        finally:
            self.connection.settimeout(before)

    def _begin(self, status: int, kind: str, headers: Iterable[tuple[str, str]]) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("request-id", "req_rehearsal")
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()

    def _send_json(self, status: int, body: dict[str, Any], headers: Iterable[tuple[str, str]] = ()) -> None:
        data = _encode(body)
        self._begin(status, "application/json", [*headers, ("Content-Length", str(len(data)))])
        self.wfile.write(data)

    def _refuse(self, status: int, message: str) -> None:
        self._send_json(status, wire.error_body(Reply(status=status, message=message)))


def _encode(body: dict[str, Any]) -> bytes:
    return json.dumps(body).encode()


def _cut(pieces: list[bytes], limit: int) -> list[bytes]:
    """The first `limit` bytes of the pieces."""
    kept = []
    for piece in pieces:
        kept.append(piece[:limit])
        limit -= len(kept[-1])
    return [piece for piece in kept if piece]


def _hang_up(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # it is closed already


def serve_forever(scenario: Scenario, port: int, ledger_path: Path | None) -> None:
    """Serve until interrupted; the address is printed first, so that a parent can wait for it."""
    with ScriptedModel(scenario, port, ledger_path=ledger_path) as model:
        sys.stdout.write(f"{model.url}\n")
        sys.stdout.flush()
        try:
            model.wait()
        except KeyboardInterrupt:
            return


def main(argv: list[str] | None = None) -> int:
    """The command line of this module."""
    import argparse

    parser = argparse.ArgumentParser(prog="python -m untildone.rehearsal.model")
    parser.add_argument("--scenario", type=Path, required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--ledger", type=Path)
    given = parser.parse_args(argv)
    try:
        serve_forever(load_scenario(given.scenario), given.port, given.ledger)
    except UntildoneError as trouble:
        sys.stderr.write(f"{trouble}\n")
        return trouble.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())

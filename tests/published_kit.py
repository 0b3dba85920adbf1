"""The two ends of the published protocol: a server that knows nothing else, and the client that went with it.

Both as the published text describes them: single events with 200 for an answer, messages that are gone once fetched.
"""

import json
import threading
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from ports import own_port

_STATE = (
    "iteration_num successful_iterations error_count extra_iterations total_cost_usd completion_signal_count "
    "elapsed_seconds last_session_id"
)
PUBLISHED_FIELDS = {
    "continuous.started": "goal limits completion_signal completion_threshold",
    "iteration.started": f"iteration_num prompt_preview {_STATE}",
    "iteration.completed": f"iteration_num cost_usd session_id transcript_b64 output_preview {_STATE}",
    "iteration.failed": "iteration_num error error_type retry_allowed",
    "iteration.completion_signal": "iteration_num signal_count threshold",
    "continuous.limit_reached": "limit_type limit_value current_value",
    "continuous.completed": f"stop_reason {_STATE}",
}
"""The payload of each published event."""
PUBLISHED_TYPES = tuple(PUBLISHED_FIELDS)


@dataclass
class PublishedServer:
    """`POST …/events` takes one event, `GET …/messages` gives what waits; nothing else is known."""

    unknown: int = 404
    """The answer to any other address."""
    wrong_body: int = 422
    """The answer to a body that is no event."""
    port: int = field(default_factory=own_port)
    events: list[dict[str, Any]] = field(default_factory=list)
    """Every event that was taken, in the order it came."""
    keys: list[str | None] = field(default_factory=list)
    waiting: list[dict[str, str]] = field(default_factory=list)
    polls: int = 0
    restarts: int = 0
    most: int = 1 << 30
    """Bytes of one body that are taken."""
    _server: ThreadingHTTPServer | None = None
    _thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def types(self) -> list[str]:
        return [event["event_type"] for event in self.events]

    def say(self, content: str, message_type: str = "user_message") -> None:
        number = str(len(self.events) + len(self.waiting))
        self.waiting.append(
            {"id": number, "content": content, "message_type": message_type, "timestamp": "2026-01-01T00:00:00+00:00"}
        )

    def start(self) -> None:
        known = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if not self.path.endswith("/messages"):
                    self._answer(known.unknown, {"detail": "Not Found"})
                    return
                known.polls += 1
                given, known.waiting = known.waiting, []
                self._answer(200, given)

            def do_POST(self) -> None:
                content = self.rfile.read(int(self.headers["Content-Length"]))
                body = json.loads(content)
                if not self.path.endswith("/events"):
                    self._answer(known.unknown, {"detail": "Not Found"})
                elif len(content) > known.most:
                    self._answer(413, {"detail": "Request Entity Too Large"})
                elif "event_type" not in body:
                    self._answer(known.wrong_body, {"detail": [{"loc": ["body", "event_type"], "msg": "required"}]})
                else:
                    known.events.append(body)
                    known.keys.append(self.headers["Idempotency-Key"])
                    self._answer(200, {"status": "received"})

            def _answer(self, status: int, content: object) -> None:
                data = json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self._server.daemon_threads = False  # what was taken is answered before the server goes down
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        server, thread = self._server, self._thread
        self._server = self._thread = None
        if server is not None and thread is not None:
            server.shutdown()
            thread.join()
            server.server_close()

    def restart(self) -> None:
        self.stop()
        self.restarts += 1
        self.start()


@dataclass
class PublishedClient:
    """What the published worker does with its server."""

    url: str
    sandbox: str
    token: str = ""

    def report(self, event_type: str, event_data: dict[str, Any] | None = None, source: str = "agent") -> bool:
        """Success is 200, and nothing else."""
        body: dict[str, Any] = {"event_type": event_type, "source": source}
        if event_data is not None:
            body["event_data"] = event_data
        return self.ask("POST", "events", body)[0] == 200

    def poll(self) -> list[dict[str, str]]:
        status, messages = self.ask("GET", "messages")
        assert status == 200
        found: list[dict[str, str]] = messages
        return found

    def ask(self, method: str, what: str, body: object = None) -> tuple[int, Any]:
        headers = {"Content-Type": "application/json"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        address = f"{self.url}/api/v1/sandboxes/{self.sandbox}/{what}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(address, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=240) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as refused:
            return refused.code, json.load(refused)

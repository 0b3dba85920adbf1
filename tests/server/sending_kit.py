"""What workers send, made up."""

import json
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from typing import Any

from server.door_kit import PATIENCE, Reply, Served


def event(seq: int, **changes: Any) -> dict[str, Any]:
    """An event on its way, about nothing in particular."""
    return {
        "event_type": "agent.assistant_message",
        "event_data": {"iteration_num": 1, "text": f"word {seq}"},
        "seq": seq,
        "at": 1_700_000_000 + seq,
        "source": "agent",
        "kind": "trace",
        **changes,
    }


def batch(run_id: str, seqs: range, **more: Any) -> dict[str, Any]:
    return {"run_id": run_id, "events": [event(seq) for seq in seqs], **more}


def send(server: Served, run_id: str, seqs: range, *, sandbox: str = "box", **more: Any) -> Reply:
    """A batch, as a worker sends it."""
    return server.ask("POST", f"/api/v1/sandboxes/{sandbox}/events", json_body=batch(run_id, seqs, **more))


def get(server: Served, path: str, **more: Any) -> Any:
    answer = server.ask("GET", path, **more)
    assert answer.status == 200, answer
    return json.loads(answer.body)


class Stream:
    """Server-sent events, as a browser reads them."""

    def __init__(self, server: Served, path: str, headers: dict[str, str] | None = None) -> None:
        self._connection = HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
        self._connection.request("GET", path, headers=headers or {})
        self.answer: HTTPResponse = self._connection.getresponse()

    def frames(self) -> Iterator[dict[str, str]]:
        """Events with their fields; comments are left out."""
        fields: dict[str, str] = {}
        while line := self.answer.readline():
            text = line.decode().rstrip("\n")
            if not text:
                if fields:
                    yield fields
                fields = {}
            elif not text.startswith(":"):
                name, _, value = text.partition(": ")
                fields[name] = value

    def events(self, count: int) -> list[dict[str, Any]]:
        """The next so many events of a run."""
        found: list[dict[str, Any]] = []
        for frame in self.frames():
            if "id" in frame:
                found.append(json.loads(frame["data"]))
                assert found[-1]["seq"] == int(frame["id"])
            if len(found) == count:
                break
        return found

    def close(self) -> None:
        self._connection.close()

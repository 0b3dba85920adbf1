"""The published endpoints, with plain curl."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from datetime import datetime

import pytest

from patience import PATIENCE
from published_kit import PUBLISHED_TYPES, PublishedClient
from server.door_kit import Served, served, until
from server.sending_kit import get, send

EVENT_TYPES = (
    "continuous.started",
    "iteration.started",
    "agent.tool_use",
    "agent.message",
    "iteration.completed",
    "iteration.failed",
    "iteration.completion_signal",
    "continuous.limit_reached",
    "continuous.completed",
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("server")) as one:
        yield one


def curl(server: Served, path: str, *options: str) -> tuple[int, str]:
    program = shutil.which("curl")
    assert program is not None
    argv = [
        program,
        "-sS",
        "--max-time",
        str(PATIENCE),
        "-w",
        "\n%{http_code}",
        *options,
        f"http://127.0.0.1:{server.port}{path}",
    ]
    body, _, status = subprocess.run(
        argv, capture_output=True, text=True, timeout=2 * PATIENCE, check=True
    ).stdout.rpartition("\n")
    return int(status), body


def post(server: Served, sandbox: str, body: object, kind: str = "application/json") -> tuple[int, str]:
    given = ("-X", "POST", "-H", f"Content-Type: {kind}", "-d", json.dumps(body))
    return curl(server, f"/api/v1/sandboxes/{sandbox}/events", *given)


def test_every_published_event_is_taken_with_200_and_kept_as_trace(server: Served) -> None:
    sandbox = "0b6f2c1e-6a55-4a4b-9f56-0d7c3a2f9b11"
    for number, event_type in enumerate(EVENT_TYPES, 1):
        data = {"iteration_num": number, "task_id": "t", "agent_id": "a", "sandbox_id": sandbox}
        status, body = post(server, sandbox, {"event_type": event_type, "event_data": data, "source": "worker"})
        assert status == 200
        told = json.loads(body)
        assert (told["status"], told["sandbox_id"], told["event_type"]) == ("received", sandbox, event_type)
        assert datetime.fromisoformat(told["timestamp"]).tzinfo is not None
    kept = get(server, f"/api/v1/runs/published-{sandbox}/events")["events"]
    assert [(one["seq"], one["type"], one["kind"]) for one in kept] == [
        (number, event_type, "trace") for number, event_type in enumerate(EVENT_TYPES, 1)
    ]


def test_the_source_may_be_left_out(server: Served) -> None:
    assert post(server, "short", {"event_type": "agent.message", "event_data": {}})[0] == 200
    assert get(server, "/api/v1/runs/published-short/events")["events"][0]["source"] == "agent"


def test_what_a_program_publishes_is_seen_in_the_list_of_runs(server: Served) -> None:
    post(server, "seen", {"event_type": "continuous.started", "event_data": {"goal": "Make it work"}})

    def is_listed() -> bool:
        runs = get(server, "/api/v1/runs?sandbox=seen")["runs"]
        return [(run["run_id"], run["goal"]) for run in runs] == [("published-seen", "Make it work")]

    until(is_listed)


def test_only_json_is_taken(server: Served) -> None:
    status, body = post(server, "box", {"event_type": "a", "event_data": {}}, "text/plain")
    assert status == 415
    assert "application/json" in json.loads(body)["error"]


@pytest.mark.parametrize("body", [{}, {"event_type": 1, "event_data": {}}, {"event_data": {}}, []])
def test_half_an_event_is_refused(server: Served, body: object) -> None:
    status, answer = post(server, "box", body)
    assert status == 422
    said = json.loads(answer)
    assert list(said) == ["error", "detail"]
    assert said["error"] == said["detail"], "the published API says it as `detail`"


def test_messages_are_given_once_in_order(server: Served) -> None:
    _, operator = server.token("operator")
    for text, kind in (("first", "user_message"), ("second", "guardian_nudge"), ("third", "interrupt")):
        given = json.dumps({"content": text, "message_type": kind})
        options = ("-X", "POST", "-H", "Content-Type: application/json", "-H", f"Authorization: Bearer {operator}")
        assert curl(server, "/api/v1/sandboxes/box/messages", *options, "-d", given)[0] == 200
    status, body = curl(server, "/api/v1/sandboxes/box/messages")
    messages = json.loads(body)
    assert status == 200
    assert [(one["content"], one["message_type"]) for one in messages] == [
        ("first", "user_message"),
        ("second", "guardian_nudge"),
        ("third", "interrupt"),
    ]
    assert all(set(one) == {"id", "content", "message_type", "timestamp"} for one in messages)
    assert len({one["id"] for one in messages}) == 3
    assert curl(server, "/api/v1/sandboxes/box/messages") == (200, "[]")


def test_saying_something_takes_an_operator(server: Served) -> None:
    given = ("-X", "POST", "-H", "Content-Type: application/json", "-d", '{"content":"hello"}')
    assert curl(server, "/api/v1/sandboxes/box/messages", *given)[0] == 401


def test_a_message_for_a_sandbox_with_a_run_of_ours_becomes_an_order(server: Served) -> None:
    send(server, "ours", range(1, 3), sandbox="with-run")
    _, operator = server.token("operator")
    path = "/api/v1/sandboxes/with-run/messages"
    answer = server.ask("POST", path, json_body={"content": "look at the tests"}, token=operator)
    assert (answer.status, json.loads(answer.body)["run_id"]) == (200, "ours")
    assert json.loads(curl(server, path)[1]) == []
    [order] = get(server, "/api/v1/sandboxes/with-run/runs/ours/orders")
    assert (order["kind"], order["data"]["content"]) == ("message", "look at the tests")


def test_the_published_client_reports_is_heard_and_is_spoken_to(server: Served) -> None:
    client = PublishedClient(f"http://127.0.0.1:{server.port}", "client")
    for number, event_type in enumerate(PUBLISHED_TYPES):
        assert client.report(event_type, {"iteration_num": number}, "worker")
    assert client.report("agent.heartbeat"), "without data"
    kept = get(server, "/api/v1/runs/published-client/events")["events"]
    assert [(one["type"], one["data"]) for one in kept] == [
        *((name, {"iteration_num": number}) for number, name in enumerate(PUBLISHED_TYPES)), ("agent.heartbeat", {}),
    ]  # fmt: skip
    assert client.ask("POST", "events", {"source": "agent"})[1]["detail"]
    _, token = server.token("operator")
    operator = PublishedClient(client.url, client.sandbox, token)
    status, given = operator.ask("POST", "messages", {"content": "Use tabs.", "extra": 1})
    assert (status, given["status"], given["sandbox_id"]) == (200, "queued", "client")
    (message,) = client.poll()
    assert (message["id"], message["content"]) == (given["message_id"], "Use tabs.")
    assert client.poll() == []

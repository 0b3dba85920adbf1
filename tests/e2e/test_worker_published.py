"""A worker with the real Claude Code, and a server that knows nothing but the published protocol."""

from pathlib import Path
from typing import Any

import pytest

from e2e.kit import working
from e2e.test_worker import GATED, at_work, bash, ended, prompts, worker_stage
from e2e.worker_kit import until
from published_kit import PUBLISHED_FIELDS, PUBLISHED_TYPES, PublishedServer
from untildone.core.policy import COMPLETION_SIGNAL
from untildone.rehearsal.scenario import Reply

pytestmark = pytest.mark.claude
RESTARTS = 10
ENDS = ("continuous.suspended", "continuous.completed")


def of(server: PublishedServer, event_type: str) -> list[dict[str, Any]]:
    return [event["event_data"] for event in server.events if event["event_type"] == event_type]


@pytest.mark.soak
def test_a_published_server_gets_every_event_once_in_order_and_its_messages_arrive(tmp_path: Path) -> None:
    server = PublishedServer()
    server.start()
    iterations = (
        (bash(GATED), Reply(text=working())),
        (Reply(status=400, message="no such luck"),),
        (Reply(text=f"I looked at all of it.\n\n{COMPLETION_SIGNAL}"),),
    )
    limits = {"CONTINUOUS_MAX_RUNS": "2", "HEARTBEAT_INTERVAL": "0.1", "POLL_INTERVAL": "0.05"}
    with worker_stage(tmp_path, server.url, "published", *iterations, **limits) as stage:
        with at_work(stage) as worker:
            until(lambda: of(server, "agent.tool_use"), "the agent at work")
            for _ in range(RESTARTS):
                before = len(server.events)
                server.restart()
                until(lambda before=before: len(server.events) > before, "an event after the restart")
            server.say("Use tabs.")
            until(lambda: of(server, "agent.message_injected"), "the message")
            (stage.tmp / "gate1").touch()
            assert ended(worker) == 0
        server.stop()
        (run_id,) = {str(key).partition(":")[0] for key in server.keys}
        own = stage.events(run_id)
        assert server.keys == [f"{run_id}:{event['seq']}" for event in own], "each event once, in order"
        for event, mine in zip(server.events, own, strict=True):
            assert event.keys() == {"event_type", "event_data", "source"}
            assert (event["event_type"], event["source"]) == (mine["event_type"].replace(*ENDS), mine["source"])
            assert mine["event_data"].keys() <= event["event_data"].keys()
            assert event["event_data"].items() >= {"task_id": "task-7", "sandbox_id": "published"}.items()
        assert "Use tabs." in "".join(prompts(stage)[1:])
    assert set(PUBLISHED_TYPES) <= set(server.types)
    for name, fields in PUBLISHED_FIELDS.items():
        assert [set(fields.split()) - data.keys() for data in of(server, name)] == [set()] * len(of(server, name)), name
    assert server.types[0] == PUBLISHED_TYPES[0]
    assert [end["stop_reason"] for end in of(server, "continuous.completed")] == ["max_runs_reached"]
    assert of(server, "continuous.limit_reached")[0].items() >= {"limit_type": "max_runs", "limit_value": 2}.items()
    assert of(server, "iteration.completion_signal")[0].items() >= {"signal_count": 1, "threshold": 3}.items()
    assert [one["content"] for one in of(server, "agent.message_injected")] == ["Use tabs."]
    assert (server.restarts, bool(server.polls)) == (RESTARTS, True)

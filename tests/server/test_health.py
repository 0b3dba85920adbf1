"""Ready is who can keep what is sent, and says so again when that is possible again."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from server.door_kit import Served, served
from server.sending_kit import event
from untildone.server.archive import group_commit, room, sqlite_intake


class Usage(NamedTuple):
    total: int
    free: int


def offered(server: Served, seq: int, *, size: int = 300_000) -> int:
    body = {"run_id": "run", "events": [event(seq) | {"event_data": {"text": "x" * size}}]}
    return server.ask("POST", "/api/v1/sandboxes/box/events", json_body=body).status


@pytest.fixture
def full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A server whose database may not grow, whatever the disk says."""
    with monkeypatch.context() as bounded:
        bounded.setattr(sqlite_intake, "_CACHE", "PRAGMA max_page_count = 1")
        with served(tmp_path) as server:
            assert server.ask("GET", "/readyz").status == 200
            assert offered(server, 1) == 503
            bounded.undo()
            yield server


def test_a_server_that_cannot_write_is_not_ready_until_it_can(full: Served, tmp_path: Path) -> None:
    answer = full.ask("GET", "/readyz")
    assert (answer.status, answer.error) == (503, "the newest write to the database failed")
    assert str(tmp_path) not in answer.error
    assert full.ask("GET", "/healthz").status == 200
    assert offered(full, 1) == 200
    assert full.ask("GET", "/readyz").status == 200


def test_where_nobody_writes_any_more_it_is_ready_after_a_while(full: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    assert full.ask("GET", "/readyz").status == 503
    monkeypatch.setattr(group_commit, "FAILED_FOR", 0.0)
    assert full.ask("GET", "/readyz").status == 200


def test_a_server_without_room_is_not_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = {"bytes": 100 << 30}
    monkeypatch.setattr(room, "EVERY", 0.0)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(200 << 30, free["bytes"]))
    with served(tmp_path) as server:
        assert server.ask("GET", "/readyz").status == 200
        free["bytes"] = 500 << 20
        answer = server.ask("GET", "/readyz")
        assert (answer.status, answer.error) == (503, "the disk is nearly full: nothing more is kept")
        free["bytes"] = 100 << 30
        assert server.ask("GET", "/readyz").status == 200

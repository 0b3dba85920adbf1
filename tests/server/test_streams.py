"""A run as it happens: nothing twice, nothing lost, whatever the client's and the server's luck."""

import asyncio
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from itertools import islice

import msgspec
import pytest

from patience import PATIENCE
from server.archive_kit import WORKER
from server.door_kit import Served, served, until
from server.sending_kit import Stream, batch, event, send
from untildone.core.wire import Batch
from untildone.server import event_stream, fanout, streams
from untildone.server.archive.port import EventFilter, EventPage
from untildone.server.intake import stored_events


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("server")) as one:
        yield one


def followers(server: Served) -> int:
    return server.context.fanout.followers


def parsed_batch(first: int) -> Batch:
    return msgspec.json.decode(json.dumps(batch("lagged", range(first, first + 100))), type=Batch)


def numbers(events: list[dict[str, object]]) -> list[object]:
    return [one["seq"] for one in events]


def test_what_was_missed_comes_first_then_what_happens(server: Served) -> None:
    send(server, "replay", range(1, streams.PAGE * 2 + 6))
    stream = Stream(server, "/api/v1/runs/replay/stream?after=3")
    assert stream.answer.headers["content-type"].startswith("text/event-stream")
    assert stream.answer.headers["cache-control"] == "no-store"
    missed = stream.events(streams.PAGE * 2 + 2)
    assert numbers(missed) == list(range(4, streams.PAGE * 2 + 6))
    assert missed[0]["data"] == {"iteration_num": 1, "text": "word 4"}
    last = streams.PAGE * 2 + 5
    send(server, "replay", range(last + 1, last + 4))
    assert numbers(stream.events(3)) == [last + 1, last + 2, last + 3]
    stream.close()


def test_a_browser_that_returns_goes_on_where_it_was(server: Served) -> None:
    send(server, "back", range(1, 11))
    stream = Stream(server, "/api/v1/runs/back/stream?after=0", {"Last-Event-ID": "7"})
    assert numbers(stream.events(3)) == [8, 9, 10]
    stream.close()
    for odd in ("x", "-1", "9" * 50, "٣"):
        stream = Stream(server, "/api/v1/runs/back/stream?after=9", {"Last-Event-ID": odd.encode().decode("latin-1")})
        assert stream.answer.status == 200
        stream.close()


def test_without_a_number_it_begins_with_what_is_new(server: Served) -> None:
    send(server, "now", range(1, 11))
    stream = Stream(server, "/api/v1/runs/now/stream")
    send(server, "now", range(11, 13))
    assert numbers(stream.events(2)) == [11, 12]
    stream.close()


def test_nothing_is_lost_or_sent_twice_while_much_happens(server: Served) -> None:
    count, viewers = 1000, 6
    send(server, "busy", range(1, 2))
    found: list[list[object]] = [[] for _ in range(viewers)]

    def view(place: int) -> None:
        time.sleep(0.01 * place)
        stream = Stream(server, "/api/v1/runs/busy/stream?after=0")
        found[place] = numbers(stream.events(count))
        stream.close()

    threads = [threading.Thread(target=view, args=(place,)) for place in range(viewers)]
    for thread in threads:
        thread.start()
    for first in range(2, count + 1, 37):
        # Each batch comes again in part: whoever sends it lost the answer.
        send(server, "busy", range(max(1, first - 5), min(first + 37, count + 1)))
    for thread in threads:
        thread.join(PATIENCE)
    assert found == [list(range(1, count + 1))] * viewers


def test_a_hole_is_filled_from_the_archive_before_what_comes_after_it(server: Served) -> None:
    send(server, "hole", range(1, 3))
    stream = Stream(server, "/api/v1/runs/hole/stream?after=2")
    send(server, "hole", range(10, 12), after=2)
    assert numbers(stream.events(2)) == [10, 11]
    stream.close()


def test_line_ends_in_a_payload_do_not_break_a_frame(server: Served) -> None:
    payload = '{"a":\n\n1,\r\n"b":"x\\n\\nid: 99\\ndata: {}"}'
    body = json.dumps({"run_id": "lines", "events": [event(1, event_data="HERE")]}).replace('"HERE"', payload)
    answer = server.ask(
        "POST", "/api/v1/sandboxes/box/events", body=body.encode(), headers={"Content-Type": "application/json"}
    )
    assert answer.status == 200
    stream = Stream(server, "/api/v1/runs/lines/stream?after=0")
    [found] = stream.events(1)
    assert found["data"] == {"a": 1, "b": "x\n\nid: 99\ndata: {}"}
    stream.close()


def test_who_watches_the_list_hears_which_runs_changed(server: Served) -> None:
    stream = Stream(server, "/api/v1/stream")
    server.ask("POST", "/api/v1/sandboxes/watched/events", json_body={"event_type": "a.b", "event_data": {}})
    # Other runs may change as well: what was sent before is folded a moment later.
    frame = next(one for one in stream.frames() if json.loads(one["data"]) == {"run_id": "published-watched"})
    assert frame["event"] == "changed"
    stream.close()


def test_a_viewer_of_a_run_hears_that_it_looks_different(server: Served) -> None:
    send(server, "looks", range(1, 2))
    stream = Stream(server, "/api/v1/runs/looks/stream")
    server.loop.call_soon_threadsafe(server.context.fanout.changed, "looks")
    assert next(iter(stream.frames())) == {"event": "changed", "data": "{}"}
    stream.close()


def test_there_is_a_heartbeat_when_nothing_happens(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "HEARTBEAT_SECONDS", 0.1)
    send(server, "silent", range(1, 2))
    stream = Stream(server, "/api/v1/runs/silent/stream")
    comments = (line for line in iter(stream.answer.readline, b"") if line.startswith(b":"))
    assert list(islice(comments, 3)) == [b": here\n", b": still here\n", b": still here\n"]
    stream.close()


def test_a_run_that_is_not_there(server: Served) -> None:
    answer = server.ask("GET", "/api/v1/runs/none/stream")
    assert (answer.status, answer.error) == (404, "there is no such run here")


def test_who_leaves_is_forgotten_at_once(server: Served) -> None:
    send(server, "left", range(1, 2))
    until(lambda: followers(server) == 0)
    open_streams = [Stream(server, "/api/v1/runs/left/stream") for _ in range(5)]
    until(lambda: followers(server) == 5)
    for stream in open_streams:
        stream.close()
    until(lambda: followers(server) == 0)


def test_one_that_lagged_gets_all_of_it_from_the_archive(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fanout, "MOST_NOTES", 1)
    monkeypatch.setattr(fanout, "BURST_EVENTS", 1)
    send(server, "lagged", range(1, 2))
    stream = Stream(server, "/api/v1/runs/lagged/stream?after=0")
    assert numbers(stream.events(1)) == [1]
    lagged = server.context.fanout.lagged
    bursts = [stored_events(parsed_batch(n)) for n in range(2, 602, 100)]

    async def too_much_at_once() -> None:
        for burst in bursts:
            await server.archive.events.receive(WORKER, "lagged", burst, now=1.0)
        for burst in bursts:
            server.context.fanout.events("lagged", burst)

    server.run(too_much_at_once())
    assert numbers(stream.events(600)) == list(range(2, 602))
    stream.close()
    assert server.context.fanout.lagged > lagged


def test_one_that_does_not_read_is_dropped_and_holds_nobody_up(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "SLOW_SECONDS", 0.3)
    until(lambda: followers(server) == 0)
    before = dropped(server)
    long = {"iteration_num": 1, "text": "z" * 100_000}
    for seq in range(1, 150):
        body = {"run_id": "stuck", "events": [event(seq, event_data=long)]}
        server.ask("POST", "/api/v1/sandboxes/box/events", json_body=body)
    with socket.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.settimeout(PATIENCE)
        line.connect(("127.0.0.1", server.port))
        line.sendall(b"GET /api/v1/runs/stuck/stream?after=0 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert line.recv(100).startswith(b"HTTP/1.1 200")
        assert send(server, "stuck", range(150, 151)).status == 200
        until(lambda: dropped(server) == before + 1)
        until(lambda: followers(server) == 0)


def dropped(server: Served) -> float:
    told = server.ask("GET", "/metrics").body.decode()
    found = re.search(r"^untildone_streams_dropped_total (\S+)$", told, re.MULTILINE)
    assert found
    return float(found[1])


def test_a_viewer_who_leaves_breaks_off_no_read(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read that is cancelled in the middle takes its connection to the database along."""
    send(server, "left", range(1, 4))
    events = server.archive.events
    read, ended = events.read, []

    async def watched(run_id: str, wanted: EventFilter) -> EventPage:
        reading.set()
        try:
            await go_on.wait()
            return await read(run_id, wanted)
        finally:
            ended.append(asyncio.current_task().cancelling())  # type: ignore[union-attr]

    async def leave() -> None:
        pieces = streams.run_pieces(server.context, "left", 0)
        viewer = asyncio.ensure_future(anext(pieces))
        await reading.wait()
        viewer.cancel()
        await asyncio.wait([viewer])
        assert viewer.cancelled()
        go_on.set()
        while not ended:
            await asyncio.sleep(0.01)

    reading, go_on = asyncio.Event(), asyncio.Event()
    monkeypatch.setattr(events, "read", watched)
    server.run(leave())
    assert ended == [0]

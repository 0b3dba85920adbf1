"""Conversations over HTTP: packed as a worker packs them, read line by line by those who may."""

import json
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from server.door_kit import Served, served
from server.sending_kit import get, send
from untildone.agents.session_files import pack_session
from untildone.agents.transcripts import SUBAGENTS, transcript_path

OCTETS = {"Content-Type": "application/octet-stream"}
TALK = b'{"type":"user","text":"go"}\n{"type":"assistant","text":"\xc3\xa4 done"}\n'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("server")) as one:
        yield one


@pytest.fixture(scope="module")
def operator(server: Served) -> str:
    return server.token("operator")[1]


def packed(folder: Path, content: bytes) -> bytes:
    main = transcript_path(folder, "/project", "abc")
    below = main.with_suffix("") / SUBAGENTS
    below.mkdir(parents=True)
    main.write_bytes(content)
    (below / "agent-1.jsonl").write_bytes(b'{"type":"sub"}\n')
    parcel = pack_session(folder, "/project", "abc")
    assert parcel is not None
    return parcel


def put(server: Served, run: str, content: bytes) -> None:
    send(server, run, range(1, 4))
    path = f"/api/v1/sandboxes/box/runs/{run}/parcels/transcript/abc?seq=3"
    assert server.ask("PUT", path, body=content, headers=OCTETS).status == 200


def test_an_operator_reads_the_conversation_line_by_line(server: Served, operator: str, tmp_path: Path) -> None:
    put(server, "talk", packed(tmp_path, TALK))
    path = "/api/v1/runs/talk/transcripts"
    [listed] = get(server, path, token=operator)["transcripts"]
    assert (listed["session_id"], listed["seq"]) == ("abc", 3)
    answer = server.ask("GET", f"{path}/abc", token=operator)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/x-ndjson")
    assert answer.body == TALK
    assert [json.loads(line)["type"] for line in answer.body.splitlines()] == ["user", "assistant"]
    # What was said there is not for everybody who may look.
    assert [server.ask("GET", one).status for one in (path, f"{path}/abc")] == [401, 401]
    viewer = server.token("viewer")[1]
    assert [server.ask("GET", one, token=viewer).status for one in (path, f"{path}/abc")] == [403, 403]


def test_a_long_conversation_comes_in_pieces(server: Served, operator: str, tmp_path: Path) -> None:
    long = b"".join(b'{"n":%d,"said":"%s"}\n' % (number, b"x" * 1000) for number in range(5000))
    put(server, "long", packed(tmp_path, long))
    assert server.ask("GET", "/api/v1/runs/long/transcripts/abc", token=operator).body == long


@pytest.mark.parametrize(
    "content",
    [b"\x1f\x8bno", b"plain", b"", zlib.compress(b"x" * 2000, wbits=31), zlib.compress(b"", wbits=31)],
    ids=["cut", "plain", "nothing", "no tar", "empty"],
)
def test_what_is_no_transcript_is_said_to_be_none(server: Served, operator: str, content: bytes) -> None:
    run = f"odd-{len(content)}"
    put(server, run, content)
    answer = server.ask("GET", f"/api/v1/runs/{run}/transcripts/abc", token=operator)
    assert (answer.status, bool(answer.error)) == (409, True), answer


def test_one_that_is_not_there(server: Served, operator: str) -> None:
    assert get(server, "/api/v1/runs/nowhere/transcripts", token=operator) == {"transcripts": []}
    answer = server.ask("GET", "/api/v1/runs/nowhere/transcripts/abc", token=operator)
    assert (answer.status, "portable" in answer.error) == (404, True)
    assert server.ask("GET", "/api/v1/runs/nowhere/transcripts/a.b", token=operator).status == 422

"""Reading a run back from a server that may be anybody: pages, rights, lies and garbage."""

import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest

from untildone.core.events import PauseRequested, Unknown
from untildone.errors import UplinkDown, UplinkRefused
from untildone.uplink.client import HttpUplink
from untildone.uplink.fetching import Listed, Reader

pytestmark = pytest.mark.anyio


class Answers(HttpUplink):
    """A server that says what it is told to, and remembers what it was asked."""

    def __init__(self, answer: Callable[[str], Any]) -> None:
        super().__init__("https://server.example", "box")
        self._says = answer
        self.asked: list[str] = []

    async def ask(self, method: str, path: str, **_: Any) -> bytes:
        self.asked.append(f"{method} {path}")
        said = self._says(path)
        return said if isinstance(said, bytes) else json.dumps(said).encode()


def reader(answer: Callable[[str], Any]) -> tuple[Reader, Answers]:
    answers = Answers(answer)
    return Reader(answers, "box"), answers


def event(seq: int, type_: str = "continuous.pause_requested", data: Any = None) -> dict[str, Any]:
    told = {"by": "me", "extra": [1]} if data is None else data
    return {"seq": seq, "at": 1.5, "kind": "control", "type": type_, "source": "system", "version": 1, "data": told}


async def test_pages_are_followed_and_events_read_as_they_were_written() -> None:
    pages = {"0": ([event(1), event(3)], 3), "3": ([event(7, "new.kind")], None)}

    def answer(path: str) -> Any:
        events, more = pages[path.partition("after=")[2].partition("&")[0]]
        return {"events": events, "next": more}

    found, answers = reader(answer)
    records = await found.control("r1")
    assert [(record.seq, record.at) for record in records] == [(1, 1.5), (3, 1.5), (7, 1.5)]
    assert records[0].event == PauseRequested(by="me")
    assert isinstance(records[2].event, Unknown)
    assert all("kind=control" in path for path in answers.asked)


async def test_a_server_that_goes_round_in_circles_is_left() -> None:
    found, answers = reader(lambda _: {"events": [event(1)], "next": 0})
    with pytest.raises(UplinkDown, match="more events than a run can have"):
        await found.control("r1")
    assert len(answers.asked) == 1


async def test_empty_pages_are_an_end() -> None:
    def answer(path: str) -> Any:
        after = int(path.partition("after=")[2].partition("&")[0])
        return {"events": [event(1)] if after == 0 else [], "next": after + 1}

    found, answers = reader(answer)
    assert len(await found.control("r1")) == 1
    assert len(answers.asked) == 2


@pytest.mark.parametrize("seqs", [(2, 1), (1, 1)])
async def test_events_in_disorder_are_no_log(seqs: tuple[int, int]) -> None:
    found, _ = reader(lambda _: {"events": [event(seq) for seq in seqs], "next": None})
    with pytest.raises(UplinkDown, match="in disorder"):
        await found.control("r1")


async def test_another_run_than_the_one_asked_for_is_not_taken() -> None:
    found, _ = reader(lambda _: {"run_id": "r2", "sandbox_id": "b", "origin": "worker", "last_seq": 1})
    with pytest.raises(UplinkDown, match="another run"):
        await found.run("r1")


async def test_numbers_beyond_all_measure_are_garbage() -> None:
    run = {"run_id": "r1", "sandbox_id": "b", "origin": "worker", "last_seq": 10**30}
    for said, asking in (
        (run, lambda found: found.run("r1")),
        ({"events": [event(10**30)]}, lambda found: found.control("r1")),
        ({"tenure": -1}, lambda found: found.take("r1", 0)),
    ):
        found, _ = reader(lambda _, said=said: said)
        with pytest.raises(UplinkDown, match="something else than expected"):
            await asking(found)


@pytest.mark.parametrize("said", [b"", b"<html>", b"[]", b"{}", b'{"run_id": 5}', b'{"run_id":"../x"}', b"[" * 100_000])
async def test_garbage_is_one_line(said: bytes) -> None:
    found, _ = reader(lambda _: said)
    for asking in (found.run("r1"), found.control("r1"), found.parcels("r1"), found.take("r1", 0)):
        with pytest.raises(UplinkDown, match=r"server\.example answered with something else"):
            await asking


async def test_who_may_not_read_any_run_reads_its_own() -> None:
    def answer(path: str) -> Any:
        if path.startswith("/api/v1/runs/"):
            raise UplinkRefused("this needs an operator token")
        return {"parcels": [{"name": "tree", "seq": 4, "at": 0.0, "size": 2, "sha256": "x"}]}

    found, answers = reader(answer)
    assert (await found.parcels("r1"))["tree"] == Listed(name="tree", seq=4, size=2, sha256="x")
    assert answers.asked[-1] == "GET /api/v1/sandboxes/box/runs/r1/parcels"


async def test_a_parcel_is_what_was_listed() -> None:
    found, _ = reader(lambda _: b"content")
    good = Listed(name="transcript/s 1", seq=1, size=7, sha256=hashlib.sha256(b"content").hexdigest())
    assert await found.parcel("r1", good) == b"content"
    with pytest.raises(UplinkDown, match="another parcel than it lists"):
        await found.parcel("r1", Listed(name="tree", seq=1, size=7, sha256="0" * 64))


async def test_taking_names_the_sandbox_and_the_tenure() -> None:
    found, answers = reader(lambda _: {"tenure": 3})
    assert await found.take("r1", 2) == 3
    assert answers.asked == ["POST /api/v1/sandboxes/box/runs/r1/take"]

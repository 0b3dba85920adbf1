from hashlib import sha256

import pytest

from untildone.errors import SenderRefused
from untildone.server.archive import parcels
from untildone.server.archive.port import Archive, Sender, StoredEvent

pytestmark = pytest.mark.anyio


async def begin(archive: Archive, run_id: str, seq: int = 10) -> None:
    event = StoredEvent(seq=seq, at=1.0, kind="trace", type="a.b", source="agent", version=1, data="{}")
    await archive.events.receive(Sender(sandbox_id="box"), run_id, [event], now=1.0)


async def test_the_newest_parcel_of_a_name_is_kept(archive: Archive) -> None:
    await begin(archive, "run")
    content = bytes(range(256)) * 40_000
    first = await archive.parcels.put("run", "transcript/a b\0", b"old", seq=3, now=1.0)
    assert (first.name, first.seq, first.at, first.size) == ("transcript/a b\ufffd", 3, 1.0, 3)
    second = await archive.parcels.put("run", "transcript/a b\0", content, seq=9, now=2.0)
    assert second.sha256 == sha256(content).hexdigest()
    kept = await archive.parcels.get("run", "transcript/a b\0")
    assert kept is not None
    assert (kept.content, kept.seq, kept.size, kept.sha256) == (content, 9, len(content), second.sha256)
    late = await archive.parcels.put("run", "transcript/a b\0", b"an old one, sent again", seq=4, now=3.0)
    assert late == second


async def test_parcels_are_listed_without_their_contents(archive: Archive) -> None:
    await begin(archive, "run")
    await begin(archive, "other")
    await archive.parcels.put("run", "tree", b"t", seq=1, now=1.0)
    await archive.parcels.put("run", "notes", b"nn", seq=1, now=1.0)
    await archive.parcels.put("other", "tree", b"x", seq=1, now=1.0)
    listed = await archive.parcels.all("run")
    assert [(parcel.name, parcel.size, parcel.content) for parcel in listed] == [("notes", 2, b""), ("tree", 1, b"")]
    assert await archive.parcels.get("run", "nothing") is None
    assert await archive.parcels.all("nobody's") == []


async def test_only_the_driver_of_the_moment_keeps_parcels_and_no_number_shuts_it_out(archive: Archive) -> None:
    with pytest.raises(SenderRefused):
        await archive.parcels.put("run", "tree", b"x", seq=0, now=1.0)
    await begin(archive, "run")
    assert (await archive.parcels.put("run", "tree", b"forged", seq=2**53, now=1.0)).seq == 10
    await archive.runs.take_over("run", sandbox_id="new", tenure=0)
    with pytest.raises(SenderRefused) as late:
        await archive.parcels.put("run", "tree", b"late", seq=2**53, now=2.0)
    assert late.value.taken
    assert (await archive.parcels.put("run", "tree", b"new", seq=5, now=2.0, tenure=1)).size == 3
    with pytest.raises(SenderRefused) as early:
        await archive.parcels.put("run", "tree", b"early", seq=5, now=2.0, tenure=4)
    assert (early.value.taken, early.value.behind) == (False, 1)


async def test_the_oldest_transcripts_make_room_and_nothing_else_does(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parcels, "MOST_PARCELS", 3)
    monkeypatch.setattr(parcels, "MOST_BYTES", 100)
    await begin(archive, "run")
    for number, name in enumerate(("tree", "transcript/1", "transcript/2", "transcript/3")):
        await archive.parcels.put("run", name, b"x" * 10, seq=1, now=float(number))
    assert [one.name for one in await archive.parcels.all("run")] == ["transcript/2", "transcript/3", "tree"]
    await archive.parcels.put("run", "notes", b"x" * 85, seq=1, now=9.0)
    assert [one.name for one in await archive.parcels.all("run")] == ["notes", "tree"]
    with pytest.raises(SenderRefused):
        await archive.parcels.put("run", "more", b"x" * 10, seq=1, now=10.0)
    assert [one.name for one in await archive.parcels.all("run")] == ["notes", "tree"]

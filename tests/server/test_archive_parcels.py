from hashlib import sha256

import pytest

from untildone.server.archive.port import Archive

pytestmark = pytest.mark.anyio


async def test_the_newest_parcel_of_a_name_is_kept(archive: Archive) -> None:
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
    await archive.parcels.put("run", "tree", b"t", seq=1, now=1.0)
    await archive.parcels.put("run", "notes", b"nn", seq=1, now=1.0)
    await archive.parcels.put("other", "tree", b"x", seq=1, now=1.0)
    listed = await archive.parcels.all("run")
    assert [(parcel.name, parcel.size, parcel.content) for parcel in listed] == [("notes", 2, b""), ("tree", 1, b"")]
    assert await archive.parcels.get("run", "nothing") is None
    assert await archive.parcels.all("nobody's") == []

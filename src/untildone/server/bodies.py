"""Bodies of requests, read with bounds on their size, packed and unpacked.

How long they may take, and how many there may be at one time, is the guard's.
"""

import asyncio
import zlib
from collections.abc import Mapping

from fastapi import HTTPException, Request
from starlette.requests import ClientDisconnect

from untildone.server.limits import HOLD

MEBIBYTE = 1024 * 1024
MOST_JSON = 32 * MEBIBYTE
"""Bytes of a JSON body, unpacked."""
MOST_PARCEL = 64 * MEBIBYTE
_IN_A_THREAD = 256 * 1024
"""Packed bodies from this size on are unpacked elsewhere."""
_GZIP = 16 + zlib.MAX_WBITS


async def json_body(request: Request) -> bytes:
    """The body of a request that must be JSON, unpacked if it came packed."""
    _must_be(request.headers, "application/json")
    packing = request.headers.get("content-encoding", "identity").strip().lower()
    if packing not in {"identity", "gzip"}:
        raise HTTPException(415, f"content encoding {packing[:40]!r} is not known here: use gzip or none")
    body = await _read(request, MOST_JSON)
    if packing == "identity":
        return body
    # The last bytes of gzip say how much it was. If they lie, no more than they say is unpacked.
    most = min(int.from_bytes(body[-4:], "little"), MOST_JSON)
    await request.scope[HOLD](most)
    if len(body) < _IN_A_THREAD:
        return unpacked(body, most)
    return await asyncio.to_thread(unpacked, body, most)


async def parcel_body(request: Request) -> bytes:
    """The body of a request that carries a parcel."""
    _must_be(request.headers, "application/octet-stream")
    return await _read(request, MOST_PARCEL)


def unpacked(packed: bytes, most: int) -> bytes:
    """Gzip undone, and no further than the bound: a small body can stand for a very large one."""
    unpacker = zlib.decompressobj(_GZIP)
    try:
        body = unpacker.decompress(packed, most + 1)
    except zlib.error:
        raise HTTPException(400, "the body is not the gzip that its headers promise") from None
    if len(body) > MOST_JSON:
        raise _too_large(MOST_JSON)
    if len(body) > most or not unpacker.eof or unpacker.unused_data:
        raise HTTPException(400, "the body is not one whole piece of gzip")
    return body


def _must_be(headers: Mapping[str, str], wanted: str) -> None:
    given = headers.get("content-type", "").partition(";")[0].strip().lower()
    if given != wanted:
        raise HTTPException(415, f"the content type must be {wanted}")


async def _read(request: Request, most: int) -> bytes:
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > most:
        raise _too_large(most)
    pieces: list[bytes] = []
    size = 0
    try:
        async for piece in request.stream():
            size += len(piece)
            if size > most:
                raise _too_large(most)
            pieces.append(piece)
    except ClientDisconnect:
        raise HTTPException(400, "the body ended before it was whole") from None
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _too_large(most: int) -> HTTPException:
    return HTTPException(413, f"the body is larger than {most // MEBIBYTE} MiB")

"""A response that does not end by itself: server-sent events, with bounds on how long nobody may read them."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

HEARTBEAT_SECONDS = 15.0
"""How often something is sent when there is nothing to say: a dead connection is noticed, proxies stay awake."""
SLOW_SECONDS = 20.0
"""A piece that nobody takes for so long ends the stream."""
LARGE = 64 * 1024
"""Bytes of a piece that fill the buffers of a connection."""
HEARTBEAT = b": still here\n\n"


class EventStream(Response):
    """Sends pieces as they come. Ends with them, with the client, or when nobody reads."""

    media_type = "text/event-stream"

    def __init__(self, pieces: AsyncGenerator[bytes], *, dropped: Callable[[], None]) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._pieces = pieces
        self._dropped = dropped

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.create_task(self._send_all(send))
        leaving = asyncio.create_task(_gone(receive))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if leaving.done():
                return
            sending.result()
        except TimeoutError:
            # What waits in the buffers of a closed connection, its sweeper throws away.
            self._dropped()
        except OSError:
            # It left while something was being sent.
            return
        finally:
            for task in (sending, leaving):
                task.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        # The first bytes tell a browser that it is connected.
        await send({"type": "http.response.body", "body": b": here\n\n", "more_body": True})
        async with aclosing(self._pieces) as pieces:
            async for piece in pieces:
                async with asyncio.timeout(SLOW_SECONDS):
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                    if len(piece) >= LARGE:
                        # Waits until it is taken: nothing more is made for somebody who has so much before them.
                        await send({"type": "http.response.body", "body": b"", "more_body": True})
        with suppress(OSError):
            await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass

"""The real server, once for each module that asks for it."""

from collections.abc import AsyncIterator

import pytest

from uplink.uplink_kit import RealServer


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RealServer]:
    made = RealServer(tmp_path_factory.mktemp("server"))
    await made.start()
    yield made
    await made.kill()

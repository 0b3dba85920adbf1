"""The real server, once for each worker that asks for it."""

from collections.abc import Iterator

import pytest

from uplink.uplink_kit import RealServer


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """Each test has runs of its own there. One that kills a server starts another."""
    made = RealServer(tmp_path_factory.mktemp("server"))
    try:
        made.start_here()
        yield made
    finally:
        made.kill_here()

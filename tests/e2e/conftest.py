"""One server for all workers of these tests: each has a sandbox of its own there."""

from collections.abc import Iterator

import pytest

from e2e.worker_kit import Server
from postgres_kit import Postgres


@pytest.fixture(scope="session")
def server(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """On PostgreSQL. No test may kill it."""
    server = Server(tmp_path_factory.mktemp("server"), postgres.new_database("workers"))
    server.start()
    yield server
    server.end()
    assert "Traceback" not in server.log()

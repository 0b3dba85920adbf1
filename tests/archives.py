"""Archives for tests, copied from one that has all tables: making them takes longer than most tests."""

import asyncio
import functools
import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest


def new_archive(folder: Path, name: str = "server.db") -> str:
    """The address of an archive in a file; empty, unless the file is there already."""
    if not (folder / name).exists():
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(_template(), folder / name)
    return f"sqlite:///{folder / name}"


@functools.cache
def _template() -> Path:
    from untildone.server.archive.opening import open_archive  # tests/core has no need of a database

    file = Path(tempfile.mkdtemp(prefix="untildone-archive-")) / "server.db"

    async def make() -> None:
        await (await open_archive(f"sqlite:///{file}")).close()

    with ThreadPoolExecutor(1) as thread:  # the test may be one that runs in an event loop
        thread.submit(asyncio.run, make()).result()
    return file


@pytest.fixture(scope="session", autouse=True)
def _template_is_removed() -> Iterator[None]:
    yield
    if _template.cache_info().currsize:
        shutil.rmtree(_template().parent)

"""Servers to be measured, each a process of its own: `python bench/servers.py ours|plain DATABASE_URL`."""

import asyncio
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent


@contextmanager
def server(kind: str, database: str) -> Iterator[tuple[int, int]]:
    """A server at work: its port, and the id of its process."""
    argv = [sys.executable, str(HERE / "servers.py"), kind, database]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline()), process.pid
        finally:
            process.terminate()


async def serve_ours(database: str) -> None:
    """As `untildone serve` does it."""
    from untildone.server.context import ServerSettings
    from untildone.server.running import only_serve
    from untildone.serving import open_server

    settings = ServerSettings(database=database, port=0, local=False)
    with tempfile.TemporaryDirectory(prefix="untildone-bench-") as folder:
        async with open_server(settings, Path(folder)) as ours:
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ours.stop)
            only_serve()
            await ours.serve(lambda: print(ours.url.rpartition(":")[2], flush=True))


def serve_plain(database: str) -> None:
    """With uvicorn at its fastest."""
    import uvicorn

    from plain_server import make_plain_app

    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(make_plain_app(database), log_level="error", access_log=False)
    print(listening.getsockname()[1], flush=True)
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    if sys.argv[1] == "plain":
        serve_plain(sys.argv[2])
    else:
        from untildone.server.running import new_loop

        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(serve_ours(sys.argv[2]))

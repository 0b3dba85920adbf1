"""Going down in order: streams end at once, what was acknowledged is there, and the address is free again."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from pathlib import Path

import pytest

from archives import new_archive
from patience import PATIENCE, eventually
from ports import own_port
from server.sending_kit import batch
from untildone.errors import ServeError
from untildone.server.context import ServerSettings
from untildone.server.running import address
from untildone.serving import open_server

_PROGRAM = textwrap.dedent("""
    import asyncio, signal, sys
    from pathlib import Path
    from untildone.server.context import ServerSettings
    from untildone.server.running import new_loop
    from untildone.serving import open_server

    async def main():
        folder = Path(sys.argv[1])
        settings = ServerSettings(database=sys.argv[3], port=int(sys.argv[2]))
        async with open_server(settings, folder) as server:
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, server.stop)
            await server.serve(lambda: print(server.url, flush=True))

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())
""")


@contextmanager
def process(folder: Path, port: int) -> Iterator[tuple[subprocess.Popen[str], int]]:
    argv = [sys.executable, "-c", _PROGRAM, str(folder), str(port), new_archive(folder)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as one:
        assert one.stdout is not None
        try:
            url = one.stdout.readline()
            assert url.startswith("http://127.0.0.1:"), one.stderr.read() if one.stderr else ""
            yield one, int(url.rpartition(":")[2])
        finally:
            one.kill()


def post(port: int, run_id: str, seqs: range) -> dict[str, int]:
    connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    body = json.dumps(batch(run_id, seqs))
    connection.request("POST", "/api/v1/sandboxes/box/events", body, {"Content-Type": "application/json"})
    answer: dict[str, int] = json.loads(connection.getresponse().read())
    connection.close()
    return answer


def asked(held: ExitStack, port: int, path: str) -> HTTPConnection:
    connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    held.callback(connection.close)
    connection.request("GET", path)
    return connection


def until_waiting(port: int, count: int) -> None:
    """Until so many streams and workers are waiting for something."""

    def are_waiting() -> bool:
        with ExitStack() as held:
            return f"untildone_followers {count}.0" in asked(held, port, "/metrics").getresponse().read().decode()

    eventually(are_waiting)


def test_streams_end_at_once_and_the_process_ends_well(tmp_path: Path) -> None:
    with process(tmp_path, own_port()) as (server, port):
        post(port, "run", range(1, 3))
        with ExitStack() as held:
            streams = [asked(held, port, path) for path in (*["/api/v1/runs/run/stream"] * 10, "/api/v1/stream")]
            held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE))
            for stream in streams:
                assert stream.getresponse().readline() == b": here\n"
            waiting = asked(held, port, "/api/v1/sandboxes/box/runs/run/orders?wait=50")
            until_waiting(port, len(streams) + 1)
            server.send_signal(signal.SIGTERM)
            began = time.monotonic()
            for stream in streams:
                assert stream.sock is not None
                while stream.sock.recv(65536):
                    pass
            assert waiting.getresponse().read() == b"[]"
            # It takes less than a second where nothing else is running; the worker asked to wait for 50.
            assert time.monotonic() - began < 40.0
            assert server.wait(PATIENCE) == 0
        assert server.stderr is not None
        assert server.stderr.read() == ""


def test_what_was_acknowledged_is_there_after_a_kill_and_goes_on(tmp_path: Path) -> None:
    with process(tmp_path, own_port()) as (server, port):
        assert post(port, "run", range(1, 501))["last_seq"] == 500
        server.kill()
        server.wait(PATIENCE)
    with process(tmp_path, port) as (server, same):
        assert same == port
        assert post(port, "run", range(401, 601)) == {"last_seq": 600, "stored": 100, "orders": 0}
        server.send_signal(signal.SIGTERM)
        assert server.wait(PATIENCE) == 0


@pytest.mark.anyio
async def test_an_address_that_cannot_be_had_is_said_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for host, wanted, says in (
            ("127.0.0.1", port, f"cannot listen on 127.0.0.1 port {port}: another program does already"),
            ("no-such-host.invalid", 80, "cannot listen on no-such-host.invalid"),
            ("192.0.2.1", 8642, "cannot listen on 192.0.2.1 port 8642"),
        ):
            settings = ServerSettings(database=new_archive(tmp_path), host=host, port=wanted, local=False)
            async with open_server(settings, tmp_path) as server:
                with pytest.raises(ServeError) as refused:
                    await server.serve(lambda: None)
            assert str(refused.value).startswith(says)
            assert "\n" not in str(refused.value)


@pytest.mark.anyio
async def test_told_to_stop_before_it_began_it_ends(tmp_path: Path) -> None:
    settings = ServerSettings(database=new_archive(tmp_path), port=0)
    async with open_server(settings, tmp_path) as server, asyncio.timeout(PATIENCE):
        server.stop()
        await server.serve(lambda: None)


def test_addresses_are_written_as_browsers_take_them() -> None:
    assert address("127.0.0.1", 1) == "http://127.0.0.1:1"
    assert address("::1", 2) == "http://[::1]:2"
    assert address("0.0.0.0", 3) == "http://127.0.0.1:3"

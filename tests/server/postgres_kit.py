"""A PostgreSQL server of the tests' own, in a folder of its own."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

_STARTING_SECONDS = 60


class PostgresServer:
    """Can be stopped, killed and started again on the same files and the same port."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._data = folder / "data"
        # PostgreSQL does not work for root.
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:
            user = _someone()
            self._as = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
            os.chown(folder, user.pw_uid, user.pw_gid)
        self.port = _free_port()
        self.url = f"postgresql://keeper@127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None
        self._run("initdb", "-D", str(self._data), "-U", "keeper", "-A", "trust", "-E", "UTF8", "--no-locale", "-N")

    def start(self) -> None:
        assert self._process is None
        options = ("-p", str(self.port), "-k", str(self._folder), "-h", "127.0.0.1", "-c", "max_connections=200")
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [_program("postgres"), "-D", str(self._data), *options],
                stdout=log,
                stderr=log,
                cwd=self._folder,
                env=self._environment(),
                **self._as,
            )
        deadline = time.monotonic() + _STARTING_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            if self._run("pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port), check=False) == 0:
                return
            time.sleep(0.05)
        raise AssertionError((self._folder / "log").read_text())

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT ends it properly, SIGQUIT as a crash would."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            process.wait(60)

    def new_database(self, name: str) -> str:
        """Thrown away with everything else in the end."""
        self._run("createdb", "-h", "127.0.0.1", "-p", str(self.port), "-U", "keeper", name)
        return f"{self.url}/{name}"

    def _run(self, program: str, *arguments: str, check: bool = True) -> int:
        done = subprocess.run(
            [_program(program), *arguments],
            capture_output=True,
            cwd=self._folder,
            env=self._environment(),
            check=False,
            timeout=120,
            **self._as,
        )
        assert not check or done.returncode == 0, done.stderr.decode()
        return done.returncode

    def _environment(self) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "HOME": str(self._folder), "LC_ALL": "C"}


def _program(name: str) -> str:
    installed = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda found: int(found.parts[4]))
    found = str(installed[-1]) if installed else shutil.which(name)
    assert found, f"these tests need PostgreSQL: {name} is nowhere"
    return found


def _someone() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise AssertionError("these tests need a user who is not root")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port

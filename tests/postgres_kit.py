"""A PostgreSQL server of the tests' own, in a folder of its own.

All workers share one, which the first that needs it starts and the session's own process ends. Each has databases of
its own there. A test that stops or kills the server starts another one.
"""

import fcntl
import os
import pwd
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from patience import PATIENCE
from ports import own_port

_SHARED = "TEST_POSTGRES"
"""The folder of the server that all workers share."""
_QUICK = ("-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off")
"""Only for a server that no test kills."""


class Postgres:
    """A server that is there, by its port."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.url = f"postgresql://keeper@127.0.0.1:{port}"

    def new_database(self, name: str) -> str:
        """A database of this worker's own, which is thrown away with the server."""
        own = f"{name}_{os.environ.get('PYTEST_XDIST_WORKER', 'alone')}"
        at = ("-h", "127.0.0.1", "-p", str(self.port), "-U", "keeper")
        # The usual template cannot be copied while anybody is connected to it, the server's own vacuum included.
        subprocess.run(
            [_program("createdb"), *at, "-T", "template0", own],
            check=True,
            capture_output=True,
            timeout=PATIENCE,
            cwd="/",
        )
        return f"{self.url}/{own}"


class PostgresServer(Postgres):
    """Can be stopped, killed and started again on the same files and the same port."""

    def __init__(self, folder: Path) -> None:
        super().__init__(own_port())
        self._folder = folder
        self._data = folder / "data"
        # PostgreSQL does not work for root.
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:
            user = _someone()
            self._as = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
            os.chown(folder, user.pw_uid, user.pw_gid)
        if not self._data.exists():
            how = ("-U", "keeper", "-A", "trust", "-E", "UTF8", "--no-locale", "-N")
            self._run("initdb", "-D", str(self._data), *how)

    def start(self, *more: str) -> None:
        """Start it, with more options, and wait until it answers."""
        options = ("-p", str(self.port), "-k", str(self._folder), "-h", "127.0.0.1", "-c", "max_connections=200", *more)
        self._control("start", "-l", str(self._folder / "log"), "-o", shlex.join(options))

    def stop(self, how: str = "fast") -> None:
        """`fast` ends it properly, `immediate` as a crash would."""
        self._control("stop", "-m", how)

    def _control(self, *arguments: str) -> None:
        self._run("pg_ctl", "-w", "-t", str(int(PATIENCE)), "-D", str(self._data), *arguments)

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [_program(program), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd=self._folder,
            env=self._environment(),
            check=False,
            timeout=2 * PATIENCE,
            **self._as,
        )
        assert done.returncode == 0, done.stderr.decode() + self._log()

    def _log(self) -> str:
        log = self._folder / "log"
        return log.read_text() if log.exists() else ""

    def _environment(self) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "HOME": str(self._folder), "LC_ALL": "C"}


@pytest.fixture(scope="session")
def postgres() -> Postgres:
    """The server of all workers; it is started if this is the first that asks."""
    folder = Path(os.environ[_SHARED])
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "port").exists():
            own = folder / "server"
            own.mkdir()
            server = PostgresServer(own)
            server.start(*_QUICK)
            (folder / "port").write_text(str(server.port))
    return Postgres(int((folder / "port").read_text()))


def pytest_configure(config: pytest.Config) -> None:
    if _SHARED in os.environ:  # of the process that started this one
        return
    # Not in pytest's own folder: only its owner may enter that, and PostgreSQL runs as another user.
    folder = Path(tempfile.mkdtemp(prefix="untildone-pg-"))
    folder.chmod(0o755)
    os.environ[_SHARED] = str(folder)
    config.add_cleanup(lambda: _end_shared(folder))


def _end_shared(folder: Path) -> None:
    del os.environ[_SHARED]
    if (folder / "port").exists():
        PostgresServer(folder / "server").stop("immediate")
    shutil.rmtree(folder)


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

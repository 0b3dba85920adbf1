"""A PostgreSQL of its own, with its usual settings, gone afterwards."""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

_BEHIND_ROOT = ("postgres", "nobody")
"""PostgreSQL refuses to run as root: then it runs as the first of these."""


@contextmanager
def postgres() -> Iterator[str]:
    """The URL of a database; LookupError where PostgreSQL is not installed."""
    programs = _programs()
    user = _user()
    folder = Path(tempfile.mkdtemp(prefix="untildone-bench-"))
    try:
        if user is not None:
            os.chown(folder, user.pw_uid, user.pw_gid)
        data, port = folder / "data", _free_port()
        _run([programs / "initdb", "-D", data, "-U", "bench", "-A", "trust", "-E", "UTF8", "--no-locale"], user)
        settings = f"-c listen_addresses=127.0.0.1 -c port={port} -c unix_socket_directories={folder}"
        control: list[str | Path] = [programs / "pg_ctl", "-D", data, "-w"]
        _run([*control, "-l", folder / "log", "-o", settings, "start"], user)
        try:
            yield f"postgresql://bench@127.0.0.1:{port}/postgres"
        finally:
            _run([*control, "-m", "immediate", "stop"], user)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _programs() -> Path:
    places = [*sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)]
    on_path = shutil.which("initdb")
    if on_path:
        places.insert(0, Path(on_path).parent)
    for place in places:
        if (place / "pg_ctl").exists() and (place / "initdb").exists():
            return place
    raise LookupError("PostgreSQL is not installed: there is no initdb")


def _user() -> pwd.struct_passwd | None:
    if os.geteuid() != 0:
        return None
    for name in _BEHIND_ROOT:
        with suppress(KeyError):
            return pwd.getpwnam(name)
    raise LookupError("PostgreSQL does not run as root, and there is nobody else")


def _run(argv: Sequence[str | Path], user: pwd.struct_passwd | None) -> None:
    who: dict[str, Any] = {} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    subprocess.run(argv, check=True, cwd="/", timeout=60, stdout=subprocess.DEVNULL, env=_ENV, **who)


_ENV = {"PATH": os.defpath, "LC_ALL": "C"}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port

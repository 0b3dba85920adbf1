"""How long a program takes. With a timeout `subprocess` polls, in steps that double: 16 ms, 32 ms, nothing between."""

import subprocess
import time
from collections.abc import Mapping, Sequence
from threading import Timer

PATIENCE = 300.0


def seconds_of(argv: Sequence[str], *, env: Mapping[str, str] | None = None, given: bytes = b"") -> float:
    """Run a program to its end, which must be a good one."""
    began = time.perf_counter()
    with subprocess.Popen(argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        guard = Timer(PATIENCE, process.kill)
        guard.start()
        process.communicate(given)
        took = time.perf_counter() - began
        guard.cancel()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, list(argv))
    return took

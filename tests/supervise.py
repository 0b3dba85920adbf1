"""Runs a test worker and adopts the processes that its tests leave behind: `python supervise.py ARGS...`

On Linux an orphan goes to the nearest "subreaper" above it. Without this process that is the machine's first process,
where no test finds the orphan again. Here `leaks.py` finds it and names the test that left it.
"""

import ctypes
import os
import signal
import subprocess
import sys

PR_SET_CHILD_SUBREAPER = 36


def main() -> int:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    # Ctrl+C reaches the worker too, and the worker ends in order.
    signal.signal(signal.SIGINT, lambda *_: None)
    env = {**os.environ, "TEST_SUPERVISOR": str(os.getpid())}
    worker = subprocess.Popen([sys.executable, *sys.argv[1:]], env=env)
    while True:
        pid, status = os.wait()  # orphans as well: a dead one must not look alive to the test that waits for its end
        if pid == worker.pid:
            worker.returncode = os.waitstatus_to_exitcode(status)
            return worker.returncode if worker.returncode >= 0 else 128 - worker.returncode


if __name__ == "__main__":
    sys.exit(main())

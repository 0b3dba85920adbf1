"""As the first process of a container: a child does the work, and what lost its parent is reaped."""

import os
import signal
from collections.abc import Collection

from untildone.sandbox.guard import reap

_FROM_THE_TERMINAL = 128
"""SI_KERNEL: a signal that the terminal sent to the whole process group, so that the child has it already."""


def work_in_a_child() -> None:
    """Return in a child. The first process passes signals on to it, reaps, and ends with the child's exit code.

    Processes that lost their parent become children of the first process. Without this they would stay as zombies,
    because a run only waits for the programs that it has started itself.
    """
    signals = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return
    os._exit(_exit_code_of(child, signals))


def _exit_code_of(child: int, signals: Collection[int]) -> int:
    """Wait until the child has ended; its exit code, as a shell has it."""
    while True:
        told = signal.sigwaitinfo(signals)
        if told.si_signo != signal.SIGCHLD:
            if told.si_code != _FROM_THE_TERMINAL:
                os.kill(child, told.si_signo)
        elif (status := reap(child)) is not None:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code

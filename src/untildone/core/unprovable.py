"""What is wrong with a contract before any work is done: checks that could never prove anything are worth no money."""

import re
from collections.abc import Sequence

from untildone.core.outcome import CheckResult
from untildone.core.printable import one_line

SETUP = "setup"
"""What the preparing command is called among the results when it fails."""
_SAID = 200
_NO_PROGRAM = frozenset({126, 127})
_MISSING = re.compile(
    r"(?:^|[\s:])([^\s:]+): (?:command not found|not found|Permission denied|cannot execute|No such file)"
)
_DROP = "or leave the check out: nothing could ever be proven by it"


def cannot_run(results: Sequence[CheckResult]) -> str:
    """Why the checks cannot be run at all in a fresh checkout; "" when they can."""
    for result in results:
        if result.name == SETUP and not result.passed and result.command:
            how = "did not end in time" if result.exit_code is None else f"exit {result.exit_code}"
            said = last_line(result)
            return (
                f"the setup fails in a fresh checkout ({how}{f': {said}' if said else ''}), so no check can be run "
                f"there: fix `{one_line(result.command, _SAID)}` or give another --setup"
            )
    lost = next((result for result in results if not result.ran), None)
    if lost is None:
        return ""
    said = one_line(lost.output_tail.strip().removeprefix("not run: "), 2 * _SAID)
    said = "a fresh checkout does not have what it needs" if lost.hidden else said
    return f"`{one_line(lost.name, _SAID)}` cannot be run: {said}; fix that, {_DROP}"


def has_no_program(results: Sequence[CheckResult]) -> str:
    """Why a check cannot be run: a program it names is not on this machine; "" when all are there.

    A path inside of the project is left alone: that program may be what the run is to make.
    """
    for result in results:
        if result.passed or not result.ran or result.exit_code not in _NO_PROGRAM:
            continue
        for program in _MISSING.findall(result.output_tail[-4000:]):
            words = result.command.replace(";", " ").replace("(", " ").split()
            if program in words and ("/" not in program or program.startswith("/")):
                what = "a program of it" if result.hidden else f"`{one_line(program, _SAID)}`"
                return (
                    f"`{one_line(result.name, _SAID)}` cannot be run (exit {result.exit_code}): {what} is not found; "
                    f"install it, say how with --setup, {_DROP}"
                )
    return ""


def last_line(result: CheckResult) -> str:
    """The last thing a failed check said, if it may be told."""
    if result.passed or result.hidden:
        return ""
    lines = result.output_tail.strip().splitlines()
    return one_line(lines[-1], _SAID) if lines else ""

"""Started by `run.sh` at every hook of Claude Code: one JSON object in, at most one out, never trouble for the user.

This file alone must be readable for any Python 3, so that an old one gets a clear line instead of a traceback.
"""

import sys

OLDEST = (3, 11)
_TELLS = ("SessionStart", "UserPromptExpansion")  # where a line for the user is welcome, and comes once
_AGENT = "agent"  # not an event: `bin/untildone` calls this


def main(argv):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201 readable for any Python 3
    """Make the folder above this one the package `untildone`, whatever its name is, and answer."""
    event = argv[1] if len(argv) > 1 else ""
    if sys.version_info < OLDEST:
        if event in _TELLS:
            found = "%d.%d" % sys.version_info[:2]  # noqa: UP031 readable for any Python 3
            wanted = "untildone: python3 is " + found + " here and has to be 3.11 or newer: its loops do not work"
            sys.stdout.write('{"systemMessage": "' + wanted + ' until then"}\n')
        elif event == _AGENT:
            sys.exit("untildone: python3 has to be 3.11 or newer")
        return
    here = __file__.rpartition("/")[0] or "."
    package = type(sys)("untildone")
    package.__path__ = [here.rpartition("/")[0] or ".."]
    sys.modules["untildone"] = package
    if event == _AGENT:
        from untildone.hook import agent

        sys.exit(agent.main(argv[2:]))
    from untildone.hook.answering import answer_hook

    answer_hook(event)
    from os import _exit

    _exit(0)  # everything is written: to take Python down in good order would only take time


if __name__ == "__main__":
    main(sys.argv)  # type: ignore[no-untyped-call]

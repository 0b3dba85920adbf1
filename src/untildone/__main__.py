"""The command `untildone`."""

import gc
import os
import sys


def main() -> None:
    """Answer the version at once; everything else is the command line's business."""
    if sys.argv[1:] == ["--version"]:
        from untildone import __version__

        print(f"untildone {__version__}")  # noqa: T201 -- this is what the command is for
        return
    if os.getpid() == 1:
        from untildone.cli.first_process import work_in_a_child

        work_in_a_child()
    # What a start makes stays: to look for garbage in it, now and once more at the end, is a fifth of a short command.
    gc.disable()
    try:
        from untildone.cli.app import entry

        code = entry(sys.argv[1:])
    except KeyboardInterrupt:
        # So early, or so late, that nothing else was there to answer it.
        code = 130
    gc.freeze()
    sys.exit(code)


if __name__ == "__main__":
    main()

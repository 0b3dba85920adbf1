"""Runs a command in a container that is there, in the folder and with the environment it is started with.

Run as `python3 -I -S enter_container.py ENGINE CONTAINER [NAME=VALUE ...] -- program arguments...`: the values are the
engine's own settings, and reach the engine alone. It stands before every command of the loop, so it loads nothing.
"""

import os
import sys


def main(arguments: list[str]) -> None:
    """Become the engine's client."""
    separator = arguments.index("--")
    engine, container, *settings = arguments[:separator]
    own = dict(setting.split("=", 1) for setting in settings)
    # PATH is the image's: that is where its programs are.
    named = [f"--env={name}" for name in os.environ if name != "PATH" and name not in own]
    flags = ["exec", "--interactive", f"--workdir={os.getcwd()}", *named]  # noqa: PTH109 - loads nothing
    os.execve(engine, [engine, *flags, container, *arguments[separator + 1 :]], {**os.environ, **own})  # noqa: S606


if __name__ == "__main__":
    main(sys.argv[1:])

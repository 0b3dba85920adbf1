"""What an agent may call where only the plugin is, and not the whole program: `untildone task …`, `untildone ask …`."""

import os
import sys
import time

from untildone.core.printable import printable
from untildone.errors import UntildoneError, UsageError
from untildone.hook.asking import ask, open_questions
from untildone.hook.places import state_home
from untildone.hook.task_command import project_above, run_task

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MORE = "the rest of its commands come with `pip install untildone`"


def main(argv: "Sequence[str]") -> int:
    """Do what was typed; an exit code, and at most one line of error."""
    try:
        said = answer(argv, os.environ, time.time())  # noqa: TID251 the edge: one moment, written down
        sys.stdout.write(printable(said, lines=True) + "\n")
        sys.stdout.flush()
    except UntildoneError as trouble:
        sys.stderr.write(f"untildone: {printable(str(trouble))}\n")
        return trouble.exit_code
    except SystemExit as shown:  # the help was printed
        return shown.code if isinstance(shown.code, int) else 0
    except OSError as trouble:
        sys.stderr.write(f"untildone: {printable(str(trouble))}\n")
        return 1
    return 0


def answer(argv: "Sequence[str]", env: "Mapping[str, str]", now: float) -> str:
    """What there is to say. UsageError for what only the whole program can do."""
    name = argv[0] if argv else ""
    if name == "task":
        return run_task(argv[1:] or ("--help",), env, now)
    if name != "ask":
        raise UsageError(f"the plugin knows `untildone task` and `untildone ask`: {_MORE}")
    home, project = state_home(env), project_above(env.get("CLAUDE_PROJECT_DIR") or os.getcwd())
    return ask(home, project, " ".join(argv[1:]), now, by="agent") if argv[1:] else open_questions(home, project)

"""Where things lie: in the project, for people to see and edit; in the state folder, for what must be believed."""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

LOOP = ".untildone/loop.md"
TASKS = ".untildone/tasks.db"
CONTINUATION = ".stravinsky/continuation-loop.md"
AUTONOMOUS = ".multi-agent/autonomous-mode"
TODOS = ".claude/todo_state.json"
DEVTEAM = ".devteam/devteam.db"


def state_home(env: "Mapping[str, str]") -> str:
    """The folder of everything untildone keeps for this user; the same that `untildone config` shows as `store`."""
    for name in ("UNTILDONE_STORE", "UNTILDONE_HOME"):
        if env.get(name):
            return os.path.abspath(os.path.expanduser(env[name]))
    base = env.get("XDG_STATE_HOME") or ""
    if not base.startswith("/"):
        base = os.path.join(env.get("HOME") or os.path.expanduser("~"), ".local/state")
    return os.path.join(base, "untildone")


def project_of(event: "Mapping[str, object]", env: "Mapping[str, str]") -> str:
    """The project of a session. Its working folder may wander; the folder it was started in does not."""
    cwd = event.get("cwd")
    return os.path.realpath(env.get("CLAUDE_PROJECT_DIR") or (cwd if isinstance(cwd, str) and cwd else "."))

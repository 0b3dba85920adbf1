"""The environment an agent's process is started with."""

from collections.abc import Collection, Mapping

RUN_MARKER = "UNTILDONE_RUN"
STORE_MARKER = "UNTILDONE_STORE"

# A session inside a session must not take itself for its parent.
_OF_ANOTHER_SESSION = frozenset({
    "CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_SESSION_ID", "CLAUDE_CODE_SESSION_ATTENDED",
    "CLAUDE_CODE_SSE_PORT", "CLAUDE_AGENT_SDK_VERSION", "CLAUDE_ENV_FILE", "CLAUDE_PID", "CLAUDE_PLUGIN_DATA",
    "CLAUDE_PLUGIN_ROOT", "CLAUDE_PROJECT_DIR",
})  # fmt: skip

# The loop decides how long to wait for the API; Claude Code alone would retry for three minutes. With the watchdog it
# announces any `retry-after`; without, it gives up on one of a minute or more and never tells the number.
_UNLESS_SET = {"CLAUDE_CODE_MAX_RETRIES": "2", "CLAUDE_CODE_RETRY_WATCHDOG": "1"}


def agent_environment(
    base: Mapping[str, str],
    *,
    run_id: str,
    skip_permissions: bool = False,
    is_root: bool = False,
    config_dir: str | None = None,
    store: str | None = None,
    withheld: Collection[str] = (),
) -> dict[str, str]:
    """Return the user's environment as an agent of this run should see it; `config_dir`: a configuration of its own.

    With `store` a look at the run from inside, and what is refused there, reaches the store the run is in. `withheld`:
    variables it does not get.
    """
    env = {
        name: value
        for name, value in base.items()
        if name not in _OF_ANOTHER_SESSION and name not in withheld and not name.startswith("UNTILDONE_")
    }
    for name, value in _UNLESS_SET.items():
        env.setdefault(name, value)
    if config_dir is not None:
        env["CLAUDE_CONFIG_DIR"] = config_dir
    if store is not None:
        env[STORE_MARKER] = store
    if skip_permissions and is_root:
        # Claude Code refuses to skip permissions as root unless told that the machine is made for it.
        env.setdefault("IS_SANDBOX", "1")
    return env | {RUN_MARKER: run_id, "CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS": "1"}

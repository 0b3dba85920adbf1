"""The environment a rehearsed Claude Code runs in: nothing of the person's own login, settings or shell."""

from pathlib import Path

DUMMY_KEY = "rehearsal-not-a-key"
DUMMY_TOKEN = "rehearsal-not-a-token"  # noqa: S105 made up, and it says so


def claude_environment(home: Path, url: str, *, path: str = "/usr/local/bin:/usr/bin:/bin") -> dict[str, str]:
    """All variables for a Claude Code that talks to the scripted model at `url` and keeps its files in `home`."""
    return {
        "HOME": str(home),
        "CLAUDE_CONFIG_DIR": str(home / ".claude"),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_STATE_HOME": str(home / ".local/state"),
        "PATH": path,
        "TERM": "dumb",
        "LANG": "C.UTF-8",
        "IS_SANDBOX": "1",
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": DUMMY_KEY,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "GIT_CONFIG_GLOBAL": str(home / ".gitconfig"),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_AUTHOR_NAME": "untildone rehearsal",
        "GIT_AUTHOR_EMAIL": "rehearsal@localhost",
        "GIT_COMMITTER_NAME": "untildone rehearsal",
        "GIT_COMMITTER_EMAIL": "rehearsal@localhost",
        "NO_PROXY": "127.0.0.1,localhost",
    }


def as_subscriber(env: dict[str, str]) -> dict[str, str]:
    """The same with a made-up login instead of a key: only where nothing but loopback can be reached."""
    return {name: value for name, value in env.items() if name != "ANTHROPIC_API_KEY"} | {
        "CLAUDE_CODE_OAUTH_TOKEN": DUMMY_TOKEN
    }

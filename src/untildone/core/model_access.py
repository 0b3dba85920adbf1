"""How an agent in a sandbox gets at the model: with a key that stays outside, or with a login that is lent to it."""

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

from untildone.core.dataclass import dataclass
from untildone.core.door import Way, host_of, is_loopback, model_way

KEY = "ANTHROPIC_API_KEY"
TOKEN = "ANTHROPIC_AUTH_TOKEN"  # noqa: S105 - a name
LOGIN = "CLAUDE_CODE_OAUTH_TOKEN"
ADDRESS = "ANTHROPIC_BASE_URL"
HEADERS = "ANTHROPIC_CUSTOM_HEADERS"
PLACEHOLDER = "kept-outside-of-the-sandbox"
MODEL_ADDRESS = "https://api.anthropic.com"
LOGIN_HOSTS = ("api.anthropic.com", "platform.claude.com", "console.anthropic.com", "claude.ai")
"""What Claude Code speaks to with a subscription's login: the model, and who renews the login."""
NO_LOGIN = "there is no key and no login"
_OTHER_CLOUDS = "CLAUDE_CODE_USE_"
_HELPERS = ("apiKeyHelper", "awsAuthRefresh", "awsCredentialExport", "otelHeadersHelper")
"""Settings that name a program which prints a secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAccess:
    """How it gets there."""

    kind: Literal["key", "login", "neither"]
    """`login`: its file is lent to the agent; what it says passes unread."""
    way: Way | None = None
    said: str = ""
    """Why there is neither."""
    env: Mapping[str, str] = field(default_factory=dict)
    """What the agent is told of a login."""
    gateway: str = ""
    """The host that a login goes through, as a rule names it; "" for Anthropic's own."""

    @property
    def hosts(self) -> tuple[str, ...]:
        """What must be reached besides the way."""
        return (*LOGIN_HOSTS, *([self.gateway] if self.gateway else [])) if self.kind == "login" else ()


NO_MODEL = ModelAccess(kind="neither", said="what checks work has no use for a model")


def model_access(env: Mapping[str, str], settings: Mapping[str, Any], *, has_login: bool) -> ModelAccess:
    """What the user's environment and settings of Claude Code give; `has_login`: there is a file with one."""
    given = {**env, **settings_env(settings)}
    cloud = next((name for name, value in given.items() if name.startswith(_OTHER_CLOUDS) and value), None)
    if cloud is not None:
        return ModelAccess(kind="neither", said=f"{cloud} is set, and that cloud's login cannot be kept outside")
    helper = next((name for name in _HELPERS if settings.get(name)), None)
    adds = _headers(given.get(HEADERS, ""))
    if given.get(TOKEN):
        adds.append(("authorization", f"Bearer {given[TOKEN]}"))
    elif given.get(KEY):
        adds.append(("x-api-key", given[KEY]))
    elif helper is not None:
        return ModelAccess(kind="neither", said=f"the key comes from the program that `{helper}` names")
    elif has_login or given.get(LOGIN):
        return _login_access(given)
    else:
        return ModelAccess(kind="neither", said=NO_LOGIN)
    return ModelAccess(kind="key", way=model_way(given.get(ADDRESS) or MODEL_ADDRESS, adds))


def _login_access(given: Mapping[str, str]) -> ModelAccess:
    gateway = host_of(given[ADDRESS]) if given.get(ADDRESS) else ""
    if is_loopback(gateway):
        said = f"the login goes through a gateway on this machine ({ADDRESS}), which is not reached from inside"
        return ModelAccess(kind="neither", said=said)
    return ModelAccess(
        kind="login", env={name: given[name] for name in (LOGIN, ADDRESS) if given.get(name)}, gateway=gateway
    )


def _headers(text: str) -> list[tuple[str, str]]:
    pairs = (line.partition(":") for line in text.splitlines())
    return [(name.strip().lower(), value.strip()) for name, colon, value in pairs if colon and name.strip()]


def settings_env(settings: Mapping[str, Any]) -> dict[str, str]:
    """The variables that Claude Code's settings set."""
    found = settings.get("env")
    return {str(name): str(value) for name, value in found.items()} if isinstance(found, Mapping) else {}


def settings_inside(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The user's settings as they are seen inside: without keys, and without programs that print some."""
    kept = {name: value for name, value in settings.items() if name not in (*_HELPERS, "env")}
    env = {name: value for name, value in settings_env(settings).items() if may_be_seen(name, value)}
    return kept | ({"env": env} if env else {})


# --- the environment ------------------------------------------------------------------------------

_PLAIN = frozenset(
    {
        "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TERM", "COLORTERM", "NO_COLOR", "CI",
        "IS_SANDBOX", "UNTILDONE_RUN", "UNTILDONE_STORE", "EMAIL", "GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL",
        "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL",
    }
)  # fmt: skip
_OF_CLAUDE = ("LC_", "CLAUDE_", "ANTHROPIC_", "DISABLE_", "BASH_", "MAX_", "MCP_")
_SECRET = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD", "_PASSPHRASE", "_HEADERS", "_CREDENTIALS")
_HELD_OUTSIDE = frozenset({ADDRESS})


def may_be_seen(name: str, value: str) -> bool:
    """Whether a variable reaches the agent unasked: what tells about places, language and Claude Code, and no secret.

    A variable of places is a list of absolute paths: it says where something is, and most of it is not there inside.
    """
    if name in _HELD_OUTSIDE or name.upper().endswith(_SECRET):
        return False
    places = [place for place in value.split(":") if place]
    return name in _PLAIN or name.startswith(_OF_CLAUDE) or (bool(places) and all(p.startswith("/") for p in places))


def environment_inside(
    env: Mapping[str, str], access: ModelAccess, *, port: int, passed: tuple[str, ...] = ()
) -> dict[str, str]:
    """What an agent in a sandbox has for an environment; `passed`: names that the user lets through."""
    seen = {name: value for name, value in env.items() if name in passed or may_be_seen(name, value)}
    door = f"http://127.0.0.1:{port}"
    proxies = {name: door for word in ("HTTP_PROXY", "HTTPS_PROXY") for name in (word, word.lower())}
    own = dict.fromkeys(("NO_PROXY", "no_proxy"), "localhost,127.0.0.1,::1")
    model = {ADDRESS: door, KEY: PLACEHOLDER} if access.kind == "key" else access.env
    return {**seen, **proxies, **own, **model} | {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "TMPDIR": "/tmp"}  # noqa: S108

"""The user's own list of what agents may not, or may, run: `[hook]` in their settings file, never in a repository's."""

import os

from untildone.hook import plain_json
from untildone.hook.files import append_line, read_bytes, read_text, write_text
from untildone.hook.protecting import own_settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_KEPT = "hook-rules.json"


class Rules:
    """Patterns in which `*` is anything."""

    __slots__ = ("allow", "deny")

    def __init__(self, value: object) -> None:
        table = value if isinstance(value, dict) else {}
        self.deny = _patterns(table.get("deny"))
        self.allow = _patterns(table.get("allow"))


def own_rules(home: str, env: "Mapping[str, str]") -> Rules:
    """What stands in the settings file. Reading TOML takes long, so it is read once for each version of the file."""
    path = own_settings(env)
    try:
        known = os.stat(path)
    except OSError:
        return Rules(None)
    version = f"{known.st_mtime_ns} {known.st_size} {known.st_ino}"
    kept = _kept(home)
    if kept.get("version") == version and kept.get("file") == path:
        return Rules(kept)
    rules = Rules(_table(path, home))
    written = {"file": path, "version": version, "deny": list(rules.deny), "allow": list(rules.allow)}
    write_text(os.path.join(home, _KEPT), plain_json.render(written), private=True)
    return rules


def _kept(home: str) -> "dict[str, object]":
    try:
        kept = plain_json.parse(read_text(os.path.join(home, _KEPT)) or "")
    except ValueError:
        return {}
    return kept if isinstance(kept, dict) else {}


def _table(path: str, home: str) -> object:
    import tomllib

    try:
        return tomllib.loads((read_bytes(path) or b"").decode("utf-8")).get("hook")
    except (ValueError, RecursionError) as wrong:
        append_line(os.path.join(home, "hook.log"), f"{path} cannot be read, its [hook] does not count: {wrong}")
        return None


def _patterns(value: object) -> tuple[str, ...]:
    return tuple(item for item in value if isinstance(item, str) and item.strip()) if isinstance(value, list) else ()

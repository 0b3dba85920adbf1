"""Where a database is, in words that everybody may read: no login, and nothing that could be a part of one."""

from untildone.core.printable import one_line

UNSAFE = frozenset("?#/[]")
"""In a login these end it for whoever reads a URL: the rest of a password would be taken for a host."""


def shown_place(url: str) -> str:
    """The URL of a database without user, password and options."""
    kind, _, rest = url.partition("://")
    login, _, place = rest.rpartition("@")
    if kind == "sqlite":
        return rest.removeprefix("/")
    if "?" in login or "#" in login:  # where the options begin cannot be told
        return f"{kind}://..."
    return one_line(f"{kind}://{place.partition('?')[0].partition('#')[0]}")


def has_unsafe_login(url: str) -> bool:
    """Whether a password has letters in it that must be written another way."""
    login = url.partition("://")[2].rpartition("@")[0]
    return not UNSAFE.isdisjoint(login) or "@" in login

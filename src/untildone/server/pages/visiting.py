"""Who looks at a page, and what every page needs of them."""

from untildone.core.dataclass import dataclass
from untildone.server.access import Principal


@dataclass(frozen=True, slots=True, kw_only=True)
class Visitor:
    """Whoever looks."""

    operator: bool
    """Whether to offer what steers: of a browser, the proof decides when it is pressed."""
    cookie: bool


def visitor_of(principal: Principal) -> Visitor:
    """What a page knows of whoever looks at it."""
    return Visitor(operator=principal.scope == "operator" or principal.unproven, cookie=principal.via == "cookie")

"""Why work does not land, for people: what the agent is told about it is an order to the agent."""

import re

from untildone.core.landing_events import RejectionCause
from untildone.core.printable import one_line

_SAID = 300
_NAMED = 5
_NAME = 120
# As `check_feedback` writes it; what stands in a fence is what a check printed.
_FENCED = re.compile(r"^(`{3,})\n.*?^\1$", re.MULTILINE | re.DOTALL)
_CHECK = re.compile(
    r"^(?:Check failed(?: \([^)\n]*\))?|Check that could not be run|Condition that does not hold): (.+)$", re.MULTILINE
)


def for_people(cause: RejectionCause, detail: str) -> str:
    """What is wrong, in a line: which checks, which files, which pull request."""
    if cause == "checks":
        names = [one_line(name, _NAME) for name in _CHECK.findall(_FENCED.sub("", detail))]
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        named = f": {', '.join(names[:_NAMED])}{more}" if names else ", or could not be run there"
        return one_line(f"the checks fail together with the base{named}", _SAID)
    sentence = detail.strip().partition("\n")[0].partition(". ")[0]
    return one_line(sentence, _SAID) or cause.replace("_", " ")

"""Why an iteration failed, as one named cause, and what is done about each.

One table, from name to policy. Judged from structured evidence; prose only where no field exists.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from untildone.core.outcome import FaultEvidence


class Remedy(StrEnum):
    """What the loop does about a fault."""

    WAIT = "wait until the stated moment, then go on in the same session; costs no attempt"
    BACK_OFF = "back off with growing pauses, then go on in the same session; costs no attempt"
    STOP = "stop at once, resumably, naming the fix"
    COUNT = "count it; too many in a row stop the run"
    EXCUSE = "nobody's fault: not counted"


@dataclass(frozen=True, slots=True)
class Fault:
    """A named cause of failure."""

    name: str
    remedy: Remedy
    meaning: str


USAGE_LIMIT = Fault("usage_limit", Remedy.WAIT, "the subscription's 5-hour or weekly limit is used up")
RATE_LIMIT = Fault("rate_limit", Remedy.BACK_OFF, "the API answered 429: too many requests")
OVERLOADED = Fault("overloaded", Remedy.BACK_OFF, "the API answered 529: overloaded")
SERVER_ERROR = Fault("server_error", Remedy.BACK_OFF, "the API answered with a server error (5xx)")
NETWORK = Fault("network", Remedy.BACK_OFF, "the API could not be reached or the stream broke off")
AUTHENTICATION = Fault("authentication", Remedy.STOP, "the login or key was refused (401, 403)")
BILLING = Fault("billing", Remedy.STOP, "the account has no credit or is on hold")
MODEL_NOT_FOUND = Fault("model_not_found", Remedy.STOP, "the model does not exist or is not allowed")
CONTEXT_TOO_LONG = Fault("context_too_long", Remedy.COUNT, "the context did not fit; the next one is fresh")
TURNS_EXHAUSTED = Fault("turns_exhausted", Remedy.COUNT, "the iteration used up its turns and changed nothing")
BUDGET_EXHAUSTED = Fault("budget_exhausted", Remedy.COUNT, "Claude's own budget fence ended the iteration")
REFUSAL = Fault("refusal", Remedy.COUNT, "the model refused to answer")
INVALID_REQUEST = Fault("invalid_request", Remedy.COUNT, "the API rejected the request")
MODEL_ERROR = Fault("model_error", Remedy.COUNT, "the model ended in an error")
NO_RESULT = Fault("no_result", Remedy.COUNT, "the agent ended without a result line, or with a broken one")
CRASH = Fault("crash", Remedy.COUNT, "the agent's process died")
TIMEOUT = Fault("timeout", Remedy.COUNT, "the iteration took longer than --timeout and changed nothing")
HANG = Fault("hang", Remedy.COUNT, "the agent showed no sign of life for too long")
OUT_OF_MEMORY = Fault("out_of_memory", Remedy.COUNT, "the system killed the agent, most likely for want of memory")
DISK_FULL = Fault("disk_full", Remedy.COUNT, "the disk is full")
QUOTA_KEPT = Fault("quota_kept", Remedy.EXCUSE, "the share of the subscription that the human keeps was reached")
DRIVER_DIED = Fault("driver_died", Remedy.EXCUSE, "the loop itself was killed or the machine went down")
SURROUNDINGS = Fault("surroundings", Remedy.EXCUSE, "git, the folder or the agent's program failed")
STOPPED = Fault("stopped", Remedy.EXCUSE, "a human stopped the run in mid-iteration")
PAUSED = Fault("paused", Remedy.EXCUSE, "a human paused the run in mid-iteration")
STEERED = Fault("steered", Remedy.EXCUSE, "an urgent message interrupted the iteration")
LIMIT_REACHED = Fault("limit_reached", Remedy.EXCUSE, "a limit was reached in mid-iteration")

FAULTS: dict[str, Fault] = {
    fault.name: fault
    for fault in (
        USAGE_LIMIT, RATE_LIMIT, OVERLOADED, SERVER_ERROR, NETWORK, AUTHENTICATION, BILLING, MODEL_NOT_FOUND,
        CONTEXT_TOO_LONG, TURNS_EXHAUSTED, BUDGET_EXHAUSTED, REFUSAL, INVALID_REQUEST, MODEL_ERROR, NO_RESULT,
        CRASH, OUT_OF_MEMORY, DISK_FULL, HANG, TIMEOUT, QUOTA_KEPT, DRIVER_DIED, STOPPED, PAUSED, STEERED,
        LIMIT_REACHED, SURROUNDINGS,
    )
}  # fmt: skip

FORBIDDEN_CODES = (401, 403)
LOGIN_ERRORS = frozenset({"authentication_failed", "oauth_org_not_allowed", "verification_required"})

# First match wins, most specific evidence first.
_RULES: tuple[tuple[Fault, Callable[[FaultEvidence], bool]], ...] = (
    (USAGE_LIMIT, lambda e: e.api_error == "usage_limit_reached" or e.resets_at is not None),
    (BUDGET_EXHAUSTED, lambda e: e.terminal_reason == "budget_exhausted" or e.subtype == "error_max_budget_usd"),
    (TURNS_EXHAUSTED, lambda e: e.terminal_reason == "max_turns" or e.subtype == "error_max_turns"),
    (CONTEXT_TOO_LONG, lambda e: e.terminal_reason in {"prompt_too_long", "image_error", "rapid_refill_breaker"}),
    (CONTEXT_TOO_LONG, lambda e: e.api_error_status == 413),
    (BILLING, lambda e: e.api_error in {"billing_error", "account_on_hold"}),
    (AUTHENTICATION, lambda e: e.api_error_status in FORBIDDEN_CODES),
    (AUTHENTICATION, lambda e: e.api_error in LOGIN_ERRORS),
    (MODEL_NOT_FOUND, lambda e: e.api_error == "model_not_found" or e.api_error_status == 404),
    (RATE_LIMIT, lambda e: e.api_error_status == 429 or e.api_error == "rate_limit"),
    (OVERLOADED, lambda e: e.api_error_status == 529 or e.api_error == "overloaded"),
    (SERVER_ERROR, lambda e: (e.api_error_status or 0) >= 500 or e.api_error == "server_error"),
    (REFUSAL, lambda e: e.stop_reason == "refusal"),
    (MODEL_ERROR, lambda e: e.api_error == "max_output_tokens" or e.terminal_reason == "model_error"),
    (INVALID_REQUEST, lambda e: e.api_error_status == 400 or e.api_error == "invalid_request"),
    (CRASH, lambda e: not e.has_result and (e.signal is not None or (e.exit_code or 0) > 128)),
    (NO_RESULT, lambda e: not e.has_result),
    (
        NETWORK,
        lambda e: e.terminal_reason == "api_error" and e.api_error_status is None and e.stop_reason != "max_tokens",
    ),
    (MODEL_ERROR, lambda _: True),
)


def classify(evidence: FaultEvidence) -> Fault:
    """Name the cause of a failed iteration."""
    return next(fault for fault, holds in _RULES if holds(evidence))

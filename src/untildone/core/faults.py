"""Why an iteration failed, as one named cause, and what is done about each.

One table, from evidence to name to remedy. Judged from structured evidence; prose only where no field exists.
"""

import re
from collections.abc import Callable
from enum import StrEnum

from untildone.core.dataclass import dataclass
from untildone.core.outcome import FaultEvidence
from untildone.core.wording import tells_usage_limit


class Remedy(StrEnum):
    """What the loop does about a fault."""

    WAIT = "wait until the stated moment, then go on in the same session; costs no attempt"
    BACK_OFF = "back off with growing pauses, then go on in the same session; costs no attempt"
    STOP = "stop at once, resumably, naming the fix"
    COUNT = "count it; too many in a row stop the run"
    EXCUSE = "not a failure: not counted"


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
LOGIN_REPLACED = Fault(
    "login_replaced",
    Remedy.BACK_OFF,
    "the login was refused, and has been renewed elsewhere: the next try has the new one",
)
SESSION_LOST = Fault(
    "session_lost", Remedy.BACK_OFF, "the session to continue is gone; the next try starts a fresh one"
)
CRASH = Fault("crash", Remedy.COUNT, "the agent's process died")
TIMEOUT = Fault("timeout", Remedy.COUNT, "the iteration took longer than --timeout and changed nothing")
HANG = Fault("hang", Remedy.COUNT, "the agent showed no sign of life for too long")
OUT_OF_MEMORY = Fault("out_of_memory", Remedy.COUNT, "the system killed the agent for want of memory")
DISK_FULL = Fault("disk_full", Remedy.COUNT, "the disk is full")
DISK_LOW = Fault("disk_low", Remedy.EXCUSE, "the disk was about to be full in mid-iteration")
QUOTA_KEPT = Fault("quota_kept", Remedy.EXCUSE, "the share of the subscription that the human keeps was reached")
DRIVER_DIED = Fault("driver_died", Remedy.EXCUSE, "the loop itself was killed or the machine went down")
LOOP_STOPPED = Fault(
    "loop_stopped", Remedy.EXCUSE, "the loop was stopped (Ctrl+Z, SIGSTOP), and the agent was ended in its place"
)
SURROUNDINGS = Fault("surroundings", Remedy.EXCUSE, "git, the folder or the agent's program failed")
STOPPED = Fault("stopped", Remedy.EXCUSE, "a human stopped the run in mid-iteration")
TAKEN = Fault("taken_over", Remedy.EXCUSE, "another machine took over the run in mid-iteration")
PAUSED = Fault("paused", Remedy.EXCUSE, "a human paused the run in mid-iteration (older versions cut it off)")
STEERED = Fault("steered", Remedy.EXCUSE, "an urgent message interrupted the iteration")
LIMIT_REACHED = Fault("limit_reached", Remedy.EXCUSE, "a limit was reached in mid-iteration")
GOES_ON = frozenset({PAUSED, STEERED, QUOTA_KEPT, DISK_LOW, LOOP_STOPPED})
"""The same iteration goes on in the same session once what interrupted it is over."""

FAULTS: dict[str, Fault] = {
    fault.name: fault
    for fault in (
        USAGE_LIMIT, RATE_LIMIT, OVERLOADED, SERVER_ERROR, NETWORK, AUTHENTICATION, BILLING, MODEL_NOT_FOUND,
        CONTEXT_TOO_LONG, TURNS_EXHAUSTED, BUDGET_EXHAUSTED, REFUSAL, INVALID_REQUEST, MODEL_ERROR, NO_RESULT,
        LOGIN_REPLACED, SESSION_LOST, CRASH, OUT_OF_MEMORY, DISK_FULL, DISK_LOW, HANG, TIMEOUT, QUOTA_KEPT, DRIVER_DIED,
        STOPPED, TAKEN, PAUSED, STEERED, LIMIT_REACHED, LOOP_STOPPED, SURROUNDINGS,
    )
}  # fmt: skip

FORBIDDEN_CODES = (401, 403)
LOGIN_ERRORS = frozenset({"authentication_failed", "oauth_org_not_allowed", "verification_required"})
TOO_LONG = frozenset({"prompt_too_long", "image_error", "rapid_refill_breaker"})
KILLED = 9
SIGNALLED = 128
"""What a shell adds to the number of the signal that ended a program."""
_DISK_FULL = re.compile(r"ENOSPC|no space left on device|disk quota exceeded|EDQUOT", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Sign:
    """One piece of evidence, and the fault it stands for."""

    fault: Fault
    words: str
    """The evidence, for people."""
    holds: Callable[[FaultEvidence], bool]


def _has_no_field(evidence: FaultEvidence) -> bool:
    """Whether nothing but prose tells what happened: then, and only then, prose is looked at."""
    fields = (evidence.terminal_reason, evidence.api_error_status, evidence.api_error, evidence.resets_at)
    return all(field is None for field in fields)


def _is_claudes_own_text(evidence: FaultEvidence) -> bool:
    """Whether the text comes from Claude Code itself (stderr, `errors`) and from no model."""
    return _has_no_field(evidence) and (not evidence.has_result or evidence.subtype == "error_during_execution")


def _died_of(evidence: FaultEvidence, signal: int | None = None) -> bool:
    if evidence.has_result:
        return False
    if signal is None:
        return evidence.signal is not None or (evidence.exit_code or 0) > SIGNALLED
    return evidence.signal == signal or evidence.exit_code == SIGNALLED + signal


# First match wins, most specific evidence first.
SIGNS: tuple[Sign, ...] = (
    Sign(USAGE_LIMIT, "`api_error` is `usage_limit_reached`", lambda e: e.api_error == "usage_limit_reached"),
    Sign(USAGE_LIMIT, "a rejected `rate_limit_event` names its `resetsAt`", lambda e: e.resets_at is not None),
    Sign(
        USAGE_LIMIT,
        "no field at all, and Claude Code's message begins like \"You've hit your 5-hour limit\"",
        lambda e: e.has_result and _has_no_field(e) and tells_usage_limit(e.text),
    ),
    Sign(
        BUDGET_EXHAUSTED, "`terminal_reason` is `budget_exhausted`", lambda e: e.terminal_reason == "budget_exhausted"
    ),
    Sign(BUDGET_EXHAUSTED, "`subtype` is `error_max_budget_usd`", lambda e: e.subtype == "error_max_budget_usd"),
    Sign(TURNS_EXHAUSTED, "`terminal_reason` is `max_turns`", lambda e: e.terminal_reason == "max_turns"),
    Sign(TURNS_EXHAUSTED, "`subtype` is `error_max_turns`", lambda e: e.subtype == "error_max_turns"),
    Sign(
        CONTEXT_TOO_LONG,
        "`terminal_reason` is `prompt_too_long`, `image_error` or `rapid_refill_breaker`",
        lambda e: e.terminal_reason in TOO_LONG,
    ),
    Sign(CONTEXT_TOO_LONG, "HTTP 413", lambda e: e.api_error_status == 413),
    Sign(
        BILLING,
        "`api_error` is `billing_error` or `account_on_hold`",
        lambda e: e.api_error in {"billing_error", "account_on_hold"},
    ),
    Sign(
        LOGIN_REPLACED,
        "the login was refused (as below), and the file that it is in is another one by now",
        lambda e: e.login_replaced and (e.api_error_status in FORBIDDEN_CODES or e.api_error in LOGIN_ERRORS),
    ),
    Sign(AUTHENTICATION, "HTTP 401 or 403", lambda e: e.api_error_status in FORBIDDEN_CODES),
    Sign(
        AUTHENTICATION,
        "`api_error` is `authentication_failed`, `oauth_org_not_allowed` or `verification_required`",
        lambda e: e.api_error in LOGIN_ERRORS,
    ),
    Sign(
        MODEL_NOT_FOUND,
        "HTTP 404, or `api_error` is `model_not_found`",
        lambda e: e.api_error == "model_not_found" or e.api_error_status == 404,
    ),
    Sign(
        RATE_LIMIT,
        "HTTP 429, or `api_error` is `rate_limit`",
        lambda e: e.api_error_status == 429 or e.api_error == "rate_limit",
    ),
    Sign(
        OVERLOADED,
        "HTTP 529, or `api_error` is `overloaded`",
        lambda e: e.api_error_status == 529 or e.api_error == "overloaded",
    ),
    Sign(
        SERVER_ERROR,
        "HTTP 500 to 599, or `api_error` is `server_error`",
        lambda e: (e.api_error_status or 0) >= 500 or e.api_error == "server_error",
    ),
    Sign(REFUSAL, "`stop_reason` is `refusal`", lambda e: e.stop_reason == "refusal"),
    Sign(
        MODEL_ERROR,
        "`api_error` is `max_output_tokens`, or `terminal_reason` is `model_error`",
        lambda e: e.api_error == "max_output_tokens" or e.terminal_reason == "model_error",
    ),
    Sign(
        INVALID_REQUEST,
        "HTTP 400, or `api_error` is `invalid_request`",
        lambda e: e.api_error_status == 400 or e.api_error == "invalid_request",
    ),
    Sign(
        SESSION_LOST,
        'no field, and Claude Code itself says "No conversation found with session ID"',
        lambda e: _is_claudes_own_text(e) and "No conversation found with session ID" in e.text,
    ),
    Sign(
        DISK_FULL,
        'no field, and Claude Code itself says `ENOSPC` or "no space left on device"',
        lambda e: _is_claudes_own_text(e) and _DISK_FULL.search(e.text) is not None,
    ),
    Sign(
        OUT_OF_MEMORY,
        "no result line, signal 9 or exit 137, and the kernel counted a kill for want of memory meanwhile",
        lambda e: e.starved and _died_of(e, KILLED),
    ),
    Sign(CRASH, "no result line, and a signal, or an exit above 128", _died_of),
    Sign(
        NETWORK,
        "no result line, and the last request failed without an HTTP status",
        lambda e: not e.has_result and e.api_error == "unknown",
    ),
    Sign(NO_RESULT, "no result line", lambda e: not e.has_result),
    Sign(
        NETWORK,
        "`terminal_reason` is `api_error` without an HTTP status",
        lambda e: e.terminal_reason == "api_error" and e.api_error_status is None and e.stop_reason != "max_tokens",
    ),
    Sign(MODEL_ERROR, "any other failed result", lambda _: True),
)

BY_THE_LOOP: dict[str, str] = {
    TIMEOUT.name: "the loop ended it after `--timeout`",
    HANG.name: "the loop ended it: no output, CPU time, file or child process for `--idle-timeout`",
    QUOTA_KEPT.name: "the loop ended it: the windows of the subscription reached `--keep-quota`",
    DISK_LOW.name: "the loop ended it: fewer bytes free than `--disk-reserve`",
    DRIVER_DIED.name: "an iteration was open when the next driver came",
    LOOP_STOPPED.name: "the loop was stopped for 15 s, or beyond a limit of time, while the agent worked",
    SURROUNDINGS.name: "git, the folder or the program refused outside of the iteration itself",
    STOPPED.name: "the loop ended it for `untildone stop` or Ctrl+C",
    TAKEN.name: "the loop ended it for `untildone resume --from-server` on another machine",
    PAUSED.name: "an older version ended it for `untildone pause`: now a pause begins when the iteration ends",
    STEERED.name: "the loop ended it for `untildone message --urgent`",
    LIMIT_REACHED.name: "the loop ended it at a limit of money, tokens or time",
}
"""Faults that are no judgement: the loop itself knows them. What it knows them by, for people."""


def classify(evidence: FaultEvidence) -> Fault:
    """Name the cause of a failed iteration."""
    return next(sign.fault for sign in SIGNS if sign.holds(evidence))

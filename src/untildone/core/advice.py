"""What to do next after a stop: one helpful line for every reason."""

import math
import re
from collections.abc import Mapping, Sequence

from untildone.core.checkup import refused_login
from untildone.core.durations import LONGEST, format_duration
from untildone.core.limits import limit_of
from untildone.core.obstacles import way_out
from untildone.core.permissions import resume_command, rules_for
from untildone.core.state import LoopState
from untildone.core.stopping import Reason

_FLAGS: Mapping[Reason, str] = {
    Reason.MAX_RUNS: "--max-runs",
    Reason.MAX_ITERATIONS: "--max-iterations",
    Reason.MAX_COST: "--max-cost",
    Reason.MAX_TOKENS: "--max-tokens",
    Reason.MAX_DURATION: "--max-duration",
    Reason.DEADLINE: "--deadline",
}

_UNVERIFIED = "Nothing was verified: review the work (`untildone brief {name}`); next time give `--check CMD`."
_ADVICE: Mapping[Reason, str] = {
    Reason.SHUTDOWN_SIGNAL: "Resume: `untildone resume {name}`.",
    Reason.STOP_REQUESTED: "Resume: `untildone resume {name}`.",
    Reason.TAKEN_OVER: "It continues there. Take it back: `untildone resume --from-server {id} --take`.",
    Reason.VALIDATION_PASSED: "Review the commits; `untildone brief {name}` has the evidence.",
    Reason.COMPLETION_SIGNAL: _UNVERIFIED,
    Reason.BLOCKED: 'Remove the obstacle, or answer with `untildone message {name} "..."`, '
    "then `untildone resume {name}`.",
    Reason.PERMISSION_DENIED: "{allow} To go on without it: `untildone resume {name}`.",
    Reason.AUTHENTICATION: "{login}, then `untildone resume {name}`.",
    Reason.BILLING: "Add credit to the account, then `untildone resume {name}`.",
    Reason.MODEL_NOT_FOUND: "Choose another model: `untildone resume {name} --model ...`.",
    Reason.USAGE_LIMIT: "After the reset: `untildone resume {name}`; "
    "with `--wait --max-wait 0` it waits by itself, however long that takes.",
    Reason.OUTAGE: "Wait until the API answers again, then `untildone resume {name}`.",
    Reason.CONSECUTIVE_ERRORS: "See what failed with `untildone log {name}`, then `untildone resume {name}`.",
    Reason.CIRCUIT_OPEN: 'Say what to do differently with `untildone message {name} "..."`, '
    "then `untildone reset {name}` and `untildone resume {name}` (or wait {cooldown}: one trial is allowed then).",
    Reason.CLEAN_ROOM: "Fix the problem, or say how a fresh checkout is prepared: "
    "`untildone resume {name} --setup 'CMD'`, or what it borrows: `--share FOLDER` (weaker: `--check-in tree`).",
    Reason.REVIEW_STALEMATE: 'Decide between the two with `untildone message {name} "..."`, '
    "then `untildone resume {name}` (`--review never` goes on without a reviewer).",
    Reason.ACCEPTED: "Review the commits, the changed tests above all; `untildone brief {name}` lists them.",
    Reason.DISPUTED: "If the change of the tests is right, `untildone accept {name}`, then `untildone resume {name}` "
    '(no further iteration). If not, say so with `untildone message {name} "..."` and resume.',
    Reason.LANDING_FAILED: "The work is kept. Fix the problem, then `untildone land {name}`.",
    Reason.HOOK_FAILED: "Fix the command that failed, then `untildone resume {name}`.",
    Reason.SURROUNDINGS: "The work is kept. Fix the problem, then `untildone resume {name}`.",
    Reason.LOOP_LOST: "It does not continue by itself: start a new one with `/untildone:loop` in a session.",
    Reason.INTERNAL_ERROR: "The work is kept. See `untildone log {name}`, then resume: "
    "`untildone resume {name}`. Please report this.",
}  # fmt: skip

_IN_SESSION: Mapping[Reason, str] = {
    Reason.VALIDATION_PASSED: "Review the work; `untildone brief {name}` says what was checked.",
    Reason.COMPLETION_SIGNAL: _UNVERIFIED,
}
_BEGIN_ANEW = "Start a new one in a session with `/untildone:loop`; `untildone loop history {name}` has its goal."
_LOOP_GONE = (
    "No session has this loop open: resume its session, or continue the loop in another one with "
    "`/untildone:loop --adopt`; "
    "`untildone loop stop {name}` ends it. If its state file is gone, start a new one."
)

_WORK_ENDED = frozenset({*_FLAGS, Reason.SHUTDOWN_SIGNAL, Reason.STOP_REQUESTED, Reason.BLOCKED, Reason.CIRCUIT_OPEN})
"""Stops after which what is in the way of done is a human's next concern."""
_MOST: Mapping[Reason, float] = {
    Reason.MAX_RUNS: 1e9,
    Reason.MAX_ITERATIONS: 1e9,
    Reason.MAX_COST: 1e9,
    Reason.MAX_TOKENS: 1e15,
    Reason.MAX_DURATION: LONGEST,
}
"""What is worth advising at all."""
_DRIVER_GONE = "The program that ran it is gone. Resume: `untildone resume {name}`."


def advice(reason: str, state: LoopState) -> str:
    """What to do next, as one line with the commands to type."""
    name = handle(state)
    if state.spec.in_session:
        return next((said for known, said in _IN_SESSION.items() if known == reason), _BEGIN_ANEW).format(name=name)
    try:
        known = Reason(reason)
    except ValueError:
        return f"See `untildone log {name}`, then resume: `untildone resume {name}`."
    way = way_out(state, name) if known in _WORK_ENDED else ""
    if way and state.claim_due:
        return way
    if known in _FLAGS:
        more = f"`untildone resume {name} {_FLAGS[known]} {_more(known, state)}`"
        return f"{way} To let the agent try again: {more}." if way else f"Resume with a higher limit: {more}."
    if known is Reason.VALIDATION_PASSED and not state.commits:
        return f"Review the changes; `untildone brief {name}` has the evidence."
    login = refused_login(state.lane)
    usual = _ADVICE[known].format(
        name=name,
        id=state.run_id,
        cooldown=format_duration(state.policy.breaker_cooldown),
        allow=how_to_allow(state, state.last_denials),
        login=login[:1].upper() + login[1:],
    )
    return f"{way} {usual}".strip()


def how_to_allow(state: LoopState, denials: Sequence[str]) -> str:
    """What to type so that the agent may do what it was denied."""
    options = state.spec.options
    rules = rules_for(denials, options.allowed_tools, options.disallowed_tools)
    if rules:
        return f"To allow it: `{resume_command(handle(state), rules)}`."
    return "No rule allows it: your `--disallowed-tools`, your own settings, or Claude Code itself forbid it."


def driver_gone(state: LoopState) -> str:
    """What to do about a run whose driver died."""
    return (_LOOP_GONE if state.spec.in_session else _DRIVER_GONE).format(name=handle(state))


def handle(state: LoopState) -> str:
    """What to type for this run: its name, or its id when the name would need quoting."""
    return state.spec.name if re.fullmatch(r"[\w.@:+][\w.@:+-]*", state.spec.name) else state.run_id


def _more(reason: Reason, state: LoopState) -> str:
    """A limit worth trying: twice what was allowed, and at least twice what was needed so far."""
    limit = limit_of(reason)
    value = limit.value(state.policy) if limit else None
    if reason is Reason.DEADLINE or limit is None or not value:  # 0: the goals before have used it up
        return "HH:MM" if reason is Reason.DEADLINE else "N"
    # A limit may have been lowered below what was used by then.
    enough = 2 * max(value, limit.used(state, state.last_at))
    if not enough < _MOST[reason]:
        return "N"  # what no account or clock holds can only come from a damaged or hostile event
    if reason is Reason.MAX_COST:
        # Up to the next cent.
        return f"{math.ceil(round(100 * enough, 6)) / 100:.2f}".removesuffix(".00")
    return format_duration(math.ceil(enough)) if reason is Reason.MAX_DURATION else str(int(enough))

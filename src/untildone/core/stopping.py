"""Why a run stops: one name per cause, its exit code, and what it means to a person.

Stdlib only: the Stop hook shares this file.
"""

from enum import StrEnum
from typing import NamedTuple


class Reason(StrEnum):
    """The honest reason of a stop."""

    SHUTDOWN_SIGNAL = "shutdown_signal"
    STOP_REQUESTED = "stop_requested"
    TAKEN_OVER = "taken_over"
    VALIDATION_PASSED = "validation_passed"
    ACCEPTED = "changes_accepted"
    COMPLETION_SIGNAL = "completion_signal"
    BLOCKED = "blocked"
    PERMISSION_DENIED = "permission_denied"
    AUTHENTICATION = "authentication"
    BILLING = "billing"
    MODEL_NOT_FOUND = "model_not_found"
    USAGE_LIMIT = "usage_limit"
    OUTAGE = "outage"
    CONSECUTIVE_ERRORS = "consecutive_errors"
    CIRCUIT_OPEN = "circuit_open"
    MAX_RUNS = "max_runs_reached"
    MAX_ITERATIONS = "max_iterations_reached"
    MAX_COST = "max_cost_reached"
    MAX_TOKENS = "max_tokens_reached"
    MAX_DURATION = "max_duration_reached"
    DEADLINE = "deadline_reached"
    CLEAN_ROOM = "clean_room_refused"
    REVIEW_STALEMATE = "review_stalemate"
    DISPUTED = "disputed"
    LANDING_FAILED = "landing_failed"
    HOOK_FAILED = "hook_failed"
    SURROUNDINGS = "surroundings_failed"
    LOOP_LOST = "loop_lost"
    INTERNAL_ERROR = "internal_error"


TAKEN_BY = "server: taken over"
"""Who stops a run that another machine has by now."""
DONE = frozenset({Reason.VALIDATION_PASSED, Reason.ACCEPTED, Reason.COMPLETION_SIGNAL})


BY_WORD = "done by the agent's word: no checks ran"
"""What a run is that ended without a check. Never "verified"."""


class Exit(NamedTuple):
    """An exit code of the program, and what it says."""

    code: int
    meaning: str


EXITS: tuple[Exit, ...] = (
    Exit(0, "done"),
    Exit(1, "failed"),
    Exit(2, "wrong usage or configuration"),
    Exit(3, "a limit was reached"),
    Exit(4, "the circuit breaker is open"),
    Exit(5, "blocked, or a permission was denied"),
    Exit(6, "usage limit, outage, login or billing"),
    Exit(7, "done, but the work could not be landed"),
    Exit(130, "stopped by the user"),
)


SIGNALS = {
    "SIGINT": "Ctrl+C was pressed",
    "SIGTERM": "the program was told to stop",
    "SIGHUP": "the terminal was closed",
}
"""What a signal that stops a run means."""


class Ending(NamedTuple):
    """What a stop reason says to a shell and to a person."""

    exit_code: int
    meaning: str


NOT_DONE = "; the goal is not done"
ENDINGS: dict[Reason, Ending] = {
    Reason.SHUTDOWN_SIGNAL: Ending(130, "the program was told to stop (Ctrl+C, SIGTERM or a closed terminal)"),
    Reason.STOP_REQUESTED: Ending(130, "a person stopped it (`untildone stop`, or the dashboard)"),
    Reason.TAKEN_OVER: Ending(130, "another machine took over the run and continues it there"),
    Reason.VALIDATION_PASSED: Ending(0, "the agent claimed to be done and every check passed"),
    Reason.ACCEPTED: Ending(0, "every check passed with tests that the run changed, and that change was accepted"),
    Reason.COMPLETION_SIGNAL: Ending(0, BY_WORD),
    Reason.BLOCKED: Ending(5, "the agent reported that it is blocked"),
    Reason.PERMISSION_DENIED: Ending(5, "the agent was denied a permission again and again and changed nothing"),
    Reason.AUTHENTICATION: Ending(6, "the login or key was refused"),
    Reason.BILLING: Ending(6, "the account has no credit or is on hold"),
    Reason.MODEL_NOT_FOUND: Ending(2, "the model does not exist or is not allowed"),
    Reason.USAGE_LIMIT: Ending(
        6, "the usage limit is reached; waiting for its reset is switched off or would take too long"
    ),
    Reason.OUTAGE: Ending(6, "rate limits, overload or network trouble lasted longer than the outage budget"),
    Reason.CONSECUTIVE_ERRORS: Ending(1, "too many iterations in a row failed"),
    Reason.CIRCUIT_OPEN: Ending(4, "the agent is stuck (the circuit breaker is open)"),
    Reason.MAX_RUNS: Ending(3, f"reached the limit of runs{NOT_DONE}"),
    Reason.MAX_ITERATIONS: Ending(3, f"reached the limit of attempts{NOT_DONE}"),
    Reason.MAX_COST: Ending(3, f"reached the limit of cost{NOT_DONE}"),
    Reason.MAX_TOKENS: Ending(3, f"reached the limit of tokens{NOT_DONE}"),
    Reason.MAX_DURATION: Ending(3, f"reached the limit of time{NOT_DONE}"),
    Reason.DEADLINE: Ending(3, f"reached the deadline{NOT_DONE}"),
    Reason.CLEAN_ROOM: Ending(2, "a check cannot prove anything: it cannot be run, or fails only in a fresh checkout"),
    Reason.REVIEW_STALEMATE: Ending(5, "the reviewer kept asking for changes: the agent and the reviewer do not agree"),
    Reason.DISPUTED: Ending(5, "the checks pass only with tests or settings that the run changed: you decide"),
    Reason.LANDING_FAILED: Ending(7, "the work is done but could not be landed; it is kept: `untildone land`"),
    Reason.HOOK_FAILED: Ending(1, "one of your own commands failed, and `--hook-failure stop` is set"),
    Reason.SURROUNDINGS: Ending(1, "git, the folder or the agent's program failed; the work is kept"),
    Reason.LOOP_LOST: Ending(1, "the loop inside Claude Code is gone"),
    Reason.INTERNAL_ERROR: Ending(1, "a bug: the work is kept, the details are in the log"),
}


def exit_code(reason: str) -> int:
    """The exit code of a stop; a reason this version does not know is a failure."""
    return _ending(reason).exit_code


def meaning(reason: str) -> str:
    """What a stop means, in a person's words."""
    return _ending(reason).meaning


def cause(reason: str) -> str:
    """The same where what became of the goal is said beside it."""
    return meaning(reason).removesuffix(NOT_DONE)


def _ending(reason: str) -> Ending:
    try:
        return ENDINGS[Reason(reason)]
    except ValueError:
        return Ending(1, reason)

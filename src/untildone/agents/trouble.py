"""Signs of failure in one conversation, gathered until a real reply shows that they are over.

Then the whole value is thrown away and a new one begun.
"""

import math
from typing import Any

from untildone.agents.stream import Line
from untildone.core.outcome import FaultEvidence
from untildone.core.trace import QuotaWindow

TEXT_KEPT = 4096
MOST_WINDOWS = 20
LONGEST_OWN_WAIT = 3.0
"""Seconds Claude Code may wait by itself between two tries. Ending a turn and beginning another takes about one; a
longer wait is for the loop: it shows a countdown, can be skipped, and minds deadlines and budgets."""
LONGEST_SHARED_WAIT = 60.0
"""The same while something else goes on in the turn, which would be lost: a tool, a subagent, a background task."""
_FIRST_STATUS, _LAST_STATUS = 100, 999
_LATEST_RESET = 1e11
"""Epoch seconds beyond this are milliseconds, or nonsense."""


class Trouble:
    """Remembers what Claude Code said about API errors, retries and limits."""

    def __init__(self) -> None:
        self._status: int | None = None
        self._error: str | None = None
        self._text = ""
        self._resets_at: float | None = None
        self._limit_type: str | None = None
        self._retry_after: float | None = None
        self._is_beyond_its_retries = False

    @property
    def own_wait(self) -> float | None:
        """Seconds Claude Code said it waits before it tries again; None: it does not."""
        return self._retry_after

    def is_for_the_loop(self, *, alone: bool) -> bool:
        """Whether Claude Code waits longer than is its own business. `alone`: nothing else goes on meanwhile."""
        if self._retry_after is None:
            return False
        longest = LONGEST_OWN_WAIT if alone else LONGEST_SHARED_WAIT
        return self._retry_after > longest or (alone and self._is_beyond_its_retries)

    def unreadable(self, error: str) -> None:
        """Note a line that could not be read: it may have been the result."""
        self._text = error

    def synthetic(self, line: Line, text: str) -> None:
        """Note an error that Claude Code put into the conversation as if the model had said it."""
        self._status = _status(line.api_error_status) or self._status
        self._error = _word(line.api_error) or _word(line.error) or self._error
        self._text = text

    def retry(self, data: dict[str, Any]) -> None:
        """Note that a request failed and will be tried again."""
        self._status = _status(data.get("error_status"))
        self._error = _word(data.get("error"))
        delay = _number(data.get("retry_delay_ms"))
        self._retry_after = None if delay is None else delay / 1000
        attempt, most = _number(data.get("attempt")), _number(data.get("max_retries"))
        self._is_beyond_its_retries = attempt is not None and most is not None and attempt > most

    def limit(self, info: Any) -> None:
        """Note the state of the usage limits."""
        rejected = isinstance(info, dict) and info.get("status") == "rejected"
        resets_at = _number(info.get("resetsAt")) if rejected else None
        self._resets_at = resets_at if resets_at is not None and resets_at < _LATEST_RESET else None
        self._limit_type = _word(info.get("rateLimitType")) if rejected else None

    def given_up(self) -> FaultEvidence:
        """Tell why a turn was ended by ourselves while Claude Code waited.

        Its own result would say no more than that somebody ended it.
        """
        return FaultEvidence(
            is_error=True,
            terminal_reason="api_error",
            api_error_status=self._status,
            api_error=self._error,
            resets_at=self._resets_at,
            limit_type=self._limit_type,
            retry_after=self._retry_after,
            text=f"the API asks for a new try in {self._retry_after or 0.0:.0f} s",
        )

    def evidence(self, result: Line | None, *, exit_code: int | None, stderr: str, starved: bool) -> FaultEvidence:
        """Put together everything that tells why the iteration failed."""
        signal = -exit_code if exit_code is not None and exit_code < 0 else None
        if result is None:
            return FaultEvidence(
                is_error=True, has_result=False, api_error_status=self._status, api_error=self._error,
                resets_at=self._resets_at, limit_type=self._limit_type, retry_after=self._retry_after,
                exit_code=exit_code, signal=signal, starved=starved, text=(stderr.strip() or self._text)[-TEXT_KEPT:],
            )  # fmt: skip
        return FaultEvidence(
            is_error=True,
            subtype=_word(result.subtype),
            terminal_reason=_word(result.terminal_reason),
            api_error_status=_status(result.api_error_status) or self._status,
            api_error=_word(result.api_error) or self._error,
            stop_reason=_word(result.stop_reason),
            resets_at=self._resets_at,
            limit_type=self._limit_type,
            retry_after=self._retry_after,
            exit_code=exit_code,
            signal=signal,
            text=(_malformed(result) + (_result_text(result) or self._text or stderr.strip()))[:TEXT_KEPT],
        )


def quota_windows(info: Any) -> tuple[QuotaWindow, ...]:
    """The subscription's windows as Claude Code tells them, with whatever it answers; () when it does not."""
    if not isinstance(info, dict):
        return ()
    windows = info.get("unifiedWindows")
    if not isinstance(windows, dict):  # an older one tells only the window that matters most
        windows = {_word(info.get("rateLimitType")) or "": info}
    found = (_window(name, told) for name, told in windows.items())
    return tuple(window for window in found if window is not None)[:MOST_WINDOWS]


def _window(name: Any, told: Any) -> QuotaWindow | None:
    known = _word(name)
    if known is None or not isinstance(told, dict):
        return None
    used, resets_at = _number(told.get("utilization")), _number(told.get("resetsAt"))
    if used is None or resets_at is None or resets_at >= _LATEST_RESET:
        return None
    return QuotaWindow(name=known, utilization=min(used, 1.0), resets_at=resets_at)


def _malformed(result: Line) -> str:
    """What is wrong with a result that says neither that it failed nor that it did not."""
    if isinstance(result.is_error, bool) and isinstance(result.subtype, str):
        return ""
    return "Claude's result is malformed: it does not say whether it is an error. "


def _result_text(result: Line) -> str:
    if isinstance(result.result, str) and result.result.strip():
        return result.result
    errors = result.errors if isinstance(result.errors, list) else []
    return "; ".join(error for error in errors if isinstance(error, str))


def _status(value: Any) -> int | None:
    valid = isinstance(value, int) and not isinstance(value, bool) and _FIRST_STATUS <= value <= _LAST_STATUS
    return value if valid else None


def _word(value: Any) -> str | None:
    return value[:200] if isinstance(value, str) and value else None


def _number(value: Any) -> float | None:
    valid = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf
    return float(value) if valid else None
